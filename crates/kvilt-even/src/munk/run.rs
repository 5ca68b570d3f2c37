//! `Run`: the sorted part of a munk (EvenDB §3.1: the munk's sorted prefix).
//!
//! Which keys it has never changes once it is built; a row may be replaced by a newer one of its key, if no
//! view sees the older (docs/design/0050-rows-replaced-one-by-one.md). A run that consists of another's first
//! rows shares the other's memory. A run may also be woven: of another's rows, which stay where they are, and
//! of some behind them (docs/design/0042-tails-woven-into-runs.md,
//! docs/design/0043-weaving-costs-what-is-new.md).

mod builder;
mod weaver;

use std::sync::atomic::{AtomicUsize, Ordering};

use kvilt_base::{Direction, EntryRef, KeyRange, Result, Source, Version};
use kvilt_sync::{
    published::Pin,
    rows::{Hold, ROW_HEAD_BYTES, Reading, Replaced, Rows, row_bytes},
};

pub(crate) use self::{
    builder::{PiecesBuilder, RunBuilder},
    weaver::Weaver,
};
use crate::{
    heads::{self, Heads},
    key_hash::key_hash,
};

/// So many entries of a scan the processor is told to fetch before they are read. Fewer do not hide how long
/// memory takes, more do not fit where the processor notes what is on its way
/// (docs/design/0045-scans-walk-one-source.md).
const ENTRIES_AHEAD_MAX: usize = 5;
/// To copy an entry takes as long as a scan loses by so many that lie elsewhere than behind the last (0.2 µs
/// and 0.1).
const JUMPS_A_COPIED_ENTRY: usize = 2;
/// An entry lies elsewhere if it is so many entries away, or so many bytes.
const JUMP_ENTRIES: usize = 4;
const JUMP_BYTES: usize = 4 << 10;
/// So much of an entry is fetched ahead, at most: of a longer one the processor fetches the rest, if it is
/// read at all.
const FETCHED_AHEAD_BYTES_MAX: usize = 1 << 10;

/// Bytes of an entry with a key and a value as long as these.
pub(crate) fn entry_bytes(key_len: usize, value_len: usize) -> usize {
    ROW_HEAD_BYTES + key_len + value_len
}

/// Bytes of this entry.
pub(crate) fn bytes_of(entry: EntryRef<'_>) -> usize {
    row_bytes(entry)
}

/// Sorted entries in memory. They are read by a [`RunReader`].
#[derive(Debug)]
pub(crate) struct Run {
    rows: Rows,
    /// Entries that are not their keys' newest.
    older: Older,
    /// Bytes of an entry on the average, when it was built.
    mean_entry_bytes: usize,
    heads: Heads,
    /// How often a scan came to an entry that lies elsewhere than behind the last.
    jumps: AtomicUsize,
}

/// Of entries that are not their keys' newest …
#[derive(Clone, Copy, Debug, Default)]
struct Older {
    /// … how many bytes there are …
    bytes: usize,
    /// … which no view sees that is at this version or above.
    until: Option<Version>,
}

impl Older {
    fn add(&mut self, older: EntryRef<'_>, newer: Version) {
        self.bytes += bytes_of(older);
        self.until = self.until.max(Some(newer));
    }

    fn and(self, other: Older) -> Older {
        Older { bytes: self.bytes + other.bytes, until: self.until.max(other.until) }
    }
}

/// The right to read a run, as long as a pin or a hold.
#[derive(Clone, Copy)]
pub(crate) struct RunReader<'r> {
    run: &'r Run,
    rows: Reading<'r>,
}

impl Run {
    /// A run without entries.
    pub(crate) fn empty() -> Self {
        Run::of(Rows::empty(), Older::default())
    }

    fn of(rows: Rows, older: Older) -> Self {
        let heads = {
            let hold = rows.hold();
            let all = rows.held(&hold);
            Heads::new((0..rows.len()).map(|at| all.entry_at(at).key))
        };
        Run::with_heads(rows, older, heads)
    }

    fn with_heads(rows: Rows, older: Older, heads: Heads) -> Self {
        let mean_entry_bytes = rows.bytes().checked_div(rows.len()).unwrap_or(0);
        Run { rows, older, mean_entry_bytes, heads, jumps: AtomicUsize::new(0) }
    }

    /// To be read as long as a pin.
    #[inline]
    pub(crate) fn under<'r>(&'r self, pin: &'r Pin) -> RunReader<'r> {
        RunReader { run: self, rows: self.rows.under(pin) }
    }

