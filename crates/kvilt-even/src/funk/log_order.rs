//! `LogOrder`: a part of a log in key order, made when a scan first asks for order.
//!
//! TeksDB's rule, applied to cold chunks: puts pay nothing for order, the first scan sorts. Only keys and
//! offsets are kept, and a record is read when the scan reaches it. What is appended later is sorted by
//! itself when a scan comes to it, and [`Orders`] keeps few parts by merging those of like size, so that a
//! record is moved a logarithm of times.
//!
//! To sort a log is to read its summaries, and what they do not cover: all of it where rows are short.
//!
//! Where keys are long, an order takes as much memory as its log. What the orders of one chunk may take is
//! therefore bounded, and a log whose order does not fit is walked in [`Pieces`].

mod pieces;
mod source;

use std::{
    cmp::Reverse,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use kvilt_base::{Charge, KeyRange, Kind, Large, Result, Version};
use kvilt_format::log::Outline;

pub(crate) use self::{
    pieces::Pieces,
    source::{OrderSource, Wanted},
};
use super::{log::ChunkLog, log_index::LOG_BYTES_LIMIT};
use crate::{files::Files, heads::Heads, parts};

/// So many seconds an order is kept after a scan has asked for it.
const SECONDS_KEPT: u8 = 3;

/// A record. Orders are what scans of many cold chunks need most of their memory for, so it is packed.
struct Item {
    version: Version,
    /// Where its key begins in `keys`; it ends where the next one's begins.
    start: u32,
    /// A log is shorter than what 31 bits count. The other says that it is a tombstone.
    offset_and_kind: u32,
}

/// Of so many records the key of one is among those that are searched first.
const RECORDS_A_SAMPLE: usize = 32;

const TOMBSTONE_BIT: u32 = 1 << 31;
const _: () = assert!(LOG_BYTES_LIMIT <= TOMBSTONE_BIT as u64 && size_of::<Item>() == 16);

/// Keys of a part of a log, sorted: by key ascending, version descending, newest record first.
pub(crate) struct LogOrder {
    /// One behind the other, in order.
    keys: Large,
    items: Vec<Item>,
    /// The heads of every so manyth key: to search among all keys would touch two lines of memory a step.
    samples: Heads,
    /// What of the log it covers.
    place: Range<u64>,
}

/// What an order has of a record.
#[derive(Clone, Copy)]
struct Record<'k> {
    key: &'k [u8],
    version: Version,
    offset: u64,
    kind: Kind,
}

impl Record<'_> {
    fn order(&self) -> (&[u8], Reverse<(Version, u64)>) {
        (self.key, Reverse((self.version, self.offset)))
    }
}

impl LogOrder {
    /// The keys of the records of `log` between two offsets, or how many bytes they take if that is more than
    /// `bytes_max`; and how many bytes were read for them. Range tombstones are left out.
    fn read(
        log: &ChunkLog,
        files: &Files,
        place: Range<u64>,
        bytes_max: u64,
    ) -> Result<(std::result::Result<Self, u64>, u64)> {
        let mut gathered = Gathered::default();
        let mut bytes = 0;
        let read = log.for_each_outline(files, place.clone(), &mut |outline| {
            let Outline { offset, kind, key, version } = outline;
            if kind != Kind::RangeTombstone {
                bytes += order_bytes(key);
                if bytes <= bytes_max {
                    gathered.push(Record { key, version, offset, kind });
                } else {
                    gathered = Gathered::default();
                }
            }
            Ok(())
        })?;
        Ok((if bytes <= bytes_max { Ok(gathered.sorted(place)) } else { Err(bytes) }, read))
    }

    /// Two parts, one behind the other, as one.
    fn merged(older: &LogOrder, newer: &LogOrder) -> Self {
        let key_bytes = older.keys.len() + newer.keys.len();
        let place = older.place.start..newer.place.end;
        let (mut old, mut new) = (older.records().peekable(), newer.records().peekable());
        let both = std::iter::from_fn(|| match (old.peek(), new.peek()) {
            (Some(a), Some(b)) if a.order() <= b.order() => old.next(),
            (_, Some(_)) => new.next(),
            (_, None) => old.next(),
        });
        Self::of(both, (key_bytes, place))
    }

