//! A store on a disk of a test, with a clock and a background that move only when the test says so.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kvilt_base::{
    Budget, Descriptor as _, Direction, Disk, Durability, Engine, KeyRange, Result, RowBatch, Settings, World,
};
use kvilt_io::{ManualClock, SeededRng, StepSpawn};
use kvilt_kvell::Options;

pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const ASYNC: Durability = Durability::Async { interval: HOUR };
pub(crate) const SYNC: Durability = Durability::Sync { interval: HOUR };

/// Opens a store with this number of shards; it takes no cut by itself.
pub(crate) fn open_with(disk: Arc<dyn Disk>, shards: u32, durability: Durability) -> Result<Arc<dyn Engine>> {
    let mut settings = Settings::default();
    settings.durability = durability;
    open_as(disk, shards, &settings)
}

/// The same with other settings.
pub(crate) fn open_as(disk: Arc<dyn Disk>, shards: u32, settings: &Settings) -> Result<Arc<dyn Engine>> {
    let world = World {
        clock: ManualClock::new(),
        rng: Arc::new(SeededRng::new(7)),
        spawn: StepSpawn::new(ManualClock::new(), 1),
        budget: Budget::new(4 << 20),
    };
    let mut options = Options::default();
    options.shards = shards;
    options.open(disk, world, settings)
}

pub(crate) fn open(disk: Arc<dyn Disk>) -> Arc<dyn Engine> {
    open_with(disk, 1, ASYNC).unwrap()
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

/// The rows that an open of this disk finds, which are sound.
pub(crate) fn rows_of(disk: Arc<dyn Disk>) -> Rows {
    let db = open(disk);
    let report = db.check(&mut |_| true).unwrap();
    assert_eq!(report.damages, []);
    rows(&*db)
}

pub(crate) fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Puts keys of a range, each with a value of its own for this round.
pub(crate) fn put_round(db: &dyn Engine, keys: std::ops::Range<u32>, round: u32, rows: &mut Rows) {
    for number in keys {
        let value = [round.to_be_bytes(), number.to_be_bytes()].concat();
        db.put(&key(number), &value).unwrap();
        rows.insert(key(number), value);
    }
}
