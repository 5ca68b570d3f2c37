//! Slots that are used again, and what crashes at any moment of it leave (K-3, K-4, K-6, K-9).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use std::sync::Arc;

use bed::{ASYNC, Rows, SYNC, key, open, open_with, put_round, rows, rows_of};
use kvilt_base::{Engine, FileName, WriteBatch};
use kvilt_format::{
    names::{ROOT, SLAB},
    slab::{PAGE_BYTES, ROOT_COPY_BYTES},
};
use kvilt_io::{Call, Fault, FaultyDisk, Keep, MemoryDisk, Times};

const KEYS: u32 = 40;

fn keeps() -> impl Iterator<Item = Keep> {
    [Keep::SyncedOnly, Keep::All].into_iter().chain((0..6).map(Keep::Random))
}

/// K-3: whatever else shares the block, and however the process dies after it.
#[test]
fn a_put_that_was_refused_is_absent_after_a_kill() {
    for (call, durability) in [(Call::Write, ASYNC), (Call::QueueWrite, SYNC)] {
        let disk = MemoryDisk::new(3);
        let faulty = FaultyDisk::new(disk.clone());
        let db = open_with(faulty.clone(), 1, durability).unwrap();
        db.put(b"a", b"1").unwrap();
        let refused = |key: &[u8]| {
            let met = faulty.met();
            faulty.fail(Some(call), 0, Fault::NoSpace, Times::Always);
            db.put(key, b"refused").unwrap_err();
            faulty.heal();
            assert!(faulty.met() > met, "{call:?}");
        };
        refused(b"b");
        db.put(b"a", b"2").unwrap();
        refused(b"a");
        let expected = Rows::from([(b"a".to_vec(), b"2".to_vec())]);
        assert_eq!(rows(&*db), expected);
        assert_eq!(rows_of(disk.kill_image()), expected, "{call:?}");
    }
}

/// K-3: the device wrote the item and then said that it had failed. The first of the two images that the
/// file has had must be there again before the error is reported.
#[test]
fn a_write_that_failed_is_followed_by_one_that_takes_it_back() {
    let disk = MemoryDisk::new(3);
    let faulty = FaultyDisk::new(disk.clone());
    let db = open(faulty.clone());
    db.put(b"a", b"1").unwrap();
    let writes = faulty.calls(Call::Write);
    faulty.fail(Some(Call::Write), 0, Fault::Io, Times::Once);
    db.put(b"b", b"refused").unwrap_err();
    assert_eq!(faulty.calls(Call::Write) + faulty.calls(Call::QueueWrite) - writes, 2);
    // And if that fails, too, nothing is written any more.
    faulty.fail(Some(Call::Write), 0, Fault::Io, Times::Always);
    db.put(b"b", b"refused").unwrap_err();
    faulty.heal();
    assert_eq!(db.put(b"c", b"3").unwrap_err().kind(), kvilt_base::ErrorKind::Poisoned);
}

/// K-4: all slots are written again and again, and a power cut at any time brings the last cut's rows back.
#[test]
fn what_a_power_cut_brings_back_was_not_written_over() {
    let disk = MemoryDisk::new(3);
    let db = open(disk.clone());
    let (mut model, mut durable) = (Rows::new(), Rows::new());
    for round in 0..30 {
        put_round(&*db, 0..KEYS, round, &mut model);
        for number in (0..KEYS).filter(|number| (number + round).is_multiple_of(7)) {
            db.delete(&key(number)).unwrap();
            model.remove(&key(number));
        }
        for keep in keeps() {
            assert_eq!(rows_of(disk.crash_image(keep)), durable, "round {round}, {keep:?}");
        }
        assert_eq!(rows_of(disk.kill_image()), model, "round {round}");
        if round % 4 == 3 {
            db.sync().unwrap();
            durable.clone_from(&model);
        }
    }
    let figures = db.stats();
    assert!(figures["slots_free_now"] > 0, "{figures:?}");
}

/// K-4: the slots of a view stay, whatever cuts come.
#[test]
fn what_a_view_sees_is_not_written_over() {
    let db = open(MemoryDisk::new(3));
    let mut model = Rows::new();
    put_round(&*db, 0..KEYS, 0, &mut model);
    let view = db.view().unwrap();
    let seen = model.clone();
    for round in 1..6 {
        put_round(&*db, 0..KEYS, round, &mut model);
        db.sync().unwrap();
        for (key, value) in &seen {
            let mut found = Vec::new();
            db.get_with(key, Some(&view), &mut |value| found = value.to_vec()).unwrap();
            assert_eq!(found, *value);
        }
    }
    drop(view);
    db.sync().unwrap();
    assert_eq!(rows(&*db), model);
}

