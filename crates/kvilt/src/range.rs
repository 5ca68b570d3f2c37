//! `Range` and `Keys`: lazy, owned, double-ended walks over rows of one moment.
//!
//! A range asks the engine for rows in batches, from the front and from the back independently; what neither
//! end has asked for yet is `unread`. The rows in hand lie in `front` (ascending) and `back` (descending), so
//! that the whole is always: rows of `front`, then `unread`, then rows of `back` reversed.

use std::{fmt, iter::FusedIterator, ops::ControlFlow, sync::Arc};

use kvilt_base::{
    BatchRows, Direction, Error, KeyRange, ReadView, Result, RowBatch, Rows, Value,
    limits::{SCAN_BATCH_BYTES_FIRST, SCAN_BATCH_BYTES_MAX},
};

use crate::{space::Space, store::Store};

/// A key and its value, as a scan gives them.
pub type Row = (Value, Value);

/// The rows of a range of keys, in order, as they were when the range was made.
///
/// Made by `range`, `prefix` and `iter` of [`crate::Db`], [`crate::Keyspace`] and [`crate::Snapshot`].
///
/// * **Lazy.** Nothing is read before the first row is asked for. Rows are copied out of the store in batches
///   of up to 128 KiB. Without a [limit](Range::limit) the first has 4 KiB, and each further one twice as
///   much: a short scan costs little, a long one asks seldom.
/// * **Owned.** It borrows nothing, may be sent to another thread, and may outlive the [`crate::Db`] that
///   made it; the store stays open until it is dropped.
/// * **One moment.** It sees the store as of the call that made it. Writes go on meanwhile; old versions that
///   it may need are kept until it ends or is dropped, so do not keep one for hours without need.
/// * **Double-ended**: `rev()`, or `next` and `next_back` in turns; no row is given twice.
/// * **At most one error.** After an error it is at its end, so a loop cannot spin on a broken disk.
///
/// ```
/// # fn main() -> kvilt::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = kvilt::Db::open(dir.path().join("events"))?;
/// for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
///     db.put(key, value)?;
/// }
/// for row in db.range("a".."c").rev() {
///     let (key, value) = row?;
///     println!("{key:?} = {value:?}");
/// }
/// let last = db.iter().next_back().transpose()?;
/// assert_eq!(last.unwrap().0, b"c");
/// # Ok(())
/// # }
/// ```
pub struct Range {
    store: Arc<Store>,
    /// Given back as soon as all rows are read, so that a finished scan keeps no old versions.
    view: Option<Arc<ReadView>>,
    /// What to report instead of the first row.
    failed: Option<Error>,
    unread: Option<KeyRange>,
    front: BatchRows,
    back: BatchRows,
    bytes_wanted_front: usize,
    bytes_wanted_back: usize,
    /// Bytes of the keyspace prefix, cut off every key.
    prefix_len: usize,
    /// Rows that may still be given.
    limit: usize,
    keys_only: bool,
}

/// Shows rows in place until a limit.
struct Shown<F> {
    row: F,
    prefix_len: usize,
    /// Rows that may still be shown.
    left: usize,
    is_over: bool,
}

