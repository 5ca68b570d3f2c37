//! `FixedIndex`: where the records of a closed log lie. No record comes any more, so nothing is kept free for
//! one.
//!
//! ```text
//!   starts    where a bucket's records begin │ … of the next …      about eight records a bucket, by the highest bits of their hashes
//!   records   hash 32 | offset 32 │ …                               ascending: of one hash the oldest first
//! ```

use std::{iter::Rev, slice};

use kvilt_sync::fetch_ahead;

use super::Record;
use crate::key_hash::place_of;

/// Records of a bucket, on the average: a line of memory.
const BUCKET_RECORDS: usize = 8;

pub(crate) struct FixedIndex {
    records: Box<[u64]>,
    /// One more than there are buckets.
    starts: Box<[u32]>,
}

impl FixedIndex {
    /// Of hashes of keys and offsets of records.
    pub(super) fn new(records: impl Iterator<Item = (u32, u64)>) -> Self {
        let records = records.map(|(hash, offset)| u64::from(hash) << 32 | offset);
        let mut records: Vec<u64> = records.collect();
        records.sort_unstable();
        let buckets = records.len().div_ceil(BUCKET_RECORDS).max(1);
        let mut starts = Vec::with_capacity(buckets + 1);
        for (at, &record) in records.iter().enumerate() {
            let bucket = place_of(hash_of(record), buckets);
            // Its bucket begins with it, if none before it is in there, and so do empty ones before.
            starts.resize(starts.len().max(bucket + 1), at as u32);
        }
        starts.resize(buckets + 1, records.len() as u32);
        FixedIndex { records: records.into(), starts: starts.into() }
    }

    fn bucket(&self, hash: u32) -> usize {
        place_of(hash, self.starts.len() - 1)
    }

    pub(super) fn fetch_ahead(&self, hash: u32) {
        fetch_ahead(&self.starts[self.bucket(hash)]);
    }

    pub(super) fn offsets(&self, hash: u32) -> Offsets<'_> {
        let bucket = self.bucket(hash);
        let records = &self.records[self.starts[bucket] as usize..self.starts[bucket + 1] as usize];
        let from = &records[records.partition_point(|&record| hash_of(record) < hash)..];
        let upto = from.partition_point(|&record| hash_of(record) == hash);
        Offsets(from[..upto].iter().rev())
    }

    pub(super) fn records(&self) -> u64 {
        self.records.len() as u64
    }

    pub(super) fn every(&self) -> impl Iterator<Item = Record> {
        self.records.iter().enumerate().map(|(at, &record)| {
            let hash = hash_of(record);
            let is_newest = self.records.get(at + 1).is_none_or(|&next| hash_of(next) != hash);
            Record { hash, offset: offset_of(record), is_newest }
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        (size_of_val(&*self.records) + size_of_val(&*self.starts)) as u64
    }
}

fn hash_of(record: u64) -> u32 {
    (record >> 32) as u32
}

fn offset_of(record: u64) -> u64 {
    u64::from(record as u32)
}

/// Offsets of a hash.
pub(crate) struct Offsets<'i>(Rev<slice::Iter<'i, u64>>);

impl Iterator for Offsets<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0.next().map(|&record| offset_of(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn each_hash_has_its_offsets(
            spread in 0..32u32,
            hashes in proptest::collection::vec(proptest::num::u32::ANY, 0..300),
        ) {
            // Few bits make many records of one hash, and the highest ones few buckets that are not empty.
            let hashes: Vec<u32> = hashes.into_iter().map(|hash| hash >> spread << (spread / 2)).collect();
            let index = FixedIndex::new(hashes.iter().copied().zip(1..));
            for hash in hashes.iter().copied().chain([0, 1, u32::MAX]) {
                let mut found: Vec<u64> = index.offsets(hash).collect();
                found.reverse();
                let expected = hashes.iter().zip(1..).filter(|(other, _)| **other == hash).map(|(_, at)| at);
                proptest::prop_assert_eq!(found, expected.collect::<Vec<u64>>());
            }
            proptest::prop_assert_eq!(index.every().count(), hashes.len());
        }
    }
}
