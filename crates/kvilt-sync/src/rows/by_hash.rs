//! `ByHash`: where the newest row of each key lies, by the key's hash.
//!
//! A search through sorted keys touches a line of memory for each few steps, and the lines of a munk are
//! seldom in a cache. Here it is one line, a bucket, before the row itself (TeksDB's idea: points by hash,
//! order for scans, over the same rows; docs/design/0040-points-by-hash-in-runs.md).
//!
//! ```text
//!   bucket, 64 bytes   tags 12 × 8 | unused 24 | has overflowed 8 | places 12 × 32
//! ```
//!
//! What is always true: once it is shared, only places change; which keys there are does not. A row lies in
//! its key's bucket, or behind buckets that have all overflowed. That a bucket has overflowed stays when its
//! keys go: see [`ByHash::is_crowded`].

use std::array;

use crate::{
    ahead::fetch_ahead,
    shim::{AtomicU32, Ordering},
};

/// Rows of a bucket …
const SLOTS: usize = 12;
/// … and how many it has on the average, so that few overflow.
const FILLED: usize = 8;
/// … and how many at most: with more, gets would follow rows through several buckets. So there always is one
/// with room for another.
const FILLED_MAX: usize = 10;
/// Where in a bucket's tags it says whether rows of it may lie in the next.
const OVERFLOWED: usize = 15;

#[repr(align(64))]
struct Bucket {
    /// Eight bits of the hash of the row in each slot; 0 where none is.
    tags: [u8; 16],
    places: [AtomicU32; SLOTS],
}

impl Bucket {
    fn empty() -> Self {
        Bucket { tags: [0; 16], places: array::from_fn(|_| AtomicU32::new(0)) }
    }

    fn copied(&self) -> Self {
        Bucket { tags: self.tags, places: array::from_fn(|slot| AtomicU32::new(self.place(slot))) }
    }

    #[inline]
    fn place(&self, slot: usize) -> u32 {
        // Acquire: pairs with the store in `exchange`.
        self.places[slot].load(Ordering::Acquire)
    }
}

/// Where a place stands.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    bucket: usize,
    slot: usize,
}

/// Places by hash.
#[derive(Default)]
pub(super) struct ByHash {
    buckets: Box<[Bucket]>,
    /// Keys that have a slot.
    count: usize,
}

impl ByHash {
    /// The places of `count` keys at most, by their hashes.
    pub(super) fn new(count: usize, hashes_and_places: impl Iterator<Item = (u32, u32)>) -> Self {
        let buckets = (0..count.div_ceil(FILLED)).map(|_| Bucket::empty()).collect();
        let mut by_hash = ByHash { buckets, count: 0 };
        hashes_and_places.for_each(|(hash, place)| by_hash.insert(hash, place));
        by_hash
    }

    /// The same once more, to be changed.
    pub(super) fn copied(&self) -> Self {
        ByHash { buckets: self.buckets.iter().map(Bucket::copied).collect(), count: self.count }
    }

