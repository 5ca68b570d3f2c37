//! Redo log: the writes of a log-structured store that are not in its sorted tables yet.
//!
//! Where it stands: a log is a chain of *segments*, preallocated files that are used in turn. A segment is
//! mapped shared, so what was stored there outlives the process. Format: `docs/format/redo.md`.
//!
//! Always true: the length of a record is stored, and zero behind it, before any other byte of the record; so
//! after the death of the process the records of a segment can be told apart, also where one is not whole. A
//! mark is written only when everything before it in the chain was synced; so what is bad before a mark was
//! damaged, and what is bad behind the last one may be torn by a power cut.
//!
//! ```text
//! header 64 | word | body, padded to 8 | word | body … | end word
//! word: body len u32 | checksum u32
//! ```

mod salvage;

use std::sync::Arc;

use kvilt_base::{Error, File, FileName, Result};

use crate::{
    FileIdentity,
    checksum::checksum_of_parts,
    coding::{Decoder, Malformed},
    header::{self, HEADER_BYTES},
    names::REDO,
};

pub use self::salvage::SalvagedRecord;
pub use crate::change::{Change, Changes, push_changes};

/// Bytes of the word before a record's body; records begin at multiples of it.
pub const WORD_BYTES: usize = 8;

/// Longest body, in bytes.
pub const BODY_BYTES_MAX: usize = MARK as usize - 1;

/// In place of a body's length: everything before was synced.
const MARK: u32 = u32::MAX - 1;
/// In place of a body's length: the log goes on in the next segment.
const END: u32 = u32::MAX;

/// How far apart the uses of a segment are in the salts of its checksums: no segment is as long, in bytes.
const USE_SHIFT: u32 = 40;

/// A segment, and which in the order of the log it is: a file is used again when its records are not needed
/// any more, and what is left of an earlier use must not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub id: FileIdentity,
    /// The position in the log, from 1 on.
    pub sequence: u64,
}

impl Segment {
    /// The header of the file.
    pub fn header(self) -> [u8; HEADER_BYTES] {
        header::encode(header::REDO_MAGIC, self.id, self.sequence)
    }

    /// The word of a record with this body at `offset`.
    pub fn word(self, offset: u64, body: &[u8]) -> u64 {
        let len = u32::try_from(body.len()).expect("a body has less than 4 GiB");
        self.checked(offset, len, body)
    }

    /// The word that says that everything before it was synced.
    pub fn mark(self, offset: u64) -> u64 {
        self.checked(offset, MARK, &[])
    }

    /// The word that says that the log goes on in the next segment.
    pub fn end(self, offset: u64) -> u64 {
        self.checked(offset, END, &[])
    }

    fn checked(self, offset: u64, len: u32, body: &[u8]) -> u64 {
        let salt = self.id.salt(offset.wrapping_add(self.sequence << USE_SHIFT));
        let sum = checksum_of_parts(salt, [&len.to_le_bytes(), body]);
        u64::from(sum) << 32 | u64::from(len)
    }
}

/// The word of a record whose body is still to come.
pub fn begun(body_len: usize) -> u64 {
    body_len as u64
}

/// Bytes that a record takes: its word, its body, and what fills the last word.
pub fn record_bytes(body_len: usize) -> usize {
    WORD_BYTES + body_len.next_multiple_of(WORD_BYTES)
}

/// Which segment of the log a file is; none if its header is not whole.
///
/// Errors: `Corrupted` if it is another file's; `UnsupportedVersion`, `Io`.
pub fn read_sequence(file: &dyn File, id: FileIdentity) -> Result<Option<u64>> {
    let mut header = [0; HEADER_BYTES];
    let read = file.read_full_at(0, &mut header);
    let read = read.map_err(|e| Error::io("read a redo log", e).in_file(FileName::Of(REDO, id.number)))?;
    decode_header(&header[..read], id)
}

