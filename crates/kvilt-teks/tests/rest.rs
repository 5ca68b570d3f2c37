//! When the redo log is synced in the background: an interval after a write, however many follow.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use kvilt_io::MemoryDisk;

/// Each write woke the worker that syncs, so it synced all the time and not once an interval.
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
