//! `LogRows`: the rows of a log in key order with their values, for who needs all of them: a rewrite or a load.
//!
//! One pass over the file beats many small reads.

use std::{ops::Range, vec};

use kvilt_base::{EntryRef, KeyRange, Kind, Result, Source};

use super::{
    log::{ChunkLog, ROTATE_BYTES},
    row::{self, Row},
};
use crate::{files::Files, growing::Growing};

/// Walks the rows of a log forward: by key ascending, version descending, newest record first.
pub(crate) struct LogRows {
    bytes: Growing,
    current: Option<Row>,
    remaining: vec::IntoIter<Row>,
}

impl LogRows {
    /// The rows of `range` at `place` in `log`; range tombstones are left out.
    /// A log that siblings share may be many times as long as what one of them has in it.
    pub(crate) fn read(log: &ChunkLog, files: &Files, place: Range<u64>, range: &KeyRange) -> Result<Self> {
        // Growing by halves would take half as much again.
        let mut bytes = Growing::with_capacity_at_most((place.end - place.start).min(ROTATE_BYTES) as usize)?;
        let mut rows = Vec::new();
        log.for_each(files, place.start, place.end, &mut |_offset, entry, _batch| {
            if entry.kind != Kind::RangeTombstone && range.contains(entry.key) {
                let key = bytes.push(entry.key)?;
                let value = bytes.push(entry.value)?;
                rows.push(Row::new(rows.len(), &entry, key, value));
            }
            Ok(())
        })?;
        row::sort(&mut rows, bytes.as_slice());
        let mut remaining = rows.into_iter();
        Ok(LogRows { bytes, current: remaining.next(), remaining })
    }
}

impl Source for LogRows {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.current.as_ref().map(|row| row.entry(self.bytes.as_slice()))
    }

    fn advance(&mut self) -> Result<()> {
        self.current = self.remaining.next();
        Ok(())
    }
}
