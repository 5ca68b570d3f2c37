//! The engine `teks` behind the façade: rows at the limits, files that are missing, short, strange or noise,
//! and what a repair saves of them.
#![expect(clippy::disallowed_methods, reason = "these tests copy and damage files")]

use std::{collections::BTreeMap, fs, path::Path};

use kvilt::{Builder, Db, Engine, Error, ErrorKind, KEY_BYTES_MAX, KeyRange, VALUE_BYTES_MAX, teks::Options};

use crate::directories::{copied, files};

fn builder(path: &Path) -> Builder {
    // A memory table has 128 KiB, so some thousand rows are flushed and merged.
    Db::builder(path).engine(Engine::Teks(Options::default())).memory_budget(1 << 20)
}

fn rows_of(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    db.iter().map(|row| row.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

/// A closed store with sorted tables, and what each of its keys has.
fn filled(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let db = builder(path).open().unwrap();
    for round in 0..3_u8 {
        for i in 0..4000_u32 {
            db.put(format!("key{i:05}"), [round; 150]).unwrap();
        }
        db.delete_range(format!("key{:05}", 100 * u32::from(round))..format!("key{:05}", 300)).unwrap();
    }
    (0..4000_u32).step_by(5).for_each(|i| db.delete(format!("key{i:05}")).unwrap());
    let rows = rows_of(&db);
    // The background merges what lies in level 0.
    while db.stats()["merges"] == 0 {
        std::thread::yield_now();
    }
    db.close().unwrap();
    rows
}

fn refused(path: &Path) -> Option<Error> {
    match builder(path).open() {
        Err(error) => Some(error),
        Ok(db) => db.iter().find_map(Result::err),
    }
}

#[test]
fn keys_and_values_of_every_length_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let keys = [0, 1, 2, 255, 4000, 20_000, KEY_BYTES_MAX - 1, KEY_BYTES_MAX];
    let values = [0, 1, 30, 4096, 70_000, 128 << 10, 1 << 20, VALUE_BYTES_MAX];
    let value = |len: usize| (0..len).map(|i| (i * 7 + len) as u8).collect::<Vec<u8>>();
    let check = |db: &Db| {
        for (i, len) in keys.into_iter().enumerate() {
            assert_eq!(db.get(vec![b'k'; len]).unwrap().as_deref(), Some(&value(i)[..]), "key of {len}");
        }
        for len in values {
            assert!(*db.get(format!("v{len}")).unwrap().unwrap() == *value(len), "value of {len}");
        }
        assert_eq!(db.iter().keys().count(), keys.len() + values.len());
        assert!(db.check().unwrap().damages.is_empty());
    };
    let db = builder(dir.path()).open().unwrap();
    for (i, len) in keys.into_iter().enumerate() {
        db.put(vec![b'k'; len], value(i)).unwrap();
    }
    values.into_iter().for_each(|len| db.put(format!("v{len}"), value(len)).unwrap());
    check(&db);
    db.close().unwrap();
    drop(db);
    check(&builder(dir.path()).open().unwrap());
}

/// Each range tombstone stayed in memory and in the catalogue: 400,000 were 197 MB under a budget of 1 MiB.
#[test]
fn many_range_deletes_of_few_rows_leave_few_tombstones() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder(dir.path()).open().unwrap();
    let key = |number: u32| format!("key{number:05}").into_bytes();
    let mut rows = BTreeMap::new();
    for number in 0..30_000 {
        db.put(key(number), [number as u8; 40]).unwrap();
        rows.insert(key(number), vec![number as u8; 40]);
    }
    let (before, all_rows) = (db.snapshot(), rows.clone());
    for i in 0..6000_u32 {
        // Some have two rows, some none any more, and some more than are deleted one by one.
        let first = i * 7919 % 30_000;
        let end = first + if i % 500 == 0 { 100 } else { 2 };
        db.delete_range(key(first)..key(end)).unwrap();
        (first..end).for_each(|number| drop(rows.remove(&key(number))));
        if i % 10 == 0 {
            db.put(key(first), "again").unwrap();
            rows.insert(key(first), b"again".to_vec());
        }
    }
    // Half of a memory table's bytes, 64 KiB, are some 400.
    let tombstones = db.stats()["range_deletes_now"];
    assert!((100..500).contains(&tombstones), "{tombstones} range tombstones");
    assert_eq!(rows_of(&db), rows);
    assert!(before.iter().map(|row| row.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).eq(all_rows));
    db.close().unwrap();
    assert_eq!(rows_of(&builder(dir.path()).open().unwrap()), rows);
}

