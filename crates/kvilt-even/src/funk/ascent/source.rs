//! `AscentSource`: the rows of an ascent, some pieces of it at a time.
//!
//! Always true: what it gives, no piece that it has not read has anything before.

use std::{ops::Range, sync::Arc};

use kvilt_base::{Charge, Direction, EntryRef, KeyRange, Kind, Large, LargeValues, Result, Source, Streamed};
use kvilt_format::log::LargeRecord;

use super::{
    super::{
        log::{ChunkLog, WholeRecords},
        row::{self, Row},
    },
    PIECES_AT_FIRST, PIECES_TOGETHER_MAX, pieces_for,
};
use crate::{files::Files, parts};

/// Rows and their bytes.
#[derive(Default)]
pub(in crate::funk) struct Rows {
    bytes: Large,
    rows: Vec<Row>,
    /// Where the values are that are not among the bytes.
    large: Vec<LargeRecord>,
}

impl Rows {
    pub(in crate::funk) fn push(&mut self, entry: EntryRef<'_>) {
        let key = self.bytes.len();
        self.bytes.extend_from_slice(entry.key);
        let value = self.bytes.len();
        self.bytes.extend_from_slice(entry.value);
        self.rows.push(Row::new(self.rows.len(), &entry, key, value));
    }

    fn push_large(&mut self, entry: EntryRef<'_>, large: LargeRecord) {
        let key = self.bytes.len();
        self.bytes.extend_from_slice(entry.key);
        self.rows.push(Row::streamed(self.rows.len(), &entry, key, self.large.len()));
        self.large.push(large);
    }

    fn push_row_of(&mut self, others: &Rows, at: usize) {
        match others.large(at) {
            Some(large) => self.push_large(others.entry(at), large.clone()),
            None => self.push(others.entry(at)),
        }
    }

    pub(in crate::funk) fn entry(&self, at: usize) -> EntryRef<'_> {
        self.rows[at].entry(&self.bytes)
    }

    fn large(&self, at: usize) -> Option<&LargeRecord> {
        self.rows[at].streamed_at().map(|at| &self.large[at])
    }

    /// What was read of a log in one piece, which is taken over: a large value is not copied.
    fn of_window(read: WholeRecords, range: &KeyRange) -> Self {
        let mut rows = Rows::default();
        read.for_each(|entry, key, value| {
            if entry.kind != Kind::RangeTombstone && range.contains(entry.key) {
                rows.rows.push(Row::new(rows.rows.len(), &entry, key, value));
            }
        });
        rows.bytes = read.into_bytes();
        rows
    }

    /// Puts the rows in order, which were pushed in the order written. Large ones that it drops are verified
    /// now if they were not when they were read.
    pub(in crate::funk) fn sort(&mut self, large_values: LargeValues) -> Result<()> {
        let Rows { bytes, rows, large } = self;
        row::sort(rows, bytes, &mut |row| match row.streamed_at() {
            Some(at) if large_values == LargeValues::Streamed => large[at].verify(),
            _ => Ok(()),
        })
    }
}

/// What is wanted of an ascent.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// How many rows the caller wants, if that is known.
    pub(crate) rows: Option<u64>,
    /// What is done with large values.
    pub(crate) large_values: LargeValues,
}

/// Walks the ascent of a log, some pieces at a time.
pub(crate) struct AscentSource<'f> {
    log: Arc<ChunkLog>,
    files: &'f Files,
    range: KeyRange,
    direction: Direction,
    large_values: LargeValues,
    /// The ascent's, when the scan began.
    end: u64,
    /// Pieces not read yet.
    left: Range<usize>,
    /// Pieces that the rows which are wanted take, as far as that is known.
    pieces_wanted: usize,
    pieces_together: usize,
    read: Rows,
    /// The value of the row it stands on, if that is large and was fetched.
    fetched: Option<Large>,
    /// Of what was read, if it is large.
    charge: Option<Charge>,
    /// Rows that may be given now; others wait for pieces that may have some that come before them.
    ready: Range<usize>,
    waiting: Range<usize>,
}

