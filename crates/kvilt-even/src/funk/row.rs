//! `Row`: where a record that was read from a log lies in memory, and the one rule by which rows are put in
//! order.

use std::ops::Range;

use kvilt_base::{EntryRef, Kind, Version};

/// A record among the bytes that were kept of it and others.
pub(super) struct Row {
    /// How many were written before it. Where its bytes lie would not tell: an empty key with an empty value
    /// has none.
    number: usize,
    key: Range<usize>,
    value: Range<usize>,
    version: Version,
    kind: Kind,
    /// Its value is not among the bytes.
    is_streamed: bool,
}

impl Row {
    /// The row of `entry`, the `number`-th, of which key and value begin at these places.
    pub(super) fn new(number: usize, entry: &EntryRef<'_>, key: usize, value: usize) -> Self {
        Row {
            number,
            key: key..key + entry.key.len(),
            value: value..value + entry.value.len(),
            version: entry.version,
            kind: entry.kind,
            is_streamed: false,
        }
    }

    /// The same of a row whose value is the `at`-th of those that are streamed.
    pub(super) fn streamed(number: usize, entry: &EntryRef<'_>, key: usize, at: usize) -> Self {
        Row { value: at..at, is_streamed: true, ..Row::new(number, entry, key, 0) }
    }

    /// Which of the values that are streamed is its own, if one is.
    pub(super) fn streamed_at(&self) -> Option<usize> {
        self.is_streamed.then_some(self.value.start)
    }

    /// Its key among `bytes`.
    pub(super) fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.key.clone()]
    }

    /// The record, its key and value among `bytes`.
    pub(super) fn entry<'b>(&self, bytes: &'b [u8]) -> EntryRef<'b> {
        let value = if self.is_streamed { &[] } else { &bytes[self.value.clone()] };
        EntryRef { key: self.key(bytes), version: self.version, kind: self.kind, value }
    }
}

/// Puts rows, which are in the order written, into that of a source: by key ascending, version descending. Of
/// records that no view can tell apart the newest stays.
pub(super) fn sort(rows: &mut Vec<Row>, bytes: &[u8]) {
    if rows.is_sorted_by(|a, b| a.key(bytes) < b.key(bytes)) {
        return;
    }
    let age = |row: &Row| (row.version, row.number);
    rows.sort_unstable_by(|a, b| a.key(bytes).cmp(b.key(bytes)).then_with(|| age(b).cmp(&age(a))));
    rows.dedup_by(|b, a| a.version == b.version && a.key(bytes) == b.key(bytes));
}
