//! Installing what was flushed or merged: in the catalogue first, then for readers.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use kvilt_base::{FileName, Result, planted};
use kvilt_format::{levels::Levels, names::TABLE};
use kvilt_sync::tombstones::Tombstones;

use crate::{
    log::Log,
    sources::{Sorted, Sources},
    store::Store,
};

impl Store {
    /// The range deletes of now, of which the log is durable, as of all that was appended before. What is
    /// flushed, merged or named in a catalogue before its record is durable would outlive a power cut that
    /// takes writes before it.
    pub(crate) fn durable_tombstones(&self) -> Result<Arc<Tombstones>> {
        let tombstones = self.sources_now().tombstones;
        match self.log.get() {
            Some(log) => log.sync().inspect_err(|error| self.poison(error)).map(|()| tombstones),
            None => Ok(tombstones),
        }
    }

    /// Makes changed sources durable and publishes them. If that fails, `tables` are not needed.
    pub(crate) fn install(&self, tables: &[Arc<Sorted>], change: &dyn Fn(&mut Sources)) -> Result<()> {
        let mut catalogue = self.catalogue.lock();
        // Those of now, not those that the tables were written with: a flush that was installed meanwhile may
        // have freed the log of a range delete that came in between.
        let durable = match self.sources_now().tombstones {
            none if none.is_empty() => none,
            _ => self.durable_tombstones()?,
        };
        let mut sources = self.sources_now();
        change(&mut sources);
        sources.tombstones = sources.needed(&durable);
        let synced = self.log.get().map(Log::synced);
        let changed = catalogue.change(|levels| {
            describe(&sources, levels);
            levels.log_synced = synced.map_or(levels.log_synced, |synced| (synced.sequence, synced.offset));
        });
        match changed {
            Ok(bytes) => self.counters.catalogue_bytes_written.fetch_add(bytes, Relaxed),
            Err(error) => {
                if catalogue.is_unsure() {
                    self.poison(&error);
                } else {
                    for sorted in tables {
                        // What cannot be removed is removed by the next open.
                        let _ = self.disk.remove(FileName::Of(TABLE, sorted.of.number));
                    }
                }
                return Err(error);
            }
        };
        let log_first = catalogue.levels().log_first;
        let needed = sources.tombstones;
        // Meanwhile there may be another active table, and more range deletes.
        self.change_sources(|sources| {
            change(sources);
            let mut tombstones = Tombstones::clone(&needed);
            tombstones.extend(&sources.tombstones.since(durable.newest()));
            sources.tombstones = Arc::new(tombstones);
            self.shrink(sources);
        });
        drop(catalogue);
        if let Some(log) = self.log.get() {
            log.free_until(log_first);
        }
        // Memory tables and files of sorted ones are not to wait for the next collection.
        kvilt_sync::settle();
        Ok(())
    }
}

/// Says in a catalogue what the sources are.
pub(crate) fn describe(sources: &Sources, levels: &mut Levels) {
    let of = |level: &Vec<Arc<Sorted>>| level.iter().map(|sorted| sorted.of.clone()).collect();
    levels.levels = sources.levels.iter().map(of).collect();
    levels.tombstones = planted!(RangeDeleteNotNamed, sources.tombstones.pieces() => Vec::new());
    let log_first = sources.unflushed().map(|memory| memory.log_first).min();
    levels.log_first = log_first.expect("there is an active table");
}
