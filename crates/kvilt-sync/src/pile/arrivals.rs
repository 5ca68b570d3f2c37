//! `Arrivals`: the keys of a pile in the order in which they came.
//!
//! One writer, any number of readers without locks. What is always true: an arrival is written before the
//! length counts it (Release), and never changes.

use std::sync::OnceLock;

use crate::shim::{AtomicU32, AtomicU64, AtomicUsize, IS_EXPLORED, Ordering};

/// Keys of the first segment; each further one has twice as many. Segments never move.
const SEGMENT_KEYS: usize = if IS_EXPLORED { 1 } else { 32 };
/// Segments enough for 2³² keys.
const SEGMENTS: usize = 28;

/// A key, as who sorts knows it: what it begins with, as a number that orders as keys do, and the place of
/// its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) head: u64,
    pub(super) place: u32,
}

#[derive(Default)]
struct Written {
    head: AtomicU64,
    place: AtomicU32,
}

pub(super) struct Arrivals {
    segments: [OnceLock<Box<[Written]>>; SEGMENTS],
    len: AtomicUsize,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Arrivals { segments: [const { OnceLock::new() }; SEGMENTS], len: AtomicUsize::new(0) }
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        // Acquire: pairs with the store in `push`.
        self.len.load(Ordering::Acquire)
    }

    /// Memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let segments = self.len().checked_sub(1).map_or(0, |last| segment_of(last).0 + 1);
        ((SEGMENT_KEYS << segments) - SEGMENT_KEYS) * size_of::<Written>()
    }

    /// The caller is the only writer.
    pub(super) fn push(&self, arrival: Arrival) {
        let number = self.len.load(Ordering::Relaxed);
        let (segment, at) = segment_of(number);
        let segment = self.segments[segment]
            .get_or_init(|| (0..SEGMENT_KEYS << segment).map(|_| Written::default()).collect());
        // Relaxed, both: published by the length.
        segment[at].head.store(arrival.head, Ordering::Relaxed);
        segment[at].place.store(arrival.place, Ordering::Relaxed);
        // Release: pairs with `len`.
        self.len.store(number + 1, Ordering::Release);
    }

    /// Those from `start` up to `end`, which is no more than there are.
    pub(super) fn between(&self, start: usize, end: usize) -> impl Iterator<Item = Arrival> + '_ {
        assert!(end <= self.len(), "{end} of {} keys", self.len());
        (start..end).map(|number| {
            let (segment, at) = segment_of(number);
            let written = &self.segments[segment].get().expect("below the length")[at];
            // Relaxed, both: who has the length has them.
            let head = written.head.load(Ordering::Relaxed);
            Arrival { head, place: written.place.load(Ordering::Relaxed) }
        })
    }
}

/// Which segment a key is in, and where.
fn segment_of(number: usize) -> (usize, usize) {
    let segment = (number / SEGMENT_KEYS + 1).ilog2() as usize;
    (segment, number - SEGMENT_KEYS * ((1 << segment) - 1))
}
