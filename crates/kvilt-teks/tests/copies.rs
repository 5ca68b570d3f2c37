//! Copies of an open store: all rows of one moment, also beyond what one scan gives.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeMap, path::Path, sync::Arc};

use kvilt_base::{Budget, Descriptor as _, Direction, Disk, Engine, KeyRange, RowBatch, Settings, World};
use kvilt_io::{ManualClock, MemoryDisk, SeededRng, StepSpawn};
use kvilt_teks::Options;

/// More than a scan gives before it returns.
const ROWS: u32 = 3_000;

fn open(disk: Arc<dyn Disk>) -> Arc<dyn Engine> {
    let world = World {
        clock: ManualClock::new(),
        rng: Arc::new(SeededRng::new(7)),
        spawn: StepSpawn::new(ManualClock::new(), 1),
        budget: Budget::new(64 << 20),
    };
    Options::default().open(disk, world, &Settings::default()).unwrap()
}

fn rows(db: &dyn Engine) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let view = db.view().unwrap();
    let (mut rows, mut left) = (BTreeMap::new(), Some(KeyRange::all()));
    while let Some(range) = left {
        let mut batch = RowBatch::new(1 << 16, 500, false);
        left = db.scan(&view, &range, Direction::Forward, &mut batch).unwrap().left();
        rows.extend(batch.into_rows().map(|(key, value)| (key.to_vec(), value.to_vec())));
    }
    rows
}

#[test]
fn a_copy_has_all_rows_and_the_store_goes_on() {
    let disk = MemoryDisk::new(1);
    let db = open(disk.clone());
    let mut expected = BTreeMap::new();
    for number in 0..ROWS {
        let (key, value) = (number.to_be_bytes().to_vec(), vec![number as u8; 40]);
        db.put(&key, &value).unwrap();
        expected.insert(key, value);
    }
    db.delete(&7_u32.to_be_bytes()).unwrap();
    expected.remove(&7_u32.to_be_bytes()[..]);
    let directory = Path::new("copy");
    db.checkpoint_to(directory).unwrap();
    db.put(b"later", b"row").unwrap();
    assert_eq!(rows(&*open(disk.directory(directory).unwrap())), expected);
    expected.insert(b"later".to_vec(), b"row".to_vec());
    assert_eq!(rows(&*db), expected);
}
