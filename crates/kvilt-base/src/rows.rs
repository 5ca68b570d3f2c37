//! `Rows`: who takes the rows of a scan; `RowBatch`: rows copied out of the store, contiguously.

use std::{
    cell::Cell,
    mem,
    ops::{ControlFlow, Range},
};

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

/// Rows copied out of the store by one step of a scan. Filled by an engine, drained by the scan.
#[derive(Debug)]
pub struct RowBatch {
    memory: Memory,
    bytes_wanted: usize,
    rows_wanted: usize,
    keys_only: bool,
}

/// What the rows of a batch lie in.
#[derive(Debug, Default)]
struct Memory {
    bytes: Vec<u8>,
    /// End of the key and end of the value of each row, in `bytes`.
    ends: Vec<(usize, usize)>,
}

/// A thread keeps the memory of one batch whose rows are all gone for its next one, unless it has more bytes
/// than this: a full batch and a last row of the same length.
const SPARE_BYTES_MAX: usize = 2 * limits::SCAN_BATCH_BYTES_MAX;

/// Memory of at most as many bytes is left to few rows. Of more, rows get at most twice what they need.
const SMALL_BYTES_MAX: usize = 1 << 10;

thread_local! {
    static SPARE: Cell<Memory> = const { Cell::new(Memory { bytes: Vec::new(), ends: Vec::new() }) };
}

impl Memory {
    /// That of an earlier batch of this thread, if there is one.
    fn take() -> Self {
        SPARE.try_with(Cell::take).unwrap_or_default()
    }

    /// Keeps it for the next batch of this thread, unless there is more already.
    fn give_back(mut self) {
        let ends_bytes = self.ends.capacity() * size_of::<(usize, usize)>();
        if self.bytes.capacity() <= SPARE_BYTES_MAX && ends_bytes <= SPARE_BYTES_MAX {
            self.bytes.clear();
            self.ends.clear();
            // A thread that ends needs none.
            let _ = SPARE.try_with(|spare| {
                let other = spare.take();
                let is_larger = self.bytes.capacity() > other.bytes.capacity();
                spare.set(if is_larger { self } else { other });
            });
        }
    }
}

impl RowBatch {
    /// An empty batch that is full at `bytes_wanted` bytes or `rows_wanted` rows, whichever comes first.
    pub fn new(bytes_wanted: usize, rows_wanted: usize, keys_only: bool) -> Self {
        RowBatch { memory: Memory::take(), bytes_wanted, rows_wanted, keys_only }
    }

    /// Adds a row. A full batch still takes one: a row is never cut.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let value = if self.keys_only { &[] } else { value };
        self.make_room(key.len() + value.len());
        let Memory { bytes, ends } = &mut self.memory;
        bytes.extend_from_slice(key);
        let key_end = bytes.len();
        bytes.extend_from_slice(value);
        ends.push((key_end, bytes.len()));
    }

    /// For a row, and if there is none yet for the whole batch: the rows that follow may be as long.
    fn make_room(&mut self, row_bytes: usize) {
        let Memory { bytes, ends } = &mut self.memory;
        if bytes.capacity() - bytes.len() < row_bytes {
            let rows_left = self.rows_wanted.saturating_sub(ends.len());
            let bytes_left = self.bytes_wanted.min(limits::SCAN_BATCH_BYTES_MAX).saturating_sub(bytes.len());
            bytes.reserve(row_bytes.saturating_mul(rows_left).min(bytes_left).saturating_add(row_bytes));
        }
    }

    /// Whether it has what was wanted.
    pub fn is_full(&self) -> bool {
        self.memory.bytes.len() >= self.bytes_wanted || self.len() >= self.rows_wanted
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.memory.ends.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.memory.ends.is_empty()
    }

    /// The rows; keys and values share one allocation.
    pub fn into_rows(self) -> BatchRows {
        let Memory { mut bytes, ends } = self.memory;
        if bytes.capacity() > SMALL_BYTES_MAX && bytes.len() < bytes.capacity() / 2 {
            // A row that is kept would keep all of it.
            let few = bytes.as_slice().to_vec();
            Memory { bytes: mem::replace(&mut bytes, few), ends: Vec::new() }.give_back();
        }
        BatchRows { bytes: Bytes::from(bytes), left: 0..ends.len(), ends, prefix_len: 0 }
    }
}

impl Rows for RowBatch {
    fn take(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        self.push(key, value);
        if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Never 0: the other end of a range may want what is left behind this batch.
    fn wanted(&self) -> Option<u64> {
        let wanted = self.rows_wanted.saturating_sub(self.len());
        (1..usize::MAX / 2).contains(&wanted).then_some(wanted as u64)
    }
}

/// The rows of a batch that were not handed out yet, taken from either end.
///
/// When it is dropped, and no row of it is kept, its memory serves the next batch of the thread.
#[derive(Debug, Default)]
pub struct BatchRows {
    bytes: Bytes,
    ends: Vec<(usize, usize)>,
    left: Range<usize>,
    /// Bytes cut off each key.
    prefix_len: usize,
}

impl BatchRows {
    /// The same without the first `prefix_len` bytes of each key.
    #[must_use]
    pub fn without_prefix(mut self, prefix_len: usize) -> Self {
        self.prefix_len = prefix_len;
        self
    }

