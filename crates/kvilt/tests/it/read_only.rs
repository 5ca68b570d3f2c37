//! Stores that are open to be read only, and opens that fail: what they show, what they refuse, and that they
//! leave the directory as it is (B-7).
#![expect(clippy::disallowed_methods, reason = "these tests look at directories, and damage files")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use kvilt::{Builder, Db, Durability, Engine, Env, Error, ErrorKind, WriteBatch};

const HOUR: Duration = Duration::from_secs(3600);
/// No checkpoint comes by itself, so that what is copied of an open store is what one moment left of it.
const ASYNC: Durability = Durability::Async { interval: HOUR };

/// Everything that may be seen of a file but when it was read: what it is to whom, since when, and its bytes.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    inode: u64,
    links: u64,
    mode: u32,
    owner: (u32, u32),
    changed: (i64, i64, i64, i64),
    bytes: Option<Vec<u8>>,
}

/// A directory and all that is in it; of what is not there, nothing.
fn picture(path: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut all = BTreeMap::new();
    let Ok(found) = fs::symlink_metadata(path) else { return all };
    let seen = Seen {
        inode: found.ino(),
        links: found.nlink(),
        mode: found.mode(),
        owner: (found.uid(), found.gid()),
        changed: (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()),
        bytes: found.is_file().then(|| fs::read(path).unwrap()),
    };
    all.insert(path.to_path_buf(), seen);
    if found.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            all.extend(picture(&entry.unwrap().path()));
        }
    }
    all
}

/// A copy of an open store, which has the last checkpoint; but for the lock file, which is no other's.
fn copied(path: &Path, to: &Path) -> PathBuf {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "LOCK" {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    to.to_path_buf()
}

/// A store with small chunks.
fn small(path: &Path, durability: Durability) -> Builder {
    small_of(path, durability, &crate::small_chunks())
}

fn small_of(path: &Path, durability: Durability, engine: &Engine) -> Builder {
    Db::builder(path).durability(durability).memory_budget(8 << 20).engine(engine.clone())
}

fn rows(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    db.iter().map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

fn refused(builder: Builder) -> Error {
    builder.open().map(drop).unwrap_err()
}

/// Puts, deletes, a range and a keyspace: some before a checkpoint, some behind.
fn furnish(db: &Db) {
    for round in 0..3 {
        for i in 0..600 {
            db.put(format!("{i:04}"), format!("{round}/{i} ").repeat(20)).unwrap();
        }
        if round == 1 {
            db.sync().unwrap();
        }
    }
    for i in (0..600).step_by(7) {
        db.delete(format!("{i:04}")).unwrap();
    }
    db.delete_range("0100".."0150").unwrap();
    db.keyspace("users").unwrap().put("ada", "lovelace").unwrap();
    db.keyspace("gone").unwrap().put("k", "v").unwrap();
    db.drop_keyspace("gone").unwrap();
}

#[test]
fn who_only_reads_sees_what_was_acknowledged_and_changes_nothing() {
    crate::engines().iter().for_each(who_only_reads_changes_nothing);
}

fn who_only_reads_changes_nothing(engine: &Engine) {
    let dir = tempfile::tempdir().unwrap();
    for (name, durability) in [("async", ASYNC), ("sync", Durability::Sync)] {
        let path = dir.path().join(name);
        let db = small_of(&path, durability, engine).open().unwrap();
        furnish(&db);
        if name == "async" {
            db.sync().unwrap();
        }
        let expected = rows(&db);
        // At level sync a checkpoint may come while it is copied, and of an open `kvell` store no copy is
        // whole.
        let is_still = durability != Durability::Sync && matches!(engine, Engine::Even(_));
        let copy = is_still.then(|| copied(&path, &dir.path().join(format!("{name}-copy"))));
        db.close().unwrap();
        // The second with a lock file.
        for path in copy.into_iter().chain([path]) {
            let before = picture(&path);
            let both = [(), ()].map(|()| small_of(&path, durability, engine).read_only(true).open().unwrap());
            for db in &both {
                assert_eq!(rows(db), expected, "{name}");
                for (key, value) in expected.iter().step_by(50) {
                    assert_eq!(db.get(key).unwrap().as_deref(), Some(value.as_slice()));
                }
                assert_eq!(db.get("0000").unwrap(), None);
                assert_eq!(db.iter().rev().count(), expected.len());
                assert_eq!(db.keyspaces().unwrap(), ["users"]);
                assert_eq!(db.keyspace("users").unwrap().get("ada").unwrap().unwrap(), b"lovelace");
                assert_eq!(db.snapshot().iter().count(), expected.len());
                let report = db.check().unwrap();
                assert!(report.damages.is_empty() && report.entries > 0, "{report:?}");
                let stats = db.stats();
                let parts = ["chunks_now", "shards_now", "table_keys_now"];
                assert!(parts.into_iter().find_map(|name| stats.own(name)) > Some(1), "{stats:?}");
                db.close().unwrap();
                assert_eq!(db.get("0001").unwrap_err().kind(), ErrorKind::Closed);
            }
            drop(both);
            assert!(picture(&path) == before, "{name}: a reader has changed something");
            assert_eq!(
                rows(&small_of(&path, durability, engine).open().unwrap()),
                expected,
                "{name}: and then"
            );
        }
    }
}

#[test]
fn what_would_change_a_store_that_is_only_read_is_refused_in_one_way() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let db = Db::open(&path).unwrap();
    db.put("k", "v").unwrap();
    db.keyspace("users").unwrap().put("k", "v").unwrap();
    db.close().unwrap();
    let before = picture(dir.path());
    let db = Db::builder(&path).read_only(true).open().unwrap();
    let mut batch = WriteBatch::new();
    batch.put("k", "w");
    let refusals = [
        db.put("k", "w"),
        db.delete("k"),
        db.delete("absent"),
        db.delete_range("a".."z"),
        db.write(batch),
        db.compare_and_swap("k", Some(b"v"), Some(b"w")).map(drop),
        db.compare_and_swap("k", Some(b"other"), Some(b"w")).map(drop),
        db.put_if_absent("k", "w").map(drop),
        db.update("k", |_| Some("w")).map(drop),
        db.keyspace("new").map(drop),
        db.keyspace("users").unwrap().put("k", "w"),
        db.drop_keyspace("users").map(drop),
        db.sync(),
        db.checkpoint_to(dir.path().join("copy")),
    ];
    let told: Vec<_> = refusals.into_iter().map(|refused| refused.unwrap_err()).collect();
    for error in &told {
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::ReadOnly, told[0].to_string()));
    }
    assert!(told[0].message().contains(path.to_str().unwrap()), "{}", told[0]);
    assert!(!db.drop_keyspace("absent").unwrap());
    assert_eq!(db.get("k").unwrap().unwrap(), b"v");
    drop(db);
    assert!(picture(dir.path()) == before);
}

