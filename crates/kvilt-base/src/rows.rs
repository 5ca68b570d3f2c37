//! `RowBatch`: rows copied out of the store, contiguously, for a scan to hand out.

use bytes::Bytes;

use crate::{Value, limits};

/// A batch of rows in the order of a scan. Filled by an engine, drained by the scan.
#[derive(Debug)]
pub struct RowBatch {
    bytes: Vec<u8>,
    /// End of the key and end of the value of each row, in `bytes`.
    ends: Vec<(usize, usize)>,
    bytes_wanted: usize,
    rows_wanted: usize,
    keys_only: bool,
}

impl RowBatch {
    /// An empty batch that is full at `bytes_wanted` bytes or `rows_wanted` rows, whichever comes first.
    pub fn new(bytes_wanted: usize, rows_wanted: usize, keys_only: bool) -> Self {
        let reserve = bytes_wanted.min(limits::SCAN_BATCH_BYTES_MAX);
        RowBatch {
            bytes: Vec::with_capacity(reserve),
            ends: Vec::new(),
            bytes_wanted,
            rows_wanted,
            keys_only,
        }
    }

    /// Adds a row. A full batch still takes one: a row is never cut.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        if !self.keys_only {
            self.bytes.extend_from_slice(value);
        }
        self.ends.push((key_end, self.bytes.len()));
    }

    /// Whether it has what was wanted.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= self.bytes_wanted || self.ends.len() >= self.rows_wanted
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key of the last row.
    pub fn last_key(&self) -> Option<&[u8]> {
        let &(key_end, _) = self.ends.last()?;
        let start = self.ends.len().checked_sub(2).map_or(0, |i| self.ends[i].1);
        Some(&self.bytes[start..key_end])
    }

    /// The rows; keys and values share one allocation.
    pub fn into_rows(self) -> impl DoubleEndedIterator<Item = (Value, Value)> + ExactSizeIterator {
        let bytes = Bytes::from(self.bytes);
        let ends = self.ends;
        (0..ends.len()).map(move |i| {
            let start = i.checked_sub(1).map_or(0, |before| ends[before].1);
            let (key_end, end) = ends[i];
            (Value::from(bytes.slice(start..key_end)), Value::from(bytes.slice(key_end..end)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_out_as_they_went_in() {
        let mut batch = RowBatch::new(10, 100, false);
        batch.push(b"a", b"1");
        assert_eq!(batch.last_key(), Some(b"a".as_slice()));
        batch.push(b"", b"");
        assert!(!batch.is_full());
        batch.push(b"ccc", b"33333333");
        assert!(batch.is_full());
        assert_eq!(batch.last_key(), Some(b"ccc".as_slice()));
        let rows: Vec<_> = batch.into_rows().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        assert_eq!(rows[1], (vec![], vec![]));
        assert_eq!(rows[2], (b"ccc".to_vec(), b"33333333".to_vec()));
    }
}
