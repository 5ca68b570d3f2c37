//! What an open finds in a directory: a store, the beginning of one, or something else, which is refused by
//! name and left as it is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{any::Any, io, ops::ControlFlow, path::Path, sync::Arc, time::Duration};

use kvilt_base::{
    Budget, Direction, Disk, Durability, Engine, Error, ErrorKind, File, FileName, KeyRange, Listed, Result,
    Swap, World, disk::LockFailure,
};
use kvilt_even::Options;
use kvilt_format::{
    checksum::checksum,
    names::{COMMIT, LOG, MANIFEST, MANIFEST_TEMP, RESERVE, TABLE, WITNESS},
};
use kvilt_io::{Call, Fault, FaultyDisk, ManualClock, MemoryDisk, SeededRng, StepSpawn, Times};

const HOUR: Duration = Duration::from_secs(3600);
const ASYNC: Durability = Durability::Async { interval: HOUR };
const SYNC: Durability = Durability::Sync { interval: HOUR };

fn open(disk: Arc<dyn Disk>, durability: Durability, create: bool) -> Result<Arc<dyn Engine>> {
    let clock = ManualClock::new();
    open_in(disk, durability, create, clock.clone(), StepSpawn::new(clock, 1))
}

fn open_in(
    disk: Arc<dyn Disk>,
    durability: Durability,
    create: bool,
    clock: Arc<ManualClock>,
    spawn: Arc<StepSpawn>,
) -> Result<Arc<dyn Engine>> {
    let mut options = Options::tiny();
    options.settings.durability = durability;
    options.settings.create = create;
    let world = World { clock, rng: Arc::new(SeededRng::new(7)), spawn, budget: Budget::new(64 << 20) };
    kvilt_even::open(disk, world, options)
}

fn open_to(read_only: bool, disk: Arc<dyn Disk>, durability: Durability) -> Result<Arc<dyn Engine>> {
    open_with(read_only, disk, durability, Budget::new(64 << 20))
}

fn open_with(
    read_only: bool,
    disk: Arc<dyn Disk>,
    durability: Durability,
    budget: Arc<Budget>,
) -> Result<Arc<dyn Engine>> {
    let mut options = Options::tiny();
    (options.settings.durability, options.settings.read_only) = (durability, read_only);
    let clock = ManualClock::new();
    let spawn = StepSpawn::new(clock.clone(), 1);
    let world = World { clock, rng: Arc::new(SeededRng::new(7)), spawn, budget };
    kvilt_even::open(disk, world, options)
}

/// The error of an open that must fail, and must leave the directory as it was.
fn refusal(disk: &Arc<MemoryDisk>, create: bool) -> Error {
    let before = disk.snapshot();
    let Err(error) = open(disk.clone(), ASYNC, create) else { panic!("opened: {before:?}") };
    assert_eq!(disk.snapshot(), before);
    error
}

/// A store with one row, that nothing has closed.
fn of_one_row(durability: Durability) -> (Arc<MemoryDisk>, Arc<dyn Engine>) {
    let disk = MemoryDisk::new(1);
    let db = open(disk.clone(), durability, true).unwrap();
    db.put(b"k", b"v").unwrap();
    db.sync().unwrap();
    (disk, db)
}

/// A disk in memory that has one thing more in it, or a lock that fails.
#[derive(Debug)]
struct Strange {
    inside: Arc<MemoryDisk>,
    besides: Option<&'static str>,
    lock: fn(&MemoryDisk) -> Result<Box<dyn Any + Send + Sync>, LockFailure>,
}

impl Disk for Strange {
    fn create(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.inside.create(name)
    }

    fn open(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.inside.open(name)
    }

    fn rename(&self, from: FileName, to: FileName) -> io::Result<()> {
        self.inside.rename(from, to)
    }

