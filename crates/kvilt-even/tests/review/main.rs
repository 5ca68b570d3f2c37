//! Bugs found by review; each test fails as long as its bug is there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{sync::Arc, time::Duration};

use kvilt_base::{Direction, Disk, Engine, ErrorKind, FileName, KeyRange, Result, RowBatch};
use kvilt_even::{Durability, Options, World};
use kvilt_io::{Call, Fault, FaultyDisk, Keep, ManualClock, MemoryDisk, SeededRng, StepSpawn, Times};
use kvilt_sync::budget::Budget;
use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

/// One test at a time: what a store has given up is freed when no thread of the process is still reading, and several
/// tests here ask whether it was.
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
    options.durability = Durability::Async { interval: Duration::from_secs(3600) };
    options
}

fn rows(db: &dyn Engine) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let view = db.view()?;
    let mut left = Some(KeyRange::all());
    let mut out = Vec::new();
    while let Some(range) = left {
        let mut batch = RowBatch::new(1 << 16, 1000, false);
        left = db.scan(&view, &range, Direction::Forward, &mut batch)?;
        out.extend(batch.into_rows().map(|(k, v)| (k.to_vec(), v.to_vec())));
    }
    Ok(out)
}

/// compact_munk: a run whose last key is large is cut into one piece, "too large" for ever.
#[test]
fn r01_a_large_last_value_does_not_keep_the_background_busy() {
    let bed = Bed::new(64 << 20);
    let db = bed.open(MemoryDisk::new(1), never()).unwrap();
    db.put(b"a", b"small").unwrap();
    db.put(b"b", &[1; 20_000]).unwrap();
    db.put(b"b", &[2; 20_000]).unwrap();
    for i in 0..50u32 {
        db.put(b"b", &[i as u8; 9_000]).unwrap();
    }
    let before = db.stats().munk_compactions;
    let rests = bed.rests_within(2000);
    let after = db.stats().munk_compactions;
    assert!(rests, "2000 steps and {} compactions later still busy", after - before);
}

/// A rewrite that fails (damaged closed log) is asked for again at once, for ever.
fn damaged(call_fault: Option<Fault>) -> (bool, u64, usize) {
    let bed = Bed::new(64 << 20);
    let memory = MemoryDisk::new(1);
    {
        let db = bed.open(memory.clone(), never()).unwrap();
        for i in 0..30u32 {
            db.put(format!("key{i:04}").as_bytes(), &[7; 200]).unwrap();
        }
        db.close().unwrap();
    }
    let faulty = FaultyDisk::new(memory.clone());
    let bed = Bed::new(64 << 20);
    let db = bed.open(faulty.clone(), never()).unwrap();
    for i in 0..30u32 {
        db.put(format!("key{i:04}").as_bytes(), &[8; 200]).unwrap();
    }
    let files = memory.snapshot().len();
    match call_fault {
        Some(fault) => faulty.fail(Some(Call::Write), 0, fault, Times::Always),
        None => faulty.fail(Some(Call::Read), 0, Fault::Io, Times::Always),
    }
    let rests = bed.rests_within(2000);
    let calls = faulty.calls(Call::Read) + faulty.calls(Call::Create);
    (rests, calls, memory.snapshot().len() - files)
}

#[test]
fn r02_a_failing_rewrite_is_not_retried_in_a_hot_loop() {
    let (rests, calls, _) = damaged(None);
    assert!(rests, "busy after 2000 steps without the clock moving, {calls} reads and creates");
}

#[test]
fn r03_a_rewrite_on_a_full_disk_neither_spins_nor_litters() {
    let (rests, calls, litter) = damaged(Some(Fault::NoSpace));
    assert!(rests && litter < 10, "rests: {rests}, {calls} reads and creates, {litter} new files");
}