/// A store with rows whose slots were free in the last cut but one, and the rows.
fn reused(disk: Arc<MemoryDisk>) -> (Arc<dyn Engine>, Rows) {
    let db = open(disk);
    let mut model = Rows::new();
    for round in 0..4 {
        put_round(&*db, 0..KEYS, round, &mut model);
        db.sync().unwrap();
    }
    (db, model)
}

/// K-9: whichever copy of the root is damaged, the other one brings no rows back that were written over.
#[test]
fn either_copy_of_the_root_brings_the_last_cut_back() {
    let disk = MemoryDisk::new(3);
    let (db, model) = reused(disk.clone());
    // Into the slots that the last cut has freed.
    put_round(&*db, 0..KEYS, 9, &mut model.clone());
    for copy in 0..2 {
        let image = disk.crash_image(Keep::All);
        assert!(image.flip_bit(ROOT, copy * ROOT_COPY_BYTES as u64 + 17, 3));
        assert_eq!(rows_of(image), model, "copy {copy}");
    }
}

/// K-9: and if the second copy was not written, nothing is free.
#[test]
fn a_cut_whose_second_root_fails_frees_nothing() {
    let disk = MemoryDisk::new(3);
    let faulty = FaultyDisk::new(disk.clone());
    let db = open(faulty.clone());
    let mut model = Rows::new();
    for round in 0..3 {
        put_round(&*db, 0..KEYS, round, &mut model);
        db.sync().unwrap();
    }
    let before = model.clone();
    put_round(&*db, 0..KEYS, 3, &mut model);
    // The map's pages of two classes at most, and the first copy of the root.
    for nth in 0..4 {
        faulty.fail(Some(Call::Write), nth, Fault::NoSpace, Times::Once);
        let outcome = db.sync();
        let is_cut = outcome.is_ok();
        faulty.heal();
        let mut later = model.clone();
        put_round(&*db, 0..KEYS, 10 + nth as u32, &mut later);
        for copy in 0..2 {
            let image = disk.crash_image(Keep::All);
            image.flip_bit(ROOT, copy * ROOT_COPY_BYTES as u64 + 17, 3);
            let found = rows_of(image);
            assert!(found == model || !is_cut && found == before, "write {nth}, copy {copy}");
        }
        if is_cut {
            return;
        }
        put_round(&*db, 0..KEYS, 3, &mut model);
    }
    panic!("a cut has three writes here");
}

/// K-6: a cut is torn at each of its calls, and so is the recovery behind it.
#[test]
fn a_torn_map_page_is_not_the_one_that_counts() {
    for call in 0..40 {
        let disk = MemoryDisk::new(3);
        let (db, before) = reused(disk.clone());
        let mut model = before.clone();
        put_round(&*db, 0..KEYS, 9, &mut model);
        disk.set_crash_at(Some(disk.ops() + call));
        let is_done = db.sync().is_ok();
        for keep in keeps() {
            let image = disk.crash_image(keep);
            let found = rows_of(image.crash_image(Keep::All));
            assert!(found == before || found == model, "call {call}, {keep:?}");
            is_crashed_in_recovery(&image, &found, keep);
        }
        if is_done {
            assert!(call > 5, "a cut has {call} calls");
            return;
        }
    }
    panic!("a cut has fewer calls");
}

/// A power cut comes to a cut that has written the first map page of a size class, and synced nothing: the
/// page is on the disk, and the length of the slab is lost. The recovery's cut has the same number.
#[test]
fn a_map_page_of_a_cut_that_came_to_nothing_never_counts() {
    let disk = MemoryDisk::new(3);
    let (db, before) = reused(disk.clone());
    let slabs = |disk: &MemoryDisk| disk.snapshot().into_keys().filter(|name| name.kind() == SLAB);
    let old: Vec<FileName> = slabs(&disk).collect();
    db.put(b"of another class", &vec![7; 900]).unwrap();
    let new = slabs(&disk).find(|name| !old.contains(name)).unwrap();
    let map_pages = 1;
    disk.set_crash_at(Some(disk.ops() + map_pages));
    db.sync().unwrap_err();
    let image = disk.crash_image(Keep::All);
    assert!(image.truncate(new, PAGE_BYTES as u64));
    for opened in 1..4 {
        assert_eq!(rows_of(image.clone()), before, "opened {opened} times");
    }
}

