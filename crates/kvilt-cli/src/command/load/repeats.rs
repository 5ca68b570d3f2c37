//! `Repeats`: which rows of a load replace an earlier row of the same load.
//!
//! If the keyspace was empty when the load began, whatever it holds is of this load: the store is asked, but
//! only for keys of which a filter of bounded size says "maybe". That is exact however long the load is. If
//! the keyspace was not empty, the store cannot tell, and a bounded set of hashes of 64 bits is kept: exact
//! until the set is full, and a lower bound from then on, unless all rows behind come in ascending order. Two
//! of ten million keys have the same hash once in some hundred thousand loads.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hasher},
};

use kvilt::Keyspace;

use super::LoadRow;
use crate::failure::Failure;

/// Bytes that the set takes for a key at worst, when it has just grown.
const PRINT_BYTES: usize = 32;

/// What a load has put so far, as far as repeats are concerned.
pub(super) struct Repeats {
    /// The last key in order so far: a key behind it is no repeat.
    last: Option<Vec<u8>>,
    known: Known,
    is_exact: bool,
}

enum Known {
    /// The store itself, behind a filter.
    Rows(Seen),
    /// The hashes of up to so many keys.
    Prints(HashSet<u64>, usize),
}

impl Repeats {
    /// Of a load that is about to begin; `bytes_max` bounds what it remembers.
    pub(super) fn of(keyspace: &Keyspace, bytes_max: u64) -> Result<Self, Failure> {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let known = match keyspace.iter().keys().limit(1).next().transpose()? {
            None => Known::Rows(Seen::new(bytes_max)),
            Some(_) => Known::Prints(HashSet::new(), bytes_max / PRINT_BYTES),
        };
        Ok(Repeats { last: None, known, is_exact: true })
    }

    /// Whether every repeat so far was found.
    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Notes a row, and says whether it repeats a key. `pending` are the rows noted before it that are not in
    /// the store yet.
    pub(super) fn note(
        &mut self,
        keyspace: &Keyspace,
        pending: &[LoadRow],
        key: &[u8],
    ) -> Result<bool, Failure> {
        let is_ahead = self.last.as_deref().is_none_or(|last| last < key);
        if is_ahead {
            let last = self.last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
        match &mut self.known {
            Known::Rows(seen) if is_ahead || !seen.contains(key) => {
                seen.insert(key);
                Ok(false)
            }
            Known::Rows(_) => Ok(pending.iter().any(|row| row.key == key) || keyspace.contains_key(key)?),
            Known::Prints(prints, keys_max) if prints.len() < *keys_max => Ok(!prints.insert(hash(key))),
            Known::Prints(prints, _) => {
                let is_known = prints.contains(&hash(key));
                self.is_exact &= is_known || is_ahead;
                Ok(is_known)
            }
        }
    }
}

/// The first filter has so many blocks: 64 KiB.
const FIRST_BLOCKS: usize = 1 << 10;

/// Each filter is so many times as large as the one before it.
const GROWTH: usize = 8;

/// So many keys go into a block before the next filter is begun: one in some hundred others is then taken for
/// seen.
const KEYS_PER_BLOCK: usize = 40;

/// A set of keys that forgets none, and takes some others for members. Beyond its limit it takes more and
/// more others for members, each of which costs the load a get.
struct Seen {
    filters: Vec<Vec<Block>>,
    /// How many keys the last filter has.
    keys: usize,
    blocks_max: usize,
}

/// A cache line: a key sets a bit in each word.
type Block = [u64; 8];

/// Odd numbers that make eight hashes of one.
const SALTS: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

impl Seen {
    fn new(bytes_max: usize) -> Self {
        Seen {
            filters: vec![vec![[0; 8]; FIRST_BLOCKS]],
            keys: 0,
            blocks_max: bytes_max / size_of::<Block>(),
        }
    }

    fn contains(&self, key: &[u8]) -> bool {
        let (hash, bits) = bits(key);
        self.filters.iter().any(|filter| {
            let block = &filter[place(hash, filter.len())];
            block.iter().zip(&bits).all(|(word, bit)| word & bit != 0)
        })
    }

    fn insert(&mut self, key: &[u8]) {
        let last = self.filters.last().map_or(0, Vec::len);
        if self.keys >= last * KEYS_PER_BLOCK {
            let blocks: usize = self.filters.iter().map(Vec::len).sum();
            let next = (last * GROWTH).min(self.blocks_max.saturating_sub(blocks));
            if next >= FIRST_BLOCKS {
                self.filters.push(vec![[0; 8]; next]);
                self.keys = 0;
            }
        }
        self.keys += 1;
        let (hash, bits) = bits(key);
        if let Some(filter) = self.filters.last_mut() {
            let place = place(hash, filter.len());
            filter[place].iter_mut().zip(&bits).for_each(|(word, bit)| *word |= bit);
        }
    }
}

/// Where a key's block is, and its bit in each word.
fn bits(key: &[u8]) -> (u32, Block) {
    let hash = hash(key);
    let low = hash as u32;
    ((hash >> 32) as u32, SALTS.map(|salt| 1 << (low.wrapping_mul(salt) >> 26)))
}

fn hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

fn place(hash: u32, blocks: usize) -> usize {
    ((u64::from(hash) * blocks as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_forgotten_few_others_are_taken_for_seen_and_memory_is_bounded() {
        let mut seen = Seen::new(5 << 20);
        let key = |i: u32| format!("key {i}");
        let mut wrong = 0;
        for i in 0..500_000 {
            wrong += u32::from(seen.contains(key(i).as_bytes()));
            seen.insert(key(i).as_bytes());
        }
        assert!((0..500_000).all(|i| seen.contains(key(i).as_bytes())));
        assert!(wrong < 10_000, "{wrong}");
        let blocks: usize = seen.filters.iter().map(Vec::len).sum();
        assert!(blocks * size_of::<Block>() <= 5 << 20, "{blocks}");
    }
}
