//! `Slots`: where a key's node lies, by the key's hash; open addressing.
//!
//! ```text
//!   slot   hash 32 | place of a node 32; 0 is empty
//! ```
//!
//! One writer, any number of readers without locks. What is always true: a slot is stored (Release) behind
//! the node that it leads to (S-10), and is not changed afterwards; of two keys with one hash each has its
//! slot.

use crate::{
    ahead::fetch_ahead,
    shim::{AtomicU64, IS_EXPLORED, Ordering},
};

/// Slots of a pile with few rows.
const SLOTS_MIN: usize = if IS_EXPLORED { 2 } else { 16 };

pub(super) struct Slots(Box<[AtomicU64]>);

impl Slots {
    pub(super) fn new() -> Self {
        Self::of(SLOTS_MIN)
    }

    fn of(count: usize) -> Self {
        Slots((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The place that `is_it` accepts among those with this hash.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.first(hash);
        loop {
            // Acquire: pairs with the store in `insert`.
            let slot = self.0[at].load(Ordering::Acquire);
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 == hash && is_it(slot as u32) {
                return Some(slot as u32);
            }
            at = (at + 1) & (self.0.len() - 1);
        }
    }

    /// Enters a node whose key has no slot yet. The caller is the only writer, and enters so few that some
    /// slots stay empty.
    pub(super) fn insert(&self, hash: u32, place: u32) {
        let mut at = self.first(hash);
        // Relaxed: only the one writer stores.
        while self.0[at].load(Ordering::Relaxed) != 0 {
            at = (at + 1) & (self.0.len() - 1);
        }
        // Release: pairs with `find`.
        self.0[at].store(u64::from(hash) << 32 | u64::from(place), Ordering::Release);
    }

    /// Twice as many, if with `count` entries these would be too full.
    pub(super) fn grown_for(&self, count: usize) -> Option<Slots> {
        if count * 4 <= self.0.len() * 3 {
            return None;
        }
        let larger = Self::of(self.0.len() * 2);
        for slot in self.0.iter().map(|slot| slot.load(Ordering::Relaxed)).filter(|&slot| slot != 0) {
            larger.insert((slot >> 32) as u32, slot as u32);
        }
        Some(larger)
    }

    /// Has the processor fetch what a search for this hash looks at.
    #[inline]
    pub(super) fn fetch_ahead(&self, hash: u32) {
        fetch_ahead(&self.0[self.first(hash)]);
    }

    /// By the upper bits.
    #[inline]
    fn first(&self, hash: u32) -> usize {
        (u64::from(hash) >> (u32::BITS - self.0.len().trailing_zeros())) as usize
    }
}
