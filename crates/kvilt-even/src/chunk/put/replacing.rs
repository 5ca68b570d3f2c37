//! A put that takes the place of the row that the munk's run has of its key
//! (docs/design/0050-rows-replaced-one-by-one.md).

use std::cell::Cell;

use kvilt_base::{EntryRef, Kind, planted};
use kvilt_sync::{
    published::{Pin, pin},
    rows::Replaced,
};

use crate::{
    chunk::Chunk,
    key_hash::key_hash,
    munk::{Munk, run::bytes_of},
    store::Store,
};

/// How often a pin is flushed for a row that will have no room.
const FLUSHES_IF_SHORT: usize = 3;
/// A thread looks after what it has replaced each time that it has replaced so many rows …
const ROWS_A_FLUSH: usize = 32;
/// … and so many bytes count as another row.
const BYTES_A_ROW: usize = 2 << 10;

thread_local! {
    static UNFLUSHED: Cell<usize> = const { Cell::new(0) };
}

/// What a put needs to take a row's place.
#[derive(Clone, Copy)]
pub(super) struct Replacing<'p> {
    /// The hash of its key.
    hash: u32,
    pin: &'p Pin,
}

impl Store {
    /// Lets a single put take the place of the row that the munk's run has of its key. False if there is
    /// none, or if it has to stay: some view sees it, or the background reads the run. A tail must have
    /// nothing of the key, for it is looked at first; and a batch's entries are passed by while it is in
    /// flight, so what lies below them is needed.
    pub(super) fn replace_in_run(&self, munk: &Munk, entry: EntryRef<'_>, replacing: Replacing<'_>) -> bool {
        let Replacing { hash, pin } = replacing;
        let is_of_tails = || munk.tails.iter().any(|tail| tail.may_have(hash));
        let may_replace = entry.kind == Kind::Put && !is_of_tails();
        let may_replace = planted!(ReplacedBelowTail, may_replace => entry.kind == Kind::Put);
        if !may_replace {
            return false;
        }
        // E-13: a view that is opened from here on is at the version of this put, or above.
        let is_unseen = |older: EntryRef<'_>| {
            planted!(ReplacedUnderView => return true);
            !self.versions.is_viewed(older.version..entry.version)
        };
        let is_done = munk.run.replace(entry, hash, pin, is_unseen) == Replaced::Done;
        if is_done {
            UNFLUSHED.set(UNFLUSHED.get() + 1 + bytes_of(entry) / BYTES_A_ROW);
        }
        is_done
    }
}

/// Has the processor fetch what finds a key, and where its row will probably be written: it comes from memory
/// while room is made. If rows that were replaced are wanted back for that, asks for them.
pub(super) fn fetch_ahead(chunk: &Chunk, key: &[u8], row_bytes: usize) {
    let is_short = {
        let pin = pin();
        let state = chunk.state(&pin);
        let hash = key_hash(key);
        if let Some(log) = &state.funk.log {
            log.fetch_index(&pin, hash);
        }
        state.munk.as_ref().is_some_and(|munk| {
            if !munk.run.run.fetch_ahead(hash, row_bytes) {
                munk.tail().fetch_ahead(hash, row_bytes);
            }
            munk.run.run.take_shortage()
        })
    };
    if is_short {
        // Now, while nobody waits for this put. Each looks where this thread has retired rows, and where some
        // other has.
        (0..FLUSHES_IF_SHORT).for_each(|_| pin().flush());
    }
}

/// The same with the row that may be replaced, while the log is written to. None if there is none.
pub(super) fn fetch_replaced<'p>(munk: &Munk, key: &[u8], pin: &'p Pin) -> Option<Replacing<'p>> {
    let hash = key_hash(key);
    let may_be_there = munk.run.run.fetch_replaced(hash);
    if may_be_there && !munk.tail().is_empty() {
        munk.tail().fetch_ahead(hash, 0);
    }
    may_be_there.then_some(Replacing { hash, pin })
}

/// Looks after the rows that this thread has replaced: they wait for pins, and until it says which, their
/// memory serves no others.
pub(super) fn flush_replaced(pin: &Pin) {
    let unflushed = UNFLUSHED.get();
    if unflushed >= ROWS_A_FLUSH {
        pin.flush();
        UNFLUSHED.set(unflushed % ROWS_A_FLUSH);
    }
}
