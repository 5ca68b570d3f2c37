//! `SharedKey`: a bound that is kept for long, without the beginning that it shares with another one.
//!
//! First and last keys of files are kept while the store is open. Most are short. Long ones mostly begin like
//! others, a path of many directories say, and that is kept once for all of them; of the rest only so much is
//! kept as tells keys apart. Any thread may use it; what is always true: no key that a bound was made of lies
//! beyond it.

use std::{cmp::Ordering, collections::VecDeque, sync::Arc};

use kvilt_base::key::{cmp_joined, prefix_end, shared_prefix_len};
use parking_lot::Mutex;

/// Shorter keys, in bytes, are kept whole.
const LONG_BYTES: usize = 256;
/// So many keys are looked at for a beginning that is shared: each keyspace may have another. Half of the
/// places are for those that nobody has shared yet.
const BASES_MAX: usize = 8;
/// Of what a long key does not share, so many bytes are kept.
const REST_BYTES_MAX: usize = 128;
/// A base that others share already is taken if it shares at most so many bytes less than the best one.
const LESS_SHARED_MAX: usize = REST_BYTES_MAX / 2;

/// A key above `last` and at or below `next`, as short as may be, but never shorter than what may stand in
/// front of a user's key.
pub(crate) fn short_bound<'k>(last: &[u8], next: &'k [u8]) -> &'k [u8] {
    if next.len() <= LONG_BYTES {
        return next;
    }
    let kept = (shared_prefix_len(last, next) + 1).max(LONG_BYTES);
    &next[..kept.min(next.len())]
}

/// Beginnings of long keys that were kept lately.
#[derive(Default)]
pub(crate) struct LongKeys(Mutex<Bases>);

/// First those that nobody has shared, then the others, the one last that was shared last.
#[derive(Default)]
struct Bases {
    all: VecDeque<Arc<[u8]>>,
    shared_count: usize,
}

impl LongKeys {
    /// A bound that is not above the key: the key itself, unless it is long.
    pub(crate) fn keep_low(&self, key: &[u8]) -> SharedKey {
        if key.len() <= LONG_BYTES {
            return SharedKey { begin: None, rest: key.into() };
        }
        let begin = self.begin_of(key);
        let rest = &key[shared_len(&begin)..];
        SharedKey { begin, rest: rest[..rest.len().min(REST_BYTES_MAX)].into() }
    }

    /// A bound that is not below the key: the key itself, unless it is long.
    pub(crate) fn keep_high(&self, key: &[u8]) -> SharedKey {
        if key.len() <= LONG_BYTES {
            return SharedKey { begin: None, rest: key.into() };
        }
        let begin = self.begin_of(key);
        let rest = &key[shared_len(&begin)..];
        let behind = rest.get(..REST_BYTES_MAX).filter(|kept| kept.len() < rest.len()).and_then(prefix_end);
        SharedKey { begin, rest: behind.unwrap_or_else(|| rest.into()) }
    }

    /// Keeps such a bound in the place of `kept`, and uses its memory again if both are short.
    pub(crate) fn keep_low_instead(&self, kept: &mut SharedKey, key: &[u8]) {
        if !kept.takes(key) {
            *kept = self.keep_low(key);
        }
    }

    /// The same for the other one.
    pub(crate) fn keep_high_instead(&self, kept: &mut SharedKey, key: &[u8]) {
        if !kept.takes(key) {
            *kept = self.keep_high(key);
        }
    }

    /// What a long key begins with and others as well.
    fn begin_of(&self, key: &[u8]) -> Begin {
        let mut bases = self.0.lock();
        let begin = bases.find(key);
        if key.len() - shared_len(&begin) > REST_BYTES_MAX {
            bases.add(key);
        }
        begin
    }
}

impl Bases {
    fn find(&mut self, key: &[u8]) -> Begin {
        let unshared_count = self.all.len() - self.shared_count;
        let shared = |(at, base): (usize, &Arc<[u8]>)| match shared_prefix_len(base, key) {
            // The same key once more, of another file, says nothing of others.
            len if len == key.len() && at < unshared_count => 0,
            len => len,
        };
        let shared: Vec<usize> = self.all.iter().enumerate().map(shared).collect();
        let most = shared.iter().copied().max().filter(|most| *most >= LONG_BYTES)?;
        // The one that was shared last: else each key would have the one before it for itself.
        let best = shared.iter().rposition(|len| len + LESS_SHARED_MAX >= most)?;
        let base = self.all.remove(best)?;
        self.all.push_back(Arc::clone(&base));
        self.shared_count = (self.shared_count + usize::from(best < unshared_count)).min(BASES_MAX / 2);
        Some((base, shared[best]))
    }

    fn add(&mut self, key: &[u8]) {
        if self.all.len() == BASES_MAX {
            self.all.pop_front();
        }
        self.all.insert(self.all.len() - self.shared_count, key.into());
    }
}

/// So many bytes of this, if any.
type Begin = Option<(Arc<[u8]>, usize)>;

fn shared_len(begin: &Begin) -> usize {
    begin.as_ref().map_or(0, |(_, len)| *len)
}

