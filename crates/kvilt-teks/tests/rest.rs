//! When the background works: it syncs once an interval, and weaves what waits.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use kvilt_io::MemoryDisk;

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
