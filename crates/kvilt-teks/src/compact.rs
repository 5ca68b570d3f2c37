//! Compaction: sealed memory tables are flushed to level 0, and levels that are full are merged downwards.
//!
//! One thread at a time compacts. Readers go on with the sources that they have; writers wait only if too
//! many sealed tables are not flushed.

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use kvilt_base::{Direction, EntryRef, FileName, KeyRange, Kind, Merge, Result, Source, Version};
use kvilt_format::{
    levels::{LEVELS_MAX, Levels},
    names::TABLE,
};

use crate::{
    log::Log,
    options::table_bytes,
    output::Output,
    retain::Retain,
    sources::{Memory, Seen, Sorted, Sources, Tombstone},
    store::Store,
};

/// With as many tables, level 0 is merged into level 1.
const LEVEL_0_TABLES: usize = 4;
/// Level 1 has as many times the bytes of a memory table …
const LEVEL_1_TABLES: u64 = 8;
/// … and each level below as many times those of the level above.
const LEVEL_GROWTH: u64 = 10;
/// Bytes of a sorted table that a merge writes, about: a memory table's, but from this to this many.
const TABLE_BYTES_MIN: u64 = 64 << 10;
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// What a merge reads, and where its output goes.
struct Inputs {
    /// Newest first.
    tables: Vec<Arc<Sorted>>,
    target: usize,
}

impl Store {
    /// Flushes a sealed table, or merges a level, if there is something to do. Whether there was.
    pub(crate) fn compact(&self) -> Result<bool> {
        let _compacting = self.compacting.lock();
        self.ensure_healthy()?;
        if self.flush_oldest()? {
            return Ok(true);
        }
        match self.full_level() {
            Some(inputs) => self.merge(&inputs).map(|()| true),
            None => Ok(false),
        }
    }

    fn flush_oldest(&self) -> Result<bool> {
        let Some(memory) = self.sources_now().sealed.last().cloned() else { return Ok(false) };
        // A batch with rows in it may be in flight, and must not be where nobody asks for that.
        let cut = self.versions.advance();
        self.versions.wait_for_pending(cut);
        let tombstones = self.durable_tombstones()?;
        let mut retain = Retain::new(&self.versions, tombstones.clone());
        let mut output = Output::new(self, u64::MAX);
        let reading = memory.table.sealed().expect("a table that was rotated is sealed");
        let mut source = reading.versions(&KeyRange::all(), Direction::Forward, Seen(&self.versions));
        while let Some(entry) = source.entry() {
            if retain.is_needed(entry.key, entry.version) {
                output.add(entry)?;
            }
            source.advance()?;
        }
        let tables = output.finish()?;
        self.install_flush(&memory, tables, &tombstones)?;
        self.counters.flushes.fetch_add(1, Relaxed);
        Ok(true)
    }

    /// The range deletes of now, of which the log is durable, as of all that was appended before. What is
    /// flushed, merged or named in a catalogue before its record is durable would outlive a power cut that
    /// takes writes before it.
    fn durable_tombstones(&self) -> Result<Vec<Arc<Tombstone>>> {
        let tombstones = self.sources_now().tombstones;
        match self.log.get() {
            Some(log) => log.sync().inspect_err(|error| self.poison(error)).map(|()| tombstones),
            None => Ok(tombstones),
        }
    }

    fn install_flush(
        &self,
        memory: &Arc<Memory>,
        tables: Vec<Arc<Sorted>>,
        tombstones: &[Arc<Tombstone>],
    ) -> Result<()> {
        self.install((&tables, tombstones), |sources| {
            sources.sealed.retain(|sealed| !Arc::ptr_eq(sealed, memory));
            level_of(sources, 0).splice(0..0, tables.iter().cloned());
        })?;
        self.flushed.notify_all();
        Ok(())
    }

    /// What is to be merged first.
    fn full_level(&self) -> Option<Inputs> {
        let sources = self.sources_now();
        let level = |number: usize| sources.levels.get(number).map_or(&[][..], Vec::as_slice);
        if level(0).len() >= LEVEL_0_TABLES {
            return Some(inputs(level(0).to_vec(), level(1), 1));
        }
        let mut bytes_max = table_bytes(self.budget.bytes_max()) as u64 * LEVEL_1_TABLES;
        for number in 1..LEVELS_MAX - 1 {
            let bytes: u64 = level(number).iter().map(|sorted| sorted.of.len).sum();
            if bytes > bytes_max {
                // The oldest: files are numbered as they are made.
                let oldest = level(number).iter().min_by_key(|sorted| sorted.of.number)?;
                return Some(inputs(vec![Arc::clone(oldest)], level(number + 1), number + 1));
            }
            bytes_max = bytes_max.saturating_mul(LEVEL_GROWTH);
        }
        None
    }

