//! `LogOrder`: a part of a log in key order, made when a scan first asks for order.
//!
//! TeksDB's rule, applied to cold chunks: puts pay nothing for order, the first scan sorts. Only keys and offsets
//! are kept, and a record is read when the scan reaches it. What is appended later is sorted by itself when a scan comes
//! to it, and [`Orders`] keeps few parts by merging those of like size, so that a record is moved a logarithm of times.

mod source;

use std::{
    cmp::Ordering,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use kvilt_base::{Kind, Result, Version};
use kvilt_sync::budget::{Charge, Part};

pub(crate) use self::source::OrderSource;
use super::log::ChunkLog;
use crate::files::Files;

/// So many seconds an order is kept after a scan has asked for it.
const SECONDS_KEPT: u8 = 3;

struct Item {
    version: Version,
    offset: u64,
    /// Where the key begins in `keys`.
    start: u32,
    key_len: u32,
    kind: Kind,
}

/// Keys of a part of a log, sorted: by key ascending, version descending, newest record first.
pub(crate) struct LogOrder {
    keys: Vec<u8>,
    items: Vec<Item>,
    /// What of the log it covers.
    place: Range<u64>,
}

impl LogOrder {
    /// The keys of the records of `log` between two offsets; range tombstones are left out.
    fn read(log: &ChunkLog, files: &Files, place: Range<u64>) -> Result<Self> {
        let mut order = LogOrder { keys: Vec::new(), items: Vec::new(), place: place.clone() };
        log.for_each(files, place.start, place.end, &mut |offset, entry, _batch| {
            if entry.kind != Kind::RangeTombstone {
                order.push(entry.key, entry.version, entry.kind, offset);
            }
            Ok(())
        })?;
        let mut items = std::mem::take(&mut order.items);
        items.sort_unstable_by(|a, b| order.compare(a, &order, b));
        order.items = items;
        order.end();
        Ok(order)
    }

    /// Two parts, one behind the other, as one.
    fn merged(older: &LogOrder, newer: &LogOrder) -> Self {
        let mut order = LogOrder {
            keys: Vec::with_capacity(older.keys.len() + newer.keys.len()),
            items: Vec::with_capacity(older.items.len() + newer.items.len()),
            place: older.place.start..newer.place.end,
        };
        let (mut old, mut new) = (older.items.iter().peekable(), newer.items.iter().peekable());
        loop {
            let is_old = match (old.peek(), new.peek()) {
                (Some(a), Some(b)) => older.compare(a, newer, b) == Ordering::Less,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => break,
            };
            let (from, item) = if is_old { (older, old.next()) } else { (newer, new.next()) };
            let item = item.expect("it was looked at");
            order.push(from.key(item), item.version, item.kind, item.offset);
        }
        order.end();
        order
    }

    fn push(&mut self, key: &[u8], version: Version, kind: Kind, offset: u64) {
        // A log is shorter than what four bytes count, and its keys are.
        let start = self.keys.len() as u32;
        self.keys.extend_from_slice(key);
        self.items.push(Item { version, offset, start, key_len: key.len() as u32, kind });
    }

    /// All are there, and in order.
    fn end(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        // Of records that no view can tell apart the newest stays, which the order puts first.
        items.dedup_by(|b, a| a.version == b.version && self.key(a) == self.key(b));
        items.shrink_to_fit();
        self.items = items;
        self.keys.shrink_to_fit();
    }

    fn compare(&self, a: &Item, other: &LogOrder, b: &Item) -> Ordering {
        let newest_first = || (b.version, b.offset).cmp(&(a.version, a.offset));
        self.key(a).cmp(other.key(b)).then_with(newest_first)
    }

    fn key(&self, item: &Item) -> &[u8] {
        &self.keys[item.start as usize..][..item.key_len as usize]
    }

    fn memory_bytes(&self) -> usize {
        self.keys.capacity() + self.items.capacity() * size_of::<Item>()
    }

    fn lower_bound(&self, key: &[u8]) -> usize {
        self.items.partition_point(|item| self.key(item) < key)
    }
}

/// The orders of a log, oldest part first, each beginning where the one before ends.
#[derive(Default)]
pub(crate) struct Orders {
    orders: Vec<(Arc<LogOrder>, Charge)>,
    /// Seconds that they are kept, at least, though memory is short.
    seconds_left: u8,
}

impl Orders {
    /// Those of a part of `log`, newest first; they may have records before and behind it as well.
    pub(crate) fn of(
        &mut self,
        log: &ChunkLog,
        files: &Files,
        place: Range<u64>,
        cost_bytes: Option<&AtomicU64>,
    ) -> Result<Vec<Arc<LogOrder>>> {
        self.seconds_left = SECONDS_KEPT;
        if self.orders.first().is_some_and(|(oldest, _)| oldest.place.start > place.start) {
            self.orders.clear();
        }
        let end = self.orders.last().map_or(place.start, |(newest, _)| newest.place.end);
        if end < place.end {
            if let Some(cost) = cost_bytes {
                // Relaxed: a statistic.
                cost.fetch_add(place.end - end, Relaxed);
            }
            self.push(LogOrder::read(log, files, end..place.end)?, files);
        }
        Ok(self.orders.iter().rev().map(|(order, _)| Arc::clone(order)).collect())
    }

    fn push(&mut self, mut newest: LogOrder, files: &Files) {
        while let Some((older, _)) = self.orders.pop_if(|(o, _)| o.items.len() <= 2 * newest.items.len()) {
            newest = LogOrder::merged(&older, &newest);
        }
        let charge = files.budget.charge(Part::LogIndexes, newest.memory_bytes() as u64);
        self.orders.push((Arc::new(newest), charge));
    }

    /// A second has passed.
    pub(crate) fn age(&mut self) {
        self.seconds_left = self.seconds_left.saturating_sub(1);
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
