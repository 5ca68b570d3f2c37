//! `Sources`: where rows are, newest first: the active memory table, sealed ones, cached ones, sorted tables
//! by level.
//!
//! What is always true: of one key, what an earlier source has is as new or newer than what a later one has.
//! A value of this is never changed; a change publishes another one.

use std::{io, ops::Range, sync::Arc};

use kvilt_base::{
    Budget, Charge, Direction, Disk, Error, File, FileName, KeyRange, Result, Source, Version, planted,
};
use kvilt_format::{FileIdentity, levels::TableOf, names::TABLE, table::Table};
use kvilt_sync::{
    Versions,
    teks::{Readers, TeksTable},
    tombstones::Tombstones,
};
use parking_lot::Mutex;

use crate::{parts, run::Run};

/// See the module.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) active: Arc<Memory>,
    /// Those that are not flushed, newest first.
    pub(crate) sealed: Vec<Arc<Memory>>,
    /// Those that were flushed last and are still read, newest first.
    pub(crate) cached: Vec<Arc<Memory>>,
    /// Level 0 newest first, the others by key.
    pub(crate) levels: Vec<Vec<Arc<Sorted>>>,
    pub(crate) tombstones: Arc<Tombstones>,
}

/// A memory table.
pub(crate) struct Memory {
    pub(crate) table: TeksTable,
    /// Rises from table to table; the first has 1.
    pub(crate) number: u64,
    /// The first segment of the redo log with records of its rows.
    pub(crate) log_first: u64,
    /// No row of it has a lower version.
    pub(crate) version_min: Version,
    charge: Mutex<Charge>,
}

/// A sorted table.
pub(crate) struct Sorted {
    pub(crate) of: TableOf,
    pub(crate) table: Arc<Table>,
    /// The oldest memory table with rows of it; 0 if they are of an earlier run.
    pub(crate) memory_min: u64,
    _charge: Charge,
}

impl Memory {
    pub(crate) fn new(
        table: TeksTable,
        number: u64,
        (log_first, version_min): (u64, Version),
        budget: &Arc<Budget>,
    ) -> Self {
        let charge = Mutex::new(budget.charge(parts::TABLES, table.memory_bytes() as u64));
        Memory { table, number, log_first, version_min, charge }
    }

    /// Charges what it uses now.
    pub(crate) fn charge(&self) {
        self.charge.lock().set(self.table.memory_bytes() as u64);
    }

    /// Bytes that are charged.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.charge.lock().bytes()
    }
}

impl Sorted {
    pub(crate) fn new(of: TableOf, table: Arc<Table>, memory_min: u64, budget: &Arc<Budget>) -> Self {
        let charge = budget.charge(parts::INDEXES, table.memory_bytes() as u64);
        Sorted { of, table, memory_min, _charge: charge }
    }

    /// Whether its keys may meet the range.
    pub(crate) fn meets(&self, range: &KeyRange) -> bool {
        self.of.last_key >= range.start && range.end.as_ref().is_none_or(|end| self.of.first_key < *end)
    }
}

impl Sources {
    /// Memory tables, newest first.
    pub(crate) fn memories(&self) -> impl Iterator<Item = &Arc<Memory>> {
        self.unflushed().chain(&self.cached)
    }

