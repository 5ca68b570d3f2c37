//! Keyspaces as key prefixes: how an id becomes the first bytes of every key, and how a key is prefixed
//! without an allocation.
//!
//! An engine knows one ordered map. Keyspace *i* owns the keys that begin with the encoding of *i*, which is
//! order-preserving and prefix-free:
//!
//! | id | bytes |
//! | --- | --- |
//! | 0 … 247 | the id itself |
//! | more | 247 + *n*, then the id in *n* bytes, big-endian, *n* = 1 … 4 and as small as possible |
//!
//! First bytes 252 … 255 are free. Id 0 is the default keyspace, id 1 the catalogue of names, users' own
//! begin at 2. An id is never used twice, so a dropped keyspace cannot come back to life.

use std::{
    collections::BTreeSet,
    ops::Bound,
    sync::atomic::{AtomicBool, Ordering},
};

use kvilt_base::{
    Error, KeyRange, Result,
    key::prefix_end,
    limits::{KEY_BYTES_MAX, KEYSPACE_PREFIX_BYTES_MAX, check_key},
};

/// The keyspace that has no name: what [`crate::Db`] itself reads and writes.
pub(crate) const DEFAULT_ID: u32 = 0;
/// Where names and ids of keyspaces are kept.
pub(crate) const CATALOGUE_ID: u32 = 1;
/// The first id for a keyspace with a name.
pub(crate) const FIRST_NAMED_ID: u32 = 2;

/// Ids up to this one take one byte.
const ONE_BYTE_ID_MAX: u32 = 247;

/// Prefixed keys up to these lengths are put together on the stack. The smaller one spares most gets the
/// clearing of the larger.
const SMALL_STACK_BYTES: usize = 64;
const LARGE_STACK_BYTES: usize = 256 + KEYSPACE_PREFIX_BYTES_MAX;

const _: () = assert!(KEYSPACE_PREFIX_BYTES_MAX == 1 + size_of::<u32>());

/// One keyspace, as its handles share it. Every method may be called from several threads.
#[derive(Debug)]
pub(crate) struct Space {
    name: String,
    prefix: [u8; KEYSPACE_PREFIX_BYTES_MAX],
    prefix_len: usize,
    is_dropped: AtomicBool,
}

impl Space {
    pub(crate) fn new(id: u32, name: &str) -> Self {
        let (prefix, prefix_len) = encode_id(id);
        Space { name: name.to_string(), prefix, prefix_len, is_dropped: AtomicBool::new(false) }
    }

    /// The name; empty for the default keyspace.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix[..self.prefix_len]
    }

    /// From now on every operation through a handle fails.
    pub(crate) fn mark_dropped(&self) {
        // Pairs with the load in `check_open`. A write that loaded before may still come; the catalogue's
        // mark lets the next open delete it.
        self.is_dropped.store(true, Ordering::Release);
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_dropped.load(Ordering::Acquire) {
            return Err(Error::invalid(format!(
                "the keyspace `{}` was dropped; `Db::keyspace` makes a new one of that name",
                self.name
            )));
        }
        Ok(())
    }

    /// Calls `use_key` with the engine's form of the user's `key`.
    pub(crate) fn with_key<R>(&self, key: &[u8], use_key: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        check_key(key, KEY_BYTES_MAX)?;
        let len = self.prefix_len + key.len();
        if len <= SMALL_STACK_BYTES {
            use_key(self.join(&mut [0; SMALL_STACK_BYTES], key))
        } else if len <= LARGE_STACK_BYTES {
            use_key(self.join(&mut [0; LARGE_STACK_BYTES], key))
        } else {
            use_key(&self.key(key))
        }
    }

    /// Appends the engine's form of the user's `key` to `joined`.
    pub(crate) fn push_key(&self, key: &[u8], joined: &mut Vec<u8>) -> Result<()> {
        check_key(key, KEY_BYTES_MAX)?;
        joined.extend_from_slice(self.prefix());
        joined.extend_from_slice(key);
        Ok(())
    }

    fn join<'b>(&self, buffer: &'b mut [u8], key: &[u8]) -> &'b [u8] {
        let len = self.prefix_len + key.len();
        buffer[..self.prefix_len].copy_from_slice(self.prefix());
        buffer[self.prefix_len..len].copy_from_slice(key);
        &buffer[..len]
    }

    /// The engine's form of a key, owned.
    pub(crate) fn key(&self, key: &[u8]) -> Vec<u8> {
        let mut joined = Vec::with_capacity(self.prefix_len + key.len());
        joined.extend_from_slice(self.prefix());
        joined.extend_from_slice(key);
        joined
    }

    /// The engine's form of a range of this keyspace.
    pub(crate) fn range(&self, range: &KeyRange) -> KeyRange {
        let end = match &range.end {
            Some(end) => Some(self.key(end)),
            None => prefix_end(self.prefix()),
        };
        KeyRange { start: self.key(&range.start), end }
    }
}