/// What a failed rewrite leaves takes the room that the checkpoint needs.
#[test]
fn r04_a_failed_rewrite_gives_its_room_back() {
    let bed = Bed::new(64 << 20);
    let memory = MemoryDisk::new(1);
    {
        let db = bed.open(memory.clone(), never()).unwrap();
        for i in 0..60u32 {
            db.put(format!("key{i:04}").as_bytes(), &[7; 200]).unwrap();
        }
        db.close().unwrap();
    }
    let bed = Bed::new(64 << 20);
    let db = bed.open(memory.clone(), never()).unwrap();
    for i in 0..60u32 {
        db.put(format!("key{i:04}").as_bytes(), &[8; 200]).unwrap();
    }
    let used = memory.total_bytes();
    // Room for a checkpoint (what is still in log buffers, a small edit), not for the chunk's new table.
    memory.set_capacity(Some(used + 6000));
    if std::env::var("CONTROL").is_ok() {
        db.sync().unwrap();
        return;
    }
    bed.rests_within(200);
    let left = memory.total_bytes();
    let synced = db.sync();
    assert!(synced.is_ok(), "used {used}, after the failed rewrites {left} of {}: {synced:?}", used + 6000);
}

/// A failed directory sync is forgotten: the next checkpoint names files whose names are not durable.
#[test]
fn r05_a_failed_directory_sync_is_not_forgotten() {
    let bed = Bed::new(64 << 20);
    let memory = MemoryDisk::new(1);
    let faulty = FaultyDisk::new(memory.clone());
    let db = bed.open(faulty.clone(), never()).unwrap();
    db.sync().unwrap();
    db.put(b"a", b"1").unwrap();
    faulty.fail(Some(Call::SyncDir), 0, Fault::Io, Times::Once);
    let first = db.sync();
    assert!(first.is_err());
    if db.sync().is_err() {
        return; // poisoned: fine
    }
    let image = memory.crash_image(Keep::SyncedOnly);
    let bed = Bed::new(64 << 20);
    let db = bed.open(image, never()).unwrap();
    assert_eq!(db.get(b"a", None).map(|v| v.map(|v| v.to_vec())).unwrap(), Some(b"1".to_vec()));
}

/// Reliability 2(4): a failed sync of the manifest poisons.
#[test]
fn r06_a_failed_manifest_sync_poisons() {
    let bed = Bed::new(64 << 20);
    let faulty = FaultyDisk::new(MemoryDisk::new(1));
    let db = bed.open(faulty.clone(), never()).unwrap();
    db.sync().unwrap();
    db.put(b"a", b"1").unwrap();
    // First the log's sync, then the manifest's.
    faulty.fail(Some(Call::Sync), 1, Fault::Io, Times::Once);
    let first = db.sync();
    assert!(first.is_err());
    let put = db.put(b"b", b"2");
    assert_eq!(put.map_err(|e| e.kind()), Err(ErrorKind::Poisoned), "after {first:?}");
}

/// A log that is not written to keeps no write buffer.
#[test]
fn r07_a_checkpoint_gives_write_buffers_back() {
    let bed = Bed::new(64 << 20);
    let db = bed.open(MemoryDisk::new(1), never()).unwrap();
    db.put(b"a", b"1").unwrap();
    db.sync().unwrap();
    // What was replaced is freed when no thread of this process has a pin from before, those of other tests
    // included.
    let is_given_back = (0..1_000_000).any(|_| {
        kvilt_sync::published::pin().flush();
        std::thread::yield_now();
        db.stats().log_buffer_bytes_now == 0
    });
    assert!(is_given_back, "{} bytes of buffers are kept", db.stats().log_buffer_bytes_now);
}

/// An interval of "never" is what turns background checkpoints off.
#[test]
fn r08_an_endless_interval_is_allowed_or_refused() {
    let bed = Bed::new(64 << 20);
    let mut options = Options::tiny();
    options.durability = Durability::Async { interval: Duration::MAX };
    bed.clock.advance(Duration::from_secs(1));
    if let Ok(db) = bed.open(MemoryDisk::new(1), options) {
        db.put(b"a", b"1").unwrap();
        bed.rests_within(100);
        db.close().unwrap();
    }
}

