//! `Tail`: the part of a munk that takes new entries (EvenDB §3.1: the unsorted rest of the munk's array).
//!
//! The paper links new entries into the sorted prefix by bypasses, which degenerate into linear chains when
//! keys arrive in order. Ours is a skip list: O(log n) in any insertion order. One writer (the holder of the
//! chunk's gate), any number of readers without locks.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use kvilt_base::{Direction, EntryRef, KeyRange, Kind, Source, Version};
use kvilt_sync::{
    budget::{Budget, Part},
    filter::Filter,
    skiplist::{Found, Skiplist},
    versions::Versions,
};

use super::run::{self, Run};
use crate::key_hash::key_hash;

/// Memory is charged to the budget in so many steps, so that a put seldom touches the shared gauge …
const CHARGE_STEPS: u64 = 32;
/// … of so many bytes at least.
const CHARGE_STEP_BYTES_MIN: u64 = 1 << 10;
/// So many of a tail's entries are looked at to know what most of them are like.
const SAMPLED_ENTRIES: usize = 16;
/// Bytes of an entry, where nothing is known of those to come.
const ENTRY_BYTES_ASSUMED: usize = 256;

/// A skip list whose memory is charged to the budget as it fills.
pub(crate) struct Tail {
    list: Skiplist,
    /// Which keys it may have: most gets of a chunk look for others.
    keys: Filter,
    budget: Arc<Budget>,
    charge_step_bytes: u64,
    /// Bytes that its entries take in a run; changed by the one writer only, like what follows.
    entry_bytes: AtomicUsize,
    /// What was charged so far; changed by the one writer only.
    charged: AtomicU64,
}

impl Tail {
    /// An empty tail for `bytes`, of which none is touched yet, and entries that are mostly like those of `run`.
    pub(crate) fn new(bytes: usize, seed: u64, run: &Run, budget: &Arc<Budget>) -> Arc<Self> {
        let entry_bytes = if run.len() > 0 { run.mean_entry_bytes() } else { ENTRY_BYTES_ASSUMED };
        let keys = Filter::for_keys(bytes / Skiplist::room_for(0, entry_bytes));
        let charged = keys.bytes() as u64;
        budget.add(Part::Munks, charged);
        Arc::new(Tail {
            list: Skiplist::for_prefix(bytes, seed, run.prefix()),
            keys,
            budget: Arc::clone(budget),
            charge_step_bytes: (bytes as u64 / CHARGE_STEPS).max(CHARGE_STEP_BYTES_MIN),
            entry_bytes: AtomicUsize::new(0),
            charged: AtomicU64::new(charged),
        })
    }

    /// Bytes that a tail must have to take these entries, at the worst.
    pub(crate) fn room_for(entries: impl Iterator<Item = (usize, usize)>) -> usize {
        entries.map(|(key_len, value_len)| Skiplist::room_for(key_len, value_len)).sum()
    }

    /// Whether `bytes` (from [`Tail::room_for`]) more fit.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.list.has_room(bytes)
    }

    /// Has the processor fetch where an entry of so many bytes (from [`Tail::room_for`]) will be written.
    pub(crate) fn fetch_free(&self, bytes: usize) {
        self.list.fetch_free(bytes);
    }

    /// Adds an entry. The caller holds the chunk's gate and made sure of the room.
    pub(crate) fn insert(&self, key: &[u8], version: Version, kind: Kind, batch: u64, value: &[u8]) {
        // First, so that who finds the entry by a scan finds it by its key, too.
        self.keys.add(key_hash(key));
        self.list
            .insert(key, version, kind, batch, value)
            .expect("room was made before the put was announced");
        let entry_bytes = self.entry_bytes() + run::entry_bytes(key.len(), value.len());
        self.entry_bytes.store(entry_bytes, Ordering::Relaxed);
        let charged = self.charged.load(Ordering::Relaxed);
        let used = self.memory_bytes() as u64;
        if used > charged {
            let step = (used - charged).next_multiple_of(self.charge_step_bytes);
            self.budget.add(Part::Munks, step);
            // One writer: a plain store cannot lose an update.
            self.charged.store(charged + step, Ordering::Relaxed);
        }
    }

    /// The newest entry of `key`, whose hash is `hash`, at `view`, passing over batches in flight.
    pub(crate) fn find(
        &self,
        key: &[u8],
        hash: u32,
        view: Version,
        versions: &Versions,
    ) -> Option<Found<'_>> {
        if !self.may_have(hash) {
            return None;
        }
        self.list.find_at(key, view, |batch| versions.is_in_flight(batch))
    }

    /// Whether a get of a key with this hash has to search it.
    pub(crate) fn may_have(&self, hash: u32) -> bool {
        self.keys.may_have(hash)
    }

    /// Gives `each` some of its entries in `range`.
    pub(crate) fn sample(&self, range: &KeyRange, mut each: impl FnMut(EntryRef<'_>)) {
        let mut source = self.list.source(range, Direction::Forward);
        for _ in 0..SAMPLED_ENTRIES {
            let Some(entry) = source.entry() else { return };
            each(entry);
            source.advance().expect("memory can be read");
        }
    }

    /// Gives each key to `each`, in order.
    pub(crate) fn for_each_key(&self, mut each: impl FnMut(&[u8])) {
        let mut source = self.list.source(&KeyRange::all(), Direction::Forward);
        while let Some(entry) = source.entry() {
            each(entry.key);
            source.advance().expect("memory can be read");
        }
    }

    /// Whether it has an entry of `range`.
    pub(crate) fn touches(&self, range: &KeyRange) -> bool {
        self.list.source(range, Direction::Forward).entry().is_some()
    }

    /// Bytes that its entries take in a run.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.entry_bytes.load(Ordering::Relaxed)
    }

    /// Memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.list.used_bytes() + self.keys.bytes()
    }

    /// The skip list, to read.
    pub(crate) fn list(&self) -> &Skiplist {
        &self.list
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.budget.sub(Part::Munks, *self.charged.get_mut());
    }
}
