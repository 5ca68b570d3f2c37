//! `Bed`: a store with tiny limits, a clock moved by hand, and workers that step when told.

use std::{sync::Arc, time::Duration};

use kvilt_base::{Budget, Direction, Disk, Durability, Engine, KeyRange, Result, RowBatch, World};
use kvilt_even::Options;
use kvilt_io::{ManualClock, SeededRng, StepSpawn};

/// Everything around a store but its disk.
pub(crate) struct Bed {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) spawn: Arc<StepSpawn>,
    budget_bytes: u64,
}

impl Bed {
    /// Around a store with so much memory.
    pub(crate) fn new(budget_bytes: u64) -> Bed {
        let clock = ManualClock::new();
        Bed { spawn: StepSpawn::new(clock.clone(), 1), clock, budget_bytes }
    }

    /// Opens the store on this disk.
    pub(crate) fn open(&self, disk: Arc<dyn Disk>, options: Options) -> Result<Arc<dyn Engine>> {
        let world = World {
            clock: self.clock.clone(),
            rng: Arc::new(SeededRng::new(7)),
            spawn: self.spawn.clone(),
            budget: Budget::new(self.budget_bytes),
        };
        kvilt_even::open(disk, world, options)
    }

    /// Steps the workers while the clock stands still; says whether they came to rest within `steps_max`.
    pub(crate) fn rests_within(&self, steps_max: u64) -> bool {
        (0..steps_max).any(|choice| !self.spawn.step(choice))
    }
}

/// Tiny limits, asynchronous, no checkpoint that was not asked for.
pub(crate) fn without_checkpoints() -> Options {
    let mut options = Options::tiny();
    options.settings.durability = Durability::Async { interval: Duration::from_secs(3600) };
    options
}

/// Tiny limits, synchronous, no checkpoint that was not asked for.
pub(crate) fn synchronous() -> Options {
    let mut options = Options::tiny();
    options.settings.durability = Durability::Sync { interval: Duration::from_secs(3600) };
    options
}

/// All rows, by a scan.
pub(crate) fn rows(db: &dyn Engine) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let view = db.view()?;
    let mut left = Some(KeyRange::all());
    let mut out = Vec::new();
    while let Some(range) = left {
        let mut batch = RowBatch::new(1 << 16, 1000, false);
        left = db.scan(&view, &range, Direction::Forward, &mut batch)?.left();
        out.extend(batch.into_rows().map(|(k, v)| (k.to_vec(), v.to_vec())));
    }
    Ok(out)
}