    fn remove(&self, name: FileName) -> io::Result<()> {
        self.inside.remove(name)
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        let besides = self.besides.map(|name| Listed::Foreign(name.to_owned()));
        Ok(self.inside.list()?.into_iter().chain(besides).collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.inside.sync_dir()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        (self.lock)(&self.inside)
    }

    fn new_directory(&self, path: &Path) -> io::Result<Arc<dyn Disk>> {
        self.inside.new_directory(path)
    }

    fn link(&self, name: FileName, into: &dyn Disk) -> io::Result<()> {
        self.inside.link(name, into)
    }

    fn queue(&self, depth: usize) -> io::Result<Arc<dyn kvilt_base::Queue>> {
        self.inside.queue(depth)
    }

    fn habitat(&self) -> io::Result<kvilt_base::disk::Habitat> {
        self.inside.habitat()
    }

    fn now_ns(&self) -> u64 {
        self.inside.now_ns()
    }

    fn place(&self) -> String {
        self.inside.place()
    }
}

#[test]
fn rows_without_a_manifest_are_a_damaged_store_and_never_a_new_one() {
    for name in [FileName::Of(TABLE, 7), FileName::Of(LOG, 8), FileName::Of(COMMIT, 9)] {
        for create in [true, false] {
            let disk = MemoryDisk::new(1);
            disk.replace(name, b"rows".to_vec());
            let error = refusal(&disk, create);
            assert_eq!((error.kind(), error.file()), (ErrorKind::Corrupted, Some(name.to_string().as_str())));
        }
    }
}

#[test]
fn what_no_checkpoint_came_to_name_is_removed_by_the_next_open() {
    let (disk, db) = of_one_row(ASYNC);
    let FileName::Of(MANIFEST, newest) =
        *disk.snapshot().keys().rfind(|name| matches!(name, FileName::Of(MANIFEST, _))).unwrap()
    else {
        panic!("a manifest")
    };
    assert!(newest > 0);
    let image = disk.kill_image();
    drop(db);
    let leftovers = [
        FileName::Of(TABLE, 1_000),
        FileName::Of(LOG, 1_001),
        FileName::Of(MANIFEST, newest - 1),
        FileName::Of(MANIFEST_TEMP, newest + 1),
    ];
    for name in leftovers {
        image.replace(name, b"cut short".to_vec());
    }
    let are_left = || leftovers.map(|name| image.snapshot().contains_key(&name));
    let db = open(image.clone(), ASYNC, false).unwrap();
    assert_eq!(db.get(b"k", None).unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(are_left(), [true, true, false, false], "an open does not wait until long files are removed");
    drop(db);
    assert_eq!(are_left(), [false; 4], "a store that is closed leaves nothing");
    let named = image.snapshot();
    for name in leftovers {
        image.replace(name, b"cut short".to_vec());
    }
    let clock = ManualClock::new();
    let workers = StepSpawn::new(clock.clone(), 1);
    let db = open_in(image.clone(), ASYNC, false, clock, workers.clone()).unwrap();
    workers.step_all_until_idle();
    assert_eq!(are_left(), [false; 4], "the background removes them");
    let left = image.snapshot();
    assert!(named.keys().all(|name| left.contains_key(name)), "{:?}", left.keys());
    // Their numbers are not given to others.
    db.put(b"l", b"v").unwrap();
    db.sync().unwrap();
    let numbers = image
        .snapshot()
        .into_keys()
        .filter(|name| matches!(name, FileName::Of(LOG, _)))
        .map(FileName::number);
    assert!(numbers.max() > Some(1_001));
}

/// Files that a newer Kvilt wrote: their headers are good, and say so.
#[test]
fn what_a_newer_version_wrote_is_refused_and_left_as_it_is() {
    let (disk, db) = of_one_row(SYNC);
    db.put(b"l", b"behind the checkpoint").unwrap();
    let newest = |wanted: fn(&FileName) -> bool| *disk.snapshot().keys().rfind(|name| wanted(name)).unwrap();
    let names = [
        newest(|name| matches!(name, FileName::Of(MANIFEST, _))),
        newest(|name| matches!(name, FileName::Of(COMMIT, _))),
    ];
    for name in names {
        let image = disk.kill_image();
        let mut bytes = image.contents(name).unwrap();
        bytes[8..12].copy_from_slice(&2_u32.to_le_bytes());
        let sum = checksum(0, &[&bytes[..12], &bytes[16..64]].concat());
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        image.replace(name, bytes);
        // What an open removes, if it goes on.
        image.replace(FileName::Of(MANIFEST_TEMP, 1_000), b"cut short".to_vec());
        let before = (image.ops(), image.fingerprint());
        for read_only in [false, true] {
            let error = open_to(read_only, image.clone(), SYNC).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnsupportedVersion, "{name}: {error}");
            assert_eq!((image.ops(), image.fingerprint()), before, "{name}: something was changed");
        }
    }
}

type Hurt = fn(&MemoryDisk, FileName);

/// A commit log that is damaged or missing is found before anything is changed.
#[test]
fn an_open_that_cannot_replay_a_commit_log_leaves_everything_as_it_is() {
    let disk = MemoryDisk::new(1);
    let clock = ManualClock::new();
    let workers = StepSpawn::new(clock.clone(), 1);
    let db = open_in(disk.clone(), SYNC, true, clock.clone(), workers.clone()).unwrap();
    db.put(b"k", b"v").unwrap();
    clock.advance(HOUR);
    workers.step_all_until_idle();
    db.put(b"l", b"behind the checkpoint").unwrap();
    let is_commit_log = |name: &FileName| matches!(name, FileName::Of(COMMIT, _));
    let name = disk.snapshot().into_keys().rfind(is_commit_log).unwrap();
    let hurts: [(&str, Hurt); 2] = [
        ("damaged", |disk, name| assert!(disk.flip_bit(name, 20, 1))),
        ("missing", |disk, name| assert!(disk.lose(name))),
    ];
    for (what, hurt) in hurts {
        let image = disk.kill_image();
        hurt(&image, name);
        // What an open removes, if it goes on.
        image.replace(FileName::Of(MANIFEST_TEMP, 1_000), b"cut short".to_vec());
        let before = (image.ops(), image.fingerprint());
        for read_only in [false, true] {
            let error = open_to(read_only, image.clone(), SYNC).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupted, "{what}: {error}");
            assert_eq!((image.ops(), image.fingerprint()), before, "{what}: something was changed");
        }
    }
}

