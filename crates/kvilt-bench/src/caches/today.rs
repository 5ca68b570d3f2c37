//! `Today`: memory as `kvilt-even` used it before docs/design/0072. Half of it is the budget: a tenth of that
//! for rows, and munks by heat per byte in nine tenths less that; the page cache has what is left of all.
//!
//! The rule is that of `kvilt-even/src/rebalance/memory.rs`, with its numbers; heat is halved every second,
//! and some twenty loads or evictions are made in one.

use super::{
    pages::{Admission, Pages},
    policy::{Cache, RowsBy, put},
    rows::Rows,
    shape::{PAGE_BYTES, Shape},
};

/// Of memory, in percent, as in the scenario `limited`: 512 MiB of 1 GiB.
const BUDGET_PERCENT: u64 = 50;
const ROW_CACHE_PERCENT: u64 = 10;
const SLACK_PERCENT: u64 = 10;
const WORTH_FACTOR: u64 = 3;
const GAIN_MIN: u64 = 2048;
const PUT_WEIGHT_INVERSE: u64 = 64;
const COMMON_TO_LOAD: u64 = 8;
const COMMON_TO_KEEP: u64 = 2;
const WAITED_OF: u64 = 10;
/// One get in sixteen is counted, for all of them.
const SAMPLE: u64 = 16;
/// Loads and evictions of a second.
const ACTIONS_A_SECOND: usize = 20;

pub(super) struct Today<'s> {
    shape: &'s Shape,
    memory: u64,
    chunks: Chunks,
    rows: Box<dyn Rows>,
    pages: Pages,
    reads: u64,
    waits: u64,
    is_waiting: bool,
}

/// What is known of the chunks.
struct Chunks {
    has_munk: Vec<bool>,
    score: Vec<u64>,
    gets: Vec<u64>,
    munk_bytes: u64,
    loads: u64,
    gets_in_all: u64,
    sample: u64,
}

impl<'s> Today<'s> {
    pub(super) fn new(shape: &'s Shape, memory: u64) -> Self {
        let budget = memory / 100 * BUDGET_PERCENT;
        let row_bytes = budget / 100 * ROW_CACHE_PERCENT;
        let mut today = Today {
            shape,
            memory,
            chunks: Chunks {
                has_munk: vec![false; shape.chunks()],
                score: vec![0; shape.chunks()],
                gets: vec![0; shape.chunks()],
                munk_bytes: 0,
                loads: 0,
                gets_in_all: 0,
                sample: (SAMPLE as f64 / shape.scale()).round().max(1.0) as u64,
            },
            rows: RowsBy::Clock.cache(shape.rows, row_bytes),
            pages: Pages::new(shape.pages(), 0, Admission::All),
            reads: 0,
            waits: 0,
            is_waiting: false,
        };
        // A load of all rows leaves munks of what came last.
        for chunk in (0..shape.chunks()).rev() {
            if today.chunks.munk_bytes + shape.munk_bytes(chunk) > today.munk_share() {
                break;
            }
            today.set_munk(chunk, true);
        }
        today.fit_pages();
        today
    }

    fn budget(&self) -> u64 {
        self.memory / 100 * BUDGET_PERCENT
    }

    fn row_cache_bytes(&self) -> u64 {
        self.budget() / 100 * ROW_CACHE_PERCENT
    }

    fn munk_share(&self) -> u64 {
        self.budget() / 100 * (100 - SLACK_PERCENT) - self.row_cache_bytes()
    }

    fn fit_pages(&mut self) {
        let left = self.memory.saturating_sub(self.chunks.munk_bytes + self.row_cache_bytes());
        self.pages.resize((left / PAGE_BYTES) as usize);
    }

    fn set_munk(&mut self, chunk: usize, has_munk: bool) {
        let bytes = self.shape.munk_bytes(chunk);
        self.chunks.has_munk[chunk] = has_munk;
        if has_munk {
            self.chunks.munk_bytes += bytes;
            // Its rows in the row cache are under an id that nobody asks for again.
            self.shape.rows_of(chunk).for_each(|row| self.rows.forget(row));
        } else {
            self.chunks.munk_bytes -= bytes;
            self.chunks.score[chunk] = 0;
            self.chunks.gets[chunk] = 0;
        }
    }

    fn to_gain(&self, chunk: usize) -> u64 {
        PUT_WEIGHT_INVERSE * (self.chunks.score[chunk] + self.chunks.gets[chunk])
    }

    /// Worth per megabyte.
    fn worth(&self, chunk: usize) -> u64 {
        worth(self.to_gain(chunk), self.shape.munk_bytes(chunk))
    }

