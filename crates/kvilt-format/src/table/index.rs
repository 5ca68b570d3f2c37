//! The block index: for each block, a separator that no entry of it exceeds, and where the block lies.
//!
//! Where it stands: in memory as long as the table is open; a get finds its one block here. Always true:
//! separators ascend in the order of a table (key ascending, version descending), so a binary search finds
//! the first block that can hold an entry; blocks lie one behind the other from the header to the filter.
//!
//! What all separators share is kept once, for the first and the last key as well, the rest in one buffer
//! with an array of ends: no allocation a block, and less to compare.
//!
//! ```text
//! first key | last key | shared prefix   (each with its length)
//! count     | per block: separator suffix with its length | separator version | stored bytes of the block
//! ```

use std::cmp::Ordering;

use kvilt_base::{
    Large, Version,
    key::{cmp_joined, shared_prefix_len},
    limits,
};

use super::stored::TRAILER_BYTES;
use crate::{
    coding::{Decoder, Malformed, push_prefixed, push_varint},
    header::HEADER_BYTES,
};

/// Collects separators while blocks are written, as they will be in the index: where keys are long, whole
/// ones would take as much memory as all blocks.
#[derive(Debug, Default)]
pub(super) struct IndexWriter {
    /// What all separators so far begin with.
    shared: Vec<u8>,
    /// What each has behind that.
    suffixes: Large,
    /// End of each block's suffix, in `suffixes`.
    ends: Vec<usize>,
    versions: Vec<Version>,
    stored_lens: Vec<u64>,
}

impl IndexWriter {
    /// Adds the block that follows. No entry of it is behind (`key`, `version`) in the order of a table, and
    /// every later one is.
    pub(super) fn add(&mut self, key: &[u8], version: Version, stored_len: usize) {
        self.fit_shared(key);
        self.suffixes.extend_from_slice(&key[self.shared.len()..]);
        self.ends.push(self.suffixes.len());
        self.versions.push(version);
        self.stored_lens.push(stored_len as u64);
    }

    /// What is shared becomes something that `key` begins with; the separators so far get the rest of what it
    /// was.
    fn fit_shared(&mut self, key: &[u8]) {
        if self.ends.is_empty() {
            self.shared = key.to_vec();
        }
        let kept = shared_prefix_len(&self.shared, key);
        if kept == self.shared.len() {
            return;
        }
        let rest = self.shared.split_off(kept);
        let before = std::mem::take(&mut self.suffixes);
        self.suffixes.reserve_exact(before.len() + self.ends.len() * rest.len());
        let mut start = 0;
        for end in &mut self.ends {
            self.suffixes.extend_from_slice(&rest);
            self.suffixes.extend_from_slice(&before[start..*end]);
            start = *end;
            *end = self.suffixes.len();
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.shared.len() + self.suffixes.len() + self.ends.len() * 24
    }

    pub(super) fn encode(&self, first_key: &[u8], last_key: &[u8]) -> Large {
        let mut out = Large::default();
        push_prefixed(&mut out, first_key);
        push_prefixed(&mut out, last_key);
        push_prefixed(&mut out, &self.shared);
        push_varint(&mut out, self.ends.len() as u64);
        let mut start = 0;
        for (i, &end) in self.ends.iter().enumerate() {
            push_prefixed(&mut out, &self.suffixes[start..end]);
            push_varint(&mut out, self.versions[i].to_u64());
            push_varint(&mut out, self.stored_lens[i]);
            start = end;
        }
        out
    }
}

/// The block index of an open table.
#[derive(Debug)]
pub(super) struct BlockIndex {
    first_key: JoinedKey,
    last_key: JoinedKey,
    shared: Vec<u8>,
    suffixes: Vec<u8>,
    /// End of each block's suffix, in `suffixes`.
    ends: Vec<u32>,
    /// Version of each separator; empty if all are zero, as they are unless versions of one key lie in two
    /// blocks.
    versions: Vec<Version>,
    /// Offset of each block, and of the end of the last one.
    offsets: Vec<u64>,
}

/// A key that begins as all separators do, or as so many bytes of what they share.
#[derive(Debug)]
struct JoinedKey {
    shared_len: usize,
    rest: Vec<u8>,
}

impl JoinedKey {
    fn new(key: &[u8], shared: &[u8]) -> Self {
        let shared_len = shared_prefix_len(key, shared);
        JoinedKey { shared_len, rest: key[shared_len..].to_vec() }
    }

