//! Opening: what is made, what is refused, and that nothing is written where something was refused.
#![expect(clippy::disallowed_methods, reason = "these tests lay out directories that are not stores")]

use std::{fs, path::Path};

use kvilt::{Db, Env, ErrorKind};

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
