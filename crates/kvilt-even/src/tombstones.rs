//! `Tombstones`: the range tombstones that apply to a munk, or that a log contains; usually none.

use std::sync::Arc;

use kvilt_base::{RangeTombstone, Version};
use kvilt_sync::versions::Versions;

/// A list of range tombstones, each with the batch that wrote it. Immutable; replaced as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tombstones {
    list: Vec<RangeTombstone>,
    /// The batch of each; gets ignore a tombstone whose batch is in flight, as they ignore such entries.
    batches: Vec<u64>,
}

impl Tombstones {
    /// The shared empty list's equal.
    pub(crate) fn none() -> Arc<Self> {
        Arc::default()
    }

    /// A list with one more.
    pub(crate) fn with(&self, tombstone: RangeTombstone, batch: u64) -> Arc<Self> {
        let mut more = self.clone();
        more.push(tombstone, batch);
        Arc::new(more)
    }

    /// Adds one.
    pub(crate) fn push(&mut self, tombstone: RangeTombstone, batch: u64) {
        self.list.push(tombstone);
        self.batches.push(batch);
    }

    /// Adds all of `other`.
    pub(crate) fn extend(&mut self, other: &Tombstones) {
        self.list.extend_from_slice(&other.list);
        self.batches.extend_from_slice(&other.batches);
    }

    /// All of them, for a reader whose view cannot contain a batch in flight.
    pub(crate) fn list(&self) -> &[RangeTombstone] {
        &self.list
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether a reader at `view` finds an entry of `key` written at `written` deleted.
    pub(crate) fn hide(&self, key: &[u8], written: Version, view: Version, versions: &Versions) -> bool {
        let mut all = self.list.iter().zip(&self.batches);
        all.any(|(t, &batch)| t.hides(key, written, view) && !versions.is_in_flight(batch))
    }

    /// Whether [`Tombstones::hide`] would say yes but for a batch in flight.
    pub(crate) fn will_hide(&self, key: &[u8], written: Version, view: Version, versions: &Versions) -> bool {
        let mut all = self.list.iter().zip(&self.batches);
        all.any(|(t, &batch)| t.hides(key, written, view) && versions.is_in_flight(batch))
    }

    /// Those that touch `range`, all of them settled or not.
    pub(crate) fn touching(&self, range: &kvilt_base::KeyRange) -> Tombstones {
        let mut touching = Tombstones::default();
        for (t, &batch) in self.list.iter().zip(&self.batches) {
            if !t.range.intersection(range).is_empty() {
                touching.push(t.clone(), batch);
            }
        }
        touching
    }

    /// Those behind the first `count`: what was added since there were so many.
    pub(crate) fn since(&self, count: usize) -> Tombstones {
        Tombstones { list: self.list[count..].to_vec(), batches: self.batches[count..].to_vec() }
    }
}