    /// What munks of chunks that have none would be worth on average, if the drive is waited for.
    fn common(&self) -> Option<u64> {
        if !self.is_waiting || self.shape.data_bytes() <= self.munk_share() {
            return None;
        }
        let cold = (0..self.shape.chunks()).filter(|chunk| !self.chunks.has_munk[*chunk]);
        let (gain, bytes) = cold.fold((0, 0), |(gain, bytes), chunk| {
            (gain + self.to_gain(chunk), bytes + self.shape.munk_bytes(chunk))
        });
        Some(worth(gain, bytes))
    }

    fn least_worthy(&self) -> Option<usize> {
        let munks = (0..self.shape.chunks()).filter(|chunk| self.chunks.has_munk[*chunk]);
        munks.min_by_key(|chunk| self.worth(*chunk))
    }

    /// One load or eviction; false if there is none.
    fn use_memory(&mut self) -> bool {
        let common = self.common();
        if let (Some(common), Some(victim)) = (common, self.least_worthy())
            && self.worth(victim) * COMMON_TO_KEEP < common
        {
            self.set_munk(victim, false);
            return true;
        }
        let least = COMMON_TO_LOAD * common.unwrap_or(0);
        let gain_min = (GAIN_MIN as f64 / self.shape.scale()) as u64;
        let paid = |chunk: usize| match common {
            None => gain_min,
            Some(_) => gain_min.max(self.shape.munk_bytes(chunk) / PAGE_BYTES * PUT_WEIGHT_INVERSE / 4),
        };
        let cold = (0..self.shape.chunks()).filter(|chunk| !self.chunks.has_munk[*chunk]);
        let paying = cold.filter(|chunk| self.to_gain(*chunk) >= paid(*chunk));
        let worthy = paying.filter(|chunk| self.worth(*chunk) >= least);
        let Some(chunk) = worthy.max_by_key(|chunk| self.worth(*chunk)) else { return false };
        let (bytes, room) = (self.shape.munk_bytes(chunk), self.munk_share() - self.chunks.munk_bytes);
        if bytes + bytes / 2 > room {
            let Some(victim) = self.least_worthy() else { return false };
            let is_worth_it = self.worth(chunk) > WORTH_FACTOR * self.worth(victim);
            if is_worth_it {
                self.set_munk(victim, false);
            }
            return is_worth_it;
        }
        // A load reads the chunk's file through the page cache.
        self.shape.pages_of(chunk).for_each(|page| {
            self.pages.touch(page);
        });
        self.set_munk(chunk, true);
        self.chunks.loads += 1;
        true
    }
}

impl Cache for Today<'_> {
    fn get(&mut self, row: u32) -> bool {
        let chunk = self.shape.chunk_of(row);
        self.chunks.gets_in_all += 1;
        if self.chunks.gets_in_all.is_multiple_of(self.chunks.sample) {
            self.chunks.gets[chunk] += self.chunks.sample;
        }
        if self.chunks.has_munk[chunk] || self.rows.get(row) {
            return true;
        }
        let is_there = self.pages.read(self.shape.pages_at(row));
        self.rows.fill(row);
        self.reads += 1;
        self.waits += u64::from(!is_there);
        is_there
    }

    fn put(&mut self, row: u32) {
        put(&mut *self.rows, row);
    }

    fn scan(&mut self) {
        for row in (0..self.shape.rows).filter(|row| !self.chunks.has_munk[self.shape.chunk_of(*row)]) {
            self.pages.read(self.shape.pages_at(row));
        }
    }

    fn tick(&mut self) {
        for chunk in 0..self.shape.chunks() {
            self.chunks.score[chunk] = self.chunks.score[chunk] / 2 + self.chunks.gets[chunk];
            self.chunks.gets[chunk] = 0;
        }
        let of = if self.is_waiting { 2 * WAITED_OF } else { WAITED_OF };
        self.is_waiting = self.waits > 0 && self.waits * of >= self.reads;
        (self.reads, self.waits) = (self.reads / 4 * 3, self.waits / 4 * 3);
        for _ in 0..ACTIONS_A_SECOND {
            if !self.use_memory() {
                break;
            }
        }
        self.fit_pages();
    }

    fn munks(&self) -> (usize, u64) {
        (self.chunks.has_munk.iter().filter(|has| **has).count(), self.chunks.loads)
    }
}

fn worth(gain: u64, bytes: u64) -> u64 {
    (u128::from(gain) * (1 << 20) / u128::from(bytes.max(PAGE_BYTES))) as u64
}
