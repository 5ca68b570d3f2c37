//! Caches of single rows: which rows stay. All rows weigh the same, so room is a number of rows.
//!
//! | policy | what |
//! | --- | --- |
//! | [`Lru`] | the row that was not read for longest goes |
//! | [`Clock`] | what `kvilt-sync` had before record 0072: a row read since it came by last is spared once |
//! | [`S3Fifo`] | a tenth for rows that are new; whoever is not read twice there goes, and is remembered |
//! | [`super::tiny_lfu::TinyLfu`] | a sketch counts how often each row is read; who is read less goes |
//! | [`Quick`] | the crate `quick_cache`, which a page cache of `kvell` is |

use quick_cache::{OptionsBuilder, Weighter, unsync};

use super::lists::Lists;

/// A cache of rows.
pub(super) trait Rows {
    /// Whether it has the row, which is noted as read if so.
    fn get(&mut self, row: u32) -> bool;
    /// The row was read elsewhere: it may come in.
    fn fill(&mut self, row: u32);
    /// The row is elsewhere now.
    fn forget(&mut self, row: u32);
    /// Changes its room.
    fn resize(&mut self, rows_max: usize);
    /// Whether it has the row; nothing is noted.
    fn has(&self, row: u32) -> bool;
    /// Hits so far on the rows that would go first, and how many such rows there are: what a little less room
    /// would cost.
    fn edge(&self) -> (u64, usize);
}

/// Least recently used.
pub(super) struct Lru {
    lists: Lists,
    rows_max: usize,
}

impl Lru {
    pub(super) fn new(rows: u32, rows_max: usize) -> Self {
        Lru { lists: Lists::new(1, rows as usize), rows_max }
    }
}

impl Rows for Lru {
    fn get(&mut self, row: u32) -> bool {
        let has = self.has(row);
        if has {
            self.lists.lead(0, row);
        }
        has
    }

    fn fill(&mut self, row: u32) {
        self.lists.lead(0, row);
        self.resize(self.rows_max);
    }

    fn forget(&mut self, row: u32) {
        self.lists.remove(row);
    }

    fn resize(&mut self, rows_max: usize) {
        self.rows_max = rows_max;
        while self.lists.len(0) > rows_max {
            self.lists.pop(0);
        }
    }

    fn has(&self, row: u32) -> bool {
        self.lists.has(0, row)
    }

    fn edge(&self) -> (u64, usize) {
        (0, 0)
    }
}

/// The row cache as it was before docs/design/0072: a hand walks the rows in a circle, in the order in which
/// they came.
pub(super) struct Clock {
    lists: Lists,
    is_read: Vec<bool>,
    rows_max: usize,
}

impl Clock {
    pub(super) fn new(rows: u32, rows_max: usize) -> Self {
        Clock { lists: Lists::new(1, rows as usize), is_read: vec![false; rows as usize], rows_max }
    }
}

impl Rows for Clock {
    fn get(&mut self, row: u32) -> bool {
        let has = self.has(row);
        self.is_read[row as usize] |= has;
        has
    }

    fn fill(&mut self, row: u32) {
        self.lists.lead(0, row);
        self.is_read[row as usize] = false;
        self.resize(self.rows_max);
    }

    fn forget(&mut self, row: u32) {
        self.lists.remove(row);
    }

    fn resize(&mut self, rows_max: usize) {
        self.rows_max = rows_max;
        while self.lists.len(0) > rows_max {
            let Some(row) = self.lists.back(0) else { return };
            if std::mem::take(&mut self.is_read[row as usize]) {
                self.lists.lead(0, row);
            } else {
                self.lists.remove(row);
            }
        }
    }

    fn has(&self, row: u32) -> bool {
        self.lists.has(0, row)
    }

    fn edge(&self) -> (u64, usize) {
        (0, 0)
    }
}

/// S3-FIFO (Yang and others, SOSP 2023).
pub(super) struct S3Fifo {
    lists: Lists,
    /// Reads since it came or was spared, three at most.
    reads: Vec<u8>,
    rows_max: usize,
    /// Rows of the main list that nobody has read since they were spared last, and hits on such rows.
    unread: usize,
    edge_hits: u64,
}

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;
/// The small list has this part of the room, in percent.
const SMALL_PERCENT: usize = 10;
/// Reads beyond this count are not counted.
const READS_MAX: u8 = 3;

