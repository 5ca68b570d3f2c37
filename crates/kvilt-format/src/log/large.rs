//! `LargeRecord`: a record of which no more than the beginning was read, and whose value is copied from the
//! file in pieces.
//!
//! Where it stands: a rewrite meets a record that is too large to lie in memory beside others. Always true:
//! nothing of it is verified until its value was copied to the end.

use std::sync::Arc;

use kvilt_base::{EntryRef, Error, File, FileName, Result, Streamed, Version, planted};

use super::{CHECKSUM_BYTES, Frame, PIECE_BYTES, RecordHead, decode_frame};
use crate::{FileIdentity, checksum::Running, names::LOG};

/// Where a record lies, and what it says of itself.
#[derive(Clone, Debug)]
pub struct LargeRecord {
    file: Arc<dyn File>,
    id: FileIdentity,
    offset: u64,
    head: RecordHead,
}

impl LargeRecord {
    /// The record at `offset` of the log, whose first `bytes` were read, and its entry without the value;
    /// none if that has no more than `streamed_bytes_min` bytes, or if these are too few to tell.
    pub fn begin<'b>(
        (file, id, base): (&Arc<dyn File>, FileIdentity, Version),
        offset: u64,
        bytes: &'b [u8],
        streamed_bytes_min: usize,
    ) -> Option<(LargeRecord, EntryRef<'b>)> {
        let Ok(Frame::Entry(head)) = decode_frame(bytes, base) else { return None };
        if head.value_len <= streamed_bytes_min || bytes.len() < head.head_len + head.key_len {
            return None;
        }
        let large = LargeRecord { file: Arc::clone(file), id, offset, head };
        let entry = large.entry(bytes);
        Some((large, entry))
    }

    /// Its entry, but for the value, in the bytes that it begins with.
    pub fn entry<'b>(&self, bytes: &'b [u8]) -> EntryRef<'b> {
        let RecordHead { head_len, key_len, version, kind, .. } = self.head;
        EntryRef { key: &bytes[head_len..head_len + key_len], version, kind, value: &[] }
    }

    /// Bytes of the record.
    pub fn record_len(&self) -> usize {
        self.head.record_len()
    }

    /// Reads all of it, and keeps nothing.
    pub fn verify(&self) -> Result<()> {
        self.copy(&mut |_| Ok(()))
    }
}

impl Streamed for LargeRecord {
    fn len(&self) -> usize {
        self.head.value_len
    }

    fn copy(&self, to: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let name = FileName::Of(LOG, self.id.number);
        let (len, value_at) = (self.record_len(), self.head.head_len + self.head.key_len);
        let mut running = Running::new(self.id.salt(self.offset));
        let mut expected = [0; CHECKSUM_BYTES];
        let mut piece = vec![0; PIECE_BYTES.min(len)];
        let mut done = 0;
        while done < len {
            let read = &mut piece[..PIECE_BYTES.min(len - done)];
            self.file
                .read_exact_at(self.offset + done as u64, read)
                .map_err(|e| Error::io("read a log record", e).at(name, self.offset))?;
            if done == 0 {
                expected.copy_from_slice(&read[..CHECKSUM_BYTES]);
            }
            running.add(&read[CHECKSUM_BYTES.saturating_sub(done)..]);
            let value = &read[value_at.saturating_sub(done).min(read.len())..];
            done += read.len();
            if !value.is_empty() {
                to(value)?;
            }
        }
        planted!(ChecksumIgnored => return Ok(()));
        if running.finish().to_le_bytes() != expected {
            return Err(Error::corrupted(name, self.offset, "a record's checksum differs"));
        }
        Ok(())
    }
}
