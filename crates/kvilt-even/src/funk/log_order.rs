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

mod packed;
mod pieces;
mod source;
mod versions;

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

use self::{
    packed::{BLOCK, Packed, Packing, Reader},
    versions::OffsetVersions,
};
pub(crate) use self::{
    pieces::Pieces,
    source::{OrderSource, Wanted},
};
use super::{log::ChunkLog, log_index::LOG_BYTES_LIMIT};
use crate::{files::Files, heads::Heads, parts};

/// So many seconds an order is kept after a scan has asked for it.
const SECONDS_KEPT: u8 = 3;

/// What a record takes of an order beside its key, in bytes, at most: the others of a block take less.
const RECORD_BYTES: usize = 20;

const _: () = assert!(LOG_BYTES_LIMIT <= u32::MAX as u64);

/// Keys of a part of a log, sorted: by key ascending, version descending, newest record first.
pub(crate) struct LogOrder {
    records: Packed,
    /// The heads of the first keys of blocks.
    samples: Heads,
    versions: OffsetVersions,
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
        let place = older.place.start..newer.place.end;
        let (mut old, mut new) = (Walk::new(older), Walk::new(newer));
        let mut packing = Unique::default();
        loop {
            let next = match (old.record(), new.record()) {
                (Some(a), Some(b)) if a.order() <= b.order() => &mut old,
                (_, Some(_)) => &mut new,
                (Some(_), None) => &mut old,
                (None, None) => break,
            };
            packing.push(next.record().expect("it was looked at"));
            next.advance();
        }
        Self::packed(packing, OffsetVersions::joined(&older.versions, &newer.versions), place)
    }

    /// From records in order.
    fn of<'k>(
        records: impl Iterator<Item = Record<'k>>,
        versions: OffsetVersions,
        place: Range<u64>,
    ) -> Self {
        let mut packing = Unique::default();
        records.for_each(|record| packing.push(record));
        Self::packed(packing, versions, place)
    }

    fn packed(packing: Unique, versions: OffsetVersions, place: Range<u64>) -> Self {
        let records = packing.packing.finish();
        let samples = Heads::new(records.first_keys());
        LogOrder { records, samples, versions, place }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.records.memory_bytes() + self.versions.memory_bytes() + self.samples.bytes()
    }

    /// Where the records of `range` lie in the log, in the order of their keys.
    pub(super) fn offsets(&self, range: &KeyRange) -> impl Iterator<Item = u64> {
        let mut reader = Reader::default();
        self.positions_of(range, &mut reader).map(move |at| reader.place(&self.records, at).0)
    }

    fn positions_of(&self, range: &KeyRange, reader: &mut Reader) -> Range<usize> {
        let start = self.lower_bound(&range.start, reader);
        let end = range.end.as_deref().map_or(self.records.len(), |end| self.lower_bound(end, reader));
        // A range may end before it begins.
        start..end.max(start)
    }

    /// The position of the first record whose key is `>= key`, or the count of records.
    fn lower_bound(&self, key: &[u8], reader: &mut Reader) -> usize {
        let block = self.samples.lower_bound(key, |block| self.records.first_key(block));
        // It is that block's first record, or one of those in the block before, but for its first.
        let Some(before) = block.checked_sub(1) else { return 0 };
        let end = (block * BLOCK).min(self.records.len());
        (before * BLOCK + 1..end).find(|at| reader.key(&self.records, *at) >= key).unwrap_or(end)
    }
}

/// Records of an order, one after the other.
struct Walk<'o> {
    order: &'o LogOrder,
    position: usize,
    reader: Reader,
}

impl<'o> Walk<'o> {
    fn new(order: &'o LogOrder) -> Self {
        Walk { order, position: 0, reader: Reader::default() }
    }

    /// The one where it stands; none at the end.
    fn record(&mut self) -> Option<Record<'_>> {
        let records = &self.order.records;
        if self.position == records.len() {
            return None;
        }
        let (offset, kind) = self.reader.place(records, self.position);
        let version = self.order.versions.at(offset);
        Some(Record { key: self.reader.key(records, self.position), version, offset, kind })
    }

    fn advance(&mut self) {
        self.position += 1;
    }
}

/// Packs records in order: of those that no view can tell apart the newest, which comes first.
#[derive(Default)]
struct Unique {
    packing: Packing,
    last_version: Version,
}

impl Unique {
    fn push(&mut self, Record { key, version, offset, kind }: Record<'_>) {
        if self.last_version == version && self.packing.last_key() == Some(key) {
            return;
        }
        self.packing.push(key, offset as u32, kind);
        self.last_version = version;
    }
}

/// What a record takes of an order, in bytes.
fn order_bytes(key: &[u8]) -> u64 {
    (key.len() + RECORD_BYTES) as u64
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
        let versions = self.found.iter().map(|(_, version, offset, _)| (*offset as u32, *version));
        let versions = OffsetVersions::new(versions.collect());
        LogOrder::of(self.records().into_iter(), versions, place)
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
        while let Some((older, _)) = self.orders.pop_if(|(o, _)| o.records.len() <= 2 * newest.records.len())
        {
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
