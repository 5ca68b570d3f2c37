//! What a killed process leaves at the level `Async`: everything that returned, wherever it was (E-22, E-23).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use kvilt_base::{
    Budget, Direction, Disk, Durability, Engine, KeyRange, RowBatch, Stats, World, WriteBatch, directory,
};
use kvilt_even::Options;
use kvilt_format::names::{JOURNAL, POOL};
use kvilt_io::{Call, Fault, FaultyDisk, ManualClock, MemoryDisk, SeededRng, StepSpawn, Times};

const HOUR: Duration = Duration::from_secs(3600);
const KEYS: u32 = 400;

struct Bed {
    clock: Arc<ManualClock>,
    spawn: Arc<StepSpawn>,
    db: Arc<dyn Engine>,
}

fn open(disk: Arc<dyn Disk>, pool_bytes_max: u64) -> Bed {
    let mut options = Options::tiny();
    options.pool_bytes_max = pool_bytes_max;
    options.settings.durability = Durability::Async { interval: HOUR };
    open_with(disk, options)
}

fn open_with(disk: Arc<dyn Disk>, options: Options) -> Bed {
    let clock = ManualClock::new();
    let spawn = StepSpawn::new(clock.clone(), 1);
    let world = World {
        clock: clock.clone(),
        rng: Arc::new(SeededRng::new(7)),
        spawn: spawn.clone(),
        budget: Budget::new(64 << 20),
    };
    Bed { clock, spawn, db: kvilt_even::open(disk, world, options).unwrap() }
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn rows(db: &dyn Engine) -> Rows {
    let view = db.view().unwrap();
    let (mut rows, mut left) = (Rows::new(), Some(KeyRange::all()));
    while let Some(range) = left {
        let mut batch = RowBatch::new(1 << 16, 1000, false);
        left = db.scan(&view, &range, Direction::Forward, &mut batch).unwrap().left();
        rows.extend(batch.into_rows().map(|(key, value)| (key.to_vec(), value.to_vec())));
    }
    rows
}

/// Puts, batches, deletes and the background in between, by a simple rule, on some of the keys.
fn work_on(keys: Range<u32>, bed: &Bed, model: &mut Rows, from: u32, steps: u32) {
    let nth = |i: u32| (keys.start + i % (keys.end - keys.start)).to_be_bytes().to_vec();
    for i in from..from + steps {
        let key = nth(i * 7919);
        match i % 11 {
            3 => {
                bed.db.delete(&key).unwrap();
                model.remove(&key);
            }
            5 => {
                let mut batch = WriteBatch::new();
                for j in 0..8_u32 {
                    let key = nth(i + j * 53);
                    let value = [i.to_le_bytes(), j.to_le_bytes()].concat();
                    batch.put(&key, &value);
                    model.insert(key, value);
                }
                bed.db.write(batch).unwrap();
            }
            _ => {
                let value = vec![i as u8; 20 + (i % 90) as usize];
                bed.db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        if i % 5 == 0 {
            bed.spawn.step(u64::from(i));
        }
    }
}

fn work(bed: &Bed, model: &mut Rows, from: u32, steps: u32) {
    work_on(0..KEYS, bed, model, from, steps);
}

/// Works and is killed, many times, on a disk; nothing is missing.
fn is_killed_again_and_again(mut disk: Arc<MemoryDisk>, pool_bytes_max: u64) -> Stats {
    let mut bed = open(disk.clone(), pool_bytes_max);
    let mut model = Rows::new();
    for round in 0..150 {
        work(&bed, &mut model, round * 1000, 37 * (round % 9) + 1);
        if round % 4 == 1 {
            bed.db.sync().unwrap();
            work(&bed, &mut model, round * 1000 + 500, 23);
        }
        assert_eq!(rows(&*bed.db), model, "round {round}, before");
        disk = disk.kill_image();
        bed = open(disk.clone(), pool_bytes_max);
        let found = rows(&*bed.db);
        assert_eq!(found.len(), model.len(), "round {round}");
        assert!(found == model, "round {round}");
        if round % 7 == 3 {
            bed.clock.advance(HOUR);
            (0..1_000).take_while(|&i| bed.spawn.step(i)).for_each(drop);
        }
        assert!(bed.db.check(&mut |_| true).unwrap().damages.is_empty(), "round {round}");
    }
    work(&bed, &mut model, 0, 100);
    bed.db.stats()
}

#[test]
fn nothing_that_returned_is_missing_after_a_kill_and_another() {
    let figures = is_killed_again_and_again(MemoryDisk::new(3), u64::MAX);
    assert!(figures["pool_bytes_now"] > 0 && figures["pool_bytes_written"] > 0, "{figures:?}");
    assert_eq!(figures["writes_through"], 0, "{figures:?}");
}

#[test]
fn nor_if_the_write_buffers_have_no_room_in_the_pool() {
    // For none, and for some.
    let none = is_killed_again_and_again(MemoryDisk::new(3), 0);
    assert!(none["writes_through"] > 0, "{none:?}");
    let some = is_killed_again_and_again(MemoryDisk::new(3), 70 << 10);
    assert!((1..none["writes_through"]).contains(&some["writes_through"]), "{some:?}");
}

#[test]
fn nor_where_files_cannot_be_mapped() {
    let figures = is_killed_again_and_again(MemoryDisk::of_any_kind(0), u64::MAX);
    assert!(figures["writes_through"] > 0, "{figures:?}");
    assert_eq!(figures["pool_bytes_now"], 4096, "{figures:?}");
}

/// Two chunks share their parent's log. Behind a checkpoint one of them begins a log of its own, so the
/// journal names the shared one, and then is rewritten and has it no more. The other has it still, with a log
/// of its own behind it, and its files have changed before the checkpoint before: no journal names it.
#[test]
fn a_log_that_only_the_other_half_of_a_split_chunk_still_has_is_there() {
    let disk = MemoryDisk::new(3);
    let bed = open(disk.clone(), u64::MAX);
    let (mut model, mut i) = (Rows::new(), 0);
    let ranges = |bed: &Bed| bed.db.layout().unwrap().ranges.len();
    while ranges(&bed) < 2 {
        work_on(0..KEYS, &bed, &mut model, i, 1);
        i += 1;
    }
    // The second checkpoint covers no change of the second half's files.
    let [first, second] = [0..2, KEYS - 2..KEYS];
    for _ in 0..2 {
        work_on(second.clone(), &bed, &mut model, i, 3);
        bed.db.sync().unwrap();
    }
    while bed.db.stats()["funk_rebalances"] == 0 {
        work_on(first.clone(), &bed, &mut model, i, 1);
        i += 1;
    }
    work_on(first, &bed, &mut model, i, 3);
    assert_eq!(ranges(&bed), 2);
    let bed = open(disk.kill_image(), u64::MAX);
    assert!(rows(&*bed.db) == model);
}

#[test]
fn a_store_that_was_closed_at_another_level_has_neither_pool_nor_journal() {
    let disk = MemoryDisk::new(3);
    let bed = open(disk.clone(), u64::MAX);
    bed.db.put(b"a", b"1").unwrap();
    let disk = disk.kill_image();
    let mut options = Options::tiny();
    options.settings.durability = Durability::Sync { interval: HOUR };
    let db = open_with(disk.clone(), options).db;
    db.put(b"b", b"2").unwrap();
    assert_eq!(rows(&*db).len(), 2);
    db.close().unwrap();
    let listed = disk.list().unwrap();
    assert!(directory::numbers(&listed, POOL).chain(directory::numbers(&listed, JOURNAL)).next().is_none());
}

#[test]
fn an_open_that_can_begin_no_journal_takes_nothing_of_what_it_found() {
    let disk = MemoryDisk::new(3);
    let bed = open(disk.clone(), u64::MAX);
    bed.db.put(b"a", b"1").unwrap();
    bed.db.sync().unwrap();
    bed.db.put(b"b", b"2").unwrap();
    let disk = disk.kill_image();
    let faulty = FaultyDisk::new(disk.clone());
    faulty.fail(Some(Call::Create), 0, Fault::NoSpace, Times::Always);
    let bed = open(faulty.clone(), u64::MAX);
    assert_eq!(rows(&*bed.db).len(), 2);
    assert_eq!(rows(&*open(disk.kill_image(), u64::MAX).db).len(), 2, "killed at once");
    // With the next checkpoint its own journal begins.
    faulty.heal();
    bed.db.put(b"c", b"3").unwrap();
    bed.db.sync().unwrap();
    bed.db.put(b"d", b"4").unwrap();
    let found = rows(&*open(disk.kill_image(), u64::MAX).db);
    assert_eq!(found.into_keys().collect::<Vec<_>>(), [b"a", b"b", b"c", b"d"]);
}