#[test]
fn a_file_that_is_missing_short_or_anothers_is_told_by_name_and_repaired_around() {
    let place = tempfile::tempdir().unwrap();
    let (store, other) = (place.path().join("store"), place.path().join("other"));
    let rows = filled(&store);
    filled(&other);
    let mut number = 0;
    for ending in ["table", "redo", "levels"] {
        let victim = files(&store, ending)[0].clone();
        let whole = fs::metadata(&victim).unwrap().len() as usize;
        for how in ["missing", "short", "empty", "another's", "noise", "a directory"] {
            number += 1;
            let hurt = copied(&store, &place.path().join(format!("hurt{number}")));
            let file = hurt.join(victim.file_name().unwrap());
            match how {
                "missing" => fs::remove_file(&file).unwrap(),
                "short" => fs::write(&file, &fs::read(&file).unwrap()[..whole / 2]).unwrap(),
                "empty" => fs::write(&file, "").unwrap(),
                "noise" => fs::write(&file, vec![0xa5; whole]).unwrap(),
                "a directory" => {
                    fs::remove_file(&file).unwrap();
                    fs::create_dir(&file).unwrap();
                }
                _ => assert!(fs::copy(&files(&other, ending)[0], &file).unwrap() > 0),
            }
            let what = format!("{ending} {how}");
            let error = refused(&hurt);
            if let Some(error) = &error {
                assert_eq!(error.kind(), ErrorKind::Corrupted, "{what}: {error}");
            } else {
                // What is cut off of a segment may be free room.
                assert!(ending == "redo" && rows_of(&builder(&hurt).open().unwrap()) == rows, "{what}");
            }
            let new = place.path().join(format!("new{number}"));
            let report = kvilt::repair(&hurt, &new).unwrap();
            let is_whole = report.is_proven && report.losses.is_empty();
            // A directory is refused, though the file that it stands for may be free room.
            assert!(error.is_none() == is_whole || how == "a directory", "{what}: {report:?}");
            let db = Db::open(&new).unwrap();
            assert_eq!(db.engine_name(), "teks");
            let left = rows_of(&db);
            // Without a catalogue nothing tells what range deletes have hidden.
            let is_right = |(key, value): (&Vec<u8>, &Vec<u8>)| match rows.get(key) {
                Some(right) => value == right || !report.is_proven,
                None => !report.is_proven,
            };
            assert!(left.iter().all(is_right), "{what}");
            let lost = |key: &[u8]| report.losses.iter().any(|loss| is_in(key, loss.range.as_ref()));
            assert!(rows.keys().all(|key| left.contains_key(key) || lost(key)), "{what}: {report:?}");
            assert!(db.check().unwrap().damages.is_empty(), "{what}");
        }
    }
}

fn is_in(key: &[u8], range: Option<&KeyRange>) -> bool {
    range.is_some_and(|range| range.contains(key))
}

/// Whatever one byte says, the rows are right or there is an error; and a repair gives back what is there.
#[test]
fn any_byte_of_a_catalogue_or_a_name_may_be_wrong() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    let rows = filled(&store);
    for file in [files(&store, "levels")[0].clone(), store.join("ENGINE")] {
        let good = fs::read(&file).unwrap();
        for at in (0..good.len()).step_by(good.len().div_ceil(12)) {
            let hurt = copied(&store, &place.path().join(format!("{at}")));
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            fs::write(hurt.join(file.file_name().unwrap()), bytes).unwrap();
            let told = refused(&hurt).unwrap();
            assert!(
                matches!(told.kind(), ErrorKind::Corrupted | ErrorKind::UnsupportedVersion),
                "byte {at}: {told}"
            );
            if told.kind() == ErrorKind::Corrupted {
                let new = place.path().join("new");
                let report = kvilt::repair(&hurt, &new).unwrap();
                assert_eq!(report.is_proven, file.ends_with("ENGINE"), "byte {at}: {report:?}");
                let left = rows_of(&Db::open(&new).unwrap());
                assert!(rows.iter().all(|(key, value)| left.get(key) == Some(value)), "byte {at}");
                assert!(left == rows || !report.is_proven, "byte {at}");
                fs::remove_dir_all(&new).unwrap();
            }
            fs::remove_dir_all(&hurt).unwrap();
        }
    }
}
