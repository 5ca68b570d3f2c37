//! Walks the table at the head of `reserve.rs`.

use kvilt_base::FileName;
use kvilt_format::names::{LOG, RESERVE};
use kvilt_io::{Call, Fault, FaultyDisk, MemoryDisk, Times};

use super::*;

const WHOLE: u64 = BYTES_MIN;
const QUARTER: u64 = WHOLE / PIECES;

fn on(disk: &Arc<MemoryDisk>) -> Reserve {
    Reserve::found(disk.clone(), 4 << 20, bytes_in(disk))
}

fn bytes_in(disk: &MemoryDisk) -> u64 {
    disk.contents(RESERVE).map_or(0, |bytes| bytes.len() as u64)
}

/// A whole reserve on a disk without a free byte.
fn whole_on_a_full_disk() -> (Arc<MemoryDisk>, Reserve) {
    let disk = MemoryDisk::new(1);
    let reserve = on(&disk);
    reserve.allow_data().unwrap();
    disk.set_capacity(Some(disk.total_bytes()));
    (disk, reserve)
}

#[test]
fn the_first_write_of_data_makes_it_and_a_checkpoint_lets_it_grow_up_to_its_limit() {
    let disk = MemoryDisk::new(1);
    let reserve = on(&disk);
    assert!(reserve.is_short() && bytes_in(&disk) == 0);
    reserve.allow_data().unwrap();
    assert!(!reserve.is_short());
    for (store_bytes, bytes) in [(0, WHOLE), (5 << 20, 512 << 10), (1 << 20, 512 << 10), (1 << 40, 4 << 20)] {
        reserve.keep(store_bytes);
        assert_eq!(bytes_in(&disk), bytes, "a store of {store_bytes} bytes");
    }
}

#[test]
fn it_grows_with_what_is_written_before_a_checkpoint_counts_it() {
    let disk = MemoryDisk::new(1);
    let reserve = on(&disk);
    reserve.allow_data().unwrap();
    (0..40).for_each(|_| reserve.grow_with(50_000));
    assert_eq!(bytes_in(&disk), 2 * WHOLE, "for 2 MB");
    reserve.keep(0);
    (0..20).for_each(|_| reserve.grow_with(50_000));
    assert_eq!(bytes_in(&disk), 2 * WHOLE, "what a checkpoint has counted counts no more");
}

#[test]
fn it_is_given_in_quarters_of_which_each_use_leaves_some() {
    for (to, left) in [
        (Use::Rewrite, 2 * QUARTER),
        (Use::Deletes, QUARTER),
        (Use::DeletesUnderGate, QUARTER),
        (Use::Checkpoint { has_logs: true }, QUARTER),
        (Use::Checkpoint { has_logs: false }, 0),
    ] {
        let (disk, reserve) = whole_on_a_full_disk();
        let mut bytes = WHOLE;
        while bytes > left {
            bytes -= QUARTER;
            assert!(reserve.give(to, 100).unwrap().has_given, "{to:?}");
            assert_eq!(bytes_in(&disk), bytes, "{to:?}");
            assert!(reserve.is_short(), "{to:?}");
        }
        assert!(!reserve.give(to, 100).unwrap().has_given, "nothing more for {to:?}");
        assert_eq!(bytes_in(&disk), left, "{to:?}");
    }
}

#[test]
fn who_needs_more_than_there_is_gets_nothing() {
    let (disk, reserve) = whole_on_a_full_disk();
    assert!(reserve.give(Use::Checkpoint { has_logs: true }, 3 * QUARTER + 1).is_none());
    assert!(!reserve.is_short() && bytes_in(&disk) == WHOLE);
    assert!(reserve.give(Use::Checkpoint { has_logs: true }, 3 * QUARTER).unwrap().has_given);
    assert_eq!(bytes_in(&disk), QUARTER);
}

#[test]
fn data_waits_until_it_is_whole_again_and_nobody_has_a_lease() {
    let (disk, reserve) = whole_on_a_full_disk();
    let lease = reserve.give(Use::Deletes, 100);
    // What was given is written.
    disk.create(FileName::Of(LOG, 1)).unwrap().write_all_at(0, &[1; 100]).unwrap();
    assert!(reserve.rewrite_alone().is_none(), "a rewrite beside one who tries again");
    assert_eq!(reserve.allow_data().unwrap_err().kind(), ErrorKind::NoSpace);
    disk.set_capacity(None);
    assert_eq!(reserve.allow_data().unwrap_err().kind(), ErrorKind::NoSpace, "the room is somebody's");
    drop(lease);
    assert!(reserve.rewrite_alone().is_some());
    reserve.allow_data().unwrap();
    assert!(!reserve.is_short() && bytes_in(&disk) == WHOLE);
}

#[test]
fn an_open_knows_that_the_run_before_gave_of_it() {
    let (disk, reserve) = whole_on_a_full_disk();
    assert!(!on(&disk).is_short());
    drop(reserve.give(Use::Deletes, 100));
    disk.create(FileName::Of(LOG, 1)).unwrap().write_all_at(0, &[1; 100]).unwrap();
    let next = on(&disk);
    assert_eq!(next.allow_data().unwrap_err().kind(), ErrorKind::NoSpace);
    disk.set_capacity(None);
    next.keep(0);
    assert!(!next.is_short() && bytes_in(&disk) == WHOLE);
}

#[test]
fn one_that_cannot_grow_stays_as_large_and_is_not_short() {
    let (disk, reserve) = whole_on_a_full_disk();
    reserve.keep(1 << 40);
    assert!(!reserve.is_short() && bytes_in(&disk) == WHOLE);
    // With room for the old size only, that is what comes back.
    drop(reserve.give(Use::Deletes, 100));
    reserve.keep(1 << 40);
    assert!(!reserve.is_short() && bytes_in(&disk) == WHOLE);
}

#[test]
fn data_does_not_wait_for_a_disk_that_cannot_make_one() {
    let faulty = FaultyDisk::new(MemoryDisk::new(1));
    faulty.fail(Some(Call::Allocate), 0, Fault::Io, Times::Always);
    let reserve = Reserve::found(faulty.clone(), 4 << 20, 0);
    reserve.allow_data().unwrap();
    assert!(!reserve.is_short());
    assert!(faulty.list().unwrap().is_empty(), "a file without room is removed");
    assert!(reserve.give(Use::Deletes, 1).is_none());
    faulty.heal();
    reserve.keep(0);
    assert!(reserve.give(Use::Deletes, 1).is_some());
    // Nor where none is wanted.
    let none = Reserve::found(MemoryDisk::new(1), 0, 0);
    none.keep(1 << 40);
    none.allow_data().unwrap();
    assert!(none.give(Use::Deletes, 1).is_none());
}
