//! Split (EvenDB §3.4), without the second phase: the halves share the parent's files.
//!
//! Phase one of the paper's split runs in memory: the munk becomes two, the chunk becomes two, and both refer
//! to the old funk. Phase two then writes two new funks. We stop after phase one: a funk may have several
//! parts, so each half keeps the parent's files as parts, reads its own range of them, and begins a log of
//! its own. What phase two would have written is written only if and when a half is rewritten for a reason of
//! its own. For data that is written once in key order — the motivating workload — that is never.

use std::sync::Arc;

use kvilt_base::KeyRange;
use kvilt_sync::{published::pin, rows::Hold};

use super::munk::FrozenMunk;
use crate::{
    chunk::{Chunk, ChunkState, Occupied},
    funk::{Funk, Part, log::ChunkLog},
    journal,
    munk::{
        Munk,
        run::{Run, RunReader},
    },
    shared_key::short_bound,
    store::Store,
};

impl Store {
    /// Replaces a chunk by one for each of `pieces`, which are its frozen munk, sorted and cut.
    pub(super) fn split_munk(&self, chunk: &Occupied, frozen: &FrozenMunk, pieces: Vec<Run>) {
        let ranges = ranges_of(&chunk.range, &pieces);
        // What takes longer than a put may wait is done before the gate.
        let log = chunk.state(&pin()).funk.log.clone();
        let intervals = {
            let holds: Vec<Hold> = pieces.iter().map(Run::hold).collect();
            let runs: Vec<RunReader<'_>> =
                pieces.iter().zip(&holds).map(|(run, hold)| run.held(hold)).collect();
            let keys = runs.iter().flat_map(|run| (0..run.run().len()).map(|at| run.key_at(at)));
            log.as_ref().and_then(|log| log.intervals_among(keys))
        };
        let pin = pin();
        let mut gate = chunk.gate();
        let state = chunk.state(&pin);
        let munk = state.munk.as_ref().expect("only the occupant evicts");
        let shared: Vec<_> =
            munk.tails.iter().filter(|tail| !frozen.has(tail) && !tail.is_empty()).cloned().collect();
        let tombstones = munk.tombstones.since(frozen.tombstones.newest());
        let funk = state.funk.closed();
        let log = log.filter(|log| state.funk.log.as_ref().is_some_and(|now| Arc::ptr_eq(now, log)));
        if let (Some(log), Some(mut intervals)) = (&log, intervals) {
            shared.iter().for_each(|tail| tail.for_each_key(|key| intervals.add(key)));
            log.narrow(intervals);
        }
        let all_ranges = ranges.clone();
        let mut children = Vec::with_capacity(pieces.len());
        for (run, range) in pieces.into_iter().zip(ranges) {
            let mut tails = Vec::with_capacity(shared.len() + 1);
            tails.push(self.new_tail(0, &run));
            tails.extend(shared.iter().filter(|tail| tail.touches(&range)).cloned());
            let munk = Munk {
                run: self.charged(run),
                tails,
                tombstones: Arc::new(tombstones.touching(&range)),
                covered_bytes: 0,
            };
            let funk = Arc::new(funk.inherited(&range, &all_ranges));
            let state = ChunkState { munk: Some(Arc::new(munk)), funk, cold_id: 0 };
            let ledger = chunk.ledger.divided(all_ranges.len(), None);
            children.push(Chunk::new(self.next_id(), range, state, chunk.heat.halved(), ledger));
        }
        self.counters.splits.add(children.len() as u64 - 1);
        let has_frozen = !shared.is_empty();
        self.succeed(&[chunk], &mut [&mut gate], &children);
        drop(gate);
        drop(pin);
        if has_frozen {
            children.iter().for_each(|child| self.want(child));
        }
    }

