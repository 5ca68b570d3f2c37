//! `LogOrder`: a log's records in key order, made when a scan or a rewrite first asks for order.
//!
//! TeksDB's rule, applied to cold chunks: puts pay nothing for order, the first scan sorts. For a scan only
//! keys and offsets are kept, and a record is read when the scan reaches it; for a rewrite, which needs every
//! value, they are kept too, because one pass over the file beats many small reads.

use std::{cmp::Ordering, ops::Range, sync::Arc};

use kvilt_base::{Direction, EntryRef, KeyRange, Kind, Result, Source, Version};

use super::log::{ChunkLog, ROTATE_BYTES};
use crate::{files::Files, growing::Growing};

struct Item {
    /// Where the key begins in `bytes`; the value follows if values are kept.
    start: usize,
    key_len: u32,
    value_len: u32,
    version: Version,
    kind: Kind,
    offset: u64,
}

/// Keys (and maybe values) of a log up to some length, sorted: by key ascending, version descending, newest
/// record first.
pub(crate) struct LogOrder {
    bytes: Growing,
    items: Vec<Item>,
    has_values: bool,
    /// What of the log it covers.
    place: Range<u64>,
}

impl LogOrder {
    /// The keys of the records of `log` between two offsets; range tombstones are left out.
    pub(crate) fn read(log: &ChunkLog, files: &Files, place: Range<u64>) -> Result<Self> {
        let mut order =
            LogOrder { bytes: Growing::with_capacity(0)?, items: Vec::new(), has_values: false, place };
        order.fill(log, files, &mut |_| true)?;
        Ok(order)
    }

    /// The rows of `range` in the first `upto` bytes of `log`, with their values; range tombstones are left out.
    /// A log that siblings share may be many times as long as what one of them has in it.
    pub(crate) fn read_rows(log: &ChunkLog, files: &Files, upto: u64, range: &KeyRange) -> Result<Self> {
        // Pages that are not written to take no memory; growing by halves would take half as much again.
        let bytes = Growing::with_capacity(upto.min(ROTATE_BYTES) as usize)?;
        let mut order = LogOrder { bytes, items: Vec::new(), has_values: true, place: 0..upto };
        order.fill(log, files, &mut |key| range.contains(key))?;
        Ok(order)
    }

    fn fill(
        &mut self,
        log: &ChunkLog,
        files: &Files,
        is_wanted: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        log.for_each(files, self.place.start, self.place.end, &mut |offset, entry, _batch| {
            if entry.kind != Kind::RangeTombstone && is_wanted(entry.key) {
                self.push(offset, entry)?;
            }
            Ok(())
        })?;
        let mut items = std::mem::take(&mut self.items);
        items.sort_unstable_by(|a, b| self.compare(a, b));
        // Of records that no view can tell apart the newest stays, which the order puts first.
        items.dedup_by(|b, a| a.version == b.version && self.key(a) == self.key(b));
        items.shrink_to_fit();
        self.items = items;
        Ok(())
    }

    fn push(&mut self, offset: u64, entry: EntryRef<'_>) -> Result<()> {
        let start = self.bytes.push(entry.key)?;
        if self.has_values {
            self.bytes.push(entry.value)?;
        }
        self.items.push(Item {
            start,
            key_len: entry.key.len() as u32,
            value_len: entry.value.len() as u32,
            version: entry.version,
            kind: entry.kind,
            offset,
        });
        Ok(())
    }

    fn compare(&self, a: &Item, b: &Item) -> Ordering {
        let newest_first = || (b.version, b.offset).cmp(&(a.version, a.offset));
        self.key(a).cmp(self.key(b)).then_with(newest_first)
    }

    fn key(&self, item: &Item) -> &[u8] {
        &self.bytes.as_slice()[item.start..item.start + item.key_len as usize]
    }

    /// Whether it has all records of this part of the log.
    pub(crate) fn covers(&self, place: &Range<u64>) -> bool {
        self.place.start <= place.start && place.end <= self.place.end
    }

    /// Memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.items.capacity() * size_of::<Item>()
    }

    fn lower_bound(&self, key: &[u8]) -> usize {
        self.items.partition_point(|item| self.key(item) < key)
    }
}

/// Walks a part of a log in key order. With a view, of each key only the record that it may see.
pub(crate) struct LogSource<'f> {
    order: Arc<LogOrder>,
    log: Arc<ChunkLog>,
    files: &'f Files,
    remaining: Range<usize>,
    direction: Direction,
    view: Option<Version>,
    /// Where it stands; none at the end.
    position: Option<usize>,
    /// The value of the current entry, where the order does not keep it.
    value: Vec<u8>,
}

impl<'f> LogSource<'f> {
    /// The entries of `range`, in `direction`.
    pub(crate) fn new(
        order: Arc<LogOrder>,
        log: Arc<ChunkLog>,
        files: &'f Files,
        range: &KeyRange,
        direction: Direction,
        view: Option<Version>,
    ) -> Result<Self> {
        let start = order.lower_bound(&range.start);
        let end = range.end.as_deref().map_or(order.items.len(), |end| order.lower_bound(end)).max(start);
        let remaining = start..end;
        let mut source =
            LogSource { order, log, files, remaining, direction, view, position: None, value: Vec::new() };
        source.advance()?;
        Ok(source)
    }

    /// Takes the next position off what remains.
    fn next_position(&mut self) -> Option<usize> {
        let Some(view) = self.view else {
            return match self.direction {
                Direction::Forward => self.remaining.next(),
                Direction::Backward => self.remaining.next_back(),
            };
        };
        loop {
            let records = self.next_key()?;
            let items = &self.order.items[records.clone()];
            let first_visible = records.start + items.partition_point(|item| item.version > view);
            if first_visible < records.end {
                return Some(first_visible);
            }
        }
    }

    /// Takes all records of the next key off what remains.
    fn next_key(&mut self) -> Option<Range<usize>> {
        if self.remaining.is_empty() {
            return None;
        }
        let items = &self.order.items[self.remaining.clone()];
        match self.direction {
            Direction::Forward => {
                let key = self.order.key(&items[0]);
                let count = items.iter().take_while(|item| self.order.key(item) == key).count();
                let records = self.remaining.start..self.remaining.start + count;
                self.remaining.start = records.end;
                Some(records)
            }
            Direction::Backward => {
                let key = self.order.key(&items[items.len() - 1]);
                let count = items.iter().rev().take_while(|item| self.order.key(item) == key).count();
                let records = self.remaining.end - count..self.remaining.end;
                self.remaining.end = records.start;
                Some(records)
            }
        }
    }

    fn read_value(&mut self) -> Result<()> {
        let Some(item) = self.position.map(|at| &self.order.items[at]) else { return Ok(()) };
        if self.order.has_values || item.value_len == 0 {
            return Ok(());
        }
        let offset = item.offset;
        let mut value = std::mem::take(&mut self.value);
        value.clear();
        self.log.record_at(self.files, offset, |entry, _| value.extend_from_slice(entry.value))?;
        self.value = value;
        Ok(())
    }
}

impl Source for LogSource<'_> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        let item = &self.order.items[self.position?];
        let value_start = item.start + item.key_len as usize;
        let value = match (self.order.has_values, item.value_len) {
            (true, len) => &self.order.bytes.as_slice()[value_start..value_start + len as usize],
            (false, 0) => &[],
            (false, _) => &self.value,
        };
        Some(EntryRef { key: self.order.key(item), version: item.version, kind: item.kind, value })
    }

    fn advance(&mut self) -> Result<()> {
        self.position = self.next_position();
        self.read_value()
    }
}
