//! `Run`: the sorted, immutable part of a munk (EvenDB §3.1: the munk's sorted prefix).
//!
//! Entries lie one behind the other in one region of memory, by key ascending and version descending; an
//! array of offsets and one of key heads make them searchable. Never changed once built; so a run that consists of another's
//! first entries shares the other's region. A run may also be woven: of another's entries, which stay where they are, and of
//! some in a second region, which grows with each run that is woven of the last (docs/design/0042-tails-woven-into-runs.md,
//! docs/design/0043-weaving-costs-what-is-new.md). Then offsets alone have the order.
//!
//! ```text
//!   entry   key length u32 | value length u31, is a tombstone 1 bit | version u64 | key | value
//! ```

mod builder;
mod weaver;

use std::sync::Arc;

use kvilt_base::{Direction, EntryRef, KeyRange, Kind, Result, Source, Version};
use kvilt_sync::AppendBuffer;

pub(crate) use self::{
    builder::{PiecesBuilder, RunBuilder},
    weaver::Weaver,
};
use super::places::Places;
use crate::{growing::Growing, heads::Heads, key_hash::key_hash};

/// Bytes of an entry besides key and value: key length 4, value length and kind 4, version 8.
const ENTRY_HEAD_BYTES: usize = 16;
/// Set in the length word for tombstones.
const TOMBSTONE_BIT: u32 = 1 << 31;
/// So many entries of a scan the processor is told to fetch before they are read. Fewer do not hide how long memory takes, more do
/// not fit where the processor notes what is on its way (docs/design/0045-scans-walk-one-source.md).
const ENTRIES_AHEAD_MAX: usize = 5;
/// So much of an entry is fetched ahead, at most: of a longer one the processor fetches the rest, if it is read at all.
const FETCHED_AHEAD_BYTES_MAX: usize = 1 << 10;

/// Bytes of an entry with a key and a value as long as these.
pub(crate) fn entry_bytes(key_len: usize, value_len: usize) -> usize {
    ENTRY_HEAD_BYTES + key_len + value_len
}

/// Bytes of this entry.
pub(crate) fn bytes_of(entry: EntryRef<'_>) -> usize {
    entry_bytes(entry.key.len(), entry.value.len())
}

/// Sorted entries in memory.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// If it is not woven, this has its entries in order from its beginning, and maybe others that are not the run's.
    base: Option<Arc<Growing>>,
    /// What was woven in, if it is woven. Offsets go on from the base's end into it. Maybe it goes on with what was woven in later.
    woven: Option<Arc<AppendBuffer>>,
    /// How much of that there was when this run was woven.
    woven_bytes: usize,
    entry_bytes: usize,
    /// Bytes of entries that are not their keys' newest …
    older_bytes: usize,
    /// … which no view sees that is at this version or above.
    older_until: Option<Version>,
    /// Of an entry, on the average.
    mean_entry_bytes: usize,
    offsets: Vec<u32>,
    heads: Heads,
    places: Places,
}

impl Run {
    /// A run without entries.
    pub(crate) fn empty() -> Self {
        Run::default()
    }

    /// The run of the entries at `offsets`, which have so many bytes.
    fn of(base: Option<Arc<Growing>>, entry_bytes: usize, offsets: Vec<u32>) -> Self {
        Run { base, entry_bytes, offsets, ..Run::empty() }.searchable()
    }

    /// The same with all that is found from the entries.
    fn searchable(mut self) -> Self {
        self.heads = Heads::new((0..self.len()).map(|i| self.key_at(i)));
        let (mut older_bytes, mut older_until) = (0, None);
        let mut last: Option<EntryRef<'_>> = None;
        let newest = self.offsets.iter().filter_map(|&offset| {
            let entry = self.entry_from(offset as usize);
            let newer = last.replace(entry).filter(|newer| newer.key == entry.key);
            if let Some(newer) = newer {
                older_bytes += bytes_of(entry);
                older_until = older_until.max(Some(newer.version));
            }
            newer.is_none().then(|| (key_hash(entry.key), offset))
        });
        let places = Places::new(self.len(), newest);
        self.places = places;
        (self.older_bytes, self.older_until) = (older_bytes, older_until);
        self.mean_entry_bytes = self.entry_bytes.checked_div(self.len()).unwrap_or(0);
        self
    }

    /// Its first `count` entries as a run that keeps all of this one's region. Not for one that is woven.
    pub(crate) fn first(&self, count: usize) -> Run {
        assert!(!self.is_woven(), "entries are one behind the other");
        if count == 0 {
            return Run::empty();
        }
        Run::of(self.base.clone(), self.bytes_before(count), self.offsets[..count].to_vec())
    }

    /// Bytes of its first `count` entries, if it is not woven.
    pub(crate) fn bytes_before(&self, count: usize) -> usize {
        self.offsets.get(count).map_or(self.entry_bytes, |&offset| offset as usize)
    }

    /// Whether it has entries that lie apart.
    pub(crate) fn is_woven(&self) -> bool {
        self.woven.is_some()
    }

    /// How many entries it has.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Bytes of the entries themselves: what a chunk counts as its size.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }

    /// Bytes of an entry on the average; 0 without entries.
    pub(crate) fn mean_entry_bytes(&self) -> usize {
        self.mean_entry_bytes
    }

    /// Bytes in its regions that are none of its entries.
    pub(crate) fn waste_bytes(&self) -> usize {
        self.region_bytes() - self.entry_bytes
    }

