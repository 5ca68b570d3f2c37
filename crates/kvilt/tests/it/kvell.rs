//! The engine `kvell` behind the façade: rows at the limits, space that is used again, files that are
//! missing, short, strange or old, and an index that does not fit.
#![expect(clippy::disallowed_methods, reason = "these tests copy and damage files")]

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use kvilt::{
    Builder, Db, Durability, Engine, Error, ErrorKind, KEY_BYTES_MAX, VALUE_BYTES_MAX, kvell::Options,
};

use crate::directories::{copied, files};

fn builder(path: &Path) -> Builder {
    Db::builder(path).engine(Engine::Kvell(Options::default().shards(2)))
}

fn open(path: &Path) -> Db {
    builder(path).memory_budget(16 << 20).open().unwrap()
}

fn reopened(db: Db) -> Db {
    let path = db.path().to_path_buf();
    db.close().unwrap();
    drop(db);
    open(&path)
}

fn assert_sound(db: &Db) {
    let report = db.check().unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
}

fn disk_bytes(db: &Db) -> u64 {
    db.stats().disk_bytes_now
}

fn shorten(file: &Path, len: usize) {
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[..len]).unwrap();
}

#[test]
fn keys_and_values_of_every_length_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let keys = [0, 1, 2, 255, 4000, 4096, 20_000, KEY_BYTES_MAX - 1, KEY_BYTES_MAX];
    let values = [0, 1, 30, 4000, 4064, 4096, 4097, 70_000, 1 << 20, VALUE_BYTES_MAX];
    let value = |len: usize| (0..len).map(|i| (i * 7 + len) as u8).collect::<Vec<u8>>();
    for (i, len) in keys.into_iter().enumerate() {
        db.put(vec![b'k'; len], value(i)).unwrap();
    }
    for len in values {
        db.put(format!("v{len}"), value(len)).unwrap();
    }
    let db = reopened(db);
    for (i, len) in keys.into_iter().enumerate() {
        assert_eq!(db.get(vec![b'k'; len]).unwrap().as_deref(), Some(&value(i)[..]), "key of {len}");
    }
    for len in values {
        let found = db.get(format!("v{len}")).unwrap().unwrap();
        assert!(*found == *value(len), "value of {len}");
    }
    assert_eq!(db.iter().keys().count(), keys.len() + values.len());
    assert_sound(&db);
}

#[test]
fn keys_that_share_sixty_thousand_bytes_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let key = |i: u32| [&[b'p'; 60 << 10][..], &i.to_be_bytes()].concat();
    for i in (0..300).rev() {
        db.put(key(i), i.to_be_bytes()).unwrap();
    }
    let db = reopened(db);
    let stats = db.stats();
    assert!(stats["index_bytes_now"] < 1 << 20, "what keys share is kept once: {stats:?}");
    for i in 0..300 {
        assert_eq!(db.get(key(i)).unwrap().unwrap(), &i.to_be_bytes());
    }
    let found: Vec<u32> = db
        .range(key(100)..key(200))
        .map(|row| u32::from_be_bytes(row.unwrap().1.as_ref().try_into().unwrap()))
        .collect();
    assert!(found.into_iter().eq(100..200));
    assert_eq!(db.get(&key(7)[1..]).unwrap(), None);
}

/// Rows grow through every size class and shrink again, so that slots of all of them are taken and given
/// back.
#[test]
fn a_row_that_grows_and_shrinks_uses_its_slots_again() {
    // A slot is free after the next cut, which the clock does not make here.
    let never = Durability::Async { interval: Duration::from_secs(3600) };
    let open = |path: &Path| builder(path).memory_budget(16 << 20).durability(never).open().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut db = open(dir.path());
    let lens = [0, 40, 90, 200, 450, 900, 1900, 4000, 9000, 40_000, 200_000];
    let there_and_back: Vec<usize> = lens.into_iter().chain(lens.into_iter().rev()).collect();
    let mut after = Vec::new();
    for round in 0..4_u8 {
        for &len in &there_and_back {
            for row in 0..20_u8 {
                db.put([row], vec![round ^ row; len]).unwrap();
            }
            db.sync().unwrap();
            assert!(
                (0..20_u8).all(|row| db.get([row]).unwrap().unwrap() == vec![round ^ row; len].as_slice())
            );
        }
        after.push(disk_bytes(&db));
        if round == 1 {
            db.close().unwrap();
            drop(db);
            db = open(dir.path());
        }
    }
    assert_eq!(after[1], after[3], "no slab grows in the last rounds: {after:?}");
    assert_eq!(db.iter().count(), 20);
    assert_sound(&db);
}

