//! Row 5: no space.

use std::time::Duration;

use kvilt_base::ErrorKind;
use kvilt_io::{Call, Fault, FaultyDisk, MemoryDisk, Times};

use crate::bed::{Bed, rows, synchronous, without_checkpoints};

/// Found by seed 11 of `kvilt-sim faults`: short of memory, the balancer asked for the rewrite of the chunk with the
/// longest logs again and again, while that chunk waited out a rewrite that had failed.
#[test]
fn a_chunk_that_waits_after_a_failure_is_not_asked_for_meanwhile() {
    for passes in 0..40 {
        let bed = Bed::new(1);
        let faulty = FaultyDisk::new(MemoryDisk::new(1));
        let db = bed.open(faulty.clone(), synchronous()).unwrap();
        faulty.fail(Some(Call::Create), passes, Fault::NoSpace, Times::Always);
        for i in 0..60u32 {
            // Refused once the disk is full.
            let _ = db.put(format!("key{:04}", i * 7 % 60).as_bytes(), &[7; 60]);
            bed.spawn.step(u64::from(i));
        }
        bed.clock.advance(Duration::from_secs(1));
        assert!(bed.rests_within(2000), "busy while every create after {passes} fails");
        faulty.heal();
        assert!(bed.rests_within(2000), "busy while what failed waits, after {passes} creates");
        bed.clock.advance(Duration::from_secs(200));
        assert!(bed.rests_within(2000), "busy when the disk is well again, after {passes} creates");
    }
}

/// What is refused leaves no trace, now and after a reopen.
#[test]
fn a_refused_put_is_not_seen_and_the_rest_is() {
    let bed = Bed::new(1 << 20);
    let faulty = FaultyDisk::new(MemoryDisk::new(2));
    let db = bed.open(faulty.clone(), without_checkpoints()).unwrap();
    faulty.fail(Some(Call::Write), 0, Fault::NoSpace, Times::Always);
    let mut accepted = Vec::new();
    let mut refused = 0;
    for i in 0..200u32 {
        let key = format!("key{i:04}").into_bytes();
        match db.put(&key, &[7; 100]) {
            Ok(()) => accepted.push((key, vec![7; 100])),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && !accepted.is_empty());
    assert_eq!(rows(&*db).unwrap(), accepted);
    faulty.heal();
    db.close().unwrap();
    let db = bed.open(faulty, without_checkpoints()).unwrap();
    assert_eq!(rows(&*db).unwrap(), accepted);
}