    /// From records in order.
    fn of<'k>(records: impl Iterator<Item = Record<'k>>, (key_bytes, place): (usize, Range<u64>)) -> Self {
        let keys = Large::with_capacity(key_bytes);
        let mut order = LogOrder { keys, items: Vec::new(), samples: Heads::default(), place };
        for Record { key, version, offset, kind } in records {
            // Of records that no view can tell apart the newest stays, which comes first.
            if order.items.last().is_some_and(|last| last.version == version)
                && order.key(order.items.len() - 1) == key
            {
                continue;
            }
            order.push(Record { key, version, offset, kind });
        }
        order.items.shrink_to_fit();
        order.keys.shrink_to_fit();
        order.samples = Heads::new((0..order.items.len()).step_by(RECORDS_A_SAMPLE).map(|at| order.key(at)));
        order
    }

    /// Adds the next record.
    fn push(&mut self, Record { key, version, offset, kind }: Record<'_>) {
        let start = self.keys.len() as u32;
        self.keys.extend_from_slice(key);
        let tombstone = if kind == Kind::Tombstone { TOMBSTONE_BIT } else { 0 };
        self.items.push(Item { version, start, offset_and_kind: offset as u32 | tombstone });
    }

    fn records(&self) -> impl Iterator<Item = Record<'_>> {
        (0..self.items.len()).map(|at| self.record(at))
    }

    fn record(&self, at: usize) -> Record<'_> {
        let item = &self.items[at];
        let kind = if item.offset_and_kind & TOMBSTONE_BIT == 0 { Kind::Put } else { Kind::Tombstone };
        let offset = u64::from(item.offset_and_kind & !TOMBSTONE_BIT);
        Record { key: self.key(at), version: item.version, offset, kind }
    }

    fn key(&self, at: usize) -> &[u8] {
        let end = self.items.get(at + 1).map_or(self.keys.len(), |next| next.start as usize);
        &self.keys[self.items[at].start as usize..end]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.capacity() + self.items.capacity() * size_of::<Item>() + self.samples.bytes()
    }

    /// Where the records of `range` lie in the log, in the order of their keys.
    pub(super) fn offsets(&self, range: &KeyRange) -> impl Iterator<Item = u64> {
        self.positions_of(range).map(|at| self.record(at).offset)
    }

    fn positions_of(&self, range: &KeyRange) -> Range<usize> {
        let start = self.lower_bound(&range.start);
        let end = range.end.as_deref().map_or(self.items.len(), |end| self.lower_bound_from(start, end));
        start..end
    }

    /// The position of the first record whose key is `>= key`, or the count of records.
    fn lower_bound(&self, key: &[u8]) -> usize {
        let sample = self.samples.lower_bound(key, |sample| self.key(sample * RECORDS_A_SAMPLE));
        // It is that record, or one of those behind the sample before.
        let from = sample.checked_sub(1).map_or(0, |before| before * RECORDS_A_SAMPLE + 1);
        self.lower_bound_among(from..(sample * RECORDS_A_SAMPLE).min(self.items.len()), key)
    }

    /// The same, where that is not before `start`. A scan ends near where it begins, so it is looked for
    /// there first.
    fn lower_bound_from(&self, start: usize, key: &[u8]) -> usize {
        let (mut low, mut step) = (start, 1);
        while let at = start + step - 1
            && at < self.items.len()
            && self.key(at) < key
        {
            low = at + 1;
            step *= 2;
        }
        self.lower_bound_among(low..(start + step - 1).min(self.items.len()), key)
    }

    fn lower_bound_among(&self, Range { start: mut low, end: mut high }: Range<usize>, key: &[u8]) -> usize {
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// What a record takes of an order, in bytes.
fn order_bytes(key: &[u8]) -> u64 {
    (key.len() + size_of::<Item>()) as u64
}

/// Records in the order in which they are found.
#[derive(Default)]
struct Gathered {
    keys: Large,
    found: Vec<(Range<usize>, Version, u64, Kind)>,
}

impl Gathered {
    fn push(&mut self, Record { key, version, offset, kind }: Record<'_>) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.found.push((start..self.keys.len(), version, offset, kind));
    }

    fn records(&self) -> Vec<Record<'_>> {
        let record = |(key, version, offset, kind): &(Range<usize>, _, _, _)| Record {
            key: &self.keys[key.clone()],
            version: *version,
            offset: *offset,
            kind: *kind,
        };
        let mut records: Vec<Record<'_>> = self.found.iter().map(record).collect();
        if !records.is_sorted_by(|a, b| a.order() <= b.order()) {
            records.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        }
        records
    }

    /// The order of them all, which are those of this part of the log.
    fn sorted(self, place: Range<u64>) -> LogOrder {
        LogOrder::of(self.records().into_iter(), (self.keys.len(), place))
    }
}

