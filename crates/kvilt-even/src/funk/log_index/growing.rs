//! `GrowingIndex`: where the records of a log lie that grows.
//!
//! Eight bytes a key in an open-addressing table, whose positions come from the hash in a slot, so that it
//! can grow without reading the log again. Keys with one hash share a slot: it points to a chain, newest
//! record first, so that a key that is overwritten ten thousand times costs a put one step, and a get of its
//! newest value one read.
//!
//! ```text
//!   slot   hash 32 | is chain 1 | offset, or number of a chain node 31
//!   node   offset 32 | is chain 1 | offset, or number of the next node 31
//! ```
//!
//! One writer (whoever holds the log's writer lock or is building the index), any number of readers without
//! locks: a slot changes in one store, nodes never change, and a larger table is published as a whole.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use kvilt_sync::{
    fetch_ahead,
    published::{Pin, Published},
};

use super::{LOG_BYTES_LIMIT, Record};
use crate::key_hash::place_of;

/// Offsets are below.
const CHAIN_BIT: u64 = LOG_BYTES_LIMIT;
const LINK_MASK: u64 = (1 << 32) - 1;
/// Slots of a new, small table, and by how many it grows at least …
const SLOTS_MIN: usize = 16;
/// … or by this part of it: logs of one length are many, and would all be half empty at a time if tables
/// doubled.
const GROWTH_PART: usize = 4;
/// Chain nodes of the first segment; each further segment has twice as many.
const SEGMENT_NODES: usize = 64;
/// Segments enough for 2³¹ nodes.
const SEGMENTS: usize = 26;

struct Slots {
    /// Zero is empty: no record lies at offset zero, where the header is.
    slots: Box<[AtomicU64]>,
}

