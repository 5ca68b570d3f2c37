//! What a killed process leaves counts only where it died, and only as it left it: copied, moved, exchanged
//! or cut files give the store as it was at the last checkpoint, or a refusal, and never rows that were not
//! there together.
//!
//! A writer is this program again, which runs one test only. It takes steps of a fixed script when a test
//! orders it, so each test knows which rows there were after each step.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "changes files of a store behind its back"
)]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    ops::RangeInclusive,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use kvilt::{Builder, Db, Durability, Engine, ErrorKind, WriteBatch};
use tempfile::TempDir;

const DIRECTORY: &str = "KVILT_KILLED_TEST_DIRECTORY";
const ENGINE: &str = "KVILT_KILLED_TEST_ENGINE";
/// Longer than any test: checkpoints are those that a test asks for.
const HOUR: Duration = Duration::from_secs(3600);
const KEYS: u32 = 200;
/// Of a value that no write buffer keeps.
const LARGE_BYTES: usize = 3 << 20;

/// Steps before the only checkpoint, and all steps.
const CHECKPOINT: u32 = 200;
const ALL: u32 = 400;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A step's writes, which are one batch: most often one put.
fn writes(step: u32) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let key = |i: u32| format!("{:04}", i * 7919 % KEYS).into_bytes();
    let bytes = if step % 61 == 60 { 20_000 } else { step * 37 % 500 };
    let value = |key: &[u8]| Some([format!("{step:06} ").as_bytes(), key, &vec![7; bytes as usize]].concat());
    match step % 9 {
        4 => vec![(key(step - 4), None)],
        7 => (0..6).map(|i| key(step + i * 31)).map(|key| (key.clone(), value(&key))).collect(),
        _ => vec![(key(step), value(&key(step)))],
    }
}

/// What there is after each number of steps.
fn states(steps: u32) -> Vec<Rows> {
    let mut states = vec![Rows::new()];
    for step in 0..steps {
        let mut rows = states.last().unwrap().clone();
        for (key, value) in writes(step) {
            match value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(&key),
            };
        }
        states.push(rows);
    }
    states
}

/// The engine of a store, by its name.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Of(&'static str);

const EVEN: Of = Of("even");
const KVELL: Of = Of("kvell");
const TEKS: Of = Of("teks");

impl Of {
    fn engine(self) -> Engine {
        let [_, kvell, teks] = crate::engines();
        match self {
            EVEN => Engine::Even(tiny_chunks()),
            KVELL => kvell,
            TEKS => teks,
            Of(name) => unreachable!("no engine is called {name}"),
        }
    }

    fn builder(self, path: &Path) -> Builder {
        Db::builder(path)
            .engine(self.engine())
            .memory_budget(4 << 20)
            .durability(Durability::Async { interval: HOUR })
    }
}

/// Of a store of tiny chunks.
fn tiny_chunks() -> kvilt::even::Options {
    kvilt::even::Options::default()
        .chunk_bytes_max(8 << 10)
        .chunk_bytes_rebalance(6 << 10)
        .chunk_bytes_min(1 << 10)
        .log_bytes_max_cold(2 << 10)
        .log_bytes_max_cached(8 << 10)
        .block_bytes(512)
}

#[test]
#[ignore = "the writer of the tests below"]
fn writer_does_what_it_is_told() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let name = std::env::var(ENGINE).unwrap();
    let of = [EVEN, KVELL, TEKS].into_iter().find(|of| of.0 == name).unwrap();
    let db = of.builder(Path::new(&directory)).open().unwrap();
    let mut step = 0;
    for order in std::io::stdin().lines() {
        let order = order.unwrap();
        match order.parse() {
            Ok(steps) => (step..steps).for_each(|_| {
                let mut batch = WriteBatch::new();
                for (key, value) in writes(step) {
                    match value {
                        Some(value) => batch.put(key, value),
                        None => batch.delete(key),
                    };
                }
                db.write(batch).unwrap();
                step += 1;
            }),
            Err(_) if order == "sync" => db.sync().unwrap(),
            Err(_) if order == "close" => db.close().unwrap(),
            Err(_) => db.put("0099", vec![7; LARGE_BYTES]).unwrap(),
        }
        println!("\n@done");
    }
}

