//! A store on a disk that is full: deletes go on, and what they free is room for puts, without a reopen.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use std::{ops::Range, sync::Arc, time::Duration};

use bed::{Rows, key, open, rows};
use kvilt_base::{Durability, Engine, ErrorKind, KeyRange, WriteBatch};
use kvilt_io::{Keep, MemoryDisk, StepSpawn};

const INTERVAL: Duration = Duration::from_millis(500);
const ASYNC: Durability = Durability::Async { interval: INTERVAL };
const SYNC: Durability = Durability::Sync { interval: INTERVAL };
/// Bytes of the disk beside those of an empty store.
const DISK_BYTES: u64 = 1 << 20;

struct Bed {
    db: Arc<dyn Engine>,
    spawn: Arc<StepSpawn>,
    disk: Arc<MemoryDisk>,
    rows: Rows,
}

impl Bed {
    /// Puts rows until there is no room, though the background does what it can. Gives the number behind.
    fn fill(&mut self, from: u32) -> u32 {
        let value = vec![7; 300];
        let mut number = from;
        let mut refusals = 0;
        while refusals < 10 {
            match self.db.put(&key(number), &value) {
                Ok(()) => {
                    self.rows.insert(key(number), value.clone());
                    (number, refusals) = (number + 1, 0);
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                    refusals += 1;
                    self.spawn.step_all_until_idle();
                }
            }
        }
        number
    }

    fn delete(&mut self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            self.db.delete(&key(number)).unwrap_or_else(|error| panic!("delete {number}: {error}"));
            self.rows.remove(&key(number));
        }
    }

    fn delete_range(&mut self, numbers: Range<u32>) {
        let range = KeyRange { start: key(numbers.start), end: Some(key(numbers.end)) };
        self.db.delete_range(&range).unwrap();
        self.rows.retain(|key, _| !range.contains(key));
    }
}

/// Fills a disk, has `work` done, which is given the number of rows, and holds the store to the rows then:
/// as it is, after the death of its process, and after a close.
fn full(durability: Durability, work: impl Fn(&mut Bed, u32)) {
    let disk = MemoryDisk::new(3);
    let (db, spawn) = open(disk.clone(), durability).unwrap();
    disk.set_capacity(Some(disk.total_bytes() + DISK_BYTES));
    let mut bed = Bed { db, spawn, disk: disk.clone(), rows: Rows::new() };
    let filled = bed.fill(0);
    assert!(filled > 1_000, "{filled} rows");
    work(&mut bed, filled);
    assert_eq!(rows(&*bed.db), bed.rows);
    for image in [bed.disk.kill_image(), disk] {
        bed.db.close().unwrap();
        let (db, _) = open(image, durability).unwrap();
        assert_eq!(db.check(&mut |_| true).unwrap().damages, []);
        assert_eq!(rows(&*db), bed.rows);
    }
}

#[test]
fn all_rows_are_deleted_one_by_one_and_their_room_is_used_again() {
    for durability in [ASYNC, SYNC] {
        full(durability, |bed, filled| {
            for round in 0..3 {
                bed.delete(0..filled);
                assert_eq!(rows(&*bed.db), bed.rows);
                let again = bed.fill(0);
                assert!(again > filled * 3 / 4, "round {round}: {again} rows after {filled}");
                bed.delete(0..again);
                bed.fill(0);
            }
        });
    }
}

#[test]
fn rows_here_and_there_are_deleted_and_their_room_is_used_again() {
    full(ASYNC, |bed, filled| {
        bed.delete((0..filled).filter(|number| number % 3 > 0));
        let again = bed.fill(filled) - filled;
        assert!(again > filled / 3, "{again} rows after {filled}");
    });
}

#[test]
fn batches_of_deletes_go_on() {
    full(ASYNC, |bed, filled| {
        for first in (0..filled).step_by(100) {
            let mut batch = WriteBatch::new();
            for number in first..filled.min(first + 100) {
                batch.delete(key(number));
                bed.rows.remove(&key(number));
            }
            bed.db.write(batch).unwrap();
        }
        assert!(bed.fill(0) > filled / 2);
    });
}

#[test]
fn what_a_range_delete_takes_out_is_room_for_puts() {
    for durability in [ASYNC, SYNC] {
        full(durability, |bed, filled| {
            bed.delete_range(0..filled);
            let again = bed.fill(filled) - filled;
            assert!(again > filled * 3 / 4, "{again} rows after {filled}");
            // A part of the keys.
            bed.delete_range(filled..filled + again / 2);
            let more = bed.fill(2 * filled) - 2 * filled;
            assert!(more > filled / 4, "{more} rows after {again}");
        });
    }
}

/// What only a view needed is room when it is closed.
#[test]
fn what_a_view_kept_is_room_for_puts() {
    full(ASYNC, |bed, filled| {
        let view = bed.db.view().unwrap();
        bed.delete_range(0..filled);
        let beside = bed.fill(filled) - filled;
        assert!(beside < filled / 4, "{beside} rows beside {filled} that a view sees");
        drop(view);
        let again = bed.fill(2 * filled) - 2 * filled;
        assert!(again > filled / 2, "{again} rows after {filled}");
    });
}

/// Opens that write little, one after the other, and ways in which they end: closed, killed, by a power cut.
#[test]
fn opens_that_write_little_do_not_fill_the_disk() {
    // More rows than one segment has room for, that are in the log.
    for (before, is_cut) in [(0, false), (0, true), (300, false), (300, true)] {
        let mut disk = MemoryDisk::new(3);
        let mut expected = Rows::new();
        let (mut db, _) = open(disk.clone(), ASYNC).unwrap();
        for number in 0..before {
            db.put(&key(number), &[7; 300]).unwrap();
            expected.insert(key(number), vec![7; 300]);
        }
        let mut totals = Vec::new();
        for number in before..before + 60 {
            db.close().unwrap();
            let spawn;
            (db, spawn) = open(disk.clone(), ASYNC).unwrap();
            // What is left to the background.
            spawn.step_all_until_idle();
            db.put(&key(number), b"value").unwrap();
            expected.insert(key(number), b"value".to_vec());
            if number % 3 > 0 {
                db.sync().unwrap();
                disk = if is_cut { disk.crash_image(Keep::All) } else { disk.kill_image() };
            }
            totals.push(disk.total_bytes());
        }
        let most = |of: &[u64]| of.iter().max().copied().unwrap();
        assert!(most(&totals[30..]) < most(&totals[..20]) + (80 << 10), "{is_cut} {before}: {totals:?}");
        db.close().unwrap();
        let (db, _) = open(disk, ASYNC).unwrap();
        assert_eq!(rows(&*db), expected, "{is_cut} {before}");
    }
}
