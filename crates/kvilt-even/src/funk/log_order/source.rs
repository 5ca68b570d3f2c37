//! `OrderSource`: the records of a part of a log in key order, each read when the scan reaches it.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use kvilt_base::{Charge, Direction, EntryRef, KeyRange, Kind, Large, Result, Source, Streamed, Version};
use kvilt_format::log::LargeRecord;

use super::{LogOrder, Reader};
use crate::{
    files::Files,
    funk::log::{ChunkLog, Window},
    parts,
};

/// What a read of a single record costs, in bytes that are read in one go in the same time: from the page
/// cache …
const READ_COST_BYTES: u64 = 4 << 10;
/// … and from a drive, many at once. Drives of our machines make 48,000 such reads a second, or one gigabyte.
const DRIVE_READ_COST_BYTES: u64 = 20 << 10;

/// Records that are read together: at most so many, and lying at most so far apart on average.
const TOGETHER_MAX: usize = 32;
const APART_BYTES_MAX: u64 = 8 << 10;

/// So many bytes are kept of what a value was read to.
const KEPT_BYTES: usize = 1 << 20;

/// What is wanted of an order.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'f> {
    /// Of each key only the record that it may see.
    pub(crate) view: Version,
    /// Not only that record, but all of a key.
    pub(crate) every_version: bool,
    /// Whether large values are streamed.
    pub(crate) streams: bool,
    /// How many rows at most, if that is known.
    pub(crate) rows: Option<u64>,
    /// What reading costs for want of order is added to this.
    pub(crate) cost_bytes: Option<&'f AtomicU64>,
}

/// Walks a part of a log in key order.
pub(crate) struct OrderSource<'f> {
    order: Arc<LogOrder>,
    log: Arc<ChunkLog>,
    files: &'f Files,
    direction: Direction,
    wanted: Wanted<'f>,
    /// Records that the system was asked to fetch and that were not reached yet.
    asked_for: usize,
    /// How many it is asked for next.
    ask_next: usize,
    remaining: Range<usize>,
    reader: Reader,
    /// The record where it stands; none at the end.
    here: Option<Here>,
    /// The key of that.
    key: Vec<u8>,
    /// Bytes in which the value of the current entry lies, once that has been fetched, and where in them.
    value: Large,
    value_at: Range<usize>,
    /// Where the value is instead, if it is streamed.
    large: Option<LargeRecord>,
    /// Of these bytes, if they are many.
    charge: Option<Charge>,
    is_fetched: bool,
    window: Window,
}

/// A record that a source stands on.
#[derive(Clone, Copy)]
struct Here {
    position: usize,
    version: Version,
    offset: u64,
    kind: Kind,
}

impl<'f> OrderSource<'f> {
    /// The entries of `range`, in `direction`.
    pub(crate) fn new(
        (order, log): (Arc<LogOrder>, Arc<ChunkLog>),
        files: &'f Files,
        range: &KeyRange,
        direction: Direction,
        wanted: Wanted<'f>,
    ) -> Self {
        let mut reader = Reader::default();
        let remaining = order.positions_of(range, &mut reader);
        let mut source = OrderSource {
            order,
            log,
            files,
            direction,
            wanted,
            asked_for: 0,
            ask_next: wanted.rows.map_or(1, |rows| rows.min(TOGETHER_MAX as u64) as usize),
            remaining,
            reader,
            here: None,
            key: Vec::new(),
            value: Large::default(),
            value_at: 0..0,
            large: None,
            charge: None,
            is_fetched: false,
            window: Window::default(),
        };
        source.go_on();
        source
    }

    /// Whether it has nothing of the range.
    pub(crate) fn is_empty(&self) -> bool {
        self.here.is_none()
    }

    /// Takes the next record off what remains.
    fn go_on(&mut self) {
        let Self { order, wanted, direction, remaining, reader, .. } = self;
        self.here = next_of(order, wanted, *direction, remaining, reader);
        if let Some(Here { position, .. }) = self.here {
            self.key.clear();
            self.key.extend_from_slice(self.reader.key(&self.order.records, position));
        }
    }

    fn read_value(&mut self) -> Result<()> {
        let Some(Here { offset, .. }) = self.here else { return Ok(()) };
        self.value.clear();
        if self.log.has_large_records(self.files) {
            // The one before is not kept beside it.
            self.value = Large::default();
            if self.wanted.streams {
                self.large = self.log.large_record(self.files, offset)?.map(|(large, _)| large);
            }
            if self.large.is_some() {
                self.value_at = 0..0;
                return Ok(());
            }
            if let Some((bytes, value_at)) = self.log.read_large(self.files, offset)? {
                self.charge = Some(self.files.budget.charge(parts::LOG_BUFFERS, bytes.len() as u64));
                (self.value, self.value_at) = (bytes, value_at);
                return Ok(());
            }
        }
        self.read_small_value(offset)?;
        self.value_at = 0..self.value.len();
        Ok(())
    }

