//! Key ranges: bytewise order, bounds made uniform, prefixes, successors.

use std::{
    cmp::Ordering,
    ops::{Bound, RangeBounds},
};

/// Keys from `start` (inclusive) to `end` (exclusive; `None` means without end), in bytewise order.
///
/// Every user range is brought into this form once, at the door: the successor of a key `k` is `k` followed
/// by a zero byte, so exclusive starts and inclusive ends need no case of their own below.
///
/// ```
/// use kvilt_base::KeyRange;
/// assert!(KeyRange::new(b"a".as_slice()..=b"b".as_slice()).contains(b"b"));
/// assert!(KeyRange::new(b"z".as_slice()..b"a".as_slice()).is_empty());
/// assert_eq!(KeyRange::prefix(b"ab\xff").end.as_deref(), Some(b"ac".as_slice()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeyRange {
    /// First key inside.
    pub start: Vec<u8>,
    /// First key outside, or none.
    pub end: Option<Vec<u8>>,
}

impl KeyRange {
    /// The range with these bounds. A start behind the end makes an empty range.
    pub fn new<K: AsRef<[u8]>>(bounds: impl RangeBounds<K>) -> Self {
        let start = match bounds.start_bound() {
            Bound::Included(k) => k.as_ref().to_vec(),
            Bound::Excluded(k) => successor(k.as_ref()),
            Bound::Unbounded => Vec::new(),
        };
        let end = match bounds.end_bound() {
            Bound::Included(k) => Some(successor(k.as_ref())),
            Bound::Excluded(k) => Some(k.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        KeyRange { start, end }
    }

    /// Every key.
    pub fn all() -> Self {
        KeyRange::default()
    }

    /// The keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        KeyRange { start: prefix.to_vec(), end: prefix_end(prefix) }
    }

    /// Whether `key` lies inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_slice() && self.end.as_deref().is_none_or(|end| key < end)
    }

    /// Whether no key can lie inside.
    pub fn is_empty(&self) -> bool {
        self.end.as_deref().is_some_and(|end| end <= self.start.as_slice())
    }

    /// Whether every key of `other` lies inside.
    pub fn covers(&self, other: &KeyRange) -> bool {
        self.start <= other.start && is_end_at_or_before(other.end.as_deref(), self.end.as_deref())
    }

    /// What both have in common; possibly empty.
    #[must_use]
    pub fn intersection(&self, other: &KeyRange) -> KeyRange {
        let end = if is_end_at_or_before(self.end.as_deref(), other.end.as_deref()) {
            &self.end
        } else {
            &other.end
        };
        KeyRange { start: (&self.start).max(&other.start).clone(), end: end.clone() }
    }
}

/// Whether the exclusive end `a` comes no later than `b`; `None` is the end of everything.
pub fn is_end_at_or_before(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a <= b,
    }
}

/// The first key after `key`.
pub fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// The first key behind all keys with this prefix, or none if there is no such key.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end)
}

/// Whether `key` begins with `prefix`, which may be empty.
///
/// `starts_with` alone would be slow where a prefix is often empty: an empty `Vec` points to an address that
/// is not mapped, and where `memcmp` compares no bytes by a masked AVX-512 load, the processor takes some 100
/// ns to suppress the fault.
#[inline]
pub fn begins_with(key: &[u8], prefix: &[u8]) -> bool {
    prefix.is_empty() || key.starts_with(prefix)
}

/// How a key that is kept as a beginning, which may be empty, and the rest compares with another one.
#[inline]
pub fn cmp_joined(begin: &[u8], rest: &[u8], key: &[u8]) -> Ordering {
    if begin.is_empty() {
        // No comparison with an empty beginning: see `begins_with`.
        return rest.cmp(key);
    }
    match key.split_at_checked(begin.len()) {
        Some((its_begin, its_rest)) => begin.cmp(its_begin).then_with(|| rest.cmp(its_rest)),
        // The other one ends before the beginning does.
        None => begin.cmp(key),
    }
}

/// How many leading bytes two keys share.
pub fn shared_prefix_len(a: &[u8], b: &[u8]) -> usize {
    // Eight bytes at a time: puts and tables do this for every key.
    let (words_a, words_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let same = words_a.iter().zip(words_b).take_while(|(x, y)| x == y).count() * 8;
    same + a[same..].iter().zip(&b[same..]).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_become_half_open() {
        let r = KeyRange::new::<&[u8]>((Bound::Excluded(&b"a"[..]), Bound::Included(&b"c"[..])));
        assert!(!r.contains(b"a") && r.contains(b"a\0") && r.contains(b"c") && !r.contains(b"c\0"));
        assert!(KeyRange::all().contains(b""));
    }

    #[test]
    fn shared_bytes_are_counted_across_words() {
        let key = b"0123456789abcdefghij";
        for shared in 0..=key.len() {
            for len in shared..=key.len() {
                let mut other = key[..len].to_vec();
                if let Some(differs) = other.get_mut(shared) {
                    *differs ^= 0x40;
                }
                assert_eq!(
                    (shared_prefix_len(key, &other), shared_prefix_len(&other, key)),
                    (shared, shared)
                );
            }
        }
    }

    #[test]
    fn prefixes_of_0xff_have_no_end() {
        assert_eq!(prefix_end(b"\xff\xff"), None);
        assert_eq!(prefix_end(b""), None);
        assert_eq!(prefix_end(b"a\xff"), Some(b"b".to_vec()));
    }

    #[test]
    fn intersection_and_cover_respect_open_ends() {
        let all = KeyRange::all();
        let some = KeyRange::new(b"b".as_slice()..b"d".as_slice());
        assert_eq!(all.intersection(&some), some);
        assert!(all.covers(&some) && !some.covers(&all) && some.covers(&some));
        let later = KeyRange::new(b"x".as_slice()..);
        assert!(some.intersection(&later).is_empty());
    }
}
