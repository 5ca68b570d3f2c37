//! Divide: a cold chunk whose logs grew long with rows that were written once becomes several, and nothing is written.
//!
//! As in a split in memory (`rebalance/split.rs`), the children refer to the parent's files, each to its own range of
//! them. A rewrite would put the same rows into tables and free next to nothing; where data comes in an order of time, and
//! more ranges are written at once than have munks, that would be most of what is written besides the logs.
//!
//! A chunk whose logs hold much that was written over is rewritten instead, and so is one that nearly has too many files,
//! or that has a table: there a rewrite was worth it before.

use kvilt_base::Result;
use kvilt_format::log::record_len_max;
use kvilt_sync::published::pin;

use super::{PARTS_MAX, funk::FrozenChunk, split::ranges_between};
use crate::{
    chunk::{Chunk, ChunkState, Occupied},
    funk::{Funk, PartFile},
    store::Store,
};

/// A rewrite that would write so many hundredths of what the logs have frees too little.
const NEEDED_PERCENT_MIN: u64 = 75;

impl Store {
    /// Replaces the chunk by several that share its files; false if it is to be rewritten.
    pub(super) fn divide(&self, chunk: &Occupied, frozen: &FrozenChunk) -> Result<bool> {
        if !self.may_divide(chunk, frozen) {
            return Ok(false);
        }
        let cuts = self.cuts(chunk, frozen)?;
        if cuts.is_empty() {
            return Ok(false);
        }
        let ranges = ranges_between(&chunk.range, cuts);
        let pin = pin();
        let mut gate = chunk.gate();
        // With what was put meanwhile.
        let closed = chunk.state(&pin).funk.closed();
        let child = |range: &kvilt_base::KeyRange| {
            let funk = closed.inherited(range, &ranges).into();
            let state = ChunkState { munk: None, funk, cold_id: self.next_id() };
            Chunk::new(self.next_id(), range.clone(), state, chunk.heat.halved())
        };
        let children: Vec<_> = ranges.iter().map(child).collect();
        self.counters.splits.add(children.len() as u64 - 1);
        self.succeed(&[chunk], &mut [&mut gate], &children);
        Ok(true)
    }

    /// Whether nothing but the length of its logs asks for a rewrite, and none was worth it so far.
    fn may_divide(&self, chunk: &Chunk, frozen: &FrozenChunk) -> bool {
        let Funk { parts, .. } = &frozen.funk;
        let is_untouched = |file: &PartFile| match file {
            PartFile::Log(log) => log.tombstones().is_empty(),
            PartFile::Table(_) => false,
        };
        frozen.munk.is_none()
            && frozen.funk.log_bytes() > self.config.log_bytes_max_unread
            && parts.len() < PARTS_MAX
            && parts.iter().all(|part| is_untouched(&part.file))
            && !self.has_paid_for_order(chunk, &frozen.funk)
            && !self.files.reserve.is_short()
    }

    /// The first keys of all children but the first; none if so much was written over that a rewrite is worth it.
    fn cuts(&self, chunk: &Chunk, frozen: &FrozenChunk) -> Result<Vec<Vec<u8>>> {
        let held = frozen.funk.log_bytes();
        let piece = held / (held / self.config.chunk_bytes_rebalance.max(1)).max(2);
        let (mut cuts, mut last_key) = (Vec::new(), Vec::new());
        let (mut needed, mut in_piece) = (0, 0);
        self.for_each_retained(frozen, &chunk.range, &mut |entry| {
            // Never between versions of one key.
            if in_piece >= piece && entry.key != last_key {
                cuts.push(entry.key.to_vec());
                in_piece = 0;
            }
            let bytes = record_len_max(entry.key.len(), entry.value.len()) as u64;
            in_piece += bytes;
            needed += bytes;
            entry.key.clone_into(&mut last_key);
            Ok(())
        })?;
        let is_worth_a_rewrite = needed * 100 < held * NEEDED_PERCENT_MIN;
        Ok(if is_worth_a_rewrite { Vec::new() } else { cuts })
    }
}

#[cfg(test)]
mod tests;
