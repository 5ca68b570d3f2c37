//! `Ascent`: the first part of a log whose keys ascend, and how a scan reads it: as good as a table.
//!
//! Rows that are loaded in order lie in their logs in order. To a scan such a log is a table that lacks its index, so the log
//! keeps one while it is appended to: the first key of each piece of it, in memory. What comes behind the first
//! record that breaks the order is sorted as before, by [`LogOrder`](super::log_order::LogOrder).
//!
//! Always true: below the end of an ascent each live record's key is above that of the live record before it. A log of an
//! earlier run has no ascent before somebody has read it from its beginning.

use std::{ops::Range, sync::Arc};

use kvilt_base::{Direction, EntryRef, KeyRange, Kind, Result, Source, Version};
use kvilt_format::log::HEADER_BYTES;

use super::log::ChunkLog;
use crate::files::Files;

/// A shorter one is not worth a source of its own.
const PIECES_MIN: u64 = 2;

/// Pieces that a long scan reads together.
const PIECES_TOGETHER_MAX: usize = 16;

/// The pieces of an ascent, and whether it is over.
#[derive(Debug)]
pub(crate) struct Ascent {
    /// Bytes of a piece, but for its last record: what a scan of few rows reads at least.
    piece_bytes: u64,
    /// The first key of each piece, and where the piece begins.
    pieces: Vec<(Vec<u8>, u64)>,
    /// The key of the last record.
    last: Option<Vec<u8>>,
    /// The first record that does not belong to it; none while it goes on.
    over_at: Option<u64>,
}

impl Ascent {
    /// That of an empty log.
    pub(crate) fn new(files: &Files) -> Self {
        Ascent { piece_bytes: files.log_piece_bytes, pieces: Vec::new(), last: None, over_at: None }
    }

    /// That of a log of which nothing is known.
    pub(crate) fn unknown(files: &Files) -> Self {
        Ascent { over_at: Some(HEADER_BYTES as u64), ..Ascent::new(files) }
    }

    /// Takes note of the next record. Returns by how many bytes of memory it grew.
    pub(crate) fn note(&mut self, key: &[u8], offset: u64) -> usize {
        if self.over_at.is_some() {
            return 0;
        }
        if self.last.as_deref().is_some_and(|last| last >= key) {
            // The pieces stay: a scan that has begun may read them still.
            let is_short = offset < PIECES_MIN * self.piece_bytes;
            self.over_at = Some(if is_short { HEADER_BYTES as u64 } else { offset });
            self.last = None;
            return 0;
        }
        key.clone_into(self.last.get_or_insert_default());
        if self.pieces.last().is_some_and(|(_, begin)| offset < begin + self.piece_bytes) {
            return 0;
        }
        self.pieces.push((key.to_vec(), offset));
        key.len() + size_of::<(Vec<u8>, u64)>()
    }

    /// Where it ends in the first `len` bytes of the log.
    pub(crate) fn end(&self, len: u64) -> u64 {
        self.over_at.unwrap_or(len).min(len)
    }

    /// The piece that has the last key below or at `key`, or the first.
    fn piece_of(&self, key: &[u8]) -> usize {
        self.pieces.partition_point(|(first, _)| first.as_slice() <= key).saturating_sub(1)
    }

    /// One behind the last piece that may have a key below `end`.
    fn piece_behind(&self, end: Option<&[u8]>) -> usize {
        end.map_or(self.pieces.len(), |end| self.pieces.partition_point(|(first, _)| first.as_slice() < end))
    }

    /// The pieces that may have keys of `range`.
    fn pieces_of(&self, range: &KeyRange) -> Range<usize> {
        let behind = self.piece_behind(range.end.as_deref());
        self.piece_of(&range.start).min(behind)..behind
    }

    /// Where some pieces lie below `end`.
    fn place_of(&self, pieces: &Range<usize>, end: u64) -> Range<u64> {
        let begin = |piece: usize| self.pieces.get(piece).map_or(end, |(_, begin)| *begin).min(end);
        begin(pieces.start)..begin(pieces.end)
    }
}

/// A row of the pieces that were read last.
struct Row {
    key: Range<usize>,
    value: Range<usize>,
    version: Version,
    kind: Kind,
}

/// Walks the ascent of a log, some pieces at a time.
pub(crate) struct AscentSource<'f> {
    log: Arc<ChunkLog>,
    files: &'f Files,
    range: KeyRange,
    direction: Direction,
    /// The ascent's, when the scan began.
    end: u64,
    /// Pieces not read yet.
    left: Range<usize>,
    pieces_together: usize,
    bytes: Vec<u8>,
    rows: Vec<Row>,
    /// Rows not given yet.
    remaining: Range<usize>,
}

impl<'f> AscentSource<'f> {
    /// The entries of `range` below `end`, in `direction`.
    pub(crate) fn new(
        log: Arc<ChunkLog>,
        files: &'f Files,
        range: &KeyRange,
        direction: Direction,
        end: u64,
    ) -> Result<Self> {
        let mut source = AscentSource {
            left: log.with_ascent(|ascent| ascent.pieces_of(range)),
            log,
            files,
            range: range.clone(),
            direction,
            end,
            pieces_together: 1,
            bytes: Vec::new(),
            rows: Vec::new(),
            remaining: 0..0,
        };
        source.read_until_there_is_a_row()?;
        Ok(source)
    }

    fn read_until_there_is_a_row(&mut self) -> Result<()> {
        while self.remaining.is_empty() && !self.left.is_empty() {
            let together = self.pieces_together.min(self.left.len());
            self.pieces_together = (self.pieces_together * 2).min(PIECES_TOGETHER_MAX);
            let pieces = match self.direction {
                Direction::Forward => self.left.start..self.left.start + together,
                Direction::Backward => self.left.end - together..self.left.end,
            };
            match self.direction {
                Direction::Forward => self.left.start = pieces.end,
                Direction::Backward => self.left.end = pieces.start,
            }
            self.read(&pieces)?;
        }
        Ok(())
    }

    fn read(&mut self, pieces: &Range<usize>) -> Result<()> {
        let place = self.log.with_ascent(|ascent| ascent.place_of(pieces, self.end));
        let (bytes, rows, range) = (&mut self.bytes, &mut self.rows, &self.range);
        bytes.clear();
        rows.clear();
        self.log.for_each(self.files, place.start, place.end, &mut |_offset, entry, _batch| {
            if entry.kind != Kind::RangeTombstone && range.contains(entry.key) {
                let key = bytes.len();
                bytes.extend_from_slice(entry.key);
                let value = bytes.len();
                bytes.extend_from_slice(entry.value);
                let (key, value) = (key..value, value..bytes.len());
                rows.push(Row { key, value, version: entry.version, kind: entry.kind });
            }
            Ok(())
        })?;
        self.remaining = 0..rows.len();
        Ok(())
    }
}

impl Source for AscentSource<'_> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        if self.remaining.is_empty() {
            return None;
        }
        let row = &self.rows[match self.direction {
            Direction::Forward => self.remaining.start,
            Direction::Backward => self.remaining.end - 1,
        }];
        Some(EntryRef {
            key: &self.bytes[row.key.clone()],
            version: row.version,
            kind: row.kind,
            value: &self.bytes[row.value.clone()],
        })
    }

    fn advance(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.remaining.start += 1,
            Direction::Backward => self.remaining.end -= 1,
        }
        self.read_until_there_is_a_row()
    }
}

#[cfg(test)]
mod tests;
