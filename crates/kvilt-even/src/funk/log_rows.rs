//! `LogRows`: the rows of a log in key order with their values, for who needs all of them: a rewrite or a
//! load.
//!
//! One pass over the file beats many small reads; and where a chunk has little of the file, one pass over
//! that little.

use std::{ops::Range, sync::Arc, vec};

use kvilt_base::{EntryRef, KeyRange, Kind, Result, Source, Streamed};
use kvilt_format::log::LargeRecord;

use super::{
    log::{ChunkLog, ROTATE_BYTES, Window},
    log_order::LogOrder,
    row::{self, Row},
};
use crate::{files::Files, growing::Growing};

/// Records that begin no farther apart are read together: so many bytes more cost no more than another read
/// does.
const APART_BYTES_MAX: u64 = 32 << 10;

/// Bytes that are read together, at most.
const TOGETHER_BYTES_MAX: u64 = 256 << 10;

/// Reads that the system is asked for at once, while the drive is waited for.
const READS_AHEAD: usize = 32;

/// Walks the rows of a log forward: by key ascending, version descending, newest record first.
pub(crate) struct LogRows {
    bytes: Growing,
    /// Large values that are streamed.
    large: Vec<LargeRecord>,
    current: Option<Row>,
    remaining: vec::IntoIter<Row>,
}

impl LogRows {
    /// The rows of `range` at `place` in `log`; range tombstones are left out. A log that siblings share may
    /// be many times as long as what one of them has in it. If it streams, large values stay in the file.
    pub(crate) fn read(
        log: &ChunkLog,
        files: &Files,
        place: Range<u64>,
        range: &KeyRange,
        streams: bool,
    ) -> Result<Self> {
        // Growing by halves would take half as much again.
        let mut rows = Rows::with_room_for(place.end - place.start)?;
        if streams {
            log.for_each_streamed(files, place, &mut |entry, large| {
                let is_wanted = entry.kind != Kind::RangeTombstone && range.contains(entry.key);
                match large {
                    Some(large) if is_wanted => rows.push_large(entry, large),
                    // What it is left out for has to be right.
                    Some(large) => large.verify(),
                    None if is_wanted => rows.push(entry),
                    None => Ok(()),
                }
            })?;
        } else {
            log.for_each(files, place.start, place.end, &mut |_offset, entry, _batch| {
                if entry.kind != Kind::RangeTombstone && range.contains(entry.key) {
                    rows.push(entry)?;
                }
                Ok(())
            })?;
        }
        rows.in_order()
    }

    /// Whether some values are yet to be read.
    pub(crate) fn streams(&self) -> bool {
        !self.large.is_empty()
    }

    /// The rows of `range` that `orders` of `log` tell of, and of the log no more than what lies between some
    /// of them. They take about `share_bytes`.
    pub(crate) fn read_share(
        log: &ChunkLog,
        files: &Files,
        orders: &[Arc<LogOrder>],
        range: &KeyRange,
        (share_bytes, streams): (u64, bool),
    ) -> Result<Self> {
        let mut offsets: Vec<u64> = orders.iter().flat_map(|order| order.offsets(range)).collect();
        offsets.sort_unstable();
        let reads: Vec<&[u64]> = together(&offsets).collect();
        let place = |offsets: &[u64]| offsets[0]..log.likely_place(offsets[offsets.len() - 1]).end;
        let mut rows = Rows::with_room_for(share_bytes)?;
        let mut window = Window::default();
        for reads in reads.chunks(READS_AHEAD) {
            if files.reads.wait_for_the_drive() {
                reads.iter().try_for_each(|offsets| log.will_read(files, place(offsets)))?;
            }
            for offsets in reads {
                log.read_window(files, place(offsets), &mut window)?;
                for &offset in *offsets {
                    let mut pushed = Ok(());
                    let is_there = log.record_in(&window, offset, |entry| pushed = rows.push(entry))?;
                    if is_there {
                        pushed?;
                        continue;
                    }
                    // It is larger than most, or in a buffer still.
                    let large = if streams { log.large_record(files, offset)? } else { None };
                    if let Some((large, beginning)) = large {
                        rows.push_large(large.entry(&beginning), large)?;
                    } else {
                        log.record_at(files, offset, |entry, _batch| pushed = rows.push(entry))?;
                    }
                    pushed?;
                }
            }
        }
        rows.in_order()
    }
}

/// Those of `offsets`, which ascend, that are read together.
fn together(offsets: &[u64]) -> impl Iterator<Item = &[u64]> {
    let mut left = offsets;
    std::iter::from_fn(move || {
        let first = *left.first()?;
        let is_near =
            |pair: &&[u64]| pair[1] - pair[0] <= APART_BYTES_MAX && pair[1] - first <= TOGETHER_BYTES_MAX;
        let (together, others) = left.split_at(1 + left.windows(2).take_while(is_near).count());
        left = others;
        Some(together)
    })
}

/// Rows while they are read, in the order written.
struct Rows {
    bytes: Growing,
    rows: Vec<Row>,
    large: Vec<LargeRecord>,
}

impl Rows {
    /// None yet, with room for so many bytes, if there are as many.
    fn with_room_for(bytes: u64) -> Result<Self> {
        let bytes = Growing::with_capacity_at_most(bytes.min(ROTATE_BYTES) as usize)?;
        Ok(Rows { bytes, rows: Vec::new(), large: Vec::new() })
    }

    fn push(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let key = self.bytes.push(entry.key)?;
        let value = self.bytes.push(entry.value)?;
        self.rows.push(Row::new(self.rows.len(), &entry, key, value));
        Ok(())
    }

    fn push_large(&mut self, entry: EntryRef<'_>, large: LargeRecord) -> Result<()> {
        let key = self.bytes.push(entry.key)?;
        self.rows.push(Row::streamed(self.rows.len(), &entry, key, self.large.len()));
        self.large.push(large);
        Ok(())
    }

    fn in_order(self) -> Result<LogRows> {
        let Rows { bytes, mut rows, large } = self;
        row::sort(&mut rows, bytes.as_slice(), &mut |row| {
            row.streamed_at().map_or(Ok(()), |at| large[at].verify())
        })?;
        let mut remaining = rows.into_iter();
        Ok(LogRows { bytes, large, current: remaining.next(), remaining })
    }
}

impl Source for LogRows {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.current.as_ref().map(|row| row.entry(self.bytes.as_slice()))
    }

    fn streamed(&self) -> Option<&dyn Streamed> {
        let large = &self.large[self.current.as_ref()?.streamed_at()?];
        Some(large)
    }

    fn advance(&mut self) -> Result<()> {
        self.current = self.remaining.next();
        Ok(())
    }
}
