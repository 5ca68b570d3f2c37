//! `ChunkIndex`: first key → chunk (EvenDB §3.1, §4: a sorted array, rebuilt when chunks change).
//!
//! Immutable; a split or coalesce publishes a new one in which one chunk is replaced by several, or several by
//! one, in a single step. A reader that still has the old index finds the old chunk, which is frozen and holds
//! everything it held when it was replaced; a writer finds that it is retired and looks again.

use std::sync::Arc;

use kvilt_base::invariant;

use crate::{chunk::Chunk, heads::Heads};

/// All chunks in key order: their ranges follow each other without gap, from the empty key to no end (**E-1**).
pub(crate) struct ChunkIndex {
    chunks: Vec<Arc<Chunk>>,
    heads: Heads,
}

impl ChunkIndex {
    /// The index over these chunks.
    pub(crate) fn new(chunks: Vec<Arc<Chunk>>) -> Self {
        invariant!("E-1", chunks.first().is_some_and(|first| first.range.start.is_empty()));
        invariant!("E-1", chunks.last().is_some_and(|last| last.range.end.is_none()));
        for pair in chunks.windows(2) {
            invariant!("E-1", pair[0].range.end.as_deref() == Some(pair[1].range.start.as_slice()));
        }
        let heads = Heads::new(chunks.iter().map(|c| c.range.start.as_slice()));
        ChunkIndex { chunks, heads }
    }

    /// All chunks, in key order.
    pub(crate) fn chunks(&self) -> &[Arc<Chunk>] {
        &self.chunks
    }

    /// The position of the chunk whose range contains `key`.
    pub(crate) fn position(&self, key: &[u8]) -> usize {
        let first_at_or_after = self.heads.lower_bound(key, |i| self.chunks[i].range.start.as_slice());
        let is_first_key = self.chunks.get(first_at_or_after).is_some_and(|c| c.range.start == key);
        // The first chunk begins with the empty key, so a chunk begins before any other key.
        if is_first_key { first_at_or_after } else { first_at_or_after - 1 }
    }

    /// The chunk whose range contains `key`.
    pub(crate) fn find(&self, key: &[u8]) -> &Arc<Chunk> {
        &self.chunks[self.position(key)]
    }

    /// The chunk with the last keys before `end`.
    pub(crate) fn find_before(&self, end: Option<&[u8]>) -> &Arc<Chunk> {
        match end {
            None => self.chunks.last().expect("E-1: there is a chunk"),
            Some(end) => {
                let first_at_or_after =
                    self.heads.lower_bound(end, |i| self.chunks[i].range.start.as_slice());
                &self.chunks[first_at_or_after.saturating_sub(1)]
            }
        }
    }

    /// The chunk that begins with exactly this key.
    pub(crate) fn starting_at(&self, key: &[u8]) -> Option<&Arc<Chunk>> {
        Some(self.find(key)).filter(|c| c.range.start == key)
    }

    /// An index in which `old` (neighbours, in order) are replaced by `new`.
    pub(crate) fn with(&self, old: &[&Arc<Chunk>], new: Vec<Arc<Chunk>>) -> ChunkIndex {
        let at = self.position(&old[0].range.start);
        invariant!(
            "E-2",
            old.iter().zip(&self.chunks[at..]).all(|(a, b)| Arc::ptr_eq(a, b)),
            "only live chunks are replaced"
        );
        let mut chunks = Vec::with_capacity(self.chunks.len() + new.len());
        chunks.extend_from_slice(&self.chunks[..at]);
        chunks.extend(new);
        chunks.extend_from_slice(&self.chunks[at + old.len()..]);
        ChunkIndex::new(chunks)
    }
}