    /// Memory tables with rows that only the redo log has beside them, newest first.
    pub(crate) fn unflushed(&self) -> impl Iterator<Item = &Arc<Memory>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// All sorted tables.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = &Arc<Sorted>> {
        self.levels.iter().flatten()
    }

    /// The streams of the sorted tables that readers need and that may have keys of a range, newest first.
    pub(crate) fn push_sorted<'s>(
        &'s self,
        range: &'s KeyRange,
        direction: Direction,
        streams: &mut Vec<Box<dyn Source + 's>>,
    ) -> Result<()> {
        let memory_end = self.memory_end();
        let (level_0, others) = self.levels.split_at(self.levels.len().min(1));
        let is_read = |sorted: &&Arc<Sorted>| sorted.meets(range) && sorted.memory_min < memory_end;
        for sorted in level_0.iter().flatten().filter(is_read) {
            streams.push(Box::new(sorted.table.source(range, direction)?));
        }
        for level in others {
            streams.push(Box::new(Run::new(level, memory_end, range, direction)?));
        }
        Ok(())
    }

    /// The sorted tables that readers need and that may have a key, newest first.
    pub(crate) fn sorted_with<'s>(&'s self, key: &'s [u8]) -> impl Iterator<Item = &'s Arc<Sorted>> {
        let memory_end = self.memory_end();
        let level_0 = self.levels.iter().take(1).flatten();
        let others = self.levels.iter().skip(1).filter_map(move |tables| {
            tables.get(tables.partition_point(|sorted| sorted.of.last_key.as_slice() < key))
        });
        level_0.chain(others).filter(move |sorted| {
            (sorted.of.first_key.as_slice()..=sorted.of.last_key.as_slice()).contains(&key)
                && sorted.memory_min < memory_end
        })
    }

    /// The number of the oldest memory table. They follow each other without a gap, so together they have all
    /// that a sorted table has whose oldest rows are of this one or a later one.
    fn memory_end(&self) -> u64 {
        let oldest = self.cached.last().or(self.sealed.last()).unwrap_or(&self.active);
        oldest.number - planted!(SortedPassedOver, 0 => 1)
    }

    /// Of these range deletes, those that may still hide something.
    pub(crate) fn needed(&self, tombstones: &Arc<Tombstones>) -> Arc<Tombstones> {
        let oldest = self.memories().map(|memory| memory.version_min).min().unwrap_or_default();
        let hides = |range: &KeyRange, version: Version| {
            let hides_of = |sorted: &Arc<Sorted>| sorted.of.version_min < version && sorted.meets(range);
            oldest < version || self.sorted().any(hides_of)
        };
        if tombstones.pieces().iter().all(|piece| hides(&piece.range, piece.version)) {
            return Arc::clone(tombstones);
        }
        Arc::new(tombstones.retained(hides))
    }

    /// Lets go of the cached tables that were flushed first while memory tables and `others` use more than
    /// `bytes_max` bytes.
    pub(crate) fn shrink(&mut self, others: u64, bytes_max: u64) {
        let of_tables: u64 = self.memories().map(|memory| memory.memory_bytes()).sum();
        let mut bytes = of_tables.saturating_add(others);
        while bytes > bytes_max
            && let Some(oldest) = planted!(NewestCachedEvicted, self.cached.pop() => (!self.cached.is_empty()).then(|| self.cached.remove(0)))
        {
            bytes -= oldest.memory_bytes();
        }
    }
}

/// Opens a file that has rows.
///
/// Errors: `Corrupted` if it is not there, or is no file; `Io`.
pub(crate) fn open_needed(disk: &dyn Disk, name: FileName) -> Result<Arc<dyn File>> {
    disk.open(name).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::corrupted(name, 0, "the file is missing, and rows are in it"),
        io::ErrorKind::InvalidData => Error::corrupted(name, 0, e.to_string()),
        _ => Error::io("open a file", e).in_file(name),
    })
}

/// Opens a sorted table that a catalogue names.
///
/// Errors: `Corrupted`, also if it is missing; `Io`.
pub(crate) fn open_table(disk: &dyn Disk, store_id: u64, of: &TableOf) -> Result<Arc<Table>> {
    let file = open_needed(disk, FileName::Of(TABLE, of.number))?;
    Ok(Arc::new(Table::open(file, FileIdentity { store_id, number: of.number }, of.len)?))
}

/// A level, which may be new.
pub(crate) fn level_of(sources: &mut Sources, number: usize) -> &mut Vec<Arc<Sorted>> {
    while sources.levels.len() <= number {
        sources.levels.push(Vec::new());
    }
    &mut sources.levels[number]
}

/// The readers of a store, for its memory tables.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'v>(pub(crate) &'v Versions);

impl Readers for Seen<'_> {
    fn is_viewed(&self, versions: Range<Version>) -> bool {
        self.0.is_viewed(versions)
    }

    fn is_in_flight(&self, batch: u64) -> bool {
        self.0.is_in_flight(batch)
    }
}