    /// Puts `children` in the place of `parents`, whose gates are held: the index changes in one step, and
    /// the parents never change again.
    pub(super) fn succeed(
        &self,
        parents: &[&Arc<Chunk>],
        gates: &mut [&mut parking_lot::MutexGuard<'_, crate::chunk::GateState>],
        children: &[Arc<Chunk>],
    ) {
        let mut structure = self.structure.lock();
        structure.changed.extend(
            parents.iter().chain(children.iter().collect::<Vec<_>>().iter()).map(|c| c.range.start.clone()),
        );
        let pin = pin();
        let munks = parents.iter().filter_map(|parent| parent.state(&pin).munk.as_ref());
        let bytes = munks.map(|munk| munk.memory_bytes() as usize).sum();
        self.index.replace_counting(self.index.load(&pin).with(parents, children.to_vec()), bytes);
        if self.files.pool.is_some() {
            let edit = journal::chunks_succeed(&self.files, parents, children, &pin);
            structure.journals.note(&self.files, &edit);
        }
        for gate in gates {
            gate.is_retired = true;
        }
    }

    /// The children of a chunk that was rewritten into several tables. Puts since then are in `diverted`.
    pub(super) fn cold_children(
        &self,
        parent: &Chunk,
        tables: Vec<(Vec<u8>, Part)>,
        diverted: Option<Arc<ChunkLog>>,
    ) -> Vec<Arc<Chunk>> {
        let cuts = tables.iter().skip(1).map(|(bound, _)| bound.clone()).collect();
        let ranges = ranges_between(&parent.range, cuts);
        let closed = Funk { parts: Vec::new(), log: diverted }.closed();
        let mut children = Vec::with_capacity(tables.len());
        for (range, (_, table)) in ranges.iter().cloned().zip(tables) {
            let ledger = parent.ledger.rewritten(ranges.len(), table.share_bytes);
            let mut parts = vec![table];
            parts.extend(closed.inherited(&range, &ranges).parts);
            let funk = Arc::new(Funk { parts, log: None });
            let state = ChunkState { munk: None, funk, cold_id: self.next_id() };
            children.push(Chunk::new(self.next_id(), range, state, parent.heat.halved(), ledger));
        }
        children
    }
}

impl Funk {
    /// What a child with `range` keeps of a closed funk whose range is divided into `ranges`: the parts that
    /// may hold keys of it, each counted to it in equal share with the siblings that keep it too. Where keys
    /// come in order, a part lies on one side of the cut, and the number of parts stays small.
    pub(super) fn inherited(&self, range: &KeyRange, ranges: &[KeyRange]) -> Funk {
        let kept = self.parts.iter().filter(|part| part.may_touch(range)).cloned();
        let parts = kept.map(|part| {
            let sharers = ranges.iter().filter(|r| part.may_touch(r)).count().max(1) as u64;
            Part { share_bytes: part.share_bytes.div_ceil(sharers), ..part }
        });
        Funk { parts: parts.collect(), log: None }
    }
}

/// The ranges that chunks for these runs have: each but the first begins with a short key that its run does
/// not begin before, and that is behind the run before.
fn ranges_of(parent: &KeyRange, runs: &[Run]) -> Vec<KeyRange> {
    let bound = |pair: &[Run]| {
        let holds = (pair[0].hold(), pair[1].hold());
        let (before, behind) = (pair[0].held(&holds.0), pair[1].held(&holds.1));
        let last = before.key_at(pair[0].len().checked_sub(1).expect("a cut gives no empty run"));
        short_bound(last, behind.first_key().expect("a cut gives no empty run")).to_vec()
    };
    ranges_between(parent, runs.windows(2).map(bound).collect())
}

/// What `parent` consists of between these cuts.
pub(super) fn ranges_between(parent: &KeyRange, cuts: Vec<Vec<u8>>) -> Vec<KeyRange> {
    let ends = cuts.clone().into_iter().map(Some).chain([parent.end.clone()]);
    let starts = std::iter::once(parent.start.clone()).chain(cuts);
    starts.zip(ends).map(|(start, end)| KeyRange { start, end }).collect()
}
