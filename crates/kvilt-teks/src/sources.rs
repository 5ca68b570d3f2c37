//! `Sources`: where rows are, newest first: the active memory table, sealed ones, sorted tables by level.
//!
//! What is always true: of one key, what an earlier source has is as new or newer than what a later one has.
//! A value of this is never changed; a change publishes another one.

use std::{ops::Range, sync::Arc};

use kvilt_base::{Budget, Charge, Hiding, KeyRange, RangeTombstone, Version};
use kvilt_format::{levels::TableOf, table::Table};
use kvilt_sync::{
    Versions,
    teks::{Readers, TeksOptions, TeksTable},
};
use parking_lot::Mutex;

use crate::parts;

/// See the module.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) active: Arc<Memory>,
    /// Newest first.
    pub(crate) sealed: Vec<Arc<Memory>>,
    /// Level 0 newest first, the others by key.
    pub(crate) levels: Vec<Vec<Arc<Sorted>>>,
    /// Oldest first.
    pub(crate) tombstones: Vec<Arc<Tombstone>>,
}

/// A memory table.
pub(crate) struct Memory {
    pub(crate) table: TeksTable,
    /// Rises from table to table.
    pub(crate) number: u64,
    /// The first segment of the redo log with records of its rows.
    pub(crate) log_first: u64,
    charge: Mutex<Charge>,
}

/// A sorted table.
pub(crate) struct Sorted {
    pub(crate) of: TableOf,
    pub(crate) table: Arc<Table>,
    _charge: Charge,
}

/// A range delete.
pub(crate) struct Tombstone {
    pub(crate) of: RangeTombstone,
    /// The newest memory table when it was made: later ones have nothing that it hides.
    pub(crate) memory: u64,
}

impl Memory {
    pub(crate) fn new(
        options: &TeksOptions,
        number: u64,
        log_first: u64,
        budget: &Arc<Budget>,
    ) -> std::io::Result<Self> {
        let table = TeksTable::new(options)?;
        let charge = Mutex::new(budget.charge(parts::TABLES, table.memory_bytes() as u64));
        Ok(Memory { table, number, log_first, charge })
    }

    /// Charges what it uses now.
    pub(crate) fn charge(&self) {
        let (mut charge, bytes) = (self.charge.lock(), self.table.memory_bytes() as u64);
        let before = charge.bytes();
        if bytes > before {
            charge.grow(bytes - before);
        } else {
            charge.shrink(before - bytes);
        }
    }

    /// Bytes that are charged.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.charge.lock().bytes()
    }
}

impl Sorted {
    pub(crate) fn new(of: TableOf, table: Arc<Table>, budget: &Arc<Budget>) -> Self {
        let charge = budget.charge(parts::INDEXES, table.memory_bytes() as u64);
        Sorted { of, table, _charge: charge }
    }

    /// Whether its keys may meet the range.
    pub(crate) fn meets(&self, range: &KeyRange) -> bool {
        self.of.last_key >= range.start && range.end.as_ref().is_none_or(|end| self.of.first_key < *end)
    }
}

impl Sources {
    /// Memory tables, newest first.
    pub(crate) fn memories(&self) -> impl Iterator<Item = &Arc<Memory>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// All sorted tables.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = &Arc<Sorted>> {
        self.levels.iter().flatten()
    }

    /// The sorted tables that may have a key, newest first.
    pub(crate) fn with_key<'s>(&'s self, key: &'s [u8]) -> impl Iterator<Item = &'s Arc<Sorted>> {
        let level_0 = self.levels.iter().take(1).flatten();
        let others = self.levels.iter().skip(1).filter_map(move |tables| {
            tables.get(tables.partition_point(|sorted| sorted.of.last_key.as_slice() < key))
        });
        level_0.chain(others).filter(move |sorted| {
            (sorted.of.first_key.as_slice()..=sorted.of.last_key.as_slice()).contains(&key)
        })
    }

    /// The range deletes that may still hide something.
    pub(crate) fn needed_tombstones(&self) -> Vec<Arc<Tombstone>> {
        let oldest_memory = self.memories().map(|memory| memory.number).min().unwrap_or(0);
        let hides = |tombstone: &Arc<Tombstone>| {
            tombstone.memory >= oldest_memory
                || self.sorted().any(|sorted| {
                    sorted.of.version_min < tombstone.of.version && sorted.meets(&tombstone.of.range)
                })
        };
        self.tombstones.iter().filter(|tombstone| hides(tombstone)).cloned().collect()
    }
}

/// Whether a range delete hides an entry.
pub(crate) struct Hidden<'t>(pub(crate) &'t [Arc<Tombstone>]);

impl Hiding for Hidden<'_> {
    fn hides(&mut self, key: &[u8], written: Version, view: Version) -> bool {
        self.0.iter().any(|tombstone| tombstone.of.hides(key, written, view))
    }
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
