//! `Counters`: what the engine counts while it works, spread so that threads do not share cache lines.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// Copies of each hot counter; more threads than this share.
const STRIPES: usize = 16;

thread_local! {
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

/// A counter that many threads add to and few read.
#[derive(Default)]
pub(crate) struct Counter([CachePadded<AtomicU64>; STRIPES]);

impl Counter {
    /// Adds `n`.
    pub(crate) fn add(&self, n: u64) {
        // Relaxed: a statistic; no other memory is read because of it.
        self.0[STRIPE.with(|stripe| *stripe)].fetch_add(n, Ordering::Relaxed);
    }

    /// The sum over all threads.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }
}

/// Everything that is counted.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) gets_from_munk: Counter,
    pub(crate) gets_from_row_cache: Counter,
    pub(crate) gets_from_log: Counter,
    pub(crate) gets_from_table: Counter,
    pub(crate) gets_absent: Counter,
    pub(crate) puts: Counter,
    pub(crate) batches: Counter,
    pub(crate) views: Counter,
    pub(crate) views_expired: Counter,
    pub(crate) scanned_rows: Counter,
    pub(crate) scanned_skips: Counter,
    pub(crate) munk_compactions: Counter,
    pub(crate) munk_weavings: Counter,
    pub(crate) funk_rebalances: Counter,
    pub(crate) splits: Counter,
    pub(crate) coalesces: Counter,
    pub(crate) munk_loads: Counter,
    pub(crate) munk_evictions: Counter,
    pub(crate) checkpoints: Counter,
    pub(crate) steps: Counter,
    pub(crate) user_bytes: Counter,
    pub(crate) log_bytes_written: Counter,
    pub(crate) table_bytes_written: Counter,
    pub(crate) manifest_bytes_written: Counter,
    pub(crate) commit_bytes_written: Counter,
    pub(crate) stalls_tail_full: Stall,
    pub(crate) stalls_memory: Stall,
    pub(crate) stalls_log_full: Stall,
    pub(crate) torn_tails: Counter,
}

/// How often, and for how long in microseconds, puts waited for one reason.
#[derive(Default)]
pub(crate) struct Stall {
    pub(crate) times: Counter,
    pub(crate) us: Counter,
}
