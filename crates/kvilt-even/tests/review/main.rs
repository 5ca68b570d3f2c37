//! Bugs found by review; each test fails as long as its bug is there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod durability;
mod idle;
mod memory;
mod rest;
mod room;

use std::{sync::Arc, time::Duration};

use kvilt_base::{Budget, Direction, Disk, Durability, Engine, KeyRange, Result, RowBatch, World};
use kvilt_even::Options;
use kvilt_io::{ManualClock, MemoryDisk, SeededRng, StepSpawn};
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

/// One test at a time: what a store has given up is freed when no thread of the process is still reading, and
/// several tests here ask whether it was.
static ALONE: ReentrantMutex<()> = ReentrantMutex::new(());

struct Bed {
    clock: Arc<ManualClock>,
    spawn: Arc<StepSpawn>,
    budget: Arc<Budget>,
    _alone: ReentrantMutexGuard<'static, ()>,
}

impl Bed {
    fn new(budget: u64) -> Bed {
        let clock = ManualClock::new();
        let spawn = StepSpawn::new(clock.clone(), 1);
        Bed { spawn, clock, budget: Budget::new(budget), _alone: ALONE.lock() }
    }
    fn open(&self, disk: Arc<dyn Disk>, options: Options) -> Result<Arc<dyn Engine>> {
        let world = World {
            clock: self.clock.clone(),
            rng: Arc::new(SeededRng::new(7)),
            spawn: self.spawn.clone(),
            budget: self.budget.clone(),
        };
        kvilt_even::open(disk, world, options)
    }
    /// Steps at most `max`; says whether the workers came to rest (the clock stands still).
    fn rests_within(&self, max: u32) -> bool {
        for i in 0..max {
            if !self.spawn.step(u64::from(i)) {
                return true;
            }
        }
        false
    }
}

fn never() -> Options {
    let mut options = Options::tiny();
    options.settings.durability = Durability::Async { interval: Duration::from_secs(3600) };
    options
}

/// Puts so many rows of 200 bytes each.
fn put_rows(db: &dyn Engine, count: u32, byte: u8) {
    for i in 0..count {
        db.put(format!("key{i:04}").as_bytes(), &[byte; 200]).unwrap();
    }
}

/// A store with so many rows that was closed.
fn closed_with_rows(count: u32) -> Arc<MemoryDisk> {
    let disk = MemoryDisk::new(1);
    let bed = Bed::new(64 << 20);
    let db = bed.open(disk.clone(), never()).unwrap();
    put_rows(&*db, count, 7);
    db.close().unwrap();
    disk
}

fn rows(db: &dyn Engine) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
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
