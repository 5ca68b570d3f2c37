//! Row 21: a store is closed, or dropped, whatever is going on: in the background, in other threads, or
//! already.

#![expect(clippy::disallowed_methods, reason = "looks at the directory of a closed store")]

use std::{collections::BTreeSet, fs, path::Path, sync::Barrier, time::Duration};

use kvilt::{Db, Durability, Env, ErrorKind, WriteBatch};

const INTERVAL: Duration = Duration::from_millis(5);
const MODES: [Durability; 2] = [Durability::Async { interval: INTERVAL }, Durability::Sync];
const WRITERS: u32 = 3;
/// Rows of each writer before the others may close: enough that chunks are split and rewritten.
const ROWS_BEFORE: u32 = 400;

/// A store of tiny chunks, so that the background always has something to do.
fn open(path: &Path, durability: Durability) -> Db {
    let env = Env::new(4 << 20).unwrap();
    Db::builder(path)
        .env(&env)
        .durability(durability)
        .engine(kvilt::Engine::Even(
            kvilt::even::Options::default()
                .chunk_bytes_max(16 << 10)
                .chunk_bytes_rebalance(12 << 10)
                .chunk_bytes_min(1 << 10),
        ))
        .open()
        .unwrap()
}

/// Writes rows until the store is closed; gives the keys that were acknowledged.
fn write_until_closed(db: &Db, writer: u32, begun: &Barrier) -> BTreeSet<String> {
    let mut written = BTreeSet::new();
    for i in 0.. {
        if i == ROWS_BEFORE {
            begun.wait();
        }
        let key = format!("{:03}-{writer}-{i}", i % 97);
        match db.put(&key, [7; 100]) {
            Ok(()) => assert!(written.insert(key)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                break;
            }
        }
    }
    written
}

/// What is in the store when it is opened again; it must be sound.
fn keys_after_reopen(path: &Path, durability: Durability) -> BTreeSet<String> {
    let db = open(path, durability);
    assert!(db.check().unwrap().damages.is_empty());
    db.iter().keys().map(|key| crate::text(&key.unwrap())).collect()
}

#[test]
fn a_close_among_writers_keeps_exactly_what_was_acknowledged() {
    for durability in MODES {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), durability);
        let begun = Barrier::new(WRITERS as usize + 2);
        let written: BTreeSet<String> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (db, begun) = (db.clone(), &begun);
                    scope.spawn(move || write_until_closed(&db, writer, begun))
                })
                .collect();
            // From two threads at once, and from one of them twice.
            let second = scope.spawn(|| {
                begun.wait();
                db.close()
            });
            begun.wait();
            db.close().unwrap();
            db.close().unwrap();
            second.join().unwrap().unwrap();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        assert!(written.len() >= (WRITERS * ROWS_BEFORE) as usize);
        // The handle still lives; the directory is free all the same.
        assert_eq!(keys_after_reopen(dir.path(), durability), written);
        assert_eq!(db.get("x").unwrap_err().kind(), ErrorKind::Closed);
    }
}

#[test]
fn the_last_handle_dropped_by_another_thread_closes_as_well() {
    for durability in MODES {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), durability);
        for i in 0..3000u32 {
            db.put(format!("{:03}-{i}", i % 97), [7; 100]).unwrap();
        }
        let mut scan = db.iter();
        scan.next().unwrap().unwrap();
        drop(db);
        // The scan is a handle: the store is open as long as it is. The background is at work when it goes.
        assert_eq!(Db::open(dir.path()).unwrap_err().kind(), ErrorKind::Busy);
        std::thread::scope(|scope| scope.spawn(move || drop(scan)).join()).unwrap();
        assert_eq!(keys_after_reopen(dir.path(), durability).len(), 3000);
    }
}

/// Calls that read files, until one fails.
fn read_until_closed(db: &Db, reader: usize) -> kvilt::Error {
    let keys: Vec<String> = (0..64).map(|i| format!("{:05}", i * 45)).collect();
    loop {
        let failed = match reader {
            0 => db.iter().find_map(Result::err),
            1 => keys.iter().find_map(|key| db.get(key).err()),
            2 => db.get_many(&keys).err(),
            3 => keys.iter().find_map(|key| db.compare_and_swap(key, Some(b"other"), Some(b"new")).err()),
            _ => db.check().err(),
        };
        if let Some(error) = failed {
            return error;
        }
    }
}

#[test]
fn readers_of_a_store_that_is_closed_come_to_an_end() {
    const READERS: usize = 5;
    let engines = [
        kvilt::Engine::default(),
        kvilt::Engine::Kvell(Default::default()),
        kvilt::Engine::Teks(Default::default()),
    ];
    for engine in engines {
        for round in 0..6 {
            let durability = MODES[round % 2];
            let dir = tempfile::tempdir().unwrap();
            // Most rows are in files only.
            let env = Env::new(1 << 20).unwrap();
            let builder = Db::builder(dir.path()).env(&env).durability(durability);
            let db = builder.engine(engine.clone()).open().unwrap();
            for first in (0..3000u32).step_by(100) {
                let mut batch = WriteBatch::new();
                for i in first..first + 100 {
                    batch.put(format!("{i:05}"), vec![7; 100 + round * 100]);
                }
                db.write(batch).unwrap();
            }
            let begun = Barrier::new(READERS + 1);
            std::thread::scope(|scope| {
                for reader in 0..READERS {
                    let (db, begun, engine) = (&db, &begun, &engine);
                    scope.spawn(move || {
                        begun.wait();
                        let error = read_until_closed(db, reader);
                        assert_eq!(error.kind(), ErrorKind::Closed, "{engine:?}, reader {reader}: {error}");
                    });
                }
                begun.wait();
                db.close().unwrap();
            });
        }
    }
}

/// Names of files with rows, in order.
fn files_with_rows(path: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| [".table", ".log", ".commit"].iter().any(|suffix| name.ends_with(suffix))).collect()
}

/// Files below `path` that this process has open, removed ones included.
fn open_files(path: &Path) -> Vec<std::path::PathBuf> {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    // Other tests open and close theirs meanwhile.
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(path)).collect()
}

/// A pin, as any thread of the process may have one, keeps what was replaced in memory, and with it the hold
/// on its files.
#[test]
fn a_closed_store_leaves_nothing_behind() {
    for durability in MODES {
        for is_dropped in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let pin = kvilt_sync::pin();
            let db = open(dir.path(), durability);
            // Until files were replaced.
            for i in (0..1_000_000_u32).step_by(100).take_while(|_| db.stats()["funk_rebalances"] < 3) {
                let mut batch = WriteBatch::new();
                for i in i..i + 100 {
                    batch.put(format!("{:03}-{}", i % 97, i % 3001), [7; 100]);
                }
                db.write(batch).unwrap();
            }
            assert!(db.stats()["funk_rebalances"] > 0);
            let mut scan = db.iter();
            scan.next().unwrap().unwrap();
            if is_dropped {
                drop((db, scan));
            } else {
                db.close().unwrap();
            }
            assert_eq!(open_files(dir.path()), [] as [std::path::PathBuf; 0]);
            let left = files_with_rows(dir.path());
            drop(pin);
            open(dir.path(), durability).close().unwrap();
            assert_eq!(left, files_with_rows(dir.path()), "an open has nothing to tidy up");
        }
    }
}
