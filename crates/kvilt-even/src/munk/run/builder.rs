//! `RunBuilder` and `PiecesBuilder`: runs from entries in order.

use kvilt_base::{EntryRef, Result};
use kvilt_sync::rows::RowsBuilder;

use super::{Older, Run, bytes_of};
use crate::key_hash::key_hash;

/// Builds a run from entries in order.
pub(crate) struct RunBuilder {
    rows: RowsBuilder,
    /// Of all keys but the last, and of the last.
    older: Older,
    older_of_last: Older,
}

impl RunBuilder {
    /// A builder for about this many bytes of entries; it grows when it must.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let older = Older::default();
        Ok(RunBuilder { rows: RowsBuilder::new(bytes)?, older, older_of_last: older })
    }

    /// Bytes of its entries with this one.
    pub(crate) fn bytes_with(&self, entry: EntryRef<'_>) -> usize {
        self.rows.bytes() + bytes_of(entry)
    }

    /// Adds the next entry: by key ascending, version descending.
    pub(crate) fn push(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let newer = self.rows.last().filter(|last| last.key == entry.key).map(|last| last.version);
        match newer {
            Some(newer) => {
                self.older_of_last.add(entry, newer);
                self.rows.push(entry, None)
            }
            None => {
                self.older = self.older.and(std::mem::take(&mut self.older_of_last));
                self.rows.push(entry, Some(key_hash(entry.key)))
            }
        }
    }

    /// Moves the entries from `position` on, which are all that the last key has, or none, to `other`, which
    /// is empty.
    fn split_off(&mut self, position: usize, mut other: RunBuilder) -> Result<RunBuilder> {
        if position < self.rows.len() {
            other.older_of_last = std::mem::take(&mut self.older_of_last);
        }
        other.rows = self.rows.split_off(position, other.rows)?;
        Ok(other)
    }

    /// The run.
    pub(crate) fn finish(self) -> Run {
        Run::of(self.rows.finish(), self.older.and(self.older_of_last))
    }
}

/// Builds runs of about equal size from entries in order, with all versions of a key in one of them.
pub(crate) struct PiecesBuilder {
    open: RunBuilder,
    done: Vec<Run>,
    /// How many runs there may be.
    count: usize,
    piece_bytes: usize,
    /// The key of the last entry, and where in the open run its first entry is.
    last_key: Vec<u8>,
    key_start: usize,
}

impl PiecesBuilder {
    /// For `count` runs from about this many bytes of entries.
    pub(crate) fn new(bytes: usize, count: usize) -> Result<Self> {
        let piece_bytes = bytes / count + 1;
        let (open, done) = (Self::piece(piece_bytes)?, Vec::with_capacity(count));
        Ok(PiecesBuilder { open, done, count, piece_bytes, last_key: Vec::new(), key_start: 0 })
    }

    /// A builder for one piece, with room for what the last one is longer: to grow is to copy.
    fn piece(bytes: usize) -> Result<RunBuilder> {
        RunBuilder::new(bytes + bytes / 8)
    }

    /// Adds the next entry: by key ascending, version descending.
    pub(crate) fn push(&mut self, entry: EntryRef<'_>) -> Result<()> {
        // What each run lacks goes to the last one, which is not cut: it would leave a row or two over.
        if self.done.len() + 1 < self.count {
            if entry.key != self.last_key {
                entry.key.clone_into(&mut self.last_key);
                self.key_start = self.open.rows.len();
            }
            if self.key_start > 0 && self.open.bytes_with(entry) > self.piece_bytes {
                let next = self.open.split_off(self.key_start, Self::piece(self.piece_bytes)?)?;
                self.done.push(std::mem::replace(&mut self.open, next).finish());
                self.key_start = 0;
            }
        }
        self.open.push(entry)
    }

    /// The runs: as many as it was made for, unless there were far fewer bytes or fewer keys; one at least.
    pub(crate) fn finish(mut self) -> Vec<Run> {
        self.done.push(self.open.finish());
        self.done
    }
}
