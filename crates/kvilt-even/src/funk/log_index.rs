//! `LogIndex`: where in a log the records of a key lie; exact, compact, in memory.
//!
//! EvenDB §2.2 searches the log of a munk-less chunk linearly behind a partitioned Bloom filter, which is the
//! paper's own bottleneck. In the spirit of KVell's index in memory, but over a cold chunk's *log* only, we
//! keep 32 bits of a record's hash and 31 of its offset. As long as records come they are in a table with
//! room for more ([`GrowingIndex`]); of a log that is closed, in an array without ([`FixedIndex`],
//! docs/design/0051-indexes-of-closed-logs.md).

mod fixed;
mod growing;

use std::sync::Arc;

use kvilt_base::Charge;
use kvilt_sync::published::{Pin, pin};
use parking_lot::Mutex;

use self::{fixed::FixedIndex, growing::GrowingIndex};
use crate::{files::Files, key_hash::key_hash, parts};

/// A log must be shorter than this many bytes, or offsets would not fit an index.
pub(crate) const LOG_BYTES_LIMIT: u64 = 1 << 31;

/// Key hash → offsets of records, for one log.
pub(crate) enum LogIndex {
    Growing(Box<GrowingIndex>),
    Fixed(FixedIndex),
}

/// An index charged to the budget.
pub(crate) struct ChargedIndex {
    pub(crate) index: LogIndex,
    charge: Mutex<Charge>,
}

impl ChargedIndex {
    pub(crate) fn new(files: &Files) -> Arc<Self> {
        Self::of(LogIndex::new(), files)
    }

    /// That of a log that does not grow any more, of all its keys' hashes and their records' offsets.
    pub(crate) fn of_closed(keys: Vec<(u32, u64)>, files: &Files) -> Arc<Self> {
        Self::of(LogIndex::Fixed(FixedIndex::new(keys.into_iter())), files)
    }

    fn of(index: LogIndex, files: &Files) -> Arc<Self> {
        let charge = Mutex::new(files.budget.charge(parts::LOG_INDEXES, index.bytes()));
        Arc::new(ChargedIndex { index, charge })
    }

    /// The same for a log that does not grow any more; none if it is that already.
    pub(crate) fn fixed(&self, files: &Files, pin: &Pin) -> Option<Arc<Self>> {
        Some(Self::of(self.index.fixed(pin)?, files))
    }

    pub(crate) fn insert(&self, key: &[u8], offset: u64) {
        let before = self.index.bytes();
        self.index.insert(&pin(), key_hash(key), offset);
        let grown = self.index.bytes() - before;
        if grown > 0 {
            self.charge.lock().grow(grown);
        }
    }
}

/// A record as an index knows it.
pub(crate) struct Record {
    pub(crate) hash: u32,
    pub(crate) offset: u64,
    /// Whether it is the newest in its log with its hash, and so very probably with its key.
    pub(crate) is_newest: bool,
}