#[test]
fn what_a_reader_cannot_keep_in_memory_it_does_not_leave_out() {
    let (disk, db) = of_one_row(SYNC);
    for i in 0..500_u32 {
        db.put(&i.to_be_bytes(), &[7; 1_000]).unwrap();
    }
    let image = disk.kill_image();
    let before = (image.ops(), image.fingerprint());
    let reader = |bytes| {
        let budget = Budget::new(bytes);
        (open_with(true, image.clone(), SYNC, Arc::clone(&budget)), budget)
    };
    let error = reader(1 << 20).0.map(drop).unwrap_err();
    assert_eq!((error.kind(), error.setting()), (ErrorKind::LimitReached, Some("memory_budget")), "{error}");
    assert!(error.message().contains("since the last checkpoint"), "{error}");
    assert_eq!((image.ops(), image.fingerprint()), before);
    let (db, budget) = reader(3 << 20);
    assert_eq!(db.unwrap().get(&499_u32.to_be_bytes(), None).unwrap().as_deref(), Some(&[7; 1_000][..]));
    assert!(budget.used_in_all() <= budget.bytes_max(), "{} bytes", budget.used_in_all());
    assert_eq!((image.ops(), image.fingerprint()), before);
}

/// No call that changes a disk is made, whatever a crash left; the only calls are reads.
#[test]
fn who_only_reads_makes_no_call_that_changes_the_disk() {
    for durability in [ASYNC, SYNC] {
        let (disk, db) = of_one_row(durability);
        // More than a log's buffer holds, so that replaying would write to files.
        for i in 0..300_u32 {
            db.put(&i.to_be_bytes(), &[7; 100]).unwrap();
        }
        db.delete_range(&KeyRange::new(100_u32.to_be_bytes()..200_u32.to_be_bytes())).unwrap();
        let expected = 201;
        let image = disk.kill_image();
        let before = (image.ops(), image.fingerprint());
        let reader = open_to(true, image.clone(), durability).unwrap();
        let view = reader.view().unwrap();
        let mut rows = 0;
        let mut count = |_: &[u8], _: &[u8]| {
            rows += 1;
            ControlFlow::Continue(())
        };
        let mut left = Some(KeyRange::all());
        while let Some(range) = left {
            left = reader.scan(&view, &range, Direction::Forward, &mut count).unwrap().left();
        }
        assert_eq!(rows, expected, "{durability:?}");
        assert!(reader.check(&mut |_| true).unwrap().damages.is_empty());
        let second = open_to(true, image.clone(), durability).unwrap();
        assert_eq!(second.get(b"k", None).unwrap().as_deref(), Some(&b"v"[..]));
        reader.close().unwrap();
        drop((view, reader, second));
        assert_eq!((image.ops(), image.fingerprint()), before, "{durability:?}");
    }
}

