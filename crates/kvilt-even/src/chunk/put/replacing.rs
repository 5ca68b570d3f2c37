//! A put that takes the place of the row that the munk's run has of its key (docs/design/0050-rows-replaced-one-by-one.md).

use kvilt_base::{EntryRef, Kind, Mutant, Version, mutant};
use kvilt_sync::{
    published::{Pin, pin},
    rows::Replaced,
};

use crate::{chunk::Chunk, key_hash::key_hash, munk::Munk, store::Store};

/// How often a pin is flushed for a row that will have no room.
const FLUSHES_IF_SHORT: usize = 3;

impl Store {
    /// Lets a single put take the place of the row that the munk's run has of its key. False if there is none, or if it has to stay:
    /// some view sees it, or the background reads the run. A tail must have nothing of the key, for it is looked at first;
    /// and a batch's entries are passed by while it is in flight, so what lies below them is needed.
    pub(super) fn replace_in_run(&self, munk: &Munk, entry: EntryRef<'_>, pin: &Pin) -> bool {
        let hash = key_hash(entry.key);
        let is_of_tails = || munk.tails.iter().any(|tail| tail.may_have(hash));
        if entry.kind != Kind::Put
            || !munk.tombstones.is_empty()
            || (is_of_tails() && !mutant(Mutant::ReplacedBelowTail))
        {
            return false;
        }
        // E-13: a view that is opened from here on is at the version of this put, or above.
        let is_unseen = |older: Version| {
            !self.versions.is_viewed(older..entry.version) || mutant(Mutant::ReplacedUnderView)
        };
        munk.run.replace(entry, hash, pin, is_unseen) == Replaced::Done
    }
}

/// Has the processor fetch what finds a key, and where its row will probably be written: it comes from memory while room is made.
/// If rows that were replaced are wanted back for that, asks for them.
pub(super) fn fetch_ahead(chunk: &Chunk, key: &[u8], row_bytes: usize) {
    let is_short = chunk.state(&pin()).munk.as_ref().is_some_and(|munk| munk.run.run.is_short_of_room());
    if is_short {
        // Now, while nobody waits for this put. Two of them let go of what no pin sees, the third finds it.
        (0..FLUSHES_IF_SHORT).for_each(|_| pin().flush());
    }
    let pin = pin();
    let state = chunk.state(&pin);
    let hash = key_hash(key);
    if let Some(munk) = &state.munk
        && !munk.run.run.fetch_ahead(hash, row_bytes)
    {
        munk.tail().fetch_ahead(hash, row_bytes);
    }
    if let Some(log) = &state.funk.log {
        log.fetch_index(&pin, hash);
    }
}

/// The same with the row that may be replaced, while the log is written to. False if there is none.
pub(super) fn fetch_replaced(munk: &Munk, key: &[u8]) -> bool {
    let hash = key_hash(key);
    let may_be_there = munk.run.run.fetch_replaced(hash);
    if may_be_there && !munk.tail().is_empty() {
        munk.tail().fetch_ahead(hash, 0);
    }
    may_be_there
}