    /// To be read as long as it is held.
    pub(crate) fn held<'r>(&'r self, hold: &'r Hold) -> RunReader<'r> {
        RunReader { run: self, rows: self.rows.held(hold) }
    }

    /// No entry of it is replaced as long as this lives.
    pub(crate) fn hold(&self) -> Hold {
        self.rows.hold()
    }

    /// Its first `count` entries as a run that keeps all of this one's memory. Not for one whose entries lie
    /// apart.
    pub(crate) fn first(&self, count: usize, hold: &Hold) -> Run {
        if count == 0 {
            return Run::empty();
        }
        let rows = self.rows.first(count, hold, key_hash);
        let mut older = Older::default();
        let all = self.held(hold);
        for at in 1..count {
            let (newer, entry) = (all.entry_at(at - 1), all.entry_at(at));
            if newer.key == entry.key {
                older.add(entry, newer.version);
            }
        }
        Run::of(rows, older)
    }

    /// Puts an entry in the place of the newest of its key, if there is one of which `may_replace` says that
    /// it may go. If that cannot be, nothing is changed, and the entry belongs into a tail.
    pub(crate) fn replace(
        &self,
        entry: EntryRef<'_>,
        hash: u32,
        pin: &Pin,
        may_replace: impl FnOnce(EntryRef<'_>) -> bool,
    ) -> Replaced {
        self.rows.replace(hash, entry, pin, may_replace, || self.under(pin).lower_bound(entry.key))
    }

    /// Has the processor fetch what finds a key with this hash, and where an entry of so many bytes would
    /// take the place of another. False if none has yet, so that nobody knows where that would be.
    pub(crate) fn fetch_ahead(&self, hash: u32, bytes: usize) -> bool {
        self.rows.fetch_ahead(hash, bytes)
    }

    /// Whether the next entry that takes another's place will probably have no room for it, unless pins are
    /// flushed; told once.
    pub(crate) fn take_shortage(&self) -> bool {
        self.rows.take_shortage()
    }

    /// The same with the entry that may be replaced, a moment later. False if there is no key with this hash.
    pub(crate) fn fetch_replaced(&self, hash: u32) -> bool {
        self.rows.fetch_row(hash)
    }

    /// Bytes of its first `count` entries, if they do not lie apart.
    pub(crate) fn bytes_before(&self, count: usize) -> usize {
        self.rows.bytes_before(count)
    }

    /// Whether it has entries that lie apart.
    pub(crate) fn is_scattered(&self) -> bool {
        self.rows.is_scattered()
    }

    /// How many entries it has.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of the entries themselves: what a chunk counts as its size.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// Bytes of an entry on the average; 0 without entries.
    pub(crate) fn mean_entry_bytes(&self) -> usize {
        self.mean_entry_bytes
    }

    /// How much of an entry is fetched ahead.
    fn fetched_ahead_bytes(&self) -> usize {
        self.mean_entry_bytes.min(FETCHED_AHEAD_BYTES_MAX)
    }

    /// How far from the last an entry lies that lies elsewhere.
    fn jump_bytes(&self) -> usize {
        (JUMP_ENTRIES * self.mean_entry_bytes).max(JUMP_BYTES)
    }

    /// Bytes in its memory that are none of its entries, nor for such that replace others.
    pub(crate) fn waste_bytes(&self) -> usize {
        self.rows.waste_bytes()
    }

    /// Bytes of its entries that have newer ones of their keys: wasted, too, if nobody looks that far back,
    /// and `oldest` is the oldest view that is open.
    pub(crate) fn unseen_bytes(&self, oldest: Option<Version>) -> usize {
        let is_seen = oldest.is_some_and(|view| Some(view) < self.older.until);
        if is_seen { 0 } else { self.older.bytes }
    }

    /// Whether it has such entries.
    pub(crate) fn has_older(&self) -> bool {
        self.older.bytes > 0
    }

    /// Memory, all in all: with what of its regions other runs share.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.rows.memory_bytes() + self.heads.bytes()
    }

    /// Whether scans have spent as much on entries that lie apart as it costs to lay them one behind the
    /// other.
    pub(crate) fn have_scans_paid_for_order(&self) -> bool {
        // Relaxed: a statistic.
        self.jumps.load(Ordering::Relaxed) > JUMPS_A_COPIED_ENTRY * self.len().max(1)
    }

    /// What all its keys begin with.
    pub(crate) fn prefix(&self) -> &[u8] {
        self.heads.prefix()
    }
}