/// A writer, alive until it is killed.
struct Writer {
    process: Child,
    orders: ChildStdin,
    done: BufReader<ChildStdout>,
}

impl Writer {
    fn start(store: &Path) -> Writer {
        Writer::start_of(EVEN, store)
    }

    fn start_of(of: Of, store: &Path) -> Writer {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::writer_does_what_it_is_told", "--ignored", "--nocapture"])
            .env(DIRECTORY, store)
            .env(ENGINE, of.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, done) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Writer { process, orders, done: BufReader::new(done) }
    }

    /// Has it take the steps up to this one.
    fn go(&mut self, steps: u32) -> &mut Self {
        self.order(&steps.to_string())
    }

    fn sync(&mut self) -> &mut Self {
        self.order("sync")
    }

    fn order(&mut self, order: &str) -> &mut Self {
        writeln!(self.orders, "{order}").unwrap();
        let is_done = |line: &str| line == "@done";
        assert!((&mut self.done).lines().any(|line| is_done(&line.unwrap())), "the writer died");
        self
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A store whose writer was killed, and copies of it from before.
struct Site {
    _place: TempDir,
    store: PathBuf,
    /// From before the checkpoint, and from after it.
    early: PathBuf,
    late: PathBuf,
}

impl Site {
    fn new() -> Site {
        let place = tempfile::tempdir().unwrap();
        let [store, early, late] = ["store", "early", "late"].map(|name| place.path().join(name));
        let mut writer = Writer::start(&store);
        writer.go(CHECKPOINT / 2);
        copy(&store, &early);
        writer.go(CHECKPOINT).sync().go((CHECKPOINT + ALL) / 2);
        copy(&store, &late);
        writer.go(ALL);
        drop(writer);
        wait_for_tick(&store);
        Site { _place: place, store, early, late }
    }

    /// The only file of this kind.
    fn only(&self, kind: &str) -> PathBuf {
        let found = files(&self.store, kind);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }
}

/// The kernel's clock for files goes on every few milliseconds. Until then what a vandal does happens at the
/// time of the writer's last change; no vandal but a test is so quick.
fn wait_for_tick(store: &Path) {
    let changed_at = |path: &Path| {
        let metadata = fs::metadata(path).unwrap();
        (metadata.ctime(), metadata.ctime_nsec())
    };
    let last = fs::read_dir(store).unwrap().map(|entry| changed_at(&entry.unwrap().path())).max();
    let probe = store.with_file_name("probe");
    while {
        fs::write(&probe, "probe").unwrap();
        Some(changed_at(&probe)) <= last
    } {}
}

/// As `cp -a` does.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg("--").args([from, to]).status().unwrap();
    assert!(status.success());
}

fn files(store: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == kind)).collect();
    found.sort();
    found
}

/// After how many of these steps the store is as it was, or none if it is refused as damaged; and it must go
/// on from there.
fn look(store: &Path, steps: RangeInclusive<u32>) -> Option<u32> {
    look_at(EVEN, store, steps)
}

fn look_at(of: Of, store: &Path, steps: RangeInclusive<u32>) -> Option<u32> {
    let states = states(*steps.end());
    let found = match rows(of.builder(store)) {
        Ok(found) => found,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupted, "{error}");
            return None;
        }
    };
    let steps = steps.rev().find(|steps| states[*steps as usize] == found);
    let Some(steps) = steps else {
        panic!("these rows were never there together: {}", nearest(&states, &found))
    };
    let db = of.builder(store).open().unwrap();
    db.put("0000", "more").unwrap();
    db.close().unwrap();
    drop(db);
    let mut expected = states[steps as usize].clone();
    expected.insert(b"0000".to_vec(), b"more".to_vec());
    assert!(rows(of.builder(store)).unwrap() == expected, "it went on otherwise");
    Some(steps)
}

