//! Row 5: no space.

use std::{sync::Arc, time::Duration};

use kvilt_base::{Engine, ErrorKind, KeyRange, WriteBatch};
use kvilt_even::Options;
use kvilt_format::names::RESERVE;
use kvilt_io::{Call, Fault, FaultyDisk, Keep, MemoryDisk, Times};

use crate::{
    bed::{Bed, rows, synchronous, without_checkpoints},
    salvaging::is_of_rows,
};

/// Found by seed 11 of `kvilt-sim faults`: short of memory, the balancer asked for the rewrite of the chunk
/// with the longest logs again and again, while that chunk waited out a rewrite that had failed.
#[test]
fn a_chunk_that_waits_after_a_failure_is_not_asked_for_meanwhile() {
    for passes in 0..40 {
        let bed = Bed::new(1);
        let faulty = FaultyDisk::new(MemoryDisk::new(1));
        let db = bed.open(faulty.clone(), synchronous()).unwrap();
        faulty.fail(Some(Call::Create), passes, Fault::NoSpace, Times::Always);
        for i in 0..60u32 {
            // Refused once the disk is full.
            let _ = db.put(format!("key{:04}", i * 7 % 60).as_bytes(), &[7; 60]);
            bed.spawn.step(u64::from(i));
        }
        bed.clock.advance(Duration::from_secs(1));
        assert!(bed.rests_within(2000), "busy while every create after {passes} fails");
        faulty.heal();
        assert!(bed.rests_within(2000), "busy while what failed waits, after {passes} creates");
        bed.clock.advance(Duration::from_secs(200));
        assert!(bed.rests_within(2000), "busy when the disk is well again, after {passes} creates");
    }
}

/// What is refused leaves no trace, now and after a reopen.
#[test]
fn a_refused_put_is_not_seen_and_the_rest_is() {
    let bed = Bed::new(1 << 20);
    let faulty = FaultyDisk::new(MemoryDisk::new(2));
    let db = bed.open(faulty.clone(), without_checkpoints()).unwrap();
    faulty.fail(Some(Call::Write), 0, Fault::NoSpace, Times::Always);
    let mut accepted = Vec::new();
    let mut refused = 0;
    for i in 0..200u32 {
        let key = format!("key{i:04}").into_bytes();
        match db.put(&key, &[7; 100]) {
            Ok(()) => accepted.push((key, vec![7; 100])),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && !accepted.is_empty());
    assert_eq!(rows(&*db).unwrap(), accepted);
    faulty.heal();
    db.close().unwrap();
    let db = bed.open(faulty, without_checkpoints()).unwrap();
    assert_eq!(rows(&*db).unwrap(), accepted);
}

const ROWS: u32 = 300;

/// A thread that has a pin runs some time while others yield.
const PASSES_MAX: u32 = 10_000;

fn key(row: u32) -> Vec<u8> {
    format!("key{row:04}").into_bytes()
}

/// A store with rows, all of them durable and at rest, on a disk on which nothing is free.
fn full_store(options: &Options) -> (Bed, Arc<MemoryDisk>, Arc<dyn Engine>) {
    let bed = Bed::new(1 << 20);
    let disk = MemoryDisk::new(5);
    let db = bed.open(disk.clone(), options.clone()).unwrap();
    for row in 0..ROWS {
        db.put(&key(row), &[7; 100]).unwrap();
        bed.spawn.step(u64::from(row));
    }
    pass(&bed, 2);
    db.sync().unwrap();
    // Files that were replaced stay while another test's thread has a pin from before. Removed later, they
    // would leave room.
    let is_swept = (0..PASSES_MAX).any(|_| {
        std::thread::yield_now();
        pass(&bed, 1);
        chunk_file_bytes(&disk) == db.stats().disk_bytes_now
    });
    assert!(is_swept, "{} of {} bytes", db.stats().disk_bytes_now, chunk_file_bytes(&disk));
    assert_eq!(reserve_bytes(&disk), options.reserve_bytes_max);
    disk.set_capacity(Some(disk.total_bytes()));
    (bed, disk, db)
}

fn chunk_file_bytes(disk: &MemoryDisk) -> u64 {
    disk.snapshot().iter().filter(|(name, _)| is_of_rows(name)).map(|(_, bytes)| bytes.len() as u64).sum()
}

fn reserve_bytes(disk: &MemoryDisk) -> u64 {
    disk.contents(RESERVE).map_or(0, |bytes| bytes.len() as u64)
}

/// So many checkpoint intervals, with all the work that there is in them.
fn pass(bed: &Bed, intervals: u32) {
    for _ in 0..intervals {
        bed.clock.advance(Duration::from_secs(3601));
        assert!(bed.rests_within(5000), "busy on a full disk");
    }
}

/// Puts until one is refused; says how many were not.
fn put_until_full(db: &dyn Engine) -> u32 {
    let is_refused = |row: &u32| match db.put(&key(10_000 + row), &[7; 100]) {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            true
        }
    };
    (0..1_000).find(is_refused).expect("a full disk refuses puts some time")
}

