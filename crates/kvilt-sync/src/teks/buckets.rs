//! The hash: four choices of bucket for each key, each bucket a line of the processor's cache.
//!
//! ```text
//!   slot     lower half of the hash 32 | place of the node 32; 0 is empty
//!   choice i     bucket (upper half of the hash + i × lower half) mod 2^32, scaled to the number of buckets
//! ```
//!
//! A key is in the first of its choices that had an empty slot when it came, or in a later one, to which it
//! moved to make room for another key. Any thread looks up without waiting and enters by compare-and-swap;
//! only those that have to move keys take turns.
//!
//! What is always true:
//! - Slots of a bucket are filled in order, and a slot that is filled stays so: only another key takes its
//!   place. So a bucket that was full is full, all choices before the one in which a key is are full, and a
//!   lookup that meets an empty slot is over.
//! - T-2: a key moves to a later choice of its own only, and is written there before its slot has another
//!   key. Whoever goes through the choices in order, loading each slot with Acquire, meets it in the one or
//!   the other.
//! - Two threads that enter one key meet at the first empty slot: of two exchanges one fails, and finds the
//!   other's key.

use kvilt_base::{invariant, planted};

use crate::{
    ahead::fetch_ahead,
    shim::{AtomicU64, IS_EXPLORED, Mutex, MutexGuard, Ordering},
};

/// Buckets that a key may be in.
pub(super) const CHOICES: usize = 4;
/// Slots of a bucket: a line of 64 bytes. One in models, so that three keys make one move.
const SLOTS: usize = if IS_EXPLORED { 1 } else { 8 };
/// Slots that a search for a path looks at, at most: beyond that the table counts as full. With a million
/// slots the limit is met at 99 % fill.
const SEARCHED_SLOTS_MAX: usize = 512;

#[repr(align(64))]
struct Bucket([AtomicU64; SLOTS]);

pub(super) struct Buckets {
    buckets: Box<[Bucket]>,
    /// Held by the one thread that moves keys.
    moving: Mutex<()>,
}

/// What came of entering a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// It has a slot now.
    New,
    /// It had one; this is its node's place.
    There(u32),
    /// No slot can be made empty for it; nothing was changed.
    NoPath,
}

/// A slot that a search has come by, and what was in it.
struct Step {
    bucket: usize,
    slot: usize,
    found: u64,
    /// The step whose key would move here; none if it is the new key.
    from: Option<usize>,
}

/// The bucket of a choice.
fn choice(hash: u64, nth: usize, buckets: usize) -> usize {
    let (upper, lower) = ((hash >> 32) as u32, hash as u32 | 1);
    let spread = upper.wrapping_add(lower.wrapping_mul(nth as u32));
    ((u64::from(spread) * buckets as u64) >> 32) as usize
}

/// Whether all choices of a key lie in the first `below` of `slots` slots.
#[cfg(test)]
pub(super) fn are_choices_below(hash: u64, slots: usize, below: usize) -> bool {
    (0..CHOICES).all(|nth| choice(hash, nth, slots / SLOTS) < below / SLOTS)
}

fn slot_of(hash: u64, place: u32) -> u64 {
    hash << 32 | u64::from(place)
}

/// The place in a slot, if the slot may be that of a key with this hash.
fn candidate(slot: u64, hash: u64) -> Option<u32> {
    ((slot >> 32) as u32 == hash as u32).then_some(slot as u32)
}

impl Buckets {
    /// With `slots` slots at least.
    pub(super) fn new(slots: usize) -> Self {
        let buckets = slots.div_ceil(SLOTS).clamp(1, u32::MAX as usize);
        let bucket = |_| Bucket(std::array::from_fn(|_| AtomicU64::new(0)));
        Buckets { buckets: (0..buckets).map(bucket).collect(), moving: Mutex::new(()) }
    }

    pub(super) fn slots(&self) -> usize {
        self.buckets.len() * SLOTS
    }

    /// Has the processor fetch the first choice of a key.
    #[inline]
    pub(super) fn fetch_ahead(&self, hash: u64) {
        fetch_ahead(&self.buckets[choice(hash, 0, self.buckets.len())]);
    }

