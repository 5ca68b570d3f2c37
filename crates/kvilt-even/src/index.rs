//! `ChunkIndex`: first key → chunk (EvenDB §3.1, §4: a sorted array, rebuilt when chunks change).
//!
//! Immutable; a split or coalesce publishes a new one in which one chunk is replaced by several, or several
//! by one, in a single step. A reader that still has the old index finds the old chunk, which is frozen and
//! holds everything it held when it was replaced; a writer finds that it is retired and looks again.

use std::sync::Arc;

use kvilt_base::invariant;

use crate::{chunk::Chunk, heads::Heads};

/// All chunks in key order: their ranges follow each other without gap, from the empty key to no end
/// (**E-1**).
pub(crate) struct ChunkIndex {
    chunks: Vec<Arc<Chunk>>,
    /// Of the first keys of all chunks but the first, which begins with the empty key: that shares no prefix
    /// with the others, and heads without the prefix tell keys apart that have it.
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
        let heads = Heads::new(chunks[1..].iter().map(|c| c.range.start.as_slice()));
        ChunkIndex { chunks, heads }
    }

    /// All chunks, in key order.
    pub(crate) fn chunks(&self) -> &[Arc<Chunk>] {
        &self.chunks
    }

    /// The position of the chunk whose range contains `key`.
    pub(crate) fn position(&self, key: &[u8]) -> usize {
        self.heads.upper_bound(key, |i| self.chunks[i + 1].range.start.as_slice())
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
                &self.chunks[self.heads.lower_bound(end, |i| self.chunks[i + 1].range.start.as_slice())]
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

#[cfg(test)]
mod tests {
    use kvilt_base::KeyRange;
    use kvilt_io::MemoryDisk;
    use kvilt_sync::published::pin;

    use super::*;
    use crate::{
        bed,
        chunk::{Heat, ledger::Ledger},
        options::Options,
    };

    /// The index of chunks that begin with the empty key and with these.
    fn index_of(starts: &[&str]) -> ChunkIndex {
        let store = bed::open(MemoryDisk::new(1), &Options::default());
        let state = store.index.load(&pin()).chunks()[0].state(&pin()).clone();
        let bounds: Vec<Vec<u8>> = std::iter::once("").chain(starts.iter().copied()).map(Vec::from).collect();
        let range = |(i, start): (usize, &Vec<u8>)| KeyRange {
            start: start.clone(),
            end: bounds.get(i + 1).cloned(),
        };
        let ranges = bounds.iter().enumerate().map(range);
        ChunkIndex::new(
            ranges
                .map(|range| Chunk::new(0, range, state.clone(), Heat::default(), Ledger::new(None)))
                .collect(),
        )
    }

    #[test]
    fn each_key_is_in_the_chunk_that_is_found() {
        for starts in [
            &[][..],
            &["m"],
            &[
                "user0001",
                "user00010",
                "user0001000000",
                "user0001000001",
                "user0002",
                "user0002zzzzzzzzzzzz",
            ],
            &["a", "user1", "z", "z\0"],
        ] {
            let index = index_of(starts);
            let mut probes: Vec<String> = starts.iter().map(|&start| start.to_string()).collect();
            for start in starts {
                probes.extend([
                    format!("{start}\0"),
                    format!("{start}x"),
                    start[..start.len() - 1].to_string(),
                ]);
            }
            probes.extend(["", "a", "user", "user0001000000x", "v", "zz"].map(String::from));
            for probe in probes {
                let key = probe.as_bytes();
                let found = index.find(key);
                assert!(found.range.contains(key), "{probe:?} in {:?}", found.range);
                assert_eq!(
                    index.starting_at(key).is_some(),
                    key.is_empty() || starts.contains(&probe.as_str())
                );
                if !key.is_empty() {
                    let before = index.find_before(Some(key));
                    let end = before.range.end.as_deref();
                    assert!(
                        before.range.start.as_slice() < key && end.is_none_or(|end| key <= end),
                        "{probe:?}"
                    );
                }
            }
            assert!(index.find_before(None).range.end.is_none());
        }
    }
}