/// Killed in a checkpoint, opened, then the power fails: what the last good sync promised must be there.
#[test]
fn r09_kill_then_open_then_power_cut() {
    let write = |db: &dyn Engine, bed: &Bed, byte: u8| {
        for i in 0..40u32 {
            db.put(format!("key{i:04}").as_bytes(), &[byte; 200]).unwrap();
        }
        bed.rests_within(300);
    };
    let mut bad = Vec::new();
    for nth in 0.. {
        let memory = MemoryDisk::new(1);
        let bed = Bed::new(64 << 20);
        let db = bed.open(memory.clone(), never()).unwrap();
        write(&*db, &bed, 7);
        db.sync().unwrap();
        write(&*db, &bed, 8);
        db.sync().unwrap();
        let promised = rows(&*db).unwrap();
        write(&*db, &bed, 9);
        let first = memory.ops();
        memory.set_crash_at(Some(first + nth));
        let _ = db.sync();
        if !memory.has_crashed() {
            println!("{nth} operations in a sync, {} rewrites", db.stats().funk_rebalances);
            break;
        }
        let newer = rows(&*db).ok();
        let killed = memory.kill_image();
        std::mem::forget(db);
        let before: Vec<_> = killed.snapshot().into_keys().collect();
        let db = Bed::new(64 << 20).open(killed.clone(), never()).unwrap();
        let after: Vec<_> = killed.snapshot().into_keys().collect();
        println!("op {nth}: removed {:?}", before.iter().filter(|n| !after.contains(n)).collect::<Vec<_>>());
        let _ = newer;
        for keep in (0..40).map(Keep::Random).chain([Keep::SyncedOnly]) {
            let cut = killed.crash_image(keep);
            match Bed::new(64 << 20).open(cut, never()).and_then(|db| rows(&*db)) {
                Ok(found) => {
                    let is_newer = found.len() == 40 && found.iter().all(|(_, v)| v == &[9; 200]);
                    if found != promised && !is_newer {
                        bad.push(format!("op {nth} {keep:?}: {} rows", found.len()));
                    }
                }
                Err(e) => bad.push(format!("op {nth} {keep:?}: {e}")),
            }
        }
        drop(db);
    }
    assert!(bad.is_empty(), "{} bad, such as {:#?}", bad.len(), &bad[..bad.len().min(3)]);
}

/// Sync mode: what an open replayed and a get returned must survive a power cut.
#[test]
fn r10_sync_mode_what_was_read_after_a_replay_is_durable() {
    let mut options = Options::tiny();
    options.durability = Durability::Sync { interval: Duration::from_secs(3600) };
    let memory = MemoryDisk::new(1);
    let bed = Bed::new(64 << 20);
    let db = bed.open(memory.clone(), options.clone()).unwrap();
    db.put(b"a", b"1").unwrap();
    // Killed between the write and the sync of the next commit.
    memory.set_crash_at(Some(memory.ops() + 1));
    assert!(db.put(b"a", b"2").is_err());
    let killed = memory.kill_image();
    std::mem::forget(db);
    let db = Bed::new(64 << 20).open(killed.clone(), options.clone()).unwrap();
    let read = db.get(b"a", None).unwrap().map(|v| v.to_vec());
    let cut = killed.crash_image(Keep::SyncedOnly);
    let db2 = Bed::new(64 << 20).open(cut, options).unwrap();
    let after = db2.get(b"a", None).unwrap().map(|v| v.to_vec());
    assert_eq!(read, after, "a value that was read is gone");
    drop(db);
}