#[test]
fn what_is_not_ours_is_named_and_no_store_is_made_beside_it() {
    let inside = MemoryDisk::new(1);
    let disk = Strange { inside: inside.clone(), besides: Some("thesis.tex"), lock: |inside| inside.lock() };
    let error = open(Arc::new(disk), ASYNC, true).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("\"thesis.tex\""), "{error}");
    assert_eq!(inside.snapshot(), MemoryDisk::new(1).snapshot());
}

#[test]
fn under_the_name_of_the_reserve_only_a_file_is_taken() {
    let inside = MemoryDisk::new(1);
    open(inside.clone(), ASYNC, true).unwrap().close().unwrap();
    inside.lose(RESERVE);
    let disk = Strange { inside, besides: Some("RESERVE"), lock: |inside| inside.lock() };
    let error = open(Arc::new(disk), ASYNC, true).map(drop).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::Corrupted, Some("RESERVE")));
}

#[test]
fn no_store_is_made_that_was_not_asked_for() {
    let error = refusal(&MemoryDisk::new(1), false);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("there is no store"), "{error}");
}

/// Wherever the making of a store ends, what it leaves is a store, or the next open makes one of it.
#[test]
fn a_making_that_was_cut_short_is_made_good_by_the_next_open() {
    let (mut made, mut found) = (0, 0);
    for op in 0.. {
        let disk = MemoryDisk::new(1);
        disk.set_crash_at(Some(op));
        let whole = open(disk.clone(), SYNC, true);
        if !disk.has_crashed() {
            whole.unwrap();
            break;
        }
        match open(disk.kill_image(), SYNC, false) {
            Ok(_) => found += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "crash at {op}: {error}");
                made += 1;
            }
        }
        let image = disk.kill_image();
        let db = open(image.clone(), SYNC, true).unwrap();
        db.put(b"k", b"v").unwrap();
        let again = open(image.kill_image(), SYNC, false).unwrap();
        assert_eq!(again.get(b"k", None).unwrap().as_deref(), Some(&b"v"[..]), "crash at {op}");
    }
    assert!(made > 0 && found > 0, "{made} ends before there was a store, {found} behind");
}

#[test]
fn a_lock_that_is_not_to_be_had_says_who_has_it_or_what_is_wrong() {
    type Lock = fn(&MemoryDisk) -> Result<Box<dyn Any + Send + Sync>, LockFailure>;
    let cases: [(Lock, ErrorKind, &str); 4] = [
        (|_| Err(LockFailure::Held(Some(4711))), ErrorKind::Busy, "process 4711"),
        (|_| Err(LockFailure::Held(None)), ErrorKind::Busy, "another process"),
        (
            |_| Err(LockFailure::Io(io::Error::new(io::ErrorKind::InvalidData, "it is a link"))),
            ErrorKind::Corrupted,
            "it is a link",
        ),
        (|_| Err(LockFailure::Io(io::ErrorKind::PermissionDenied.into())), ErrorKind::Io, "lock the store"),
    ];
    for (lock, kind, said) in cases {
        let inside = MemoryDisk::new(1);
        let disk = Strange { inside: inside.clone(), besides: None, lock };
        let error = open(Arc::new(disk), ASYNC, true).map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(inside.snapshot(), MemoryDisk::new(1).snapshot());
    }
}

