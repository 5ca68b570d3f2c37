//! `TinyLfu`: W-TinyLFU (Einziger, Friedman and Manes, 2017) as Caffeine has it: a hundredth of the room is a
//! window by recency; what leaves it comes into the main part only if the sketch has counted it more often
//! than the row that would go for it. The main part is segmented: four fifths are for rows that were read
//! again.

use super::{lists::Lists, rows::Rows};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// A count-min sketch of four rows of counters up to 15, all of which are halved after ten counts a row.
struct Sketch {
    counters: Vec<u8>,
    mask: u64,
    counted: usize,
    counted_max: usize,
}

/// Counts before all are halved, for each row that fits into the cache.
const COUNTS_A_ROW: usize = 10;
const COUNTER_MAX: u8 = 15;
/// Odd numbers, one for each row of counters.
const SEEDS: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03, 0xc2b2_ae3d_27d4_eb4f, 0xff51_afd7_ed55_8ccd];

impl Sketch {
    /// For a cache of `rows_max` rows: eight bytes a row where two counters share a byte, as in Caffeine.
    fn new(rows_max: usize) -> Self {
        let width = (rows_max.max(4) * 4).next_power_of_two();
        Sketch {
            counters: vec![0; width * SEEDS.len()],
            mask: width as u64 - 1,
            counted: 0,
            counted_max: rows_max.max(4) * COUNTS_A_ROW,
        }
    }

    fn places(&self, row: u32) -> [usize; 4] {
        let width = self.mask as usize + 1;
        std::array::from_fn(|at| {
            let mixed = (u64::from(row) + 1).wrapping_mul(SEEDS[at]);
            let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(SEEDS[0]);
            at * width + ((mixed >> 24) & self.mask) as usize
        })
    }

    fn count(&mut self, row: u32) {
        let places = self.places(row);
        let least = places.iter().map(|place| self.counters[*place]).min().unwrap_or(0);
        if least == COUNTER_MAX {
            return;
        }
        // Only the least ones: the others have counted somebody else.
        for place in places {
            self.counters[place] += u8::from(self.counters[place] == least);
        }
        self.counted += 1;
        if self.counted >= self.counted_max {
            self.counters.iter_mut().for_each(|counter| *counter /= 2);
            self.counted /= 2;
        }
    }

    fn estimate(&self, row: u32) -> u8 {
        self.places(row).iter().map(|place| self.counters[*place]).min().unwrap_or(0)
    }
}

/// Rows by a sketch of how often they are read.
pub(super) struct TinyLfu {
    lists: Lists,
    sketch: Sketch,
    rows_max: usize,
    edge_hits: u64,
}

impl TinyLfu {
    pub(super) fn new(rows: u32, rows_max: usize) -> Self {
        TinyLfu { lists: Lists::new(3, rows as usize), sketch: Sketch::new(rows_max), rows_max, edge_hits: 0 }
    }

    fn window_max(&self) -> usize {
        (self.rows_max / 100).max(1)
    }

    fn main_len(&self) -> usize {
        self.lists.len(PROBATION) + self.lists.len(PROTECTED)
    }

    /// The row of the main part that would go next.
    fn victim(&self) -> Option<u32> {
        self.lists.back(PROBATION).or_else(|| self.lists.back(PROTECTED))
    }

    fn trim(&mut self) {
        while self.lists.len(WINDOW) > self.window_max() {
            let Some(candidate) = self.lists.pop(WINDOW) else { return };
            let main_max = self.rows_max.saturating_sub(self.window_max());
            let is_better = |victim| self.sketch.estimate(candidate) > self.sketch.estimate(victim);
            if self.main_len() < main_max || self.victim().is_some_and(is_better) {
                self.lists.lead(PROBATION, candidate);
            }
        }
        while self.main_len() + self.lists.len(WINDOW) > self.rows_max {
            match self.victim() {
                // The candidate itself came to the front; the back goes.
                Some(victim) => self.lists.remove(victim),
                None => {
                    self.lists.pop(WINDOW);
                }
            }
        }
    }
}

impl Rows for TinyLfu {
    fn get(&mut self, row: u32) -> bool {
        self.sketch.count(row);
        if self.lists.has(PROBATION, row) {
            self.edge_hits += 1;
            self.lists.lead(PROTECTED, row);
            let protected_max = self.rows_max.saturating_sub(self.window_max()) * 4 / 5;
            if self.lists.len(PROTECTED) > protected_max
                && let Some(demoted) = self.lists.pop(PROTECTED)
            {
                self.lists.lead(PROBATION, demoted);
            }
            return true;
        }
        for list in [PROTECTED, WINDOW] {
            if self.lists.has(list, row) {
                self.lists.lead(list, row);
                return true;
            }
        }
        false
    }

    fn fill(&mut self, row: u32) {
        self.lists.lead(WINDOW, row);
        self.trim();
    }

    fn forget(&mut self, row: u32) {
        self.lists.remove(row);
    }

    fn resize(&mut self, rows_max: usize) {
        self.rows_max = rows_max;
        self.trim();
    }

    fn has(&self, row: u32) -> bool {
        [WINDOW, PROBATION, PROTECTED].iter().any(|list| self.lists.has(*list, row))
    }

    fn edge(&self) -> (u64, usize) {
        (self.edge_hits, self.lists.len(PROBATION))
    }
}
