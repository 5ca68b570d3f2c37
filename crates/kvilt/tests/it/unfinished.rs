//! E-18: jobs that make a directory clean up behind themselves, and a directory that is not empty is one kind
//! of error everywhere.
#![expect(clippy::disallowed_methods, reason = "these tests lay out directories that are not stores")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use kvilt::{Db, Engine, Error, ErrorKind, repair};

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .map(|entries| entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
        .unwrap_or_default();
    names.sort();
    names
}

/// A store of some rows, closed.
fn store(dir: &Path, engine: &Engine) -> PathBuf {
    let path = dir.join("store");
    let db = Db::builder(&path).engine(engine.clone()).open().unwrap();
    for i in 0..2000u32 {
        db.put(i.to_be_bytes(), [b'v'; 100]).unwrap();
    }
    db.close().unwrap();
    path
}

#[test]
fn a_place_that_cannot_take_a_store_is_an_invalid_argument_for_every_job() {
    crate::engines().iter().for_each(a_place_cannot_take_a_store);
}

fn a_place_cannot_take_a_store(engine: &Engine) {
    let dir = tempfile::tempdir().unwrap();
    let path = store(dir.path(), engine);
    let (file, full) = (dir.path().join("file"), dir.path().join("full"));
    fs::write(&file, "x").unwrap();
    fs::create_dir(&full).unwrap();
    fs::write(full.join("thesis.tex"), "precious").unwrap();
    let db = Db::open(&path).unwrap();
    for place in [&file, &full, &file.join("below"), &path] {
        let check = |job: &str, error: Error| {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{job} {}: {error}", place.display());
            assert!(!error.to_string().contains("may be retried"), "{error}");
        };
        check("checkpoint_to", db.checkpoint_to(place).unwrap_err());
        if *place != path {
            check("open", Db::open(place).unwrap_err());
        }
    }
    db.close().unwrap();
    for place in [&file, &full, &file.join("below")] {
        assert_eq!(repair(&path, place).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert_eq!(repair(&path, &path).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(names(&full), ["thesis.tex"]);
}

#[test]
fn a_repair_that_fails_leaves_nothing_behind() {
    crate::engines().iter().for_each(a_repair_fails);
}

fn a_repair_fails(engine: &Engine) {
    let dir = tempfile::tempdir().unwrap();
    let (empty, to) = (dir.path().join("empty"), dir.path().join("a").join("b"));
    fs::create_dir(&empty).unwrap();
    assert_eq!(repair(&empty, &to).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(!dir.path().join("a").exists(), "the directory and its parent were made, and are gone");
    let path = store(dir.path(), engine);
    let db = Db::open(&path).unwrap();
    fs::create_dir_all(&to).unwrap();
    assert_eq!(repair(&path, &to).unwrap_err().kind(), ErrorKind::Busy);
    assert!(to.exists() && names(&to).is_empty(), "what was there stays, and nothing else");
    db.close().unwrap();
    assert_eq!(repair(&path, &to).unwrap().rows, 2000);
    assert_eq!(Db::open(&to).unwrap().iter().count(), 2000);
    assert!(!names(&to).contains(&"UNFINISHED".to_string()));
}

#[test]
fn what_a_killed_repair_left_is_no_store_and_the_next_replaces_it() {
    crate::engines().iter().for_each(a_repair_was_killed);
}

fn a_repair_was_killed(engine: &Engine) {
    let dir = tempfile::tempdir().unwrap();
    let path = store(dir.path(), engine);
    let to = dir.path().join("to");
    // What is there after a kill: some rows, looking like a store, and the mark.
    let part = Db::open(&to).unwrap();
    part.put("half", "a row").unwrap();
    part.close().unwrap();
    fs::write(to.join("UNFINISHED"), "").unwrap();
    let before = names(&to);
    let error = Db::open(&to).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("not finished"), "{error}");
    assert_eq!(names(&to), before);
    assert_eq!(repair(&path, &to).unwrap().rows, 2000);
    let db = Db::open(&to).unwrap();
    assert_eq!((db.get("half").unwrap(), db.iter().count()), (None, 2000));
}

#[test]
fn a_copy_replaces_what_a_killed_copy_left_and_nothing_else() {
    crate::engines().iter().for_each(a_copy_was_killed);
}

fn a_copy_was_killed(engine: &Engine) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(store(dir.path(), engine)).unwrap();
    let copy = dir.path().join("copies").join("copy");
    fs::create_dir_all(&copy).unwrap();
    for name in ["UNFINISHED", "0000000000000001.log", "0000000000000003.manifest"] {
        fs::write(copy.join(name), "junk").unwrap();
    }
    fs::write(copy.join("thesis.tex"), "precious").unwrap();
    assert_eq!(db.checkpoint_to(&copy).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(names(&copy).len(), 4, "nothing is removed where others have files");
    fs::remove_file(copy.join("thesis.tex")).unwrap();
    db.checkpoint_to(&copy).unwrap();
    assert_eq!(Db::open(&copy).unwrap().iter().count(), 2000);
}
