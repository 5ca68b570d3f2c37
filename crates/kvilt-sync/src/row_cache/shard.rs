//! One shard of the row cache: a map from hash to row, and a clock hand that chooses what goes.
//!
//! The hand walks the rows in a circle; a row read since its last visit is spared once, any other goes. What
//! is always true: `bytes` is the sum over the rows; the map leads from a row's hash to its slot, and a slot
//! not in the map is in `free`. Two keys of one hash cannot both be cached: the later one takes the place.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use kvilt_base::Value;

/// What a row costs beside its key and value: slot, map entry, two allocations.
pub(super) const ROW_OVERHEAD_BYTES: usize = 128;

struct Row {
    hash: u64,
    key: Box<[u8]>,
    value: Option<Value>,
    /// Read since the hand last came by.
    is_read: bool,
}

impl Row {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, |value| value.len()) + ROW_OVERHEAD_BYTES
    }
}

#[derive(Default)]
pub(super) struct Shard {
    slots: Vec<Option<Row>>,
    free: Vec<usize>,
    by_hash: HashMap<u64, usize, BuildHasherDefault<AlreadyHashed>>,
    hand: usize,
    bytes: usize,
}

impl Shard {
    pub(super) fn get(&mut self, hash: u64, key: &[u8]) -> Option<Option<Value>> {
        let slot = *self.by_hash.get(&hash)?;
        let row = self.slots[slot].as_mut().filter(|row| *row.key == *key)?;
        row.is_read = true;
        Some(row.value.clone())
    }

    /// Returns the bytes added and the bytes of a row whose place it took.
    pub(super) fn insert(&mut self, hash: u64, key: Box<[u8]>, value: Option<Value>) -> (usize, usize) {
        let replaced = self.by_hash.get(&hash).copied().map_or(0, |slot| self.vacate(slot));
        // Not read yet: a row that nobody asks for again goes on the hand's first round.
        let row = Row { hash, key, value, is_read: false };
        let added = row.bytes();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(row);
        self.by_hash.insert(hash, slot);
        self.bytes += added;
        (added, replaced)
    }

    /// Returns the bytes freed; 0 if the key was not cached.
    pub(super) fn remove(&mut self, hash: u64, key: &[u8]) -> usize {
        match self.by_hash.get(&hash) {
            Some(&slot) if self.slots[slot].as_ref().is_some_and(|row| *row.key == *key) => self.vacate(slot),
            _ => 0,
        }
    }

    /// Lets rows go until `bytes_max` is kept; returns the bytes freed.
    pub(super) fn trim(&mut self, bytes_max: usize) -> usize {
        let mut freed = 0;
        // Ends: after one round every row left is unread, and bytes above zero mean that there is one.
        while self.bytes > bytes_max {
            self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            match &mut self.slots[self.hand] {
                None => {}
                Some(row) if row.is_read => row.is_read = false,
                Some(_) => freed += self.vacate(self.hand),
            }
        }
        freed
    }

    fn vacate(&mut self, slot: usize) -> usize {
        let Some(row) = self.slots[slot].take() else { return 0 };
        self.by_hash.remove(&row.hash);
        self.free.push(slot);
        let freed = row.bytes();
        self.bytes -= freed;
        freed
    }
}

/// The keys of the map are hashes: hashing them again would be work for nothing.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("the map is keyed by u64");
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Mixes a key into 64 bits: eight bytes at a time are multiplied to 128 bits and folded. Fast, good enough
/// to spread rows; keys made to collide only push each other out of the cache.
pub(super) fn hash(key: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    const SECOND: u64 = 0xd1b5_4a32_d192_ed03;
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let mut hash = SECOND ^ key.len() as u64;
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), MULTIPLIER);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    hash = fold(hash ^ u64::from_le_bytes(last), MULTIPLIER);
    fold(hash ^ SECOND, MULTIPLIER)
}
