//! Bloom filters: "this key is certainly not here", in about ten bits a key.
//!
//! Where it stands: a table carries one over its keys, and whoever wants one over something else may build it
//! here. The filter is cut into lines of 512 bits, one cache line, and all bits of a key lie in one line: a
//! probe costs one cache miss. Always true: a key that was inserted is never denied.

const LINE_WORDS: usize = 8;
const LINE_BYTES: usize = LINE_WORDS * 8;
const PROBES_MAX: u32 = 16;

const FIRST: u64 = 0x2d35_8dcc_aa6c_78a5;
const SECOND: u64 = 0x8bb8_4b93_962e_acc9;
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of a key, as filters use it; part of the table format.
///
/// The key is read as little-endian words of eight bytes, the last one padded with zeros; the state starts
/// from the length and takes each word in with a 64 × 64 → 128 bit product, folded.
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    let mut state = FIRST ^ (key.len() as u64).wrapping_mul(STRIDE);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        state = fold(state ^ u64::from_le_bytes(*word), SECOND);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        state = fold(state ^ u64::from_le_bytes(last), SECOND);
    }
    fold(state ^ SECOND, FIRST)
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// A set of hashes that may claim too much, never too little. Inserting needs `&mut`; probing is free of
/// locks.
///
/// ```
/// use kvilt_format::bloom::{Filter, hash};
/// let mut filter = Filter::new(100, 10);
/// filter.insert(hash(b"here"));
/// assert!(filter.may_contain(hash(b"here")));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Filter {
    /// Whole lines of [`LINE_WORDS`] words.
    words: Vec<u64>,
    probes: u32,
}

impl Filter {
    /// An empty filter, sized for `keys` keys at `bits_per_key` bits each. Ten bits give about one false
    /// answer in a hundred.
    pub fn new(keys: usize, bits_per_key: u32) -> Self {
        let bits = (keys as u64).saturating_mul(u64::from(bits_per_key)).max(1);
        let lines = bits.div_ceil(LINE_BYTES as u64 * 8).min(u64::from(u32::MAX)) as usize;
        // The best number of probes is bits × ln 2; a little fewer suits lines, which fill unevenly.
        let probes = (bits_per_key.saturating_mul(2) / 3).clamp(1, PROBES_MAX);
        Filter { words: vec![0; lines * LINE_WORDS], probes }
    }

    /// Adds a key by its [`hash`].
    pub fn insert(&mut self, hash: u64) {
        let line = self.line_start(hash);
        let mut x = hash;
        for _ in 0..self.probes {
            x = x.wrapping_mul(STRIDE);
            self.words[line + (x >> 61) as usize] |= 1 << ((x >> 55) & 63);
        }
    }

    /// Whether the key with this [`hash`] may have been added.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let line = self.line_start(hash);
        let mut x = hash;
        (0..self.probes).all(|_| {
            x = x.wrapping_mul(STRIDE);
            (self.words[line + (x >> 61) as usize] >> ((x >> 55) & 63)) & 1 == 1
        })
    }

    /// Appends its encoding: a byte with the number of probes, then the lines.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(1 + self.words.len() * 8);
        out.push(self.probes as u8);
        for word in &self.words {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Undoes [`Filter::encode`]; none if the bytes are no filter.
    pub fn decode(bytes: &[u8]) -> Option<Filter> {
        let (&probes, lines) = bytes.split_first()?;
        let probes = u32::from(probes);
        let is_whole = !lines.is_empty() && lines.len().is_multiple_of(LINE_BYTES);
        if probes == 0 || probes > PROBES_MAX || !is_whole || lines.len() / LINE_BYTES > u32::MAX as usize {
            return None;
        }
        let (words, _) = lines.as_chunks::<8>();
        Some(Filter { words: words.iter().map(|word| u64::from_le_bytes(*word)).collect(), probes })
    }

    /// Bytes of memory behind it.
    pub fn memory_bytes(&self) -> usize {
        self.words.capacity() * 8
    }

    #[inline]
    fn line_start(&self, hash: u64) -> usize {
        // The high half of the hash, scaled to the number of lines.
        let lines = (self.words.len() / LINE_WORDS) as u64;
        (((hash >> 32) * lines) >> 32) as usize * LINE_WORDS
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter({} bytes, {} probes)", self.words.len() * 8, self.probes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ten_bits_a_key_deny_about_ninety_nine_in_a_hundred() {
        for shape in ["user/{}/time", "{}"] {
            let key = |i: u32| shape.replace("{}", &format!("{i:08}")).into_bytes();
            let mut filter = Filter::new(20_000, 10);
            (0..20_000).for_each(|i| filter.insert(hash(&key(i))));
            assert!((0..20_000).all(|i| filter.may_contain(hash(&key(i)))), "never a false absent");
            let wrong = (20_000..120_000).filter(|&i| filter.may_contain(hash(&key(i)))).count();
            assert!(wrong < 2_000, "{wrong} of 100,000 for {shape}");
        }
    }

    #[test]
    fn short_keys_and_paddings_have_hashes_of_their_own() {
        let keys: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0\0\0\0\0\0\0"];
        let mut hashes: Vec<_> = keys.iter().map(|k| hash(k)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), keys.len());
    }

    proptest! {
        #[test]
        fn a_filter_comes_back_and_never_denies(keys in prop::collection::vec(any::<Vec<u8>>(), 0..80), bits in 1u32..30) {
            let mut filter = Filter::new(keys.len(), bits);
            keys.iter().for_each(|k| filter.insert(hash(k)));
            let mut bytes = Vec::new();
            filter.encode(&mut bytes);
            let back = Filter::decode(&bytes).unwrap();
            prop_assert_eq!(&back, &filter);
            prop_assert!(keys.iter().all(|k| back.may_contain(hash(k))));
        }

        #[test]
        fn arbitrary_bytes_are_a_filter_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200), h in any::<u64>()) {
            if let Some(filter) = Filter::decode(&bytes) {
                prop_assert!(filter.memory_bytes() <= bytes.len() + 64);
                let _ = filter.may_contain(h);
            }
        }
    }
}
