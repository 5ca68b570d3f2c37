//! Design 0039: while reads wait for the drive, only chunks that are read far more than others have munks;
//! what the page cache answers is loaded as the budget has room.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    ops::{ControlFlow, Range},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kvilt_base::{Budget, Clock, Direction, Durability, Engine, KeyRange, Rows, World};
use kvilt_even::Options;
use kvilt_io::{ManualClock, MemoryDisk, SeededRng, StepSpawn};
use parking_lot::Mutex;

const ROWS: u32 = 8192;
const ALL: Range<u32> = 0..ROWS;
const FIRST_HALF: Range<u32> = 0..ROWS / 2;
/// Without those that a chunk may have beside rows of the first half.
const SECOND_HALF: Range<u32> = ROWS / 2 + 512..ROWS;
/// Rows of 4000 bytes.
const LARGE: Range<u32> = 0..1024;
/// Rows of one chunk in the second half.
const HOT: Range<u32> = ROWS - 64..ROWS;

/// Time passes whenever somebody looks at it: so a read between two looks takes as long as a drive's, or no
/// time at all.
#[derive(Debug)]
struct LookedAt {
    clock: Arc<ManualClock>,
    step_us: AtomicU64,
}

impl Clock for LookedAt {
    fn now(&self) -> Duration {
        self.clock.advance(Duration::from_micros(self.step_us.load(Ordering::Relaxed)));
        self.clock.now()
    }
}

/// One test at a time: memory that was given up is counted until no thread of the process reads any more.
static ALONE: Mutex<()> = Mutex::new(());

struct Bed {
    clock: Arc<LookedAt>,
    spawn: Arc<StepSpawn>,
    db: Arc<dyn Engine>,
}

impl Bed {
    /// A store with 4 MiB of rows, none of which are in memory.
    fn cold(budget: u64) -> Bed {
        let disk = MemoryDisk::new(1);
        let bed = Bed::open(disk.clone(), budget);
        for row in 0..ROWS {
            bed.db.put(&key(row), &[7; 500]).unwrap();
            if row % 256 == 0 {
                bed.spawn.step_all_until_idle();
            }
        }
        bed.db.close().unwrap();
        drop(bed);
        Bed::open(disk, budget)
    }

    fn open(disk: Arc<MemoryDisk>, budget: u64) -> Bed {
        let manual = ManualClock::new();
        let spawn = StepSpawn::new(manual.clone(), 1);
        let clock = Arc::new(LookedAt { clock: manual, step_us: AtomicU64::new(0) });
        let mut options = Options::default();
        options.settings.durability = Durability::Async { interval: Duration::from_secs(3600) };
        options.chunk_bytes_rebalance = options.chunk_bytes_rebalance.min(budget / 16);
        options.chunk_bytes_max = options.chunk_bytes_max.min(budget / 11);
        options.chunk_bytes_min = options.chunk_bytes_min.min(budget / 112);
        options.log_bytes_max_cold = options.log_bytes_max_cold.min(budget / 32);
        let world = World {
            clock: clock.clone(),
            rng: Arc::new(SeededRng::new(7)),
            spawn: spawn.clone(),
            budget: Budget::new(budget),
        };
        Bed { db: kvilt_even::open(disk, world, options).unwrap(), clock, spawn }
    }

    /// As much in fewer rows, which were not put in their order.
    fn scattered(budget: u64) -> Bed {
        let disk = MemoryDisk::new(1);
        let bed = Bed::open(disk.clone(), budget);
        for row in LARGE {
            bed.db.put(&key(row * 411 % LARGE.end), &[7; 4000]).unwrap();
            if row % 32 == 0 {
                bed.spawn.step_all_until_idle();
            }
        }
        bed.db.close().unwrap();
        drop(bed);
        Bed::open(disk, budget)
    }

    /// How many records a scan of fifty rows asks the system for ahead.
    fn asked_ahead(&self, from: u32) -> u64 {
        let before = self.db.stats()["reads_ahead"];
        let mut rows = Fifty(Vec::new());
        let range = KeyRange { start: key(from), end: None };
        let view = self.db.view().unwrap();
        let left = self.db.scan(&view, &range, Direction::Forward, &mut rows).unwrap().left();
        assert!(left.is_none(), "what is left was told, though no more is wanted");
        assert_eq!(rows.0, (from..from + 50).map(key).collect::<Vec<_>>());
        self.db.stats()["reads_ahead"] - before
    }