/// The keyspaces that an engine's range reaches into, each with the part of the range inside it, as its user
/// writes keys: of those in `known`, in order of their ids, and those in which it begins and ends. None if
/// the range begins with no id.
pub(crate) fn user_ranges(range: &KeyRange, known: &BTreeSet<u32>) -> Option<Vec<(u32, KeyRange)>> {
    // The first chunk of a store begins before the first keyspace.
    let (first, start) = if range.start.is_empty() { (0, &[][..]) } else { decode_id(&range.start)? };
    let Some((last, end)) = range.end.as_deref().and_then(decode_id) else {
        // The last chunk of a store ends behind the last keyspace.
        let begun = (first, KeyRange { start: start.to_vec(), end: None });
        let behind = known.range((Bound::Excluded(first), Bound::Unbounded));
        return Some(std::iter::once(begun).chain(behind.map(|id| (*id, KeyRange::all()))).collect());
    };
    if first == last {
        return Some(vec![(first, KeyRange { start: start.to_vec(), end: Some(end.to_vec()) })]);
    }
    let mut ranges = vec![(first, KeyRange { start: start.to_vec(), end: None })];
    let between = known.range((Bound::Excluded(first), Bound::Excluded(last)));
    ranges.extend(between.map(|id| (*id, KeyRange::all())));
    if !end.is_empty() {
        ranges.push((last, KeyRange { start: Vec::new(), end: Some(end.to_vec()) }));
    }
    Some(ranges)
}

/// The prefix of keyspace `id`, and how many of its bytes count.
pub(crate) fn encode_id(id: u32) -> ([u8; KEYSPACE_PREFIX_BYTES_MAX], usize) {
    let mut prefix = [0; KEYSPACE_PREFIX_BYTES_MAX];
    if id <= ONE_BYTE_ID_MAX {
        prefix[0] = id as u8;
        return (prefix, 1);
    }
    let bytes = id.to_be_bytes();
    let zeros = id.leading_zeros() as usize / 8;
    let len = bytes.len() - zeros;
    prefix[0] = ONE_BYTE_ID_MAX as u8 + len as u8;
    prefix[1..=len].copy_from_slice(&bytes[zeros..]);
    (prefix, 1 + len)
}

