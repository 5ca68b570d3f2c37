//! E-18: what a copy leaves that failed, or that was cut short, is no store, and is not in the way of the
//! next.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kvilt_base::{Budget, Disk, Durability, Engine, ErrorKind, FileName, Result, World};
use kvilt_even::Options;
use kvilt_format::names::TABLE;
use kvilt_io::{Fault, FaultyDisk, Keep, ManualClock, MemoryDisk, SeededRng, StepSpawn, Times};

const ROWS: u32 = 200;

fn open(disk: Arc<dyn Disk>, create: bool) -> Result<Arc<dyn Engine>> {
    let clock = ManualClock::new();
    let spawn = StepSpawn::new(clock.clone(), 1);
    let durability = Durability::Async { interval: Duration::from_secs(3600) };
    let mut options = Options::tiny();
    (options.settings.durability, options.settings.create) = (durability, create);
    let world = World { clock, rng: Arc::new(SeededRng::new(7)), spawn, budget: Budget::new(64 << 20) };
    kvilt_even::open(disk, world, options)
}

fn fill(db: &dyn Engine) {
    for i in 0..ROWS {
        db.put(&i.to_be_bytes(), &[b'v'; 100]).unwrap();
    }
}

fn count(db: &dyn Engine) -> u32 {
    (0..ROWS).filter(|i| db.get(&i.to_be_bytes(), None).unwrap().is_some()).count() as u32
}

fn path() -> PathBuf {
    PathBuf::from("/copies/copy")
}

#[test]
fn a_copy_that_fails_at_any_call_leaves_nothing_and_can_be_tried_again() {
    let mut failed = 0;
    for fault in [Fault::Io, Fault::NoSpace] {
        // A failure that is no error, as of what is only for the next process, does not end the calls.
        let mut whole = 0;
        for passes in 0.. {
            let memory = MemoryDisk::new(1);
            let disk = FaultyDisk::new(memory.clone());
            let db = open(disk.clone(), true).unwrap();
            fill(&*db);
            disk.fail(None, passes, fault, Times::Once);
            let Err(error) = db.checkpoint_to(&path()) else {
                whole += 1;
                if whole > 100 {
                    break;
                }
                continue;
            };
            whole = 0;
            disk.heal();
            let left = memory.directory(&path()).map(|copy| copy.snapshot()).unwrap_or_default();
            assert!(left.is_empty(), "{left:?} after {error}");
            if db.sync().is_err() {
                // The call was the store's own, and poisoned it.
                continue;
            }
            failed += 1;
            db.checkpoint_to(&path()).unwrap();
            assert_eq!(count(&*open(memory.directory(&path()).unwrap(), false).unwrap()), ROWS);
        }
    }
    assert!(failed > 20, "{failed} calls of a copy");
}

#[test]
fn a_copy_that_is_cut_short_anywhere_is_no_store_and_the_next_replaces_it() {
    let (mut unfinished, mut whole) = (0, 0);
    for op in 0.. {
        let disk = MemoryDisk::new(op);
        let db = open(disk.clone(), true).unwrap();
        fill(&*db);
        db.sync().unwrap();
        disk.set_crash_at(Some(disk.ops() + op));
        let made = db.checkpoint_to(&path());
        for keep in [Keep::SyncedOnly, Keep::All, Keep::Random(op), Keep::Prefix(op)] {
            let image = disk.crash_image(keep);
            let is_whole = image.directory(&path()).is_some_and(|copy| match open(copy, false) {
                Ok(copy) => {
                    assert_eq!(count(&*copy), ROWS, "part of a copy was taken for a store");
                    true
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                    false
                }
            });
            let again = open(image.clone(), false).unwrap();
            match again.checkpoint_to(&path()) {
                Err(error) => {
                    assert!(is_whole && error.kind() == ErrorKind::InvalidArgument, "{error}");
                    whole += 1;
                }
                Ok(()) => {
                    assert!(!is_whole && made.is_err(), "a whole copy was replaced");
                    assert_eq!(count(&*open(image.directory(&path()).unwrap(), false).unwrap()), ROWS);
                    unfinished += 1;
                }
            }
        }
        if made.is_ok() {
            break;
        }
    }
    assert!(unfinished > 20 && whole > 0, "{unfinished} unfinished, {whole} whole");
}

#[test]
fn a_directory_that_is_in_use_or_has_something_in_it_is_refused_and_left_alone() {
    let disk = MemoryDisk::new(1);
    let db = open(disk.clone(), true).unwrap();
    fill(&*db);
    let copy = disk.new_directory(&path()).unwrap();
    let lock = copy.lock().unwrap();
    assert_eq!(db.checkpoint_to(&path()).unwrap_err().kind(), ErrorKind::Busy);
    drop(lock);
    copy.create(FileName::Of(TABLE, 7)).unwrap();
    let before = disk.directory(&path()).unwrap().snapshot();
    assert_eq!(db.checkpoint_to(&path()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(disk.directory(Path::new("/copies/copy")).unwrap().snapshot(), before);
}
