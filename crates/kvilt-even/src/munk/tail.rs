//! `Tail`: the part of a munk that takes new entries (EvenDB §3.1: the unsorted rest of the munk's array).
//!
//! The paper links new entries into the sorted prefix by bypasses, which degenerate into linear chains when
//! keys arrive in order. Ours is a pile: a put finds its key by hash, and whoever wants order pays for it
//! (docs/design/0048-piles.md). One writer (the holder of the chunk's gate), any number of readers without
//! locks.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use kvilt_base::{Budget, Direction, EntryRef, KeyRange, Kind, Version};
use kvilt_sync::{
    pile::{Found, Pile, PileSource},
    versions::Versions,
};

use super::run::{self, Run};
use crate::{key_hash::key_hash, parts};

/// Memory is charged to the budget in so many steps, so that a put seldom touches the shared gauge …
const CHARGE_STEPS: u64 = 32;
/// … of so many bytes at least.
const CHARGE_STEP_BYTES_MIN: u64 = 1 << 10;
/// So many of a tail's entries are looked at to know what most of them are like.
const SAMPLED_ENTRIES: usize = 16;

/// A pile whose memory is charged to the budget as it fills.
pub(crate) struct Tail {
    pile: Pile,
    budget: Arc<Budget>,
    charge_step_bytes: u64,
    /// Bytes that its entries take in a run; changed by the one writer only, like what follows.
    entry_bytes: AtomicUsize,
    /// What was charged so far; changed by the one writer only.
    charged: AtomicU64,
}

impl Tail {
    /// An empty tail for `bytes`, of which none is touched yet, and keys that mostly begin as those of `run`
    /// do.
    pub(crate) fn new(bytes: usize, run: &Run, budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Tail {
            pile: Pile::for_prefix(bytes, run.prefix()),
            budget: Arc::clone(budget),
            charge_step_bytes: (bytes as u64 / CHARGE_STEPS).max(CHARGE_STEP_BYTES_MIN),
            entry_bytes: AtomicUsize::new(0),
            charged: AtomicU64::new(0),
        })
    }

    /// Bytes that a tail must have to take these entries, at the worst.
    pub(crate) fn room_for(entries: impl Iterator<Item = (usize, usize)>) -> usize {
        entries.map(|(key_len, value_len)| Pile::room_for(key_len, value_len)).sum()
    }

    /// Whether `bytes` (from [`Tail::room_for`]) more fit.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.pile.has_room(bytes)
    }

    /// Has the processor fetch what will be needed to insert a key with this hash, and where an entry of so
    /// many bytes (from [`Tail::room_for`]) will be written.
    pub(crate) fn fetch_ahead(&self, hash: u32, bytes: usize) {
        self.pile.fetch_ahead(hash, bytes);
    }

    /// Adds an entry. The caller holds the chunk's gate and made sure of the room.
    pub(crate) fn insert(&self, key: &[u8], version: Version, kind: Kind, batch: u64, value: &[u8]) {
        self.pile
            .insert(key, key_hash(key), version, kind, batch, value)
            .expect("room was made before the put was announced");
        let entry_bytes = self.entry_bytes() + run::entry_bytes(key.len(), value.len());
        self.entry_bytes.store(entry_bytes, Ordering::Relaxed);
        let charged = self.charged.load(Ordering::Relaxed);
        let used = self.memory_bytes() as u64;
        if used > charged {
            let step = (used - charged).next_multiple_of(self.charge_step_bytes);
            self.budget.add(parts::MUNKS, step);
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
        self.pile.find_at(key, hash, view, |batch| versions.is_in_flight(batch))
    }

    /// The newest entry of `key`.
    pub(crate) fn newest<'k>(&'k self, key: &'k [u8]) -> Option<EntryRef<'k>> {
        let found = self.pile.find(key, key_hash(key), |_| true)?;
        Some(EntryRef { key, version: found.version, kind: found.kind, value: found.value })
    }

    /// Whether a get of a key with this hash probably finds it here.
    pub(crate) fn may_have(&self, hash: u32) -> bool {
        self.pile.may_have(hash)
    }

    /// All its entries in `range`, in `direction`.
    pub(crate) fn source(&self, range: &KeyRange, direction: Direction) -> PileSource<'_> {
        self.pile.source(range, direction)
    }

    /// Gives `each` some of its entries in `range`.
    pub(crate) fn sample(&self, range: &KeyRange, each: impl FnMut(EntryRef<'_>)) {
        self.pile.sample(range, SAMPLED_ENTRIES, each);
    }

    /// Gives each key to `each`, in any order.
    pub(crate) fn for_each_key(&self, each: impl FnMut(&[u8])) {
        self.pile.for_each_key(each);
    }

    /// Gives the newest entry of each key to `each`, in any order, until it says no; whether it never did.
    pub(crate) fn each_newest(&self, each: &mut dyn FnMut(EntryRef<'_>) -> bool) -> bool {
        self.pile.each_newest(each)
    }

    /// Whether it has an entry of `range`.
    pub(crate) fn touches(&self, range: &KeyRange) -> bool {
        self.pile.touches(range)
    }

    /// Bytes that its entries take in a run.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.entry_bytes.load(Ordering::Relaxed)
    }

    /// Entries inserted.
    pub(crate) fn len(&self) -> usize {
        self.pile.len()
    }

    /// Whether nothing was inserted.
    pub(crate) fn is_empty(&self) -> bool {
        self.pile.is_empty()
    }

    /// Bytes of its rows as they lie there.
    pub(crate) fn used_bytes(&self) -> usize {
        self.pile.used_bytes()
    }

    /// Memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pile.memory_bytes()
    }

    /// What it is charged, in bytes: its memory as of the last put, and what the step is ahead of it.
    pub(crate) fn charged_bytes(&self) -> u64 {
        // Relaxed: a number.
        self.charged.load(Ordering::Relaxed)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.budget.sub(parts::MUNKS, *self.charged.get_mut());
    }
}
