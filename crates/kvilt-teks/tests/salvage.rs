//! What a salvage saves of stores that were not closed: what an open would show; of damaged ones the rest,
//! and no row that was deleted or overwritten, where that can be known.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use std::sync::Arc;

use bed::{ASYNC, Rows, SYNC, key, rows};
use kvilt_base::{
    Descriptor as _, Disk, Durability, Engine, ErrorKind, FileName, KeyRange, RepairReport, Result, Salvaged,
    WriteBatch,
};
use kvilt_format::names::{LEVELS, REDO, TABLE};
use kvilt_io::{Keep, MemoryDisk};
use kvilt_teks::Options;

const KEYS: u32 = 400;

fn open(disk: Arc<dyn Disk>, durability: Durability) -> Result<Arc<dyn Engine>> {
    bed::open(disk, durability).map(|(db, _)| db)
}

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

/// A round of puts, deletes, a batch and a range delete.
fn change(db: &dyn Engine, round: u32, model: &mut Rows) {
    let mut put = |number: u32, bytes: usize| {
        let value = [round.to_be_bytes().to_vec(), vec![number as u8; bytes]].concat();
        db.put(&key(number), &value).unwrap();
        model.insert(key(number), value);
    };
    (0..KEYS).filter(|number| number % 3 != round % 3).for_each(|number| put(number, 200));
    let mut batch = WriteBatch::new();
    for number in (0..KEYS).step_by(7) {
        batch.put(key(number), [round as u8; 300]);
        batch.delete(key(number + 1));
        model.insert(key(number), vec![round as u8; 300]);
        model.remove(&key(number + 1));
    }
    db.write(batch).unwrap();
    let range = KeyRange { start: key(round * 10), end: Some(key(round * 10 + 25)) };
    db.delete_range(&range).unwrap();
    model.retain(|key, _| !range.contains(key));
    db.delete(&key(300 + round)).unwrap();
    model.remove(&key(300 + round));
}

/// A store after some rounds, closed, and its rows.
fn closed(seed: u64, rounds: u32) -> (Arc<MemoryDisk>, Rows) {
    let disk = MemoryDisk::new(seed);
    let db = open(disk.clone(), ASYNC).unwrap();
    let mut model = Rows::new();
    (0..rounds).for_each(|round| change(&*db, round, &mut model));
    db.close().unwrap();
    drop(db);
    assert!(files(&disk, TABLE).len() > 2, "{:?}", disk.snapshot().keys());
    (disk, model)
}

fn files(disk: &MemoryDisk, kind: kvilt_base::disk::FileKind) -> Vec<(FileName, u64)> {
    let all = disk.snapshot();
    all.iter()
        .filter(|(name, _)| name.kind() == kind)
        .map(|(name, bytes)| (*name, bytes.len() as u64))
        .collect()
}

/// Each key outside of the losses is as it was, and within there is no value but its last.
fn assert_never_older(saved: &(Rows, RepairReport), model: &Rows, what: &str) {
    let (rows, report) = saved;
    let is_lost = |key: &[u8]| {
        report.losses.iter().any(|loss| loss.range.as_ref().is_some_and(|range| range.contains(key)))
    };
    for key in model.keys().chain(rows.keys()) {
        let (found, right) = (rows.get(key), model.get(key));
        assert!(found == right || found.is_none() && is_lost(key), "{what}: {key:?}: {found:?}, {right:?}");
    }
}

/// A kill, and power cuts, at each level.
#[test]
fn of_a_store_that_was_not_closed_what_an_open_shows_is_saved_and_proven() {
    for durability in [ASYNC, SYNC] {
        let disk = MemoryDisk::new(5);
        let db = open(disk.clone(), durability).unwrap();
        let (mut model, mut last) = (Rows::new(), Rows::new());
        for round in 0..10 {
            change(&*db, round, &mut model);
            let cuts = [Keep::SyncedOnly, Keep::All].into_iter().chain((0..4).map(Keep::Random));
            for image in [disk.kill_image()].into_iter().chain(cuts.map(|keep| disk.crash_image(keep))) {
                let (found, report) = saved(&image);
                assert!(report.is_proven && report.losses.is_empty(), "{report:?}");
                last.clone_from(&found);
                let opened = open(image, durability).unwrap();
                assert_eq!(found, rows(&*opened), "{durability:?}, round {round}");
            }
            assert_eq!(saved(&disk.kill_image()).0, model);
            if round % 4 == 3 {
                db.sync().unwrap();
            }
        }
        assert!(last == model || durability == ASYNC);
        assert!(files(&disk, TABLE).len() > 2);
    }
}

/// Any byte of any table: its block is lost, or the whole table, and nothing older takes its place.
#[test]
fn of_a_damaged_table_the_other_blocks_are_saved_and_nothing_older_takes_their_place() {
    let (disk, model) = closed(6, 8);
    let sound = saved(&disk);
    assert!(sound.0 == model && sound.1.is_proven && sound.1.losses.is_empty(), "{:?}", sound.1);
    let mut withheld = 0;
    for (name, len) in files(&disk, TABLE) {
        for at in (0..len).step_by(997) {
            let hurt = disk.crash_image(Keep::All);
            assert!(hurt.flip_bit(name, at, 3));
            let found = saved(&hurt);
            assert!(found.1.is_proven, "{name} at {at}: {:?}", found.1);
            assert!(found.1.losses.iter().all(|loss| loss.file == Some(name.to_string())), "{:?}", found.1);
            assert_never_older(&found, &model, &format!("{name} at {at}"));
            withheld += found.1.rows_withheld;
        }
        for hurt_by in [MemoryDisk::lose, |disk: &MemoryDisk, name| disk.truncate(name, 100)] {
            let hurt = disk.crash_image(Keep::All);
            assert!(hurt_by(&hurt, name));
            let found = saved(&hurt);
            assert!(found.1.is_proven && found.1.losses.len() == 1, "{:?}", found.1);
            assert_never_older(&found, &model, &name.to_string());
            let error = open(hurt, ASYNC).map(drop).unwrap_err();
            assert_eq!((error.kind(), error.file()), (ErrorKind::Corrupted, Some(&*name.to_string())));
        }
    }
    assert!(withheld > 0, "no row lay below a damaged one");
}

