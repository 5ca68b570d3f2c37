//! Reads one commit log.
//!
//! Where it stands: an open reads every commit log that the manifest does not call obsolete. Always true:
//! records come in order, and the end is where the first one is not good, unless a mark stands behind: then
//! it is an error.

use std::sync::Arc;

use kvilt_base::{Error, File, FileName, Result};

use super::{Changes, HEADER_BYTES, RECORD_HEAD_BYTES};
use crate::{FileIdentity, checksum::checksum, coding::Decoder, header, names::COMMIT, record};

/// How much a reader fetches at a time.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// Reads a commit log from its first record to the first one that is not good. One thread at a time.
#[derive(Debug)]
pub struct CommitReader {
    file: Arc<dyn File>,
    id: FileIdentity,
    file_len: u64,
    batches_before: Option<u64>,
    buffer: Vec<u8>,
    buffer_offset: u64,
    /// Where the next record starts, in the buffer.
    next: usize,
    is_torn: bool,
    is_at_end: bool,
}

impl CommitReader {
    /// Opens a commit log and looks at its header. Without a good one, and without a mark, nothing in the
    /// file was ever synced: it reads as empty, and torn.
    ///
    /// Errors: `Corrupted` if the header is bad and a mark stands behind it, or is that of another file;
    /// `UnsupportedVersion`, `Io`.
    pub fn open(file: Arc<dyn File>, id: FileIdentity) -> Result<CommitReader> {
        let name = FileName::Of(COMMIT, id.number);
        let file_len = file.len().map_err(|e| Error::io("ask for a commit log's length", e).in_file(name))?;
        let mut reader = CommitReader {
            file,
            id,
            file_len,
            batches_before: None,
            buffer: Vec::new(),
            buffer_offset: 0,
            next: 0,
            is_torn: false,
            is_at_end: false,
        };
        reader.fill(HEADER_BYTES)?;
        match header::decode_of(&reader.buffer, header::COMMIT_MAGIC, name, id) {
            Ok(header) => {
                reader.batches_before = Some(header.by_kind);
                reader.next = HEADER_BYTES;
            }
            Err(e) if header::is_whole(&reader.buffer) || reader.has_mark_from(HEADER_BYTES as u64)? => {
                return Err(e);
            }
            Err(_) => {
                reader.is_torn = true;
                reader.is_at_end = true;
            }
        }
        Ok(reader)
    }

    /// How many batches lie before this file's in the chain; none if it has no good header.
    pub fn batches_before(&self) -> Option<u64> {
        self.batches_before
    }

