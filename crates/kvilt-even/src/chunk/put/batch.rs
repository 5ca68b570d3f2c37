//! Batches: several changes that become visible as one, each in its chunk, under all their gates.
//!
//! Where it stands: the steps of [`super`], taken for several chunks. Always true: gates are taken in key
//! order.

use std::sync::Arc;

use kvilt_base::Result;
use kvilt_sync::{
    published::{Pin, pin},
    row_cache::Writing,
    versions::Pending,
};
use parking_lot::MutexGuard;

use super::{
    super::{Chunk, GateState, get::cold_key},
    Change,
    aside::Aside,
    room::{Needed, Room},
};
use crate::{
    funk::log::{ChunkLog, IfFull},
    pool,
    store::Store,
};

/// A chunk whose gate is held, with the changes that go to it.
struct Entered<'e, 'c> {
    chunk: &'e Arc<Chunk>,
    gate: MutexGuard<'e, GateState>,
    changes: &'c [Change<'c>],
}

impl Store {
    /// Applies `changes`, sorted by key and each key once, as one.
    pub(crate) fn apply_batch(&self, changes: &[Change<'_>], if_full: IfFull) -> Result<()> {
        debug_assert!(changes.is_sorted_by(|a, b| a.key < b.key));
        match changes {
            [] => return self.poison.allow_write(),
            [change] => return self.apply_one(*change, if_full),
            _ => {}
        }
        let mut waits = 0;
        loop {
            let chunks = self.chunks_of(changes);
            let Some(entered) = enter_all(&chunks) else { continue };
            let mut aside = Aside::default();
            let needed = entered.iter().map(|e| (e.chunk, &e.gate, Needed::of(e.changes)));
            if let Room::Wait(reason) = self.make_room_in_each(needed, if_full, &mut waits, &mut aside)? {
                drop(entered);
                aside.write(&self.files);
                self.stall(reason);
                continue;
            }
            self.world.spawn.between();
            let pin = pin();
            self.put_all(&entered, &pin);
            for Entered { chunk, changes, .. } in &entered {
                self.set_large_aside(chunk.state(&pin), Needed::of(changes), &mut aside);
            }
            drop(entered);
            for (chunk, changes) in &chunks {
                self.after_put(chunk, &pin, changes);
            }
            drop(pin);
            self.write_aside(aside);
            self.counters.batches.add(1);
            return Ok(());
        }
    }

    /// The chunks that `changes` go to, in key order, with what goes to each.
    fn chunks_of<'c>(&self, changes: &'c [Change<'c>]) -> Vec<(Arc<Chunk>, &'c [Change<'c>])> {
        let pin = pin();
        let index = self.index.load(&pin);
        let mut chunks = Vec::new();
        let mut left = changes;
        while let Some(first) = left.first() {
            let chunk = index.find(first.key);
            let (here, behind) = left.split_at(left.partition_point(|c| chunk.range.contains(c.key)));
            chunks.push((Arc::clone(chunk), here));
            left = behind;
        }
        chunks
    }

    /// Steps 3 to 5 for a batch.
    fn put_all(&self, entered: &[Entered<'_, '_>], pin: &Pin) {
        let mut cold_keys = Vec::new();
        for Entered { chunk, changes, .. } in entered {
            let state = chunk.state(pin);
            if state.munk.is_none() {
                cold_keys.extend(changes.iter().map(|c| cold_key(state.cold_id, c.key)));
            }
        }
        let writing: Vec<Writing<'_>> = cold_keys.iter().map(|key| self.row_cache.writing(key)).collect();
        let half_done = self.poison.unless_done("a batch");
        let logs = || entered.iter().filter_map(|entered| entered.chunk.state(pin).funk.log.as_ref());
        let batch = self.begin_batch(logs());
        for Entered { chunk, changes, .. } in entered {
            let state = chunk.state(pin);
            for change in *changes {
                self.append(state, &batch.pending, *change, None);
            }
        }
        logs().for_each(|log| log.write_through(&self.files));
        half_done.done();
        drop(batch);
        logs().for_each(|log| log.batch_is_whole());
        // Only now, when gets find the new entries, may rows be cached again.
        drop(writing);
    }
}

/// A batch that goes to logs: announced, and noted for the next process. Dropped when all of it is there: it
/// is whole for that first, before anybody sees it in this one.
pub(crate) struct InHand<'s> {
    _noted: Option<pool::Batch<'s>>,
    pub(crate) pending: Pending<'s>,
}

impl Store {
    /// Announces a batch that goes to these logs.
    pub(crate) fn begin_batch<'l>(&self, logs: impl Iterator<Item = &'l Arc<ChunkLog>>) -> InHand<'_> {
        let pending = self.versions.announce_batch();
        let noted = self.files.pool.as_ref().and_then(|pool| pool.begin_batch(pending.batch()));
        if noted.is_some() {
            logs.for_each(|log| log.note_batch(pending.batch()));
        }
        InHand { _noted: noted, pending }
    }
}

/// Takes the gates of chunks in key order, with what goes to each; none if one was retired.
fn enter_all<'e, 'c>(chunks: &'e [(Arc<Chunk>, &'c [Change<'c>])]) -> Option<Vec<Entered<'e, 'c>>> {
    let entered = chunks.iter().map(|(chunk, changes)| Some(Entered { chunk, gate: enter(chunk)?, changes }));
    entered.collect()
}

pub(super) fn enter(chunk: &Chunk) -> Option<MutexGuard<'_, GateState>> {
    Some(chunk.gate()).filter(|gate| !gate.is_retired)
}

/// Sorts changes by key and leaves, of those to one key, the last.
pub(crate) fn settle(changes: &mut Vec<Change<'_>>) {
    // Stable, so that the last one to a key stays last.
    changes.sort_by(|a, b| a.key.cmp(b.key));
    changes.dedup_by(|later, kept| {
        let is_same = later.key == kept.key;
        if is_same {
            *kept = *later;
        }
        is_same
    });
}