/// Offsets of records, newest first.
pub(crate) enum Offsets<'i> {
    Growing(growing::Offsets<'i>),
    Fixed(fixed::Offsets<'i>),
}

impl LogIndex {
    /// An empty index, of a log that grows.
    pub(crate) fn new() -> Self {
        LogIndex::Growing(Box::new(GrowingIndex::new()))
    }

    /// The same records for a log that does not grow any more; none if it is that already.
    pub(crate) fn fixed(&self, pin: &Pin) -> Option<LogIndex> {
        match self {
            LogIndex::Growing(index) => {
                let records = index.every(pin).map(|record| (record.hash, record.offset));
                Some(LogIndex::Fixed(FixedIndex::new(records)))
            }
            LogIndex::Fixed(_) => None,
        }
    }

    /// Has the processor fetch what an insert or a search will look at.
    pub(crate) fn fetch_ahead(&self, pin: &Pin, hash: u32) {
        match self {
            LogIndex::Growing(index) => index.fetch_ahead(pin, hash),
            LogIndex::Fixed(index) => index.fetch_ahead(hash),
        }
    }

    /// Adds a record, the newest of its key. The caller is the only writer. Panics if the log does not grow
    /// any more.
    pub(crate) fn insert(&self, pin: &Pin, hash: u32, offset: u64) {
        match self {
            LogIndex::Growing(index) => index.insert(pin, hash, offset),
            LogIndex::Fixed(_) => panic!("a closed log gets no more records"),
        }
    }

    /// The records that have the key's hash, and so very probably the key: newest first.
    pub(crate) fn offsets(&self, pin: &Pin, hash: u32) -> Offsets<'_> {
        match self {
            LogIndex::Growing(index) => Offsets::Growing(index.offsets(pin, hash)),
            LogIndex::Fixed(index) => Offsets::Fixed(index.offsets(hash)),
        }
    }

    /// How many records are in it.
    pub(crate) fn records(&self) -> u64 {
        match self {
            LogIndex::Growing(index) => index.records(),
            LogIndex::Fixed(index) => index.records(),
        }
    }

    /// Each `step`-th record, in no order that keys have anything to do with.
    pub(crate) fn every<'i>(&'i self, pin: &'i Pin, step: usize) -> impl Iterator<Item = Record> + 'i {
        let all: Box<dyn Iterator<Item = Record> + 'i> = match self {
            LogIndex::Growing(index) => Box::new(index.every(pin)),
            LogIndex::Fixed(index) => Box::new(index.every()),
        };
        all.step_by(step)
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            LogIndex::Growing(index) => index.bytes(),
            LogIndex::Fixed(index) => index.bytes(),
        }
    }
}

impl Iterator for Offsets<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match self {
            Offsets::Growing(offsets) => offsets.next(),
            Offsets::Fixed(offsets) => offsets.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_hash::key_hash;
    use kvilt_sync::published::pin;

    fn key(i: u64) -> Vec<u8> {
        format!("key{}", i % 700).into_bytes()
    }

    fn check(index: &LogIndex) {
        let pin = pin();
        for i in 0..700u64 {
            let offsets: Vec<u64> = index.offsets(&pin, key_hash(&key(i))).collect();
            let expected: Vec<u64> = (0..20_000).filter(|n| n % 700 == i).map(|n| 64 + n).rev().collect();
            assert!(expected.iter().all(|offset| offsets.contains(offset)), "{i}");
            assert!(offsets.is_sorted_by(|a, b| a > b));
        }
        assert_eq!(index.offsets(&pin, key_hash(b"nobody wrote this")).count(), 0);
        assert_eq!(index.records(), 20_000);
        let mut all: Vec<u64> = index.every(&pin, 1).map(|record| record.offset).collect();
        all.sort_unstable();
        assert_eq!(all, (64..20_064).collect::<Vec<_>>());
        for record in index.every(&pin, 1) {
            let newest = index.offsets(&pin, record.hash).next();
            assert_eq!(record.is_newest, newest == Some(record.offset));
        }
        let newest = index.every(&pin, 1).filter(|record| record.is_newest).count();
        assert!((690..=700).contains(&newest), "{newest}");
        assert_eq!(index.every(&pin, 64).count(), 20_000usize.div_ceil(64));
    }

    #[test]
    fn every_record_is_found_newest_first_while_the_log_grows_and_when_it_is_closed() {
        let index = LogIndex::new();
        for i in 0..20_000u64 {
            index.insert(&pin(), key_hash(&key(i)), 64 + i);
        }
        check(&index);
        assert!(index.bytes() >= 20_000 * 8);
        let fixed = index.fixed(&pin()).unwrap();
        check(&fixed);
        assert!(fixed.fixed(&pin()).is_none());
        // Eight bytes a record, and four for eight of them.
        assert!((160_000..=170_100).contains(&fixed.bytes()), "{}", fixed.bytes());
        assert!(fixed.bytes() <= index.bytes());
    }

    #[test]
    fn an_index_without_records_finds_none() {
        let index = LogIndex::new().fixed(&pin()).unwrap();
        assert_eq!((index.offsets(&pin(), 7).count(), index.every(&pin(), 1).count()), (0, 0));
        assert_eq!(index.records(), 0);
        index.fetch_ahead(&pin(), u32::MAX);
    }
}
