//! `Filter`: tells of most keys that they were not added; a Bloom filter, one word a key.
//!
//! A search of a munk's tail for a key that it has not costs a line of memory for each few steps. This is one line.
//!
//! What is always true: who knows that a key was added (its add happened before) is never told otherwise. Bits are only
//! ever set.

use std::fmt;

use crate::shim::{AtomicU64, Ordering};

/// Keys of a word, on the average, when as many were added as expected: one key in a hundred that was not added is then taken
/// for one that was.
const KEYS_A_WORD: usize = 4;
/// Bits that a key sets in its word, at most, …
const BITS_A_KEY: u32 = 3;
/// … each chosen by so many bits of its hash.
const CHOICE_BITS: u32 = 6;

/// A set of hashes that errs towards "maybe". Any thread may add and ask at any time.
///
/// ```
/// let filter = kvilt_sync::Filter::for_keys(1000);
/// assert!(!filter.may_have(0x9e37_79b9));
/// filter.add(0x9e37_79b9);
/// assert!(filter.may_have(0x9e37_79b9));
/// ```
pub struct Filter {
    /// The bits of all words. As long as there are few, it answers without a look at the words.
    all: AtomicU64,
    words: Box<[AtomicU64]>,
}

impl Filter {
    /// An empty filter for about so many keys; right, but less useful, with more.
    pub fn for_keys(count: usize) -> Self {
        let words = count.div_ceil(KEYS_A_WORD).max(1);
        Filter { all: AtomicU64::new(0), words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Adds a key by its hash, whose bits are all needed.
    pub fn add(&self, hash: u32) {
        let bits = bits(hash);
        // Release, here and below, with the Acquire of `may_have`: who is told of the key sees all that its adder had seen.
        self.word(hash).fetch_or(bits, Ordering::Release);
        if self.all.load(Ordering::Relaxed) & bits != bits {
            self.all.fetch_or(bits, Ordering::Release);
        }
    }

    /// False only if the key was not added.
    pub fn may_have(&self, hash: u32) -> bool {
        let bits = bits(hash);
        let has = |word: &AtomicU64| word.load(Ordering::Acquire) & bits == bits;
        has(&self.all) && has(self.word(hash))
    }

    /// Memory, in bytes.
    pub fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.words)
    }

    /// By the upper bits; the lower ones choose inside the word.
    fn word(&self, hash: u32) -> &AtomicU64 {
        &self.words[((u64::from(hash) * self.words.len() as u64) >> 32) as usize]
    }
}

fn bits(hash: u32) -> u64 {
    (0..BITS_A_KEY).fold(0, |bits, nth| bits | 1 << (hash >> (nth * CHOICE_BITS) & (u64::BITS - 1)))
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter {{ {} words }}", self.words.len())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Hashes as a good function gives them.
    fn hash(i: u32) -> u32 {
        (u64::from(i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    #[test]
    fn what_was_added_is_there_and_most_else_is_not() {
        let filter = Filter::for_keys(2000);
        assert_eq!((0..2000).filter(|&i| filter.may_have(hash(i))).count(), 0);
        (0..2000).for_each(|i| filter.add(hash(i)));
        assert!((0..2000).all(|i| filter.may_have(hash(i))));
        let wrong = (2000..22_000).filter(|&i| filter.may_have(hash(i))).count();
        assert!(wrong < 600, "{wrong} of 20000");
        assert_eq!(filter.bytes(), 4000);
    }

    #[test]
    fn more_keys_than_expected_are_still_there() {
        let filter = Filter::for_keys(0);
        (0..100).for_each(|i| filter.add(hash(i)));
        assert!((0..100).all(|i| filter.may_have(hash(i))));
    }
}