/// The keyspace id that an engine's key begins with, and the rest of the key; none if it begins with no id.
pub(crate) fn decode_id(key: &[u8]) -> Option<(u32, &[u8])> {
    let (&first, rest) = key.split_first()?;
    let Some(len) = u32::from(first).checked_sub(ONE_BYTE_ID_MAX).filter(|&len| len > 0) else {
        return Some((u32::from(first), rest));
    };
    if len > 4 || rest.len() < len as usize {
        return None;
    }
    let (id, rest) = rest.split_at(len as usize);
    Some((id.iter().fold(0, |id, &byte| (id << 8) | u32::from(byte)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [u32; 12] = [0, 1, 2, 247, 248, 255, 256, 65_535, 65_536, (1 << 24) - 1, 1 << 24, u32::MAX];

    fn encoded(id: u32) -> Vec<u8> {
        let (prefix, len) = encode_id(id);
        prefix[..len].to_vec()
    }

    #[test]
    fn prefixes_sort_like_their_ids_and_none_begins_another() {
        for pair in IDS.windows(2) {
            let (a, b) = (encoded(pair[0]), encoded(pair[1]));
            assert!(a < b, "{pair:?}");
            assert!(!b.starts_with(&a), "{pair:?}");
            assert!(prefix_end(&a).is_some_and(|end| end <= b), "{pair:?}");
        }
    }

    #[test]
    fn ids_decode_back_with_the_rest_of_the_key() {
        for id in IDS {
            let key = Space::new(id, "x").key(b"rest");
            assert_eq!(decode_id(&key), Some((id, b"rest".as_slice())));
        }
        assert_eq!(decode_id(b""), None);
        assert_eq!(decode_id(&[251, 1, 2]), None, "cut short");
        assert_eq!(decode_id(&[252, 1, 2, 3, 4, 5]), None, "not in use");
    }

    #[test]
    fn an_engines_range_is_told_in_the_users_keys_of_each_keyspace_it_reaches_into() {
        let known = BTreeSet::from([0, 1, 2, 300]);
        let told = |start: &[u8], end: Option<&[u8]>| {
            let range = KeyRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) };
            user_ranges(&range, &known)
        };
        let whole = |ids: &[u32]| ids.iter().map(|id| (*id, KeyRange::all())).collect::<Vec<_>>();
        let range = Space::new(300, "x").range(&KeyRange::new("b".."d"));
        assert_eq!(user_ranges(&range, &known), Some(vec![(300, KeyRange::new("b".."d"))]));
        assert_eq!(told(b"", None), Some(whole(&[0, 1, 2, 300])));
        assert_eq!(told(&[0, b'a'], Some(&[1])), Some(vec![(0, KeyRange::new("a"..))]));
        assert_eq!(
            told(&[0, b'a'], Some(&[2, b'k'])),
            Some(vec![(0, KeyRange::new("a"..)), (1, KeyRange::all()), (2, KeyRange::new("".."k"))])
        );
        assert_eq!(told(&[2, b'a'], None), Some(vec![(2, KeyRange::new("a"..)), (300, KeyRange::all())]));
        // Keyspaces whose names are lost.
        assert_eq!(
            told(&[7, b'a'], Some(&[9, b'b'])),
            Some(vec![(7, KeyRange::new("a"..)), (9, KeyRange::new("".."b"))])
        );
        assert_eq!(told(&[251, 1], None), None, "no id");
    }

    #[test]
    fn a_key_of_every_length_is_prefixed_the_same_way() {
        for id in [0, 300, u32::MAX] {
            let space = Space::new(id, "x");
            for len in [0, 1, 58, 59, 63, 64, 65, 255, 256, 257, 260, 261, 262, 1000, KEY_BYTES_MAX] {
                let key = vec![b'k'; len];
                let expected = space.key(&key);
                space
                    .with_key(&key, |joined| {
                        assert_eq!(joined, expected, "{len}");
                        Ok(())
                    })
                    .unwrap();
            }
            let too_long = vec![0; KEY_BYTES_MAX + 1];
            assert!(space.with_key(&too_long, |_| Ok(())).is_err());
        }
    }

    #[test]
    fn a_range_stays_inside_its_keyspace() {
        let space = Space::new(0, "");
        let all = space.range(&KeyRange::all());
        assert_eq!((all.start.as_slice(), all.end.as_deref()), (&[0][..], Some(&[1][..])));
        let last = space.range(&KeyRange::prefix(b"\xff"));
        assert_eq!((last.start.as_slice(), last.end.as_deref()), (&[0, 0xff][..], Some(&[1][..])));
    }
}