fn rows(builder: Builder) -> kvilt::Result<Rows> {
    let db = builder.open()?;
    let rows: kvilt::Result<Rows> =
        db.iter().map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect();
    if rows.is_ok() {
        let damages = db.check()?.damages;
        assert!(damages.is_empty(), "{damages:?}");
    }
    rows
}

/// How the rows differ from those after the number of steps with the fewest differences.
fn nearest(states: &[Rows], found: &Rows) -> String {
    let differing = |state: &Rows| {
        let keys: std::collections::BTreeSet<_> = state.keys().chain(found.keys()).cloned().collect();
        keys.into_iter().filter(|key| state.get(key) != found.get(key)).collect::<Vec<_>>()
    };
    let (steps, keys) =
        states.iter().map(differing).enumerate().min_by_key(|(_, keys)| keys.len()).expect("there is one");
    let keys: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
    format!("after {steps} steps there are others of {keys:?}")
}

/// Whatever `vandal` does to a killed store: it is as it was at the last checkpoint, or after it, or refused.
fn check(vandal: impl FnOnce(&Site)) -> Option<u32> {
    let site = Site::new();
    vandal(&site);
    look(&site.store, CHECKPOINT..=ALL)
}

/// A store whose writer has taken all steps and was killed behind them.
fn killed(of: Of, place: &Path) -> PathBuf {
    let store = place.join(of.0);
    Writer::start_of(of, &store).go(CHECKPOINT).sync().go(ALL);
    wait_for_tick(&store);
    store
}

#[test]
fn a_killed_store_has_everything_where_it_is_and_where_it_is_moved_to() {
    for of in [EVEN, KVELL, TEKS] {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(look_at(of, &killed(of, place.path()), CHECKPOINT..=ALL), Some(ALL), "{of:?}");
        let place = tempfile::tempdir().unwrap();
        let elsewhere = place.path().join("elsewhere");
        fs::rename(killed(of, place.path()), &elsewhere).unwrap();
        assert_eq!(look_at(of, &elsewhere, CHECKPOINT..=ALL), Some(ALL), "{of:?}");
    }
}

/// B-7: a reader of a killed store sees all of it, and leaves it to the next writer as it was.
#[test]
fn a_killed_store_that_is_only_read_shows_everything_and_stays_as_it_is() {
    for of in [EVEN, KVELL, TEKS] {
        let place = tempfile::tempdir().unwrap();
        let store = killed(of, place.path());
        let bytes = || {
            let files = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
            files.map(|file| (file.clone(), fs::read(file).unwrap())).collect::<BTreeMap<_, _>>()
        };
        let before = bytes();
        for _ in 0..2 {
            let found = rows(of.builder(&store).read_only(true)).unwrap();
            assert!(Some(&found) == states(ALL).last(), "{of:?}");
        }
        assert!(bytes() == before, "{of:?}: a reader has changed something");
        assert_eq!(look_at(of, &store, CHECKPOINT..=ALL), Some(ALL), "{of:?}");
    }
}

/// `kvell` has nothing that tells of which moment a file is, so a copy of an open store is refused. Of `teks`
/// the records of the log count up to the first that is not whole, and here nobody writes one meanwhile.
#[test]
fn a_copy_is_as_at_the_checkpoint_or_refused_whether_the_writer_lives_or_not() {
    for (of, copied) in [(EVEN, Some(CHECKPOINT)), (KVELL, None), (TEKS, Some(ALL))] {
        let place = tempfile::tempdir().unwrap();
        let [store, live, dead] = ["store", "live", "dead"].map(|name| place.path().join(name));
        let mut writer = Writer::start_of(of, &store);
        writer.go(CHECKPOINT).sync().go(ALL);
        copy(&store, &live);
        drop(writer);
        copy(&store, &dead);
        assert_eq!(look_at(of, &live, CHECKPOINT..=ALL), copied, "{of:?}");
        assert_eq!(look_at(of, &dead, CHECKPOINT..=ALL), copied, "{of:?}");
        assert_eq!(look_at(of, &store, CHECKPOINT..=ALL), Some(ALL), "{of:?}");
    }
}

