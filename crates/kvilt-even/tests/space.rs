//! Files and memory give back what was deleted or overwritten, though nobody reads.
//!
//! Alone in its process, and one test: files that were replaced stay while any thread of the process has a
//! pin.

use std::{sync::Arc, time::Duration};

use kvilt_base::{Budget, Direction, Disk, Engine, FileName, KeyRange, World};
use kvilt_even::Options;
use kvilt_format::names::{LOG, TABLE};
use kvilt_io::{ManualClock, MemoryDisk, SeededRng, StepSpawn};

const KEYS: u32 = 400;
const VALUE_BYTES: usize = 490;
/// Key and value.
const ROW_BYTES: u64 = 500;
const SLACK_BYTES: u64 = 128 << 10;
/// Chores, looks and checkpoints that a small store needs at most until it is at rest.
const STEPS_MAX: u32 = 20_000;

/// Small chunks, but not so small that heads of files and summaries of logs weigh as much as rows.
fn options() -> Options {
    let mut options = Options::tiny();
    options.chunk_bytes_max = 64 << 10;
    options.chunk_bytes_rebalance = 48 << 10;
    options.chunk_bytes_min = 8 << 10;
    options.log_bytes_max_cold = 16 << 10;
    options.log_bytes_max_cached = 128 << 10;
    options.log_bytes_max_unread = 128 << 10;
    options.log_buffer_bytes_max = 4 << 10;
    options.log_summary_bytes = 8 << 10;
    options.log_summary_percent = 6;
    options.block_bytes = 4 << 10;
    options.dead_bytes_slack = SLACK_BYTES;
    options
}

struct Bed {
    clock: Arc<ManualClock>,
    spawn: Arc<StepSpawn>,
    disk: Arc<MemoryDisk>,
    db: Arc<dyn Engine>,
    steps: u64,
}

impl Bed {
    fn open(budget_bytes: u64, disk: Arc<MemoryDisk>) -> Bed {
        Bed::open_with(budget_bytes, disk, options())
    }

    fn open_with(budget_bytes: u64, disk: Arc<MemoryDisk>, options: Options) -> Bed {
        let clock = ManualClock::new();
        let spawn = StepSpawn::new(clock.clone(), 1);
        let world = World {
            clock: clock.clone(),
            rng: Arc::new(SeededRng::new(7)),
            spawn: spawn.clone(),
            budget: Budget::new(budget_bytes),
        };
        let disk_of_db: Arc<dyn Disk> = disk.clone();
        let db = kvilt_even::open(disk_of_db, world, options).expect("a store in memory opens");
        Bed { clock, spawn, disk, db, steps: 0 }
    }

    fn put(&mut self, key: u32, round: u8) {
        self.db.put(format!("key{key:07}").as_bytes(), &[round; VALUE_BYTES]).expect("there is room");
        self.step();
    }

    /// Some time passes, and the background does one thing.
    fn step(&mut self) {
        self.clock.advance(Duration::from_millis(5));
        self.steps += 1;
        self.spawn.step(self.steps);
    }

    /// Lets time pass, and the background do what it wants.
    fn rest(&mut self, seconds: u32) {
        for _ in 0..seconds * 4 {
            self.clock.advance(Duration::from_millis(250));
            for _ in 0..STEPS_MAX {
                self.steps += 1;
                if !self.spawn.step(self.steps) {
                    break;
                }
            }
        }
    }

