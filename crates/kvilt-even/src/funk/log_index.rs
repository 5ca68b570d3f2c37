//! `LogIndex`: where in a log the records of a key lie; exact, compact, in memory.
//!
//! EvenDB §2.2 searches the log of a munk-less chunk linearly behind a partitioned Bloom filter, which is the
//! paper's own bottleneck. In the spirit of KVell's index in memory, but over the cold chunk's *log* only, we
//! keep eight bytes a key: 32 bits of its hash and 31 bits of offset, in an open-addressing table whose positions
//! come from the same 32 bits, so that it can grow without reading the log again. Keys with one hash share a
//! slot: it points to a chain, newest record first, so that a key that is overwritten ten thousand times costs a
//! put one step, and a get of its newest value one read.
//!
//! ```text
//!   slot   hash 32 | is chain 1 | offset, or number of a chain node 31
//!   node   offset 32 | is chain 1 | offset, or number of the next node 31
//! ```
//!
//! One writer (whoever holds the log's writer lock or is building the index), any number of readers without locks:
//! a slot changes in one store, nodes never change, and a larger table is published as a whole.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use kvilt_sync::{
    fetch_ahead,
    published::{Pin, Published},
};

/// A log must be shorter than this many bytes, or offsets would not fit a slot.
pub(crate) const LOG_BYTES_LIMIT: u64 = CHAIN_BIT;

const CHAIN_BIT: u64 = 1 << 31;
const LINK_MASK: u64 = (1 << 32) - 1;
/// Slots of a new, small table.
const SLOTS_MIN: usize = 16;
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
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Where the slot of a hash is, or not far behind.
    fn at(&self, hash: u32) -> usize {
        // The highest bits of the hash, as many as the table has positions for.
        (u64::from(hash) >> (32 - self.slots.len().trailing_zeros())) as usize
    }

    fn doubled(&self) -> Slots {
        let larger = Slots::new(self.slots.len() * 2);
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

/// Key hash → offsets of records, for one log.
pub(crate) struct LogIndex {
    slots: Published<Slots>,
    nodes: Nodes,
    /// Slots in use; written by the one writer.
    len: AtomicUsize,
    bytes: AtomicU64,
}

impl LogIndex {
    /// An empty index.
    pub(crate) fn new() -> Self {
        LogIndex {
            slots: Published::new(Slots::new(SLOTS_MIN)),
            nodes: Nodes::new(),
            len: AtomicUsize::new(0),
            bytes: AtomicU64::new(SLOTS_MIN as u64 * 8),
        }
    }

    /// Has the processor fetch what an insert or a search will look at.
    pub(crate) fn fetch_ahead(&self, pin: &Pin, hash: u32) {
        let slots = self.slots.load(pin);
        fetch_ahead(&slots.slots[slots.at(hash)]);
    }

    /// Adds a record, the newest of its key. The caller is the only writer.
    pub(crate) fn insert(&self, pin: &Pin, hash: u32, offset: u64) {
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
            let larger = slots.doubled();
            self.count_bytes(&larger);
            self.slots.replace(larger);
        }
    }

    fn count_bytes(&self, slots: &Slots) {
        // Relaxed: a gauge.
        self.bytes.store(slots.slots.len() as u64 * 8 + self.nodes.bytes(), Ordering::Relaxed);
    }

    /// The records that have the key's hash, and so very probably the key: newest first.
    pub(crate) fn offsets(&self, pin: &Pin, hash: u32) -> Offsets<'_> {
        let slot = self.slots.load(pin).find(hash).1;
        Offsets { nodes: &self.nodes, link: (slot & LINK_MASK) as u32 }
    }

    /// How many records are in it.
    pub(crate) fn records(&self) -> u64 {
        (self.len.load(Ordering::Relaxed) + self.nodes.len.load(Ordering::Relaxed)) as u64
    }

    /// Each `step`-th record, in no order that keys have anything to do with.
    pub(crate) fn every<'i>(&'i self, pin: &'i Pin, step: usize) -> impl Iterator<Item = Record> + 'i {
        // Acquire: pairs with the Release store in `insert`.
        let slots = self.slots.load(pin).slots.iter().map(|slot| slot.load(Ordering::Acquire));
        let records = slots.flat_map(|slot| {
            let offsets = Offsets { nodes: &self.nodes, link: (slot & LINK_MASK) as u32 };
            let hash = (slot >> 32) as u32;
            offsets.enumerate().map(move |(age, offset)| Record { hash, offset, is_newest: age == 0 })
        });
        records.step_by(step)
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A record as an index knows it.
pub(crate) struct Record {
    pub(crate) hash: u32,
    pub(crate) offset: u64,
    /// Whether it is the newest in its log with its hash, and so very probably with its key.
    pub(crate) is_newest: bool,
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
    use crate::key_hash::key_hash;
    use kvilt_sync::published::pin;

    #[test]
    fn every_record_is_found_through_growth_newest_first() {
        let index = LogIndex::new();
        let pin = pin();
        let key = |i: u64| format!("key{}", i % 700).into_bytes();
        for i in 0..20_000u64 {
            index.insert(&pin, key_hash(&key(i)), 64 + i);
        }
        for i in 0..700u64 {
            let offsets: Vec<u64> = index.offsets(&pin, key_hash(&key(i))).collect();
            let expected: Vec<u64> = (0..20_000).filter(|n| n % 700 == i).map(|n| 64 + n).rev().collect();
            assert!(expected.iter().all(|offset| offsets.contains(offset)), "{i}");
            assert!(offsets.is_sorted_by(|a, b| a > b));
        }
        assert_eq!(index.offsets(&pin, key_hash(b"nobody wrote this")).count(), 0);
        assert_eq!(index.records(), 20_000);
        let mut all: Vec<u64> = index.every(&pin, 1).map(|record| record.offset).collect();
        all.sort_unstable();
        assert_eq!(all, (64..20_064).collect::<Vec<_>>());
        let newest = index.every(&pin, 1).filter(|record| record.is_newest).count();
        assert!((690..=700).contains(&newest), "{newest}");
        assert_eq!(index.every(&pin, 64).count(), 20_000usize.div_ceil(64));
        assert!(index.bytes() >= 20_000 * 8);
    }

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