    fn cmp(&self, shared: &[u8], key: &[u8]) -> Ordering {
        cmp_joined(&shared[..self.shared_len], &self.rest, key)
    }

    fn to_key(&self, shared: &[u8]) -> Vec<u8> {
        [&shared[..self.shared_len], &self.rest].concat()
    }
}

impl BlockIndex {
    /// Decodes an index whose blocks must fill the table up to `data_end`.
    pub(super) fn decode(bytes: &[u8], data_end: u64) -> Result<BlockIndex, Malformed> {
        let mut decoder = Decoder::new(bytes);
        let (first_key, last_key) = (bounded_key(&mut decoder)?, bounded_key(&mut decoder)?);
        let shared = bounded_key(&mut decoder)?.to_vec();
        let (first_key, last_key) = (JoinedKey::new(first_key, &shared), JoinedKey::new(last_key, &shared));
        let count = decoder.count(3)?;
        let mut suffixes = Vec::with_capacity(decoder.remaining() - count.saturating_mul(3));
        let mut ends = Vec::with_capacity(count);
        let mut versions = Vec::new();
        let mut offsets = Vec::with_capacity(count + 1);
        let mut offset = HEADER_BYTES as u64;
        offsets.push(offset);
        for i in 0..count {
            let suffix = bounded_key(&mut decoder)?;
            suffixes.extend_from_slice(suffix);
            ends.push(u32::try_from(suffixes.len()).map_err(|_| Malformed("the index exceeds 4 GiB"))?);
            let version = Version::from_u64(decoder.varint()?);
            if version != Version::ZERO && versions.is_empty() {
                versions.resize(i, Version::ZERO);
                versions.reserve_exact(count - i);
            }
            if version != Version::ZERO || !versions.is_empty() {
                versions.push(version);
            }
            let stored_len = decoder.varint()?;
            offset = offset
                .checked_add(stored_len)
                .filter(|&end| end <= data_end && stored_len > TRAILER_BYTES as u64)
                .ok_or(Malformed("the index names a block outside the table"))?;
            offsets.push(offset);
        }
        if offset != data_end || !decoder.is_empty() {
            return Err(Malformed("the index does not account for every byte"));
        }
        suffixes.shrink_to_fit();
        Ok(BlockIndex { first_key, last_key, shared, suffixes, ends, versions, offsets })
    }

    /// How many blocks there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn first_key(&self) -> Vec<u8> {
        self.first_key.to_key(&self.shared)
    }

    pub(super) fn last_key(&self) -> Vec<u8> {
        self.last_key.to_key(&self.shared)
    }

    /// How the first key compares with a key.
    pub(super) fn cmp_first(&self, key: &[u8]) -> Ordering {
        self.first_key.cmp(&self.shared, key)
    }

    /// How the last key compares with a key.
    pub(super) fn cmp_last(&self, key: &[u8]) -> Ordering {
        self.last_key.cmp(&self.shared, key)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.first_key.rest.capacity()
            + self.last_key.rest.capacity()
            + self.shared.capacity()
            + self.suffixes.capacity()
            + self.ends.capacity() * 4
            + (self.versions.capacity() + self.offsets.capacity()) * 8
    }

    /// Offset of a block, or, for the number of blocks, of their end.
    pub(super) fn offset(&self, block: usize) -> u64 {
        self.offsets[block]
    }

    /// Stored bytes of a block. The footer bounds the table by its length, so they fit where files fit.
    pub(super) fn stored_len(&self, block: usize) -> usize {
        self.stored_span(block, block + 1)
    }

    /// Stored bytes from one block up to (exclusive) another.
    pub(super) fn stored_span(&self, first: usize, end: usize) -> usize {
        (self.offsets[end] - self.offsets[first]) as usize
    }

