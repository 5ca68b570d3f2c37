//! Scan (EvenDB algorithm 1, lines 23–33): chunk after chunk, each at the scan's version.
//!
//! A scan goes on by key, never by a remembered chunk: between two batches the chunk it was in may have been
//! split or coalesced. Versions it can see are kept while its view is open, so any chunk that holds the key
//! range now has what it needs.

use std::sync::atomic::Ordering;

use kvilt_base::{
    Direction, KeyRange, Merge, RangeTombstone, Result, RowBatch, Version, Visible, key::successor,
};
use kvilt_sync::published::pin;

use super::ChunkState;
use crate::{funk::Purpose, store::Store};

/// What one scan wants of one chunk.
struct Wanted<'a> {
    view: Version,
    range: &'a KeyRange,
    direction: Direction,
}

impl Store {
    /// Copies rows of `range` at `view` into `into` until it is full; says what is left of the range.
    pub(crate) fn scan(
        &self,
        view: Version,
        range: &KeyRange,
        direction: Direction,
        into: &mut RowBatch,
    ) -> Result<Option<KeyRange>> {
        self.poison.allow_read()?;
        let mut left = range.clone();
        while !left.is_empty() {
            if into.is_full() {
                return Ok(Some(left));
            }
            let pin = pin();
            let index = self.index.load(&pin);
            let chunk = match direction {
                Direction::Forward => index.find(&left.start),
                Direction::Backward => index.find_before(left.end.as_deref()),
            };
            // Relaxed: a statistic.
            chunk.heat.scans.fetch_add(1, Ordering::Relaxed);
            let here = left.intersection(&chunk.range);
            let state = chunk.state(&pin);
            let wanted = Wanted { view, range: &here, direction };
            let is_done = match &state.munk {
                Some(munk) => {
                    let entries = munk.entries(&here, direction);
                    self.copy_rows(entries, munk.tombstone_list(), &wanted, into)?
                }
                None => {
                    if state.funk.log_bytes() > 0 && chunk.heat.log_scans.fetch_add(1, Ordering::Relaxed) > 0
                    {
                        self.want(chunk);
                    }
                    let state = state.clone();
                    let chunk_range = chunk.range.clone();
                    drop(pin);
                    let is_done = self.copy_cold_rows(&state, &wanted, into).inspect_err(|error| {
                        self.index.load(&kvilt_sync::published::pin()).find(&chunk_range.start).note(error);
                    })?;
                    left = match rest(&left, &chunk_range, direction, is_done, into) {
                        Some(left) => left,
                        None => return Ok(None),
                    };
                    continue;
                }
            };
            left = match rest(&left, &chunk.range, direction, is_done, into) {
                Some(left) => left,
                None => return Ok(None),
            };
        }
        Ok(None)
    }

    fn copy_cold_rows(&self, state: &ChunkState, wanted: &Wanted<'_>, into: &mut RowBatch) -> Result<bool> {
        let tombstones = state.funk.tombstones(&self.files)?;
        let entries = state.funk.entries(
            wanted.range,
            wanted.direction,
            &self.files,
            Purpose::Scan { view: wanted.view },
        )?;
        self.copy_rows(entries, tombstones.list(), wanted, into)
    }

    /// Whether the entries came to their end before the batch was full.
    fn copy_rows(
        &self,
        entries: Merge<'_>,
        tombstones: &[RangeTombstone],
        wanted: &Wanted<'_>,
        into: &mut RowBatch,
    ) -> Result<bool> {
        let rows_before = into.len();
        let mut rows = Visible::new(entries, wanted.direction, wanted.view, tombstones);
        let mut is_done = false;
        while !into.is_full() {
            if !rows.next(&mut |key, value| into.push(key, value))? {
                is_done = true;
                break;
            }
        }
        self.counters.scanned_rows.add((into.len() - rows_before) as u64);
        self.counters.scanned_skips.add(rows.skipped());
        Ok(is_done)
    }
}

/// What is left of `left` after a chunk was read to its end (`is_done`) or up to the batch's last row.
fn rest(
    left: &KeyRange,
    chunk: &KeyRange,
    direction: Direction,
    is_done: bool,
    into: &RowBatch,
) -> Option<KeyRange> {
    let mut rest = left.clone();
    match (direction, is_done) {
        (Direction::Forward, true) => rest.start = chunk.end.clone()?,
        (Direction::Forward, false) => {
            rest.start = successor(into.last_key().expect("a full batch has a row"))
        }
        (Direction::Backward, true) => rest.end = Some(chunk.start.clone()),
        (Direction::Backward, false) => {
            rest.end = Some(into.last_key().expect("a full batch has a row").to_vec())
        }
    }
    (!rest.is_empty()).then_some(rest)
}
