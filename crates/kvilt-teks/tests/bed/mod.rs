//! A store on a disk of a test, with a clock and a background that move only when the test says so.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kvilt_base::{
    Budget, Descriptor as _, Direction, Disk, Durability, Engine, KeyRange, Result, RowBatch, Settings, World,
};
use kvilt_io::{ManualClock, SeededRng, StepSpawn};
use kvilt_teks::Options;

pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const ASYNC: Durability = Durability::Async { interval: HOUR };
pub(crate) const SYNC: Durability = Durability::Sync { interval: HOUR };
/// A memory table has 32 KiB, so some hundred rows are flushed and merged.
const BUDGET_BYTES: u64 = 256 << 10;

/// Opens a store with the least memory; and its background.
pub(crate) fn open(disk: Arc<dyn Disk>, durability: Durability) -> Result<(Arc<dyn Engine>, Arc<StepSpawn>)> {
    open_with(disk, durability, BUDGET_BYTES)
}

/// The same with this budget in bytes.
pub(crate) fn open_with(
    disk: Arc<dyn Disk>,
    durability: Durability,
    budget_bytes: u64,
) -> Result<(Arc<dyn Engine>, Arc<StepSpawn>)> {
    let spawn = StepSpawn::new(ManualClock::new(), 1);
    let world = World {
        clock: ManualClock::new(),
        rng: Arc::new(SeededRng::new(7)),
        spawn: spawn.clone(),
        budget: Budget::new(budget_bytes),
    };
    let mut settings = Settings::default();
    settings.durability = durability;
    Ok((Options::default().open(disk, world, &settings)?, spawn))
}

pub(crate) fn rows(db: &dyn Engine) -> Rows {
    let view = db.view().unwrap();
    let (mut rows, mut left) = (Rows::new(), Some(KeyRange::all()));
    while let Some(range) = left {
        let mut batch = RowBatch::new(1 << 16, 1000, false);
        left = db.scan(&view, &range, Direction::Forward, &mut batch).unwrap().left();
        rows.extend(batch.into_rows().map(|(key, value)| (key.to_vec(), value.to_vec())));
    }
    rows
}

pub(crate) fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// A figure of the engine's own.
pub(crate) fn figure(db: &dyn Engine, name: &str) -> u64 {
    db.stats().own.iter().find(|figure| figure.name == name).map(|figure| figure.value).unwrap()
}
