//! The background comes to rest: what fails or cannot be helped is not tried again and again.

use std::time::Duration;

use kvilt_base::{Durability, ErrorKind};
use kvilt_even::Options;
use kvilt_io::{Call, Fault, FaultyDisk, MemoryDisk, Times};

use super::{Bed, closed_with_rows, never, put_rows};

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
    let before = db.stats()["munk_compactions"];
    let rests = bed.rests_within(2000);
    let after = db.stats()["munk_compactions"];
    assert!(rests, "2000 steps and {} compactions later still busy", after - before);
}

/// A rewrite that fails (damaged closed log) is asked for again at once, for ever. Says whether the
/// background rests while the clock stands still, how many calls it made until then, and how many more in the
/// second for which a chunk is let alone, whenever the background comes by.
fn damaged(call_fault: Option<Fault>) -> (bool, u64, u64, usize) {
    let memory = closed_with_rows(30);
    let faulty = FaultyDisk::new(memory.clone());
    let bed = Bed::new(64 << 20);
    let db = bed.open(faulty.clone(), never()).unwrap();
    put_rows(&*db, 30, 8);
    let files = memory.snapshot().len();
    match call_fault {
        Some(fault) => faulty.fail(Some(Call::Write), 0, fault, Times::Always),
        None => faulty.fail(Some(Call::Read), 0, Fault::Io, Times::Always),
    }
    let rests = bed.rests_within(2000);
    let calls = || faulty.calls(Call::Read) + faulty.calls(Call::Create);
    let (first, visits) = (calls(), 15);
    for _ in 0..visits {
        bed.clock.advance(Duration::from_millis(60));
        assert!(bed.rests_within(2000));
    }
    (rests, first, calls() - first, memory.snapshot().len() - files)
}

#[test]
fn r02_a_failing_rewrite_is_not_retried_in_a_hot_loop() {
    let (rests, calls, more, _) = damaged(None);
    assert!(rests, "busy after 2000 steps without the clock moving, {calls} reads and creates");
    assert!(calls > 0 && more == 0, "{calls} reads and creates, {more} more within the second");
}

#[test]
fn r03_a_rewrite_on_a_full_disk_neither_spins_nor_litters() {
    let (rests, calls, more, litter) = damaged(Some(Fault::NoSpace));
    assert!(rests && litter < 10, "rests: {rests}, {calls} reads and creates, {litter} new files");
    assert!(calls > 0 && more == 0, "{calls} reads and creates, {more} more within the second");
}

/// An interval of "never" is what turns background checkpoints off.
#[test]
fn r08_an_endless_interval_is_allowed_or_refused() {
    let bed = Bed::new(64 << 20);
    let mut options = Options::tiny();
    options.settings.durability = Durability::Async { interval: Duration::MAX };
    bed.clock.advance(Duration::from_secs(1));
    if let Ok(db) = bed.open(MemoryDisk::new(1), options) {
        db.put(b"a", b"1").unwrap();
        bed.rests_within(100);
        db.close().unwrap();
    }
}

/// An idle store in sync mode does not write.
#[test]
fn r11_idle_sync_mode_writes_nothing() {
    let mut options = Options::tiny();
    options.settings.durability = Durability::Sync { interval: Duration::from_millis(500) };
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
    options.settings.durability = Durability::Async { interval: Duration::from_millis(500) };
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
        stats["chunks_now"],
        stats["munks_now"],
        stats["log_buffer_bytes_now"],
        stats["log_index_bytes_now"],
        stats["table_bytes_now"],
        stats["munk_bytes_now"],
        stats["munk_loads"],
        db.stats()["munk_loads"]
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
        assert!(db.stats()["chunks_now"] > 2);
        db.close().unwrap();
    }
    options.settings.durability = Durability::Async { interval: Duration::from_millis(500) };
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

/// Memory pressure that cold chunks cannot relieve (here: another store's) is no reason to spin.
#[test]
fn r20_memory_pressure_from_outside_does_not_spin() {
    use kvilt_even::parts;
    let bed = Bed::new(64 << 20);
    let db = bed.open(MemoryDisk::new(1), never()).unwrap();
    for i in 0..10u32 {
        db.put(format!("key{i:04}").as_bytes(), &[1; 300]).unwrap();
    }
    bed.rests_within(300);
    bed.budget.add(parts::TABLES, 1 << 30);
    bed.clock.advance(Duration::from_millis(60));
    let rests = bed.rests_within(3000);
    bed.budget.sub(parts::TABLES, 1 << 30);
    assert!(rests, "busy, {} munks, {} evictions", db.stats()["munks_now"], db.stats()["munk_evictions"]);
}
