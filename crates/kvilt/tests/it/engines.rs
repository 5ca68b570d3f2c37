//! A store bears the name of the engine that made it, and is opened by no other (B-8).
#![expect(clippy::disallowed_methods, reason = "these tests write and damage files")]

use std::{fs, path::Path, sync::Arc};

use kvilt::{Db, Engine, ErrorKind, even};
use kvilt_base::{Budget, Descriptor as _, Settings, World};
use kvilt_example_engine::JournalEngine;
use kvilt_io::{NativeClock, NativeDisk, NativeRng, NativeSpawn};

fn filled(path: &Path) {
    let db = Db::open(path).unwrap();
    db.put("a", "1").unwrap();
    db.close().unwrap();
}

#[test]
fn a_store_bears_the_name_of_its_engine_and_so_do_its_copy_and_its_repair() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    filled(&at("store"));
    let db = Db::builder(at("store")).engine(Engine::Even(even::Options::default())).open().unwrap();
    db.checkpoint_to(at("copy")).unwrap();
    db.close().unwrap();
    kvilt::repair(at("store"), at("repaired")).unwrap();
    for name in ["store", "copy", "repaired"] {
        let text = fs::read_to_string(at(name).join("ENGINE")).unwrap();
        assert!(text.starts_with("even ") && text.ends_with('\n'), "{name}: {text:?}");
        assert_eq!(Db::open(at(name)).unwrap().get("a").unwrap().unwrap(), b"1");
    }
}

/// Its files were written by the build of commit 5deb69d: 200 rows of which one was deleted, a keyspace, and
/// three rows written again at the level `Sync`. The file of reserved room was taken out.
#[test]
fn a_store_made_before_stores_bore_names_is_one_of_even() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    fs::create_dir(&store).unwrap();
    for entry in fs::read_dir("tests/data/before_engine_names").unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), store.join(entry.file_name())).unwrap();
    }
    let db = Db::open(&store).unwrap();
    assert_eq!(db.iter().filter(|row| row.is_ok()).count(), 199);
    assert_eq!(db.get("event/007").unwrap(), None);
    let value = |key: &str| String::from_utf8(db.get(key).unwrap().unwrap().to_vec()).unwrap();
    assert!(value("event/001").contains("again 1 again 1"), "{}", value("event/001"));
    assert!(value("event/199").contains("value 199 value 199"), "{}", value("event/199"));
    assert_eq!(db.keyspace("people").unwrap().get("ada").unwrap().unwrap(), b"lovelace");
    assert!(db.check().unwrap().damages.is_empty());
    db.put("new", "row").unwrap();
    db.close().unwrap();
    assert_eq!(Db::open(&store).unwrap().get("new").unwrap().unwrap(), b"row");
}

#[test]
fn a_store_of_an_unknown_engine_is_refused_by_its_name_and_left_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    fs::create_dir(&store).unwrap();
    fs::write(store.join("ENGINE"), named("later")).unwrap();
    fs::write(store.join("0000000000000001.pages"), "of an engine that is not known").unwrap();
    let error = Db::open(&store).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::UnsupportedVersion, Some("ENGINE")));
    assert!(error.message().contains("`later`") && error.message().contains("even"), "{error}");
    assert_eq!(fs::read_dir(&store).unwrap().count(), 2);
}

#[test]
fn a_name_that_is_not_the_one_of_the_files_or_is_damaged_is_refused_and_found_by_a_check() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    filled(&store);
    let good = fs::read(store.join("ENGINE")).unwrap();

    // Whatever else is there, the name says whose it is.
    fs::write(store.join("ENGINE"), named("later")).unwrap();
    for error in [Db::open(&store).unwrap_err(), kvilt::repair(&store, place.path().join("no")).unwrap_err()]
    {
        assert_eq!((error.kind(), error.file()), (ErrorKind::UnsupportedVersion, Some("ENGINE")), "{error}");
        assert!(error.message().contains("`later`"), "{error}");
    }
    assert!(!place.path().join("no").exists());

    fs::write(store.join("ENGINE"), &good[1..]).unwrap();
    let error = Db::open(&store).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::Corrupted, Some("ENGINE")));
    let report = kvilt::repair(&store, place.path().join("repaired")).unwrap();
    assert!(report.is_proven && report.losses.is_empty(), "{report:?}");

    // As the error says, the other files tell the engine.
    fs::remove_file(store.join("ENGINE")).unwrap();
    let db = Db::open(&store).unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), b"1");
    for bad in [&good[1..], named("later").as_bytes()] {
        fs::write(store.join("ENGINE"), bad).unwrap();
        let damages = db.check().unwrap().damages;
        let [damage] = &damages[..] else { panic!("{damages:?}") };
        assert_eq!((damage.what.as_str(), damage.file.as_deref()), ("B-8", Some("ENGINE")));
    }
}

/// Keyspaces, snapshots and iterators are the façade's: an engine that knows nothing of them has them, too.
/// And its store is not taken for another's.
#[test]
fn the_facade_runs_on_an_engine_of_a_third_party() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    let open = || {
        let disk = NativeDisk::open(&store, kvilt_example_engine::KINDS, true).unwrap();
        let world = World {
            clock: Arc::new(NativeClock::new()),
            rng: Arc::new(NativeRng::new().unwrap()),
            spawn: Arc::new(NativeSpawn::new()),
            budget: Budget::new(16 << 20),
        };
        let engine = JournalEngine::default().open(disk, world, &Settings::default()).unwrap();
        Db::over(engine, &store)
    };
    let db = open();
    let people = db.keyspace("people").unwrap();
    people.put("ada", "lovelace").unwrap();
    db.put("ada", "elsewhere").unwrap();
    let before = people.snapshot();
    people.delete_range(..).unwrap();
    assert_eq!(before.get("ada").unwrap().unwrap(), b"lovelace");
    assert_eq!((people.iter().count(), db.iter().count()), (0, 1));
    people.put("grace", "hopper").unwrap();
    drop((before, people));
    db.close().unwrap();
    drop(db);

    let error = Db::open(&store).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::UnsupportedVersion, Some("ENGINE")));
    assert!(error.message().contains(kvilt_example_engine::NAME), "{error}");
    let db = open();
    assert_eq!(db.keyspace("people").unwrap().get("grace").unwrap().unwrap(), b"hopper");
    assert_eq!(db.get("ada").unwrap().unwrap(), b"elsewhere");
    db.close().unwrap();
}

/// The file's text for a name, by the rule of `docs/format/engine.md`: CRC-32 in eight hexadecimal digits.
fn named(name: &str) -> String {
    let mut sum = !0_u32;
    for byte in name.bytes() {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
        }
    }
    format!("{name} {:08x}\n", !sum)
}
