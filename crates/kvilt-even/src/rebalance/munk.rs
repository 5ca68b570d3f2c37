//! Munk rebalance (EvenDB §3.4): frozen tails and the run become one run, in memory, without the gate.

use std::sync::Arc;

use kvilt_base::{Direction, KeyRange, Mutant, Result, mutant};
use kvilt_sync::budget::Part;

use crate::{
    chunk::{ChunkState, Occupied},
    munk::{
        ChargedRun, Munk, entries_of,
        run::{Run, RunBuilder},
        tail::Tail,
    },
    retain::Retain,
    store::Store,
    tombstones::Tombstones,
};

/// What a munk held at one moment, without its open tail.
pub(super) struct FrozenMunk {
    pub(super) run: Arc<ChargedRun>,
    pub(super) tails: Vec<Arc<Tail>>,
    pub(super) tombstones: Arc<Tombstones>,
}

impl FrozenMunk {
    /// The frozen part of `munk`.
    pub(super) fn of(munk: &Munk) -> Self {
        FrozenMunk {
            run: Arc::clone(&munk.run),
            tails: munk.tails[1..].to_vec(),
            tombstones: Arc::clone(&munk.tombstones),
        }
    }

    /// Whether `tail` is in it.
    pub(super) fn has(&self, tail: &Arc<Tail>) -> bool {
        self.tails.iter().any(|frozen| Arc::ptr_eq(frozen, tail))
    }

    fn bytes(&self) -> usize {
        self.run.run.entry_bytes() + self.tails.iter().map(|t| t.list().used_bytes()).sum::<usize>()
    }
}

impl Store {
    /// Sorts what is frozen, and splits the chunk if what comes out is too large.
    pub(super) fn compact_munk(&self, chunk: &Occupied) -> Result<()> {
        let Some(frozen) = self.freeze(chunk) else { return Ok(()) };
        let run = self.sorted(&frozen, &chunk.range)?;
        self.counters.munk_compactions.add(1);
        if self.is_too_large(&run) {
            let pieces = run.cut((self.config.chunk_bytes_rebalance / 2) as usize)?;
            drop(run);
            if pieces.len() > 1 {
                self.split_munk(chunk, &frozen, pieces);
                return Ok(());
            }
            let only = pieces.into_iter().next().expect("a cut gives a run");
            self.replace_run(chunk, &frozen, only);
            return Ok(());
        }
        self.replace_run(chunk, &frozen, run);
        Ok(())
    }

    /// What of the munk does not change any more. With range tombstones the open tail is frozen too, so that
    /// all they lie over is there and they can be ended.
    fn freeze(&self, chunk: &Occupied) -> Option<FrozenMunk> {
        let pin = kvilt_sync::published::pin();
        let gate = chunk.gate();
        let state = chunk.state(&pin);
        let munk = state.munk.as_ref()?;
        if munk.tombstones.is_empty() || munk.tail().list().is_empty() || mutant(Mutant::TailNotFrozen) {
            return Some(FrozenMunk::of(munk));
        }
        let munk = Arc::new(munk.with_fresh_tail(self.new_tail(0, munk.prefix())));
        let frozen = FrozenMunk::of(&munk);
        chunk.replace_state(&gate, ChunkState { munk: Some(munk), ..state.clone() });
        Some(frozen)
    }

    /// The entries of a frozen munk that some reader needs, sorted.
    pub(super) fn sorted(&self, frozen: &FrozenMunk, range: &KeyRange) -> Result<Run> {
        // Views opened from here on are above everything frozen and see the newest of it, which is kept.
        let views = self.kept_views();
        let mut entries = entries_of(&frozen.run, &frozen.tails, range, Direction::Forward);
        let mut builder = RunBuilder::new(frozen.bytes())?;
        Retain::new(&views, frozen.tombstones.list()).run(&mut entries, &mut |entry| builder.push(entry))?;
        Ok(builder.finish())
    }

    /// Puts a run in the place of what it was made of.
    fn replace_run(&self, chunk: &Occupied, frozen: &FrozenMunk, run: Run) {
        let pin = kvilt_sync::published::pin();
        let gate = chunk.gate();
        let state = chunk.state(&pin);
        let munk = state.munk.as_ref().expect("only the occupant evicts");
        let munk = Munk {
            run: self.charged(run),
            tails: if mutant(Mutant::PutDuringSort) {
                vec![self.new_tail(0, munk.prefix())]
            } else {
                munk.tails.iter().filter(|tail| !frozen.has(tail)).cloned().collect()
            },
            tombstones: Arc::new(munk.tombstones.since(frozen.tombstones.list().len())),
        };
        chunk.replace_state(&gate, ChunkState { munk: Some(Arc::new(munk)), ..state.clone() });
    }

    /// A run, charged to the budget.
    pub(super) fn charged(&self, run: Run) -> Arc<ChargedRun> {
        let bytes = run.memory_bytes() as u64;
        ChargedRun::new(run, self.files.budget.charge(Part::Munks, bytes))
    }
}