#[test]
fn without_a_catalogue_the_newest_of_each_key_is_saved_and_nothing_is_proven() {
    let (disk, model) = closed(7, 8);
    let [(name, len)] = files(&disk, LEVELS)[..] else { panic!("one catalogue") };
    type Hurt = fn(&MemoryDisk, FileName, u64) -> bool;
    let hurts: [Hurt; 3] = [
        |disk, name, _| disk.lose(name),
        |disk, name, len| disk.truncate(name, len / 2),
        |disk, name, len| disk.flip_bit(name, len / 2, 1),
    ];
    for hurt_by in hurts {
        let hurt = disk.crash_image(Keep::All);
        assert!(hurt_by(&hurt, name, len));
        assert_eq!(open(hurt.clone(), ASYNC).map(drop).unwrap_err().kind(), ErrorKind::Corrupted);
        let (found, report) = saved(&hurt);
        assert!(!report.is_proven && report.losses[0].range == Some(KeyRange::all()), "{report:?}");
        for (key, value) in &model {
            assert_eq!(found.get(key), Some(value), "{key:?}");
        }
        // Range deletes that the log does not have any more stood in the catalogue alone.
        assert!(found.len() < model.len() + 60, "{} rows of {}", found.len(), model.len());
    }
}

/// Where in the redo log these bytes are, in which they are once.
fn place_of(disk: &MemoryDisk, bytes: &[u8]) -> (FileName, u64) {
    let all = disk.snapshot();
    let mut places = all.iter().filter(|(name, _)| name.kind() == REDO).flat_map(|(name, all)| {
        let at = all.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
        at.map(|(offset, _)| (*name, offset as u64))
    });
    let place = places.next().expect("it is in the log");
    assert_eq!(places.next(), None);
    place
}

#[test]
fn a_damaged_record_of_the_log_is_told_and_those_behind_it_count() {
    let disk = MemoryDisk::new(8);
    let db = open(disk.clone(), ASYNC).unwrap();
    let mut model = Rows::new();
    (0..6).for_each(|round| change(&*db, round, &mut model));
    db.put(b"victim", b"a value that is damaged").unwrap();
    for number in 0..20 {
        db.delete(&key(number)).unwrap();
        model.remove(&key(number));
    }
    db.put(b"last", b"behind it").unwrap();
    model.insert(b"last".to_vec(), b"behind it".to_vec());
    db.sync().unwrap();
    // A bit of the value, and one of the record's length, which then leads nowhere.
    let (name, offset) = place_of(&disk, b"a value that is damaged");
    let before_value = 1 + 1 + 1 + b"victim".len() as u64 + 1;
    for at in [offset, offset - before_value - 8, offset - before_value - 6] {
        for image in [disk.kill_image(), disk.crash_image(Keep::All)] {
            assert!(image.flip_bit(name, at, 1));
            let error = open(image.clone(), ASYNC).map(drop).unwrap_err();
            assert_eq!((error.kind(), error.file()), (ErrorKind::Corrupted, Some(&*name.to_string())));
            let (found, report) = saved(&image);
            assert_eq!(found, model, "at {at}");
            assert!(!report.is_proven);
            let [loss] = &report.losses[..] else { panic!("one loss: {report:?}") };
            assert_eq!(loss.range, Some(KeyRange::all()));
            assert_eq!((loss.file.as_deref(), loss.offset), (error.file(), error.offset()), "at {at}");
        }
    }
}

/// Of a closed store it is known how long its log was.
#[test]
fn a_log_that_is_cut_off_or_of_which_a_segment_is_missing_is_told() {
    let (disk, model) = closed(9, 7);
    let mut told = 0;
    for (name, len) in files(&disk, REDO) {
        let lens = (0..6).map(|part| len * part / 6).chain([64, 80, 200]);
        for cut in lens.map(Some).chain([None]) {
            let hurt = disk.crash_image(Keep::All);
            assert!(cut.map_or_else(|| hurt.lose(name), |cut| hurt.truncate(name, cut)));
            let found = saved(&hurt);
            let opened = open(hurt, ASYNC).map(|db| rows(&*db));
            match opened {
                Ok(rows) => assert!(rows == model && found == (rows, found.1.clone()), "{name} to {cut:?}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupted, "{name} to {cut:?}: {error}");
                    assert!(!found.1.is_proven && !found.1.losses.is_empty(), "{name} to {cut:?}");
                    told += 1;
                }
            }
        }
    }
    assert!(told > 5, "{told}");
}

/// The records of a segment say whose they are, so its header alone is no loss.
#[test]
fn a_segment_without_its_header_is_saved() {
    let (disk, model) = closed(10, 7);
    for (name, _) in files(&disk, REDO) {
        let hurt = disk.crash_image(Keep::All);
        assert!(hurt.flip_bit(name, 20, 1));
        let (found, report) = saved(&hurt);
        assert!(found == model && report.is_proven, "{name}: {report:?}");
    }
}
