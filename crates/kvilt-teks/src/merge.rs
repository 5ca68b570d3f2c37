//! Merging: a level that is full is merged into the level below.
//!
//! One merge at a time, beside flushes. Readers go on with the sources that they have; writers wait only if
//! level 0 grows faster than it is merged.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::Ordering::{self, Relaxed},
    },
};

use kvilt_base::{Direction, EntryRef, ErrorKind, KeyRange, Kind, Merge, Result, Source, Version, planted};
use kvilt_format::levels::LEVELS_MAX;

use crate::{
    output::Output,
    retain::Retain,
    room::is_below,
    run::Run,
    sources::{Sorted, level_of},
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
    /// Of the level that is full, newest first.
    upper: Vec<Arc<Sorted>>,
    /// Those of the target level that they overlap, by key.
    lower: Vec<Arc<Sorted>>,
    target: usize,
}

impl Store {
    /// Merges a level, if one is full. Whether there may be more to do.
    ///
    /// Errors: `NoSpace`, `Io`, `Corrupted`: then nothing has changed. `Poisoned`.
    pub(crate) fn merge(&self) -> Result<bool> {
        let _merging = self.merging.lock();
        self.ensure_healthy()?;
        if self.with_room(|| self.drop_deleted())? {
            return Ok(true);
        }
        let merged = match self.full_level() {
            Some(inputs) => self.with_room(|| self.merge_tables(&inputs)),
            None => Ok(false),
        };
        let is_wanted = match &merged {
            Ok(has_merged) => !has_merged && self.is_short(),
            Err(error) => error.kind() == ErrorKind::NoSpace,
        };
        let mut has_thinned = false;
        while is_wanted && self.with_room(|| self.thin())? {
            has_thinned = true;
        }
        if has_thinned { Ok(true) } else { merged }
    }

    /// What is to be merged first.
    fn full_level(&self) -> Option<Inputs> {
        let sources = self.sources_now();
        let level = |number: usize| sources.levels.get(number).map_or(&[][..], Vec::as_slice);
        if level(0).len() >= LEVEL_0_TABLES {
            return Some(Inputs::new(level(0).to_vec(), level(1), 1));
        }
        let mut bytes_max = self.table_bytes() as u64 * LEVEL_1_TABLES;
        for number in 1..LEVELS_MAX - 1 {
            let bytes: u64 = level(number).iter().map(|sorted| sorted.of.len).sum();
            if bytes > bytes_max {
                // The oldest: files are numbered as they are made.
                let oldest = level(number).iter().min_by_key(|sorted| sorted.of.number)?;
                return Some(Inputs::new(vec![Arc::clone(oldest)], level(number + 1), number + 1));
            }
            bytes_max = bytes_max.saturating_mul(LEVEL_GROWTH);
        }
        None
    }

    fn merge_tables(&self, inputs: &Inputs) -> Result<bool> {
        // Not all sources: memory tables that are let go of meanwhile are not to wait for the end.
        let mut below = self.sources_now().levels;
        below.drain(..below.len().min(inputs.target + 1));
        let tombstones = self.durable_tombstones()?;
        let mut retain = Retain::new(&self.versions, &tombstones);
        let all = KeyRange::all();
        let mut streams: Vec<Box<dyn Source>> = Vec::new();
        for sorted in &inputs.upper {
            streams.push(Box::new(sorted.table.source(&all, Direction::Forward)?));
        }
        streams.push(Box::new(Run::new(&inputs.lower, u64::MAX, &all, Direction::Forward)?));
        let mut merge = Merge::new(streams, Direction::Forward)?;
        let bytes_max = (self.table_bytes() as u64).clamp(TABLE_BYTES_MIN, TABLE_BYTES_MAX);
        let memory_min = inputs.tables().map(|sorted| sorted.memory_min).min().unwrap_or(0);
        let mut writing = Writing::new(Output::new(self, bytes_max, memory_min), &below);
        let mut outcome = Ok(());
        let flow = merge.each(&mut |entry| {
            if retain.is_needed(entry.key, entry.version) {
                outcome = writing.add(entry);
            }
            // A store that is closed does not wait for the end of a merge. What was written is removed.
            let is_broken = outcome.is_err() || self.is_closed.load(Ordering::Relaxed);
            if is_broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        outcome?;
        if flow.is_break() {
            return Ok(false);
        }
        let tables = writing.output.finish()?;
        let numbers: Vec<u64> = inputs.tables().map(|sorted| sorted.of.number).collect();
        planted!(InputsRemovedEarly => self.remove_tables(&numbers));
        self.install(&tables, &|sources| {
            for level in &mut sources.levels {
                level.retain(|sorted| !numbers.contains(&sorted.of.number));
            }
            let level = level_of(sources, inputs.target);
            level.extend(tables.iter().cloned());
            level.sort_by(|a, b| a.of.first_key.cmp(&b.of.first_key));
        })?;
        self.remove_tables(&numbers);
        self.counters.merges.fetch_add(1, Relaxed);
        Ok(true)
    }
}

impl Inputs {
    /// Tables, with those of the target level that they overlap.
    fn new(upper: Vec<Arc<Sorted>>, target_level: &[Arc<Sorted>], target: usize) -> Self {
        let first = upper.iter().map(|sorted| &sorted.of.first_key).min().cloned().unwrap_or_default();
        let last = upper.iter().map(|sorted| &sorted.of.last_key).max().cloned().unwrap_or_default();
        let overlapping =
            target_level.iter().filter(|other| other.of.first_key <= last && other.of.last_key >= first);
        Inputs { upper, lower: overlapping.cloned().collect(), target }
    }

    fn tables(&self) -> impl Iterator<Item = &Arc<Sorted>> {
        self.upper.iter().chain(&self.lower)
    }
}

/// The output of a merge, without deletes that have nothing to delete below.
pub(crate) struct Writing<'s, 'o> {
    pub(crate) output: Output<'o>,
    below: &'s [Vec<Arc<Sorted>>],
    /// A delete that goes if no older entry of its key follows.
    held: Option<(Vec<u8>, Version)>,
}

impl<'s, 'o> Writing<'s, 'o> {
    /// Above these levels.
    pub(crate) fn new(output: Output<'o>, below: &'s [Vec<Arc<Sorted>>]) -> Self {
        Writing { output, below, held: None }
    }

    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        if let Some((key, version)) = self.held.take()
            && key == entry.key
            && planted!(HeldDeleteDropped, true => false)
        {
            self.output.add(EntryRef { key: &key, version, kind: Kind::Tombstone, value: &[] })?;
        }
        if entry.kind == Kind::Tombstone && !is_below(self.below, entry.key) {
            self.held = Some((entry.key.to_vec(), entry.version));
            return Ok(());
        }
        self.output.add(entry)
    }
}