impl<'r> RunReader<'r> {
    /// The run.
    pub(crate) fn run(&self) -> &'r Run {
        self.run
    }

    /// The entry at a position.
    #[inline]
    pub(crate) fn entry_at(&self, position: usize) -> EntryRef<'r> {
        self.rows.entry_at(position)
    }

    /// Whether it has two keys, so that it can be cut between them.
    pub(crate) fn can_be_cut(&self) -> bool {
        self.run.len() > 1 && self.key_at(0) != self.key_at(self.run.len() - 1)
    }

    /// Its first key.
    pub(crate) fn first_key(&self) -> Option<&'r [u8]> {
        (self.run.len() > 0).then(|| self.key_at(0))
    }

    /// The key at a position.
    #[inline]
    pub(crate) fn key_at(&self, position: usize) -> &'r [u8] {
        self.rows.entry_at(position).key
    }

    /// The position of the first entry whose key is `>= key`.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        // Where the entries of a block lie is in memory of its own, and comes while the block is searched.
        let fetch_places = |start| self.rows.fetch_places_ahead(start, heads::BLOCK);
        self.run.heads.lower_bound_in(key, |at| self.key_at(at), fetch_places)
    }

    /// The newest entry of `key`, to be looked at, not read.
    pub(crate) fn newest(&self, key: &[u8]) -> Option<EntryRef<'r>> {
        self.rows.find(key, key_hash(key))
    }

    /// The newest entry of `key`, whose hash is `hash`, with a version up to `at`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], hash: u32, at: Version) -> Option<EntryRef<'r>> {
        // A get reads the value as well.
        let newest = self.rows.find_fetching(key, hash, self.run.fetched_ahead_bytes())?;
        if newest.version <= at {
            return Some(newest);
        }
        let older = (self.lower_bound(key) + 1..self.run.len()).map(|position| self.entry_at(position));
        older.take_while(|entry| entry.key == key).find(|entry| entry.version <= at)
    }

    /// The entries of `range`, in `direction`.
    pub(crate) fn source(self, range: &KeyRange, direction: Direction) -> RunSource<'r> {
        let start = self.lower_bound(&range.start);
        let end = range.end.as_deref().map_or(self.run.len(), |end| self.lower_bound(end)).max(start);
        let mut source = RunSource {
            run: self,
            remaining: start..end,
            direction,
            fetched: 0,
            fetched_last: None,
            jumps: 0,
        };
        source.fetch_ahead();
        source
    }

    /// Has the processor fetch the entry at a position ahead of its being read; says where it lies.
    fn fetch_ahead(&self, position: usize) -> usize {
        self.rows.fetch_ahead(position, self.run.fetched_ahead_bytes())
    }
}

/// Walks a run.
pub(crate) struct RunSource<'r> {
    run: RunReader<'r>,
    remaining: std::ops::Range<usize>,
    direction: Direction,
    /// How many of what remains, from the entry it stands on, the processor was told to fetch.
    fetched: usize,
    /// Where the last of these lies.
    fetched_last: Option<usize>,
    /// How many lie elsewhere than the one before.
    jumps: usize,
}

impl RunSource<'_> {
    /// Has the processor fetch what comes next. A step of two until enough of it is on its way: a short scan
    /// has little fetched in vain.
    #[inline]
    fn fetch_ahead(&mut self) {
        let wanted = self.remaining.len().min(ENTRIES_AHEAD_MAX).min(self.fetched + 2);
        for ahead in self.fetched..wanted {
            let place = self.run.fetch_ahead(match self.direction {
                Direction::Forward => self.remaining.start + ahead,
                Direction::Backward => self.remaining.end - 1 - ahead,
            });
            let before = self.fetched_last.replace(place).unwrap_or(place);
            self.jumps += usize::from(place.abs_diff(before) > self.run.run.jump_bytes());
        }
        self.fetched = wanted;
    }
}

impl Source for RunSource<'_> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        if self.remaining.is_empty() {
            return None;
        }
        Some(self.run.entry_at(match self.direction {
            Direction::Forward => self.remaining.start,
            Direction::Backward => self.remaining.end - 1,
        }))
    }

    fn advance(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.remaining.start += 1,
            Direction::Backward => self.remaining.end -= 1,
        }
        self.fetched = self.fetched.saturating_sub(1);
        self.fetch_ahead();
        Ok(())
    }
}

impl Drop for RunSource<'_> {
    fn drop(&mut self) {
        if self.jumps > 0 {
            // Relaxed: a statistic.
            self.run.run.jumps.fetch_add(self.jumps, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