    /// So many seconds, in each of which each of these rows is read; a read takes so long.
    fn seconds(&self, count: u32, rows: Range<u32>, read_us: u64) {
        for _ in 0..count {
            self.clock.step_us.store(read_us, Ordering::Relaxed);
            self.read(rows.clone());
            self.clock.step_us.store(0, Ordering::Relaxed);
            self.clock.clock.advance(Duration::from_secs(1));
            self.spawn.step_all_until_idle();
        }
    }

    /// Reads these rows; says how many a munk had.
    fn read(&self, rows: Range<u32>) -> u64 {
        let before = self.db.stats()["gets_from_munk"];
        for row in rows {
            assert!(self.db.get(&key(row), None).unwrap().is_some());
        }
        self.db.stats()["gets_from_munk"] - before
    }

    fn munks(&self) -> u64 {
        self.db.stats()["munks_now"]
    }
}

/// Takes fifty keys.
struct Fifty(Vec<Vec<u8>>);

impl Rows for Fifty {
    fn take(&mut self, key: &[u8], _value: &[u8]) -> ControlFlow<()> {
        self.0.push(key.to_vec());
        if self.0.len() < 50 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn wanted(&self) -> Option<u64> {
        Some(50 - self.0.len() as u64)
    }
}

fn key(row: u32) -> Vec<u8> {
    format!("{row:08}").into_bytes()
}

#[test]
fn while_the_drive_is_waited_for_only_what_is_read_far_more_than_the_rest_is_loaded() {
    let _alone = ALONE.lock();
    let bed = Bed::cold(1 << 20);
    assert_eq!(bed.munks(), 0);
    assert!(bed.db.stats()["chunks_now"] >= 32, "{} chunks", bed.db.stats()["chunks_now"]);

    bed.seconds(6, ALL, 50);
    assert_eq!(bed.munks(), 0, "every chunk is read as much as the others");
    let stats = bed.db.stats();
    assert!(stats.reads_waited > stats.reads / 2, "{} of {}", stats.reads_waited, stats.reads);

    bed.seconds(12, ALL, 0);
    let cached = bed.munks();
    assert!(cached >= 4, "{cached} munks, though the page cache answers and there is room");

    bed.seconds(6, ALL, 50);
    assert_eq!(bed.munks(), cached, "the page cache would make no more of their memory");

    assert!(bed.read(SECOND_HALF) > 0);
    bed.seconds(12, FIRST_HALF, 50);
    assert_eq!(bed.read(SECOND_HALF), 0, "what nobody reads any more gave way");

    for _ in 0..4 {
        for _ in 0..50 {
            bed.read(HOT);
        }
        bed.seconds(1, ALL, 50);
    }
    assert_eq!(bed.read(HOT), HOT.count() as u64, "a chunk that is read far more than the rest is loaded");
}

#[test]
fn scattered_rows_have_what_is_left_of_the_budget_and_give_it_back_when_they_are_not_read() {
    let _alone = ALONE.lock();
    let bed = Bed::cold(1 << 20);
    let rows_now = || bed.db.stats()["row_cache_bytes_now"];
    let popular = || ALL.step_by(8);
    // Once all of them are cached no read waits any more, and they stay.
    for _ in 0..60 {
        bed.clock.step_us.store(50, Ordering::Relaxed);
        popular().for_each(|row| assert_eq!(bed.read(row..row + 1), 0));
        bed.clock.step_us.store(0, Ordering::Relaxed);
        bed.clock.clock.advance(Duration::from_secs(1));
        bed.spawn.step_all_until_idle();
    }
    let rows = rows_now();
    assert!(rows > 400 << 10, "{rows} bytes of rows; their share is a tenth of a mebibyte");
    let stats = bed.db.stats();
    assert!(stats.memory_bytes_now <= 1 << 20, "{} bytes", stats.memory_bytes_now);
    let hits = || bed.db.stats()["gets_from_row_cache"];
    let before = hits();
    popular().for_each(|row| assert_eq!(bed.read(row..row + 1), 0));
    let hits = hits() - before;
    assert!(hits > popular().count() as u64 / 2, "{hits} of {} gets", popular().count());

    // All is read alike, so rows spare few reads.
    bed.seconds(8, ALL, 50);
    let rows = rows_now();
    assert!(rows <= (1 << 20) / 10, "{rows} bytes of rows");
}

#[test]
fn where_all_rows_have_room_they_are_loaded_though_the_drive_is_waited_for() {
    let _alone = ALONE.lock();
    let bed = Bed::cold(8 << 20);
    assert_eq!(bed.munks(), 0);
    bed.seconds(6, ALL, 50);
    let stats = bed.db.stats();
    assert!(stats.reads_waited > 0);
    assert_eq!(stats["munks_now"], stats["chunks_now"]);
}

#[test]
fn a_scan_of_rows_that_lie_apart_asks_for_them_ahead_while_the_drive_is_waited_for() {
    let _alone = ALONE.lock();
    let bed = Bed::scattered(1 << 20);
    let asked_ahead = || -> u64 { LARGE.step_by(100).take(10).map(|from| bed.asked_ahead(from)).sum() };
    assert_eq!(asked_ahead(), 0, "the page cache answers at once");
    bed.seconds(3, LARGE, 50);
    assert_eq!(bed.munks(), 0);
    let asked = asked_ahead();
    assert!((50..=600).contains(&asked), "{asked} of 500 rows");
}

#[test]
fn gets_of_one_call_are_asked_for_ahead_while_the_drive_is_waited_for() {
    let _alone = ALONE.lock();
    let bed = Bed::scattered(1 << 20);
    let rows: Vec<u32> = LARGE.step_by(10).collect();
    let keys: Vec<_> = rows.iter().map(|row| key(*row)).chain([b"nobody".to_vec()]).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let asked_ahead = || {
        let before = bed.db.stats()["reads_ahead"];
        let mut found = vec![None; keys.len()];
        bed.db
            .get_many(&keys, None, &mut |i, value| {
                assert!(found[i].replace(value.map(<[u8]>::len)).is_none(), "each key is answered once");
            })
            .unwrap();
        assert!(found[..rows.len()].iter().all(|found| *found == Some(Some(4000))));
        assert_eq!(found[rows.len()], Some(None));
        bed.db.stats()["reads_ahead"] - before
    };
    assert_eq!(asked_ahead(), 0, "the page cache answers at once");
    bed.seconds(3, LARGE, 50);
    let asked = asked_ahead();
    assert!((rows.len() as u64 / 2..=rows.len() as u64).contains(&asked), "{asked} of {} rows", rows.len());
}

/// How many scans of one row each it takes until a chunk is rewritten for its order.
fn scans_until_a_rewrite(is_waiting: bool) -> u32 {
    let bed = Bed::scattered(1 << 20);
    if is_waiting {
        bed.seconds(3, LARGE, 50);
    }
    assert_eq!(bed.munks(), 0);
    let rewrites = || bed.db.stats()["funk_rebalances"];
    let before = rewrites();
    let range = KeyRange { start: key(500), end: Some(key(501)) };
    for scans in 1..1000 {
        let view = bed.db.view().unwrap();
        let mut rows = Fifty(Vec::new());
        bed.db.scan(&view, &range, Direction::Forward, &mut rows).unwrap();
        assert_eq!(rows.0, [key(500)]);
        drop(view);
        bed.spawn.step_all_until_idle();
        if rewrites() > before {
            return scans;
        }
    }
    panic!("scans pay, but nothing is rewritten");
}

#[test]
fn scans_pay_more_for_a_row_that_the_drive_is_waited_for() {
    let _alone = ALONE.lock();
    let (waiting, cached) = (scans_until_a_rewrite(true), scans_until_a_rewrite(false));
    assert!(waiting * 3 <= cached, "{waiting} scans while the drive is waited for, else {cached}");
}