    /// Puts the place of a key's newest row where that of another is, if it had one; or takes the key out.
    /// False, and nothing is changed, if there is no room for another key.
    #[must_use]
    pub(super) fn replace(&mut self, hash: u32, before: Option<u32>, after: Option<u32>) -> bool {
        match (before, after) {
            (Some(before), Some(after)) => {
                let Slot { bucket, slot } = self.slot_of(hash, before);
                self.buckets[bucket].places[slot] = AtomicU32::new(after);
            }
            (Some(before), None) => {
                let Slot { bucket, slot } = self.slot_of(hash, before);
                self.buckets[bucket].tags[slot] = 0;
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

    /// Where a place stands that is there.
    fn slot_of(&self, hash: u32, place: u32) -> Slot {
        let found = self.find_slot(hash, |other| (other == place).then_some(()));
        found.expect("a key of the rows has a place").1
    }

    /// There is room: the caller made sure.
    fn insert(&mut self, hash: u32, place: u32) {
        self.count += 1;
        let mut at = self.bucket_of(hash);
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(free) = bucket.tags[..SLOTS].iter().position(|&tag| tag == 0) {
                bucket.tags[free] = tag_of(hash);
                bucket.places[free] = AtomicU32::new(place);
                return;
            }
            bucket.tags[OVERFLOWED] = 1;
            at = (at + 1) % self.buckets.len();
        }
    }

    /// What `accept` makes of the first place that it takes among those with this hash.
    #[inline]
    pub(super) fn find<T>(&self, hash: u32, accept: impl FnMut(u32) -> Option<T>) -> Option<T> {
        self.find_slot(hash, accept).map(|(found, _)| found)
    }

    /// The same, and where that place stands.
    #[inline]
    pub(super) fn find_slot<T>(
        &self,
        hash: u32,
        mut accept: impl FnMut(u32) -> Option<T>,
    ) -> Option<(T, Slot)> {
        if self.buckets.is_empty() {
            return None;
        }
        let tag = tag_of(hash);
        let first = self.bucket_of(hash);
        let mut at = first;
        loop {
            let bucket = &self.buckets[at];
            let mut tagged = (0..SLOTS).filter(|&slot| bucket.tags[slot] == tag);
            let found =
                tagged.find_map(|slot| Some((accept(bucket.place(slot))?, Slot { bucket: at, slot })));
            if found.is_some() {
                return found;
            }
            if bucket.tags[OVERFLOWED] == 0 {
                return None;
            }
            at = (at + 1) % self.buckets.len();
            // All of them may have overflowed, one after the other.
            if at == first {
                return None;
            }
        }
    }

    /// Puts another place where one stands, for readers that look at it meanwhile.
    pub(super) fn exchange(&self, Slot { bucket, slot }: Slot, place: u32) {
        // Release: who finds the place finds the row whole.
        self.buckets[bucket].places[slot].store(place, Ordering::Release);
    }

    /// Has the processor fetch what finds a key with this hash.
    pub(super) fn fetch_ahead(&self, hash: u32) {
        if let Some(bucket) = self.buckets.get(self.bucket_of(hash)) {
            fetch_ahead(bucket);
        }
    }

    /// Gives `each` the places in a key's bucket that are probably its own. False if it has none, there or in
    /// another.
    #[inline]
    pub(super) fn any_candidate(&self, hash: u32, each: impl FnMut(u32)) -> bool {
        let Some(bucket) = self.buckets.get(self.bucket_of(hash)) else { return false };
        let tagged = (0..SLOTS).filter(|&slot| bucket.tags[slot] == tag_of(hash));
        tagged.map(|slot| bucket.place(slot)).map(each).count() > 0 || bucket.tags[OVERFLOWED] != 0
    }

    /// Whether most buckets have overflowed, now or before keys went: a search for a key that is not there
    /// goes on and on. Made anew, a sixteenth of them has, or not even that.
    pub(super) fn is_crowded(&self) -> bool {
        2 * self.buckets.iter().filter(|bucket| bucket.tags[OVERFLOWED] != 0).count() > self.buckets.len()
    }

    /// Memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// By the upper bits; the tag has the lower ones.
    fn bucket_of(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.buckets.len() as u64) >> 32) as usize
    }
}