#[test]
fn a_copy_of_a_closed_store_has_everything_whether_its_writer_lives_or_not() {
    for of in [EVEN, KVELL, TEKS] {
        let place = tempfile::tempdir().unwrap();
        let [store, live, dead] = ["store", "live", "dead"].map(|name| place.path().join(name));
        let mut writer = Writer::start_of(of, &store);
        writer.go(CHECKPOINT).sync().go(ALL).order("close");
        copy(&store, &live);
        drop(writer);
        copy(&store, &dead);
        for store in [&live, &dead, &store] {
            let read = rows(of.builder(store).read_only(true)).unwrap();
            assert!(Some(&read) == states(ALL).last(), "{of:?}");
            assert_eq!(look_at(of, store, CHECKPOINT..=ALL), Some(ALL), "{of:?}");
        }
    }
}

/// A repair of such a copy has rows that were there, but does not say that they are the newest.
#[test]
fn a_repair_of_a_copied_kvell_store_proves_nothing_and_of_a_killed_one_everything() {
    let place = tempfile::tempdir().unwrap();
    let [copied, from_copy, from_killed] = ["copy", "new", "newer"].map(|name| place.path().join(name));
    let store = killed(KVELL, place.path());
    copy(&store, &copied);
    let report = kvilt::repair(&copied, &from_copy).unwrap();
    assert!(!report.is_proven && report.losses[0].message.contains("copied"), "{report:?}");
    let report = kvilt::repair(&store, &from_killed).unwrap();
    assert!(report.is_proven && report.losses.is_empty(), "{report:?}");
    let found = rows(KVELL.builder(&from_killed)).unwrap();
    assert!(Some(&found) == states(ALL).last(), "{}", nearest(&states(ALL), &found));
}

#[test]
fn without_its_pool_it_is_as_at_the_checkpoint() {
    assert_eq!(check(|site| fs::remove_file(site.only("pool")).unwrap()), Some(CHECKPOINT));
    assert_eq!(check(|site| fs::write(site.only("pool"), "").unwrap()), Some(CHECKPOINT));
    assert_eq!(check(|site| cut(&site.only("pool"))), Some(CHECKPOINT));
}

/// As after a reboot, when the kernel has lost what was not synced.
#[test]
fn the_pool_of_another_boot_is_none() {
    /// Where the pool has the kernel's boot id.
    const BOOT_ID: u64 = 32;
    let exchanged = check(|site| {
        let pool = fs::OpenOptions::new().write(true).open(site.only("pool")).unwrap();
        pool.write_all_at(b"another boot id.", BOOT_ID).unwrap();
    });
    assert_eq!(exchanged, Some(CHECKPOINT));
}

#[test]
fn the_pool_of_another_store_is_none() {
    let other = Site::new();
    let exchanged = check(|site| {
        fs::copy(other.only("pool"), site.only("pool")).unwrap();
    });
    assert_eq!(exchanged, Some(CHECKPOINT));
}

#[test]
fn an_older_pool_of_the_same_run_is_none() {
    for is_renamed in [false, true] {
        let exchanged = check(|site| {
            let pool = site.only("pool");
            put_back(&site.late, &pool, is_renamed);
        });
        assert_eq!(exchanged, Some(CHECKPOINT));
    }
}

#[test]
fn without_its_journal_it_is_as_at_the_checkpoint() {
    let of_all = |change: fn(&Path)| {
        check(|site| files(&site.store, "journal").iter().for_each(|journal| change(journal)))
    };
    assert_eq!(of_all(|journal| fs::remove_file(journal).unwrap()), Some(CHECKPOINT));
    assert_eq!(of_all(|journal| fs::write(journal, "").unwrap()), Some(CHECKPOINT));
    assert_eq!(of_all(cut), Some(CHECKPOINT));
    let other = Site::new();
    let exchanged = check(|site| {
        fs::copy(other.only("journal"), site.only("journal")).unwrap();
    });
    assert_eq!(exchanged, Some(CHECKPOINT));
}