#[test]
fn a_file_that_the_manifest_names_is_missed_when_it_is_read() {
    let (disk, _db) = of_one_row(ASYNC);
    let image = disk.kill_image();
    let is_log = |name: &FileName| matches!(name, FileName::Of(LOG, _));
    let log = image.snapshot().into_keys().find(is_log).expect("the put is in a log");
    image.lose(log);
    let db = open(image, ASYNC, true).unwrap();
    let error = db.get(b"k", None).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::Corrupted, Some(log.to_string().as_str())));
}

#[test]
fn a_file_that_the_disk_does_not_open_is_asked_for_again_by_the_next_read() {
    let (disk, _db) = of_one_row(ASYNC);
    let faulty = FaultyDisk::new(disk.kill_image());
    let db = open(faulty.clone(), ASYNC, true).unwrap();
    faulty.fail(Some(Call::Open), 0, Fault::Io, Times::Once);
    let error = db.get(b"k", None).unwrap_err();
    assert_eq!((error.kind(), faulty.met()), (ErrorKind::Io, 1), "{error}");
    assert!(error.file().is_some_and(|name| name.ends_with(".log")), "{error}");
    assert_eq!(db.get(b"k", None).unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_check_misses_manifest_and_witness_though_the_open_store_needs_neither() {
    let (disk, db) = of_one_row(ASYNC);
    assert!(db.check(&mut |_| true).unwrap().damages.is_empty());
    let is_root = |name: &FileName| matches!(*name, FileName::Of(MANIFEST, _) | WITNESS);
    let lost: Vec<_> = disk.snapshot().into_keys().filter(is_root).collect();
    assert_eq!(lost.iter().filter(|name| disk.lose(**name)).count(), 2);
    let damages = db.check(&mut |_| true).unwrap().damages;
    assert!(damages.iter().any(|damage| damage.message.contains("are missing")), "{damages:?}");
    assert_eq!(db.get(b"k", None).unwrap().as_deref(), Some(&b"v"[..]));
}

/// The bytes are there already; that they cannot be written once more where space is given at each write
/// takes nothing from them.
#[test]
fn a_full_disk_does_not_keep_an_open_from_replaying() {
    let disk = MemoryDisk::new(1);
    let db = open(disk.clone(), SYNC, true).unwrap();
    db.put(b"k", b"v").unwrap();
    let full = FaultyDisk::new(disk.kill_image());
    full.fail(Some(Call::Write), 0, Fault::NoSpace, Times::Always);
    let db = open(full.clone(), SYNC, true).unwrap();
    assert!(full.met() > 0, "the commit log was to be written once more");
    assert_eq!(db.get(b"k", None).unwrap().as_deref(), Some(&b"v"[..]));
}

/// A swap that cannot read what it compares with is refused alone; nothing of it is in the log.
#[test]
fn a_swap_that_cannot_read_changes_nothing_now_nor_after_a_crash() {
    let disk = MemoryDisk::new(1);
    let db = open(disk.clone(), SYNC, true).unwrap();
    db.put(b"k", b"old").unwrap();
    db.close().unwrap();
    drop(db);
    let faulty = FaultyDisk::new(disk.clone());
    let db = open(faulty.clone(), SYNC, true).unwrap();
    faulty.fail(Some(Call::Read), 0, Fault::Io, Times::Once);
    let error = db.compare_and_swap(b"k", Some(b"old"), Some(b"new")).map(drop).unwrap_err();
    assert_eq!((error.kind(), faulty.met()), (ErrorKind::Io, 1), "{error}");
    let killed = open(disk.kill_image(), SYNC, true).unwrap();
    assert_eq!(killed.get(b"k", None).unwrap().as_deref(), Some(&b"old"[..]));
    assert!(matches!(db.compare_and_swap(b"k", Some(b"old"), Some(b"new")), Ok(Swap::Done)));
    assert_eq!(db.get(b"k", None).unwrap().as_deref(), Some(&b"new"[..]));
}
