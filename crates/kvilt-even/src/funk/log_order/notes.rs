//! `Notes`: the keys of a log in a few bytes each, with what an order has of their records, in any order.
//!
//! A log whose chunk has no munk notes what is appended to it, so that the first scan has only to sort. A
//! record takes some ten bytes, where its hash in the index takes eleven; without notes that scan reads the
//! log.
//!
//! ```text
//!   record   key bytes shared with the one before, varint | rest of the key, prefixed | version above the base, varint |
//!            offset and whether it is a tombstone, varint
//! ```

use std::{ops::Range, sync::Arc};

use kvilt_base::{Charge, EntryRef, Kind, Large, Version, key::shared_prefix_len, planted};
use kvilt_format::coding::{Decoder, Malformed, push_prefixed, push_varint};

use super::{Gathered, LogOrder, Record};
use crate::{files::Files, parts};

/// A scan that wants less than this part of what is noted reads the log: to find it among notes means to
/// decode all of them.
const PART_WANTED_MIN: u64 = 8;
/// Notes are kept in blocks of this size, so that a scan that takes a copy copies one at most while a put
/// waits.
const BLOCK_BYTES: usize = 16 << 10;

/// A block has room for so many keys as long as its last one, at least.
const KEYS_A_BLOCK_MIN: usize = 8;
/// Notes of more bytes take at most this part of what they are of, in parts: else a scan had better read
/// that.
const BYTES_MIN: usize = 64 << 10;
const LOG_SHARE: u64 = 4;

/// Notes of a part of a log.
pub(crate) struct Notes {
    base: Version,
    /// Blocks that are full, none of which needs another to be read.
    full: Vec<Arc<[u8]>>,
    open: Vec<u8>,
    last_key: Vec<u8>,
    noted: Noted,
    charge: Charge,
}

/// What of a log is noted.
#[derive(Clone)]
pub(super) struct Noted {
    pub(super) place: Range<u64>,
    records: usize,
}

impl Notes {
    /// None yet, of a log that is noted from `start` on.
    pub(crate) fn from(start: u64, base: Version, files: &Files) -> Self {
        let charge = files.budget.charge(parts::LOG_INDEXES, 0);
        let noted = Noted { place: start..start, records: 0 };
        Notes { base, full: Vec::new(), open: Vec::new(), last_key: Vec::new(), noted, charge }
    }

    /// Those of an order.
    pub(crate) fn of(order: &LogOrder, base: Version, files: &Files) -> Self {
        let mut notes = Notes::from(order.place.start, base, files);
        let count = order.items.len();
        let count = planted!(LastNotNoted, count => count.saturating_sub(1));
        order.records().take(count).for_each(|record| notes.push(record));
        notes.noted.place = order.place.clone();
        notes
    }

    /// Notes a record, the next one. Of a range tombstone, which no order has, there is nothing to note.
    pub(crate) fn note(&mut self, entry: &EntryRef<'_>, offset: u64) {
        planted!(DeletesNotNoted => if entry.kind == Kind::Tombstone { return });
        if entry.kind != Kind::RangeTombstone {
            self.push(Record { key: entry.key, version: entry.version, offset, kind: entry.kind });
        }
    }

    /// All records before `end` are noted.
    pub(crate) fn reach(&mut self, end: u64) {
        self.noted.place.end = end;
    }

    /// Nothing before `start` needs to be noted, and nothing is.
    pub(crate) fn start_at(&mut self, start: u64) {
        self.noted.place = start..start;
    }

    /// Whether nothing is noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.noted.records == 0
    }

    /// Whether they take too much memory for what they spare.
    pub(crate) fn are_too_long(&self) -> bool {
        let bytes = self.charge.bytes();
        bytes > BYTES_MIN as u64 && bytes > (self.noted.place.end - self.noted.place.start) / LOG_SHARE
    }

    /// Where in the log they begin.
    pub(crate) fn start(&self) -> u64 {
        self.noted.place.start
    }

    /// Behind the last record that is noted.
    pub(crate) fn end(&self) -> u64 {
        self.noted.place.end
    }

    fn push(&mut self, Record { key, version, offset, kind }: Record<'_>) {
        let shared = shared_prefix_len(&self.last_key, key);
        let capacity = self.open.capacity();
        push_varint(&mut self.open, shared as u64);
        push_prefixed(&mut self.open, &key[shared..]);
        push_varint(&mut self.open, version.to_u64() - self.base.to_u64());
        push_varint(&mut self.open, offset << 1 | u64::from(kind == Kind::Tombstone));
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.noted.records += 1;
        self.charge.grow((self.open.capacity() - capacity) as u64);
        // The first key of a block is whole: where it is long, the others are to gain by it.
        if self.open.len() >= BLOCK_BYTES.max(KEYS_A_BLOCK_MIN * key.len()) {
            self.charge.shrink((self.open.capacity() - self.open.len()) as u64);
            self.full.push(std::mem::take(&mut self.open).into());
            self.last_key.clear();
        }
    }

    /// A copy of what is noted, for the order of a part of the log; none if the part's beginning is not
    /// noted, or if it is too little to go through all notes for.
    pub(crate) fn copy_for(&self, place: &Range<u64>) -> Option<NotesCopy> {
        let noted = &self.noted.place;
        let wanted = place.start..place.end.min(noted.end);
        let is_worth_it = wanted.start >= noted.start
            && wanted.end > wanted.start
            && wanted.end - wanted.start >= (noted.end - noted.start) / PART_WANTED_MIN;
        is_worth_it.then(|| NotesCopy { wanted, ..self.copy() })
    }

    /// A copy of all that is noted.
    pub(super) fn copy(&self) -> NotesCopy {
        let mut blocks = self.full.clone();
        blocks.push(self.open.as_slice().into());
        NotesCopy { blocks, base: self.base, wanted: self.noted.place.clone(), noted: self.noted() }
    }

    /// What of the log they are about.
    pub(super) fn noted(&self) -> Noted {
        self.noted.clone()
    }
}