    /// The next record's offset and its changes; none at the end.
    ///
    /// Errors: `Corrupted` for a record that is not good and lies before a mark, and for one whose checksum
    /// is right and whose content is not; `Io`.
    #[expect(
        clippy::should_implement_trait,
        reason = "changes borrow from the reader, which Iterator cannot say"
    )]
    pub fn next(&mut self) -> Result<Option<(u64, Changes<'_>)>> {
        let Some(body_len) = self.skip_to_batch()? else { return Ok(None) };
        let offset = self.offset();
        let start = self.next + RECORD_HEAD_BYTES;
        self.next = start + body_len;
        let changes = Changes::decode(Decoder::new(&self.buffer[start..self.next]))
            .map_err(|what| Error::corrupted(FileName::Of(COMMIT, self.id.number), offset, what.0))?;
        Ok(Some((offset, changes)))
    }

    /// Whether the log ended at something that is neither a good record nor nothing but zeros. Only
    /// meaningful after the end was reached.
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Offset of the next record; at the end, how many bytes of the log are good.
    pub fn offset(&self) -> u64 {
        self.buffer_offset + self.next as u64
    }

    /// Passes marks. The length of the body of the good record that is next and in the buffer; none at the
    /// end.
    fn skip_to_batch(&mut self) -> Result<Option<usize>> {
        while !self.is_at_end && self.offset() < self.file_len {
            match self.record_len()? {
                Some(0) => self.next += RECORD_HEAD_BYTES,
                Some(body_len) => return Ok(Some(body_len)),
                None => self.end_torn()?,
            }
        }
        self.is_at_end = true;
        Ok(None)
    }

    /// Brings the next record into the buffer: the length of its body, if it is good.
    fn record_len(&mut self) -> Result<Option<usize>> {
        let offset = self.offset();
        self.fill(RECORD_HEAD_BYTES)?;
        let Some((body_len, body_sum)) = record::decode_head(&self.buffer[self.next..], self.id, offset)
        else {
            return Ok(None);
        };
        let len = RECORD_HEAD_BYTES + body_len;
        if len as u64 > self.file_len - offset {
            return Ok(None);
        }
        self.fill(len)?;
        let body = self.buffer.get(self.next + RECORD_HEAD_BYTES..self.next + len);
        Ok(body.filter(|body| checksum(self.id.salt(offset), body) == body_sum).map(<[u8]>::len))
    }

    fn end_torn(&mut self) -> Result<()> {
        let offset = self.offset();
        self.is_torn = !self.is_zero_from(offset)?;
        if self.is_torn && self.has_mark_from(offset + 1)? {
            let message = "a record is damaged: a mark behind it says that it was synced";
            return Err(Error::corrupted(FileName::Of(COMMIT, self.id.number), offset, message));
        }
        self.is_at_end = true;
        Ok(())
    }

    /// Whether all that is left are zeros, which were written ahead of records that never came.
    fn is_zero_from(&self, offset: u64) -> Result<bool> {
        let mut piece = Vec::new();
        let mut start = offset;
        while start < self.file_len {
            let left = usize::try_from(self.file_len - start).unwrap_or(usize::MAX);
            piece.resize(left.min(PIECE_BYTES), 0);
            let got = self.read(start, &mut piece)?;
            if piece[..got].iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            if got == 0 {
                break;
            }
            start += got as u64;
        }
        Ok(true)
    }

    /// Whether a mark stands at `offset` or anywhere behind. Byte by byte, as no length can be trusted behind
    /// something bad; in time proportional to the bytes, in memory that does not depend on them.
    fn has_mark_from(&self, offset: u64) -> Result<bool> {
        let mut piece = Vec::new();
        let mut start = offset;
        while start + RECORD_HEAD_BYTES as u64 <= self.file_len {
            let left = usize::try_from(self.file_len - start).unwrap_or(usize::MAX);
            piece.resize(left.min(PIECE_BYTES), 0);
            let got = self.read(start, &mut piece)?;
            let mut windows = piece[..got].windows(RECORD_HEAD_BYTES).zip(start..);
            // Zeros alone, which may be many, are no mark: to see that takes no checksum.
            let may_be_mark = |bytes: &[u8]| bytes[..4] == [0; 4] && bytes[4..] != [0; RECORD_HEAD_BYTES - 4];
            if windows.any(|(bytes, at)| may_be_mark(bytes) && bytes == record::mark(self.id, at)) {
                return Ok(true);
            }
            if got < RECORD_HEAD_BYTES {
                break;
            }
            start += (got - RECORD_HEAD_BYTES + 1) as u64;
        }
        Ok(false)
    }

    /// Makes the buffer hold `needed` bytes from the next record on, or all that are left in the file.
    fn fill(&mut self, needed: usize) -> Result<()> {
        if self.buffer.len() - self.next >= needed {
            return Ok(());
        }
        let offset = self.offset();
        self.buffer.drain(..self.next);
        self.buffer_offset = offset;
        self.next = 0;
        let left = usize::try_from(self.file_len - offset).unwrap_or(usize::MAX);
        let kept = self.buffer.len();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(needed.max(PIECE_BYTES).min(left).max(kept), 0);
        let got = self.read(offset + kept as u64, &mut buffer[kept..])?;
        buffer.truncate(kept + got);
        self.buffer = buffer;
        Ok(())
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let name = FileName::Of(COMMIT, self.id.number);
        self.file.read_full_at(offset, bytes).map_err(|e| Error::io("read a commit log", e).at(name, offset))
    }
}
