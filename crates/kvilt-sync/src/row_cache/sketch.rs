//! `Sketch`: roughly how often each key was asked for lately, in few bytes.
//!
//! A count-min sketch as in TinyLFU (Einziger, Friedman and Manes, 2017): four rows of counters of four bits,
//! all halved after ten counts a row that the cache has room for, and then after each five. A count that is
//! found is at most fifteen, too low but for that only by halvings, and too high only by keys that share all
//! four counters.

/// Odd numbers: one for each row of counters.
const SEEDS: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03, 0xc2b2_ae3d_27d4_eb4f, 0xff51_afd7_ed55_8ccd];
/// Counters of each row for a row of the cache, up to twice as many: eight to sixteen bytes in all.
const COUNTERS_A_ROW: usize = 4;
/// Counts before all are halved, for each row of the cache.
const COUNTS_A_ROW: usize = 10;
const COUNTER_MAX: u64 = 15;
const COUNTER_BITS: usize = 4;
const COUNTERS_A_WORD: usize = 16;
/// All bits of a word but the highest of each counter.
const HALVED: u64 = 0x7777_7777_7777_7777;

#[derive(Default)]
pub(super) struct Sketch {
    /// One row of counters behind the other, each a power of two long.
    words: Vec<u64>,
    rows_max: usize,
    counted: usize,
}

impl Sketch {
    /// For a cache of this many rows.
    pub(super) fn new(rows_max: usize) -> Self {
        let width = (rows_max * COUNTERS_A_ROW).next_power_of_two().max(COUNTERS_A_WORD);
        Sketch { words: vec![0; width * SEEDS.len() / COUNTERS_A_WORD], rows_max, counted: 0 }
    }

    /// For how many rows it was made.
    pub(super) fn rows_max(&self) -> usize {
        self.rows_max
    }

    /// Counts a key by its hash.
    pub(super) fn count(&mut self, hash: u64) {
        if self.words.is_empty() {
            return;
        }
        let places = self.places(hash);
        let least = places.iter().map(|place| self.counter(*place)).min().unwrap_or(COUNTER_MAX);
        if least == COUNTER_MAX {
            return;
        }
        // Only the least ones: the others have counted other keys besides.
        for (word, bit) in places {
            if self.counter((word, bit)) == least {
                self.words[word] += 1 << bit;
            }
        }
        self.counted += 1;
        if self.counted >= self.rows_max.max(1) * COUNTS_A_ROW {
            self.words.iter_mut().for_each(|word| *word = *word >> 1 & HALVED);
            self.counted /= 2;
        }
    }

    /// How often a key was counted.
    pub(super) fn estimate(&self, hash: u64) -> u64 {
        if self.words.is_empty() {
            return 0;
        }
        self.places(hash).iter().map(|place| self.counter(*place)).min().unwrap_or(0)
    }

    /// Where a key's counters are: the word, and the first bit in it.
    fn places(&self, hash: u64) -> [(usize, usize); SEEDS.len()] {
        let words = self.words.len() / SEEDS.len();
        std::array::from_fn(|row| {
            let mixed = hash.wrapping_mul(SEEDS[row]);
            let at = (mixed ^ mixed >> 32) as usize & (words * COUNTERS_A_WORD - 1);
            (row * words + at / COUNTERS_A_WORD, at % COUNTERS_A_WORD * COUNTER_BITS)
        })
    }

    fn counter(&self, (word, bit): (usize, usize)) -> u64 {
        self.words[word] >> bit & COUNTER_MAX
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{super::shard::hash, *};

    #[test]
    fn a_key_is_counted_up_to_fifteen_and_nobody_else() {
        let mut sketch = Sketch::new(100);
        for times in 1..=20 {
            sketch.count(hash(b"often"));
            assert_eq!(sketch.estimate(hash(b"often")), times.min(15));
        }
        assert_eq!(sketch.estimate(hash(b"never")), 0);
    }

    #[test]
    fn all_are_halved_after_ten_counts_a_row() {
        let mut sketch = Sketch::new(10);
        (0..8).for_each(|_| sketch.count(hash(b"a")));
        (8..100_u32).for_each(|i| sketch.count(hash(&(i / 2).to_be_bytes())));
        assert!((4..=5).contains(&sketch.estimate(hash(b"a"))), "{}", sketch.estimate(hash(b"a")));
    }

    #[test]
    fn few_of_as_many_keys_as_fit_are_counted_too_high() {
        // 10,000 take 20 minutes under miri.
        let keys = if cfg!(miri) { 200 } else { 10_000_u32 };
        let mut sketch = Sketch::new(keys as usize);
        (0..keys).for_each(|i| sketch.count(hash(&i.to_be_bytes())));
        let wrong = (0..keys).filter(|i| sketch.estimate(hash(&i.to_be_bytes())) != 1).count();
        assert!(wrong < keys as usize * 3 / 100, "{wrong} of {keys}");
    }

    #[test]
    fn one_of_no_rows_counts_nothing() {
        let mut sketch = Sketch::default();
        sketch.count(1);
        assert_eq!(sketch.estimate(1), 0);
    }
}