impl<'f> AscentSource<'f> {
    /// The entries of `range` below `end`, in `direction`.
    pub(crate) fn new(
        log: Arc<ChunkLog>,
        files: &'f Files,
        range: &KeyRange,
        direction: Direction,
        end: u64,
        Wanted { rows, large_values }: Wanted,
    ) -> Result<Self> {
        let bytes = rows.map_or(0, |rows| rows.saturating_mul(log.mean_record_bytes() as u64));
        // Rows that wait for others are copied, and their values with them.
        let is_late = log.with_ascent(|ascent| ascent.late > 0);
        let large_values = match large_values {
            LargeValues::AtOnce if is_late => LargeValues::Fetched,
            other => other,
        };
        let mut source = AscentSource {
            left: log.with_ascent(|ascent| ascent.pieces_of(range)),
            pieces_wanted: pieces_for(bytes, files.log_piece_bytes),
            log,
            files,
            range: range.clone(),
            direction,
            large_values,
            end,
            pieces_together: PIECES_AT_FIRST,
            read: Rows::default(),
            fetched: None,
            charge: None,
            ready: 0..0,
            waiting: 0..0,
        };
        source.read_until_there_is_a_row()?;
        Ok(source)
    }

    /// Has the system fetch what is left to read, up to `bytes_max`.
    pub(crate) fn will_read(&self, bytes_max: u64) -> Result<()> {
        if self.left.is_empty() {
            return Ok(());
        }
        let place = self.log.with_ascent(|ascent| ascent.place_of(&self.left, self.end));
        self.log.will_read(self.files, place.start..place.end.min(place.start + bytes_max))
    }

