//! `RowsBuilder` and `RowsWeaver`: rows from entries in order, in memory of their own or in that of others.

use std::{ops::Range, sync::Arc};

use kvilt_base::{EntryRef, Result};

use super::{Hold, Reading, Rows, by_hash::ByHash, memory::RowMemory};
use crate::shim::AtomicU32;

/// Builds rows from entries in order: by key ascending, of a key the newest version first.
pub struct RowsBuilder {
    memory: RowMemory,
    places: Vec<u32>,
    /// Hash and place of each key's newest row, in order.
    newest: Vec<(u32, u32)>,
}

impl RowsBuilder {
    /// A builder for about so many bytes of rows; it grows when it must. Fails if the system refuses the
    /// address space.
    pub fn new(bytes: usize) -> Result<Self> {
        // An empty memory would have nothing to grow into.
        let memory = RowMemory::new(bytes.max(1024))?;
        Ok(RowsBuilder { memory, places: Vec::new(), newest: Vec::new() })
    }

    /// Adds the next row; the newest of a key comes with the key's hash. Fails at four GiB, or if the system
    /// refuses memory.
    pub fn push(&mut self, entry: EntryRef<'_>, hash: Option<u32>) -> Result<()> {
        let place = self.memory.push(entry, self.places.len())?;
        self.places.push(place);
        self.newest.extend(hash.map(|hash| (hash, place)));
        Ok(())
    }

    /// The row that came last.
    pub fn last(&mut self) -> Option<EntryRef<'_>> {
        let &place = self.places.last()?;
        Some(self.memory.entry_built(place))
    }

    /// Moves the rows from `position` on to `other`, and gives that back. Panics if it is not empty.
    pub fn split_off(&mut self, position: usize, mut other: RowsBuilder) -> Result<RowsBuilder> {
        assert!(other.is_empty(), "it would have two orders");
        if let Some(&start) = self.places.get(position) {
            other.memory.push_from(&mut self.memory, start as usize)?;
            other.places.extend(self.places.drain(position..).map(|place| place - start));
            let newest = self.newest.partition_point(|&(_, place)| place < start);
            other.newest.extend(self.newest.drain(newest..).map(|(hash, place)| (hash, place - start)));
            self.memory.truncate(start as usize);
        }
        Ok(other)
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of the rows.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// The rows.
    pub fn finish(mut self) -> Rows {
        self.memory.end();
        let bytes = self.bytes();
        let by_hash = ByHash::new(self.places.len(), self.newest.into_iter());
        let places = self.places.into_iter().map(AtomicU32::new).collect();
        Rows::of(Arc::new(self.memory), places, by_hash, bytes, false)
    }
}

/// Weaves new rows into others, which stay where they are: the memory is that of both. Keys in order: for
/// each that is new or changes [`RowsWeaver::begin_key`], its new rows, and, of all that it had
/// ([`RowsWeaver::next_old`] until it has none), those that are kept. Old rows of other keys stay.
///
/// Whatever is done with it, each row has one place by position and at most one by hash: S-17 rests on that.
pub struct RowsWeaver<'r> {
    before: &'r Rows,
    hold: &'r Hold,
    places: Vec<u32>,
    /// None if there was no room for all keys.
    by_hash: Option<ByHash>,
    /// The old rows before this position are kept, or were given out.
    position: usize,
    /// The one that was given out last, as long as it is not kept.
    given: Option<usize>,
    key: Option<Key>,
}

/// The key whose rows come.
struct Key {
    hash: u32,
    /// Where its newest row is, once it is there.
    start: usize,
    /// The place of what was its newest row.
    newest_before: Option<u32>,
}

impl<'r> RowsWeaver<'r> {
    /// Weaves about so many rows into `before`. Panics if the hold is one of other rows.
    pub fn new(before: &'r Rows, hold: &'r Hold, count: usize) -> Self {
        let _is_held = before.held(hold);
        let places = Vec::with_capacity(before.len() + count);
        let by_hash = Some(before.by_hash.copied());
        RowsWeaver { before, hold, places, by_hash, position: 0, given: None, key: None }
    }

    fn old(&self) -> Reading<'r> {
        self.before.held(self.hold)
    }

    /// What comes next has a key with this hash, and what was there of it begins at `position`: all old rows
    /// before that which were not looked at stay; says which. Panics if it lies before one that was.
    pub fn begin_key(&mut self, position: usize, hash: u32) -> Range<usize> {
        self.end_key();
        let kept = self.keep_up_to(position);
        self.key = Some(Key { hash, start: self.places.len(), newest_before: None });
        kept
    }

    /// The place of what is found by the key's hash is that of its newest row now.
    fn end_key(&mut self) {
        let Some(key) = self.key.take() else { return };
        let after = self.places.get(key.start).copied();
        if self.by_hash.as_mut().is_some_and(|by_hash| !by_hash.replace(key.hash, key.newest_before, after)) {
            self.by_hash = None;
        }
    }

    fn keep_up_to(&mut self, position: usize) -> Range<usize> {
        assert!(self.position <= position, "keys come in order");
        let kept = self.position..position;
        self.places.extend(kept.clone().map(|position| self.before.place(position)));
        self.position = position;
        self.given = None;
        kept
    }

    /// The next old row of the key: it does not stay unless it is kept. Panics if no key was begun.
    pub fn next_old(&mut self, key: &[u8]) -> Option<EntryRef<'r>> {
        let position = self.position;
        let old = (position < self.before.len()).then(|| self.old().entry_at(position));
        let old = old.filter(|old| old.key == key)?;
        let place = self.before.place(position);
        self.key.as_mut().expect("a key was begun").newest_before.get_or_insert(place);
        self.position += 1;
        self.given = Some(position);
        Some(old)
    }

    /// The old row that came last stays. Panics if there is none, or it was kept before.
    pub fn keep(&mut self) {
        let position = self.given.take().expect("an old row came, and is kept once");
        self.places.push(self.before.place(position));
    }

    /// A new row comes next. False if there is no room for it: then all have to be built anew.
    #[must_use]
    pub fn push(&mut self, entry: EntryRef<'_>) -> bool {
        let memory = &self.before.memory;
        let place = memory.write_more(&mut memory.room(), entry, self.places.len());
        self.places.extend(place);
        place.is_some()
    }

    /// The rows, of so many bytes, and which of the old ones stay behind the last key. `hash_of` is what the
    /// old ones were built with.
    pub fn finish(mut self, bytes: usize, hash_of: impl Fn(&[u8]) -> u32) -> (Rows, Range<usize>) {
        self.end_key();
        let kept = self.keep_up_to(self.before.len());
        let memory = Arc::clone(&self.before.memory);
        let places = self.places.into_iter().map(AtomicU32::new).collect();
        let mut rows = Rows::of(memory, places, ByHash::default(), bytes, true);
        rows.by_hash = match self.by_hash {
            Some(by_hash) if !by_hash.is_crowded() => by_hash,
            _ => rows.hashed(rows.len(), self.hold, hash_of),
        };
        (rows, kept)
    }
}
