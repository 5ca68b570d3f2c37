//! `TableFile`: a sorted table of a funk, opened when first read and closed again under memory pressure.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use kvilt_base::{Charge, FileName, Result};
use kvilt_format::{names::TABLE, table::Table};
use parking_lot::Mutex;

use crate::{
    files::{Files, Hold},
    parts,
    shared_key::SharedKey,
};

/// A table by its number; its block index and filter are in memory only while they are used.
pub(crate) struct TableFile {
    number: u64,
    len: u64,
    open: Mutex<Option<(Arc<Table>, Charge)>>,
    /// Set by readers, cleared by the clock hand that looks for tables to close.
    was_read: AtomicBool,
    /// No key of it lies before the one or behind the other; none if it is of an earlier run and was not read
    /// yet.
    span: Option<(SharedKey, SharedKey)>,
    hold: Hold,
}

impl TableFile {
    /// A table of this run or an earlier one; nothing is read yet.
    pub(crate) fn new(
        files: &Files,
        number: u64,
        len: u64,
        span: Option<(Vec<u8>, Vec<u8>)>,
        hold: Hold,
    ) -> Arc<Self> {
        // Relaxed, here and where logs are written: a statistic.
        hold.store(len, Ordering::Relaxed);
        files.know(FileName::Of(TABLE, number), &hold);
        let keys = &files.long_keys;
        let span = span.map(|(first, last)| (keys.keep_low(&first), keys.keep_high(&last)));
        Arc::new(TableFile {
            span,
            number,
            len,
            open: Mutex::new(None),
            was_read: AtomicBool::new(false),
            hold,
        })
    }

    /// Whether a key of `range` may be in it.
    pub(crate) fn may_touch(&self, range: &kvilt_base::KeyRange) -> bool {
        let Some((first, last)) = &self.span else { return true };
        range.end.as_deref().is_none_or(|end| first.cmp(end).is_lt()) && last.cmp(&range.start).is_ge()
    }

    /// Whether this run of the database wrote it.
    pub(crate) fn is_of_this_run(&self) -> bool {
        self.span.is_some()
    }

    /// Its number in the directory.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its length, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The open table.
    pub(crate) fn table(&self, files: &Files) -> Result<Arc<Table>> {
        if !self.was_read.load(Ordering::Relaxed) {
            self.was_read.store(true, Ordering::Relaxed);
        }
        let mut open = self.open.lock();
        if let Some((table, _)) = &*open {
            return Ok(Arc::clone(table));
        }
        debug_assert!(Arc::strong_count(&self.hold) > 0);
        let file = files.open(FileName::Of(TABLE, self.number))?;
        let table = Table::open(file, files.identity(self.number), self.len)?
            .streaming_above(files.streamed_bytes_min);
        let table = Arc::new(table);
        let charge = files.budget.charge(parts::TABLES, table.memory_bytes() as u64);
        *open = Some((Arc::clone(&table), charge));
        Ok(table)
    }

    /// Closes it if it was not read since it was last asked.
    pub(crate) fn close_if_unread(&self) {
        if !self.was_read.swap(false, Ordering::Relaxed) {
            self.close();
        }
    }

    /// Closes it, until it is read again.
    pub(crate) fn close(&self) {
        *self.open.lock() = None;
    }
}