fn decode_header(bytes: &[u8], id: FileIdentity) -> Result<Option<u64>> {
    match header::decode_of(bytes, header::REDO_MAGIC, FileName::Of(REDO, id.number), id) {
        Ok(header) => Ok(Some(header.by_kind)),
        Err(error) if header::is_whole(bytes) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Makes a record without changes of one that is not whole, in the bytes from its word on: nothing else that
/// stands in its body counts. Returns its bytes, without what pads them.
pub fn void(segment: Segment, offset: u64, bytes: &mut [u8]) -> Option<&[u8]> {
    let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let record = bytes.get_mut(..WORD_BYTES.checked_add(len)?)?;
    let (word, body) = record.split_at_mut(WORD_BYTES);
    *body.first_mut()? = 0;
    word.copy_from_slice(&segment.word(offset, body).to_le_bytes());
    Some(record)
}

/// The changes of a record with this body: none if it was made void.
fn changes_of(body: &[u8]) -> Result<Changes<'_>, Malformed> {
    let is_void = body.first() == Some(&0);
    Changes::decode(Decoder::new(if is_void { &body[..1] } else { body }))
}

/// How a log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It goes on in the next segment.
    Continued,
    /// It ends here.
    Open,
}

/// Reads one segment, which it has in memory.
#[derive(Debug)]
pub struct RedoReader {
    segment: Segment,
    bytes: Vec<u8>,
    next: usize,
    /// Nothing that was stored is missing, as after the death of a process.
    is_whole: bool,
    passed: Vec<u64>,
    last_mark: Option<u64>,
    ending: Option<Ending>,
}