/// What the fault table promises for a full disk, at each level: puts are refused, everything else works, and
/// what deletes freed is written again without a reopen.
#[test]
fn deletes_and_checkpoints_use_the_reserve_and_make_room_for_puts() {
    // As many zeros ahead of a synced log, and as much in memory, as the reserve lets pass.
    let mut usual_buffers = synchronous();
    usual_buffers.log_buffer_bytes_max = 64 << 10;
    for mut options in [without_checkpoints(), synchronous(), usual_buffers] {
        // What a store of this size has that is not tiny.
        options.reserve_bytes_max = 64 << 10;
        let (bed, disk, db) = full_store(&options);
        let added = put_until_full(&*db);
        db.delete(&key(0)).unwrap();
        db.sync().unwrap();
        let mut batch = WriteBatch::new();
        for row in 1..20 {
            batch.delete(key(row));
        }
        db.write(batch).unwrap();
        db.compare_and_swap(&key(20), Some(&[7; 100]), None).unwrap();
        db.delete_range(&KeyRange { start: key(21), end: Some(key(ROWS / 2)) }).unwrap();
        (ROWS / 2..ROWS).for_each(|row| db.delete(&key(row)).unwrap());
        db.sync().unwrap();
        let left = rows(&*db).unwrap();
        assert_eq!(left.len() as u32, added, "{options:?}");
        // What a power cut leaves now is what there is: the checkpoint, or the commit log, had its room.
        let image = disk.crash_image(Keep::SyncedOnly);
        image.set_capacity(None);
        let after = Bed::new(1 << 20).open(image, options.clone()).unwrap();
        assert!(rows(&*after).unwrap() == left, "{options:?}");
        drop(after);
        pass(&bed, 4);
        db.close().unwrap();
        let db = bed.open(disk.clone(), options.clone()).unwrap();
        let resumed = (0..ROWS / 2).filter(|row| db.put(&key(*row), &[8; 100]).is_ok()).count();
        assert!(resumed > 50, "{resumed} puts where {ROWS} rows were deleted, {options:?}");
    }
}

/// Room that somebody else frees is used at once: no checkpoint has to come first.
#[test]
fn puts_resume_by_themselves_when_there_is_room() {
    for options in [without_checkpoints(), synchronous()] {
        let (bed, disk, db) = full_store(&options);
        put_until_full(&*db);
        db.delete(&key(0)).unwrap();
        bed.clock.advance(Duration::from_secs(3601));
        bed.rests_within(5000);
        disk.set_capacity(None);
        db.put(b"more", &[7; 100]).unwrap();
        db.sync().unwrap();
        assert_eq!(reserve_bytes(&disk), options.reserve_bytes_max, "{options:?}");
    }
}

/// E-12: while what was kept back is in use, a put must not take it: not even into a buffer that has room.
#[test]
fn no_put_begins_while_the_reserve_is_short() {
    for options in [without_checkpoints(), synchronous()] {
        let (_bed, disk, db) = full_store(&options);
        put_until_full(&*db);
        db.delete(&key(0)).unwrap();
        if options.settings.durability == without_checkpoints().settings.durability {
            // Where there is no commit log, it is checkpoints that need room for deletes; a journal that goes
            // gives them some.
            for row in 1..ROWS {
                db.sync().unwrap();
                if reserve_bytes(&disk) < options.reserve_bytes_max {
                    break;
                }
                db.delete(&key(ROWS - row)).unwrap();
            }
        }
        assert!(reserve_bytes(&disk) < options.reserve_bytes_max, "{options:?}");
        for row in 0..ROWS {
            assert_eq!(db.put(&key(row), b"").unwrap_err().kind(), ErrorKind::NoSpace, "{options:?}");
        }
        let mut batch = WriteBatch::new();
        batch.delete(key(1));
        batch.put(key(2), b"");
        assert_eq!(db.write(batch).unwrap_err().kind(), ErrorKind::NoSpace, "{options:?}");
        assert!(db.get(&key(1), None).unwrap().is_some(), "{options:?}");
    }
}

/// Who opens, reads and closes writes nothing that cannot wait, with a reserve and without.
#[test]
fn a_store_on_a_full_disk_is_opened_read_and_closed() {
    for has_reserve in [true, false] {
        let (bed, disk, db) = full_store(&without_checkpoints());
        db.close().unwrap();
        drop(db);
        if !has_reserve {
            assert!(disk.lose(RESERVE));
        }
        disk.set_capacity(Some(disk.total_bytes()));
        for _ in 0..3 {
            let db = bed.open(disk.clone(), without_checkpoints()).unwrap();
            assert_eq!(rows(&*db).unwrap().len() as u32, ROWS);
            if !has_reserve {
                // The run before may have given it up: what is left of its room is not for new data.
                assert_eq!(db.put(b"a", b"a").unwrap_err().kind(), ErrorKind::NoSpace);
            }
            db.close().unwrap();
            disk.set_capacity(Some(disk.total_bytes()));
        }
    }
}

/// A reserve is a help, not a condition: a disk that cannot make one takes writes like any other.
#[test]
fn a_disk_that_cannot_allocate_is_used_without_a_reserve() {
    let bed = Bed::new(1 << 20);
    let faulty = FaultyDisk::new(MemoryDisk::new(1));
    faulty.fail(Some(Call::Allocate), 0, Fault::Io, Times::Always);
    let db = bed.open(faulty.clone(), without_checkpoints()).unwrap();
    for row in 0..ROWS {
        db.put(&key(row), &[7; 100]).unwrap();
    }
    db.sync().unwrap();
    faulty.fail(Some(Call::Write), 0, Fault::NoSpace, Times::Always);
    put_until_full(&*db);
    faulty.heal();
    db.put(b"more", b"again").unwrap();
    db.close().unwrap();
}
