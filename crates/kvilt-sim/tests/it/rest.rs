//! When the background of an engine works that makes durable what was written once an interval.

use std::{sync::Arc, time::Duration};

use kvilt_base::{Budget, Descriptor, Disk, Durability, Engine, ErrorKind, Settings, World};
use kvilt_io::{ManualClock, MemoryDisk, SeededRng, StepSpawn};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Clock and background are the test's; what was written is made durable each hour, and a view expires behind
/// a minute.
fn open(engine: &dyn Descriptor, disk: Arc<dyn Disk>) -> (Arc<dyn Engine>, Arc<ManualClock>, Arc<StepSpawn>) {
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
    (engine.open(disk, world, &settings).unwrap(), clock, spawn)
}

#[test]
fn a_view_of_kvell_expires_between_two_cuts() {
    a_view_expires_and_hastens_nothing(&kvilt_kvell::Options::default());
}

#[test]
fn a_view_of_teks_expires_between_two_syncs() {
    a_view_expires_and_hastens_nothing(&kvilt_teks::Options::default());
}

/// With a view open all was made durable each time that a view might expire; and a view that had expired, and
/// was still held, kept a store at rest stepping.
fn a_view_expires_and_hastens_nothing(engine: &dyn Descriptor) {
    let disk = MemoryDisk::new(1);
    let (db, clock, spawn) = open(engine, disk.clone());
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
