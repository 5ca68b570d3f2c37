//! Coalesce: two small neighbours become one chunk (EvenDB §3.4 names it, the prototype lacked it).
//!
//! Their files cannot simply be put together: a file that one of them still shares with a former sibling may
//! hold outdated entries of the other's range. So both are written into one new table, which is small by
//! definition; logs begun meanwhile are each one neighbour's own and newer than the table, and become parts.

use std::sync::Arc;

use kvilt_base::{KeyRange, Result, planted};
use kvilt_sync::published::{Pin, pin};

use super::{
    funk::{FrozenChunk, Tables},
    munk::FrozenMunk,
};
use crate::{
    chunk::{Chunk, ChunkState, Heat, Occupied, ledger::Ledger},
    funk::{Funk, Part},
    munk::{Munk, run::RunBuilder, tail::Tail},
    store::Store,
};
use kvilt_sync::tombstones::Tombstones;

impl Store {
    /// Coalesces the chunk with the smaller of its neighbours; false if none is small enough.
    pub(super) fn coalesce(&self, chunk: &Occupied) -> Result<bool> {
        let Some(neighbour) = self.small_neighbour(chunk) else { return Ok(false) };
        let Some(neighbour) = neighbour.try_occupy() else { return Ok(false) };
        if neighbour.gate().is_retired {
            return Ok(false);
        }
        let (left, right) =
            if chunk.range.start < neighbour.range.start { (chunk, &neighbour) } else { (&neighbour, chunk) };
        let frozen = [self.freeze_chunk(left), self.freeze_chunk(right)];
        let has_munk = frozen.iter().all(|f| f.munk.is_some());
        let mut tables = Tables::new(self, u64::MAX, false);
        let mut run = RunBuilder::new(0)?;
        for (frozen, chunk) in frozen.iter().zip([left, right]) {
            self.for_each_retained(frozen, &chunk.range, &mut |entry, streamed| {
                if has_munk {
                    run.push(entry)?;
                }
                tables.add(entry, streamed)
            })
            .inspect_err(|error| chunk.note(error))?;
        }
        let table = tables.finish()?.into_iter().map(|(_, part)| part).next();
        self.flip_coalesced([left, right], frozen, table, has_munk.then_some(run));
        self.counters.coalesces.add(1);
        Ok(true)
    }

    fn flip_coalesced(
        &self,
        parents: [&Occupied; 2],
        frozen: [FrozenChunk; 2],
        table: Option<Part>,
        run: Option<RunBuilder>,
    ) {
        let pin = pin();
        // Gates are taken in key order.
        let mut gates = [parents[0].gate(), parents[1].gate()];
        let states = parents.map(|parent| parent.state(&pin));
        let mut parts: Vec<Part> = table.into_iter().collect();
        for state in states {
            parts.extend(Funk { parts: Vec::new(), log: state.funk.log.clone() }.closed().parts);
        }
        planted!(PartsExchanged => parts.reverse());
        let munk = run.map(|run| {
            let run = run.finish();
            let mut tails = vec![self.new_tail(0, &run)];
            let mut tombstones = Tombstones::default();
            for (state, frozen) in states.iter().zip(&frozen) {
                let munk = state.munk.as_ref().expect("only the occupant evicts");
                let frozen = frozen.munk.as_ref().expect("both have munks");
                tails.extend(tails_since(munk, frozen));
                tombstones.extend(&munk.tombstones.since(frozen.tombstones.newest()));
            }
            Arc::new(Munk {
                run: self.charged(run),
                tails,
                tombstones: Arc::new(tombstones),
                covered_bytes: 0,
            })
        });
        // The table holds what was live of both. What came since is counted: it may have deleted any of that.
        let has_more = states.iter().filter_map(|state| state.funk.log.as_ref()).any(|log| !log.is_empty());
        let live_bytes = (!has_more).then(|| parts.iter().map(|part| part.share_bytes).sum());
        let range = KeyRange { start: parents[0].range.start.clone(), end: parents[1].range.end.clone() };
        let funk = Arc::new(Funk { parts, log: None });
        let state = ChunkState { munk, funk, cold_id: self.next_id() };
        let child = Chunk::new(self.next_id(), range, state, Heat::default(), Ledger::new(live_bytes));
        let [left, right] = &mut gates;
        self.succeed(&[parents[0], parents[1]], &mut [left, right], std::slice::from_ref(&child));
        drop(gates);
        self.want(&child);
    }

    /// The neighbour that the chunk fits together with.
    fn small_neighbour(&self, chunk: &Arc<Chunk>) -> Option<Arc<Chunk>> {
        let pin = pin();
        let chunks = self.index.load(&pin).chunks();
        self.fitting_neighbours(chunks, chunk, &pin).min_by_key(|n| self.chunk_bytes(n.state(&pin))).cloned()
    }

    /// Whether [`Store::coalesce`] would find a neighbour.
    pub(super) fn has_small_neighbour(&self, chunks: &[Arc<Chunk>], chunk: &Arc<Chunk>, pin: &Pin) -> bool {
        self.fitting_neighbours(chunks, chunk, pin).next().is_some()
    }

    fn fitting_neighbours<'p>(
        &self,
        chunks: &'p [Arc<Chunk>],
        chunk: &Arc<Chunk>,
        pin: &'p Pin,
    ) -> impl Iterator<Item = &'p Arc<Chunk>> {
        let at = chunks.partition_point(|c| c.range.start < chunk.range.start);
        let bytes_max =
            (self.config.chunk_bytes_rebalance / 2).saturating_sub(self.chunk_bytes(chunk.state(pin)));
        let fits = chunks.get(at).is_some_and(|c| Arc::ptr_eq(c, chunk));
        let neighbours =
            [at.checked_sub(1), Some(at + 1)].map(|i| i.filter(|_| fits).and_then(|i| chunks.get(i)));
        neighbours.into_iter().flatten().filter(move |n| {
            // Sizes of files shared by siblings are guesses; a chunk with a munk knows.
            let state = n.state(pin);
            !n.is_damaged() && self.chunk_bytes(state) <= bytes_max
        })
    }
}

/// The tails that took entries since a munk was frozen.
fn tails_since(munk: &Munk, frozen: &FrozenMunk) -> Vec<Arc<Tail>> {
    munk.tails.iter().filter(|tail| !frozen.has(tail) && !tail.is_empty()).cloned().collect()
}
