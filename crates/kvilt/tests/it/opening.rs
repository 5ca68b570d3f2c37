//! Opening: what is made, what is refused, and that nothing is written where something was refused.
#![expect(clippy::disallowed_methods, reason = "these tests lay out directories that are not stores")]

use std::{fs, path::Path, time::Duration};

use kvilt::{Db, Durability, Engine, Env, Error, ErrorKind, even, kvell, repair, teks};

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_directory_that_is_missing_or_empty_becomes_a_store() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("a/b/c"), dir.path().join("empty")] {
        if path.ends_with("empty") {
            fs::create_dir_all(&path).unwrap();
        }
        let db = Db::open(&path).unwrap();
        assert_eq!(db.path(), path);
        db.put("k", "v").unwrap();
        db.close().unwrap();
        let db = Db::builder(&path).create_if_missing(false).open().unwrap();
        assert_eq!(db.get("k").unwrap().unwrap(), b"v");
    }
}

#[test]
fn a_directory_of_something_else_is_refused_by_name_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["thesis.tex", "photo.jpg", "a", "b", "c", "d"] {
        fs::write(dir.path().join(name), "precious").unwrap();
    }
    let before = names(dir.path());
    let error = Db::open(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("is not a store"), "{error}");
    assert!(error.message().contains("`photo.jpg` and 1 more"), "{error}");
    assert_eq!(names(dir.path()), before);
}

#[test]
fn a_file_is_not_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "precious").unwrap();
    let error = Db::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_store_that_lost_its_manifest_is_damaged_not_new() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("0000000000000007.table"), "rows").unwrap();
    assert_eq!(Db::open(dir.path()).unwrap_err().kind(), ErrorKind::Corrupted);
    assert_eq!(names(dir.path()), ["0000000000000007.table"]);
}

#[test]
fn whether_to_make_or_to_refuse_is_the_callers_choice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let error = Db::builder(&path).create_if_missing(false).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(!path.exists());
    fs::create_dir_all(&path).unwrap();
    let error = Db::builder(&path).create_if_missing(false).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(names(&path).is_empty());
    Db::builder(&path).error_if_exists(true).open().unwrap().close().unwrap();
    let error = Db::builder(&path).error_if_exists(true).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// It was made, and copied, moved and removed with the store around it.
#[test]
fn no_job_makes_a_store_inside_of_a_stores_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (outer, other) = (dir.path().join("outer"), dir.path().join("other"));
    let db = Db::open(&outer).unwrap();
    Db::open(&other).unwrap().close().unwrap();
    let check = |job: &str, error: Error| {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{job}: {error}");
        let words = error.message();
        assert!(
            words.contains("inside") && words.contains("outer") && words.contains("outside"),
            "{job}: {words}"
        );
    };
    fs::create_dir_all(outer.join("empty")).unwrap();
    std::os::unix::fs::symlink(&outer, dir.path().join("link")).unwrap();
    let before = names(&outer);
    for place in ["outer/new", "outer/new/below", "outer/empty", "link/new", "other/../outer/new"] {
        let place = dir.path().join(place);
        check("open", Db::open(&place).unwrap_err());
        check("repair", repair(&other, &place).unwrap_err());
        check("checkpoint_to", db.checkpoint_to(&place).unwrap_err());
        assert_eq!((names(&outer), names(&outer.join("empty"))), (before.clone(), vec![]));
    }
    // Beside it is no matter, and one that is there already opens as it did.
    let beside = dir.path().join("beside");
    db.checkpoint_to(&beside).unwrap();
    fs::rename(&beside, outer.join("moved")).unwrap();
    Db::open(outer.join("moved")).unwrap().close().unwrap();
}

/// A process that is killed while it makes a store leaves its first files, the last of them empty.
#[test]
fn a_making_that_was_killed_is_made_again_by_the_next_open() {
    let engines = [
        (Engine::Even(even::Options::default()), "0000000000000001.manifest.tmp"),
        (Engine::Kvell(kvell::Options::default()), "ROOT"),
        (Engine::Teks(teks::Options::default()), "0000000000000001.levels"),
    ];
    for (engine, last) in engines {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("killed"), dir.path().join("other"));
        Db::builder(&other).engine(engine).open().unwrap().close().unwrap();
        fs::create_dir(&path).unwrap();
        fs::copy(other.join("ENGINE"), path.join("ENGINE")).unwrap();
        fs::write(path.join("LOCK"), "").unwrap();
        fs::write(path.join(last), "").unwrap();
        let error = Db::builder(&path).create_if_missing(false).open().unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument, "{last}: {error}");
        let db = Db::open(&path).unwrap_or_else(|error| panic!("{last}: {error}"));
        db.put("k", "v").unwrap();
        db.close().unwrap();
        assert_eq!(Db::open(&path).unwrap().get("k").unwrap().unwrap(), b"v");
    }
}