fn tag_of(hash: u32) -> u8 {
    (hash as u8).max(1)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn accept(wanted: impl Fn(u32) -> bool) -> impl FnMut(u32) -> Option<u32> {
        move |place| wanted(place).then_some(place)
    }

    /// Whether each of these hashes is found by its place, and nothing by another.
    fn check(hashes: impl Iterator<Item = u32>) {
        let all: Vec<(u32, u32)> = hashes.zip(0..).collect();
        let by_hash = ByHash::new(all.len(), all.iter().copied());
        assert!(by_hash.bytes() <= 8 * all.len() + 64, "{} bytes for {} keys", by_hash.bytes(), all.len());
        for &(hash, place) in &all {
            assert_eq!(by_hash.find(hash, accept(|found| found == place)), Some(place));
            assert_eq!(by_hash.find(hash, accept(|_| false)), None);
        }
        let mut seen = Vec::new();
        let nothing: Option<()> = by_hash.find(all[0].0, |place| {
            seen.push(place);
            None
        });
        assert!(nothing.is_none() && seen.contains(&0));
    }

    #[test]
    fn each_key_is_found_among_many() {
        const KEYS: u32 = if cfg!(miri) { 100 } else { 10_000 };
        check((0..KEYS).map(|i| i.wrapping_mul(0x9e37_79b9)));
        check([7].into_iter());
    }

    #[test]
    fn keys_of_one_hash_overflow_into_the_next_buckets_and_round_the_end() {
        const KEYS: u32 = if cfg!(miri) { 30 } else { 100 };
        check((0..KEYS).map(|_| u32::MAX));
        check((0..KEYS).map(|_| 0));
    }

    /// Hashes that are spread, and some that are not.
    fn hash_of(key: u32) -> u32 {
        if key.is_multiple_of(16) { 5 << 24 } else { key.wrapping_mul(0x9e37_79b9) }
    }

    #[test]
    fn places_change_as_a_map_does_until_there_is_no_room() {
        let mut by_hash = ByHash::new(400, (0..400).map(|key| (hash_of(key), key)));
        let mut expected: std::collections::BTreeMap<u32, u32> = (0..400).map(|key| (key, key)).collect();
        let mut place = 1000;
        // Minutes under miri, and hardly another path.
        let (rounds, step, looked_up) = if cfg!(miri) { (2, 29, 13) } else { (5, 3, 1) };
        for round in 0..rounds {
            by_hash = by_hash.copied();
            for key in (round..700).step_by(step) {
                place += 1;
                let after = (key % 7 != round).then_some(place);
                let before = expected.get(&key).copied();
                let is_done = by_hash.replace(hash_of(key), before, after);
                if !is_done {
                    assert!(before.is_none() && expected.len() == 50 * FILLED_MAX);
                    continue;
                }
                match after {
                    Some(place) => expected.insert(key, place),
                    None => expected.remove(&key),
                };
            }
            assert_eq!(by_hash.count, expected.len());
            for key in (0..700).step_by(looked_up) {
                let wanted = expected.get(&key).copied();
                assert_eq!(
                    by_hash.find(hash_of(key), accept(|found| Some(found) == wanted)),
                    wanted,
                    "{key}"
                );
            }
        }
        assert!(cfg!(miri) || expected.len() == 50 * FILLED_MAX, "some were refused: {}", expected.len());
    }

    #[test]
    fn a_search_ends_where_each_bucket_has_overflowed() {
        const MANY: u32 = SLOTS as u32 + 1;
        let in_bucket = |bucket: u32, i: u32| bucket << 31 | i;
        let mut by_hash = ByHash::new(2 * FILLED, std::iter::empty());
        for bucket in [0, 1] {
            (0..MANY).for_each(|i| assert!(by_hash.replace(in_bucket(bucket, i), None, Some(i))));
            (0..MANY - 1).for_each(|i| assert!(by_hash.replace(in_bucket(bucket, i), Some(i), None)));
        }
        assert!(by_hash.buckets.iter().all(|bucket| bucket.tags[OVERFLOWED] == 1) && by_hash.is_crowded());
        for bucket in [0, 1] {
            assert_eq!(by_hash.find(in_bucket(bucket, 99), Some), None);
            let last = in_bucket(bucket, MANY - 1);
            assert_eq!(by_hash.find(last, Some), Some(MANY - 1), "it lies in the other bucket, or did");
        }
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        assert_eq!(ByHash::default().find(1, Some), None);
        assert_eq!(ByHash::new(0, std::iter::empty()).find(1, Some), None);
        assert!(!ByHash::default().replace(1, None, Some(1)));
        ByHash::default().fetch_ahead(7);
    }
}
