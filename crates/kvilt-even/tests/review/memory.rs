//! Memory that is not needed is given back, and the worth of a chunk decides who has it.

use std::time::Duration;

use kvilt_base::{Durability, FileName};
use kvilt_even::{Options, options::Compression};
use kvilt_format::names::{LOG, TABLE};
use kvilt_io::{Keep, MemoryDisk};

use super::{Bed, never, put_rows, rows};

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
        db.stats()["log_buffer_bytes_now"] == 0
    });
    assert!(is_given_back, "{} bytes of buffers are kept", db.stats()["log_buffer_bytes_now"]);
}

/// Chunks that weigh more in memory than in files are not loaded and evicted in turns.
#[test]
fn r13_loads_and_evictions_do_not_take_turns() {
    let mut options = Options::default();
    options.settings.durability = Durability::Async { interval: Duration::from_millis(500) };
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
        after["munk_loads"] - before["munk_loads"],
        after["munk_evictions"] - before["munk_evictions"],
        after["chunks_now"]
    );
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
    let data = memory.snapshot().into_iter().filter(|(n, _)| matches!(n, FileName::Of(TABLE | LOG, _)));
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
        stats["munk_loads"] > 0,
        "{} broken, {} good keys, {} chunks, {} loads",
        broken.len(),
        good.len(),
        stats["chunks_now"],
        stats["munk_loads"]
    );
}

/// Stores that share a budget stay within it together.
#[test]
fn r19_two_stores_share_one_budget() {
    let budget = 2 << 20;
    let bed = Bed::new(budget);
    let mut options = Options::default();
    options.settings.durability = Durability::Async { interval: Duration::from_millis(500) };
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
    let munks: Vec<_> = stores.iter().map(|db| db.stats()["munks_now"]).collect();
    let used = bed.budget.used_in_all();
    assert!(used <= budget + budget / 4, "{used} of {budget} are used; munks {munks:?}");
}

/// Scanned cold chunks do not keep sorted orders of their logs beyond the budget.
#[test]
fn r21_orders_of_cold_logs_are_given_back() {
    let memory = MemoryDisk::new(1);
    let mut options = Options::default();
    options.settings.durability = Durability::Async { interval: Duration::from_millis(500) };
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
        stats["log_index_bytes_now"],
        stats["table_bytes_now"],
        stats["munk_bytes_now"]
    );
}

/// The least worthy munk cannot be evicted (its log is damaged): others must go instead.
#[test]
fn r24_one_damaged_log_does_not_stop_evictions() {
    use kvilt_even::parts;
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
            db.put(format!("key{i:04}").as_bytes(), &[i as u8; 190]).unwrap();
        }
        db.sync().unwrap();
        let munks = db.stats()["munks_now"];
        assert!(munks > 2);
        let log = memory
            .snapshot()
            .into_keys()
            .filter(|n| matches!(n, FileName::Of(LOG, _)))
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
        bed.budget.add(parts::TABLES, 1 << 30);
        for _ in 0..40 {
            bed.clock.advance(Duration::from_millis(60));
            bed.rests_within(20);
        }
        bed.budget.sub(parts::TABLES, 1 << 30);
        let left = db.stats()["munks_now"];
        assert!(left <= 1, "{left} of {munks} munks are still there");
    }
}

/// A load went by what files told: 700 KB of rows that compress well were read into a munk of a store with
/// 256 KiB, and all other munks went for it.
#[test]
fn a_chunk_that_is_larger_than_its_files_tell_is_not_loaded() {
    let mut options = Options::default();
    options.settings.durability = Durability::Async { interval: Duration::from_millis(500) };
    options.compression = Compression::Lz4;
    let memory = MemoryDisk::new(1);
    {
        let bed = Bed::new(64 << 20);
        let db = bed.open(memory.clone(), options.clone()).unwrap();
        put_rows(&*db, 20, 7);
        db.put(b"large", &[0; 700 << 10]).unwrap();
        bed.clock.advance(Duration::from_millis(1100));
        bed.rests_within(1000);
        db.close().unwrap();
    }
    let bed = Bed::new(256 << 10);
    let db = bed.open(memory.clone(), options).unwrap();
    let mut most = 0;
    for _ in 0..10 {
        for i in 0..20 {
            (0..20).for_each(|_| drop(db.get(format!("key{i:04}").as_bytes(), None).unwrap().unwrap()));
        }
        bed.clock.advance(Duration::from_millis(300));
        for i in 0..300 {
            bed.spawn.step(i);
            most = most.max(db.stats()["munk_bytes_now"]);
        }
    }
    println!("{most} {:?}", db.stats());
    assert!(most <= 256 << 10, "{most} bytes in munks of a store with 256 KiB");
    assert_eq!(db.get(b"large", None).unwrap().unwrap().len(), 700 << 10);
}
