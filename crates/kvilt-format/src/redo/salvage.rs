//! What is left of a damaged segment: every record that is whole, and where something is none.

use std::sync::Arc;

use kvilt_base::{Error, File, FileName, Result};

use super::{Changes, END, Ending, MARK, RedoReader, Segment, WORD_BYTES, changes_of, record_bytes};
use crate::{FileIdentity, HEADER_BYTES, names::REDO};

/// Bytes of which a search for the next whole record takes checksums, at most: what stands in damaged bytes
/// may look like the length of a long record anywhere.
const SEARCHED_BYTES_MAX: usize = 1 << 30;

/// What stands in a segment that may be damaged.
#[derive(Debug)]
pub enum SalvagedRecord<'r> {
    /// A record that is whole: its changes.
    Good(Changes<'r>),
    /// Nothing that is whole, where something was synced.
    Bad {
        /// Where it begins.
        offset: u64,
        /// Bytes up to what is whole again, or to the end of the file.
        bytes: u64,
    },
}

impl RedoReader {
    /// Reads a file as the segment with this position, whatever its header says: the checksums of its records
    /// tell whether it is.
    ///
    /// Errors: `Io`.
    pub fn open_as(file: &Arc<dyn File>, segment: Segment, is_whole: bool) -> Result<RedoReader> {
        let failed = |e| Error::io("read a redo log", e).in_file(FileName::Of(REDO, segment.id.number));
        let mut bytes = vec![0; usize::try_from(file.len().map_err(failed)?).unwrap_or(usize::MAX)];
        let read = file.read_full_at(0, &mut bytes).map_err(failed)?;
        bytes.truncate(read);
        let (passed, next) = (Vec::new(), HEADER_BYTES);
        Ok(RedoReader { segment, bytes, next, is_whole, passed, last_mark: None, ending: None })
    }

    /// The file.
    pub fn id(&self) -> FileIdentity {
        self.segment.id
    }

    /// Where the last mark stands, wherever the records before it end: all before it was synced.
    pub fn synced_to(&self) -> Option<u64> {
        let words = (HEADER_BYTES..self.bytes.len()).step_by(WORD_BYTES);
        words.rev().find(|at| self.is_word_of(*at, MARK)).map(|at| at as u64)
    }

    /// Whether anything in it is whole.
    pub fn has_any(&self) -> bool {
        self.find_whole(HEADER_BYTES).is_some()
    }

    /// What comes next; none at the end. What lies before `synced` was synced: if it is not whole it is
    /// damaged, and what is whole behind it is searched. From there on it is as in [`RedoReader::next`].
    pub fn salvage(&mut self, synced: u64) -> Option<SalvagedRecord<'_>> {
        while self.ending.is_none() {
            let offset = self.next;
            if self.is_word_of(offset, MARK) {
                self.next += WORD_BYTES;
            } else if self.is_word_of(offset, END) {
                self.ending = Some(Ending::Continued);
            } else if let Some(len) = self.record_at(offset) {
                self.next += record_bytes(len);
                let changes = changes_of(&self.bytes[offset + WORD_BYTES..][..len]);
                return Some(SalvagedRecord::Good(changes.expect("it was decoded just now")));
            } else if (offset as u64) < synced {
                let end = self.find_whole(offset + WORD_BYTES).unwrap_or(self.bytes.len());
                self.next = end.max(offset);
                self.ending = (self.next >= self.bytes.len()).then_some(Ending::Open);
                return Some(SalvagedRecord::Bad {
                    offset: offset as u64,
                    bytes: (self.next - offset) as u64,
                });
            } else if let Some(body) = self.body_at(offset).filter(|_| self.is_whole) {
                // One whose writer died, or that was made void.
                self.next += record_bytes(body.len());
            } else {
                self.ending = Some(Ending::Open);
            }
        }
        None
    }

    /// Whether a whole word with this in place of a length stands there.
    fn is_word_of(&self, offset: usize, what: u32) -> bool {
        let word =
            if what == MARK { self.segment.mark(offset as u64) } else { self.segment.end(offset as u64) };
        // The length first: it spares a checksum of nearly every word.
        self.len_at(offset) == what && self.word_at(offset) == Some(word)
    }

    /// The length of the body of the record that is whole at `offset`, if one is.
    fn record_at(&self, offset: usize) -> Option<usize> {
        let body = self.body_at(offset)?;
        let is_whole = self.word_at(offset) == Some(self.segment.word(offset as u64, body));
        (is_whole && changes_of(body).is_ok()).then_some(body.len())
    }

    /// The first place from `from` on where a word stands that is whole, with its record.
    fn find_whole(&self, from: usize) -> Option<usize> {
        let mut searched = 0;
        (from..self.bytes.len()).step_by(WORD_BYTES).find(|&at| match self.len_at(at) {
            MARK => self.is_word_of(at, MARK),
            END => self.is_word_of(at, END),
            _ => {
                searched += self.body_at(at).map_or(0, <[u8]>::len);
                searched <= SEARCHED_BYTES_MAX && self.record_at(at).is_some()
            }
        })
    }
}
