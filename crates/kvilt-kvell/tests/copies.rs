//! Copies of a store that go on while it is used.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use std::path::Path;

use bed::{ASYNC, Rows, open_as, put_round, rows_of};
use kvilt_base::Settings;
use kvilt_io::MemoryDisk;

/// A copy puts rows together by its own measure, whatever the store lets its users put at once.
#[test]
fn a_store_that_takes_small_batches_only_can_be_copied() {
    let disk = MemoryDisk::new(5);
    let mut settings = Settings::default();
    settings.durability = ASYNC;
    (settings.batch_operations_max, settings.batch_bytes_max) = (2, 64);
    let db = open_as(disk.clone(), 2, &settings).unwrap();
    let mut model = Rows::new();
    put_round(&*db, 0..40, 0, &mut model);
    db.checkpoint_to(Path::new("copy")).unwrap();
    assert_eq!(rows_of(disk.directory(Path::new("copy")).unwrap()), model);
}