/// The recovery of an image, crashed at each call and recovered again.
fn is_crashed_in_recovery(image: &MemoryDisk, expected: &Rows, keep: Keep) {
    for call in 0..60 {
        let disk = image.crash_image(Keep::All);
        disk.set_crash_at(Some(call));
        let is_done = open_with(disk.clone(), 1, ASYNC).is_ok() && !disk.has_crashed();
        assert_eq!(rows_of(disk.crash_image(keep)), *expected, "call {call} of a recovery");
        if is_done {
            return;
        }
    }
    panic!("a recovery has fewer calls");
}

/// A sync fails, and what it should have made durable stays in the kernel's cache, taken for clean. The store
/// is opened again, and then the power goes.
#[test]
fn what_an_open_found_after_a_failed_sync_is_durable() {
    for nth in 0..8 {
        let disk = MemoryDisk::new(3);
        let faulty = FaultyDisk::new(disk.clone());
        let db = open(faulty.clone());
        let mut model = Rows::new();
        put_round(&*db, 0..KEYS, 0, &mut model);
        db.sync().unwrap();
        put_round(&*db, 0..KEYS, 1, &mut model);
        db.put(b"long", &vec![7; 20 << 10]).unwrap();
        faulty.fail(Some(Call::Sync), nth, Fault::LostSync, Times::Once);
        let has_failed = db.sync().is_err();
        faulty.heal();
        drop(db);
        let db = open(faulty.clone());
        let found = rows(&*db);
        for keep in keeps() {
            assert_eq!(rows_of(disk.crash_image(keep)), found, "sync {nth}, {keep:?}");
        }
        if !has_failed {
            assert!(nth > 3);
            return;
        }
    }
    panic!("a cut has fewer syncs");
}

/// A process dies at each call of a store's first cut; what the next open finds is durable when it returns.
#[test]
fn what_an_open_found_after_a_kill_is_durable() {
    for call in 0..60 {
        let disk = MemoryDisk::new(3);
        let db = open_with(disk.clone(), 2, ASYNC).unwrap();
        let mut model = Rows::new();
        let first = disk.ops();
        put_round(&*db, 0..8, 0, &mut model);
        let before_cut = disk.ops() - first;
        drop(db);
        let disk = MemoryDisk::new(3);
        let db = open_with(disk.clone(), 2, ASYNC).unwrap();
        put_round(&*db, 0..8, 0, &mut model);
        assert_eq!(disk.ops() - first, before_cut);
        disk.set_crash_at(Some(disk.ops() + call));
        let is_done = db.sync().is_ok();
        let killed = disk.kill_image();
        let db = open_with(killed.clone(), 2, ASYNC).unwrap();
        assert_eq!(rows(&*db), model, "call {call}");
        for keep in keeps().chain((0..8).map(Keep::Prefix)) {
            assert_eq!(rows_of(killed.crash_image(keep)), model, "call {call}, {keep:?}");
        }
        if is_done {
            return;
        }
    }
    panic!("a cut has fewer calls");
}

/// Slots of a batch of which an item was refused do not count, and none of its other items does.
#[test]
fn a_batch_that_was_refused_is_absent_after_a_kill() {
    for nth in 0..6 {
        let disk = MemoryDisk::new(3);
        let faulty = FaultyDisk::new(disk.clone());
        let db = open_with(faulty.clone(), 2, ASYNC).unwrap();
        let mut model = Rows::new();
        put_round(&*db, 0..KEYS, 0, &mut model);
        let mut batch = WriteBatch::new();
        for number in 0..KEYS {
            batch.put(key(number), vec![7; 40 * number as usize]);
        }
        faulty.fail(Some(Call::QueueWrite), nth, Fault::NoSpace, Times::Always);
        db.write(batch).unwrap_err();
        faulty.heal();
        assert_eq!(rows(&*db), model);
        assert_eq!(rows_of(disk.kill_image()), model, "write {nth}");
    }
}
