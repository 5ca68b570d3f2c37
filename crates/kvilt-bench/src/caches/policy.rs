//! The policies by name, and the face that all of them have: a get, a scan of everything, and a second that
//! passes.

use super::{
    mix::Mix,
    pages::{Admission, Pages},
    rows::{Clock, Lru, Quick, Rows, S3Fifo},
    shape::{CACHED_OVERHEAD_BYTES, PAGE_BYTES, ROW_BYTES, Shape},
    tiny_lfu::TinyLfu,
    today::Today,
};

/// Memory used in some way.
pub(super) trait Cache {
    /// A get; whether it read nothing from the drive.
    fn get(&mut self, row: u32) -> bool;
    /// A put: a cached row is taken out and put back with its new value, as S-50 has it. Pages are not told:
    /// what is put goes to a write buffer.
    fn put(&mut self, _row: u32) {}
    /// A scan of all rows: the files are read, and no cached row is touched.
    fn scan(&mut self);
    /// A second has passed.
    fn tick(&mut self) {}
    /// Chunks in munks now, and loads so far.
    fn munks(&self) -> (usize, u64) {
        (0, 0)
    }
}

/// Caches of rows, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowsBy {
    Clock,
    Lru,
    S3Fifo,
    TinyLfu,
    Quick,
}

impl RowsBy {
    /// What a row costs beside key and value: what the engine's cache charges for one, and what the policy
    /// remembers of it and of rows that went. A ghost is a hash of eight bytes with its place in a queue; a
    /// sketch has eight bytes a row, and lists that are linked both ways eight more than a ring.
    pub(super) fn overhead_bytes(self) -> u64 {
        CACHED_OVERHEAD_BYTES
            + match self {
                RowsBy::Clock => 0,
                RowsBy::Lru => 8,
                RowsBy::S3Fifo => 16,
                RowsBy::TinyLfu => 16,
                RowsBy::Quick => 24,
            }
    }

    pub(super) fn row_bytes(self) -> u64 {
        ROW_BYTES + self.overhead_bytes()
    }

    pub(super) fn cache(self, rows: u32, bytes: u64) -> Box<dyn Rows> {
        let rows_max = (bytes / self.row_bytes()) as usize;
        match self {
            RowsBy::Clock => Box::new(Clock::new(rows, rows_max)),
            RowsBy::Lru => Box::new(Lru::new(rows, rows_max)),
            RowsBy::S3Fifo => Box::new(S3Fifo::new(rows, rows_max)),
            RowsBy::TinyLfu => Box::new(TinyLfu::new(rows, rows_max)),
            RowsBy::Quick => Box::new(Quick::new(rows_max)),
        }
    }
}

/// How memory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// All of it for the page cache.
    Pages,
    /// All of it for rows.
    Rows(RowsBy),
    /// As the engine is now: half of it is the budget, of which a tenth is for rows.
    Today,
    /// Part of it, in percent, is for rows and munks, the rest for pages; munks or not.
    Mix { percent: u64, rows: RowsBy, has_munks: bool, admission: Admission },
}

/// Rows in the budget as it is, nine tenths of a half, pages by recency in the rest.
pub(super) const ROWS_IN_BUDGET: Policy =
    Policy::Mix { percent: 45, rows: RowsBy::TinyLfu, has_munks: false, admission: Admission::All };
/// The same with munks where they earn more, and pages only
/// at their second read.
pub(super) const MIX_IN_BUDGET: Policy =
    Policy::Mix { percent: 45, rows: RowsBy::TinyLfu, has_munks: true, admission: Admission::SecondRead };
/// The same with a budget of all memory.
pub(super) const MIX_IN_ALL: Policy =
    Policy::Mix { percent: 90, rows: RowsBy::TinyLfu, has_munks: true, admission: Admission::SecondRead };

impl Policy {
    /// With so much memory.
    pub(super) fn cache<'s>(self, shape: &'s Shape, bytes: u64) -> Box<dyn Cache + 's> {
        match self {
            Policy::Pages => Box::new(OfPages::new(shape, bytes)),
            Policy::Rows(by) => Box::new(OfRows { rows: by.cache(shape.rows, bytes) }),
            Policy::Today => Box::new(Today::new(shape, bytes)),
            Policy::Mix { percent, rows, has_munks, admission } => {
                Box::new(Mix::new(shape, (bytes, percent), rows, has_munks, admission))
            }
        }
    }
}

/// The page cache alone.
struct OfPages<'s> {
    shape: &'s Shape,
    pages: Pages,
}

impl<'s> OfPages<'s> {
    fn new(shape: &'s Shape, bytes: u64) -> Self {
        let pages = Pages::new(shape.pages(), (bytes / PAGE_BYTES) as usize, Admission::All);
        OfPages { shape, pages }
    }
}

impl Cache for OfPages<'_> {
    fn get(&mut self, row: u32) -> bool {
        self.pages.read(self.shape.pages_at(row))
    }

    fn scan(&mut self) {
        for row in 0..self.shape.rows {
            self.pages.read(self.shape.pages_at(row));
        }
    }
}

/// Rows alone: what is missed is read past the page cache.
struct OfRows {
    rows: Box<dyn Rows>,
}

impl Cache for OfRows {
    fn get(&mut self, row: u32) -> bool {
        let has = self.rows.get(row);
        if !has {
            self.rows.fill(row);
        }
        has
    }

    fn put(&mut self, row: u32) {
        put(&mut *self.rows, row);
    }

    fn scan(&mut self) {}
}

/// A put of a row that may be cached.
pub(super) fn put(rows: &mut dyn Rows, row: u32) {
    if rows.has(row) {
        rows.forget(row);
        rows.fill(row);
    }
}