impl S3Fifo {
    pub(super) fn new(rows: u32, rows_max: usize) -> Self {
        let (lists, reads) = (Lists::new(3, rows as usize), vec![0; rows as usize]);
        S3Fifo { lists, reads, rows_max, unread: 0, edge_hits: 0 }
    }

    fn evict(&mut self) {
        let small_max = self.rows_max * SMALL_PERCENT / 100;
        if self.lists.len(SMALL) > small_max || self.lists.len(MAIN) == 0 {
            let Some(row) = self.lists.back(SMALL) else { return };
            if self.reads[row as usize] > 1 {
                self.enter_main(row);
            } else {
                self.lists.lead(GHOST, row);
                self.forget_ghosts();
            }
            return;
        }
        let Some(row) = self.lists.back(MAIN) else { return };
        if self.reads[row as usize] == 0 {
            self.unread -= 1;
            self.lists.remove(row);
        } else {
            self.reads[row as usize] -= 1;
            self.unread += usize::from(self.reads[row as usize] == 0);
            self.lists.lead(MAIN, row);
        }
    }

    fn enter_main(&mut self, row: u32) {
        self.reads[row as usize] = 0;
        self.unread += 1;
        self.lists.lead(MAIN, row);
    }

    fn forget_ghosts(&mut self) {
        let ghosts_max = self.rows_max - self.rows_max * SMALL_PERCENT / 100;
        while self.lists.len(GHOST) > ghosts_max {
            self.lists.pop(GHOST);
        }
    }
}

impl Rows for S3Fifo {
    fn get(&mut self, row: u32) -> bool {
        let has = self.has(row);
        if has {
            let reads = &mut self.reads[row as usize];
            if *reads == 0 && self.lists.has(MAIN, row) {
                self.unread -= 1;
                self.edge_hits += 1;
            }
            *reads = (*reads + 1).min(READS_MAX);
        }
        has
    }

    fn fill(&mut self, row: u32) {
        if self.lists.has(GHOST, row) {
            self.enter_main(row);
        } else {
            self.reads[row as usize] = 0;
            self.lists.lead(SMALL, row);
        }
        self.resize(self.rows_max);
    }

    fn forget(&mut self, row: u32) {
        self.unread -= usize::from(self.lists.has(MAIN, row) && self.reads[row as usize] == 0);
        self.lists.remove(row);
    }

    fn resize(&mut self, rows_max: usize) {
        self.rows_max = rows_max;
        while self.lists.len(SMALL) + self.lists.len(MAIN) > rows_max {
            self.evict();
        }
        self.forget_ghosts();
    }

    fn has(&self, row: u32) -> bool {
        self.lists.has(SMALL, row) || self.lists.has(MAIN, row)
    }

    fn edge(&self) -> (u64, usize) {
        (self.edge_hits, self.unread)
    }
}

/// A row is as heavy as any other.
#[derive(Clone)]
struct Alike;

impl Weighter<u32, ()> for Alike {
    fn weight(&self, _: &u32, (): &()) -> u64 {
        1
    }
}

/// The crate `quick_cache`.
pub(super) struct Quick {
    cache: unsync::Cache<u32, (), Alike>,
}

impl Quick {
    pub(super) fn new(rows_max: usize) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity(rows_max)
            .weight_capacity(rows_max as u64)
            .build()
            .expect("both numbers are given");
        let cache = unsync::Cache::with_options(options, Alike, Default::default(), Default::default());
        Quick { cache }
    }
}

impl Rows for Quick {
    fn get(&mut self, row: u32) -> bool {
        self.cache.get(&row).is_some()
    }

    fn fill(&mut self, row: u32) {
        self.cache.insert(row, ());
    }

    fn forget(&mut self, row: u32) {
        self.cache.remove(&row);
    }

    fn resize(&mut self, rows_max: usize) {
        self.cache.set_capacity(rows_max as u64);
    }

    fn has(&self, row: u32) -> bool {
        self.cache.peek(&row).is_some()
    }

    fn edge(&self) -> (u64, usize) {
        (0, 0)
    }
}
