//! What commands that only read, and those that fail, leave of a directory: all of it, as it was.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::kvilt::{Store, kvilt};

/// Inode, links, mode, owner, times and bytes of everything below a path.
type Picture = BTreeMap<PathBuf, (u64, u64, u32, [u32; 2], [i64; 4], Option<Vec<u8>>)>;

fn picture(path: &Path) -> Picture {
    let mut all = Picture::new();
    let Ok(found) = fs::symlink_metadata(path) else { return all };
    let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    let bytes = found.is_file().then(|| fs::read(path).unwrap());
    let seen = (found.ino(), found.nlink(), found.mode(), [found.uid(), found.gid()], times, bytes);
    all.insert(path.to_path_buf(), seen);
    if found.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            all.extend(picture(&entry.unwrap().path()));
        }
    }
    all
}

const READING: [&[&str]; 7] = [
    &["get", "k"],
    &["get", "absent"],
    &["scan"],
    &["scan", "--reverse"],
    &["count"],
    &["check"],
    &["stats"],
];

#[test]
fn commands_that_read_leave_a_store_as_it_is() {
    let store = Store::new();
    for (key, durability) in [("k", "async"), ("l", "sync")] {
        store.run("put", &[key, "v", "--durability", durability]).ok();
    }
    store.run("put", &["k", "v", "--keyspace", "users"]).ok();
    // A copy may have no lock file, and need not get one.
    for has_lock in [true, false] {
        if !has_lock {
            fs::remove_file(store.path().join("LOCK")).unwrap();
        }
        let before = picture(&store.path());
        for words in READING {
            for keyspace in [&[][..], &["--keyspace", "users"], &["--keyspace", "absent"]] {
                let arguments = [&words[1..], keyspace].concat();
                let is_there = keyspace != ["--keyspace", "absent"] && words[1..] != ["absent"];
                let by_store = ["check", "stats"].contains(&words[0]);
                let ran = store.run(words[0], &arguments);
                let code = match (by_store, is_there) {
                    (true, _) if !keyspace.is_empty() => 2,
                    (true, _) | (false, true) => 0,
                    (false, false) => 1,
                };
                assert_eq!(ran.code, code, "{words:?} {keyspace:?}: {}", ran.stderr);
                assert!(picture(&store.path()) == before, "{words:?} {keyspace:?} has changed something");
            }
        }
    }
    let new = store.path().with_file_name("new");
    let before = picture(&store.path());
    kvilt(&["repair", store.path().to_str().unwrap(), "--to", new.to_str().unwrap()], b"").ok();
    assert!(picture(&store.path()) == before, "a repair has changed its source");
    store.run("put", &["k", "w"]).ok();
    assert_eq!(store.run("get", &["k"]).ok(), "w\n");
}

#[test]
fn commands_that_fail_make_nothing() {
    let place = Store::new();
    let file = place.file("file", "precious");
    let bad_csv = place.file("bad.csv", "a,b\n\"never closed\n");
    let bad_jsonl = place.file("bad.jsonl", "nonsense\n");
    let root = place.path().parent().unwrap().to_path_buf();
    fs::create_dir(root.join("empty")).unwrap();
    fs::create_dir(root.join("foreign")).unwrap();
    fs::write(root.join("foreign/thesis.tex"), "precious").unwrap();
    let before = picture(&root);
    let at = |name: &str| root.join(name).to_str().unwrap().to_string();
    let new = at("new");
    for dir in [at("missing"), at("missing/below"), at("empty"), at("foreign"), file] {
        let others: [&[&str]; 3] = [&["delete", "k"], &["delete-range", "--all"], &["repair", "--to", &new]];
        for words in READING.iter().chain(&others) {
            let words = [&[words[0], dir.as_str()], &words[1..]].concat();
            let ran = kvilt(&words, b"");
            assert!(ran.code > 0, "{words:?}: {}", ran.stdout);
            assert!(picture(&root) == before, "{words:?} has made something: {}", ran.stderr);
        }
    }
    let missing = at("missing");
    let writing: [&[&str]; 6] = [
        &["put", &missing, "k", "v", "--memory", "1KiB"],
        &["put", &missing, "k", "v", "--keyspace", ""],
        &["load", &missing, "--csv", &at("absent.csv"), "--key", "a"],
        &["load", &missing, "--csv", &bad_csv, "--key", "absent"],
        &["load", &missing, "--jsonl", &at("absent.jsonl"), "--key", "a"],
        &["load", &missing, "--jsonl", &bad_jsonl, "--key", "a"],
    ];
    for words in writing {
        let ran = kvilt(words, b"");
        assert!(ran.code > 0, "{words:?}: {}", ran.stdout);
        assert!(picture(&root) == before, "{words:?} has made something: {}", ran.stderr);
    }
}

/// One may be allowed to read a store and nothing else.
#[test]
fn a_directory_that_may_only_be_read_can_be_read() {
    let store = Store::new();
    store.run("put", &["k", "v"]).ok();
    let modes = |directory: u32, file: u32| {
        for entry in fs::read_dir(store.path()).unwrap() {
            fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(file)).unwrap();
        }
        fs::set_permissions(store.path(), fs::Permissions::from_mode(directory)).unwrap();
    };
    modes(0o500, 0o400);
    let before = picture(&store.path());
    assert_eq!(store.run("get", &["k"]).ok(), "v\n");
    store.run("check", &[]).ok();
    if fs::metadata(store.path()).unwrap().uid() != 0 {
        let told = store.run("put", &["k", "w"]).failed(3);
        assert!(told.contains("denied") && told.contains("owner"), "{told}");
        assert!(picture(&store.path()) == before, "a put that was refused has changed something");
    }
    modes(0o700, 0o600);
    store.run("put", &["k", "w"]).ok();
}