/// A bound that is kept.
#[derive(Clone, Debug)]
pub(crate) struct SharedKey {
    begin: Begin,
    rest: Vec<u8>,
}

impl SharedKey {
    /// How it compares with a key.
    pub(crate) fn cmp(&self, key: &[u8]) -> Ordering {
        cmp_joined(self.begin(), &self.rest, key)
    }

    fn begin(&self) -> &[u8] {
        self.begin.as_ref().map_or(&[][..], |(base, len)| &base[..*len])
    }

    /// Becomes this key if both are short.
    fn takes(&mut self, key: &[u8]) -> bool {
        let are_short = key.len() <= LONG_BYTES && self.begin.is_none();
        if are_short {
            key.clone_into(&mut self.rest);
        }
        are_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(c: u8, end: &str) -> Vec<u8> {
        [vec![c; 1000], end.into()].concat()
    }

    #[test]
    fn no_key_lies_beyond_its_bound() {
        let mut keys: Vec<Vec<u8>> =
            vec![b"".into(), b"a".into(), b"b".into(), vec![b'b'; 999], vec![b'a'; 300], vec![0xff; 5000]];
        for c in *b"abcdefghijkl\xff" {
            keys.extend(["", "1", "2", "22", "3\0"].map(|end| long(c, end)));
            keys.extend(["1", "2"].map(|end| [long(c, end), vec![c; 1000], end.into()].concat()));
        }
        let known = LongKeys::default();
        for key in &keys {
            let (low, high) = (known.keep_low(key), known.keep_high(key));
            assert!(low.cmp(key).is_le(), "{} bytes", key.len());
            assert!(high.cmp(key).is_ge(), "{} bytes", key.len());
            let is_whole = key.len() <= LONG_BYTES;
            assert!(!is_whole || (low.cmp(key).is_eq() && high.cmp(key).is_eq()));
        }
    }

    #[test]
    fn bounds_in_a_place_of_others_are_as_good() {
        let known = LongKeys::default();
        let mut low = known.keep_low(b"m");
        let mut high = low.clone();
        for key in [long(b'a', "2"), b"x".to_vec(), long(b'c', "1"), b"b".to_vec(), long(b'a', "1")] {
            known.keep_low_instead(&mut low, &key);
            known.keep_high_instead(&mut high, &key);
            assert!(low.cmp(&key).is_le() && high.cmp(&key).is_ge(), "{} bytes", key.len());
        }
    }

    /// First and last keys of logs and tables each took sixty kilobytes.
    #[test]
    fn what_keys_share_is_kept_once() {
        let known = LongKeys::default();
        let prefix = vec![b'p'; 60 << 10];
        let key = |i: u32| [&prefix, i.to_be_bytes().as_slice()].concat();
        known.keep_low(&key(0));
        let kept: Vec<_> = (1..1000).map(|i| (known.keep_low(&key(i)), known.keep_high(&key(i)))).collect();
        for (i, (low, high)) in (1..1000).zip(&kept) {
            assert!(low.rest.len() <= 4 && high.rest.len() <= 4, "a bound has more than its own");
            assert!(low.cmp(&key(i)).is_eq() && high.cmp(&key(i)).is_eq(), "bounds tell keys apart");
        }
        assert_eq!(known.0.lock().all.len(), 1);
    }

    /// Half of such a key is its own, and was kept for each file.
    #[test]
    fn what_follows_where_keys_differ_is_not_kept() {
        let known = LongKeys::default();
        let key = |i: u32| {
            let i = i.wrapping_mul(0x9e37_79b9);
            [&[b'p'; 30_000], i.to_be_bytes().as_slice(), &[b'q'; 30_000]].concat()
        };
        known.keep_low(&key(0));
        let kept: Vec<_> = (1..1000).map(|i| (known.keep_low(&key(i)), known.keep_high(&key(i)))).collect();
        let mut bases: Vec<*const u8> = Vec::new();
        for (i, (low, high)) in (1..1000).zip(&kept) {
            assert!(low.cmp(&key(i)).is_le() && high.cmp(&key(i)).is_ge());
            for other in (1..1000).filter(|other| key(*other) > key(i)) {
                assert!(high.cmp(&key(other)).is_lt() && kept[other as usize - 1].0.cmp(&key(i)).is_gt());
            }
            for kept in [low, high] {
                assert!(kept.rest.len() <= REST_BYTES_MAX);
                bases.extend(kept.begin.as_ref().map(|(base, _)| base.as_ptr()));
            }
        }
        bases.sort_unstable();
        bases.dedup();
        assert!(bases.len() <= 2, "{} keys are kept whole", bases.len());
    }

    #[test]
    fn a_bound_is_short_and_lies_between() {
        let check = |last: &[u8], next: &[u8], len: usize| {
            let bound = short_bound(last, next);
            assert!(last < bound && bound <= next && bound.len() == len, "{} bytes", bound.len());
        };
        check(b"", b"a", 1);
        check(b"abc", b"abd-and-more", 12);
        check(&long(b'a', "1"), &long(b'a', "2 and more"), 1001);
        check(&long(b'a', "1"), &long(b'b', ""), LONG_BYTES);
        check(&long(b'a', ""), &long(b'a', "xy"), 1001);
    }
}
