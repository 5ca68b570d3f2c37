//! When the background works: it syncs once an interval, weaves what waits, and lets views expire.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use std::{sync::Arc, time::Duration};

use kvilt_base::{Budget, Descriptor as _, Disk, Durability, Engine, ErrorKind, Settings, World};
use kvilt_io::{ManualClock, MemoryDisk, SeededRng, StepSpawn};
use kvilt_teks::Options;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// More than the weaver takes in a step.
const MANY: u32 = 10_000;

/// The first write behind each sync woke the worker that syncs, so it synced all the time.
#[test]
fn a_write_behind_a_sync_waits_for_the_end_of_the_interval() {
    let (db, spawn) = bed::open(MemoryDisk::new(1), bed::ASYNC).unwrap();
    spawn.step_all_until_idle();
    assert_eq!(spawn.next_deadline(), None, "nothing was written");
    db.put(&bed::key(0), b"wakes the worker").unwrap();
    assert!(spawn.step_all_until_idle() > 0);
    assert!(spawn.next_deadline().is_some());
    for number in 1..10 {
        db.put(&bed::key(number), b"waits").unwrap();
        assert_eq!(spawn.ready(), Vec::<String>::new(), "behind row {number}");
    }
    assert!(spawn.next_deadline().is_some());
}

/// Else the next scan would have to weave all of them.
#[test]
fn many_new_keys_are_woven_before_the_next_sync() {
    let (db, spawn) = bed::open_with(MemoryDisk::new(1), bed::ASYNC, 64 << 20).unwrap();
    spawn.step_all_until_idle();
    let mut queued_most = 0;
    for number in 0..MANY {
        db.put(&bed::key(number), b"").unwrap();
        queued_most = queued_most.max(bed::figure(&*db, "queued_now"));
        spawn.step_all_until_idle();
    }
    assert!(queued_most > 1000, "{queued_most} keys waited at most: puts weave themselves");
    assert!(queued_most < u64::from(MANY) / 2, "{queued_most} keys waited");
    assert_eq!(bed::figure(&*db, "rotations"), 0);
}

/// Clock and background are the test's; a sync comes each hour, and a view expires behind a minute.
fn open(disk: Arc<dyn Disk>) -> (Arc<dyn Engine>, Arc<ManualClock>, Arc<StepSpawn>) {
    let clock = ManualClock::new();
    let spawn = StepSpawn::new(clock.clone(), 1);
    let world = World {
        clock: clock.clone(),
        rng: Arc::new(SeededRng::new(7)),
        spawn: spawn.clone(),
        budget: Budget::new(64 << 20),
    };
    let mut settings = Settings::default();
    settings.durability = Durability::Async { interval: HOUR };
    settings.view_age_max = MINUTE;
    (Options::default().open(disk, world, &settings).unwrap(), clock, spawn)
}

/// With a view open the log was synced each time that a view might expire; and a view that had expired, and
/// was still held, kept a store at rest stepping.
#[test]
fn a_view_expires_between_two_syncs_and_does_not_hasten_the_next() {
    let disk = MemoryDisk::new(1);
    let (db, clock, spawn) = open(disk.clone());
    db.put(b"a", b"1").unwrap();
    spawn.step_all_until_idle();
    let view = db.view().unwrap();
    db.put(b"a", b"2").unwrap();
    let ops = disk.ops();
    // It looks for views each minute, and then at the moment when one expires.
    for _ in 0..2 {
        clock.advance(MINUTE);
        spawn.step_all_until_idle();
    }
    let error = db.get(b"a", Some(&view)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotTooOld);
    assert_eq!(disk.ops(), ops, "the interval is not over");
    clock.advance(HOUR);
    spawn.step_all_until_idle();
    assert!(disk.ops() > ops);
    clock.advance(HOUR);
    spawn.step_all_until_idle();
    assert_eq!(spawn.next_deadline(), None, "nothing is left to be done, though the view is held");
    drop(view);
}
