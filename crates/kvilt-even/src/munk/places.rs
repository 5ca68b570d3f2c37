//! `Places`: where in a run the newest entry of each key lies, by the key's hash.
//!
//! A search through sorted keys touches a line of memory for each few steps, and the lines of a munk are seldom in a cache.
//! Here it is one line, a bucket, before the entry itself (TeksDB's idea: points by hash, order for scans, over the
//! same rows; docs/design/0040-points-by-hash-in-runs.md).
//!
//! ```text
//!   bucket, 64 bytes   tags 12 × 8 | unused 24 | has overflowed 8 | offsets 12 × 32
//! ```

/// Entries of a bucket …
const SLOTS: usize = 12;
/// … and how many it has on the average, so that few overflow.
const FILLED: usize = 8;
/// … and how many at most: with more, gets would follow entries through several buckets.
const FILLED_MAX: usize = 10;
/// Where in a bucket's tags it says whether entries of it may lie in the next.
const OVERFLOWED: usize = 15;

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// Eight bits of the hash of the entry in each slot; 0 where none is.
    tags: [u8; 16],
    offsets: [u32; SLOTS],
}

/// Offsets by hash. Never changed once built; what is woven begins with a copy.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    buckets: Box<[Bucket]>,
    /// Keys that have a slot.
    count: usize,
}

impl Places {
    /// The places of `count` keys at most, by their hashes.
    pub(super) fn new(count: usize, hashes_and_offsets: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut places = Places { buckets: vec![Bucket::default(); count.div_ceil(FILLED)].into(), count: 0 };
        hashes_and_offsets.for_each(|(hash, offset)| places.insert(hash, offset));
        places
    }

    /// Puts the offset of a key's newest entry in the place of another, if it had one; or takes the key out. False, and nothing is
    /// changed, if there is no room for another key.
    #[must_use]
    pub(super) fn replace(&mut self, hash: u32, before: Option<u32>, after: Option<u32>) -> bool {
        match (before, after) {
            (Some(before), Some(after)) => *self.slot_mut(hash, before).1 = after,
            (Some(before), None) => {
                *self.slot_mut(hash, before).0 = 0;
                self.count -= 1;
            }
            (None, Some(after)) => {
                if self.count >= self.buckets.len() * FILLED_MAX {
                    return false;
                }
                self.insert(hash, after);
            }
            (None, None) => {}
        }
        true
    }

    /// Tag and offset of a key that is there.
    fn slot_mut(&mut self, hash: u32, offset: u32) -> (&mut u8, &mut u32) {
        let tag = tag_of(hash);
        let mut at = self.bucket_of(hash);
        loop {
            let bucket = &self.buckets[at];
            let is_it = |&slot: &usize| bucket.tags[slot] == tag && bucket.offsets[slot] == offset;
            if let Some(slot) = (0..SLOTS).find(is_it) {
                let bucket = &mut self.buckets[at];
                return (&mut bucket.tags[slot], &mut bucket.offsets[slot]);
            }
            assert!(bucket.tags[OVERFLOWED] != 0, "a key of the run has no place");
            at = (at + 1) % self.buckets.len();
        }
    }

    /// There is room: the caller made sure.
    fn insert(&mut self, hash: u32, offset: u32) {
        self.count += 1;
        let mut at = self.bucket_of(hash);
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(free) = bucket.tags[..SLOTS].iter().position(|&tag| tag == 0) {
                bucket.tags[free] = tag_of(hash);
                bucket.offsets[free] = offset;
                return;
            }
            bucket.tags[OVERFLOWED] = 1;
            at = (at + 1) % self.buckets.len();
        }
    }

    /// The offset that `is_it` accepts among those with this hash.
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.buckets.is_empty() {
            return None;
        }
        let tag = tag_of(hash);
        let mut at = self.bucket_of(hash);
        loop {
            let bucket = &self.buckets[at];
            let tagged = (0..SLOTS).filter(|&slot| bucket.tags[slot] == tag);
            if let Some(offset) = tagged.map(|slot| bucket.offsets[slot]).find(|&offset| is_it(offset)) {
                return Some(offset);
            }
            if bucket.tags[OVERFLOWED] == 0 {
                return None;
            }
            at = (at + 1) % self.buckets.len();
        }
    }

    /// Memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.buckets)
    }

    /// By the upper bits; the tag has the lower ones.
    fn bucket_of(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.buckets.len() as u64) >> 32) as usize
    }
}

fn tag_of(hash: u32) -> u8 {
    (hash as u8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each of these hashes is found by its offset, and nothing by another.
    fn check(hashes: impl Iterator<Item = u32>) {
        let all: Vec<(u32, u32)> = hashes.zip(0..).collect();
        let places = Places::new(all.len(), all.iter().copied());
        assert!(places.bytes() <= 8 * all.len() + 64, "{} bytes for {} keys", places.bytes(), all.len());
        for &(hash, offset) in &all {
            assert_eq!(places.find(hash, |found| found == offset), Some(offset));
            assert_eq!(places.find(hash, |_| false), None);
        }
        let mut seen = Vec::new();
        assert_eq!(
            places.find(all[0].0, |offset| {
                seen.push(offset);
                false
            }),
            None
        );
        assert!(seen.contains(&0));
    }

    #[test]
    fn each_key_is_found_among_many() {
        check((0..10_000u32).map(|i| i.wrapping_mul(0x9e37_79b9)));
        check([7].into_iter());
    }

    #[test]
    fn keys_of_one_hash_overflow_into_the_next_buckets_and_round_the_end() {
        check((0..100).map(|_| u32::MAX));
        check((0..100).map(|_| 0));
    }

    /// Hashes that are spread, and some that are not.
    fn hash_of(key: u32) -> u32 {
        if key.is_multiple_of(16) { 5 << 24 } else { key.wrapping_mul(0x9e37_79b9) }
    }

    #[test]
    fn places_change_as_a_map_does_until_there_is_no_room() {
        let mut places = Places::new(400, (0..400).map(|key| (hash_of(key), key)));
        let mut expected: std::collections::BTreeMap<u32, u32> = (0..400).map(|key| (key, key)).collect();
        let mut offset = 1000;
        for round in 0..5u32 {
            for key in (round..700).step_by(3) {
                offset += 1;
                let after = (key % 7 != round).then_some(offset);
                let before = expected.get(&key).copied();
                let is_done = places.replace(hash_of(key), before, after);
                if !is_done {
                    assert!(before.is_none() && expected.len() == 50 * FILLED_MAX);
                    continue;
                }
                match after {
                    Some(offset) => expected.insert(key, offset),
                    None => expected.remove(&key),
                };
            }
            assert_eq!(places.count, expected.len());
            for key in 0..700 {
                let wanted = expected.get(&key).copied();
                assert_eq!(places.find(hash_of(key), |found| Some(found) == wanted), wanted, "{key}");
            }
        }
        assert!(expected.len() == 50 * FILLED_MAX, "so many that some were refused: {}", expected.len());
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        assert_eq!(Places::default().find(1, |_| true), None);
        assert_eq!(Places::new(0, std::iter::empty()).find(1, |_| true), None);
        assert!(!Places::default().replace(1, None, Some(1)));
    }
}
