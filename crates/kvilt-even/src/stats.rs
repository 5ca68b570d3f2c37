//! `Counters`: what the engine counts while it works. What every get, put and scan counts is spread, so that
//! threads do not share cache lines; that takes 2 KiB a counter and store, so all else is not.

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

/// A counter of what takes much longer than to wait for its cache line.
#[derive(Default)]
pub(crate) struct RareCounter(AtomicU64);

impl RareCounter {
    /// Adds `n`.
    pub(crate) fn add(&self, n: u64) {
        // Relaxed: a statistic.
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum over all threads.
    pub(crate) fn sum(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
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
    pub(crate) batches: RareCounter,
    pub(crate) views: Counter,
    pub(crate) views_expired: RareCounter,
    pub(crate) scanned_rows: Counter,
    pub(crate) scanned_skips: Counter,
    pub(crate) munk_compactions: RareCounter,
    pub(crate) munk_weavings: RareCounter,
    pub(crate) funk_rebalances: RareCounter,
    pub(crate) space_rewrites: RareCounter,
    pub(crate) splits: RareCounter,
    pub(crate) coalesces: RareCounter,
    pub(crate) munk_loads: RareCounter,
    pub(crate) munk_evictions: RareCounter,
    pub(crate) checkpoints: RareCounter,
    pub(crate) steps: RareCounter,
    pub(crate) user_bytes: Counter,
    pub(crate) log_bytes_written: RareCounter,
    pub(crate) table_bytes_written: RareCounter,
    pub(crate) manifest_bytes_written: RareCounter,
    pub(crate) commit_bytes_written: RareCounter,
    pub(crate) writes_through: RareCounter,
    pub(crate) writes_through_failed: RareCounter,
    pub(crate) stalls_tail_full: Stall,
    pub(crate) stalls_memory: Stall,
    pub(crate) stalls_log_full: Stall,
    pub(crate) stalls_space: Stall,
    pub(crate) torn_tails: RareCounter,
}

/// How often, and for how long in microseconds, puts waited for one reason.
#[derive(Default)]
pub(crate) struct Stall {
    pub(crate) times: RareCounter,
    pub(crate) us: RareCounter,
}