    fn read_until_there_is_a_row(&mut self) -> Result<()> {
        while self.ready.is_empty() && !self.left.is_empty() {
            let together = self.next_together().min(self.left.len());
            let together =
                self.log.with_ascent(|ascent| ascent.fitting(&self.left, self.direction, together, self.end));
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

    /// How many pieces are read together next: what is wanted, then more and more.
    fn next_together(&mut self) -> usize {
        if self.pieces_wanted > 0 {
            let together = self.pieces_wanted.min(PIECES_TOGETHER_MAX);
            self.pieces_wanted -= together;
            return together;
        }
        let together = self.pieces_together;
        self.pieces_together = (together * 2).min(PIECES_TOGETHER_MAX);
        together
    }

    /// Reads some pieces beside the rows that wait.
    fn read(&mut self, pieces: &Range<usize>) -> Result<()> {
        let place = self.log.with_ascent(|ascent| ascent.place_of(pieces, self.end));
        // So much is not copied, once it was read, or not read together at all.
        let is_large = place.end - place.start > self.files.streamed_bytes_min as u64;
        if self.waiting.is_empty() {
            self.read = Rows::default();
            self.charge = None;
            if is_large
                && self.large_values == LargeValues::AtOnce
                && let Some(records) = self.log.read_whole(self.files, place.clone())?
            {
                self.charge = Some(self.files.budget.charge(parts::LOG_BUFFERS, place.end - place.start));
                self.read = Rows::of_window(records, &self.range);
                self.read.sort(self.large_values)?;
                self.divide();
                return Ok(());
            }
        }
        if is_large && self.large_values == LargeValues::AtOnce {
            // Part of it is in a buffer: it would be copied.
            self.large_values = LargeValues::Fetched;
        }
        let before = std::mem::take(&mut self.read);
        // Of the pieces and the rows that wait, those come first which were written first.
        if self.direction == Direction::Forward {
            self.waiting.clone().for_each(|at| self.read.push_row_of(&before, at));
        }
        if is_large {
            self.read_streamed(place.clone())?;
        } else {
            let (read, range) = (&mut self.read, &self.range);
            self.log.for_each(self.files, place.start, place.end, &mut |_offset, entry, _batch| {
                if entry.kind != Kind::RangeTombstone && range.contains(entry.key) {
                    read.push(entry);
                }
                Ok(())
            })?;
        }
        if self.direction == Direction::Backward {
            self.waiting.clone().for_each(|at| self.read.push_row_of(&before, at));
        }
        self.read.sort(self.large_values)?;
        self.divide();
        Ok(())
    }

    /// Reads what is at `place`, and of large values no more than what it takes to verify them, unless they
    /// are streamed.
    fn read_streamed(&mut self, place: Range<u64>) -> Result<()> {
        let (read, range, large_values) = (&mut self.read, &self.range, self.large_values);
        self.log.for_each_streamed(self.files, place, &mut |entry, large| {
            let is_wanted = entry.kind != Kind::RangeTombstone && range.contains(entry.key);
            // Who streams does so in time; but what one is left out for has to be right.
            if let Some(large) = large.as_ref().filter(|_| !is_wanted || large_values == LargeValues::Fetched)
            {
                large.verify()?;
            }
            match large.filter(|_| is_wanted) {
                Some(large) => read.push_large(entry, large),
                None if is_wanted => read.push(entry),
                None => {}
            }
            Ok(())
        })
    }

    /// Tells rows that may be given from those that pieces not read yet may have something before.
    fn divide(&mut self) {
        let Rows { bytes, rows, .. } = &self.read;
        let (left, all) = (&self.left, 0..rows.len());
        if left.is_empty() {
            (self.ready, self.waiting) = (all, 0..0);
            return;
        }
        self.log.with_ascent(|ascent| match self.direction {
            Direction::Forward => {
                let first = ascent.pieces[left.start].first;
                let split = rows.partition_point(|row| ascent.cmp(first, row.key(bytes)).is_gt());
                (self.ready, self.waiting) = (0..split, split..all.end);
            }
            Direction::Backward => {
                let before = ascent.pieces[left.end].before;
                let split = rows.partition_point(|row| ascent.cmp(before, row.key(bytes)).is_ge());
                (self.ready, self.waiting) = (split..all.end, 0..split);
            }
        });
    }
}

impl AscentSource<'_> {
    /// The row it stands on; none at the end.
    fn position(&self) -> Option<usize> {
        if self.ready.is_empty() {
            return None;
        }
        Some(match self.direction {
            Direction::Forward => self.ready.start,
            Direction::Backward => self.ready.end - 1,
        })
    }
}

impl Source for AscentSource<'_> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        let entry = self.read.entry(self.position()?);
        Some(match &self.fetched {
            Some(value) => EntryRef { value, ..entry },
            None => entry,
        })
    }

    fn fetch(&mut self) -> Result<()> {
        if self.large_values != LargeValues::Fetched || self.fetched.is_some() {
            return Ok(());
        }
        let Some(large) = self.position().and_then(|at| self.read.large(at)) else { return Ok(()) };
        self.charge = Some(self.files.budget.charge(parts::LOG_BUFFERS, large.len() as u64));
        let mut value = Large::with_capacity(large.len());
        large.copy(&mut |piece| {
            value.extend_from_slice(piece);
            Ok(())
        })?;
        self.fetched = Some(value);
        Ok(())
    }

    fn streamed(&self) -> Option<&dyn Streamed> {
        if self.large_values != LargeValues::Streamed {
            return None;
        }
        let large = self.read.large(self.position()?)?;
        Some(large)
    }

    fn advance(&mut self) -> Result<()> {
        if self.fetched.take().is_some() {
            self.charge = None;
        }
        match self.direction {
            Direction::Forward => self.ready.start += 1,
            Direction::Backward => self.ready.end -= 1,
        }
        self.read_until_there_is_a_row()
    }
}