    fn merge(&self, inputs: &Inputs) -> Result<()> {
        let sources = self.sources_now();
        let tombstones = self.durable_tombstones()?;
        let mut retain = Retain::new(&self.versions, tombstones.clone());
        let mut streams: Vec<Box<dyn Source>> = Vec::new();
        for sorted in &inputs.tables {
            streams.push(Box::new(sorted.table.source(&KeyRange::all(), Direction::Forward)?));
        }
        let mut merge = Merge::new(streams, Direction::Forward)?;
        let bytes_max = (table_bytes(self.budget.bytes_max()) as u64).clamp(TABLE_BYTES_MIN, TABLE_BYTES_MAX);
        let mut writing = Writing {
            output: Output::new(self, bytes_max),
            below: sources.levels.get(inputs.target + 1..).unwrap_or_default(),
            held: None,
        };
        let mut outcome = Ok(());
        // Broken off only by an error, which is in `outcome`.
        let _ = merge.each(&mut |entry| {
            if retain.is_needed(entry.key, entry.version) {
                outcome = writing.add(entry);
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome?;
        let tables = writing.output.finish()?;
        let numbers: Vec<u64> = inputs.tables.iter().map(|sorted| sorted.of.number).collect();
        self.install((&tables, &tombstones), |sources| {
            for level in &mut sources.levels {
                level.retain(|sorted| !numbers.contains(&sorted.of.number));
            }
            let level = level_of(sources, inputs.target);
            level.extend(tables.iter().cloned());
            level.sort_by(|a, b| a.of.first_key.cmp(&b.of.first_key));
        })?;
        for number in numbers {
            // What cannot be removed is removed by the next open.
            let _ = self.disk.remove(FileName::Of(TABLE, number));
        }
        self.counters.merges.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Makes changed sources durable and publishes them. If that fails, `tables` are not needed. Of the range
    /// deletes, only those are named whose records are durable: the log has the others.
    fn install(
        &self,
        (tables, durable): (&[Arc<Sorted>], &[Arc<Tombstone>]),
        change: impl FnOnce(&mut Sources),
    ) -> Result<()> {
        let mut structure = self.structure.lock();
        let mut sources = self.sources_now();
        change(&mut sources);
        sources.tombstones = sources.needed_tombstones();
        let synced = self.log.get().map(Log::synced);
        let changed = structure.catalogue.change(|levels| {
            describe(&sources, levels);
            let is_durable = |one: &&Arc<Tombstone>| durable.iter().any(|other| Arc::ptr_eq(one, other));
            let tombstones = sources.tombstones.iter().filter(is_durable);
            levels.tombstones = tombstones.map(|tombstone| tombstone.of.clone()).collect();
            levels.log_synced = synced.map_or(levels.log_synced, |synced| (synced.sequence, synced.offset));
        });
        match changed {
            Ok(bytes) => self.counters.catalogue_bytes_written.fetch_add(bytes, Relaxed),
            Err(error) => {
                if structure.catalogue.is_unsure() {
                    self.poison(&error);
                } else {
                    for sorted in tables {
                        // As above.
                        let _ = self.disk.remove(FileName::Of(TABLE, sorted.of.number));
                    }
                }
                return Err(error);
            }
        };
        let log_first = structure.catalogue.levels().log_first;
        self.sources.replace(sources);
        drop(structure);
        if let Some(log) = self.log.get() {
            log.free_until(log_first);
        }
        // Memory tables and files of sorted ones are not to wait for the next collection.
        kvilt_sync::pin().flush();
        Ok(())
    }
}

/// Says in a catalogue what the sources are.
pub(crate) fn describe(sources: &Sources, levels: &mut Levels) {
    let of = |level: &Vec<Arc<Sorted>>| level.iter().map(|sorted| sorted.of.clone()).collect();
    levels.levels = sources.levels.iter().map(of).collect();
    levels.tombstones = sources.tombstones.iter().map(|tombstone| tombstone.of.clone()).collect();
    let log_first = sources.memories().map(|memory| memory.log_first).min();
    levels.log_first = log_first.expect("there is an active table");
}

fn level_of(sources: &mut Sources, number: usize) -> &mut Vec<Arc<Sorted>> {
    while sources.levels.len() <= number {
        sources.levels.push(Vec::new());
    }
    &mut sources.levels[number]
}

/// Tables, with those of the target level that they overlap.
fn inputs(mut tables: Vec<Arc<Sorted>>, target_level: &[Arc<Sorted>], target: usize) -> Inputs {
    let first = tables.iter().map(|sorted| &sorted.of.first_key).min().cloned().unwrap_or_default();
    let last = tables.iter().map(|sorted| &sorted.of.last_key).max().cloned().unwrap_or_default();
    let overlapping =
        target_level.iter().filter(|other| other.of.first_key <= last && other.of.last_key >= first);
    tables.extend(overlapping.cloned());
    Inputs { tables, target }
}

/// The output of a merge, without deletes that have nothing to delete below.
struct Writing<'s, 'o> {
    output: Output<'o>,
    below: &'s [Vec<Arc<Sorted>>],
    /// A delete that goes if no older entry of its key follows.
    held: Option<(Vec<u8>, Version)>,
}

impl Writing<'_, '_> {
    fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        if let Some((key, version)) = self.held.take()
            && key == entry.key
        {
            self.output.add(EntryRef { key: &key, version, kind: Kind::Tombstone, value: &[] })?;
        }
        if entry.kind == Kind::Tombstone && !self.is_below(entry.key) {
            self.held = Some((entry.key.to_vec(), entry.version));
            return Ok(());
        }
        self.output.add(entry)
    }

    /// Whether a level below may have the key.
    fn is_below(&self, key: &[u8]) -> bool {
        self.below
            .iter()
            .flatten()
            .any(|sorted| (sorted.of.first_key.as_slice()..=sorted.of.last_key.as_slice()).contains(&key))
    }
}
