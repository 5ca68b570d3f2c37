//! `List`: sorted keys in one piece of memory, each as what it does not share with the key before it.
//!
//! Where it stands: what a node of the index consists of. An entry is: bytes shared with the key before,
//! number of further bytes (both as varints), these bytes, and in a leaf the place. The first `skip` bytes,
//! which the node's separators force upon each of its keys, are in no list. Always true: keys ascend, and an
//! entry shares with the one before exactly the bytes that it says. So a search compares each byte of the
//! key once, an insertion or removal changes one entry and the head of the next, and no key is built for it.

#[cfg(test)]
mod tests;

use std::ops::Range;

use kvilt_base::key::shared_prefix_len;
use kvilt_sync::fetch_ahead;

use crate::place::{PLACE_BYTES, Place};

use super::entries::Entries;

/// Memory of a list grows and shrinks by steps of this many bytes.
const STEP_BYTES: usize = 32;

/// What processors fetch at once, and how much of a list a search asks for at its beginning.
const LINE_BYTES: usize = 64;
const LINES_AHEAD: usize = 12;

/// Most bytes of an entry's two numbers.
const NUMBERS_BYTES_MAX: usize = 10;

/// Sorted keys, with their places or without.
#[derive(Debug)]
pub(super) struct List {
    bytes: Vec<u8>,
    /// Leading bytes that all keys share and that are not here.
    skip: u32,
    count: u16,
    /// Bytes of a place: none in a list of separators.
    width: u8,
    /// The first bytes of each separator, which decide nearly always; empty in a list with places.
    heads: Box<[Head]>,
}

/// The first bytes of a key after the skipped ones, as a number that is ordered as they are.
type Head = u128;

const HEAD_BYTES: usize = size_of::<Head>();

/// Where a key stands in a list, or would stand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spot {
    /// Entries with lesser keys.
    pub(super) index: usize,
    /// Whether the key is there.
    pub(super) is_equal: bool,
    at: usize,
    /// Bytes that the key shares with the entry before, and with the one at the spot.
    shared: usize,
    shared_next: usize,
}

/// One entry: what it shares with the one before, where its further bytes lie, and where the next begins.
struct Entry {
    shared: usize,
    own: Range<usize>,
    next: usize,
}

impl List {
    pub(super) fn new(has_places: bool, skip: usize) -> Self {
        let width = if has_places { PLACE_BYTES as u8 } else { 0 };
        List { bytes: Vec::new(), skip: skip as u32, count: 0, width, heads: Box::default() }
    }

    /// The entries as a list; all begin with the same `skip` bytes.
    pub(super) fn of(entries: &Entries, has_places: bool, skip: usize) -> Self {
        let mut list = List::new(has_places, skip);
        let mut last = entries.iter().next().map_or(&[][..], |(key, _)| &key[..skip]);
        for (key, place) in entries.iter() {
            let shared = shared_prefix_len(last, key);
            list.push(shared - skip, &[&key[shared..]], &place.to_bytes()[..usize::from(list.width)]);
            last = key;
        }
        list.count = entries.len() as u16;
        list.settle();
        list
    }

    pub(super) fn count(&self) -> usize {
        usize::from(self.count)
    }

    pub(super) fn skip(&self) -> usize {
        self.skip as usize
    }

    pub(super) fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Lengths of its pieces of memory.
    pub(super) fn pieces(&self) -> [usize; 2] {
        [self.bytes.capacity(), size_of_val(&*self.heads)]
    }

    /// The first key, without the bytes skipped; none is empty.
    pub(super) fn first(&self) -> &[u8] {
        if self.count == 0 { &[] } else { &self.bytes[self.entry(0).own] }
    }

    /// Bytes of all entries but the first, which has a whole key, however long.
    pub(super) fn bytes_after_first(&self) -> usize {
        if self.count == 0 { 0 } else { self.bytes.len() - self.entry(0).next }
    }

    /// How many separators are at or below `key`, which begins with the bytes that this list skips.
    #[inline]
    pub(super) fn rank(&self, key: &[u8]) -> usize {
        let head = head_of(&key[self.skip()..]);
        let rank = self.heads.partition_point(|its| *its < head);
        if self.heads.get(rank) != Some(&head) {
            return rank;
        }
        let spot = self.find(key);
        spot.index + usize::from(spot.is_equal)
    }