#[test]
fn readers_share_a_store_and_a_writer_shares_it_with_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let reader = || Db::builder(&path).read_only(true);
    let writer = Db::open(&path).unwrap();
    writer.put("k", "v").unwrap();
    writer.sync().unwrap();
    let error = refused(reader());
    let own_id = std::process::id().to_string();
    assert!(error.kind() == ErrorKind::Busy && error.to_string().contains(&own_id), "{error}");
    writer.close().unwrap();
    let copy = copied(&path, &dir.path().join("copy"));
    for path in [&path, &copy] {
        let reader = || Db::builder(path).read_only(true);
        let (first, second) = (reader().open().unwrap(), reader().open().unwrap());
        let before = picture(path);
        for still_open in [first, second] {
            let error = refused(Db::builder(path));
            assert_eq!(error.kind(), ErrorKind::Busy);
            assert!(error.to_string().contains("to be read"), "{error}");
            assert_eq!(still_open.get("k").unwrap().unwrap(), b"v");
        }
        assert!(picture(path) == before, "a writer that is refused changes nothing");
        let writer = Db::open(path).unwrap();
        assert_eq!(refused(reader()).kind(), ErrorKind::Busy);
        writer.put("k", "v").unwrap();
    }
}

/// Nothing runs in the background that would give back what reads have built.
#[test]
fn a_reader_keeps_within_its_budget() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let db = Db::builder(&path).memory_budget(16 << 20).open().unwrap();
    // In no order, so that logs must be put in order to be scanned.
    for i in 0..60_000_u64 {
        db.put((i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes(), [7; 400]).unwrap();
    }
    db.close().unwrap();
    let env = Env::new(4 << 20).unwrap();
    let db = Db::builder(&path).env(&env).read_only(true).open().unwrap();
    let (mut count, mut most) = (0, 0);
    for row in db.iter() {
        row.unwrap();
        count += 1;
        most = most.max(env.memory_used_bytes());
    }
    for i in (0..60_000_u64).step_by(3) {
        assert!(db.contains_key((i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes()).unwrap());
        most = most.max(env.memory_used_bytes());
    }
    assert_eq!(count, 60_000);
    assert!(most <= env.memory_budget_bytes(), "{most} bytes");
    assert!(most > 1 << 20, "only {most} bytes: what is there to keep within?");
}

#[test]
fn settings_that_contradict_reading_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("missing/store"), dir.path().to_path_buf()] {
        let error = refused(Db::builder(&path).read_only(true));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let error = refused(Db::builder(&path).read_only(true).error_if_exists(true));
        assert_eq!(error.setting(), Some("error_if_exists"), "{error}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
}

type Hurt = fn(&Path);

/// Files with this ending.
fn files(path: &Path, ending: &'static str) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    files.filter(move |file| file.to_str().unwrap().ends_with(ending))
}

/// The newest file with this ending.
fn newest(path: &Path, ending: &'static str) -> PathBuf {
    files(path, ending).max().unwrap()
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}

/// A copy of a store that is open, with leftovers of every kind that an open removes, and something wrong
/// with it.
#[test]
fn an_open_that_finds_damage_leaves_everything_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let db = small(&path, ASYNC).open().unwrap();
    furnish(&db);
    db.sync().unwrap();
    for i in 0..50 {
        db.put(format!("{i:04}"), "behind the checkpoint").unwrap();
    }
    let hurts: [(&str, Hurt); 5] = [
        ("manifest", |path| flip(&newest(path, ".manifest"), 80)),
        ("witness", |path| {
            flip(&path.join("WITNESS"), 70);
            flip(&path.join("WITNESS"), 582);
        }),
        ("no witness", |path| fs::remove_file(path.join("WITNESS")).unwrap()),
        ("no manifest", |path| fs::remove_file(newest(path, ".manifest")).unwrap()),
        ("a reserve that is none", |path| {
            fs::remove_file(path.join("RESERVE")).unwrap();
            fs::create_dir(path.join("RESERVE")).unwrap();
        }),
    ];
    for (what, hurt) in hurts {
        let hurt_path = copied(&path, &dir.path().join(what));
        for leftover in ["00000000ffffffff.log", "00000000fffffffe.table", "0000000000000000.manifest.tmp"] {
            fs::write(hurt_path.join(leftover), "cut short").unwrap();
        }
        hurt(&hurt_path);
        let before = picture(&hurt_path);
        for read_only in [true, false] {
            let error = refused(small(&hurt_path, ASYNC).read_only(read_only));
            assert_eq!(error.kind(), ErrorKind::Corrupted, "{what}, {read_only}: {error}");
            assert!(picture(&hurt_path) == before, "{what}: changed by an open, read only: {read_only}");
        }
    }
}

