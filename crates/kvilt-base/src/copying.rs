//! Copying a store row by row, for engines whose files cannot be linked.
//!
//! Where it stands: `checkpoint_to` of such an engine makes a store in an [unfinished](crate::unfinished)
//! directory and fills it by [`copy_rows`]. What is always true: the copy has all rows of one view, also if
//! scans return early.

use std::ops::ControlFlow;

use crate::{
    Durability, Engine, Error, ErrorKind, KeyRange, Result, Rows, Scanned, Settings, WriteBatch, limits,
};

/// A batch is written when it has this many bytes of keys and values, or this many rows.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_ROWS: usize = 1 << 10;

/// The settings of a copy while it is filled: those of the store, but for what its user may do.
pub fn settings_of_copy(of: &Settings) -> Settings {
    Settings {
        durability: Durability::Async { interval: of.durability.interval() },
        create: true,
        read_only: false,
        is_unfinished: true,
        // Of its own batches, however small those of the store's users may be.
        batch_operations_max: limits::BATCH_OPERATIONS_USUAL,
        batch_bytes_max: limits::BATCH_BYTES_USUAL,
        ..of.clone()
    }
}

/// An error of writing a copy, for the caller of the store: what poisons the copy does not poison the store.
pub fn of_the_copy(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Poisoned => {
            Error::new(ErrorKind::Io, format!("the copy was given up: {}", error.message()))
        }
        _ => error,
    }
}

/// Puts all rows that `scan` gives of all keys, forward and at one view, into another store.
///
/// Errors: those of `scan` and of writes.
pub fn copy_rows(
    scan: &dyn Fn(&KeyRange, &mut dyn Rows) -> Result<Scanned>,
    into: &dyn Engine,
) -> Result<()> {
    let (mut batch, mut outcome) = (WriteBatch::new(), Ok(()));
    let mut left = Some(KeyRange::all());
    while let Some(range) = left {
        let mut rows = |key: &[u8], value: &[u8]| {
            batch.put(key, value);
            if batch.bytes() >= BATCH_BYTES || batch.len() >= BATCH_ROWS {
                outcome = into.write(std::mem::take(&mut batch));
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        left = scan(&range, &mut rows)?.left();
        std::mem::replace(&mut outcome, Ok(()))?;
    }
    into.write(batch)
}