    fn file_bytes(&self) -> u64 {
        let snapshot = self.disk.snapshot();
        let of_rows = snapshot.iter().filter(|(name, _)| matches!(name, FileName::Of(TABLE | LOG, _)));
        of_rows.map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

fn small_and_large_budget() -> [Bed; 2] {
    [512 << 10, 64 << 20].map(|budget| Bed::open(budget, MemoryDisk::new(1)))
}

fn rows_deleted_one_by_one_give_their_space_back_though_nobody_reads() {
    for mut bed in small_and_large_budget() {
        for key in 0..10 * KEYS {
            bed.put(key, 1);
            if key >= KEYS {
                bed.db.delete(format!("key{:07}", key - KEYS).as_bytes()).expect("deleted");
            }
        }
        bed.rest(10);
        let live = u64::from(KEYS) * ROW_BYTES;
        let (held, slack) = (bed.file_bytes(), SLACK_BYTES);
        assert!(held <= live * 2 + slack, "{held} bytes for {live}: {:?}", bed.db.stats());
        assert!(bed.db.stats()["munk_bytes_now"] <= live * 3, "{:?}", bed.db.stats());
        for key in 9 * KEYS..10 * KEYS {
            bed.db.delete(format!("key{key:07}").as_bytes()).expect("deleted");
        }
        bed.rest(10);
        assert!(bed.file_bytes() <= slack / 2, "{} bytes for none: {:?}", bed.file_bytes(), bed.db.stats());
        bed.db.close().expect("a store in memory closes");
    }
}

/// What a run left is counted by the next, when that is at rest.
fn a_store_that_was_closed_full_of_dead_rows_gives_space_back_after_the_next_open() {
    let mut bed = Bed::open(512 << 10, MemoryDisk::new(1));
    (0..KEYS).for_each(|key| bed.put(key, 1));
    for key in 0..KEYS {
        bed.db.delete(format!("key{key:07}").as_bytes()).expect("deleted");
    }
    bed.db.close().expect("a store in memory closes");
    let full = bed.file_bytes();
    let slack = SLACK_BYTES;
    assert!(full > slack, "{full} bytes are too few for this test");
    let mut bed = Bed::open(512 << 10, bed.disk.clone());
    bed.rest(10);
    assert!(bed.file_bytes() <= slack / 2, "{} of {full} bytes: {:?}", bed.file_bytes(), bed.db.stats());
    bed.db.close().expect("a store in memory closes");
}

fn rows_overwritten_at_random_take_twice_their_bytes_and_cost_twice_theirs_to_write() {
    for mut bed in small_and_large_budget() {
        let mut random = 1u32;
        for i in 0..40 * KEYS {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bed.put((random >> 8) % (4 * KEYS), i as u8);
            if i % KEYS == 0 && i > 20 * KEYS {
                bed.db.sync().expect("synced");
                let live = u64::from(4 * KEYS) * ROW_BYTES;
                let held = bed.db.stats().disk_bytes_now;
                assert!(held <= 2 * live + SLACK_BYTES, "{held} for {live}");
            }
        }
        let stats = bed.db.stats();
        assert!(stats["space_rewrites"] > 10, "{stats:?}");
        assert!(stats.write_amplification() < 2.2, "{} times: {stats:?}", stats.write_amplification());
        bed.db.close().expect("a store in memory closes");
    }
}

fn rows_that_are_put_once_in_order_are_not_written_again_for_space() {
    for mut bed in small_and_large_budget() {
        (0..20 * KEYS).for_each(|key| bed.put(key, 1));
        bed.rest(10);
        let stats = bed.db.stats();
        assert_eq!(stats["space_rewrites"], 0, "{stats:?}");
        bed.db.close().expect("a store in memory closes");
    }
}

/// While a view is open its rows stay, and no rewrite is repeated in vain; then they go.
fn what_a_view_kept_goes_when_the_view_is_closed() {
    let mut bed = Bed::open(512 << 10, MemoryDisk::new(1));
    (0..4 * KEYS).for_each(|key| bed.put(key, 1));
    let view = bed.db.view().expect("a view");
    (0..4 * KEYS).for_each(|key| bed.put(key, 2));
    bed.rest(10);
    let held = bed.file_bytes();
    let rewrites = bed.db.stats()["space_rewrites"];
    bed.rest(10);
    assert_eq!(bed.db.stats()["space_rewrites"], rewrites, "rewritten in vain");
    drop(view);
    bed.rest(40);
    let live = u64::from(4 * KEYS) * ROW_BYTES;
    let left = bed.file_bytes();
    assert!(left < held && left <= 2 * live, "{left} of {held}: {:?}", bed.db.stats());
    bed.db.close().expect("a store in memory closes");
}

/// A tombstone or a short value takes some bytes, and may kill a row that takes as much as a chunk.
fn few_long_rows_give_their_space_back_when_short_ones_replace_them() {
    for mut bed in small_and_large_budget() {
        let key = |i: u32| format!("long{i:07}");
        for short in [None, Some(b"short".as_slice())] {
            for i in 0..40 {
                bed.db.put(key(i).as_bytes(), &[i as u8; 60 << 10]).expect("there is room");
                bed.steps += 1;
                bed.spawn.step(bed.steps);
            }
            bed.rest(4);
            assert!(bed.file_bytes() > 40 * (60 << 10), "all rows are there");
            for i in 0..40 {
                let key = key(i);
                match short {
                    None => bed.db.delete(key.as_bytes()).expect("deleted"),
                    Some(short) => bed.db.put(key.as_bytes(), short).expect("there is room"),
                }
            }
            bed.rest(10);
            let held = bed.file_bytes();
            assert!(held <= SLACK_BYTES / 2, "{held} bytes, {short:?}: {:?}", bed.db.stats());
        }
        bed.db.close().expect("a store in memory closes");
    }
}

/// One row in fifty has nearly all bytes, as where names and sizes of things lie beside the things. To delete
/// it changes one row in fifty.
fn few_long_rows_among_short_ones_give_their_space_back() {
    const GROUPS: u32 = 40;
    for mut bed in small_and_large_budget() {
        for short in [None, Some(b"short".as_slice())] {
            for group in 0..GROUPS {
                for i in 0..50 {
                    bed.put(group * 50 + i, 1);
                }
                bed.db
                    .put(format!("key{:07}x", group * 50 + 25).as_bytes(), &[2; 250 << 10])
                    .expect("there is room");
            }
            bed.rest(4);
            assert!(bed.file_bytes() > u64::from(GROUPS) * (250 << 10), "all rows are there");
            for group in 0..GROUPS {
                let key = format!("key{:07}x", group * 50 + 25);
                match short {
                    None => bed.db.delete(key.as_bytes()).expect("deleted"),
                    Some(short) => bed.db.put(key.as_bytes(), short).expect("there is room"),
                }
            }
            bed.rest(10);
            let (held, live) = (bed.file_bytes(), u64::from(GROUPS) * 50 * ROW_BYTES);
            assert!(
                held <= live / 10 * 13 + SLACK_BYTES / 2,
                "{held} for {live}, {short:?}: {:?}",
                bed.db.stats()
            );
        }
        bed.db.close().expect("a store in memory closes");
    }
}

/// Small chunks. None of them had as many dead bytes as were worth a rewrite, and together they had all.
fn many_small_chunks_give_their_space_back() {
    const ROWS: u32 = 30_000;
    let mut options = Options::default();
    options.chunk_bytes_rebalance = 64 << 10;
    options.chunk_bytes_max = 96 << 10;
    options.chunk_bytes_min = 8 << 10;
    options.log_bytes_max_cold = 32 << 10;
    let mut bed = Bed::open_with(1 << 20, MemoryDisk::new(1), options);
    let key = |i: u32| format!("key{:07}", i * 7919 % ROWS);
    for i in 0..ROWS {
        bed.db.put(key(i).as_bytes(), &[1; 1000]).expect("there is room");
        bed.step();
    }
    bed.rest(4);
    assert!(bed.db.stats()["chunks_now"] > 200, "{:?}", bed.db.stats());
    for i in 0..ROWS {
        bed.db.delete(key(i).as_bytes()).expect("deleted");
        bed.step();
    }
    bed.rest(20);
    // An eighth of the slack, and an eighth of that which no count is worth; a fifth of what is therefore
    // taken for live may be dead, too.
    let slack = 64 << 20;
    let bound = slack / 8 + slack / 64 + slack / 256;
    assert!(bed.file_bytes() <= bound, "{} bytes for none: {:?}", bed.file_bytes(), bed.db.stats());
    bed.db.close().expect("a store in memory closes");
}

/// Rows are deleted at random while new ones come, as where each expires at a time of its own. What deletes
/// kill is known from a few counts: where each small chunk had to be counted, dead rows came faster than they
/// were found.
fn space_comes_back_while_old_rows_are_deleted_at_random() {
    const LIVE: usize = 4_000;
    let mut bed = Bed::open(1 << 20, MemoryDisk::new(1));
    let (mut random, mut most) = (1u32, 0);
    let mut live: Vec<u32> = Vec::new();
    for i in 0..40_000 {
        bed.put(i, 1);
        live.push(i);
        if live.len() > LIVE {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let old = live.swap_remove((random >> 8) as usize % live.len());
            bed.db.delete(format!("key{old:07}").as_bytes()).expect("deleted");
        }
        most = most.max(bed.file_bytes());
    }
    let bound = 2 * LIVE as u64 * ROW_BYTES + 4 * SLACK_BYTES;
    assert!(most <= bound, "{most} of {bound}: {:?}", bed.db.stats());
    bed.db.close().expect("a store in memory closes");
}

/// Range deletes write next to nothing, and so do the chunks in which they are: those were not looked at
/// while the store was written.
fn space_comes_back_where_nothing_but_range_deletes_comes() {
    const ROWS: u32 = 40_000;
    let mut bed = Bed::open(1 << 20, MemoryDisk::new(1));
    let key = |i: u32| format!("key{i:07}").into_bytes();
    let mut most = 0;
    for i in 0..ROWS {
        bed.put(i, 1);
        // A window of a tenth rolls over them; each delete ends in a chunk that has live rows, too.
        if i >= ROWS / 10 && i % 40 == 0 {
            let range = KeyRange { start: key(i - ROWS / 10), end: Some(key(i + 40 - ROWS / 10)) };
            bed.db.delete_range(&range).expect("deleted");
        }
        most = most.max(bed.file_bytes());
    }
    let bound = 2 * u64::from(ROWS / 10) * ROW_BYTES + 4 * SLACK_BYTES;
    assert!(most <= bound, "{most} of {bound}: {:?}", bed.db.stats());
    bed.db.close().expect("a store in memory closes");
}

/// A run ends as soon as it has deleted all its rows by one range delete, and the next, which never rests,
/// scans that range: as where a keyspace is made and dropped in each run. Nobody knew in the next run that
/// all was dead.
fn what_an_earlier_run_deleted_goes_while_the_store_is_written() {
    let disk = MemoryDisk::new(1);
    let mut bed = Bed::open(1 << 20, disk.clone());
    (0..20_000).for_each(|i| bed.put(i, 1));
    bed.db.delete_range(&KeyRange::all()).expect("deleted");
    bed.db.close().expect("a store in memory closes");
    let mut bed = Bed::open(1 << 20, disk);
    let before = bed.file_bytes();
    let view = bed.db.view().expect("a store in use");
    let mut rows = |_: &[u8], _: &[u8]| std::ops::ControlFlow::Continue(());
    bed.db.scan(&view, &KeyRange::all(), Direction::Forward, &mut rows).expect("a sound store");
    drop(view);
    for i in 0..2_000 {
        bed.put(i % 10, 2);
    }
    let (after, recent) = (bed.file_bytes(), 2_000 * ROW_BYTES);
    assert!(before > 16 * SLACK_BYTES, "{before} bytes are too few to show it");
    assert!(after <= 4 * SLACK_BYTES + recent, "{after} of {before} bytes: {:?}", bed.db.stats());
    bed.db.close().expect("a store in memory closes");
}

/// It holds the files that there were when it began. They are more than may wait for a checkpoint, and stop
/// no rewrite.
fn space_comes_back_beside_a_reader_that_holds_all_files_for_long() {
    let mut bed = Bed::open(64 << 20, MemoryDisk::new(1));
    let mut random = 1u32;
    let mut put = |bed: &mut Bed, i: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bed.put((random >> 8) % (4 * KEYS), i as u8);
    };
    (0..20 * KEYS).for_each(|i| put(&mut bed, i));
    bed.db.put(b"read", b"for long").expect("there is room");
    let db = Arc::clone(&bed.db);
    let found = db.get_with(b"read", None, &mut |_| {
        let held_before = bed.file_bytes();
        let rewrites_before = bed.db.stats()["space_rewrites"];
        let live = u64::from(4 * KEYS) * ROW_BYTES;
        assert!(held_before > live / 2 + SLACK_BYTES, "too few files for this test: {held_before}");
        for i in 0..30 * KEYS {
            put(&mut bed, i);
            if i % KEYS == 0 {
                bed.db.sync().expect("synced");
                let held = bed.file_bytes();
                // A log that the reader holds is appended to until it is rewritten.
                let held_by_reader = 2 * held_before;
                let most = held_by_reader + 2 * live + SLACK_BYTES + (live / 2 + SLACK_BYTES);
                assert!(held <= most, "{held}, {most} allowed, after {i} puts: {:?}", bed.db.stats());
            }
        }
        let stats = bed.db.stats();
        assert!(stats["space_rewrites"] > rewrites_before + 10, "{stats:?}");
    });
    assert!(found.expect("it is read"));
    bed.rest(10);
    let live = u64::from(4 * KEYS) * ROW_BYTES;
    assert!(bed.file_bytes() <= 2 * live, "{} for {live}", bed.file_bytes());
    bed.db.close().expect("a store in memory closes");
}

#[test]
fn what_nobody_sees_gives_back_its_space() {
    rows_deleted_one_by_one_give_their_space_back_though_nobody_reads();
    a_store_that_was_closed_full_of_dead_rows_gives_space_back_after_the_next_open();
    rows_overwritten_at_random_take_twice_their_bytes_and_cost_twice_theirs_to_write();
    rows_that_are_put_once_in_order_are_not_written_again_for_space();
    what_a_view_kept_goes_when_the_view_is_closed();
    few_long_rows_among_short_ones_give_their_space_back();
    many_small_chunks_give_their_space_back();
    space_comes_back_while_old_rows_are_deleted_at_random();
    space_comes_back_where_nothing_but_range_deletes_comes();
    what_an_earlier_run_deleted_goes_while_the_store_is_written();
    few_long_rows_give_their_space_back_when_short_ones_replace_them();
    space_comes_back_beside_a_reader_that_holds_all_files_for_long();
}
