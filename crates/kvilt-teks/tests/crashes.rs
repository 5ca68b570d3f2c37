//! Power cuts beside a flush and a merge: each thing that was not synced is lost alone.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use kvilt_base::{Budget, Descriptor as _, Disk, Engine, Result, Settings, World};
use kvilt_io::{Keep, ManualClock, MemoryDisk, SeededRng, StepSpawn};
use kvilt_teks::Options;

/// Memory for few rows, so that tables are written, and merged, soon.
const BUDGET_BYTES: u64 = 256 << 10;
const ROWS: u32 = 1_300;

fn open(disk: Arc<dyn Disk>) -> Result<(Arc<dyn Engine>, Arc<StepSpawn>)> {
    let spawn = StepSpawn::new(ManualClock::new(), 1);
    let world = World {
        clock: ManualClock::new(),
        rng: Arc::new(SeededRng::new(7)),
        spawn: spawn.clone(),
        budget: Budget::new(BUDGET_BYTES),
    };
    let engine = Options::default().open(disk, world, &Settings::default())?;
    Ok((engine, spawn))
}

/// Puts rows until the disk crashes. Says how often tables were merged, if it does not.
fn run(disk: &Arc<MemoryDisk>) -> Option<u64> {
    let (db, spawn) = open(disk.clone()).ok()?;
    for number in 0..ROWS {
        db.put(&(number % 700).to_be_bytes(), &[number as u8; 100]).ok()?;
        if number % 100 == 0 {
            spawn.step_all_until_idle();
        }
    }
    db.stats().own.iter().find(|figure| figure.name == "merges").map(|figure| figure.value)
}

#[test]
fn a_catalogue_is_never_found_without_its_tables() {
    let whole = MemoryDisk::new(1);
    assert!(run(&whole).unwrap() > 0);
    for op in 0..whole.ops() {
        let disk = MemoryDisk::new(1);
        disk.set_crash_at(Some(op));
        run(&disk);
        for unit in 0..disk.unsynced() {
            let image = disk.crash_image(Keep::AllBut(unit));
            open(image).map(drop).unwrap_or_else(|error| panic!("op {op} without unit {unit}: {error}"));
        }
    }
}
