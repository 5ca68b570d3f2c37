//! What the engine counts, and its own figures.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kvilt_base::{WriteBatch, declare_figures};

/// Counters of a store. Relaxed: each is exact by itself.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) gets: AtomicU64,
    pub(crate) puts: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) user_bytes: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) views: AtomicU64,
    pub(crate) views_expired: AtomicU64,
    pub(crate) scanned_rows: AtomicU64,
    pub(crate) background_steps: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) stalls_us: AtomicU64,
    pub(crate) rotations: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) merges: AtomicU64,
    pub(crate) thinned: AtomicU64,
    pub(crate) table_bytes_written: AtomicU64,
    pub(crate) catalogue_bytes_written: AtomicU64,
    pub(crate) open_us: AtomicU64,
}

impl Counters {
    pub(crate) fn count_put(&self, key: &[u8], value: Option<&[u8]>) {
        self.puts.fetch_add(1, Relaxed);
        self.user_bytes.fetch_add((key.len() + value.map_or(0, <[u8]>::len)) as u64, Relaxed);
    }

    pub(crate) fn count_batch(&self, batch: &WriteBatch) {
        self.puts.fetch_add(batch.len() as u64, Relaxed);
        self.batches.fetch_add(u64::from(batch.len() > 1), Relaxed);
        self.user_bytes.fetch_add(batch.bytes() as u64, Relaxed);
    }
}

declare_figures! {
    /// Figures of the engine's own.
    #[derive(Default)]
    pub(crate) struct Figures {
        /// Keys in memory tables.
        table_keys_now,
        /// Rows that were put into these tables.
        table_records_now,
        /// Of these, rows that a later one of their key took the place of.
        table_records_replaced_now,
        /// Bytes of rows in memory tables.
        table_bytes_now,
        /// Memory tables that are sealed and not flushed.
        sealed_now,
        /// Memory tables that were flushed and are still read.
        cached_now,
        /// Keys that the active memory table has not woven into its order.
        queued_now,
        /// Sorted tables.
        sorted_tables_now,
        /// Sorted tables of level 0.
        level_0_tables_now,
        /// Pieces of keys with range deletes that may hide something.
        range_deletes_now,
        /// Bytes of the redo log's files.
        log_bytes_now,
        /// Memory tables that became full.
        rotations,
        /// Memory tables that were flushed.
        flushes,
        /// Merges of sorted tables.
        merges,
        /// Sorted tables that were written again, on a full disk, without what newer ones delete.
        thinned,
    }
}