#[test]
fn space_of_deleted_rows_is_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = open(dir.path());
    let key = |i: u32| i.to_be_bytes();
    let mut full = 0;
    for round in 0..3_u8 {
        for i in 0..5000 {
            db.put(key(i), [round; 500]).unwrap();
        }
        if round == 0 {
            full = disk_bytes(&db);
        }
        assert!(disk_bytes(&db) <= full * 5 / 4, "round {round}: {} after {full}", disk_bytes(&db));
        assert_eq!(db.iter().filter(|row| row.as_ref().unwrap().1 == [round; 500].as_slice()).count(), 5000);
        match round {
            0 => (0..5000).for_each(|i| db.delete(key(i)).unwrap()),
            _ => db.delete_range(..).unwrap(),
        }
        assert_eq!(db.iter().count(), 0);
        db = reopened(db);
        assert_eq!((db.iter().count(), db.stats()["index_keys_now"]), (0, 0));
        assert_sound(&db);
    }
}

/// A closed store, and what each of its keys has.
fn filled(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let db = open(path);
    let mut rows = BTreeMap::new();
    for i in 0..2000_u32 {
        let (key, value) = (format!("key{i:05}").into_bytes(), vec![i as u8; 100 + i as usize % 900]);
        db.put(&key, &value).unwrap();
        rows.insert(key, value);
    }
    db.close().unwrap();
    rows
}

fn rows_of(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    db.iter().map(|row| row.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

/// The error of an open, or of the first read that meets what is wrong.
fn what_is_wrong(path: &Path) -> Error {
    match builder(path).memory_budget(16 << 20).open() {
        Err(error) => error,
        Ok(db) => db.iter().find_map(Result::err).expect("the open or a read fails"),
    }
}

#[test]
fn a_slab_or_map_that_is_missing_short_or_anothers_is_told_by_name_and_repaired_around() {
    let place = tempfile::tempdir().unwrap();
    let (store, other) = (place.path().join("store"), place.path().join("other"));
    let rows = filled(&store);
    filled(&other);
    let mut number = 0;
    for ending in ["slab", "map"] {
        let victim = files(&store, ending)[0].file_name().unwrap().to_owned();
        let whole = fs::metadata(store.join(&victim)).unwrap().len();
        for how in ["missing", "short", "empty", "another's", "noise"] {
            number += 1;
            let hurt = copied(&store, &place.path().join(format!("hurt{number}")));
            // A clean open reads the snapshots of the index, and no slab.
            for index in files(&hurt, "index") {
                fs::remove_file(index).unwrap();
            }
            let file = hurt.join(&victim);
            match how {
                "missing" => fs::remove_file(&file).unwrap(),
                "short" => shorten(&file, whole as usize / 2),
                "empty" => shorten(&file, 0),
                "noise" => fs::write(&file, vec![0xa5; whole as usize]).unwrap(),
                _ => assert!(fs::copy(other.join(&victim), &file).unwrap() > 0),
            }
            let error = what_is_wrong(&hurt);
            assert_eq!(error.kind(), ErrorKind::Corrupted, "{ending} {how}: {error}");
            assert_eq!(error.file(), victim.to_str(), "{ending} {how}: {error}");
            assert!(error.offset().is_some(), "{ending} {how}: {error}");
            let new = place.path().join(format!("new{number}"));
            let report = kvilt::repair(&hurt, &new).unwrap();
            assert!(!report.losses.is_empty() || !report.is_proven, "{ending} {how}: {report:?}");
            let db = Db::open(&new).unwrap();
            assert_eq!(db.engine_name(), "kvell");
            let left = rows_of(&db);
            assert!(left.iter().all(|(key, value)| rows.get(key) == Some(value)), "{ending} {how}");
            assert_sound(&db);
        }
    }
}

#[test]
fn a_root_that_is_missing_or_anothers_is_told_and_one_damaged_copy_is_not_missed() {
    let place = tempfile::tempdir().unwrap();
    let (store, other) = (place.path().join("store"), place.path().join("other"));
    let rows = filled(&store);
    filled(&other);
    let hurt = copied(&store, &place.path().join("missing"));
    fs::remove_file(hurt.join("ROOT")).unwrap();
    let error = what_is_wrong(&hurt);
    assert_eq!(error.kind(), ErrorKind::Corrupted, "{error}");
    let hurt = copied(&store, &place.path().join("other's"));
    fs::copy(other.join("ROOT"), hurt.join("ROOT")).unwrap();
    let error = what_is_wrong(&hurt);
    assert_eq!(error.kind(), ErrorKind::Corrupted, "{error}");
    assert!(error.file().is_some(), "{error}");
    // Whatever one byte says, the rows are right or there is an error.
    let root = fs::read(store.join("ROOT")).unwrap();
    for at in (0..root.len()).step_by(root.len().div_ceil(40)) {
        let hurt = copied(&store, &place.path().join(format!("byte{at}")));
        let mut bytes = root.clone();
        bytes[at] ^= 0x10;
        fs::write(hurt.join("ROOT"), bytes).unwrap();
        match builder(&hurt).memory_budget(16 << 20).open() {
            Ok(db) => assert!(rows_of(&db) == rows, "byte {at}"),
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::Corrupted | ErrorKind::UnsupportedVersion),
                "{error}"
            ),
        }
    }
}

