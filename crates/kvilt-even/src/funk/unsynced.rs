//! `UnsyncedTables`: tables that were written since the last checkpoint, which the next one syncs
//! (docs/design/0063-tables-are-synced-by-checkpoints.md).
//!
//! Always true: a table is added before any chunk has it, and a checkpoint takes the list with its cut, so
//! that the manifest names no table that was not synced (E-21).

use std::sync::{Arc, Weak};

use kvilt_base::{File, FileName, Result, planted};
use kvilt_format::names::TABLE;
use parking_lot::Mutex;

use super::{log::sync_failed, table_file::TableFile};

/// As many tables may be in the list before those that no chunk has any more are looked for: a checkpoint
/// that fails on a full disk leaves them there.
const LOOKED_THROUGH_AT: usize = 64;

/// Tables that no checkpoint has synced yet.
#[derive(Default)]
pub(crate) struct UnsyncedTables {
    list: Mutex<Vec<UnsyncedTable>>,
}

/// One of them.
pub(crate) struct UnsyncedTable {
    /// A table that was replaced meanwhile need not be synced: no checkpoint names it.
    table: Weak<TableFile>,
    file: Arc<dyn File>,
}

impl UnsyncedTables {
    /// Adds a table, which was written to `file`.
    pub(crate) fn add(&self, table: &Arc<TableFile>, file: Arc<dyn File>) {
        planted!(TableNotSynced => return);
        let mut list = self.list.lock();
        if list.len() >= LOOKED_THROUGH_AT {
            list.retain(|unsynced| unsynced.table.strong_count() > 0);
        }
        list.push(UnsyncedTable { table: Arc::downgrade(table), file });
    }

    /// All of them, for a checkpoint.
    pub(crate) fn take(&self) -> Vec<UnsyncedTable> {
        std::mem::take(&mut *self.list.lock())
    }

    /// Those of a checkpoint that failed.
    pub(crate) fn take_back(&self, tables: Vec<UnsyncedTable>) {
        self.list.lock().extend(tables);
    }
}

/// Syncs all that a chunk still has.
///
/// Errors: `Poisoned`.
pub(crate) fn sync_tables(tables: &[UnsyncedTable]) -> Result<()> {
    let in_use = tables.iter().filter_map(|unsynced| Some((unsynced.table.upgrade()?, &unsynced.file)));
    for (table, file) in in_use {
        file.sync().map_err(|error| sync_failed(error, FileName::Of(TABLE, table.number())))?;
    }
    Ok(())
}