/// Notes as they were at one moment, and what part of the log's order they are wanted for.
pub(crate) struct NotesCopy {
    blocks: Vec<Arc<[u8]>>,
    base: Version,
    wanted: Range<u64>,
    noted: Noted,
}

impl NotesCopy {
    /// The order of what was wanted.
    pub(crate) fn order(self) -> LogOrder {
        let bytes = self.bytes();
        self.noted.order_of(self.wanted, &bytes, self.base).expect("what was noted can be read")
    }

    /// The notes, one behind the other.
    pub(super) fn bytes(&self) -> Large {
        self.blocks.concat().into()
    }
}

impl Noted {
    /// The order of all that these notes are about.
    pub(super) fn order(&self, bytes: &[u8], base: Version) -> Result<LogOrder, Malformed> {
        self.order_of(self.place.clone(), bytes, base)
    }

    fn order_of(&self, wanted: Range<u64>, bytes: &[u8], base: Version) -> Result<LogOrder, Malformed> {
        let (mut decoder, mut last_key) = (Decoder::new(bytes), Vec::new());
        let mut gathered = Gathered::default();
        gathered.found.reserve(self.records);
        while !decoder.is_empty() {
            last_key.truncate(decoder.varint_usize()?);
            last_key.extend_from_slice(decoder.prefixed()?);
            let version = Version::from_u64(base.to_u64() + decoder.varint()?);
            let place = decoder.varint()?;
            let kind = if place & 1 == 0 { Kind::Put } else { Kind::Tombstone };
            if wanted.contains(&(place >> 1)) {
                gathered.push(Record { key: &last_key, version, offset: place >> 1, kind });
            }
        }
        Ok(gathered.sorted(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bed, options::Options};
    use kvilt_io::MemoryDisk;

    fn entry(key: &[u8], version: u64, kind: Kind) -> EntryRef<'_> {
        EntryRef { key, version: Version::from_u64(version), kind, value: b"" }
    }

    fn rows(order: &LogOrder) -> Vec<(Vec<u8>, u64, u64, Kind)> {
        order.records().map(|r| (r.key.to_vec(), r.version.to_u64(), r.offset, r.kind)).collect()
    }

    #[test]
    fn what_is_noted_comes_in_order() {
        let store = bed::open(MemoryDisk::new(1), &Options::tiny());
        let mut notes = Notes::from(64, Version::from_u64(1000), &store.files);
        let written = [
            ("bb", 1003, Kind::Put),
            ("b", 1003, Kind::Put),
            ("", 1003, Kind::Tombstone),
            ("bb", 1004, Kind::Tombstone),
            ("bb", 1004, Kind::Put),
        ];
        for (i, (key, version, kind)) in (0..).zip(written) {
            notes.note(&entry(key.as_bytes(), version, kind), 64 + 10 * i);
            notes.reach(74 + 10 * i);
        }
        notes.note(&entry(b"a", 1005, Kind::RangeTombstone), 114);
        notes.reach(150);
        let whole = notes.copy_for(&(64..300)).unwrap().order();
        let expected = [
            (b"".to_vec(), 1003, 84, Kind::Tombstone),
            (b"b".to_vec(), 1003, 74, Kind::Put),
            // Of two that no view can tell apart, the newest.
            (b"bb".to_vec(), 1004, 104, Kind::Put),
            (b"bb".to_vec(), 1003, 64, Kind::Put),
        ];
        assert_eq!(rows(&whole), expected);
        assert_eq!(whole.place, 64..150);
        let end = notes.copy_for(&(94..300)).unwrap().order();
        assert_eq!(rows(&end), expected[2..3]);
        assert!(notes.copy_for(&(63..300)).is_none(), "the beginning was not noted");
        assert!(notes.copy_for(&(150..300)).is_none(), "nothing of it was noted");
        let again = Notes::of(&whole, Version::from_u64(1000), &store.files);
        assert_eq!(rows(&again.copy_for(&(64..114)).unwrap().order()), expected);
        let (before, charged) = (store.files.budget.used(parts::LOG_INDEXES), again.open.capacity() as u64);
        assert!(charged > 0);
        drop(again);
        assert_eq!(store.files.budget.used(parts::LOG_INDEXES), before - charged);
    }

    #[test]
    fn blocks_are_read_by_themselves_and_charged() {
        let store = bed::open(MemoryDisk::new(1), &Options::tiny());
        let before = store.files.budget.used(parts::LOG_INDEXES);
        let mut notes = Notes::from(64, Version::ZERO, &store.files);
        let keys: Vec<_> = (0..9000u64).map(|i| format!("chunk/{:06}", i * 7919 % 9000)).collect();
        for (key, offset) in keys.iter().zip(64..) {
            notes.note(&entry(key.as_bytes(), 5, Kind::Put), offset);
        }
        notes.reach(64 + 9000);
        assert!(notes.full.len() > 2);
        let order = notes.copy_for(&(64..64 + 9000)).unwrap().order();
        let mut expected = keys.clone();
        expected.sort();
        assert_eq!(
            order.records().map(|r| r.key.to_vec()).collect::<Vec<_>>(),
            expected.iter().map(|k| k.as_bytes().to_vec()).collect::<Vec<_>>()
        );
        let charged = store.files.budget.used(parts::LOG_INDEXES) - before;
        let held = notes.full.iter().map(|block| block.len()).sum::<usize>() + notes.open.capacity();
        assert_eq!(charged, held as u64);
    }
}
