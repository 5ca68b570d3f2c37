//! A munk is loaded: all that a cold chunk's files have of it, read into a run (EvenDB §4).
//!
//! Where it stands: [`super::memory`] says which chunk, and when. Always true: puts go on meanwhile, and a
//! munk that is shown is complete (E-3); what turns out to be larger than a munk may be is given up, and is
//! not tried again before reads have paid for it.

use std::sync::Arc;

use kvilt_base::{Direction, Error, ErrorKind, Kind, RangeTombstone, Result, Version, planted};
use kvilt_sync::published::pin;

use crate::{
    chunk::{ChunkState, Occupied},
    funk::{
        Purpose,
        log::{ChunkLog, range_tombstone},
    },
    munk::{Munk, run::RunBuilder, tail::Tail},
    retain::Retain,
    store::Store,
};
use kvilt_sync::tombstones::Tombstones;

impl Store {
    /// Reads the chunk into a munk, while puts go on; what they wrote meanwhile is caught up under the gate.
    /// False if it turns out to be larger than a munk may be: files tell what rows take compressed, and what
    /// a split chunk has of a file only about.
    pub(super) fn load(&self, chunk: &Occupied) -> Result<bool> {
        let (state, upto) = {
            let pin = pin();
            let gate = chunk.gate();
            if gate.is_retired {
                return Ok(false);
            }
            let state = chunk.state(&pin).clone();
            let upto = state.funk.log.as_ref().map_or(0, |log| log.len());
            (state, upto)
        };
        if state.munk.is_some() {
            return Ok(false);
        }
        let tombstones = state.funk.tombstones(&self.files, &self.versions)?;
        let purpose = Purpose::Rewrite { log_upto: upto, streams: false };
        let mut entries = state.funk.entries(&chunk.range, Direction::Forward, &self.files, purpose)?;
        // Behind the entries: orders of logs that a scan has made may have puts behind `upto`. A view that is
        // opened from here on sees those, and one that was opened before them is among these.
        let views = self.kept_views();
        let mut run = RunBuilder::new(self.chunk_bytes(&state) as usize)?;
        let most = self.munk_share() / 2;
        let mut is_too_large = false;
        let read = Retain::new(&views, &tombstones).run(&mut entries, &mut |entry| {
            is_too_large = run.bytes_with(entry) as u64 > most;
            if is_too_large { Err(too_large()) } else { run.push(entry) }
        });
        drop(entries);
        if is_too_large {
            // Not again before reads have paid for it.
            chunk.heat.forget();
            return Ok(false);
        }
        read?;
        self.flip_loaded(chunk, &state, upto, run)?;
        self.counters.munk_loads.add(1);
        Ok(true)
    }

    fn flip_loaded(&self, chunk: &Occupied, seen: &ChunkState, upto: u64, run: RunBuilder) -> Result<()> {
        let pin = pin();
        let gate = chunk.gate();
        let state = chunk.state(&pin);
        let mut since = Since::default();
        if let Some(log) = &state.funk.log {
            let is_same = seen.funk.log.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, log));
            let from = if is_same { upto } else { 0 };
            since.read(self, log, from)?;
        }
        let run = run.finish();
        let tail = self.new_tail(since.room(), &run);
        since.fill(&tail);
        let tombstones = Arc::new(since.tombstones);
        let munk = Munk { run: self.charged(run), tails: vec![tail], tombstones, covered_bytes: 0 };
        let funk = Arc::clone(&state.funk);
        if let Some(log) = &funk.log {
            // The index is kept: puts go on to fill it.
            log.forget(false);
        }
        chunk.replace_state(&gate, ChunkState { munk: Some(Arc::new(munk)), funk, cold_id: 0 });
        Ok(())
    }
}

/// Ends a load; nobody is shown it.
fn too_large() -> Error {
    Error::new(ErrorKind::LimitReached, "a chunk is too large for a munk")
}

/// What was written while a munk was loaded.
#[derive(Default)]
struct Since {
    entries: Vec<(Vec<u8>, Version, Kind, Vec<u8>)>,
    tombstones: Tombstones,
}

impl Since {
    fn read(&mut self, store: &Store, log: &ChunkLog, from: u64) -> Result<()> {
        planted!(LoadNotCaughtUp => return Ok(()));
        log.for_each(&store.files, from, log.len(), &mut |_, entry, _| {
            if entry.kind == Kind::RangeTombstone {
                let tombstone: RangeTombstone = range_tombstone(&entry);
                self.tombstones.push(&tombstone, 0, &store.versions);
            } else {
                self.entries.push((entry.key.to_vec(), entry.version, entry.kind, entry.value.to_vec()));
            }
            Ok(())
        })
    }

    fn room(&self) -> usize {
        Tail::room_for(self.entries.iter().map(|(key, _, _, value)| (key.len(), value.len())))
    }

    fn fill(&self, tail: &Tail) {
        for (key, version, kind, value) in &self.entries {
            tail.insert(key, *version, *kind, 0, value);
        }
    }
}
