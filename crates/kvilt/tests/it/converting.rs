//! A store is copied between engines: every row of every keyspace, or nothing.
#![expect(clippy::disallowed_methods, reason = "these tests look into directories, and damage files")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use kvilt::{Builder, Db, Engine, ErrorKind, even, kvell, teks};

fn kvell() -> Engine {
    Engine::Kvell(kvell::Options::default())
}

fn teks() -> Engine {
    Engine::Teks(teks::Options::default())
}

fn into(dir: &Path, engine: Engine) -> Builder {
    Db::builder(dir).engine(engine)
}

fn names(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).map(|list| list.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
}

/// Rows that are easily lost: an empty key, an empty value, a large one, keyspaces, and what was deleted.
fn filled(dir: &Path, engine: Engine) -> Db {
    let db = into(dir, engine).open().unwrap();
    for i in 0..3000_u32 {
        db.put(i.to_be_bytes(), vec![i as u8; i as usize % 300]).unwrap();
    }
    db.put("", "of the empty key").unwrap();
    db.put("large", vec![b'l'; 1 << 20]).unwrap();
    db.keyspace("gone").unwrap().put("with", "its row").unwrap();
    for name in ["users", "orders", "empty"] {
        let keyspace = db.keyspace(name).unwrap();
        if name != "empty" {
            keyspace.put("", name).unwrap();
            keyspace.put("last", vec![b'x'; 1 << 20]).unwrap();
        }
    }
    db.drop_keyspace("gone").unwrap();
    db.delete(7_u32.to_be_bytes()).unwrap();
    db
}

type Rows = Vec<(String, Vec<u8>, Vec<u8>)>;

fn everything(db: &Db) -> Rows {
    let mut spaces = vec![(String::new(), db.default_keyspace())];
    spaces
        .extend(db.keyspaces().unwrap().into_iter().map(|name| (name.clone(), db.keyspace(&name).unwrap())));
    let mut rows = Vec::new();
    for (name, space) in spaces {
        rows.push((name.clone(), b"its name".to_vec(), Vec::new()));
        rows.extend(
            space.iter().map(|row| row.unwrap()).map(|(k, v)| (name.clone(), k.to_vec(), v.to_vec())),
        );
    }
    rows
}

#[test]
fn there_and_back_every_row_of_every_keyspace_is_the_same() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let db = filled(&at("even"), Engine::default());
    let expected = everything(&db);
    let mut last = db;
    let mut first_report = None;
    for (name, engine) in [("kvell", kvell()), ("teks", teks()), ("back", Engine::default())] {
        let report = last.convert_to(into(&at(name), engine)).unwrap();
        assert_eq!((report.rows, report.keyspaces, report.is_cancelled), (3005, 3, false));
        assert_eq!(
            *first_report.get_or_insert_with(|| report.clone()),
            report,
            "the same rows have the same checksum"
        );
        last = Db::open(at(name)).unwrap();
        assert_eq!(last.engine_name(), if name == "back" { "even" } else { name });
        assert_eq!(everything(&last), expected);
        assert!(last.check().unwrap().damages.is_empty());
    }
    // No id of a keyspace is given out twice.
    last.keyspace("new").unwrap().put("k", "v").unwrap();
    assert_eq!(last.keyspace("users").unwrap().iter().count(), 2);
    assert!(!at("back").join("UNFINISHED").exists());
}

#[test]
fn an_empty_store_and_rows_of_a_few_bytes_are_converted() {
    let place = tempfile::tempdir().unwrap();
    let db = Db::open(place.path().join("from")).unwrap();
    for (name, engine) in [("empty", kvell()), ("empty too", teks())] {
        let report = db.convert_to(into(&place.path().join(name), engine)).unwrap();
        assert_eq!((report.rows, report.bytes), (0, 0));
    }
    // More of them than a batch may have operations, before they have the bytes of one.
    for batch in 0..3_u32 {
        let mut rows = kvilt::WriteBatch::new();
        for i in 0..20_000_u32 {
            rows.put(&(batch * 20_000 + i).to_be_bytes()[1..], "");
        }
        db.write(rows).unwrap();
    }
    for (name, engine) in [("to", kvell()), ("to too", teks())] {
        let to = place.path().join(name);
        assert_eq!(db.convert_to(into(&to, engine).batch_operations_max(1)).unwrap().rows, 60_000);
        assert_eq!(Db::open(to).unwrap().iter().count(), 60_000);
    }
    db.close().unwrap();
    let repaired = place.path().join("repaired");
    assert_eq!(kvilt::repair(place.path().join("from"), repaired).unwrap().rows, 60_000);
}

