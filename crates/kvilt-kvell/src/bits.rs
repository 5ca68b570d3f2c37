//! `Bits`: a growing list of bits, and where the next clear one is.

const WORD_BITS: u64 = u64::BITS as u64;

/// Bits that are clear until they are set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
    len: u64,
    set: u64,
}

impl Bits {
    /// Makes it `len` bits long; it never becomes shorter.
    pub(crate) fn grow(&mut self, len: u64) {
        debug_assert!(len >= self.len);
        self.words.resize(usize::try_from(len.div_ceil(WORD_BITS)).expect("bits fit into memory"), 0);
        self.len = len;
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// How many are set.
    pub(crate) fn set_count(&self) -> u64 {
        self.set
    }

    pub(crate) fn get(&self, at: u64) -> bool {
        at < self.len && self.words[(at / WORD_BITS) as usize] & mask(at) != 0
    }

    /// Sets one; whether it was clear.
    pub(crate) fn set(&mut self, at: u64) -> bool {
        assert!(at < self.len, "bit {at} of {}", self.len);
        let word = &mut self.words[(at / WORD_BITS) as usize];
        let was_clear = *word & mask(at) == 0;
        *word |= mask(at);
        self.set += u64::from(was_clear);
        was_clear
    }

    /// Clears one; whether it was set.
    pub(crate) fn clear(&mut self, at: u64) -> bool {
        assert!(at < self.len, "bit {at} of {}", self.len);
        let word = &mut self.words[(at / WORD_BITS) as usize];
        let was_set = *word & mask(at) != 0;
        *word &= !mask(at);
        self.set -= u64::from(was_set);
        was_set
    }

    /// Whether none of these is set.
    pub(crate) fn are_clear(&self, mut range: std::ops::Range<u64>) -> bool {
        range.end = range.end.min(self.len);
        range.all(|at| !self.get(at))
    }

    /// The first clear one at or behind `from`, or else before it.
    pub(crate) fn next_clear(&self, from: u64) -> Option<u64> {
        self.clear_in(from, self.len).or_else(|| self.clear_in(0, from.min(self.len)))
    }

    fn clear_in(&self, from: u64, end: u64) -> Option<u64> {
        let mut at = from;
        while at < end {
            let clear = !self.words[(at / WORD_BITS) as usize] & !(mask(at) - 1);
            if clear != 0 {
                let found = at - at % WORD_BITS + u64::from(clear.trailing_zeros());
                return (found < end).then_some(found);
            }
            at = at - at % WORD_BITS + WORD_BITS;
        }
        None
    }

    /// 64 bits from `at` on, a multiple of 64; those behind the end are clear.
    pub(crate) fn word(&self, at: u64) -> u64 {
        self.words.get((at / WORD_BITS) as usize).copied().unwrap_or(0)
    }
}

fn mask(at: u64) -> u64 {
    1 << (at % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set_of_numbers(
            lens in prop::collection::vec(0u64..300, 1..4),
            steps in prop::collection::vec((any::<bool>(), 0u64..300, 0u64..300), 0..200),
        ) {
            let (mut bits, mut model, mut len) = (Bits::default(), BTreeSet::new(), 0);
            for grown in lens {
                len = len.max(grown);
                bits.grow(len);
                for (is_set, at, from) in &steps {
                    if *at < len {
                        let has_changed = if *is_set { bits.set(*at) } else { bits.clear(*at) };
                        let expected = if *is_set { model.insert(*at) } else { model.remove(at) };
                        prop_assert_eq!(has_changed, expected);
                    }
                    let after = (*from..len).find(|at| !model.contains(at));
                    let before = (0..(*from).min(len)).find(|at| !model.contains(at));
                    prop_assert_eq!(bits.next_clear(*from), after.or(before));
                    prop_assert_eq!(bits.are_clear(*from..from + 9), !model.range(*from..from + 9).any(|_| true));
                }
            }
            let ones: Vec<u64> = (0..len).filter(|at| bits.get(*at)).collect();
            prop_assert_eq!(ones, model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(bits.set_count(), model.len() as u64);
        }
    }
}
