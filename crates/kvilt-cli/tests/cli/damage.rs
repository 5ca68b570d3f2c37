//! check and repair of a store that is damaged.

use std::{fs, path::PathBuf};

use crate::kvilt::{Store, kvilt};

fn damaged(extension: &str) -> (Store, PathBuf) {
    let store = Store::new();
    for key in ["a", "b", "c"] {
        store.run("put", &[key, &key.repeat(40)]).ok();
    }
    let mut files: Vec<PathBuf> = fs::read_dir(store.path()).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let is_it = |file: &PathBuf| file.to_str().unwrap().ends_with(extension);
    let file = files.into_iter().rev().find(is_it).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let at = if extension == "manifest" { 80 } else { bytes.len() - 10 };
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    (store, file)
}

#[test]
fn check_tells_what_is_damaged_and_repair_copies_the_rest() {
    let (store, file) = damaged(".log");
    let name = file.file_name().unwrap().to_str().unwrap();
    let told = store.run("check", &[]);
    assert_eq!(told.code, 3, "{}", told.stderr);
    assert!(told.stdout.starts_with("F-2: ") && told.stdout.contains(name), "{}", told.stdout);
    assert!(told.stdout.contains("offset") && told.stdout.contains("keys from"), "{}", told.stdout);
    let new = store.path().with_file_name("new");
    let repaired =
        kvilt(&["repair", store.path().to_str().unwrap(), "--to", new.to_str().unwrap(), "--json"], b"");
    assert_eq!(repaired.code, 3, "{}", repaired.stderr);
    assert!(
        repaired.stdout.contains("\"proven\":true") && repaired.stdout.contains(name),
        "{}",
        repaired.stdout
    );
    kvilt(&["check", new.to_str().unwrap()], b"").ok();
}

#[test]
fn a_store_whose_root_is_damaged_is_checked_and_repaired_too() {
    let (store, file) = damaged(".manifest");
    let name = file.file_name().unwrap().to_str().unwrap();
    let told = store.run("check", &["--json"]);
    assert_eq!(told.code, 3);
    assert!(told.stdout.contains("\"what\":\"F-8\"") && told.stdout.contains(name), "{}", told.stdout);
    let new = store.path().with_file_name("new");
    let repaired = kvilt(&["repair", store.path().to_str().unwrap(), "--to", new.to_str().unwrap()], b"");
    assert_eq!(repaired.code, 3);
    assert!(repaired.stdout.contains("not proven: 3 rows"), "{}", repaired.stdout);
    let rows = kvilt(&["count", new.to_str().unwrap()], b"").ok();
    assert_eq!(rows.trim(), "3");
}

#[test]
fn a_sound_store_is_repaired_whole() {
    let store = Store::new();
    store.run("put", &["a", "1"]).ok();
    let new = store.path().with_file_name("new");
    let told = kvilt(&["repair", store.path().to_str().unwrap(), "--to", new.to_str().unwrap()], b"").ok();
    assert!(told.starts_with("whole: 1 row"), "{told}");
    let again = kvilt(&["repair", store.path().to_str().unwrap(), "--to", new.to_str().unwrap()], b"");
    assert!(again.failed(2).contains("there is a store already"));
}