    #[inline(always)]
    fn row(&self, i: usize) -> (Value, Value) {
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before].1) + self.prefix_len;
        let (key_end, end) = self.ends[i];
        (Value::part(&self.bytes, start..key_end), Value::part(&self.bytes, key_end..end))
    }
}

impl Iterator for BatchRows {
    type Item = (Value, Value);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.left.next().map(|i| self.row(i))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl DoubleEndedIterator for BatchRows {
    #[inline(always)]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left.next_back().map(|i| self.row(i))
    }
}

impl ExactSizeIterator for BatchRows {}

impl Drop for BatchRows {
    fn drop(&mut self) {
        let bytes = mem::take(&mut self.bytes);
        if bytes.is_unique() {
            // No byte is copied, as nobody else has them.
            Memory { bytes: Vec::from(bytes), ends: mem::take(&mut self.ends) }.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(key: &[u8], value: &[u8]) -> BatchRows {
        let mut batch = RowBatch::new(1 << 10, 100, false);
        batch.push(key, value);
        batch.into_rows()
    }

    /// Where the memory lies that this thread keeps for its next batch.
    fn spare_place() -> *const u8 {
        SPARE.with(|spare| {
            let memory = spare.take();
            let place = memory.bytes.as_ptr();
            spare.set(memory);
            place
        })
    }

    /// The second batch lies where the first lay, the third does not, for somebody keeps a row of the second.
    #[test]
    fn the_memory_of_a_batch_is_used_again_when_its_rows_are_gone() {
        let long = [7; 100];
        // Full with one row: such rows stay where they are.
        let full = |key: &[u8]| {
            let mut batch = RowBatch::new(100, 100, false);
            assert!(batch.take(key, &long).is_break());
            batch.into_rows()
        };
        let place = |rows: &BatchRows| rows.bytes.as_ptr();
        let first = full(b"first");
        let first_place = place(&first);
        drop(first);
        assert_eq!(spare_place(), first_place);
        let mut second = full(b"second");
        assert_eq!(place(&second), first_place);
        let (key, value) = second.next().unwrap();
        drop(second);
        assert_ne!(place(&full(b"third")), first_place);
        assert_eq!((&key[..], &value[..]), (&b"second"[..], &long[..]));
    }

    /// A row that is kept for long keeps at most as much as its batch needed twice.
    #[test]
    fn few_rows_do_not_keep_the_memory_of_many() {
        drop(filled(b"key", &vec![0; 100_000]));
        let place = spare_place();
        let mut few = filled(b"key", &[7; 100]);
        assert_ne!(few.bytes.as_ptr(), place);
        let value = few.next().unwrap().1;
        drop(few);
        assert_eq!(filled(b"key", &vec![0; 90_000]).bytes.as_ptr(), place, "it serves the next long batch");
        assert_eq!(value, [7; 100].to_vec());
    }

    #[test]
    fn the_memory_of_a_batch_that_became_large_is_not_kept() {
        drop(filled(b"key", &vec![0; SPARE_BYTES_MAX + 1]));
        assert_eq!(SPARE.take().bytes.capacity(), 0);
    }

    #[test]
    fn rows_come_out_of_both_ends_without_their_prefix() {
        let mut batch = RowBatch::new(1 << 10, 100, false);
        for key in [&b"p/a"[..], b"p/b", b"p/"] {
            batch.push(key, b"value");
        }
        let mut rows = batch.into_rows().without_prefix(2);
        assert_eq!(rows.len(), 3);
        assert_eq!(rows.next_back().unwrap().0, b"");
        assert_eq!(rows.next().unwrap(), (Value::copied(b"a"), Value::copied(b"value")));
        assert_eq!(rows.next().unwrap().0, b"b");
        assert!(rows.next().is_none() && rows.next_back().is_none());
    }

    /// The other end of a range asks for what is left of it, so a batch never says that it wants none.
    #[test]
    fn a_batch_tells_how_many_rows_it_wants_until_it_has_them() {
        let mut batch = RowBatch::new(1 << 10, 2, false);
        assert_eq!(batch.wanted(), Some(2));
        assert!(batch.take(b"a", b"").is_continue());
        assert_eq!(batch.wanted(), Some(1));
        assert!(batch.take(b"b", b"").is_break());
        assert_eq!(batch.wanted(), None);
        assert_eq!(RowBatch::new(1 << 10, usize::MAX, false).wanted(), None);
    }

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
