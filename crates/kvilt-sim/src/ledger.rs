//! `Ledger`: what a store has promised, counted in writes. Kept by whoever plays a script; read by a disk
//! that makes images, at the moment of the crash.
//!
//! Always true: safe ≤ acknowledged ≤ begun.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kvilt_base::Level;

/// What the store has promised so far, counted in writes. Relaxed throughout: one thread plays, and the disk
/// that reads this is called by that thread.
#[derive(Debug, Default)]
pub struct Ledger {
    begun: AtomicUsize,
    acknowledged: AtomicUsize,
    safe: AtomicUsize,
}

/// A moment of a [`Ledger`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Promise {
    /// Writes that were called.
    pub begun: usize,
    /// Writes that were acknowledged.
    pub acknowledged: usize,
    /// Writes that a power cut may not take back.
    pub safe: usize,
}

impl Ledger {
    /// What is promised now.
    pub fn now(&self) -> Promise {
        Promise {
            begun: self.begun.load(Relaxed),
            acknowledged: self.acknowledged.load(Relaxed),
            safe: self.safe.load(Relaxed),
        }
    }

    /// Forgets all writes.
    pub fn forget(&self) {
        self.begun.store(0, Relaxed);
        self.acknowledged.store(0, Relaxed);
        self.safe.store(0, Relaxed);
    }

    /// A write is called.
    pub fn begin(&self, level: Level) {
        if level == Level::Sync {
            self.safe.store(self.acknowledged.load(Relaxed), Relaxed);
        }
        self.begun.fetch_add(1, Relaxed);
    }

    /// The write that was called last is as good as not called.
    pub fn withdraw(&self) {
        self.begun.fetch_sub(1, Relaxed);
    }

    /// It is acknowledged.
    pub fn acknowledge(&self, level: Level) {
        let acknowledged = self.acknowledged.fetch_add(1, Relaxed) + 1;
        if level == Level::Sync {
            self.safe.store(acknowledged, Relaxed);
        }
    }

    /// A power cut may not take back this many of the first writes.
    pub fn secure(&self, writes: usize) {
        self.safe.fetch_max(writes, Relaxed);
    }
}
