//! Row 21: what a close cannot do, it says; what a drop cannot do, it keeps to itself.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kvilt_base::ErrorKind;
use kvilt_io::{Call, Fault, FaultyDisk, MemoryDisk, Times};

use crate::bed::{Bed, synchronous, without_checkpoints};

#[test]
fn a_close_that_fails_says_so_and_a_drop_never_panics() {
    for options in [without_checkpoints(), synchronous()] {
        for is_closed_first in [true, false] {
            let bed = Bed::new(64 << 20);
            let memory = MemoryDisk::new(1);
            let disk = FaultyDisk::new(memory.clone());
            let db = bed.open(disk.clone(), options.clone()).unwrap();
            db.put(b"k", b"v").unwrap();
            disk.fail(Some(Call::Sync), 0, Fault::Io, Times::Always);
            if is_closed_first {
                let error = db.close().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
            }
            assert!(catch_unwind(AssertUnwindSafe(|| drop(db))).is_ok());
            // The directory is free, and what is in it is a store.
            let db = Bed::new(64 << 20).open(memory, options.clone()).unwrap();
            assert!(db.check(&mut |_| true).unwrap().damages.is_empty());
        }
    }
}
