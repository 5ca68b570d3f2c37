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
    pub(crate) views: AtomicU64,
    pub(crate) views_expired: AtomicU64,
    pub(crate) scanned_rows: AtomicU64,
    pub(crate) background_steps: AtomicU64,
    pub(crate) cuts: AtomicU64,
    pub(crate) map_pages: AtomicU64,
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
        /// Shards of the store.
        shards_now,
        /// Whether blocks are read and written past the kernel's page cache: 1 or 0.
        io_direct_now,
        /// Whether reads and writes go through io_uring: 1, or 0 for a pool of threads.
        io_uring_now,
        /// Reads and writes in flight.
        io_in_flight_now,
        /// Keys in the index.
        index_keys_now,
        /// Memory of the index and the occupancy maps.
        index_bytes_now,
        /// Memory of cached blocks.
        cache_bytes_now,
        /// Blocks that were asked for and were in the page cache or in flight.
        cache_hits,
        /// Blocks that were asked for and had to be read.
        cache_misses,
        /// Blocks written.
        blocks_written,
        /// Slots that have an item that counts.
        slots_used_now,
        /// Slots that are free.
        slots_free_now,
        /// Slots that nothing needs, and that are free after the next cut.
        slots_waiting_now,
        /// Cuts: how often all shards were made durable.
        cuts,
        /// Pages of occupancy maps written.
        map_pages_written,
    }
}
