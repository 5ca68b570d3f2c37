//! `Heads`: eight bytes of each of many sorted keys, side by side, to search before touching a whole key.
//!
//! The keys of one chunk share a prefix (that is what spatial locality means); the eight bytes after what the
//! first and the last key share tell most keys apart. Searching this array touches a few cache lines, where
//! comparing keys would touch one or two for each step.

use kvilt_base::key::shared_prefix_len;

/// Heads in a block: four cache lines of them.
const BLOCK: usize = 32;

/// The searchable heads of a sorted sequence of keys, whose whole keys live elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    /// What all keys begin with.
    prefix: Vec<u8>,
    heads: Vec<u64>,
    /// The first head of each block. A search through all heads at once would touch a cache line a step; these are few
    /// enough to stay in the cache, and then it is the lines of one block.
    blocks: Vec<u64>,
}

/// The eight bytes of `key` behind `skip`, padded with zeros, as a number with the same order.
fn head(key: &[u8], skip: usize) -> u64 {
    let rest = &key[skip.min(key.len())..];
    let mut eight = [0; 8];
    let n = rest.len().min(8);
    eight[..n].copy_from_slice(&rest[..n]);
    u64::from_be_bytes(eight)
}

impl Heads {
    /// The heads of `keys`, which ascend.
    pub(crate) fn new<'k>(keys: impl DoubleEndedIterator<Item = &'k [u8]> + Clone) -> Self {
        let (Some(first), Some(last)) = (keys.clone().next(), keys.clone().next_back()) else {
            return Heads::default();
        };
        let shared = shared_prefix_len(first, last);
        let heads: Vec<u64> = keys.map(|key| head(key, shared)).collect();
        let blocks = heads.iter().step_by(BLOCK).copied().collect();
        Heads { prefix: first[..shared].to_vec(), heads, blocks }
    }

    /// What all keys begin with.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        (self.heads.capacity() + self.blocks.capacity()) * 8 + self.prefix.capacity()
    }

    /// The position of the first key that is `>= key`, or the count of keys. `key_at` gives whole keys.
    pub(crate) fn lower_bound<'k>(&self, key: &[u8], key_at: impl Fn(usize) -> &'k [u8]) -> usize {
        if !key.starts_with(&self.prefix) {
            // The key leaves the common prefix: it is before all keys or behind all.
            return if key < self.prefix.as_slice() { 0 } else { self.heads.len() };
        }
        let wanted = head(key, self.prefix.len());
        // The end of a scan is often the end of the chunk: behind all keys, without a search.
        if self.heads.last().is_none_or(|&last| last < wanted) {
            return self.heads.len();
        }
        let mut low = self.first_at_or_above(wanted);
        // Equal heads are ordered by their whole keys. Mostly there is one or none, which the next head tells.
        let mut high = match self.heads.get(low + 1) {
            Some(&next) if next == wanted => low + self.heads[low..].partition_point(|&h| h == wanted),
            _ => low + usize::from(self.heads[low] == wanted),
        };
        while low < high {
            let middle = low + (high - low) / 2;
            if key_at(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The position of the first head that is `>= wanted`, or the count of heads.
    fn first_at_or_above(&self, wanted: u64) -> usize {
        // It lies in the last block that begins below, or is the first of the next.
        let below = self.blocks.partition_point(|&h| h < wanted);
        let start = below.saturating_sub(1) * BLOCK;
        let end = (below * BLOCK).min(self.heads.len());
        start + self.heads[start..end].partition_point(|&h| h < wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_bound_equals_a_plain_search() {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for a in 0..20u8 {
            for b in [
                &b""[..],
                b"\0",
                b"x",
                b"longer than eight bytes",
                b"longer than eight bytes too",
                b"\xff\xff",
            ] {
                keys.push([b"app/".as_slice(), &[a * 7], b].concat());
            }
        }
        for i in 0..100 {
            keys.push(format!("app/equal heads over several blocks {i:03}").into_bytes());
        }
        keys.sort();
        keys.dedup();
        let heads = Heads::new(keys.iter().map(Vec::as_slice));
        let mut probes = keys.clone();
        probes.extend([
            b"".to_vec(),
            b"app".to_vec(),
            b"app/".to_vec(),
            b"apq".to_vec(),
            b"b".to_vec(),
            b"ap".to_vec(),
        ]);
        for key in keys.clone() {
            probes.push([key.as_slice(), b"\0"].concat());
            probes.push(key[..key.len() - 1].to_vec());
        }
        for probe in probes {
            let expected = keys.partition_point(|k| k < &probe);
            assert_eq!(heads.lower_bound(&probe, |i| &keys[i]), expected, "{probe:?}");
        }
    }

    #[test]
    fn one_key_and_no_key() {
        let none: [&[u8]; 0] = [];
        assert_eq!(Heads::new(none.into_iter()).lower_bound(b"a", |_| b""), 0);
        let one = [b"k".as_slice()];
        let heads = Heads::new(one.into_iter());
        assert_eq!(heads.lower_bound(b"j", |_| b"k"), 0);
        assert_eq!(heads.lower_bound(b"k", |_| b"k"), 0);
        assert_eq!(heads.lower_bound(b"l", |_| b"k"), 1);
    }
}
