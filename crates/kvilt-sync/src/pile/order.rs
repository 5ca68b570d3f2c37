//! `Order`: the keys of a pile sorted, as many of them as somebody wanted.
//!
//! A put notes its key and no more. Who wants keys in order sorts what has come since somebody last did: if
//! that is much, for everybody; if it is little, for itself, until all who did so have looked at as many keys
//! as sorting would. So puts pay nothing for an order that nobody wants, and who wants it looks at few keys
//! one by one.
//!
//! What is always true:
//! - S-14: what is sorted has the keys that came first, each once, ascending; what takes its place has these
//!   and more.

use std::{
    cmp::Ordering,
    sync::{Arc, atomic},
};

use parking_lot::Mutex;

use super::arrivals::{Arrival, Arrivals};
use crate::published::{Published, pin};

/// So many keys, and a part of those that are sorted, may be left unsorted for a while: whoever wants order
/// looks at each of them …
const UNSORTED_MAX: usize = 32;
/// … and this is the part.
const UNSORTED_PART: usize = 8;

/// Memory of a sorted key.
pub(super) const BYTES_A_KEY: usize = size_of::<u64>() + size_of::<u32>();

pub(super) struct Order {
    sorted: Published<Arc<Sorted>>,
    /// Held by who sorts for everybody.
    sorting: Mutex<()>,
    /// How often a key was looked at that was not sorted, since somebody sorted.
    looked_at: atomic::AtomicUsize,
    bytes: atomic::AtomicUsize,
}

/// Keys in order.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    heads: Vec<u64>,
    places: Vec<u32>,
}

impl Order {
    pub(super) fn new() -> Self {
        Order {
            sorted: Published::new(Arc::default()),
            sorting: Mutex::new(()),
            looked_at: atomic::AtomicUsize::new(0),
            bytes: atomic::AtomicUsize::new(0),
        }
    }

    /// Memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        // Relaxed: a gauge.
        self.bytes.load(atomic::Ordering::Relaxed)
    }

    /// Most keys in order; the others are those that came behind so many. `compare` says how two keys with
    /// one head stand.
    pub(super) fn mostly(
        &self,
        arrivals: &Arrivals,
        compare: impl Fn(Arrival, Arrival) -> Ordering,
    ) -> Arc<Sorted> {
        let before = self.sorted();
        if self.pays_for_looking(&before, arrivals.len()) {
            return before;
        }
        // Who is told that somebody sorts already goes on with what there is.
        let Some(_turn) = self.sorting.try_lock() else { return before };
        let sorted = self.sorted();
        if sorted.len() > before.len() {
            // Somebody has just done it.
            return sorted;
        }
        // Relaxed: a price, and no harm if somebody's part of it is lost.
        self.looked_at.store(0, atomic::Ordering::Relaxed);
        let sorted = Arc::new(
            sorted.with(in_order(arrivals.between(sorted.len(), arrivals.len()), &compare), &compare),
        );
        self.bytes.store(sorted.bytes(), atomic::Ordering::Relaxed);
        self.sorted.replace(Arc::clone(&sorted));
        sorted
    }

    /// What is in order already.
    pub(super) fn sorted(&self) -> Arc<Sorted> {
        Arc::clone(self.sorted.load(&pin()))
    }

    /// Charges who wants all of so many keys in order for a look at those that are not sorted. False if to
    /// sort them for everybody is worth it instead.
    fn pays_for_looking(&self, sorted: &Sorted, all: usize) -> bool {
        let lacking = all - sorted.len();
        if lacking == 0 {
            return true;
        }
        // Relaxed, as above.
        lacking <= UNSORTED_MAX + sorted.len() / UNSORTED_PART
            && self.looked_at.fetch_add(lacking, atomic::Ordering::Relaxed) + lacking
                < UNSORTED_MAX + sorted.len()
    }
}

impl Sorted {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn get(&self, position: usize) -> Arrival {
        Arrival { head: self.heads[position], place: self.places[position] }
    }

    /// The position of the first key that is not before a key with this head; `is_before` decides for those
    /// with the same head.
    pub(super) fn lower_bound(&self, head: u64, is_before: impl Fn(u32) -> bool) -> usize {
        let first = self.heads.partition_point(|&other| other < head);
        let same = self.heads[first..].partition_point(|&other| other == head);
        first + self.places[first..first + same].partition_point(|&place| is_before(place))
    }

    fn bytes(&self) -> usize {
        self.places.capacity() * BYTES_A_KEY
    }

    /// These and others, which are in order, too, in one.
    fn with(&self, others: Vec<Arrival>, compare: impl Fn(Arrival, Arrival) -> Ordering) -> Sorted {
        let count = self.len() + others.len();
        let mut all = Sorted { heads: Vec::with_capacity(count), places: Vec::with_capacity(count) };
        let mut kept = 0;
        for other in others {
            let upto = kept + self.heads[kept..].partition_point(|&head| head < other.head);
            let upto = (upto..self.len())
                .find(|&at| self.heads[at] != other.head || compare(self.get(at), other).is_gt())
                .unwrap_or(self.len());
            all.keep(self, kept..upto);
            kept = upto;
            all.heads.push(other.head);
            all.places.push(other.place);
        }
        all.keep(self, kept..self.len());
        all
    }

    fn keep(&mut self, from: &Sorted, range: std::ops::Range<usize>) {
        self.heads.extend_from_slice(&from.heads[range.clone()]);
        self.places.extend_from_slice(&from.places[range]);
    }
}

/// Keys sorted by their heads; `compare` says how two with one head stand.
pub(super) fn in_order(
    arrivals: impl Iterator<Item = Arrival>,
    compare: impl Fn(Arrival, Arrival) -> Ordering,
) -> Vec<Arrival> {
    let mut arrivals: Vec<Arrival> = arrivals.collect();
    arrivals.sort_unstable_by(|a, b| a.head.cmp(&b.head).then_with(|| compare(*a, *b)));
    arrivals
}