impl<F: FnMut(&[u8], &[u8]) -> ControlFlow<()>> Shown<F> {
    /// Shows a row whose key has no prefix any more.
    fn show(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        self.left -= 1;
        self.is_over = (self.row)(key, value).is_break() || self.left == 0;
        if self.is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl<F: FnMut(&[u8], &[u8]) -> ControlFlow<()>> Rows for Shown<F> {
    fn take(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        self.show(&key[self.prefix_len..], value)
    }

    fn wanted(&self) -> Option<u64> {
        if self.is_over {
            return Some(0);
        }
        (self.left < usize::MAX / 2).then_some(self.left as u64)
    }
}

impl Range {
    /// The rows of a range of one keyspace. A view that could not be opened is reported by the first `next`.
    pub(crate) fn new(
        store: &Arc<Store>,
        space: &Space,
        view: impl FnOnce() -> Result<Arc<ReadView>>,
        range: &KeyRange,
    ) -> Self {
        let mut this = Range {
            store: Arc::clone(store),
            view: None,
            failed: None,
            unread: None,
            front: BatchRows::default(),
            back: BatchRows::default(),
            bytes_wanted_front: SCAN_BATCH_BYTES_FIRST,
            bytes_wanted_back: SCAN_BATCH_BYTES_FIRST,
            prefix_len: space.prefix().len(),
            limit: usize::MAX,
            keys_only: false,
        };
        if !range.is_empty() {
            match view() {
                Ok(view) => {
                    this.view = Some(view);
                    this.unread = Some(space.range(range));
                }
                Err(error) => this.failed = Some(error),
            }
        }
        this
    }

    /// At most `rows` more rows, counted over both ends. Better than [`Iterator::take`]: what is not wanted
    /// is not read, and `rev` still works.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("events"))?;
    /// for key in ["a", "b", "c", "d"] {
    ///     db.put(key, "")?;
    /// }
    /// let newest: Vec<_> = db.iter().limit(2).rev().map(|row| row.unwrap().0).collect();
    /// assert_eq!(newest, [b"d", b"c"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// The keys alone. Values are not copied out of the store.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("events"))?;
    /// db.put("a", vec![0; 1_000_000])?;
    /// let keys = db.iter().keys().collect::<kvilt::Result<Vec<_>>>()?;
    /// assert_eq!(keys, [b"a"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keys(mut self) -> Keys {
        self.keys_only = true;
        Keys(self)
    }

    /// Shows the rows that are left to `row`, first to last, in place and without a copy, until it breaks.
    /// Costs half or less of what walking them costs.
    ///
    /// As with [`crate::Db::get_with`], `row` should be short, and may call the store: what that changes is
    /// not seen. Errors: as walking; the rows shown before it are right, and none is missing before them.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("events"))?;
    /// use std::ops::ControlFlow;
    ///
    /// for (user, bytes) in [("ada", 3), ("bob", 4), ("eve", 5)] {
    ///     db.put(user, vec![0; bytes])?;
    /// }
    /// let mut bytes = 0;
    /// db.range("b"..).visit(|_user, value| {
    ///     bytes += value.len();
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(bytes, 4 + 5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn visit(self, row: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        self.show(Direction::Forward, row)
    }

    /// As [`Range::visit`], last to first.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("events"))?;
    /// use std::ops::ControlFlow;
    ///
    /// for (day, weather) in [("1", "rain"), ("2", "rain"), ("3", "sun"), ("4", "sun")] {
    ///     db.put(day, weather)?;
    /// }
    /// let mut last_rain = None;
    /// db.iter().visit_back(|day, weather| match weather {
    ///     b"rain" => {
    ///         last_rain = Some(day.to_vec());
    ///         ControlFlow::Break(())
    ///     }
    ///     _ => ControlFlow::Continue(()),
    /// })?;
    /// assert_eq!(last_rain.unwrap(), b"2");
    /// # Ok(())
    /// # }
    /// ```
    pub fn visit_back(self, row: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        self.show(Direction::Backward, row)
    }

    fn show(self, direction: Direction, row: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.limit == 0 {
            return Ok(());
        }
        let mut shown = Shown { row, prefix_len: self.prefix_len, left: self.limit, is_over: false };
        let (mut near, mut far) = match direction {
            Direction::Forward => (self.front, self.back),
            Direction::Backward => (self.back, self.front),
        };
        if near.any(|(key, value)| shown.show(&key, &value).is_break()) {
            return Ok(());
        }
        let mut unread = self.unread;
        while let (Some(range), Some(view)) = (unread, &self.view) {
            unread = self.store.scan(view, &range, direction, &mut shown)?.left();
            if shown.is_over {
                return Ok(());
            }
        }
        while let Some((key, value)) = far.next_back()
            && shown.show(&key, &value).is_continue()
        {}
        Ok(())
    }

    /// Reads batches until one has rows or nothing is unread. All of the batch before were given.
    fn read_more(&mut self, direction: Direction) -> Result<()> {
        let own = match direction {
            Direction::Forward => &mut self.front,
            Direction::Backward => &mut self.back,
        };
        // The rows share memory, which may be that of a large value.
        *own = BatchRows::default();
        let bytes_wanted = match direction {
            Direction::Forward => &mut self.bytes_wanted_front,
            Direction::Backward => &mut self.bytes_wanted_back,
        };
        while let (Some(range), Some(view)) = (self.unread.take(), &self.view) {
            // Rows up to a limit will be asked for.
            let bytes = if self.limit < usize::MAX { SCAN_BATCH_BYTES_MAX } else { *bytes_wanted };
            let mut batch = RowBatch::new(bytes, self.limit, self.keys_only);
            self.unread = self.store.scan(view, &range, direction, &mut batch)?.left();
            if batch.is_empty() {
                continue;
            }
            *bytes_wanted = (*bytes_wanted * 2).min(SCAN_BATCH_BYTES_MAX);
            let rows = batch.into_rows().without_prefix(self.prefix_len);
            match direction {
                Direction::Forward => self.front = rows,
                Direction::Backward => self.back = rows,
            }
            break;
        }
        if self.unread.is_none() {
            self.view = None;
        }
        Ok(())
    }

    /// The row at one end, where none is in hand.
    fn row(&mut self, direction: Direction) -> Result<Option<Row>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.unread.is_some() {
            self.read_more(direction)?;
        }
        // What the other end has in hand comes last, from its far side.
        Ok(match direction {
            Direction::Forward => self.front.next().or_else(|| self.back.next_back()),
            Direction::Backward => self.back.next().or_else(|| self.front.next_back()),
        })
    }

    /// Inlined, as all that puts a row together: a call would move its 64 bytes several times.
    #[inline(always)]
    fn step(&mut self, direction: Direction) -> Option<Result<Row>> {
        let own = match direction {
            Direction::Forward => &mut self.front,
            Direction::Backward => &mut self.back,
        };
        if self.limit > 0
            && let Some(row) = own.next()
        {
            self.limit -= 1;
            return Some(Ok(row));
        }
        self.step_far(direction)
    }

    /// A step to a row that is not in hand, or to the end.
    #[cold]
    fn step_far(&mut self, direction: Direction) -> Option<Result<Row>> {
        if self.limit == 0 {
            self.end();
            return None;
        }
        match self.row(direction) {
            Ok(Some(row)) => {
                self.limit -= 1;
                Some(Ok(row))
            }
            Ok(None) => {
                self.end();
                None
            }
            Err(error) => {
                self.end();
                Some(Err(error))
            }
        }
    }

    /// Lets go of everything; from here on there are no rows.
    fn end(&mut self) {
        self.limit = 0;
        self.view = None;
        self.failed = None;
        self.unread = None;
        self.front = BatchRows::default();
        self.back = BatchRows::default();
    }
}

impl Iterator for Range {
    type Item = Result<Row>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.step(Direction::Forward)
    }
}

impl DoubleEndedIterator for Range {
    #[inline(always)]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Direction::Backward)
    }
}

impl FusedIterator for Range {}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").field("unread", &self.unread).finish_non_exhaustive()
    }
}

/// The keys of a range; see [`Range::keys`].
#[derive(Debug)]
pub struct Keys(Range);

impl Keys {
    /// At most `rows` more keys; see [`Range::limit`].
    #[must_use]
    pub fn limit(self, rows: usize) -> Self {
        Keys(self.0.limit(rows))
    }
}

impl Iterator for Keys {
    type Item = Result<Value>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|(key, _)| key))
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.0.next_back()?.map(|(key, _)| key))
    }
}

impl FusedIterator for Keys {}
