//! Power cuts beside a flush and a merge: each thing that was not synced is lost alone.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use std::sync::Arc;

use bed::{ASYNC, figure, open};
use kvilt_io::{Keep, MemoryDisk};

const ROWS: u32 = 1_300;

/// Puts rows until the disk crashes. Says how often tables were merged, if it does not.
fn run(disk: &Arc<MemoryDisk>) -> Option<u64> {
    let (db, spawn) = open(disk.clone(), ASYNC).ok()?;
    for number in 0..ROWS {
        db.put(&(number % 700).to_be_bytes(), &[number as u8; 100]).ok()?;
        if number % 100 == 0 {
            spawn.step_all_until_idle();
        }
    }
    Some(figure(&*db, "merges"))
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
            open(image, ASYNC)
                .map(drop)
                .unwrap_or_else(|error| panic!("op {op} without unit {unit}: {error}"));
        }
    }
}
