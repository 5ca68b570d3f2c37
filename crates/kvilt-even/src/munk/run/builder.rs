//! `RunBuilder` and `PiecesBuilder`: runs from entries in order.

use std::sync::Arc;

use kvilt_base::{EntryRef, Error, ErrorKind, Kind, Result};

use super::{ENTRY_HEAD_BYTES, Run, TOMBSTONE_BIT, bytes_of};
use crate::growing::Growing;

/// Builds a run from entries in order.
pub(crate) struct RunBuilder {
    bytes: Growing,
    /// Bytes of its entries: some in `bytes` may have been split off.
    entry_bytes: usize,
    offsets: Vec<u32>,
}

impl RunBuilder {
    /// A builder for about this many bytes of entries; it grows when it must.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        Ok(RunBuilder { bytes: Growing::with_capacity(bytes)?, entry_bytes: 0, offsets: Vec::new() })
    }

    /// Bytes of entries with this one.
    fn len_with(&self, entry: EntryRef<'_>) -> usize {
        self.entry_bytes + bytes_of(entry)
    }

    /// Adds the next entry: by key ascending, version descending.
    pub(crate) fn push(&mut self, entry: EntryRef<'_>) -> Result<()> {
        self.entry_bytes = self.len_with(entry);
        let offset = self.bytes.push(&head_of(entry))?;
        self.bytes.push(entry.key)?;
        self.bytes.push(entry.value)?;
        let offset = u32::try_from(offset)
            .map_err(|_| Error::new(ErrorKind::LimitReached, "a munk cannot hold 4 GiB"))?;
        self.offsets.push(offset);
        Ok(())
    }

    /// Moves the entries from `position` on to `other`, which is empty.
    fn split_off(&mut self, position: usize, mut other: RunBuilder) -> Result<RunBuilder> {
        if let Some(&start) = self.offsets.get(position) {
            other.bytes.push(&self.bytes.as_slice()[start as usize..self.entry_bytes])?;
            other.offsets.extend(self.offsets.drain(position..).map(|offset| offset - start));
            other.entry_bytes = other.bytes.len();
            self.entry_bytes = start as usize;
        }
        Ok(other)
    }

    /// The run.
    pub(crate) fn finish(mut self) -> Run {
        self.offsets.shrink_to_fit();
        self.bytes.end();
        Run::of(Some(Arc::new(self.bytes)), self.entry_bytes, self.offsets)
    }
}

/// What stands before an entry's key.
pub(super) fn head_of(entry: EntryRef<'_>) -> [u8; ENTRY_HEAD_BYTES] {
    let kind_bit = match entry.kind {
        Kind::Put => 0,
        Kind::Tombstone => TOMBSTONE_BIT,
        Kind::RangeTombstone => unreachable!("range tombstones lie beside the entries, not among them"),
    };
    let mut head = [0; ENTRY_HEAD_BYTES];
    head[..4].copy_from_slice(&(entry.key.len() as u32).to_le_bytes());
    head[4..8].copy_from_slice(&(entry.value.len() as u32 | kind_bit).to_le_bytes());
    head[8..].copy_from_slice(&entry.version.to_u64().to_le_bytes());
    head
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
                self.key_start = self.open.offsets.len();
            }
            if self.key_start > 0 && self.open.len_with(entry) > self.piece_bytes {
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
