//! What a salvage saves of stores that were not closed: what an open would show; of damaged ones the rest.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use std::collections::BTreeMap;

use bed::{ASYNC, Rows, SYNC, key, open_with, put_round, rows_of};
use kvilt_base::{Descriptor as _, ErrorKind, FileName, KeyRange, RepairReport, Salvaged, WriteBatch};
use kvilt_format::names::{MAP, SLAB};
use kvilt_io::{Keep, MemoryDisk};
use kvilt_kvell::Options;

const KEYS: u32 = 60;

/// What is saved, and the report.
fn saved(disk: &MemoryDisk) -> (Rows, RepairReport) {
    let mut rows = Rows::new();
    let mut save = |salvaged: Salvaged<'_>| {
        let Salvaged::Row(key, value) = salvaged else { panic!("a row and nothing else") };
        assert!(rows.insert(key.to_vec(), value.to_vec()).is_none(), "twice");
        Ok(())
    };
    let report = Options::default().salvage(disk, &mut save, &mut |_, _| {}).unwrap();
    assert_eq!(report.rows as usize, rows.len());
    (rows, report)
}

/// A kill, and a power cut at each level, in a store that has all kinds of items behind its cut.
#[test]
fn of_a_store_that_was_not_closed_what_an_open_shows_is_saved_and_proven() {
    for (shards, durability) in [(1, ASYNC), (3, ASYNC), (3, SYNC)] {
        let disk = MemoryDisk::new(5);
        let db = open_with(disk.clone(), shards, durability).unwrap();
        let mut model = Rows::new();
        let mut last = Rows::new();
        for round in 0..12 {
            put_round(&*db, 0..KEYS, round, &mut model);
            let mut batch = WriteBatch::new();
            for number in (0..KEYS).step_by(7) {
                batch.put(key(number), [round as u8; 300]);
                batch.delete(key(number + 1));
                model.insert(key(number), vec![round as u8; 300]);
                model.remove(&key(number + 1));
            }
            db.write(batch).unwrap();
            let range = KeyRange { start: key(round), end: Some(key(round + 3)) };
            db.delete_range(&range).unwrap();
            model.retain(|key, _| !range.contains(key));
            db.delete(&key(40 + round)).unwrap();
            model.remove(&key(40 + round));
            let images = [disk.kill_image()]
                .into_iter()
                .chain([Keep::SyncedOnly, Keep::All].map(|keep| disk.crash_image(keep)));
            for image in images.chain((0..4).map(|seed| disk.crash_image(Keep::Random(seed)))) {
                let (rows, report) = saved(&image);
                assert!(report.is_proven && report.losses.is_empty(), "{report:?}");
                last.clone_from(&rows);
                assert_eq!(rows, rows_of(image), "{shards} shards, {durability:?}, round {round}");
            }
            assert_eq!(saved(&disk.kill_image()).0, model);
            if round % 4 == 3 {
                db.sync().unwrap();
            }
        }
        assert_eq!(last == model, durability == SYNC, "a power cut takes back what is behind the cut");
    }
}

/// Where in a file these bytes are.
fn place_of(disk: &MemoryDisk, bytes: &[u8]) -> (FileName, u64) {
    let slabs: BTreeMap<FileName, Vec<u8>> = disk.snapshot();
    let mut places = slabs.iter().filter(|(name, _)| name.kind() == SLAB).flat_map(|(name, all)| {
        let at = all.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
        at.map(|(offset, _)| (*name, offset as u64))
    });
    let place = places.next().expect("it is in a slab");
    assert_eq!(places.next(), None, "it is there once");
    place
}

/// One damaged row is no reason to lose another; but nobody knows whose it was, so no open can answer.
#[test]
fn a_damaged_row_of_a_killed_store_is_named_by_the_open_and_all_others_are_saved() {
    let disk = MemoryDisk::new(6);
    let db = open_with(disk.clone(), 2, ASYNC).unwrap();
    let mut model = Rows::new();
    put_round(&*db, 0..KEYS, 0, &mut model);
    db.put(b"victim", b"a value that is damaged").unwrap();
    db.sync().unwrap();
    put_round(&*db, 10..20, 1, &mut model);
    let image = disk.kill_image();
    let (name, offset) = place_of(&image, b"a value that is damaged");
    assert!(image.flip_bit(name, offset, 2));
    let error = open_with(image.clone(), 2, ASYNC).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupted);
    assert_eq!(error.file(), Some(&*name.to_string()));
    assert!(error.offset().is_some_and(|at| at <= offset && offset - at < 100), "{error}");
    assert!(error.to_string().contains("kvilt repair"), "{error}");
    let (rows, report) = saved(&image);
    assert_eq!(rows, model);
    assert!(report.is_proven);
    let [loss] = &report.losses[..] else { panic!("one loss: {report:?}") };
    assert_eq!((loss.file.as_deref(), loss.offset), (error.file(), error.offset()));
}

/// B-4: what cannot be read of a batch behind the cut makes it one that was torn, for an open and a salvage.
#[test]
fn of_a_batch_behind_the_cut_with_a_damaged_item_nothing_is_saved() {
    let disk = MemoryDisk::new(7);
    let db = open_with(disk.clone(), 2, ASYNC).unwrap();
    let mut model = Rows::new();
    put_round(&*db, 0..KEYS, 0, &mut model);
    db.sync().unwrap();
    let mut batch = WriteBatch::new();
    for number in 0..9 {
        batch.put(key(number), format!("of the batch {number}"));
    }
    db.write(batch).unwrap();
    put_round(&*db, 30..34, 1, &mut model);
    let image = disk.kill_image();
    let (name, offset) = place_of(&image, b"of the batch 4");
    assert!(image.flip_bit(name, offset, 2));
    assert_eq!(saved(&image).0, model);
    assert_eq!(rows_of(image), model);
}

/// Without its maps nothing tells which rows were deleted.
#[test]
fn without_a_map_all_that_is_found_is_saved_and_nothing_is_proven() {
    let disk = MemoryDisk::new(8);
    let db = open_with(disk.clone(), 1, ASYNC).unwrap();
    let mut model = Rows::new();
    put_round(&*db, 0..KEYS, 0, &mut model);
    put_round(&*db, 0..KEYS / 2, 1, &mut model);
    db.close().unwrap();
    let image = disk.crash_image(Keep::All);
    assert!(image.flip_bit(FileName::Of(MAP, 0), 100, 1));
    let error = open_with(image.clone(), 1, ASYNC).map(drop).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::Corrupted, Some("0000000000000000.map")), "{error}");
    let (rows, report) = saved(&image);
    assert_eq!(rows, model, "the newest of each key");
    assert!(!report.is_proven);
    assert!(report.losses[0].range == Some(KeyRange::all()), "{report:?}");
}