/// An idle store in sync mode does not write.
#[test]
fn r11_idle_sync_mode_writes_nothing() {
    let mut options = Options::tiny();
    options.durability = Durability::Sync { interval: Duration::from_millis(500) };
    let memory = MemoryDisk::new(1);
    let bed = Bed::new(64 << 20);
    let db = bed.open(memory.clone(), options).unwrap();
    db.put(b"a", b"1").unwrap();
    let step = |bed: &Bed| {
        bed.clock.advance(Duration::from_millis(600));
        bed.rests_within(1000);
    };
    (0..5).for_each(|_| step(&bed));
    let ops = memory.ops();
    (0..20).for_each(|_| step(&bed));
    assert!(memory.ops() == ops, "{} changing calls in 20 idle intervals", memory.ops() - ops);
    drop(db);
}

/// Memory pressure with nothing to give back is no reason to spin.
#[test]
fn r12_memory_pressure_does_not_spin() {
    let mut options = Options::default();
    options.durability = Durability::Async { interval: Duration::from_millis(500) };
    let memory = MemoryDisk::new(1);
    let budget = 256 << 10;
    let bed = Bed::new(budget);
    let db = bed.open(memory.clone(), options).unwrap();
    for i in 0..6000u32 {
        db.put(format!("key{:08}", i).as_bytes(), &[7; 400]).unwrap();
    }
    for _ in 0..50 {
        bed.clock.advance(Duration::from_millis(600));
        bed.rests_within(300);
    }
    let stats = db.stats();
    let rests = bed.rests_within(3000);
    assert!(
        rests,
        "{} chunks, {} munks; buffers {}, indexes {}, tables {}, munk bytes {} of {budget}; loads {} -> {}",
        stats.chunks_now,
        stats.munks_now,
        stats.log_buffer_bytes_now,
        stats.log_index_bytes_now,
        stats.table_bytes_now,
        stats.munk_bytes_now,
        stats.munk_loads,
        db.stats().munk_loads
    );
}

/// Chunks that weigh more in memory than in files are not loaded and evicted in turns.
#[test]
fn r13_loads_and_evictions_do_not_take_turns() {
    let mut options = Options::default();
    options.durability = Durability::Async { interval: Duration::from_millis(500) };
    let memory = MemoryDisk::new(1);
    let bed = Bed::new(2 << 20);
    {
        let bed = Bed::new(64 << 20);
        let db = bed.open(memory.clone(), options.clone()).unwrap();
        for i in 0..150_000u32 {
            db.put(&i.to_be_bytes(), b"").unwrap();
        }
        bed.rests_within(1000);
        db.close().unwrap();
    }
    let db = bed.open(memory.clone(), options).unwrap();
    for _ in 0..10 {
        for i in (0..150_000u32).step_by(7) {
            db.get(&i.to_be_bytes(), None).unwrap();
        }
        bed.clock.advance(Duration::from_millis(1100));
        bed.rests_within(300);
    }
    let before = db.stats();
    let rests = bed.rests_within(2000);
    let after = db.stats();
    assert!(
        rests,
        "{} loads and {} evictions in 2000 steps without a clock tick; {} chunks",
        after.munk_loads - before.munk_loads,
        after.munk_evictions - before.munk_evictions,
        after.chunks_now
    );
}

/// ENOSPC: deletes go on (design 3.2(17), reliability 2(5)).
#[test]
fn r14_deletes_work_on_a_full_disk() {
    let bed = Bed::new(64 << 20);
    let memory = MemoryDisk::new(1);
    let db = bed.open(memory.clone(), never()).unwrap();
    for i in 0..40u32 {
        db.put(format!("key{i:04}").as_bytes(), &[7; 200]).unwrap();
    }
    db.sync().unwrap();
    memory.set_capacity(Some(memory.total_bytes()));
    let failed: Vec<_> =
        (0..4000u32).filter_map(|i| db.delete(format!("key{:04}", i % 40).as_bytes()).err()).collect();
    assert!(failed.is_empty(), "{} of 4000 deletes failed: {}", failed.len(), failed[0]);
}