    /// Finds `key`, which begins with the bytes that this list skips.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Spot {
        let key = &key[self.skip()..];
        // A leaf comes from memory: all of it at once, not line after line.
        self.bytes.chunks(LINE_BYTES).take(LINES_AHEAD).for_each(|line| fetch_ahead(&line[0]));
        let mut spot = Spot::default();
        while spot.at < self.bytes.len() {
            let entry = self.entry(spot.at);
            // If it follows the key before it for longer than the key sought does, it is less, too.
            if entry.shared <= spot.shared {
                if entry.shared < spot.shared {
                    // It leaves the key before it where the key sought still follows that: it is greater.
                    spot.shared_next = entry.shared;
                    break;
                }
                let (rest, own) = (&key[spot.shared..], &self.bytes[entry.own]);
                match (rest.first(), own.first()) {
                    (Some(byte), Some(its)) if its < byte => {}
                    (Some(byte), Some(its)) if its > byte => {
                        spot.shared_next = spot.shared;
                        break;
                    }
                    _ => {
                        let same = shared_prefix_len(rest, own);
                        if same == rest.len() || own.get(same).is_some_and(|byte| *byte > rest[same]) {
                            spot.shared_next = spot.shared + same;
                            spot.is_equal = same == rest.len() && same == own.len();
                            break;
                        }
                        spot.shared += same;
                    }
                }
            }
            spot.at = entry.next;
            spot.index += 1;
        }
        spot
    }

    /// The place at a spot where the key is.
    #[inline]
    pub(super) fn place(&self, spot: &Spot) -> Place {
        self.place_before(self.entry(spot.at).next)
    }

    /// Changes the place at a spot where the key is; returns the old one.
    pub(super) fn set_place(&mut self, spot: &Spot, place: Place) -> Place {
        let end = self.entry(spot.at).next;
        let old = self.place_before(end);
        self.bytes[end - PLACE_BYTES..end].copy_from_slice(&place.to_bytes());
        old
    }

    /// Inserts `key` at the spot where it was not found.
    pub(super) fn insert(&mut self, spot: &Spot, key: &[u8], place: Place) {
        let own = &key[self.skip() + spot.shared..];
        let (head, head_len) = head(spot.shared, own.len());
        let mut end = spot.at;
        let mut next_head = ([0; NUMBERS_BYTES_MAX], 0);
        if spot.index < self.count() {
            let next = self.entry(spot.at);
            end = next.own.start + (spot.shared_next - next.shared);
            next_head = self::head(spot.shared_next, next.own.end - end);
        }
        let place = place.to_bytes();
        let place = &place[..usize::from(self.width)];
        self.replace(spot.at..end, &[&head[..head_len], own, place, &next_head.0[..next_head.1]]);
        self.count += 1;
        self.settle();
    }

    /// Takes out the key at a spot where it is; returns its place.
    pub(super) fn remove(&mut self, spot: &Spot) -> Place {
        let gone = self.entry(spot.at);
        let place = self.place_before(gone.next);
        if spot.index + 1 < self.count() {
            // The next one shared bytes with this one that the one before does not have.
            let next = self.entry(gone.next);
            let shared = next.shared.min(gone.shared);
            let lost = self.bytes[gone.own.start..][..next.shared - shared].to_vec();
            let (head, head_len) = head(shared, lost.len() + next.own.len());
            self.replace(spot.at..next.own.start, &[&head[..head_len], &lost]);
        } else {
            self.replace(spot.at..gone.next, &[]);
        }
        self.count -= 1;
        self.settle();
        place
    }

    /// Bytes that the key at `index` shares with the one before it, after the skipped ones.
    pub(super) fn shared(&self, index: usize) -> usize {
        self.entry(self.offset(index)).shared
    }

    /// The key at `index`, which begins like `way`.
    pub(super) fn key(&self, index: usize, way: &[u8]) -> Vec<u8> {
        let mut cursor = self.cursor(way);
        for _ in 0..=index {
            assert!(cursor.advance(), "a list of {} keys has none at {index}", self.count);
        }
        cursor.key
    }

    /// A cursor before the first key; all keys begin with the same skipped bytes as `way`.
    pub(super) fn cursor(&self, way: &[u8]) -> Cursor<'_> {
        Cursor { list: self, key: way[..self.skip()].to_vec(), at: 0 }
    }

    /// The first entry that begins in the second half of the bytes after the first.
    pub(super) fn middle(&self) -> usize {
        let half = self.bytes.len() - self.bytes_after_first() / 2;
        let (mut index, mut at) = (0, 0);
        while at < self.bytes.len() && self.entry(at).next <= half {
            (index, at) = (index + 1, self.entry(at).next);
        }
        index
    }

    /// Takes the entries from `index` on out, into a list of their own.
    pub(super) fn split_off(&mut self, index: usize) -> List {
        let mut right = List::new(self.width > 0, self.skip());
        right.count = self.count - index as u16;
        if right.count == 0 {
            return right;
        }
        let at = self.offset(index);
        // The key without the skipped bytes, so no way is needed.
        let mut cursor = Cursor { list: self, key: vec![0; self.skip()], at: 0 };
        while cursor.at <= at {
            cursor.advance();
        }
        let key = &cursor.key[self.skip()..];
        right.push(0, &[key], &self.bytes[self.entry(at).own.end..]);
        right.settle();
        self.bytes.truncate(at);
        self.count = index as u16;
        self.settle();
        right
    }

    /// Appends the entries of a list that skips the same bytes and comes behind.
    pub(super) fn append(&mut self, right: &List) {
        assert_eq!((self.skip, self.width), (right.skip, right.width), "lists of one kind are joined");
        if right.count == 0 {
            return;
        }
        let first = right.entry(0);
        let key = &right.bytes[first.own.clone()];
        let mut cursor = Cursor { list: self, key: vec![0; self.skip()], at: 0 };
        while cursor.advance() {}
        let shared = shared_prefix_len(&cursor.key[self.skip()..], key);
        self.push(shared, &[&key[shared..]], &right.bytes[first.own.end..]);
        self.count += right.count;
        self.settle();
    }

    /// Skips the first `skip` bytes from now on; all keys begin with the same that many bytes as `way`.
    pub(super) fn set_skip(&mut self, skip: usize, way: &[u8]) {
        let old = self.skip();
        if skip == old {
            return;
        }
        let mut list = List::new(self.width > 0, skip);
        list.bytes.reserve(self.bytes.len());
        list.count = self.count;
        let mut at = 0;
        while at < self.bytes.len() {
            let entry = self.entry(at);
            let (own, tail) = (&self.bytes[entry.own.clone()], &self.bytes[entry.own.end..entry.next]);
            match (at, old.checked_sub(skip)) {
                (0, Some(_)) => list.push(0, &[&way[skip..old], own], tail),
                (0, None) => list.push(0, &[&own[skip - old..]], tail),
                _ => list.push(entry.shared + old - skip, &[own], tail),
            }
            at = entry.next;
        }
        list.settle();
        *self = list;
    }

    /// Appends an entry that shares `shared` bytes with the last; `tail` is what follows its own bytes.
    #[inline]
    fn push(&mut self, shared: usize, own: &[&[u8]], tail: &[u8]) {
        let (head, head_len) = head(shared, own.iter().map(|part| part.len()).sum());
        self.bytes.extend_from_slice(&head[..head_len]);
        own.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.extend_from_slice(tail);
    }

    fn offset(&self, index: usize) -> usize {
        (0..index).fold(0, |at, _| self.entry(at).next)
    }

    #[inline]
    fn entry(&self, at: usize) -> Entry {
        let (shared, len, start) = match self.bytes[at..].first_chunk() {
            // Nearly always both are short.
            Some(&[shared, len]) if shared | len < 0x80 => (usize::from(shared), usize::from(len), at + 2),
            _ => {
                let (shared, at) = number(&self.bytes, at);
                let (len, start) = number(&self.bytes, at);
                (shared, len, start)
            }
        };
        Entry { shared, own: start..start + len, next: start + len + usize::from(self.width) }
    }

    #[inline]
    fn place_before(&self, end: usize) -> Place {
        let place = self.bytes[..end].last_chunk().filter(|_| self.width > 0);
        place.map_or(Place::default(), |bytes| Place::from_bytes(*bytes))
    }

    /// Puts `parts` in place of the bytes at `range`.
    fn replace(&mut self, range: Range<usize>, parts: &[&[u8]]) {
        let (old_len, new_len) = (self.bytes.len(), parts.iter().map(|part| part.len()).sum::<usize>());
        let after = old_len - range.len() + new_len;
        if after > old_len {
            self.fit(after - old_len);
            self.bytes.resize(after, 0);
        }
        self.bytes.copy_within(range.end..old_len, range.start + new_len);
        let mut at = range.start;
        for part in parts {
            self.bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.bytes.truncate(after);
    }

    /// Fits memory and heads to the entries after a change.
    fn settle(&mut self) {
        self.fit(0);
        if self.width > 0 {
            return;
        }
        let (mut heads, mut first, mut at) = (Vec::with_capacity(self.count()), [0; HEAD_BYTES], 0);
        while at < self.bytes.len() {
            let entry = self.entry(at);
            if let Some(rest) = first.get_mut(entry.shared..) {
                rest.fill(0);
                rest.iter_mut().zip(&self.bytes[entry.own]).for_each(|(to, from)| *to = *from);
            }
            heads.push(Head::from_be_bytes(first));
            at = entry.next;
        }
        self.heads = heads.into();
    }

    /// Makes room for `more` bytes, and gives back what is a step or more beyond that.
    #[inline]
    fn fit(&mut self, more: usize) {
        let len = self.bytes.len() + more;
        // With the allocator's word, a multiple of the step.
        let capacity = (len + 8).next_multiple_of(STEP_BYTES) - 8;
        if self.bytes.capacity() < len {
            self.bytes.reserve_exact(capacity - self.bytes.len());
        } else if self.bytes.capacity() > capacity + STEP_BYTES {
            self.bytes.shrink_to(capacity);
        }
    }
}

