//! A store whose background moves only when a put waits for it, and which takes no checkpoint: for tests of
//! memory.

use std::{sync::Arc, time::Duration};

use kvilt_base::{Budget, Durability, Engine, World};
use kvilt_even::Options;
use kvilt_io::{ManualClock, MemoryDisk, SeededRng, StepSpawn};

/// A new store with such a budget, and the budget.
pub(crate) fn open(budget_bytes: u64) -> (Arc<dyn Engine>, Arc<Budget>) {
    let clock = ManualClock::new();
    let budget = Budget::new(budget_bytes);
    let world = World {
        clock: clock.clone(),
        rng: Arc::new(SeededRng::new(7)),
        spawn: StepSpawn::new(clock, 1),
        budget: Arc::clone(&budget),
    };
    let mut options = Options::default();
    options.settings.durability = Durability::Async { interval: Duration::from_secs(3600) };
    // Chunks are small against the smallest budgets, too.
    options.chunk_bytes_rebalance = options.chunk_bytes_rebalance.min(budget_bytes / 16);
    options.chunk_bytes_max = options.chunk_bytes_max.min(budget_bytes / 11);
    options.chunk_bytes_min = options.chunk_bytes_min.min(budget_bytes / 112);
    (kvilt_even::open(MemoryDisk::new(1), world, options).expect("a store in memory opens"), budget)
}
