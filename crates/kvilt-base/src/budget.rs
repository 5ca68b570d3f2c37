//! `Budget`: one number for all memory, and what each part uses of it.
//!
//! It counts and does not refuse: who wants memory asks [`Budget::used_in_all`] and decides (evict, flush,
//! wait). Several stores of one process share one budget.
//!
//! What is always true: S-30: a part's gauge is the sum of what was added less what was given back, never
//! below zero; a [`Charge`] gives back exactly what it holds, also when its owner panics.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

/// What memory is used for. An engine declares its own parts as constants, each in a slot that no part of
/// another engine has: engines of one process share a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    slot: usize,
    name: &'static str,
}

/// Parts that the engines of a process may have together.
pub const PARTS_MAX: usize = 16;

impl Part {
    /// Panics if there is no such slot.
    pub const fn new(slot: usize, name: &'static str) -> Part {
        assert!(slot < PARTS_MAX, "a budget has no slot of that number");
        Part { slot, name }
    }

    /// Where a budget counts it.
    pub fn slot(self) -> usize {
        self.slot
    }
}

/// The memory that may be used, in bytes, and the gauges of its parts. Any thread may use it; nothing waits.
pub struct Budget {
    bytes_max: u64,
    /// Padded: parts are charged by different threads.
    used: [CachePadded<AtomicU64>; PARTS_MAX],
    sleepers: Mutex<Sleepers>,
}

/// Who has memory of a budget and rests until woken: it would not notice by itself that others need some.
pub trait Sleeper: Send + Sync {
    /// Memory is short: give back what can be done without. Returns at once. A sleeper that is to be woken
    /// again enters itself again.
    fn wake(&self);
}

/// Those that rest, who was listed first first.
#[derive(Default)]
struct Sleepers {
    list: VecDeque<Weak<dyn Sleeper>>,
    /// Those that are gone are taken out when the list is so long.
    prune_at: usize,
}

/// A list that is shorter is never looked through for those that are gone.
const SLEEPERS_PRUNED_MIN: usize = 16;

impl Budget {
    /// A budget of `bytes_max` bytes, nothing used.
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Budget { bytes_max, used: Default::default(), sleepers: Mutex::default() })
    }

    /// Enters somebody who rests, to be woken when memory is short.
    pub fn list(&self, sleeper: Weak<dyn Sleeper>) {
        let mut sleepers = self.sleepers.lock();
        if sleepers.list.len() >= sleepers.prune_at {
            sleepers.list.retain(|sleeper| sleeper.strong_count() > 0);
            sleepers.prune_at = (2 * sleepers.list.len()).max(SLEEPERS_PRUNED_MIN);
        }
        sleepers.list.push_back(sleeper);
    }

    /// Wakes at most `count` sleepers and takes them off the list, the one that was entered first before the
    /// others: repeated calls reach all.
    pub fn ask(&self, count: usize) {
        for _ in 0..count {
            // The lock is not held while it is woken.
            let Some(sleeper) = self.sleepers.lock().list.pop_front() else { return };
            if let Some(sleeper) = sleeper.upgrade() {
                sleeper.wake();
            }
        }
    }

    /// All there is, in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Counts `bytes` as used by `part`.
    pub fn add(&self, part: Part, bytes: u64) {
        // Relaxed, here and below: gauges order nothing; each is exact by itself.
        self.used[part.slot].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` of `part` as given back. Panics if the part does not use that many.
    pub fn sub(&self, part: Part, bytes: u64) {
        let before = self.used[part.slot].fetch_sub(bytes, Ordering::Relaxed);
        crate::invariant!("S-30", before >= bytes, "{} give back {bytes} bytes of {before}", part.name);
    }

    /// What `part` uses, in bytes.
    pub fn used(&self, part: Part) -> u64 {
        self.used[part.slot].load(Ordering::Relaxed)
    }

    /// What all parts use, in bytes. Not one instant: parts may move while they are summed.
    pub fn used_in_all(&self) -> u64 {
        self.used.iter().map(|used| used.load(Ordering::Relaxed)).sum()
    }

    /// Counts `bytes` as used by `part` for as long as the charge lives.
    ///
    /// ```
    /// use kvilt_base::{Budget, budget::Part};
    /// const CACHE: Part = Part::new(9, "cache");
    /// let budget = Budget::new(1 << 20);
    /// let mut charge = budget.charge(CACHE, 100);
    /// charge.grow(20);
    /// assert_eq!(budget.used(CACHE), 120);
    /// drop(charge);
    /// assert_eq!(budget.used_in_all(), 0);
    /// ```
    pub fn charge(self: &Arc<Self>, part: Part, bytes: u64) -> Charge {
        self.add(part, bytes);
        Charge { budget: Arc::clone(self), part, bytes }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used: Vec<u64> = self.used.iter().map(|used| used.load(Ordering::Relaxed)).collect();
        f.debug_struct("Budget").field("bytes_max", &self.bytes_max).field("used", &used).finish()
    }
}

