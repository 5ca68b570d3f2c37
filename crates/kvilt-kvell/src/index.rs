//! `Index`: where each key's item lies. Ordered, in memory, with whole keys, and small.
//!
//! Where it stands: each shard owns one behind its lock; nothing here is shared between threads. It is a
//! B-tree (`node`) of small nodes whose keys are compressed against their neighbours (`list`). A node has
//! memory for its bytes and little more, so a leaf that is half full wastes nothing, and an entry takes
//! 8 bytes beside what its key does not share with the key before, and some three for its part of the nodes.
//! `entries` are what comes out of it. A `builder` makes one of sorted entries, `bulk` of entries in any
//! order.

mod builder;
mod bulk;
mod entries;
mod list;
mod node;

use kvilt_base::{Direction, KeyRange, key::successor};

use crate::place::Place;

use self::node::{Bounds, Node};

pub use self::{
    builder::Builder,
    bulk::{BulkLoad, Twice},
    entries::Entries,
};

/// Keys and the places of their items, in the order of keys.
#[derive(Debug)]
pub struct Index {
    root: Node,
    items: u64,
    /// Heap bytes of all nodes.
    heap: u64,
}

impl Default for Index {
    fn default() -> Self {
        Builder::new().finish()
    }
}

impl Index {
    /// An index without entries.
    pub fn new() -> Self {
        Index::default()
    }

    /// An index with these entries, whose keys ascend.
    pub fn from_sorted<'a>(entries: impl IntoIterator<Item = (&'a [u8], Place)>) -> Self {
        let mut builder = Builder::new();
        entries.into_iter().for_each(|(key, place)| builder.push(key, place));
        builder.finish()
    }

    /// The index of a tree whose outermost nodes skip no bytes.
    fn of(root: Node) -> Self {
        let (items, heap) = root.measure();
        let mut index = Index { root, items, heap };
        index.root.shrink(&mut index.heap);
        index
    }

    /// How many keys it has.
    pub fn len(&self) -> u64 {
        self.items
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Heap bytes in use, with what the allocator adds to each piece.
    pub fn bytes(&self) -> u64 {
        self.heap
    }

    /// At most what inserting `key` would add to [`Index::bytes`].
    pub fn bytes_of_new(&self, key: &[u8]) -> u64 {
        self.root.heap_of_new(key)
    }

    /// The place of the key's item.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<Place> {
        self.root.get(key)
    }

    /// Gives the key a place; returns the one that it had.
    pub fn insert(&mut self, key: &[u8], place: Place) -> Option<Place> {
        let count = self.root.count();
        let old = self.root.insert(key, place, &mut self.heap);
        if self.root.count() > count && self.root.is_large() {
            self.root.grow(key, &mut self.heap);
        }
        self.items += u64::from(old.is_none());
        old
    }

    /// Takes the key out; returns its place.
    pub fn remove(&mut self, key: &[u8]) -> Option<Place> {
        let old = self.root.remove(key, &mut self.heap)?;
        self.root.shrink(&mut self.heap);
        self.items -= 1;
        Some(old)
    }

    /// Appends entries of `range` to `out`, at most `max`, in `direction`. A caller that wants more goes on
    /// behind the last key.
    pub fn walk(&self, range: &KeyRange, direction: Direction, max: usize, out: &mut Entries) {
        if max > 0 && !range.is_empty() {
            let len = out.len() + max;
            // Breaking off is no news: then `out` has as many as were asked for.
            let _ = self.root.walk(&[], Bounds::of(range), direction, len, out);
        }
    }

    /// Takes the entries of `range` out. Whole leaves are moved, so this takes some time for each leaf and
    /// none for each entry.
    pub fn take_range(&mut self, range: &KeyRange) -> Index {
        if range.is_empty() {
            return Index::new();
        }
        let taken = self.root.take(Bounds::of(range), &mut self.heap);
        self.root.shrink(&mut self.heap);
        let (items, heap) = taken.measure();
        self.items -= items;
        self.heap -= heap;
        let mut taken = Index::of(taken);
        taken.root.widen(true, &range.start, &mut taken.heap);
        taken.root.widen(false, range.end.as_deref().unwrap_or_default(), &mut taken.heap);
        taken
    }

    /// Takes the first entries out, at most `max`, and appends them to `out`.
    pub fn take_first(&mut self, max: usize, out: &mut Entries) {
        let len = out.len();
        self.walk(&KeyRange::all(), Direction::Forward, max, out);
        if out.len() > len {
            let end = out.last_key().map(successor);
            self.take_range(&KeyRange { start: Vec::new(), end });
        }
    }
}
