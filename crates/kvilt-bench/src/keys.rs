//! Keys, and how popular each is (EvenDB section 5.3): the record's number in ten decimal digits behind a
//! prefix of four bytes, drawn by one of four patterns.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Zipf};

/// Bytes of a key.
pub const KEY_BYTES: usize = 14;

/// Leading bits of a record's place that are the popular part of a composite key.
const PREFIX_BITS: u32 = 14;

/// The key of a record.
pub fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"user0000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// How popular keys are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// All the same.
    Uniform,
    /// Ranges of keys are popular by Zipf's law, the keys of a range all the same: spatial locality.
    Composite {
        /// The exponent.
        theta: f64,
    },
    /// Single keys are popular by Zipf's law, and lie anywhere: no locality.
    Zipf {
        /// The exponent.
        theta: f64,
    },
    /// The newest are popular by Zipf's law.
    Latest {
        /// The exponent.
        theta: f64,
    },
}

/// Draws records by a pattern.
#[derive(Clone, Debug)]
pub struct Chooser {
    pattern: Pattern,
    records: u64,
    ranks: Option<Zipf<f64>>,
}

impl Chooser {
    /// Draws from so many records, at least one.
    ///
    /// # Panics
    ///
    /// For an exponent that is no number, or below zero.
    pub fn new(pattern: Pattern, records: u64) -> Self {
        let zipf = |ranks: u64, theta| Zipf::new(ranks as f64, theta).expect("an exponent above zero");
        let ranks = match pattern {
            Pattern::Uniform => None,
            Pattern::Composite { theta } => Some(zipf(1 << PREFIX_BITS, theta)),
            Pattern::Zipf { theta } | Pattern::Latest { theta } => Some(zipf(records, theta)),
        };
        Chooser { pattern, records, ranks }
    }

    /// Draws a record; those from `records` to `newest` were added meanwhile, and only the pattern for the
    /// latest knows them.
    pub fn draw(&self, chance: &mut impl Rng, newest: u64) -> u64 {
        let rank = self.ranks.map_or(0, |ranks| ranks.sample(chance) as u64 - 1);
        match self.pattern {
            Pattern::Uniform => chance.random_range(0..self.records),
            Pattern::Composite { .. } => {
                let range = scattered(rank, 1 << PREFIX_BITS);
                let (first, end) = (self.first_of(range), self.first_of(range + 1));
                if first < end { chance.random_range(first..end) } else { first.min(self.records - 1) }
            }
            Pattern::Zipf { .. } => scattered(rank, self.records),
            Pattern::Latest { .. } => newest - 1 - rank.min(newest - 1),
        }
    }

    /// The share of all draws that each record has, as long as none is added.
    pub fn popularity(&self) -> Vec<f64> {
        let (pattern, records) = (self.pattern, self.records);
        let mut shares = vec![0.0; records as usize];
        match pattern {
            Pattern::Uniform => shares.fill(1.0 / records as f64),
            Pattern::Composite { theta } => {
                let ranges = 1 << PREFIX_BITS;
                for (rank, share) in zipf_shares(ranges, theta).enumerate() {
                    let range = scattered(rank as u64, ranges);
                    let first = self.first_of(range).min(records - 1);
                    let end = self.first_of(range + 1).max(first + 1);
                    let each = share / (end - first) as f64;
                    shares[first as usize..end as usize].iter_mut().for_each(|of_record| *of_record += each);
                }
            }
            Pattern::Zipf { theta } => {
                for (rank, share) in zipf_shares(records, theta).enumerate() {
                    shares[scattered(rank as u64, records) as usize] = share;
                }
            }
            Pattern::Latest { theta } => {
                for (rank, share) in zipf_shares(records, theta).enumerate() {
                    shares[records as usize - 1 - rank] = share;
                }
            }
        }
        shares
    }

    /// The first record whose place begins with these bits.
    fn first_of(&self, prefix: u64) -> u64 {
        ((u128::from(prefix) * u128::from(self.records)) >> PREFIX_BITS) as u64
    }
}

/// The shares of the draws of Zipf's law, the most popular rank's first.
fn zipf_shares(ranks: u64, theta: f64) -> impl Iterator<Item = f64> {
    let weight = move |rank: u64| (rank as f64).powf(-theta);
    let all: f64 = (1..=ranks).map(weight).sum();
    (1..=ranks).map(move |rank| weight(rank) / all)
}

