//! `Rows`: who takes the rows of a scan; `RowBatch`: rows copied out of the store, contiguously.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::{KeyRange, Value, limits};

/// Takes rows in the order of a scan.
pub trait Rows {
    /// Takes a row, in place: what it wants to keep it must copy. Breaks if it wants no more.
    fn take(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()>;

    /// How many more rows it takes at most, if it knows: as many are worth reading from files together. A
    /// hint: it never changes which rows are given. A scan whose `rows` broke and want 0 more may end as
    /// [`Scanned::Enough`].
    fn wanted(&self) -> Option<u64> {
        None
    }
}

/// How a scan came to its end, if by no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// All rows of the range were given.
    Ended,
    /// This is left of the range, to be scanned next: the rows broke, or the engine returned early.
    Left(KeyRange),
    /// The rows broke and [want](Rows::wanted) 0 more. What is left of the range was not found out.
    Enough,
}

impl Scanned {
    /// What is left of the range and known to be, if anything is.
    pub fn left(self) -> Option<KeyRange> {
        match self {
            Scanned::Left(range) => Some(range),
            Scanned::Ended | Scanned::Enough => None,
        }
    }
}

/// A closure takes rows, too.
impl<F: FnMut(&[u8], &[u8]) -> ControlFlow<()>> Rows for F {
    fn take(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        self(key, value)
    }
}

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

impl Rows for RowBatch {
    fn take(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        self.push(key, value);
        if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_out_as_they_went_in() {
        let mut batch = RowBatch::new(10, 100, false);
        assert!(batch.take(b"a", b"1").is_continue());
        assert!(batch.take(b"", b"").is_continue());
        assert!(batch.take(b"ccc", b"33333333").is_break());
        let rows: Vec<_> = batch.into_rows().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        assert_eq!(rows[1], (vec![], vec![]));
        assert_eq!(rows[2], (b"ccc".to_vec(), b"33333333".to_vec()));
    }
}