/// A failed close can be repeated.
#[test]
fn r15_a_second_close_does_not_hide_that_the_first_failed() {
    let bed = Bed::new(64 << 20);
    let memory = MemoryDisk::new(1);
    let db = bed.open(memory.clone(), never()).unwrap();
    db.sync().unwrap();
    db.put(b"a", &[1; 300]).unwrap();
    // Not even what the reserve gives up is to be had.
    memory.set_capacity(Some(0));
    assert!(db.close().is_err());
    memory.set_capacity(None);
    let second = db.close();
    drop(db);
    let db = Bed::new(64 << 20).open(memory, never()).unwrap();
    let found = db.get(b"a", None).unwrap().is_some();
    assert!(second.is_err() || found, "the second close said Ok, and the put is gone");
}

/// One damaged, hot chunk must not keep the others from being loaded.
#[test]
fn r16_one_damaged_chunk_does_not_stop_all_loads() {
    let memory = MemoryDisk::new(1);
    {
        let bed = Bed::new(64 << 20);
        let db = bed.open(memory.clone(), never()).unwrap();
        for i in 0..200u32 {
            db.put(format!("key{i:04}").as_bytes(), &[i as u8; 200]).unwrap();
            bed.rests_within(50);
        }
        bed.rests_within(500);
        db.close().unwrap();
    }
    let keys: Vec<_> = (0..200u32).map(|i| format!("key{i:04}")).collect();
    let data =
        memory.snapshot().into_iter().filter(|(n, _)| matches!(n, FileName::Table(_) | FileName::Log(_)));
    let mut found = None;
    for (name, bytes) in data {
        let image = memory.crash_image(Keep::All);
        image.flip_bit(name, bytes.len() as u64 / 2, 3);
        let bed = Bed::new(64 << 20);
        let db = bed.open(image, never()).unwrap();
        let (good, broken): (Vec<_>, Vec<_>) =
            keys.iter().cloned().partition(|key| db.get(key.as_bytes(), None).is_ok());
        if !broken.is_empty() && broken.len() < 150 {
            found = Some((bed, db, good, broken));
            break;
        }
    }
    let (bed, db, good, broken) = found.unwrap();
    for _ in 0..20 {
        for _ in 0..20_000 {
            let _ = broken.first().map(|key| db.get(key.as_bytes(), None).is_ok());
        }
        for key in good.iter().rev().take(20) {
            for _ in 0..32 {
                let _ = db.get(key.as_bytes(), None);
            }
        }
        bed.clock.advance(Duration::from_millis(60));
        bed.rests_within(50);
    }
    let stats = db.stats();
    assert!(!broken.is_empty());
    assert!(
        stats.munk_loads > 0,
        "{} broken, {} good keys, {} chunks, {} loads",
        broken.len(),
        good.len(),
        stats.chunks_now,
        stats.munk_loads
    );
}

/// A batch that began a log in one chunk and failed in the next leaves an empty log, not endless checkpoints.
#[test]
fn r18_an_empty_log_does_not_keep_checkpoints_busy() {
    let memory = MemoryDisk::new(1);
    let mut options = never();
    {
        let bed = Bed::new(64 << 20);
        let db = bed.open(memory.clone(), options.clone()).unwrap();
        for i in 0..100u32 {
            db.put(format!("key{i:04}").as_bytes(), &[i as u8; 200]).unwrap();
            bed.rests_within(50);
        }
        assert!(db.stats().chunks_now > 2);
        db.close().unwrap();
    }
    options.durability = Durability::Async { interval: Duration::from_millis(500) };
    let bed = Bed::new(64 << 20);
    let db = bed.open(memory.clone(), options).unwrap();
    memory.set_capacity(Some(memory.total_bytes()));
    while db.put(b"key0099", &[1; 100]).is_ok() {}
    let mut batch = kvilt_base::WriteBatch::new();
    batch.put(b"key0000", b"x").put(b"key0099", [2; 200]);
    assert_eq!(db.write(batch).unwrap_err().kind(), ErrorKind::NoSpace);
    memory.set_capacity(None);
    let step = || {
        bed.clock.advance(Duration::from_millis(600));
        bed.rests_within(1000);
    };
    (0..20).for_each(|_| step());
    let ops = memory.ops();
    (0..20).for_each(|_| step());
    assert!(memory.ops() == ops, "{} changing calls in 20 idle intervals", memory.ops() - ops);
}

