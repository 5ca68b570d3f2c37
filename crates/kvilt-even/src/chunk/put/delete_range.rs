//! Range deletes: a record in the log of each chunk that the range touches, and a range tombstone over what
//! the chunk has.
//!
//! It costs a few steps, however many rows it deletes and however many range deletes came before
//! (docs/design/0057-range-tombstones.md). Where a munk shows that it deletes nothing, nothing is written.

use std::sync::{Arc, atomic::Ordering};

use kvilt_base::{EntryRef, KeyRange, Kind, RangeTombstone, Result, planted};
use kvilt_format::log::record_len_max;
use kvilt_sync::published::{Pin, pin};
use parking_lot::MutexGuard;

use super::{
    super::{Chunk, ChunkState, GateState},
    aside::Aside,
    batch::enter,
    room::{Needed, Room},
};
use crate::{
    funk::log::{IfFull, range_end_value},
    rebalance::DELETES_WORTH_A_REWRITE,
    store::Store,
};

impl Needed {
    /// For a tombstone of what `range` has of a chunk.
    fn of_range(chunk: &Chunk, range: &KeyRange) -> Self {
        let key_len = chunk.range.start.len().max(range.start.len());
        Needed {
            records: 1,
            log_bytes: record_len_max(key_len, range_value_len(chunk, range)),
            tail_bytes: 0,
        }
    }
}

impl Store {
    /// Deletes the keys of `range` as one.
    pub(crate) fn apply_delete_range(&self, range: &KeyRange, if_full: IfFull) -> Result<()> {
        if range.is_empty() {
            return self.poison.allow_write();
        }
        let mut waits = 0;
        loop {
            let chunks = self.chunks_in(range);
            let Some(mut entered) = enter_each(&chunks) else { continue };
            for (chunk, _) in &entered {
                self.allow(chunk, if_full)?;
            }
            // Where it deletes nothing it is no event, neither now nor after a crash.
            entered.retain(|(chunk, _)| !self.has_nothing_of(chunk, range));
            if entered.is_empty() {
                return Ok(());
            }
            let mut aside = Aside::default();
            let needed = entered.iter().map(|(chunk, gate)| (*chunk, gate, Needed::of_range(chunk, range)));
            if let Room::Wait(reason) = self.make_room_in_each(needed, if_full, &mut waits, &mut aside)? {
                drop(entered);
                aside.write(&self.files);
                self.stall(reason);
                continue;
            }
            self.world.spawn.between();
            self.put_range_tombstones(&entered, range, &pin());
            for (chunk, _) in &entered {
                self.set_large_aside(chunk.state(&pin()), Needed::of_range(chunk, range), &mut aside);
            }
            let deleted_from: Vec<Arc<Chunk>> = entered.iter().map(|(chunk, _)| Arc::clone(chunk)).collect();
            drop(entered);
            aside.write(&self.files);
            // As in `make_tail_room`.
            pin().flush();
            self.counters.puts.add(1);
            deleted_from.iter().for_each(|chunk| self.after_delete_range(chunk, range));
            self.changed();
            return Ok(());
        }
    }

    /// Whether a range delete of `range` would delete nothing of a chunk, whose gate the caller has. Only of
    /// a munk this is known without a read.
    fn has_nothing_of(&self, chunk: &Chunk, range: &KeyRange) -> bool {
        let pin = pin();
        let here = chunk.range.intersection(range);
        chunk.state(&pin).munk.as_ref().is_some_and(|munk| munk.shows_none_of(&here, &pin))
    }

    /// Counts, and asks for what the range delete made necessary: what was deleted is to give its space back.
    fn after_delete_range(&self, chunk: &Arc<Chunk>, range: &KeyRange) {
        // A range is likely to be of many keys. Relaxed: a statistic.
        chunk.heat.deletes.fetch_add(DELETES_WORTH_A_REWRITE, Ordering::Relaxed);
        chunk.ledger.range_deleted();
        // SeqCst: before the caller tells that something changed (S-80).
        chunk.heat.puts.fetch_add(1, Ordering::SeqCst);
        let pin = pin();
        let state = chunk.state(&pin);
        if let Some(log) = &state.funk.log {
            log.sort_tombstones(&self.versions);
        }
        let needs = match &state.munk {
            Some(munk) => self.are_tombstones_due(chunk, munk),
            None => range.covers(&chunk.range),
        };
        if needs || self.funk_wants_rewrite(chunk, state) {
            self.want(chunk);
        }
    }

    /// The chunks that `range` touches, in key order.
    fn chunks_in(&self, range: &KeyRange) -> Vec<Arc<Chunk>> {
        let pin = pin();
        let index = self.index.load(&pin);
        let from = &index.chunks()[index.position(&range.start)..];
        from.iter().take_while(|chunk| !chunk.range.intersection(range).is_empty()).cloned().collect()
    }

    /// Steps 3 to 5 for a range delete. No put to these chunks is in flight while their gates are held, so
    /// what they hold is below the range tombstone's version, and what shares it will have come later.
    fn put_range_tombstones(
        &self,
        entered: &[(&Arc<Chunk>, MutexGuard<'_, GateState>)],
        range: &KeyRange,
        pin: &Pin,
    ) {
        let half_done = self.poison.unless_done("a range delete");
        // So that all that is there is below the version that the announcement takes.
        self.versions.advance();
        let logs = || entered.iter().filter_map(|(chunk, _)| chunk.state(pin).funk.log.as_ref());
        let batch = self.begin_batch(logs());
        let (version, id) = (batch.pending.version(), batch.pending.batch());
        for (chunk, gate) in entered {
            let state = chunk.state(pin);
            let here = chunk.range.intersection(range);
            let end = range_end_value(here.end.as_deref());
            let entry = EntryRef { key: &here.start, version, kind: Kind::RangeTombstone, value: &end };
            let log = self.append_record(state, entry, id).0;
            let tombstone = RangeTombstone { range: here, version };
            let munk = state.munk.as_ref();
            let munk = munk.map(|munk| Arc::new(munk.under(&tombstone, id, &self.versions, pin)));
            log.add_tombstone(tombstone, id);
            // A fresh cold id, so that the row cache forgets the chunk's rows.
            let cold_id = self.next_id();
            let cold_id = planted!(RangeDeleteNotTold, cold_id => state.cold_id);
            chunk.replace_state(gate, ChunkState { munk, funk: Arc::clone(&state.funk), cold_id });
        }
        logs().for_each(|log| log.write_through(&self.files));
        half_done.done();
        drop(batch);
        logs().for_each(|log| log.batch_is_whole());
    }
}

/// Takes the gates of chunks in key order; none if one was retired.
fn enter_each(chunks: &[Arc<Chunk>]) -> Option<Vec<(&Arc<Chunk>, MutexGuard<'_, GateState>)>> {
    chunks.iter().map(|chunk| Some((chunk, enter(chunk)?))).collect()
}

/// Bytes of the value that says where a range tombstone ends within a chunk.
fn range_value_len(chunk: &Chunk, range: &KeyRange) -> usize {
    let len = |end: &Option<Vec<u8>>| end.as_ref().map_or(0, Vec::len);
    1 + len(&chunk.range.end).max(len(&range.end))
}

#[cfg(test)]
mod tests;