/// Walks over a list and builds its keys.
pub(super) struct Cursor<'l> {
    list: &'l List,
    key: Vec<u8>,
    at: usize,
}

impl Cursor<'_> {
    /// Goes to the next key, if there is one.
    #[inline]
    pub(super) fn advance(&mut self) -> bool {
        if self.at == self.list.bytes.len() {
            return false;
        }
        let entry = self.list.entry(self.at);
        self.key.truncate(self.list.skip() + entry.shared);
        self.key.extend_from_slice(&self.list.bytes[entry.own]);
        self.at = entry.next;
        true
    }

    /// The key.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Its place.
    #[inline]
    pub(super) fn place(&self) -> Place {
        self.list.place_before(self.at)
    }
}

#[inline]
fn head_of(key: &[u8]) -> Head {
    match key.first_chunk() {
        Some(first) => Head::from_be_bytes(*first),
        None => {
            let mut first = [0; HEAD_BYTES];
            first[..key.len()].copy_from_slice(key);
            Head::from_be_bytes(first)
        }
    }
}

/// The two numbers before an entry's bytes.
#[inline]
fn head(shared: usize, len: usize) -> ([u8; NUMBERS_BYTES_MAX], usize) {
    let mut bytes = [0; NUMBERS_BYTES_MAX];
    let mut at = 0;
    for mut n in [shared, len] {
        while n >= 0x80 {
            bytes[at] = n as u8 | 0x80;
            (n, at) = (n >> 7, at + 1);
        }
        bytes[at] = n as u8;
        at += 1;
    }
    (bytes, at)
}

/// A number of [`head`], and where it ends.
fn number(bytes: &[u8], mut at: usize) -> (usize, usize) {
    let (mut n, mut shift) = (0, 0);
    loop {
        let byte = bytes[at];
        n |= usize::from(byte & 0x7f) << shift;
        (at, shift) = (at + 1, shift + 7);
        if byte < 0x80 {
            return (n, at);
        }
    }
}
