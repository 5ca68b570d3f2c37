//! What the tests of several rivals ask.

use std::{
    env,
    io::{self, Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use kvilt_bench::store::{Contestant, Store};

const BUDGET_BYTES: u64 = 8 << 20;

/// What is put is there, in order, also when it is opened again; and a store is opened once.
pub(crate) fn rows(contestant: &dyn Contestant) {
    let place = tempfile::tempdir().unwrap();
    let open = || contestant.open(place.path(), BUDGET_BYTES);
    let store = open().unwrap();
    store.scan(b"", None, 9, &mut |_, _| panic!("nothing is there")).unwrap();
    store.put(b"b", b"1").unwrap();
    store.put(b"b", b"2").unwrap();
    store.load(&[(b"c".to_vec(), b"3".to_vec()), (b"a".to_vec(), Vec::new())]).unwrap();
    store.settle().unwrap();
    store.close().unwrap();
    let store = open().unwrap();
    assert_eq!(value(&*store, b"a"), Some(Vec::new()));
    assert_eq!(value(&*store, b"b"), Some(b"2".to_vec()));
    assert_eq!(value(&*store, b"d"), None);
    let scanned = |from: &[u8], end: Option<&[u8]>, rows_max| {
        let mut rows = Vec::new();
        store.scan(from, end, rows_max, &mut |key, value| rows.push([key, value].concat())).unwrap();
        rows.concat()
    };
    assert_eq!(scanned(b"", None, 9), b"ab2c3");
    assert_eq!(scanned(b"aa", None, 1), b"b2");
    assert_eq!(scanned(b"a", Some(b"c"), 9), b"ab2");
    assert_eq!(scanned(b"b", Some(b"b"), 9), b"");
    assert_eq!(scanned(b"ca", None, 9), b"");
    assert!(open().is_err(), "it is open, and says so");
}

/// A process that puts is killed, and each row that was put is there: all of them were acknowledged, and none
/// was synced on purpose. The test of this name calls nothing else: the process that is killed runs it, too.
pub(crate) fn a_kill_loses_nothing(contestant: &dyn Contestant, test: &str) {
    const PLACE: &str = "KVILT_BENCH_PUTS_UNTIL_KILLED_AT";
    const PUTS_MIN: u64 = 5000;
    /// No name of a test has it.
    const IS_PUT: u8 = b'!';

    if let Some(place) = env::var_os(PLACE) {
        let store = contestant.open(Path::new(&place), BUDGET_BYTES).unwrap();
        let mut told = io::stdout().lock();
        for number in 0_u64.. {
            store.put(&number.to_be_bytes(), &[7; 100]).unwrap();
            // Fails when nobody listens any more.
            told.write_all(&[IS_PUT]).and_then(|()| told.flush()).unwrap();
        }
    }
    let place = tempfile::tempdir().unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(PLACE, place.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut puts = 0_u64;
    for byte in io::BufReader::new(child.stdout.take().unwrap()).bytes() {
        puts += u64::from(byte.unwrap() == IS_PUT);
        if puts == PUTS_MIN {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(puts >= PUTS_MIN, "it was killed while it put");
    let store = contestant.open(place.path(), BUDGET_BYTES).unwrap();
    let mut rows = 0;
    store.scan(b"", None, u64::MAX, &mut |_, _| rows += 1).unwrap();
    // The last one may have been put, and not told.
    assert!((puts..=puts + 1).contains(&rows), "{rows} rows of {puts}");
}

/// Puts of the same rows by several threads do not fail, and none is half there.
pub(crate) fn threads_put_the_same_rows(contestant: &dyn Contestant) {
    const THREADS: u8 = 4;
    const ROUNDS: usize = 500;

    let place = tempfile::tempdir().unwrap();
    let store = contestant.open(place.path(), BUDGET_BYTES).unwrap();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let store = &*store;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    store.put(&[(round % 3) as u8], &[number; 800]).unwrap();
                }
            });
        }
    });
    let mut rows = 0;
    store
        .scan(b"", None, 9, &mut |_, value| {
            assert!(value.len() == 800 && value.iter().all(|byte| *byte == value[0]));
            rows += 1;
        })
        .unwrap();
    assert_eq!(rows, 3);
}

fn value(store: &dyn Store, key: &[u8]) -> Option<Vec<u8>> {
    let mut seen = Vec::new();
    let is_there = store.get(key, &mut |value| seen.push(value.to_vec())).unwrap();
    assert_eq!(seen.len(), usize::from(is_there));
    seen.pop()
}
