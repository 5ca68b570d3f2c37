//! `Row`: where a record that was read from a log lies in memory, and the one rule by which rows are put in
//! order.

use std::ops::Range;

use kvilt_base::{EntryRef, Kind, Result, Version, key::shared_prefix_len};

use crate::heads::head;

/// A record among the bytes that were kept of it and others.
pub(super) struct Row {
    /// How many were written before it. Where its bytes lie would not tell: an empty key with an empty value
    /// has none.
    number: usize,
    /// What tells most keys apart, once they are sorted: to compare whole ones is to wait for memory.
    head: u64,
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
            head: 0,
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
/// records that no view can tell apart the newest stays. Each of the others goes to `verify` when it is
/// dropped: what it is dropped for, its key and its version, has to be right.
pub(super) fn sort(
    rows: &mut Vec<Row>,
    bytes: &[u8],
    verify: &mut dyn FnMut(&Row) -> Result<()>,
) -> Result<()> {
    if rows.is_sorted_by(|a, b| a.key(bytes) < b.key(bytes)) {
        return Ok(());
    }
    let first = rows[0].key(bytes);
    let shared = rows.iter().fold(first.len(), |len, row| shared_prefix_len(&first[..len], row.key(bytes)));
    rows.iter_mut().for_each(|row| row.head = head(row.key(bytes), shared));
    let age = |row: &Row| (row.version, row.number);
    let key = |row: &Row| row.key(bytes);
    rows.sort_unstable_by(|a, b| {
        a.head.cmp(&b.head).then_with(|| key(a).cmp(key(b))).then_with(|| age(b).cmp(&age(a)))
    });
    let mut verified = Ok(());
    rows.dedup_by(|b, a| {
        let is_dropped = a.version == b.version && a.key(bytes) == b.key(bytes);
        if is_dropped && verified.is_ok() {
            verified = verify(b);
        }
        is_dropped
    });
    verified
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use kvilt_base::{Kind, Version};

    use super::*;

    /// Keys that heads do not tell apart: equal ones, beginnings of others, and those that differ late.
    const KEYS: [&[u8]; 9] =
        [b"", b"app", b"app\0", b"app\0\0", b"app12345678", b"app12345678b", b"app12345678a", b"apq", b"app"];

    #[test]
    fn rows_are_sorted_by_key_and_newest_first_whatever_keys_share() {
        for shared in [&b""[..], b"of all keys/"] {
            let mut bytes = Vec::new();
            let mut rows = Vec::new();
            for (number, version) in [3, 1, 2, 3].into_iter().enumerate() {
                for (i, key) in KEYS.into_iter().enumerate() {
                    let key = [shared, key].concat();
                    let version = Version::new(1, version);
                    let entry = EntryRef { key: &key, version, kind: Kind::Put, value: &[] };
                    rows.push(Row::new(number * KEYS.len() + i, &entry, bytes.len(), 0));
                    bytes.extend_from_slice(&key);
                }
            }
            let told = |row: &Row| (row.key(&bytes).to_vec(), Reverse((row.version, row.number)));
            let mut expected: Vec<_> = rows.iter().map(told).collect();
            expected.sort();
            // The newest of one key and version.
            let mut expected_dropped = 0;
            expected.dedup_by(|b, a| {
                let is_dropped = a.0 == b.0 && a.1.0.0 == b.1.0.0;
                expected_dropped += usize::from(is_dropped);
                is_dropped
            });
            let mut dropped = Vec::new();
            sort(&mut rows, &bytes, &mut |row| {
                dropped.push(told(row));
                Ok(())
            })
            .unwrap();
            assert_eq!(rows.iter().map(told).collect::<Vec<_>>(), expected);
            assert!(dropped.len() == expected_dropped && dropped.iter().all(|row| !expected.contains(row)));
        }
    }
}
