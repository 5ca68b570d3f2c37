//! `Bound`: where a range tombstone begins or ends.
//!
//! Most are short, and lie where they are kept. Long ones mostly begin as the ones beside them do, and have
//! that in common: two bounds of sixty kilobytes for each range delete were more memory than all rows of a
//! small store.

use std::{cmp::Ordering, hash::BuildHasher as _, sync::Arc};

use kvilt_base::key::{cmp_joined, shared_prefix_len};

/// Bytes of the longest key that lies in its node: a get that walks down the tree then waits for memory once
/// a node, not twice.
const SHORT_BYTES: usize = 30;
/// Longer keys are kept without what they share with others, in bytes.
const LONG_BYTES: usize = 256;
/// A key shares a beginning if the rest is at most this part of it, in parts.
const REST_PART_MAX: usize = 4;

/// The upper half of a key's hash. The same in every process, so replays of one seed take one path.
fn key_hash(key: &[u8]) -> u32 {
    (foldhash::fast::FixedState::with_seed(0x6b76_696c).hash_one(key) >> 32) as u32
}

/// A key. It compares as the key that it was made of.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    Short(u8, [u8; SHORT_BYTES]),
    Whole(Arc<[u8]>),
    Joined(Arc<Joined>),
}

/// A key that begins as others do.
#[derive(Debug)]
pub(super) struct Joined {
    base: Arc<[u8]>,
    /// Bytes of that with which it begins.
    shared_len: usize,
    rest: Box<[u8]>,
}

impl Bound {
    /// This key, beside others that it may share a beginning with.
    pub(super) fn new<'b>(key: &[u8], beside: impl IntoIterator<Item = &'b Bound>) -> Self {
        let mut short = [0; SHORT_BYTES];
        if let Some(place) = short.get_mut(..key.len()) {
            place.copy_from_slice(key);
            return Bound::Short(key.len() as u8, short);
        }
        if key.len() <= LONG_BYTES {
            return Bound::Whole(key.into());
        }
        let base = |bound: &'b Bound| match bound {
            Bound::Joined(joined) => Some((shared_prefix_len(&joined.base, key), &joined.base)),
            Bound::Short(..) | Bound::Whole(_) => None,
        };
        let best = beside.into_iter().filter_map(base).max_by_key(|(shared_len, _)| *shared_len);
        let best = best.filter(|(shared_len, _)| key.len() - shared_len <= key.len() / REST_PART_MAX);
        let (shared_len, base) =
            best.map_or_else(|| (key.len(), key.into()), |(len, base)| (len, Arc::clone(base)));
        Bound::Joined(Arc::new(Joined { base, shared_len, rest: key[shared_len..].into() }))
    }

    /// Memory beside its own, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        // With the counts of who shares it.
        let counts = 2 * size_of::<usize>();
        let bytes = match self {
            Bound::Short(..) => 0,
            Bound::Whole(key) => key.len() + counts,
            Bound::Joined(joined) => {
                // What others share is counted where it is all of a key: mostly once.
                let base_bytes = if joined.rest.is_empty() { joined.base.len() } else { 0 };
                base_bytes + joined.rest.len() + size_of::<Joined>() + counts
            }
        };
        bytes as u64
    }

    /// How it compares with a key.
    #[inline]
    pub(super) fn cmp_key(&self, key: &[u8]) -> Ordering {
        let (begin, rest) = self.parts();
        cmp_joined(begin, rest, key)
    }

    /// The key.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let (begin, rest) = self.parts();
        [begin, rest].concat()
    }

    /// The hash of the key.
    pub(super) fn hash(&self) -> u32 {
        match self {
            Bound::Joined(_) => key_hash(&self.to_vec()),
            Bound::Short(..) | Bound::Whole(_) => key_hash(self.parts().1),
        }
    }

    #[inline]
    fn parts(&self) -> (&[u8], &[u8]) {
        match self {
            Bound::Short(len, short) => (&[], &short[..usize::from(*len)]),
            Bound::Whole(key) => (&[], key),
            Bound::Joined(joined) => (&joined.base[..joined.shared_len], &joined.rest),
        }
    }
}

impl Ord for Bound {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Bound::Joined(a), Bound::Joined(b)) if Arc::ptr_eq(&a.base, &b.base) => {
                // The longer beginning goes on where the other one's rest begins.
                let shared_len = a.shared_len.min(b.shared_len);
                let begin_of = |joined: &'_ Joined| shared_len..joined.shared_len;
                if b.shared_len == shared_len {
                    cmp_joined(&a.base[begin_of(a)], &a.rest, &b.rest)
                } else {
                    cmp_joined(&b.base[begin_of(b)], &b.rest, &a.rest).reverse()
                }
            }
            (Bound::Joined(_), Bound::Joined(_)) => self.cmp_key(&other.to_vec()),
            (Bound::Joined(_), _) => self.cmp_key(other.parts().1),
            (_, _) => other.cmp_key(self.parts().1).reverse(),
        }
    }
}

impl PartialOrd for Bound {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Bound {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Bound {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_compare_as_their_keys_do() {
        let mut keys: Vec<Vec<u8>> =
            vec![b"".into(), b"a".into(), vec![b'a'; 30], vec![b'a'; 31], vec![b'a'; 256]];
        for c in *b"abc" {
            for end in ["", "1", "12", "2", "\0"] {
                keys.push([vec![c; 400], end.into()].concat());
                keys.push([vec![c; 500], end.into()].concat());
            }
        }
        let mut bounds: Vec<Bound> = Vec::new();
        for key in &keys {
            bounds.push(Bound::new(key, &bounds));
        }
        for (key, bound) in keys.iter().zip(&bounds) {
            assert_eq!(&bound.to_vec(), key);
            for (other_key, other) in keys.iter().zip(&bounds) {
                assert_eq!(bound.cmp_key(other_key), key.cmp(other_key));
                assert_eq!(
                    bound.cmp(other),
                    key.cmp(other_key),
                    "{} and {} bytes",
                    key.len(),
                    other_key.len()
                );
            }
        }
    }

    /// Each range delete of such keys took two of them.
    #[test]
    fn what_bounds_share_is_kept_once() {
        // Under miri each byte of each comparison takes its time.
        let (prefix_bytes, bounds) = if cfg!(miri) { (2 << 10, 20) } else { (60 << 10, 1000) };
        let prefix = vec![b'p'; prefix_bytes];
        let key = |i: u32| [&prefix, i.to_be_bytes().as_slice()].concat();
        let first = Bound::new(&key(0), []);
        for i in 1..bounds {
            let bound = Bound::new(&key(i), [&first]);
            assert!(bound.bytes() < 100, "{} bytes", bound.bytes());
            assert_eq!(bound.to_vec(), key(i));
        }
    }
}
