//! `LargeBlock`: a block of one large value, of which no more than the beginning was read, and whose value is
//! copied from the file in pieces.
//!
//! Where it stands: a rewrite meets a block that is too large to lie in memory beside others. Always true:
//! nothing of it is verified until its value was copied to the end.

use std::sync::Arc;

use kvilt_base::{EntryRef, Kind, Result, Streamed, Version};

use super::{
    block::{ONE_RESTART_BYTES, Outline},
    reader::Table,
    stored::{self, TRAILER_BYTES},
};
use crate::{checksum::Running, coding::Malformed};

/// Key and version of a block's first entry take no more bytes, but for keys that are longer than most.
const BEGINNING_BYTES: usize = 4 << 10;

/// Read at a time, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// A block, and the only entry in it, but for the value.
#[derive(Debug)]
pub(super) struct LargeBlock {
    table: Arc<Table>,
    block: usize,
    key: Vec<u8>,
    version: Version,
    /// Bytes before the value.
    value_at: usize,
    value_len: usize,
}

impl LargeBlock {
    /// The only entry of a large block that is not packed; none if it is another one, or cannot be read so.
    pub(super) fn begin(table: &Arc<Table>, block: usize) -> Option<LargeBlock> {
        let len = table.index().stored_len(block);
        if len <= table.streamed_bytes_min() {
            return None;
        }
        let offset = table.index().offset(block);
        let mut beginning = vec![0; BEGINNING_BYTES.min(len)];
        table.read_at(offset, &mut beginning).ok()?;
        let Outline { key, version, value_len } = Outline::of(&beginning).ok()?;
        let value_at = key.end;
        let is_only = value_at + value_len + ONE_RESTART_BYTES + TRAILER_BYTES == len;
        if !is_only || value_len <= table.streamed_bytes_min() {
            return None;
        }
        let mut trailer = [0; TRAILER_BYTES];
        table.read_at(offset + (len - TRAILER_BYTES) as u64, &mut trailer).ok()?;
        let key = beginning[key].to_vec();
        stored::is_plain(&trailer).then(|| LargeBlock {
            table: Arc::clone(table),
            block,
            key,
            version,
            value_at,
            value_len,
        })
    }

    pub(super) fn entry(&self) -> EntryRef<'_> {
        EntryRef { key: &self.key, version: self.version, kind: Kind::Put, value: &[] }
    }
}

impl Streamed for LargeBlock {
    fn len(&self) -> usize {
        self.value_len
    }

    fn copy(&self, to: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (table, offset) = (&self.table, self.table.index().offset(self.block));
        let covered = self.table.index().stored_len(self.block) - TRAILER_BYTES;
        let value = self.value_at..self.value_at + self.value_len;
        let mut running = Running::new(table.id().salt(offset));
        let mut piece = vec![0; PIECE_BYTES.min(covered)];
        let mut done = 0;
        while done < covered {
            let read = &mut piece[..PIECE_BYTES.min(covered - done)];
            table.read_at(offset + done as u64, read)?;
            running.add(read);
            let within = |at: usize| at.saturating_sub(done).min(read.len());
            let of_value = &read[within(value.start)..within(value.end)];
            done += read.len();
            if !of_value.is_empty() {
                to(of_value)?;
            }
        }
        let mut trailer = [0; TRAILER_BYTES];
        table.read_at(offset + covered as u64, &mut trailer)?;
        if !stored::is_end_of_plain(&trailer, running) {
            return Err(table.corrupted(self.block, Malformed("a block's checksum differs")));
        }
        Ok(())
    }
}
