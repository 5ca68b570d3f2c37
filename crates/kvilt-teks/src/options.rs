//! `Options`: what a user may set.

use kvilt_base::{Error, Result};

use crate::log::Sizes;

/// Bytes of the memory budget that a store needs to work.
const BUDGET_BYTES_MIN: u64 = 256 << 10;
/// A memory table has this part of the budget …
const TABLE_PART: u64 = 8;
/// … and from this to this many bytes.
const TABLE_BYTES_MIN: u64 = 16 << 10;
const TABLE_BYTES_MAX: u64 = 1 << 30;
/// A segment of the redo log has a quarter of a memory table's bytes, but from this to this many.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
const SEGMENT_BYTES_MAX: u64 = 8 << 20;
/// The reserve of the redo log has room for the output of a flush, up to this many bytes.
const RESERVE_OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// Range tombstones are too many from this many bytes on, whatever the memory tables have.
const TOMBSTONE_BYTES_MAX: u64 = 1 << 20;
/// The redo log of a memory table may have as many times its bytes.
const LOG_TABLES: u64 = 4;

/// Settings of a `teks` store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of key and value that a row has, about: it decides how many slots the hash of a memory table
    /// gets. With smaller rows a table is full before it has used its memory.
    pub row_bytes: usize,
    /// How many of the paper's four steps a memory table takes: all, but for measurements.
    #[doc(hidden)]
    pub steps: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { row_bytes: 128, steps: 4 }
    }
}

impl Options {
    pub(crate) fn check(&self, budget_bytes: u64) -> Result<()> {
        if !(1..=1 << 20).contains(&self.row_bytes) {
            let message = format!("row_bytes is {}, but must be from 1 to 1 MiB", self.row_bytes);
            return Err(Error::invalid(message).by_setting("row_bytes"));
        }
        if budget_bytes < BUDGET_BYTES_MIN {
            let message = format!(
                "the engine needs a memory budget of {} KiB, and there are {}",
                BUDGET_BYTES_MIN >> 10,
                budget_bytes >> 10
            );
            return Err(Error::invalid(message).by_setting("memory_budget"));
        }
        Ok(())
    }
}

/// Bytes of a memory table.
pub(crate) fn table_bytes(budget_bytes: u64) -> usize {
    (budget_bytes / TABLE_PART).clamp(TABLE_BYTES_MIN, TABLE_BYTES_MAX) as usize
}

/// Bytes of range tombstones from which a range delete of few rows deletes them one by one: half of a memory
/// table's, up to a mebibyte. Each is in memory and in each catalogue.
pub(crate) fn tombstone_bytes_max(table_bytes: usize) -> u64 {
    (table_bytes as u64 / 2).min(TOMBSTONE_BYTES_MAX)
}

/// Segments of the redo log that a memory table may need: if there are more, it is flushed although it is not
/// full.
pub(crate) fn segments_max(budget_bytes: u64) -> u64 {
    let bytes = table_bytes(budget_bytes) as u64 * LOG_TABLES;
    bytes.div_ceil(segment_bytes(budget_bytes)).max(LOG_TABLES)
}

/// Bytes of a segment of the redo log.
fn segment_bytes(budget_bytes: u64) -> u64 {
    (table_bytes(budget_bytes) as u64 / 4).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}

/// Lengths of the redo log's files.
pub(crate) fn log_sizes(budget_bytes: u64) -> Sizes {
    let segment_bytes = segment_bytes(budget_bytes);
    let output_bytes = (table_bytes(budget_bytes) as u64).min(RESERVE_OUTPUT_BYTES_MAX);
    Sizes { segment_bytes, output_files: output_bytes.div_ceil(segment_bytes) as usize }
}