/// Stores that share a budget stay within it together.
#[test]
fn r19_two_stores_share_one_budget() {
    let budget = 2 << 20;
    let bed = Bed::new(budget);
    let mut options = Options::default();
    options.durability = Durability::Async { interval: Duration::from_millis(500) };
    let stores: Vec<_> = (0..4).map(|i| bed.open(MemoryDisk::new(i), options.clone()).unwrap()).collect();
    for i in 0..3000u32 {
        for db in &stores {
            db.put(format!("key{i:08}").as_bytes(), &[7; 400]).unwrap();
        }
    }
    for _ in 0..30 {
        bed.clock.advance(Duration::from_millis(600));
        bed.rests_within(500);
    }
    let munks: Vec<_> = stores.iter().map(|db| db.stats().munks_now).collect();
    let used = bed.budget.used_in_all();
    assert!(used <= budget + budget / 4, "{used} of {budget} are used; munks {munks:?}");
}

/// Memory pressure that cold chunks cannot relieve (here: another store's) is no reason to spin.
#[test]
fn r20_memory_pressure_from_outside_does_not_spin() {
    use kvilt_sync::budget::Part;
    let bed = Bed::new(64 << 20);
    let db = bed.open(MemoryDisk::new(1), never()).unwrap();
    for i in 0..10u32 {
        db.put(format!("key{i:04}").as_bytes(), &[1; 300]).unwrap();
    }
    bed.rests_within(300);
    bed.budget.add(Part::Tables, 1 << 30);
    bed.clock.advance(Duration::from_millis(60));
    let rests = bed.rests_within(3000);
    bed.budget.sub(Part::Tables, 1 << 30);
    assert!(rests, "busy, {} munks, {} evictions", db.stats().munks_now, db.stats().munk_evictions);
}

/// Scanned cold chunks do not keep sorted orders of their logs beyond the budget.
#[test]
fn r21_orders_of_cold_logs_are_given_back() {
    let memory = MemoryDisk::new(1);
    let mut options = Options::default();
    options.durability = Durability::Async { interval: Duration::from_millis(500) };
    {
        let bed = Bed::new(64 << 20);
        let db = bed.open(memory.clone(), options.clone()).unwrap();
        for i in 0..60_000u32 {
            db.put(&i.to_be_bytes(), b"x").unwrap();
        }
        db.close().unwrap();
    }
    let budget = 256 << 10;
    let bed = Bed::new(budget);
    let db = bed.open(memory, options).unwrap();
    assert_eq!(rows(&*db).unwrap().len(), 60_000);
    for _ in 0..30 {
        bed.clock.advance(Duration::from_millis(600));
        bed.rests_within(200);
    }
    let stats = db.stats();
    let used = bed.budget.used_in_all();
    assert!(
        used <= budget + budget / 4,
        "{used} of {budget} used: indexes {}, tables {}, munks {}",
        stats.log_index_bytes_now,
        stats.table_bytes_now,
        stats.munk_bytes_now
    );
}