    fn read_small_value(&mut self, offset: u64) -> Result<()> {
        let value = &mut self.value;
        if self.log.record_in(&self.window, offset, |entry| value.extend_from_slice(entry.value))? {
            return Ok(());
        }
        if let Some(cost) = self.wanted.cost_bytes {
            let is_waiting = self.files.reads.wait_for_the_drive();
            let bytes = if is_waiting { DRIVE_READ_COST_BYTES } else { READ_COST_BYTES };
            // Relaxed: a statistic.
            cost.fetch_add(bytes, Ordering::Relaxed);
        }
        if let Some(place) = self.place_of_next(offset) {
            self.log.read_window(self.files, place, &mut self.window)?;
            let value = &mut self.value;
            if self.log.record_in(&self.window, offset, |entry| value.extend_from_slice(entry.value))? {
                return Ok(());
            }
        }
        self.ask_ahead(offset)?;
        let value = &mut self.value;
        self.log.record_at(self.files, offset, |entry, _| value.extend_from_slice(entry.value))
    }

    /// While the drive is waited for: has the system fetch the records that come next beside the one at
    /// `offset`, for they lie too far apart to be read together, and waiting for one after the other takes
    /// as many times as long.
    fn ask_ahead(&mut self, offset: u64) -> Result<()> {
        if self.asked_for > 0 || !self.files.reads.wait_for_the_drive() {
            self.asked_for = self.asked_for.saturating_sub(1);
            return Ok(());
        }
        let count = self.ask_next;
        self.ask_next = (count * 2).min(TOGETHER_MAX);
        if count > 1 {
            let mut asked_for = 0;
            for offset in std::iter::once(offset).chain(self.next_offsets()).take(count) {
                self.log.will_read(self.files, self.log.likely_place(offset))?;
                asked_for += 1;
            }
            // The first is read now.
            self.asked_for = asked_for - 1;
        }
        Ok(())
    }

    /// Where what comes next lies, in direction.
    pub(super) fn next_offsets(&self) -> impl Iterator<Item = u64> {
        let (mut remaining, mut reader) = (self.remaining.clone(), Reader::default());
        std::iter::from_fn(move || {
            next_of(&self.order, &self.wanted, self.direction, &mut remaining, &mut reader)
                .map(|record| record.offset)
        })
    }

    /// Where the record at `offset` and those that come next lie, if so near each other that they are better
    /// read together.
    fn place_of_next(&self, offset: u64) -> Option<Range<u64>> {
        let most = self.wanted.rows.map_or(TOGETHER_MAX, |rows| rows.min(TOGETHER_MAX as u64) as usize);
        let (mut place, mut together) = (self.log.likely_place(offset), 1);
        for offset in self.next_offsets().take(most) {
            let next = self.log.likely_place(offset);
            let wider = place.start.min(next.start)..place.end.max(next.end);
            if wider.end - wider.start > (together + 1) * APART_BYTES_MAX {
                break;
            }
            (place, together) = (wider, together + 1);
        }
        (together > 1).then_some(place)
    }
}

/// Takes the next record off `remaining`: of each key only the one that is wanted.
fn next_of(
    order: &LogOrder,
    wanted: &Wanted<'_>,
    direction: Direction,
    remaining: &mut Range<usize>,
    reader: &mut Reader,
) -> Option<Here> {
    if wanted.every_version && direction == Direction::Forward {
        return remaining.next().map(|position| here(order, reader, position));
    }
    loop {
        let records = next_key(order, direction, remaining, reader)?;
        // Newest first.
        let mut records = records.map(|position| here(order, reader, position));
        if let Some(visible) = records.find(|record| record.version <= wanted.view) {
            return Some(visible);
        }
    }
}

/// Takes all records of the next key off `remaining`.
fn next_key(
    order: &LogOrder,
    direction: Direction,
    remaining: &mut Range<usize>,
    reader: &mut Reader,
) -> Option<Range<usize>> {
    let Range { start, end } = *remaining;
    if start == end {
        return None;
    }
    let mut is_same = |at: &usize| reader.is_same_key(&order.records, *at);
    Some(match direction {
        Direction::Forward => {
            let behind = (start + 1..end).find(|at| !is_same(at)).unwrap_or(end);
            remaining.start = behind;
            start..behind
        }
        Direction::Backward => {
            let first = (start + 1..end).rev().find(|at| !is_same(at)).unwrap_or(start);
            remaining.end = first;
            first..end
        }
    })
}

fn here(order: &LogOrder, reader: &mut Reader, position: usize) -> Here {
    let (offset, kind) = reader.place(&order.records, position);
    Here { position, version: order.versions.at(offset), offset, kind }
}

impl Source for OrderSource<'_> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        let Here { version, kind, .. } = self.here?;
        assert!(self.is_fetched, "an entry without its value");
        Some(EntryRef { key: &self.key, version, kind, value: &self.value[self.value_at.clone()] })
    }

    fn key(&self) -> Option<&[u8]> {
        self.here.map(|_| self.key.as_slice())
    }

    fn version(&self) -> Option<Version> {
        self.here.map(|here| here.version)
    }

    fn fetch(&mut self) -> Result<()> {
        if !self.is_fetched {
            self.read_value()?;
            self.is_fetched = true;
        }
        Ok(())
    }

    fn streamed(&self) -> Option<&dyn Streamed> {
        self.large.as_ref().map(|large| large as &dyn Streamed)
    }

    fn advance(&mut self) -> Result<()> {
        self.go_on();
        self.large = None;
        if self.value.capacity() > KEPT_BYTES {
            // Others may read large ones before this source has its turn again.
            self.value = Large::default();
            self.value_at = 0..0;
            self.charge = None;
        }
        self.is_fetched = false;
        Ok(())
    }
}