impl Slots {
    fn new(count: usize) -> Self {
        Slots { slots: (0..count).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The slot of a hash, or the empty one where it belongs.
    fn find(&self, hash: u32) -> (&AtomicU64, u64) {
        let mut at = self.at(hash);
        loop {
            // Acquire: pairs with the Release store in `insert`; who finds a slot finds record and nodes.
            let slot = self.slots[at].load(Ordering::Acquire);
            if slot == 0 || slot >> 32 == u64::from(hash) {
                return (&self.slots[at], slot);
            }
            at = (at + 1) % self.slots.len();
        }
    }

    /// Where the slot of a hash is, or not far behind.
    fn at(&self, hash: u32) -> usize {
        // In the order of hashes: a larger table is written to from one end to the other.
        place_of(hash, self.slots.len())
    }

    fn grown(&self) -> Slots {
        let count = self.slots.len();
        let larger = Slots::new(count + (count / GROWTH_PART).max(SLOTS_MIN));
        for slot in self.slots.iter().map(|s| s.load(Ordering::Relaxed)).filter(|&slot| slot != 0) {
            larger.find((slot >> 32) as u32).0.store(slot, Ordering::Relaxed);
        }
        larger
    }
}

/// Records that share their hash with a newer one: append-only, in segments that never move.
struct Nodes {
    segments: [OnceLock<Box<[AtomicU64]>>; SEGMENTS],
    len: AtomicUsize,
}

impl Nodes {
    fn new() -> Self {
        Nodes { segments: [const { OnceLock::new() }; SEGMENTS], len: AtomicUsize::new(0) }
    }

    /// Which segment a node is in, and where.
    fn place(number: usize) -> (usize, usize) {
        let segment = (number / SEGMENT_NODES + 1).ilog2() as usize;
        (segment, number - SEGMENT_NODES * ((1 << segment) - 1))
    }

    fn node(&self, number: usize) -> &AtomicU64 {
        let (segment, at) = Self::place(number);
        let segment = self.segments[segment]
            .get_or_init(|| (0..SEGMENT_NODES << segment).map(|_| AtomicU64::new(0)).collect());
        &segment[at]
    }

    fn push(&self, node: u64) -> u64 {
        let number = self.len.load(Ordering::Relaxed);
        // Relaxed: published by the Release store of the slot that points here.
        self.node(number).store(node, Ordering::Relaxed);
        self.len.store(number + 1, Ordering::Relaxed);
        number as u64
    }

    fn bytes(&self) -> u64 {
        let used = self.segments.iter().filter_map(OnceLock::get);
        used.map(|segment| segment.len() as u64 * 8).sum()
    }
}

pub(crate) struct GrowingIndex {
    slots: Published<Slots>,
    nodes: Nodes,
    /// Slots in use; written by the one writer.
    len: AtomicUsize,
    bytes: AtomicU64,
}

impl GrowingIndex {
    pub(super) fn new() -> Self {
        GrowingIndex {
            slots: Published::new(Slots::new(SLOTS_MIN)),
            nodes: Nodes::new(),
            len: AtomicUsize::new(0),
            bytes: AtomicU64::new(SLOTS_MIN as u64 * 8),
        }
    }

    pub(super) fn fetch_ahead(&self, pin: &Pin, hash: u32) {
        let slots = self.slots.load(pin);
        fetch_ahead(&slots.slots[slots.at(hash)]);
    }

    pub(super) fn insert(&self, pin: &Pin, hash: u32, offset: u64) {
        assert!(
            offset < LOG_BYTES_LIMIT && offset != 0,
            "a log is rotated before its offsets outgrow a slot"
        );
        let tag = u64::from(hash) << 32;
        let slots = self.slots.load(pin);
        let (slot, present) = slots.find(hash);
        if present != 0 {
            let older = self.nodes.push(offset << 32 | (present & LINK_MASK));
            slot.store(tag | CHAIN_BIT | older, Ordering::Release);
            self.count_bytes(slots);
            return;
        }
        slot.store(tag | offset, Ordering::Release);
        let len = self.len.load(Ordering::Relaxed) + 1;
        self.len.store(len, Ordering::Relaxed);
        if len * 4 > slots.slots.len() * 3 {
            let larger = slots.grown();
            self.count_bytes(&larger);
            self.slots.replace(larger);
        }
    }

    fn count_bytes(&self, slots: &Slots) {
        // Relaxed: a gauge.
        self.bytes.store(slots.slots.len() as u64 * 8 + self.nodes.bytes(), Ordering::Relaxed);
    }

    pub(super) fn offsets(&self, pin: &Pin, hash: u32) -> Offsets<'_> {
        let slot = self.slots.load(pin).find(hash).1;
        Offsets { nodes: &self.nodes, link: (slot & LINK_MASK) as u32 }
    }

    pub(super) fn records(&self) -> u64 {
        (self.len.load(Ordering::Relaxed) + self.nodes.len.load(Ordering::Relaxed)) as u64
    }

    pub(super) fn every<'i>(&'i self, pin: &'i Pin) -> impl Iterator<Item = Record> + 'i {
        // Acquire: pairs with the Release store in `insert`.
        let slots = self.slots.load(pin).slots.iter().map(|slot| slot.load(Ordering::Acquire));
        slots.flat_map(|slot| {
            let offsets = Offsets { nodes: &self.nodes, link: (slot & LINK_MASK) as u32 };
            let hash = (slot >> 32) as u32;
            offsets.enumerate().map(move |(age, offset)| Record { hash, offset, is_newest: age == 0 })
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Offsets of records, newest first.
pub(crate) struct Offsets<'i> {
    nodes: &'i Nodes,
    link: u32,
}

impl Iterator for Offsets<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let link = u64::from(self.link);
        if link == 0 {
            return None;
        }
        if link & CHAIN_BIT == 0 {
            self.link = 0;
            return Some(link);
        }
        // Relaxed: the slot or node that led here was published after this one.
        let node = self.nodes.node((link & !CHAIN_BIT) as usize).load(Ordering::Relaxed);
        self.link = (node & LINK_MASK) as u32;
        Some(node >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_keep_their_places_over_all_segments() {
        let mut expected = (0, 0);
        for number in 0..SEGMENT_NODES * 70 {
            assert_eq!(Nodes::place(number), expected);
            expected.1 += 1;
            if expected.1 == SEGMENT_NODES << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(Nodes::place((CHAIN_BIT - 1) as usize).0 < SEGMENTS);
    }
}