    /// Gives each place in the first choice of a key that may be the key's.
    #[inline]
    pub(super) fn each_likely(&self, hash: u64, mut each: impl FnMut(u32)) {
        for slot in &self.buckets[choice(hash, 0, self.buckets.len())].0 {
            // Acquire: as in `find`.
            let found = slot.load(Ordering::Acquire);
            if found == 0 {
                return;
            }
            candidate(found, hash).into_iter().for_each(&mut each);
        }
    }

    /// The place that `is_it` accepts among those that may be of a key with this hash.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        for nth in 0..CHOICES {
            for slot in &self.buckets[choice(hash, nth, self.buckets.len())].0 {
                // Acquire: pairs with the exchanges in `enter` and `move_along`. Whoever sees a slot's later
                // key sees where its earlier one went (T-2), and each node is whole (T-1).
                let found = slot.load(Ordering::Acquire);
                if found == 0 {
                    return None;
                }
                if let Some(place) = candidate(found, hash).filter(|&place| is_it(place)) {
                    return Some(place);
                }
            }
        }
        None
    }

    /// Enters a key, unless it is there: the node at `place`. `is_it` says whether a node has the key,
    /// `hash_of` what the hash of a node's key is.
    pub(super) fn enter(
        &self,
        hash: u64,
        place: u32,
        is_it: impl Fn(u32) -> bool,
        hash_of: impl Fn(u32) -> u64,
    ) -> Entered {
        if let Some(entered) = self.enter_in_order(hash, place, &is_it) {
            return entered;
        }
        let moving = self.moving.lock();
        // While this waited, another may have entered the key, and moved others for it.
        match self.find(hash, &is_it) {
            Some(other) => Entered::There(other),
            None => self.make_room(&moving, hash, slot_of(hash, place), hash_of),
        }
    }

    /// None if all choices are full of other keys.
    fn enter_in_order(&self, hash: u64, place: u32, is_it: impl Fn(u32) -> bool) -> Option<Entered> {
        for nth in 0..CHOICES {
            for slot in &self.buckets[choice(hash, nth, self.buckets.len())].0 {
                // Acquire, twice: as in `find`.
                let mut found = slot.load(Ordering::Acquire);
                if found == 0 {
                    // Release: behind the node (T-1).
                    let mine = slot_of(hash, place);
                    match slot.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Acquire) {
                        Ok(_) => return Some(Entered::New),
                        Err(other) => found = other,
                    }
                }
                if let Some(other) = candidate(found, hash).filter(|&other| is_it(other)) {
                    return Some(Entered::There(other));
                }
            }
        }
        None
    }

    /// Enters a key whose choices are all full by moving others.
    fn make_room(
        &self,
        _moving: &MutexGuard<'_, ()>,
        hash: u64,
        mine: u64,
        hash_of: impl Fn(u32) -> u64,
    ) -> Entered {
        let mut steps = Vec::new();
        for nth in 0..CHOICES {
            self.push_bucket(&mut steps, choice(hash, nth, self.buckets.len()), None);
        }
        let mut next = 0;
        while next < steps.len() {
            let (bucket, hash) = (steps[next].bucket, hash_of(steps[next].found as u32));
            let choices: [usize; CHOICES] = std::array::from_fn(|nth| choice(hash, nth, self.buckets.len()));
            let first = |bucket| choices.iter().position(|other| *other == bucket);
            let present = first(bucket);
            let present =
                planted!(MovedPastRoom, present => choices.iter().rposition(|other| *other == bucket));
            let present = present.expect("a key is in one of its choices");
            // Of choices that coincide the first counts: so what lies before a choice is full, and no key
            // comes back to a bucket that it has left.
            for later in (present + 1..CHOICES).filter(|nth| first(choices[*nth]) == Some(*nth)) {
                let later = choices[later];
                if self.move_along(&steps, next, later, mine) {
                    return Entered::New;
                }
                // It is full, and so what comes behind it may be looked at.
                self.push_bucket(&mut steps, later, Some(next));
            }
            next += 1;
        }
        Entered::NoPath
    }

    /// The keys of a full bucket, as such that may move.
    fn push_bucket(&self, steps: &mut Vec<Step>, bucket: usize, from: Option<usize>) {
        for (slot, found) in self.buckets[bucket].0.iter().enumerate() {
            if steps.len() == SEARCHED_SLOTS_MAX {
                return;
            }
            // Acquire: the node is read. The caller has the lock, so no filled slot changes.
            steps.push(Step { bucket, slot, found: found.load(Ordering::Acquire), from });
        }
    }

    /// If `bucket` has an empty slot, moves the key of the last step there, that of the step before to where
    /// this one was, and so on; the new key has then the slot where the path began. False if it is full.
    fn move_along(&self, steps: &[Step], last: usize, bucket: usize, mine: u64) -> bool {
        let found = planted!(MovedKeyLost, steps[last].found => mine);
        // AcqRel, all: Release, so that whoever sees what took a key's slot sees where the key is; Acquire,
        // to pass on what the key's node has. Others may fill the slot that was empty, and then the next one
        // is tried.
        let is_taken = |slot: &AtomicU64| {
            slot.load(Ordering::Relaxed) == 0
                && slot.compare_exchange(0, found, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if !self.buckets[bucket].0.iter().any(is_taken) {
            return false;
        }
        let mut step = &steps[last];
        loop {
            let moved = step.from.map_or(mine, |from| steps[from].found);
            let slot = &self.buckets[step.bucket].0[step.slot];
            let before = slot.compare_exchange(step.found, moved, Ordering::AcqRel, Ordering::Relaxed);
            invariant!("T-2", before.is_ok(), "a key on a path of moves was moved by another thread");
            let Some(from) = step.from else { return true };
            step = &steps[from];
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Keys are numbers, and so are the places of their nodes; the hash is a mix of the number.
    fn hash_of(place: u32) -> u64 {
        let mut hash = u64::from(place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
        hash.wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(17)
    }

    fn enter(buckets: &Buckets, key: u32) -> Entered {
        buckets.enter(hash_of(key), key, |place| place == key, hash_of)
    }

    fn find(buckets: &Buckets, key: u32) -> Option<u32> {
        buckets.find(hash_of(key), |place| place == key)
    }

    /// T-2, in one thread: whatever moved, each key is found, once, and others are not.
    #[test]
    fn every_key_is_found_up_to_the_last_one_that_has_room() {
        let buckets = Buckets::new(if cfg!(miri) { 256 } else { 4096 });
        let entered = (1..).take_while(|&key| enter(&buckets, key) == Entered::New).count() as u32;
        let fill = f64::from(entered) / buckets.slots() as f64;
        assert!(fill > 0.95, "full at {fill}");
        for key in 1..=entered {
            assert_eq!(find(&buckets, key), Some(key));
            assert_eq!(enter(&buckets, key), Entered::There(key));
        }
        assert!((entered + 1..2 * entered).all(|key| find(&buckets, key).is_none()));
        let filled = buckets.buckets.iter().flat_map(|bucket| &bucket.0);
        assert_eq!(filled.filter(|slot| slot.load(Ordering::Relaxed) != 0).count() as u32, entered);
    }

    /// T-2 where choices of a key coincide, as they often do among few buckets: a key that moved past a
    /// bucket with an empty slot would not be found.
    #[test]
    fn every_key_is_found_among_few_buckets() {
        let (buckets_max, rounds, keys) = if cfg!(miri) { (2, 1, 12) } else { (8, 200, 100) };
        for (buckets, first) in
            (1..=buckets_max).flat_map(|buckets| (0..rounds).map(move |nth| (buckets, nth * 1000 + 1)))
        {
            let buckets = Buckets::new(buckets * SLOTS);
            let mut entered = Vec::new();
            for key in first..first + keys {
                if enter(&buckets, key) == Entered::New {
                    entered.push(key);
                }
                assert!(entered.iter().all(|key| find(&buckets, *key) == Some(*key)));
            }
        }
    }

    /// A single bucket is all four choices.
    #[test]
    fn choices_may_coincide() {
        let buckets = Buckets::new(1);
        let entered = (1..100).filter(|&key| enter(&buckets, key) == Entered::New);
        assert_eq!(entered.collect::<Vec<u32>>(), (1..=SLOTS as u32).collect::<Vec<u32>>());
    }
}