/// Bytes of a budget held by one owner; given back when dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    part: Part,
    bytes: u64,
}

impl Charge {
    /// Holds `bytes` more.
    pub fn grow(&mut self, bytes: u64) {
        self.budget.add(self.part, bytes);
        self.bytes += bytes;
    }

    /// Gives `bytes` back. Panics if it does not hold that many.
    pub fn shrink(&mut self, bytes: u64) {
        assert!(bytes <= self.bytes, "a charge of {} bytes cannot give back {bytes}", self.bytes);
        self.bytes -= bytes;
        self.budget.sub(self.part, bytes);
    }

    /// Holds `bytes` from here on, whether that is more or less.
    pub fn set(&mut self, bytes: u64) {
        if bytes > self.bytes {
            self.grow(bytes - self.bytes);
        } else {
            self.shrink(self.bytes - bytes);
        }
    }

    /// What it holds, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.sub(self.part, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Asked(AtomicU64);

    impl Sleeper for Asked {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn asked(who: &Arc<Asked>) -> u64 {
        who.0.load(Ordering::Relaxed)
    }

    fn sleepers(budget: &Budget, count: usize) -> Vec<Arc<Asked>> {
        let all: Vec<_> = (0..count).map(|_| Arc::new(Asked(AtomicU64::new(0)))).collect();
        for one in &all {
            let one: Weak<Asked> = Arc::downgrade(one);
            budget.list(one);
        }
        all
    }

    #[test]
    fn those_that_rest_are_asked_in_turn_and_once() {
        let budget = Budget::new(10);
        let all = sleepers(&budget, 5);
        budget.ask(2);
        assert_eq!(all.iter().map(asked).collect::<Vec<_>>(), [1, 1, 0, 0, 0]);
        budget.ask(9);
        budget.ask(9);
        assert_eq!(all.iter().map(asked).collect::<Vec<_>>(), [1; 5]);
    }

    #[test]
    fn stores_that_are_opened_and_closed_for_ever_leave_nothing_in_the_list() {
        let budget = Budget::new(10);
        let _open = sleepers(&budget, 20);
        for _ in 0..1000 {
            drop(sleepers(&budget, 1));
        }
        assert!(budget.sleepers.lock().list.len() <= 2 * (20 + 1), "{}", budget.sleepers.lock().list.len());
    }

    #[test]
    fn charges_of_many_threads_sum_to_nothing_in_the_end() {
        let budget = Budget::new(10);
        std::thread::scope(|s| {
            for slot in 0..5 {
                let (budget, part) = (&budget, Part::new(slot, "rows"));
                s.spawn(move || {
                    for bytes in 0..if cfg!(miri) { 50 } else { 1000 } {
                        let mut charge = budget.charge(part, bytes);
                        charge.grow(5);
                        charge.shrink(bytes);
                        assert_eq!((charge.bytes(), budget.used(part)), (5, 5));
                    }
                });
            }
        });
        assert_eq!(budget.used_in_all(), 0);
        assert_eq!(budget.bytes_max(), 10);
    }

    #[test]
    #[should_panic(expected = "S-30")]
    fn giving_back_too_much_is_a_bug() {
        Budget::new(1).sub(Part::new(1, "rows"), 1);
    }
}