/// The orders of a log, oldest part first, each beginning where the one before ends.
#[derive(Default)]
pub(crate) struct Orders {
    orders: Vec<(Arc<LogOrder>, Charge)>,
    /// What parts that could not be kept take, in bytes, at least; zero if there was none.
    too_long: u64,
    /// Seconds that they are kept, at least, though memory is short.
    seconds_left: u8,
}

impl Orders {
    /// Those of a part of `log`, newest first; they may have records before and behind it as well. None if
    /// those that have to be made take more than `bytes_max`.
    pub(crate) fn of(
        &mut self,
        log: &ChunkLog,
        files: &Files,
        place: Range<u64>,
        (bytes_max, cost_bytes): (u64, Option<&AtomicU64>),
    ) -> Result<Option<Vec<Arc<LogOrder>>>> {
        self.seconds_left = SECONDS_KEPT;
        if self.orders.first().is_some_and(|(oldest, _)| oldest.place.start > place.start) {
            self.orders.clear();
        }
        let end = self.orders.last().map_or(place.start, |(newest, _)| newest.place.end);
        if end < place.end {
            if bytes_max < self.too_long {
                return Ok(None);
            }
            let (order, read) = LogOrder::read(log, files, end..place.end, bytes_max)?;
            if let Some(cost) = cost_bytes {
                // Relaxed: a statistic.
                cost.fetch_add(read, Relaxed);
            }
            match order {
                Ok(order) => {
                    self.too_long = 0;
                    self.push(order, files);
                }
                Err(bytes) => {
                    self.too_long = bytes;
                    return Ok(None);
                }
            }
        }
        Ok(Some(self.orders.iter().rev().map(|(order, _)| Arc::clone(order)).collect()))
    }

    /// Forgets what can be read again.
    pub(crate) fn forget(&mut self) {
        self.orders.clear();
    }

    fn push(&mut self, mut newest: LogOrder, files: &Files) {
        while let Some((older, _)) = self.orders.pop_if(|(o, _)| o.items.len() <= 2 * newest.items.len()) {
            newest = LogOrder::merged(&older, &newest);
        }
        let charge = files.budget.charge(parts::LOG_INDEXES, newest.memory_bytes() as u64);
        self.orders.push((Arc::new(newest), charge));
    }

    /// So many seconds have passed.
    pub(crate) fn age(&mut self, seconds: u32) {
        self.seconds_left = self.seconds_left.saturating_sub(u8::try_from(seconds).unwrap_or(u8::MAX));
    }

    /// Forgets them, if nobody has asked for them lately.
    pub(crate) fn forget_unread(&mut self) {
        if self.seconds_left == 0 {
            self.orders.clear();
        }
    }
}

#[cfg(test)]
mod tests;
