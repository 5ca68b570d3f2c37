//! Flushing: sealed memory tables become sorted tables of level 0, oldest first.
//!
//! What was flushed is still read from memory while the budget has room for it.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use kvilt_base::{Direction, KeyRange, Kind, Result, Source as _, planted};
use kvilt_sync::tombstones::Tombstones;

use crate::{
    output::Output,
    retain::Retain,
    sources::{Memory, Seen, Sorted, level_of},
    store::Store,
};

impl Store {
    /// Flushes a sealed table if there is one. Whether there was.
    ///
    /// Errors: `NoSpace`, `Io`: then it is sealed still. `Poisoned`.
    pub(crate) fn flush_oldest(&self) -> Result<bool> {
        let _flushing = self.flushing.lock();
        self.ensure_healthy()?;
        let Some(memory) = self.sources_now().sealed.last().cloned() else { return Ok(false) };
        // The thread that published its successor may not have come to that yet.
        memory.table.seal();
        // A batch with rows in it may be in flight, and must not be where nobody asks for that.
        let cut = self.versions.advance();
        self.versions.wait_for_pending(cut);
        let tombstones = self.durable_tombstones()?;
        let tables = self.write_out(&memory, &tombstones)?;
        self.install_flush(&memory, &tables)?;
        self.counters.flushes.fetch_add(1, Relaxed);
        Ok(true)
    }

    fn write_out(&self, memory: &Memory, tombstones: &Arc<Tombstones>) -> Result<Vec<Arc<Sorted>>> {
        let mut retain = Retain::new(&self.versions, tombstones);
        let mut output = Output::new(self, u64::MAX, memory.number);
        let reading = memory.table.sealed().expect("it was sealed above");
        let mut source = reading.versions(&KeyRange::all(), Direction::Forward, Seen(&self.versions));
        while let Some(entry) = source.entry() {
            if retain.is_needed(entry.key, entry.version)
                && planted!(DeleteNotFlushed, true => entry.kind == Kind::Put)
            {
                output.add(entry)?;
            }
            source.advance()?;
        }
        output.finish()
    }

    fn install_flush(&self, memory: &Arc<Memory>, tables: &[Arc<Sorted>]) -> Result<()> {
        self.install(tables, &|sources| {
            sources.sealed.retain(|sealed| !Arc::ptr_eq(sealed, memory));
            sources.cached.insert(0, Arc::clone(memory));
            let place = planted!(FlushedBehindOlder, 0 => sources.levels.first().map_or(0, Vec::len));
            level_of(sources, 0).splice(place..place, tables.iter().cloned());
        })
    }
}
