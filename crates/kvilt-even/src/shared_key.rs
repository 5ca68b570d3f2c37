//! `SharedKey`: a key that is kept for long, without the beginning that it shares with another one.
//!
//! Bounds of chunks and first and last keys of files are kept while the store is open. Most are short. Long ones mostly begin like
//! others, a path of many directories say, and that is kept once for all of them. Any thread may use it; what is always true: it
//! compares as the key that it was made of.

use std::{cmp::Ordering, collections::VecDeque, sync::Arc};

use kvilt_base::key::{cmp_joined, shared_prefix_len};
use parking_lot::Mutex;

/// Shorter keys, in bytes, are kept whole.
const LONG_BYTES: usize = 256;
/// So many keys are looked at for a beginning that is shared: each keyspace may have another.
const BASES_MAX: usize = 8;
/// A key shares a beginning if the rest is at most this part of it, in parts.
const REST_PART_MAX: usize = 4;

/// Beginnings of long keys that were kept lately.
#[derive(Default)]
pub(crate) struct LongKeys(Mutex<VecDeque<Arc<[u8]>>>);

impl LongKeys {
    /// The key, to be kept.
    pub(crate) fn keep(&self, key: &[u8]) -> SharedKey {
        if key.len() <= LONG_BYTES {
            return SharedKey { begin: None, rest: key.into() };
        }
        self.keep_long(key)
    }

    /// Keeps this key in the place of `kept`, and uses its memory again if both are short.
    pub(crate) fn keep_instead(&self, kept: &mut SharedKey, key: &[u8]) {
        if key.len() <= LONG_BYTES && kept.begin.is_none() {
            key.clone_into(&mut kept.rest);
        } else {
            *kept = self.keep(key);
        }
    }

    fn keep_long(&self, key: &[u8]) -> SharedKey {
        let mut bases = self.0.lock();
        let shared = |base: &Arc<[u8]>| shared_prefix_len(base, key);
        let best = bases.iter().enumerate().map(|(at, base)| (shared(base), at)).max();
        if let Some((shared, at)) = best.filter(|(shared, _)| key.len() - shared <= key.len() / REST_PART_MAX)
        {
            return SharedKey { begin: Some((Arc::clone(&bases[at]), shared)), rest: key[shared..].into() };
        }
        let base: Arc<[u8]> = key.into();
        bases.push_back(Arc::clone(&base));
        if bases.len() > BASES_MAX {
            bases.pop_front();
        }
        SharedKey { begin: Some((base, key.len())), rest: Vec::new() }
    }
}

/// A key that is kept.
#[derive(Clone, Debug)]
pub(crate) struct SharedKey {
    /// A long key begins as so many bytes of this do.
    begin: Option<(Arc<[u8]>, usize)>,
    rest: Vec<u8>,
}

impl SharedKey {
    /// How it compares with a key.
    pub(crate) fn cmp(&self, key: &[u8]) -> Ordering {
        let begin = self.begin.as_ref().map_or(&[][..], |(base, len)| &base[..*len]);
        cmp_joined(begin, &self.rest, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_compares_as_what_it_was_made_of() {
        let long = |c: u8, end: &str| [vec![c; 1000], end.into()].concat();
        let mut keys: Vec<Vec<u8>> =
            vec![b"".into(), b"a".into(), b"b".into(), vec![b'b'; 999], vec![b'a'; 300]];
        for c in *b"abcdefghijkl" {
            keys.extend(["", "1", "2", "22", "3\0"].map(|end| long(c, end)));
        }
        let known = LongKeys::default();
        let kept: Vec<_> = keys.iter().map(|key| known.keep(key)).collect();
        for (key, kept) in keys.iter().zip(&kept) {
            let begin = kept.begin.as_ref().map_or(&[][..], |(base, len)| &base[..*len]);
            assert_eq!(&[begin, &kept.rest].concat(), key);
            for other in &keys {
                assert_eq!(kept.cmp(other), key.cmp(other), "{} and {} bytes", key.len(), other.len());
            }
        }
    }

    /// First and last keys of logs and tables, and the bounds of chunks, each took sixty kilobytes.
    #[test]
    fn what_keys_share_is_kept_once() {
        let known = LongKeys::default();
        let prefix = vec![b'p'; 60 << 10];
        let kept: Vec<_> =
            (0..1000u32).map(|i| known.keep(&[&prefix, i.to_be_bytes().as_slice()].concat())).collect();
        assert!(kept.iter().all(|key| key.rest.len() <= 4), "a key has more than its own");
        assert_eq!(known.0.lock().len(), 1);
    }
}