impl RedoReader {
    /// Reads the file. None if its header is not whole: then it is in no use. `is_whole`: all that was stored
    /// is there, so a record that is not whole is one whose writer died, and others behind it count.
    ///
    /// Errors: `Corrupted` if it is another file's; `UnsupportedVersion`, `Io`.
    pub fn open(file: &Arc<dyn File>, id: FileIdentity, is_whole: bool) -> Result<Option<RedoReader>> {
        let failed = |e| Error::io("read a redo log", e).in_file(FileName::Of(REDO, id.number));
        let len = usize::try_from(file.len().map_err(failed)?).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len];
        let read = file.read_full_at(0, &mut bytes).map_err(failed)?;
        bytes.truncate(read);
        let Some(sequence) = decode_header(&bytes, id)? else { return Ok(None) };
        let segment = Segment { id, sequence };
        Ok(Some(RedoReader {
            segment,
            bytes,
            next: HEADER_BYTES,
            is_whole,
            passed: Vec::new(),
            last_mark: None,
            ending: None,
        }))
    }

    /// The same without what stands at `end` or behind it. For a segment that is appended to meanwhile: what
    /// was read there is of no single moment.
    #[must_use]
    pub fn cut_at(mut self, end: u64) -> Self {
        self.bytes.truncate(usize::try_from(end).unwrap_or(usize::MAX));
        self
    }

    /// The position of the segment in the log.
    pub fn sequence(&self) -> u64 {
        self.segment.sequence
    }

    /// Where the next record begins; at the end, where one may be appended.
    pub fn offset(&self) -> u64 {
        self.next as u64
    }

    /// The next record that is whole: where it lies, and its changes; none at the end.
    ///
    /// Errors: `Corrupted` for a record that is not whole and lies before a mark, and for one whose checksum
    /// is right and whose content is not.
    #[expect(
        clippy::should_implement_trait,
        reason = "changes borrow from the reader, which Iterator cannot say"
    )]
    pub fn next(&mut self) -> Result<Option<(u64, Changes<'_>)>> {
        let Some(offset) = self.skip_to_record()? else { return Ok(None) };
        let body = &self.bytes[offset + WORD_BYTES..offset + WORD_BYTES + self.len_at(offset) as usize];
        let changes = changes_of(body).map_err(|Malformed(what)| self.corrupted(offset, what))?;
        Ok(Some((offset as u64, changes)))
    }

    /// How the log ends in this segment. Only meaningful when [`RedoReader::next`] has returned none.
    pub fn ending(&self) -> Ending {
        self.ending.unwrap_or(Ending::Open)
    }

    /// Where the records lie that are not whole and were passed. A mark in a later segment says that one was
    /// damaged; so before the log goes on they are to be made [void].
    pub fn passed(&self) -> &[u64] {
        &self.passed
    }

    /// Where the last mark lies that was passed: all before it is durable.
    pub fn last_mark(&self) -> Option<u64> {
        self.last_mark
    }

    /// Whether a mark stands at or behind `offset`: then everything before it in the log was synced.
    pub fn has_mark_from(&self, offset: u64) -> bool {
        let from = (offset as usize).next_multiple_of(WORD_BYTES).max(HEADER_BYTES);
        (from..self.bytes.len()).step_by(WORD_BYTES).any(|at| {
            // The length first: it spares a checksum of nearly every word.
            self.len_at(at) == MARK && self.word_at(at) == Some(self.segment.mark(at as u64))
        })
    }

    /// Whether a whole record of this use of the segment stands at or behind `offset`.
    pub fn has_record_from(&self, offset: u64) -> bool {
        let from = (offset as usize).next_multiple_of(WORD_BYTES).max(HEADER_BYTES);
        (from..self.bytes.len()).step_by(WORD_BYTES).any(|at| {
            self.body_at(at).is_some_and(|body| self.word_at(at) == Some(self.segment.word(at as u64, body)))
        })
    }

    /// Passes marks and, after the death of a process, records that are not whole.
    fn skip_to_record(&mut self) -> Result<Option<usize>> {
        while self.ending.is_none() {
            let offset = self.next;
            let Some(word) = self.word_at(offset) else {
                self.ending = Some(Ending::Open);
                break;
            };
            if word == self.segment.mark(offset as u64) {
                self.last_mark = Some(offset as u64);
                self.next += WORD_BYTES;
            } else if word == self.segment.end(offset as u64) {
                self.ending = Some(Ending::Continued);
            } else if let Some(body) = self.body_at(offset) {
                let is_good = word == self.segment.word(offset as u64, body);
                self.next += record_bytes(body.len());
                if is_good {
                    return Ok(Some(offset));
                }
                self.pass_bad(offset)?;
            } else {
                // Nothing, or a length beyond the segment: there is no way on.
                self.refuse_damage(offset)?;
                self.ending = Some(Ending::Open);
            }
        }
        Ok(None)
    }

    /// The record at `offset` is not whole.
    fn pass_bad(&mut self, offset: usize) -> Result<()> {
        self.refuse_damage(offset)?;
        if self.is_whole {
            self.passed.push(offset as u64);
        } else {
            self.next = offset;
            self.ending = Some(Ending::Open);
        }
        Ok(())
    }

    /// What stands at `offset` is bad: damage, if a mark stands behind it.
    fn refuse_damage(&self, offset: usize) -> Result<()> {
        match self.has_mark_from(offset as u64 + 1) {
            true => {
                Err(self.corrupted(offset, "a record is damaged: a mark behind it says that it was synced"))
            }
            false => Ok(()),
        }
    }

    fn word_at(&self, offset: usize) -> Option<u64> {
        self.bytes.get(offset..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }

    fn len_at(&self, offset: usize) -> u32 {
        self.word_at(offset).unwrap_or(0) as u32
    }

    /// The body of the record at `offset`, by the length that stands there.
    fn body_at(&self, offset: usize) -> Option<&[u8]> {
        let len = self.len_at(offset) as usize;
        let begin = offset + WORD_BYTES;
        (1..=BODY_BYTES_MAX).contains(&len).then(|| self.bytes.get(begin..begin.checked_add(len)?)).flatten()
    }

    fn corrupted(&self, offset: usize, what: &str) -> Error {
        Error::corrupted(FileName::Of(REDO, self.segment.id.number), offset as u64, what)
    }
}

#[cfg(test)]
mod tests;
