//! `RowsBuilder` and `RowsWeaver`: rows from entries in order, in memory of their own or in that of others.

use std::{ops::Range, sync::Arc};

use kvilt_base::{EntryRef, Result};

use super::{Hold, Reading, Rows, by_hash::ByHash, memory::RowMemory, row_bytes};
use crate::shim::AtomicU32;

/// Builds rows from entries in order: by key ascending, of a key the newest version first.
pub struct RowsBuilder {
    memory: RowMemory,
    /// Bytes of its rows: some in `memory` may have been split off.
    bytes: usize,
    places: Vec<u32>,
    /// Hash and place of each key's newest row, in order.
    newest: Vec<(u32, u32)>,
}

impl RowsBuilder {
    /// A builder for about so many bytes of rows; it grows when it must. Fails if the system refuses the address space.
    pub fn new(bytes: usize) -> Result<Self> {
        // An empty memory would have nothing to grow into.
        let memory = RowMemory::new(bytes.max(1024))?;
        Ok(RowsBuilder { memory, bytes: 0, places: Vec::new(), newest: Vec::new() })
    }

    /// Adds the next row; the newest of a key comes with the key's hash. Fails at four GiB, or if the system refuses memory.
    pub fn push(&mut self, entry: EntryRef<'_>, hash: Option<u32>) -> Result<()> {
        let place = self.memory.push(entry, self.places.len())?;
        self.bytes += row_bytes(entry);
        self.places.push(place);
        self.newest.extend(hash.map(|hash| (hash, place)));
        Ok(())
    }

    /// The row that came last.
    pub fn last(&mut self) -> Option<EntryRef<'_>> {
        let &place = self.places.last()?;
        Some(self.memory.entry_built(place))
    }

    /// Moves the rows from `position` on to `other`, which is empty, and gives that back.
    pub fn split_off(&mut self, position: usize, mut other: RowsBuilder) -> Result<RowsBuilder> {
        if let Some(&start) = self.places.get(position) {
            other.memory.push_from(&mut self.memory, start as usize, self.bytes)?;
            other.places.extend(self.places.drain(position..).map(|place| place - start));
            let newest = self.newest.partition_point(|&(_, place)| place < start);
            other.newest.extend(self.newest.drain(newest..).map(|(hash, place)| (hash, place - start)));
            other.bytes = other.memory.len();
            self.bytes = start as usize;
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
        self.bytes
    }

    /// The rows.
    pub fn finish(mut self) -> Rows {
        self.memory.end();
        let by_hash = ByHash::new(self.places.len(), self.newest.into_iter());
        let places = self.places.into_iter().map(AtomicU32::new).collect();
        Rows::of(Arc::new(self.memory), places, by_hash, self.bytes, false)
    }
}

/// Weaves new rows into others, which stay where they are: the memory is that of both. In order of keys: parts of the old are
/// [kept](RowsWeaver::keep) between what is new.
pub struct RowsWeaver<'r> {
    before: &'r Rows,
    hold: &'r Hold,
    places: Vec<u32>,
    /// None if there was no room for all keys.
    by_hash: Option<ByHash>,
}

impl<'r> RowsWeaver<'r> {
    /// Weaves about so many rows into `before`. Panics if the hold is one of other rows.
    pub fn new(before: &'r Rows, hold: &'r Hold, count: usize) -> Self {
        let _is_held = before.held(hold);
        let places = Vec::with_capacity(before.len() + count);
        let by_hash = Some(before.by_hash.copied());
        RowsWeaver { before, hold, places, by_hash }
    }

    /// The old rows.
    pub fn old(&self) -> Reading<'r> {
        self.before.held(self.hold)
    }

    /// The old rows at these positions come next.
    pub fn keep(&mut self, positions: Range<usize>) {
        self.places.extend(positions.map(|position| self.before.place(position)));
    }

    /// A new row comes next. False if there is no room for it: then all have to be built anew.
    #[must_use]
    pub fn push(&mut self, entry: EntryRef<'_>) -> bool {
        let memory = &self.before.memory;
        let place = memory.write_more(&mut memory.room(), entry, self.places.len());
        self.places.extend(place);
        place.is_some()
    }

    /// How many rows came so far.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none came.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// A key with this hash is done: what was its newest row was at `before`, if it had one, and is at `after` now, if it has one.
    pub fn newest(&mut self, hash: u32, before: Option<usize>, after: Option<usize>) {
        let before = before.map(|position| self.before.place(position));
        let after = after.map(|position| self.places[position]);
        if self.by_hash.as_mut().is_some_and(|by_hash| !by_hash.replace(hash, before, after)) {
            self.by_hash = None;
        }
    }

    /// The rows, of so many bytes. `hash_of` is what the old ones were built with.
    pub fn finish(self, bytes: usize, hash_of: impl Fn(&[u8]) -> u32) -> Rows {
        let memory = Arc::clone(&self.before.memory);
        let places = self.places.into_iter().map(AtomicU32::new).collect();
        let is_complete = self.by_hash.is_some();
        let mut rows = Rows::of(memory, places, self.by_hash.unwrap_or_default(), bytes, true);
        if !is_complete {
            rows.by_hash = rows.hashed(rows.len(), self.hold, hash_of);
        }
        rows
    }
}