/// A permutation of `0..count` that leaves no two neighbours together.
pub fn scattered(rank: u64, count: u64) -> u64 {
    // A prime near 2^64 divided by the golden ratio: it shares no factor with a count below it.
    const STEP: u128 = 11_400_714_819_323_198_549;
    ((u128::from(rank) * STEP + 7) % u128::from(count)) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::{SeedableRng, rngs::SmallRng};

    use super::*;

    #[test]
    fn keys_have_the_order_of_their_numbers() {
        assert_eq!(&key_of(0), b"user0000000000");
        assert_eq!(&key_of(42), b"user0000000042");
        assert!(key_of(99) < key_of(100) && key_of(1_999_999) < key_of(2_000_000));
    }

    #[test]
    fn scattering_is_a_permutation() {
        for count in [1, 2, 97, 1000, 16_384] {
            let all: HashSet<u64> = (0..count).map(|rank| scattered(rank, count)).collect();
            assert_eq!(all.len() as u64, count);
            assert!(all.iter().all(|place| *place < count));
        }
    }

    fn drawn(pattern: Pattern, records: u64, newest: u64) -> Vec<u64> {
        let chooser = Chooser::new(pattern, records);
        let mut chance = SmallRng::seed_from_u64(1);
        (0..50_000).map(|_| chooser.draw(&mut chance, newest)).collect()
    }

    #[test]
    fn every_pattern_stays_among_the_records() {
        for records in [1, 5, 1000, 40_000] {
            for pattern in [
                Pattern::Uniform,
                Pattern::Composite { theta: 0.99 },
                Pattern::Zipf { theta: 0.8 },
                Pattern::Latest { theta: 0.99 },
            ] {
                assert!(drawn(pattern, records, records).iter().all(|number| *number < records));
            }
        }
    }

    #[test]
    fn records_are_drawn_as_often_as_their_popularity_says() {
        for records in [50, 40_000] {
            for pattern in [
                Pattern::Uniform,
                Pattern::Composite { theta: 0.99 },
                Pattern::Zipf { theta: 0.99 },
                Pattern::Latest { theta: 0.99 },
            ] {
                let shares = Chooser::new(pattern, records).popularity();
                assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
                // Popular records and all others: a difference of a percent of the draws is no chance.
                let drawn = drawn(pattern, records, records);
                let mut by_share: Vec<usize> = (0..records as usize).collect();
                by_share.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]));
                for count in [1, records as usize / 10, records as usize / 2] {
                    let some: HashSet<usize> = by_share[..count].iter().copied().collect();
                    let expected: f64 = some.iter().map(|number| shares[*number]).sum();
                    let hits = drawn.iter().filter(|number| some.contains(&(**number as usize))).count();
                    let share = hits as f64 / drawn.len() as f64;
                    assert!(
                        (share - expected).abs() < 0.01,
                        "{pattern:?} {records} {count}: {share} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn popularity_is_as_the_paper_gives_it() {
        // Table 3, theta 0.99: the most popular of many single keys takes 4.87 % of the draws.
        let count = |numbers: &[u64], of: u64| numbers.iter().filter(|number| **number == of).count();
        let zipf = drawn(Pattern::Zipf { theta: 0.99 }, 40_000, 40_000);
        let share = count(&zipf, scattered(0, 40_000)) as f64 / zipf.len() as f64;
        assert!((0.06..0.12).contains(&share), "with 40,000 keys rather than millions: {share}");
        // Ranges are popular, and the keys of the most popular one are so alike.
        let composite = drawn(Pattern::Composite { theta: 0.99 }, 1 << 20, 1 << 20);
        let popular = scattered(0, 1 << 14);
        let inside = composite.iter().filter(|number| **number >> 6 == popular).count() as f64;
        assert!((0.06..0.12).contains(&(inside / composite.len() as f64)));
        let latest = drawn(Pattern::Latest { theta: 0.99 }, 1000, 2000);
        assert!(count(&latest, 1999) > count(&latest, 1500) && latest.iter().any(|number| *number > 1990));
    }
}
