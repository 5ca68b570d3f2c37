//! `Dice`: seeded chance for scripts and choices. The same seed gives the same throws on every machine, and
//! the sequence never changes with a dependency's release, so that a printed seed stays good for years.

/// A source of throws (SplitMix64). Copies go on independently from the same place.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that throw the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Dice(mix(seed ^ 0x6b76_696c_742d_7369))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..end`; `end` must not be zero.
    pub fn below(&mut self, end: usize) -> usize {
        assert!(end > 0, "dice need at least one face");
        // The bias of multiply-shift is below 2^-32 for the small ends used here.
        ((u128::from(self.number()) * end as u128) >> 64) as usize
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True in `part` of `whole` throws.
    pub fn chance(&mut self, part: usize, whole: usize) -> bool {
        self.below(whole) < part
    }

    /// One of the choices.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// A position in `weights`, each as likely as its weight.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let all: u32 = weights.iter().sum();
        let mut left = self.below(all as usize) as u32;
        for (position, &weight) in weights.iter().enumerate() {
            if left < weight {
                return position;
            }
            left -= weight;
        }
        unreachable!("the throw is below the sum of the weights")
    }
}

/// Spreads the bits of a number over the whole word.
pub fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_throws_the_same() {
        let throws = |seed| {
            let mut dice = Dice::new(seed);
            (0..50).map(|_| dice.below(6)).collect::<Vec<_>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
        assert!((0..6).all(|face| throws(7).contains(&face)));
    }

    #[test]
    fn weights_of_zero_are_never_thrown() {
        let mut dice = Dice::new(1);
        assert!((0..200).all(|_| dice.weighted(&[0, 3, 0, 1]) % 2 == 1));
    }
}