    /// The first block whose separator is not before (`key`, `at`): entries that are not before it begin
    /// there. The number of blocks if there is none.
    pub(super) fn find(&self, key: &[u8], at: Version) -> usize {
        let Some(suffix) = key.strip_prefix(self.shared.as_slice()) else {
            return if key < self.shared.as_slice() { 0 } else { self.len() };
        };
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let is_before = match self.suffix(middle).cmp(suffix) {
                Ordering::Less => true,
                Ordering::Equal => self.version(middle) > at,
                Ordering::Greater => false,
            };
            if is_before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The separator of a block: key and version.
    pub(super) fn separator(&self, block: usize) -> (Vec<u8>, Version) {
        ([self.shared.as_slice(), self.suffix(block)].concat(), self.version(block))
    }

    /// The block in which the byte at `offset` lies.
    pub(super) fn block_at(&self, offset: u64) -> usize {
        self.offsets.partition_point(|&start| start <= offset).saturating_sub(1).min(self.len() - 1)
    }

    fn suffix(&self, block: usize) -> &[u8] {
        let start = if block == 0 { 0 } else { self.ends[block - 1] as usize };
        &self.suffixes[start..self.ends[block] as usize]
    }

    fn version(&self, block: usize) -> Version {
        self.versions.get(block).copied().unwrap_or(Version::ZERO)
    }
}

fn bounded_key<'a>(decoder: &mut Decoder<'a>) -> Result<&'a [u8], Malformed> {
    let key = decoder.prefixed()?;
    if key.len() > limits::ENGINE_KEY_BYTES_MAX {
        return Err(Malformed("a key in the index exceeds its limit"));
    }
    Ok(key)
}

/// The shortest key that is not before `last` and is before `next`, where `last < next`.
pub(super) fn shortest_separator<'a>(last: &'a [u8], next: &'a [u8]) -> &'a [u8] {
    let kept = shared_prefix_len(last, next) + 1;
    if next.len() > kept && kept < last.len() { &next[..kept] } else { last }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_separator_separates(a in any::<Vec<u8>>(), b in any::<Vec<u8>>()) {
            prop_assume!(a != b);
            let (last, next) = if a < b { (&a, &b) } else { (&b, &a) };
            let separator = shortest_separator(last, next);
            prop_assert!(last.as_slice() <= separator && separator < next.as_slice());
            prop_assert!(separator.len() <= last.len().max(1));
        }

        #[test]
        fn the_index_finds_the_first_block_that_can_hold_an_entry(
            mut separators in prop::collection::btree_set((prop::collection::vec(0u8..3, 0..4), 0u64..4), 1..20),
            key in prop::collection::vec(0u8..3, 0..5), at in 0u64..5,
        ) {
            let mut sorted: Vec<_> = std::mem::take(&mut separators).into_iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            let mut writer = IndexWriter::default();
            for (key, version) in &sorted {
                writer.add(key, Version::from_u64(*version), 10);
            }
            let bytes = writer.encode(b"", b"z");
            let index = BlockIndex::decode(&bytes, 64 + 10 * sorted.len() as u64).unwrap();
            let expected = sorted.iter().position(|(k, v)| {
                super::super::block::order(k, Version::from_u64(*v), &key, Version::from_u64(at)).is_ge()
            });
            prop_assert_eq!(index.find(&key, Version::from_u64(at)), expected.unwrap_or(sorted.len()));
            prop_assert_eq!(index.separator(0), (sorted[0].0.clone(), Version::from_u64(sorted[0].1)));
            prop_assert_eq!(index.block_at(index.offset(sorted.len() - 1)), sorted.len() - 1);
            // What is behind the last block counts to it.
            prop_assert_eq!(index.block_at(64 + 10 * sorted.len() as u64), sorted.len() - 1);
            prop_assert!(BlockIndex::decode(&bytes, 65 + 10 * sorted.len() as u64).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_an_index_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..200), end in 0u64..500) {
            if let Ok(index) = BlockIndex::decode(&bytes, end) {
                prop_assert!(index.memory_bytes() <= 12 * bytes.len() + 64);
                let _ = index.find(b"abc", Version::NEWEST);
            }
        }
    }
}