#[test]
fn who_wants_a_store_that_is_there_is_told_why_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["empty", "begun", "foreign"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    fs::write(at("begun/LOCK"), "").unwrap();
    fs::write(at("foreign/thesis.tex"), "precious").unwrap();
    fs::write(at("file"), "precious").unwrap();
    for (name, told) in [
        ("missing", "there is no such directory"),
        ("empty", "the directory is empty"),
        ("begun", "only what an open that was cut short has left"),
        ("foreign", "holds `thesis.tex`; name the directory of a store"),
        ("file", "it is not a directory; name the directory of a store"),
        ("file/below", "its path leads through is not a directory; name the directory of a store"),
    ] {
        for builder in [Db::builder(at(name)).read_only(true), Db::builder(at(name)).create_if_missing(false)]
        {
            let error = builder.open().unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidArgument && error.message().contains(told), "{error}");
            assert!(error.message().contains(name), "{error}");
        }
        let told = match name {
            "missing" => "there is no directory",
            "empty" => "the directory is empty",
            "file" | "file/below" => "is not a directory",
            _ => "no file in it is",
        };
        let error = repair(at(name), at("new")).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.message().contains(told), "{error}");
    }
    let error = Db::open(at("file")).unwrap_err();
    assert!(error.message().contains("is a store, is empty, or does not exist"), "{error}");
}

#[test]
fn a_name_that_the_file_system_cannot_have_is_the_callers_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("n".repeat(300));
    let db = Db::open(dir.path().join("store")).unwrap();
    for error in [
        Db::open(&long).unwrap_err(),
        Db::open(long.join("below")).unwrap_err(),
        Db::builder(&long).read_only(true).open().unwrap_err(),
        db.checkpoint_to(&long).unwrap_err(),
        repair(&long, dir.path().join("new")).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains("longer than the file system allows"), "{error}");
    }
}

#[test]
fn one_store_is_open_once_and_the_second_is_told_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = Db::open(dir.path()).unwrap();
    let error = Db::open(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    first.put("k", "v").unwrap();
    let range = first.iter();
    drop(first);
    assert_eq!(Db::open(dir.path()).unwrap_err().kind(), ErrorKind::Busy, "a range keeps it open");
    drop(range);
    assert_eq!(Db::open(dir.path()).unwrap().get("k").unwrap().unwrap(), b"v");
}

#[test]
fn every_setting_that_makes_no_sense_is_refused_by_the_name_that_the_user_types() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let at = || Db::builder(&path);
    let even = |set: fn(even::Options) -> even::Options| at().engine(Engine::Even(set(Default::default())));
    let zero = Duration::ZERO;
    for (name, builder) in [
        ("memory_budget", at().memory_budget(1000)),
        ("memory_budget", at().memory_budget(8 << 20).env(&Env::new(8 << 20).unwrap())),
        ("durability", at().durability(Durability::Async { interval: zero })),
        ("snapshot_age_max", at().snapshot_age_max(zero)),
        ("batch_operations_max", at().batch_operations_max(0)),
        ("batch_operations_max", at().batch_operations_max(usize::MAX)),
        ("batch_bytes_max", at().batch_bytes_max(0)),
        ("batch_bytes_max", at().batch_bytes_max(usize::MAX)),
        ("error_if_exists", at().error_if_exists(true).read_only(true)),
        ("create_if_missing", at().create_if_missing(false)),
        ("read_only", at().read_only(true)),
        ("chunk_bytes_rebalance", even(|options| options.chunk_bytes_rebalance(255))),
        ("chunk_bytes_max", even(|options| options.chunk_bytes_max(1))),
        ("chunk_bytes_min", even(|options| options.chunk_bytes_min(1 << 40))),
        ("log_bytes_max_cold", even(|options| options.log_bytes_max_cold(255))),
        ("log_bytes_max_cold", even(|options| options.log_bytes_max_cold(1 << 40))),
        ("block_bytes", even(|options| options.block_bytes(63))),
    ] {
        let error = builder.open().unwrap_err();
        assert_eq!((error.kind(), error.setting()), (ErrorKind::InvalidArgument, Some(name)), "{error}");
        // Only settings that the user has are named.
        assert!(!error.message().contains("unread") && !error.message().contains("view"), "{error}");
        assert!(!path.exists(), "{error}");
    }
    let error = even(|options| options.log_bytes_max_cold(1 << 40)).open().unwrap_err();
    let told = "log_bytes_max_cold is 1099511627776, but must be at most 50331648";
    assert_eq!(error.message(), told);
}

#[test]
fn budgets_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    assert_eq!(Env::new(1000).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let error = Db::builder(&path).memory_budget(1000).open().unwrap_err();
    assert!(error.message().contains("1000 bytes"), "{error}");
    let env = Env::new(8 << 20).unwrap();
    let error = Db::builder(&path).memory_budget(8 << 20).env(&env).open().unwrap_err();
    assert!(error.message().contains("exclude each other"), "{error}");
    assert!(!path.exists());
    assert!(Env::process().unwrap().memory_budget_bytes() >= 1 << 20);
}
