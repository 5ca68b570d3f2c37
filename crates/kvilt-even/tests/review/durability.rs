//! What was promised is durable, and what failed is not forgotten.

use std::time::Duration;

use kvilt_base::{Durability, Engine, ErrorKind};
use kvilt_even::Options;
use kvilt_io::{Call, Fault, FaultyDisk, Keep, MemoryDisk, Times};

use super::{Bed, never, put_rows, rows};

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

/// Killed in a checkpoint, opened, then the power fails: what the last good sync promised must be there.
#[test]
fn r09_kill_then_open_then_power_cut() {
    let write = |db: &dyn Engine, bed: &Bed, byte: u8| {
        put_rows(db, 40, byte);
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
            println!("{nth} operations in a sync, {} rewrites", db.stats()["funk_rebalances"]);
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
    options.settings.durability = Durability::Sync { interval: Duration::from_secs(3600) };
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