    /// Bytes of its entries that have newer ones of their keys: wasted, too, if nobody looks that far back, and `oldest` is the
    /// oldest view that is open.
    pub(crate) fn unseen_bytes(&self, oldest: Option<Version>) -> usize {
        let is_seen = oldest.is_some_and(|view| Some(view) < self.older_until);
        if is_seen { 0 } else { self.older_bytes }
    }

    /// Whether it has such entries.
    pub(crate) fn has_older(&self) -> bool {
        self.older_bytes > 0
    }

    fn base_bytes(&self) -> usize {
        self.base.as_ref().map_or(0, |base| base.len())
    }

    /// Bytes of its regions, with what of them other runs share.
    pub(crate) fn region_bytes(&self) -> usize {
        self.base_bytes() + self.woven_bytes
    }

    /// Memory, all in all: with what of its regions other runs share.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.region_bytes() + self.offsets.capacity() * 4 + self.heads.bytes() + self.places.bytes()
    }

    /// The entry at a position.
    pub(crate) fn entry_at(&self, position: usize) -> EntryRef<'_> {
        self.entry_from(self.offsets[position] as usize)
    }

    /// The entry that begins at an offset.
    #[inline]
    fn entry_from(&self, offset: usize) -> EntryRef<'_> {
        let bytes = match &self.base {
            Some(base) if offset < base.len() => &base.as_slice()[offset..],
            _ => {
                &self.woven.as_ref().expect("offsets lie in the regions").read()[offset - self.base_bytes()..]
            }
        };
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (key_len, value_word) = (word(0) as usize, word(4));
        let version = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        let value_start = ENTRY_HEAD_BYTES + key_len;
        let value_len = (value_word & !TOMBSTONE_BIT) as usize;
        EntryRef {
            key: &bytes[ENTRY_HEAD_BYTES..value_start],
            version: Version::from_u64(version),
            kind: if value_word & TOMBSTONE_BIT == 0 { Kind::Put } else { Kind::Tombstone },
            value: &bytes[value_start..value_start + value_len],
        }
    }

    /// Has the processor fetch the entry at a position: rows of a scan lie one behind the other, but in
    /// other pages, where processors do not look ahead on their own.
    fn fetch_ahead(&self, position: usize) {
        self.fetch_ahead_from(self.offsets[position] as usize);
    }

    /// The same with the entry that begins at an offset.
    #[inline]
    fn fetch_ahead_from(&self, start: usize) {
        let end = start + self.mean_entry_bytes.min(FETCHED_AHEAD_BYTES_MAX);
        match (&self.base, &self.woven) {
            (Some(base), _) if start < base.len() => base.fetch_ahead(start, end),
            (_, Some(woven)) => woven.fetch_ahead(start - self.base_bytes(), end - self.base_bytes()),
            _ => {}
        }
    }

    /// Whether it has two keys, so that it can be cut between them.
    pub(crate) fn can_be_cut(&self) -> bool {
        self.len() > 1 && self.key_at(0) != self.key_at(self.len() - 1)
    }

    /// What all its keys begin with.
    pub(crate) fn prefix(&self) -> &[u8] {
        self.heads.prefix()
    }

    /// Its first key.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        (self.len() > 0).then(|| self.key_at(0))
    }

    /// The key at a position.
    pub(crate) fn key_at(&self, position: usize) -> &[u8] {
        self.entry_at(position).key
    }

    /// The position of the first entry whose key is `>= key`.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        self.heads.lower_bound(key, |i| self.key_at(i))
    }

    /// The newest entry of `key`, to be looked at, not read.
    pub(crate) fn newest(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let is_it = |offset| self.entry_from(offset as usize).key == key;
        self.places.find(key_hash(key), is_it).map(|offset| self.entry_from(offset as usize))
    }

    /// The newest entry of `key`, whose hash is `hash`, with a version up to `at`.
    pub(crate) fn find(&self, key: &[u8], hash: u32, at: Version) -> Option<EntryRef<'_>> {
        let is_it = |offset| {
            // A get reads the value as well.
            self.fetch_ahead_from(offset as usize);
            self.entry_from(offset as usize).key == key
        };
        let newest = self.entry_from(self.places.find(hash, is_it)? as usize);
        if newest.version <= at {
            return Some(newest);
        }
        let older = (self.lower_bound(key) + 1..self.len()).map(|position| self.entry_at(position));
        older.take_while(|entry| entry.key == key).find(|entry| entry.version <= at)
    }

    /// The entries of `range`, in `direction`.
    pub(crate) fn source(&self, range: &KeyRange, direction: Direction) -> RunSource<'_> {
        let start = self.lower_bound(&range.start);
        let end = range.end.as_deref().map_or(self.len(), |end| self.lower_bound(end)).max(start);
        let mut source = RunSource { run: self, remaining: start..end, direction, fetched: 0 };
        source.fetch_ahead();
        source
    }
}

/// Walks a run.
pub(crate) struct RunSource<'r> {
    run: &'r Run,
    remaining: std::ops::Range<usize>,
    direction: Direction,
    /// How many of what remains, from the entry it stands on, the processor was told to fetch.
    fetched: usize,
}

impl RunSource<'_> {
    /// Has the processor fetch what comes next. A step of two until enough of it is on its way: a short scan has little fetched in vain.
    #[inline]
    fn fetch_ahead(&mut self) {
        let wanted = self.remaining.len().min(ENTRIES_AHEAD_MAX).min(self.fetched + 2);
        for ahead in self.fetched..wanted {
            self.run.fetch_ahead(match self.direction {
                Direction::Forward => self.remaining.start + ahead,
                Direction::Backward => self.remaining.end - 1 - ahead,
            });
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

#[cfg(test)]
mod tests;