#[test]
fn an_open_that_is_refused_leaves_everything_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    Db::open(at("store")).unwrap().close().unwrap();
    fs::create_dir(at("foreign")).unwrap();
    fs::write(at("foreign/thesis.tex"), "precious").unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("file"), "precious").unwrap();
    // The making of a store was cut short here.
    fs::create_dir(at("begun")).unwrap();
    fs::write(at("begun/LOCK"), "").unwrap();
    fs::write(at("begun/WITNESS"), "").unwrap();
    let held = Db::open(at("held")).unwrap();
    let before = picture(dir.path());
    let refusals = [
        Db::builder(at("store")).error_if_exists(true),
        Db::builder(at("store"))
            .engine(kvilt::Engine::Even(kvilt::even::Options::default().chunk_bytes_max(1))),
        Db::builder(at("store")).memory_budget(1),
        Db::builder(at("missing"))
            .engine(kvilt::Engine::Even(kvilt::even::Options::default().chunk_bytes_max(1))),
        Db::builder(at("missing/below")).snapshot_age_max(Duration::ZERO),
        Db::builder(at("missing")).create_if_missing(false),
        Db::builder(at("empty")).create_if_missing(false),
        Db::builder(at("begun")).create_if_missing(false),
        Db::builder(at("empty"))
            .engine(kvilt::Engine::Even(kvilt::even::Options::default().chunk_bytes_max(1))),
        Db::builder(at("foreign")),
        Db::builder(at("file")),
        Db::builder(at("file/below")),
        Db::builder(at("held")),
    ];
    for builder in refusals {
        for read_only in [false, true] {
            let told = format!("{builder:?}");
            let error = refused(builder.clone().read_only(read_only));
            assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Busy), "{told}: {error}");
            assert!(picture(dir.path()) == before, "{told}: {error}");
        }
    }
    held.put("k", "v").unwrap();
    held.close().unwrap();
}

/// A repair reads what is damaged, and writes elsewhere.
#[test]
fn a_repair_leaves_the_damaged_store_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let db = small(&path, ASYNC).open().unwrap();
    furnish(&db);
    db.sync().unwrap();
    let copy = copied(&path, &dir.path().join("copy"));
    // Which files have the rows, and how long they are, depends on the background.
    let len = |file: &PathBuf| fs::metadata(file).unwrap().len();
    let longest = files(&copy, ".log").chain(files(&copy, ".table")).max_by_key(len).unwrap();
    flip(&longest, len(&longest) as usize / 2);
    let before = picture(&copy);
    kvilt::repair(&copy, dir.path().join("new")).unwrap();
    assert!(picture(&copy) == before);
    let error = kvilt::repair(&path, dir.path().join("newer")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "somebody writes to it");
    fs::create_dir(dir.path().join("empty")).unwrap();
    let error = kvilt::repair(dir.path().join("empty"), dir.path().join("newer")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "there is nothing to repair");
    assert!(!dir.path().join("newer").exists(), "it would be in the way of the next try");
}
