//! `Window`: the reads in flight of a scan or of a get of many keys, in the order in which their rows are
//! wanted.
//!
//! A caller fills the window whenever it is low, and takes rows from its front. So the drive always has most
//! of a window to do, and the reads of a refill are submitted together.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;
use kvilt_base::Result;

use crate::{blocks::Found, place::Place, store::Store};

/// Most rows of a window.
pub(crate) const WINDOW_ROWS: usize = 64;
/// Most bytes of a window's blocks, unless one block alone has more.
const WINDOW_BYTES: usize = 4 << 20;
/// A window is low if this part of it is free.
const LOW_PART: usize = 4;

/// A value: a block, and where in it.
pub(crate) type Located = (Bytes, Range<usize>);

/// See the module. `K`: keys, borrowed or owned.
pub(crate) struct Window<'s, K> {
    store: &'s Store,
    view: Option<u64>,
    rows: VecDeque<Ahead<K>>,
    bytes: usize,
}

/// A row whose block is on its way.
struct Ahead<K> {
    shard: usize,
    key: K,
    /// None: the key had no value.
    begun: Option<(Place, Found)>,
    bytes: usize,
}

impl<'s, K: AsRef<[u8]>> Window<'s, K> {
    /// An empty window. Rows are as the view sees them; none: as they are now.
    pub(crate) fn new(store: &'s Store, view: Option<u64>) -> Self {
        Window { store, view, rows: VecDeque::new(), bytes: 0 }
    }

    /// Whether the window is to be filled, which has at most `rows_max` rows.
    pub(crate) fn is_low(&self, rows_max: usize) -> bool {
        self.rows.len() + rows_max.div_ceil(LOW_PART) <= rows_max
            && self.bytes <= WINDOW_BYTES - WINDOW_BYTES / LOW_PART
    }

    /// Whether one more row may be in flight.
    pub(crate) fn has_room(&self, rows_max: usize) -> bool {
        self.rows.is_empty() || self.rows.len() < rows_max && self.bytes < WINDOW_BYTES
    }

    /// Begins to read the block of a key, whose place the caller knows or leaves to the index.
    pub(crate) fn push(&mut self, shard: usize, key: K, place: Option<Place>) {
        let mut state = self.store.shards[shard].lock();
        let place = place.or_else(|| state.find(key.as_ref(), self.view));
        let bytes = place.map_or(0, |place| place.size_class().block_bytes());
        let begun = place.map(|place| (place, state.begin_read(place)));
        drop(state);
        self.bytes += bytes;
        self.rows.push_back(Ahead { shard, key, begun, bytes });
    }

    /// Submits the reads that were begun.
    pub(crate) fn submit(&self) {
        for shard in &self.store.shards {
            shard.submit(&mut shard.lock());
        }
    }

    /// The row at the front and its value, if it has one; none if the window is empty.
    pub(crate) fn pop(&mut self) -> Option<Result<(K, Option<Located>)>> {
        let ahead = self.rows.pop_front()?;
        self.bytes -= ahead.bytes;
        Some(self.finish(ahead))
    }

    fn finish(&self, Ahead { shard, key, begun, .. }: Ahead<K>) -> Result<(K, Option<Located>)> {
        let shard = &self.store.shards[shard];
        let value = self.store.value_of(shard, &mut shard.lock(), key.as_ref(), self.view, begun)?;
        if let Some(view) = self.view {
            self.store.ensure_view(view)?;
        }
        Ok((key, value))
    }
}

impl<K> Drop for Window<'_, K> {
    /// Reads that were begun and are not needed.
    fn drop(&mut self) {
        for ahead in self.rows.drain(..) {
            if let Some((_, Found::Later(ticket))) = ahead.begun {
                self.store.shards[ahead.shard].lock().blocks.forget(ticket);
            }
        }
    }
}