#[test]
fn it_is_a_copy_of_one_moment_of_a_store_that_goes_on() {
    [kvell(), teks()].into_iter().for_each(it_is_a_copy_of_one_moment);
}

fn it_is_a_copy_of_one_moment(engine: Engine) {
    let place = tempfile::tempdir().unwrap();
    let db = filled(&place.path().join("from"), engine);
    let before = everything(&db);
    let mut written = 0_u32;
    let to = place.path().join("to");
    let report = db.convert_to_with(into(&to, Engine::default()), |progress| {
        assert!(progress.done <= progress.total);
        db.put(format!("new {written}"), "row").unwrap();
        db.delete(written.to_be_bytes()).unwrap();
        written += 1;
        true
    });
    assert!(report.unwrap().rows > 0 && written > 2, "{written}");
    assert!(everything(&db) != before);
    assert_eq!(everything(&Db::open(to).unwrap()), before);
}

#[test]
fn one_that_is_cancelled_leaves_nothing_at_whatever_moment() {
    let place = tempfile::tempdir().unwrap();
    let db = filled(&place.path().join("from"), Engine::default());
    let to = place.path().join("to");
    for engine in [kvell(), teks(), Engine::Even(even::Options::default())] {
        let mut steps = 0;
        db.convert_to_with(into(&to, engine.clone()), |_| {
            steps += 1;
            true
        })
        .unwrap();
        fs::remove_dir_all(&to).unwrap();
        for last in [1, 2, steps / 2, steps / 2 + 1, steps] {
            let mut step = 0;
            let cancelled = db.convert_to_with(into(&to, engine.clone()), |_| {
                step += 1;
                step < last
            });
            assert!(cancelled.unwrap().is_cancelled, "step {last} of {steps}");
            assert!(!to.exists(), "step {last} of {steps}: {:?}", names(&to));
        }
    }
}

#[test]
fn a_place_that_is_taken_is_refused_and_left_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    let db = filled(&from, Engine::default());
    let full = place.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("thesis.tex"), "precious").unwrap();
    let store = place.path().join("store");
    filled(&store, kvell()).close().unwrap();
    let before = names(&store).len();
    for to in [&from, &from.join("below"), &full, &full.join("thesis.tex"), &store] {
        let error = db.convert_to(into(to, kvell())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{}: {error}", to.display());
    }
    assert_eq!((names(&full).len(), names(&store).len()), (1, before));
    assert!(!from.join("below").exists());
    // What a killed one left is replaced.
    fs::write(store.join("UNFINISHED"), "").unwrap();
    assert_eq!(db.convert_to(into(&store, Engine::default())).unwrap().rows, 3005);
    assert_eq!(Db::open(&store).unwrap().engine_name(), "even");
}

#[test]
fn a_damaged_store_is_not_converted_in_part() {
    let place = tempfile::tempdir().unwrap();
    for (engine, other, kind) in [(Engine::default(), kvell(), "log"), (kvell(), Engine::default(), "slab")] {
        let from = place.path().join(kind);
        filled(&from, engine).close().unwrap();
        let is_it = |path: &PathBuf| path.extension().is_some_and(|extension| extension == kind);
        let mut files: Vec<PathBuf> = names(&from).into_iter().filter(is_it).collect();
        files.sort_by_key(|file| fs::metadata(file).unwrap().len());
        let file = files.last().unwrap();
        let mut bytes = fs::read(file).unwrap();
        // In the middle of a value of 1 MiB.
        let at = bytes.windows(600_000).position(|bytes| bytes.iter().all(|b| [b'x', b'l'].contains(b)));
        bytes[at.unwrap() + 300_000] ^= 1;
        fs::write(file, bytes).unwrap();
        let to = place.path().join("to");
        let db = Db::builder(&from).read_only(true).open().unwrap();
        let error = db.convert_to(into(&to, other)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupted, "{error}");
        assert_eq!(error.file().unwrap(), file.file_name().unwrap().to_str().unwrap());
        assert!(!to.exists());
    }
}