#[test]
fn an_older_journal_of_the_same_run_is_none() {
    for is_renamed in [false, true] {
        let exchanged = check(|site| put_back(&site.late, &site.only("journal"), is_renamed));
        assert_eq!(exchanged, Some(CHECKPOINT));
    }
}

/// One file after the other, each in a store of its own. Some are needed no more, others say that they are
/// damaged.
#[test]
fn an_older_file_of_any_kind_gives_no_rows_that_were_not_there_together() {
    for number in 0..16 {
        check(|site| {
            let old: Vec<PathBuf> = ["log", "table", "pool", "journal", "manifest"]
                .iter()
                .flat_map(|kind| files(&site.late, kind))
                .filter(|old| {
                    let new = site.store.join(old.file_name().unwrap());
                    new.exists() && fs::read(&new).unwrap() != fs::read(old).unwrap()
                })
                .collect();
            let old = &old[number % old.len()];
            put_back(&site.late, &site.store.join(old.file_name().unwrap()), number % 2 == 0);
        });
    }
}

/// Nothing goes on with it, and no checkpoint knows it: it must not pass for one that was never written.
#[test]
fn a_log_that_is_missing_with_all_that_it_had_is_found_out() {
    // The background decides whether the log with the large value is new.
    let (place, large) = loop {
        let place = tempfile::tempdir().unwrap();
        let store = place.path().join("store");
        let mut writer = Writer::start(&store);
        writer.go(CHECKPOINT).sync();
        let known = files(&store, "log");
        writer.go(ALL).order("large");
        drop(writer);
        wait_for_tick(&store);
        let is_large = |log: &PathBuf| fs::metadata(log).unwrap().len() > LARGE_BYTES as u64;
        let large = files(&store, "log").into_iter().find(is_large).unwrap();
        if !known.contains(&large) {
            break (place, large);
        }
    };
    fs::remove_file(large).unwrap();
    assert_eq!(look(&place.path().join("store"), CHECKPOINT..=ALL), Some(CHECKPOINT));
}

#[test]
fn a_missing_log_gives_no_rows_that_were_not_there_together() {
    for number in 0..16 {
        check(|site| {
            let logs = files(&site.store, "log");
            fs::remove_file(&logs[number % logs.len()]).unwrap();
        });
    }
}

#[test]
fn a_store_restored_in_its_place_is_as_its_copy_was() {
    // Everything is exchanged.
    let exchanged = |of: fn(&Site) -> &PathBuf| {
        let site = Site::new();
        for entry in fs::read_dir(&site.store).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        copy(&of(&site).join("."), &site.store);
        look(&site.store, 0..=ALL)
    };
    assert_eq!(exchanged(|site| &site.early), Some(0));
    assert_eq!(exchanged(|site| &site.late), Some(CHECKPOINT));
    // The directory is exchanged.
    let renamed = |of: fn(&Site) -> &PathBuf| {
        let site = Site::new();
        fs::rename(&site.store, site.store.with_file_name("away")).unwrap();
        fs::rename(of(&site), &site.store).unwrap();
        look(&site.store, 0..=ALL)
    };
    assert_eq!(renamed(|site| &site.early), Some(0));
    assert_eq!(renamed(|site| &site.late), Some(CHECKPOINT));
    // Files that came since stay.
    let mixed = |of: fn(&Site) -> &PathBuf| check(|site| copy(&of(site).join("."), &site.store));
    assert_eq!(mixed(|site| &site.early), None);
    assert_eq!(mixed(|site| &site.late), Some(CHECKPOINT));
}

/// To half of its length.
fn cut(file: &Path) {
    let file = fs::OpenOptions::new().write(true).open(file).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

/// Puts the copy of a file in its place: by another inode, or with other bytes in the same one.
fn put_back(copies: &Path, file: &Path, is_renamed: bool) {
    let old = copies.join(file.file_name().unwrap());
    let done = if is_renamed { fs::rename(old, file) } else { fs::copy(old, file).map(|_| ()) };
    done.unwrap();
}
