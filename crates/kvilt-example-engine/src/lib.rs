//! An engine as a third party would write it: a sorted map in memory and a journal on disk, on `kvilt-base`
//! alone. It shows that the seams are enough, and is the shortest example of what an engine implements.
//!
//! Everything lies in memory; every write goes to the journal before it is seen; an open reads the journal
//! and begins a new one. No repair, and damage below what was synced is found only in the journal's first
//! record: behind it, it looks like the torn end that a crash leaves. Views do not expire. For real data, use
//! `even`.
//!
//! | file | what |
//! | --- | --- |
//! | `lib` | the descriptor: what is known before a store is open |
//! | `journal` | records with checksums in one file; which file counts after a crash |
//! | `rows` | the map: versions of each key, as far as a view needs them |
//! | `store` | the engine: writes in order, views, the worker that syncs |
//!
//! What is always true: writes enter the journal and the map in the same order, one at a time; a reader waits
//! for no disk.
#![forbid(unsafe_code)]

mod journal;
mod rows;
mod store;

use std::{any::Any, sync::Arc};

use kvilt_base::{
    Capabilities, Descriptor, Disk, Engine, Error, FileName, Level, Listed, Part, Recognised, Remainder,
    RepairReport, Result, Salvaged, Settings, World, disk::FileKind,
};

pub use journal::JOURNAL;

/// The engine's name.
pub const NAME: &str = "journal";
/// The kinds of its files.
pub const KINDS: &[FileKind] = &[JOURNAL];

/// What the budget is used for, in a slot of its own.
const ROWS: Part = Part::new(15, "rows");

/// The engine, with its one setting.
#[derive(Clone, Debug)]
pub struct JournalEngine {
    /// Bytes of a journal, beside twice those of the rows, from which on a sync begins a new one.
    pub journal_bytes_slack: u64,
}

impl Default for JournalEngine {
    fn default() -> Self {
        JournalEngine { journal_bytes_slack: 1 << 20 }
    }
}

impl Descriptor for JournalEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parts(&self) -> &'static [Part] {
        &[ROWS]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            levels: &[Level::Async, Level::Sync],
            after_power_cut: Remainder::Prefix,
            has_read_only: true,
            has_repair: false,
        }
    }

    fn validate(&self, settings: &Settings, _budget_bytes: u64) -> Result<()> {
        settings.validate()?;
        self.capabilities().allow(NAME, settings)
    }

    fn recognise(&self, listed: &[Listed]) -> Recognised {
        let is_journal = |item: &Listed| matches!(item, Listed::Ours(FileName::Of(JOURNAL, _)));
        if listed.iter().any(is_journal) { Recognised::Store } else { Recognised::Nothing }
    }

    fn open(&self, disk: Arc<dyn Disk>, world: World, settings: &Settings) -> Result<Arc<dyn Engine>> {
        self.validate(settings, world.budget.bytes_max())?;
        Ok(store::Store::open(disk, &world, settings, self.journal_bytes_slack)?)
    }

    fn lock_to_salvage(&self, _disk: &dyn Disk) -> Result<Box<dyn Any + Send + Sync>> {
        Err(no_repair())
    }

    fn salvage(
        &self,
        _disk: &dyn Disk,
        _save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Result<RepairReport> {
        Err(no_repair())
    }
}

fn no_repair() -> Error {
    Error::invalid(format!("engine `{NAME}` has no repair"))
}