#[test]
fn an_index_snapshot_is_not_trusted_if_it_is_damaged_missing_or_of_yesterday() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    let mut rows = filled(&store);
    let yesterday = copied(&store, &place.path().join("yesterday"));
    let db = open(&store);
    for i in (0..2000_u32).step_by(3) {
        let key = format!("key{i:05}").into_bytes();
        db.put(&key, "of today").unwrap();
        rows.insert(key, b"of today".to_vec());
    }
    db.delete("key00001").unwrap();
    rows.remove(&b"key00001"[..]);
    db.close().unwrap();
    drop(db);
    type Hurt = fn(&Path, &Path);
    let cases: [(&str, Hurt); 4] = [
        ("missing", |index, _| fs::remove_file(index).unwrap()),
        ("of yesterday", |index, old| assert!(fs::copy(old, index).unwrap() > 0)),
        ("short", |index, _| shorten(index, fs::metadata(index).unwrap().len() as usize / 2)),
        ("damaged", |index, _| {
            let mut bytes = fs::read(index).unwrap();
            let at = bytes.len() / 2;
            bytes[at] ^= 1;
            fs::write(index, bytes).unwrap();
        }),
    ];
    for (name, hurt) in cases {
        let copy = copied(&store, &place.path().join(name));
        let indexes = files(&copy, "index");
        assert!(!indexes.is_empty());
        for index in indexes {
            hurt(&index, &yesterday.join(index.file_name().unwrap()));
        }
        let db = open(&copy);
        assert!(rows_of(&db) == rows, "{name}");
        assert_sound(&db);
    }
}

#[test]
fn ten_thousand_keyspaces_are_kept_apart() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    for i in 0..10_000 {
        db.keyspace(&format!("space{i}")).unwrap().put("k", i.to_string()).unwrap();
    }
    let db = reopened(db);
    assert_eq!(db.keyspaces().unwrap().len(), 10_000);
    for i in (0..10_000).step_by(97) {
        let space = db.keyspace(&format!("space{i}")).unwrap();
        assert_eq!(space.get("k").unwrap().unwrap(), i.to_string().as_bytes());
        assert_eq!(space.iter().count(), 1);
    }
    assert!(db.drop_keyspace("space5").unwrap());
    assert_eq!(db.keyspaces().unwrap().len(), 9_999);
}

#[test]
fn new_keys_are_refused_when_the_index_is_full_and_everything_else_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder(dir.path()).memory_budget(1 << 20).open().unwrap();
    // Keys of which each shares little with its neighbours.
    let key = |i: u64| [i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(); 5].concat();
    let (mut count, mut refused) = (0, None);
    while refused.is_none() && count < 200_000 {
        match db.put(key(count), b"v") {
            Ok(()) => count += 1,
            Err(error) => refused = Some(error),
        }
    }
    let error = refused.expect("an index of this budget has an end");
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
    assert!(error.to_string().contains("KiB") || error.to_string().contains("bytes"), "{error}");
    assert!(count > 5000, "{count} keys took a budget of 1 MiB");
    for i in 0..100 {
        db.put(key(i), b"updated").unwrap();
        assert_eq!(db.get(key(i)).unwrap().unwrap(), b"updated");
    }
    assert_eq!(db.get(key(count)).unwrap(), None);
    for i in 0..count / 2 {
        db.delete(key(i)).unwrap();
    }
    db.sync().unwrap();
    db.put(key(count), b"has room").unwrap();
    assert_eq!(db.iter().count() as u64, count - count / 2 + 1);
    assert_sound(&db);
    db.close().unwrap();
    drop(db);
    // An open that cannot hold the index says so, too, and one with more memory goes on.
    assert_eq!(open(dir.path()).iter().count() as u64, count - count / 2 + 1);
}

#[test]
fn a_copy_of_an_open_store_is_refused_with_the_reason_and_one_of_a_closed_store_is_a_store() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    let rows = filled(&store);
    let closed = open(&copied(&store, &place.path().join("closed")));
    assert!(rows_of(&closed) == rows);
    assert_sound(&closed);

    let db = open(&store);
    db.put("key00000", "changed").unwrap();
    db.sync().unwrap();
    db.put("key00001", "not cut yet").unwrap();
    let copy = copied(&store, &place.path().join("live"));
    let error = builder(&copy).memory_budget(16 << 20).open().unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::Corrupted, Some("ROOT")), "{error}");
    assert!(error.message().contains("copied while it was open"), "{error}");
    let repaired = place.path().join("repaired");
    kvilt::repair(&copy, &repaired).unwrap();
    assert_eq!(open(&repaired).get("key00000").unwrap().unwrap(), b"changed");
    let checkpoint = place.path().join("checkpoint");
    db.checkpoint_to(&checkpoint).unwrap();
    assert!(rows_of(&open(&checkpoint)) == rows_of(&db));
    assert_eq!(db.get("key00001").unwrap().unwrap(), b"not cut yet");
}
