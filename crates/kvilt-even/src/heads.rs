//! `Heads`: eight bytes of each of many sorted keys, side by side, to search before touching a whole key.
//!
//! The keys of one chunk share a prefix (that is what spatial locality means); the eight bytes after what the
//! first and the last key share tell most keys apart. Searching this array touches a few cache lines, where
//! comparing keys would touch one or two for each step.

use kvilt_base::{
    key::{begins_with, shared_prefix_len},
    steps::steps,
};
use kvilt_sync::fetch_ahead;

/// Heads in a block: four cache lines of them.
pub(crate) const BLOCK: usize = 32;
const HEADS_A_LINE: usize = 8;

/// The searchable heads of a sorted sequence of keys, whose whole keys live elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    /// What all keys begin with.
    prefix: Vec<u8>,
    heads: Vec<u64>,
    /// The first head of each block. A search through all heads at once would touch a cache line a step;
    /// these are few enough to stay in the cache, and then it is the lines of one block.
    blocks: Vec<u64>,
}

/// Heads of a run that is woven: some of another's, and new ones between them.
pub(crate) struct HeadsWeaver<'h> {
    before: &'h Heads,
    heads: Vec<u64>,
    /// Whether all keys so far begin with the prefix that was.
    is_of_prefix: bool,
}

impl HeadsWeaver<'_> {
    /// The heads at these positions come next.
    pub(crate) fn keep(&mut self, positions: std::ops::Range<usize>) {
        self.heads.extend_from_slice(&self.before.heads[positions]);
    }

    /// A key comes next.
    pub(crate) fn push(&mut self, key: &[u8]) {
        let prefix = &self.before.prefix;
        self.is_of_prefix &= key.starts_with(prefix);
        self.heads.push(head(key, prefix.len()));
    }

    /// None if some key does not begin with what the others have in common: then all heads change.
    pub(crate) fn finish(mut self) -> Option<Heads> {
        self.heads.shrink_to_fit();
        self.is_of_prefix.then(|| Heads::of(self.before.prefix.clone(), self.heads))
    }
}

/// One step of a search.
#[inline]
fn is_below(head: u64, wanted: u64) -> bool {
    steps(1);
    head < wanted
}

/// The eight bytes of `key` behind `skip`, padded with zeros, as a number with the same order.
pub(crate) fn head(key: &[u8], skip: usize) -> u64 {
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
        Heads::of(first[..shared].to_vec(), keys.map(|key| head(key, shared)).collect())
    }

    fn of(prefix: Vec<u8>, heads: Vec<u64>) -> Self {
        let blocks = heads.iter().step_by(BLOCK).copied().collect();
        Heads { prefix, heads, blocks }
    }

    /// Of those parts of `self` that stay, and of keys between them.
    pub(crate) fn woven(&self, room: usize) -> HeadsWeaver<'_> {
        HeadsWeaver { before: self, heads: Vec::with_capacity(room), is_of_prefix: true }
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
        self.lower_bound_in(key, key_at, |_| {})
    }

    /// The same; tells where the block begins that is about to be searched, if one is.
    pub(crate) fn lower_bound_in<'k>(
        &self,
        key: &[u8],
        key_at: impl Fn(usize) -> &'k [u8],
        block: impl FnOnce(usize),
    ) -> usize {
        if !begins_with(key, &self.prefix) {
            // The key leaves the common prefix: it is before all keys or behind all.
            return if key < self.prefix.as_slice() { 0 } else { self.heads.len() };
        }
        let wanted = head(key, self.prefix.len());
        // The end of a scan is often the end of the chunk: behind all keys, without a search.
        if self.heads.last().is_none_or(|&last| last < wanted) {
            return self.heads.len();
        }
        let mut low = self.first_at_or_above(wanted, block);
        // Equal heads are ordered by their whole keys. Mostly there is one or none, which the next head
        // tells.
        let mut high = match self.heads.get(low + 1) {
            Some(&next) if next == wanted => low + self.heads[low..].partition_point(|&h| h == wanted),
            _ => low + usize::from(self.heads[low] == wanted),
        };
        while low < high {
            steps(1);
            let middle = low + (high - low) / 2;
            if key_at(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The position of the first key that is `> key`, or the count of keys, if no key is there twice.
    pub(crate) fn upper_bound<'k>(&self, key: &[u8], key_at: impl Fn(usize) -> &'k [u8]) -> usize {
        let low = self.lower_bound(key, &key_at);
        // Mostly it is another key, which its head tells.
        let may_be_it = self.heads.get(low).is_some_and(|&h| h == head(key, self.prefix.len()));
        low + usize::from(may_be_it && key_at(low) == key)
    }

    /// The position of the first head that is `>= wanted`, or the count of heads.
    fn first_at_or_above(&self, wanted: u64, block: impl FnOnce(usize)) -> usize {
        // It lies in the last block that begins below, or is the first of the next.
        let below = self.blocks.partition_point(|&h| is_below(h, wanted));
        let start = below.saturating_sub(1) * BLOCK;
        let end = (below * BLOCK).min(self.heads.len());
        // Its lines at once: the search would wait for one after the other.
        self.heads[start..end].iter().step_by(HEADS_A_LINE).for_each(fetch_ahead);
        block(start);
        start + self.heads[start..end].partition_point(|&h| is_below(h, wanted))
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
            let expected = keys.partition_point(|k| k <= &probe);
            assert_eq!(heads.upper_bound(&probe, |i| &keys[i]), expected, "{probe:?}");
        }
    }

    #[test]
    fn woven_heads_search_as_new_ones_do() {
        let key = |i: usize| format!("k{i:03}").into_bytes();
        let before: Vec<Vec<u8>> = (0..100).map(key).collect();
        let heads = Heads::new(before.iter().map(Vec::as_slice));
        let mut weaver = heads.woven(0);
        weaver.keep(0..40);
        weaver.push(b"k0395");
        weaver.push(b"k0396");
        weaver.keep(41..100);
        let woven = weaver.finish().unwrap();
        let mut keys = before;
        keys.splice(40..41, [b"k0395".to_vec(), b"k0396".to_vec()]);
        for probe in keys.iter().flat_map(|key| [key.clone(), [key, b"x".as_slice()].concat()]) {
            let expected = keys.partition_point(|k| k < &probe);
            assert_eq!(woven.lower_bound(&probe, |i| &keys[i]), expected, "{probe:?}");
        }
        let mut weaver = heads.woven(0);
        weaver.keep(0..100);
        weaver.push(b"l");
        assert!(weaver.finish().is_none(), "the prefix is another");
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