/// Rewrites that fail must not leave one more closed log each.
#[test]
fn r22_failed_rewrites_do_not_pile_up_logs() {
    let memory = MemoryDisk::new(1);
    {
        let bed = Bed::new(64 << 20);
        let db = bed.open(memory.clone(), never()).unwrap();
        for i in 0..10u32 {
            db.put(format!("key{i:04}").as_bytes(), &[7; 200]).unwrap();
        }
        db.close().unwrap();
    }
    let faulty = FaultyDisk::new(memory.clone());
    let bed = Bed::new(64 << 20);
    let db = bed.open(faulty.clone(), never()).unwrap();
    // Not damage, which would make the chunk read-only.
    faulty.fail(Some(Call::Read), 0, Fault::Io, Times::Always);
    for i in 0..300u32 {
        db.put(format!("key{:04}", i % 10).as_bytes(), &[8; 100]).unwrap();
        bed.clock.advance(Duration::from_millis(60));
        bed.rests_within(10);
    }
    db.sync().unwrap();
    let files = db.stats().files_now;
    assert!(files < 30, "{files} files for 300 puts to one chunk");
}

/// Bounds of a range delete that are longer than any key.
#[test]
fn r23_range_deletes_with_long_bounds() {
    use kvilt_base::limits::{ENGINE_KEY_BYTES_MAX, VALUE_BYTES_MAX};
    let mut bad = Vec::new();
    for (start, end) in [
        ([vec![b'k'; ENGINE_KEY_BYTES_MAX], vec![0]].concat(), Some(b"z".to_vec())),
        ([vec![b'k'; ENGINE_KEY_BYTES_MAX], vec![0; 1000]].concat(), Some(b"z".to_vec())),
        (b"a".to_vec(), Some([vec![b'k'; ENGINE_KEY_BYTES_MAX], vec![0]].concat())),
        (b"a".to_vec(), Some(vec![b'k'; ENGINE_KEY_BYTES_MAX + 10])),
        (b"a".to_vec(), Some(vec![b'k'; VALUE_BYTES_MAX + 10])),
    ] {
        for is_sync in [false, true] {
            let what = format!("start {} end {:?} sync {is_sync}", start.len(), end.as_ref().map(Vec::len));
            let range = KeyRange { start: start.clone(), end: end.clone() };
            let run = move || -> std::result::Result<(), String> {
                let mut options = never();
                if is_sync {
                    options.durability = Durability::Sync { interval: Duration::from_secs(3600) };
                }
                let memory = MemoryDisk::new(1);
                let bed = Bed::new(64 << 20);
                let db = bed.open(memory.clone(), options.clone()).unwrap();
                db.put(b"b", b"1").unwrap();
                db.put(b"l", b"1").unwrap();
                if let Err(e) = db.delete_range(&range) {
                    return if e.kind() == ErrorKind::InvalidArgument { Ok(()) } else { Err(e.to_string()) };
                }
                let now = rows(&*db).unwrap();
                db.sync().unwrap();
                let image = memory.crash_image(Keep::SyncedOnly);
                drop(db);
                let again = Bed::new(64 << 20).open(image, options).and_then(|db| rows(&*db));
                match again {
                    Ok(again) if again == now => Ok(()),
                    Ok(_) => Err("other rows after a crash".into()),
                    Err(e) => Err(format!("after a crash: {e}")),
                }
            };
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
                Ok(Ok(())) => {}
                Ok(Err(e)) => bad.push(format!("{what}: {e}")),
                Err(_) => bad.push(format!("{what}: panic")),
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

/// The least worthy munk cannot be evicted (its log is damaged): others must go instead.
#[test]
fn r24_one_damaged_log_does_not_stop_evictions() {
    use kvilt_sync::budget::Part;
    for is_damaged in [false, true] {
        let memory = MemoryDisk::new(1);
        let bed = Bed::new(64 << 20);
        let mut options = never();
        (options.log_bytes_max_cold, options.log_bytes_max_cached, options.log_bytes_max_unread) =
            (1 << 20, 1 << 20, 1 << 20);
        let db = bed.open(memory.clone(), options).unwrap();
        for i in 0..60u32 {
            db.put(format!("key{i:04}").as_bytes(), &[i as u8; 200]).unwrap();
            bed.rests_within(50);
        }
        for i in 0..60u32 {
            db.put(format!("key{i:04}").as_bytes(), &[i as u8; 200]).unwrap();
        }
        bed.rests_within(200);
        for i in 0..60u32 {
            db.put(format!("key{i:04}").as_bytes(), &[i as u8; 100]).unwrap();
        }
        db.sync().unwrap();
        let munks = db.stats().munks_now;
        assert!(munks > 2);
        let log = memory
            .snapshot()
            .into_keys()
            .filter(|n| matches!(n, FileName::Log(_)))
            .max_by_key(|n| n.number());
        if is_damaged {
            assert!(memory.flip_bit(log.unwrap(), 100, 1));
        }
        // Everything is read but the last chunk, whose log this is.
        for _ in 0..2000 {
            for i in 0..40u32 {
                db.get(format!("key{i:04}").as_bytes(), None).unwrap();
            }
        }
        bed.budget.add(Part::Tables, 1 << 30);
        for _ in 0..40 {
            bed.clock.advance(Duration::from_millis(60));
            bed.rests_within(20);
        }
        bed.budget.sub(Part::Tables, 1 << 30);
        let left = db.stats().munks_now;
        assert!(left <= 1, "{left} of {munks} munks are still there");
    }
}

#[test]
fn r25_full_disk_in_sync_mode_does_not_litter() {
    let mut options = Options::tiny();
    options.durability = Durability::Sync { interval: Duration::from_millis(500) };
    let memory = MemoryDisk::new(1);
    let bed = Bed::new(64 << 20);
    let db = bed.open(memory.clone(), options).unwrap();
    db.put(b"a", b"1").unwrap();
    memory.set_capacity(Some(memory.total_bytes()));
    let files = memory.snapshot().len();
    for _ in 0..100 {
        bed.clock.advance(Duration::from_millis(600));
        bed.rests_within(100);
    }
    let more = memory.snapshot().len() - files;
    assert!(more < 5, "{more} new files after 100 failed checkpoints");
}

/// A manifest that could not be written does not stay behind.
#[test]
fn r26_failed_manifests_do_not_pile_up() {
    let memory = MemoryDisk::new(1);
    {
        let bed = Bed::new(64 << 20);
        let db = bed.open(memory.clone(), never()).unwrap();
        for i in 0..200u32 {
            db.put(format!("key{i:04}").as_bytes(), &[7; 200]).unwrap();
            bed.rests_within(50);
        }
        db.close().unwrap();
    }
    let mut options = never();
    options.durability = Durability::Async { interval: Duration::from_millis(500) };
    let bed = Bed::new(64 << 20);
    let db = bed.open(memory.clone(), options).unwrap();
    db.put(b"key0000", b"x").unwrap();
    memory.set_capacity(Some(memory.total_bytes() + 300));
    let temps = || memory.snapshot().into_keys().filter(|n| matches!(n, FileName::ManifestTemp(_))).count();
    for _ in 0..100 {
        bed.clock.advance(Duration::from_millis(600));
        bed.rests_within(100);
    }
    let during = temps();
    memory.set_capacity(None);
    db.sync().unwrap();
    assert!(during < 3 && temps() == 0, "{during} temporary manifests, {} after space came back", temps());
}

/// Runs that end before the background has done anything begin a log each; writers wait before those are too many.
#[test]
fn r27_short_runs_do_not_pile_up_logs() {
    let memory = MemoryDisk::new(1);
    for run in 0..200u32 {
        let db = Bed::new(64 << 20).open(memory.clone(), never()).unwrap();
        db.put(b"k", &run.to_be_bytes()).unwrap();
        assert!(db.stats().files_now < 50, "{} files after {run} runs", db.stats().files_now);
        db.close().unwrap();
    }
}
