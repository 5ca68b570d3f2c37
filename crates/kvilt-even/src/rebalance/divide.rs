//! Divide: a cold chunk whose logs grew long with rows that were written once becomes several, and no row is
//! written.
//!
//! As in a split in memory (`rebalance/split.rs`), the children refer to the parent's files, each to its own
//! range of them. A rewrite would put the same rows into tables and free next to nothing; where data comes in
//! an order of time, and more ranges are written at once than have munks, that would be most of what is
//! written besides the logs.
//!
//! A chunk whose logs hold much that was written over is rewritten instead, and so is one that nearly has too
//! many files, or that has a table: there a rewrite was worth it before.

use kvilt_base::{KeyRange, Result};
use kvilt_sync::published::pin;

use super::{PARTS_MAX, funk::FrozenChunk, samples::Sample, split::ranges_between};
use crate::{
    chunk::{Chunk, ChunkState, Occupied, ledger::Count},
    funk::{Funk, PartFile},
    shared_key::short_bound,
    store::Store,
};

/// Where to cut is told from so many records, which makes a piece about a fifth too large or too small: to
/// read all would cost as much as half the rewrite that is spared, in memory that no budget knows.
const SAMPLES: u64 = 256;
/// A rewrite that would write so many hundredths of what the logs have frees too little.
const NEEDED_PERCENT_MIN: u64 = 75;

/// What a chunk is divided into.
#[derive(Default)]
struct Pieces {
    /// Where all pieces but the first begin.
    cuts: Vec<Vec<u8>>,
    /// Live bytes of each piece, about.
    live_bytes: Vec<u64>,
}

impl Store {
    /// Replaces the chunk by several that share its files; false if it is to be rewritten. `count` was begun
    /// before it was frozen.
    pub(super) fn divide(&self, chunk: &Occupied, frozen: &FrozenChunk, count: Count) -> Result<bool> {
        if !self.may_divide(chunk, frozen) {
            return Ok(false);
        }
        let Pieces { cuts, live_bytes } = self.pieces(chunk, frozen)?;
        if cuts.is_empty() {
            return Ok(false);
        }
        chunk.ledger.enter(Count { live_bytes: live_bytes.iter().sum(), ..count });
        let ranges = ranges_between(&chunk.range, cuts);
        let pin = pin();
        let mut gate = chunk.gate();
        // With what was put meanwhile.
        let closed = chunk.state(&pin).funk.closed();
        let count = ranges.len();
        let child = |(range, live_bytes): (&KeyRange, u64)| {
            let funk = closed.inherited(range, &ranges).into();
            let state = ChunkState { munk: None, funk, cold_id: self.next_id() };
            let ledger = chunk.ledger.rewritten(count, live_bytes);
            Chunk::new(self.next_id(), range.clone(), state, chunk.heat.halved(), ledger)
        };
        let children: Vec<_> = ranges.iter().zip(live_bytes).map(child).collect();
        self.counters.splits.add(children.len() as u64 - 1);
        self.succeed(&[chunk], &mut [&mut gate], &children);
        drop(gate);
        drop(pin);
        Ok(true)
    }

    /// Whether nothing but the length of its logs asks for a rewrite, and none was worth it so far.
    fn may_divide(&self, chunk: &Chunk, frozen: &FrozenChunk) -> bool {
        let Funk { parts, .. } = &frozen.funk;
        let is_untouched = |file: &PartFile| match file {
            PartFile::Log(log) => log.tombstones(&self.versions).is_empty(),
            PartFile::Table(_) => false,
        };
        frozen.munk.is_none()
            && frozen.funk.log_bytes() > self.log_bytes_max_unread(chunk)
            && parts.len() < PARTS_MAX
            && parts.iter().all(|part| is_untouched(&part.file))
            && !self.has_paid_for_order(chunk, &frozen.funk)
            && !self.files.reserve.is_short()
    }

    /// Where to cut; nowhere if so much was written over that a rewrite is worth it.
    fn pieces(&self, chunk: &Chunk, frozen: &FrozenChunk) -> Result<Pieces> {
        let mut samples = self.samples(chunk, &frozen.funk, |_| SAMPLES)?;
        let bytes = |samples: &[Sample]| samples.iter().map(|sample| sample.bytes).sum::<u64>();
        let held = bytes(&samples);
        samples.retain(|sample| sample.is_needed);
        let needed = bytes(&samples);
        if needed * 100 < held * NEEDED_PERCENT_MIN {
            return Ok(Pieces::default());
        }
        samples.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let pieces = frozen.funk.log_bytes() / self.chunk_bytes_rebalance(chunk).max(1);
        // Pieces of half the size are good enough, but not where bounds are long.
        let pieces = if self.has_long_bounds(chunk) { pieces } else { pieces.max(2) };
        let (mut cuts, mut before) = (Vec::new(), 0);
        let mut live_bytes = Vec::new();
        let mut cut_at = 0;
        for pair in samples.windows(2) {
            before += pair[0].bytes;
            let is_due = before * pieces >= needed * (cuts.len() as u64 + 1);
            // What is left is the last piece.
            if is_due && pair[0].key != pair[1].key && (cuts.len() as u64) + 1 < pieces {
                cuts.push(short_bound(&pair[0].key, &pair[1].key).to_vec());
                live_bytes.push(before - cut_at);
                cut_at = before;
            }
        }
        live_bytes.push(needed - cut_at);
        Ok(Pieces { cuts, live_bytes })
    }
}

#[cfg(test)]
mod tests;
