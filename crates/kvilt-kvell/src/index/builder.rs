//! `Builder`: an index out of entries in ascending order, node by node, cheaper than by insertions.

use std::mem;

use kvilt_base::key::shared_prefix_len;

use crate::place::Place;

use super::{
    Index,
    entries::Entries,
    list::List,
    node::{LIST_BYTES_MAX, LIST_ENTRIES_MAX, Node},
};

/// A node is closed at this part of what it may have: the next insertions find room.
const FULL_PERCENT: usize = 90;

/// Bytes of an entry beside its key's.
const ENTRY_BYTES: usize = 8;

/// Fewest separators of a node, however long they are: the tree must not be a chain.
const SEPARATORS_MIN: usize = 4;

/// Takes entries in ascending order, and holds those of one leaf that are not in a node yet.
#[derive(Debug, Default)]
pub struct Builder {
    leaf: Open,
    /// The inner nodes at the end, from the lowest on.
    inner: Vec<(Open, Vec<Node>)>,
    items: u64,
}

/// A list that is not closed yet.
#[derive(Debug, Default)]
struct Open {
    /// The separator before it.
    low: Vec<u8>,
    entries: Entries,
    /// Bytes of the entries after the first as a list has them, nearly.
    bytes: usize,
}

impl Builder {
    /// Without entries.
    pub fn new() -> Self {
        Builder::default()
    }

    /// Adds a key behind all before.
    pub fn push(&mut self, key: &[u8], place: Place) {
        if let Some(last) = self.leaf.entries.last_key() {
            assert!(last < key, "keys of a new index ascend");
            let shared = shared_prefix_len(last, key);
            if self.leaf.is_full(0) {
                self.close_leaf(&key[..=shared]);
            }
        }
        self.leaf.push(key, place);
        self.items += 1;
    }

    /// The index.
    pub fn finish(mut self) -> Index {
        let mut node = Node::leaf(self.leaf.close(true, None));
        for (mut open, mut children) in mem::take(&mut self.inner) {
            children.push(node);
            node = Node::inner(open.close(false, None), children);
        }
        Index::of(node)
    }

    fn close_leaf(&mut self, separator: &[u8]) {
        let mut node = Node::leaf(self.leaf.close(true, Some(separator)));
        for (open, children) in &mut self.inner {
            children.push(node);
            if !open.is_full(SEPARATORS_MIN) {
                return open.push(separator, Place::default());
            }
            node = Node::inner(open.close(false, Some(separator)), mem::take(children));
        }
        let mut open = Open::default();
        open.push(separator, Place::default());
        self.inner.push((open, vec![node]));
    }
}

impl Open {
    fn is_full(&self, count_min: usize) -> bool {
        let (count, bytes) = (self.entries.len() * 100, self.bytes * 100);
        self.entries.len() >= count_min
            && (count >= LIST_ENTRIES_MAX * FULL_PERCENT || bytes >= LIST_BYTES_MAX * FULL_PERCENT)
    }

    fn push(&mut self, key: &[u8], place: Place) {
        if let Some(last) = self.entries.last_key() {
            self.bytes += ENTRY_BYTES + key.len() - shared_prefix_len(last, key);
        }
        self.entries.push(key, place);
    }

    /// The list, which ends before `high`; what comes next begins there.
    fn close(&mut self, has_places: bool, high: Option<&[u8]>) -> List {
        let skip = high.map_or(0, |high| shared_prefix_len(&self.low, high));
        let list = List::of(&self.entries, has_places, skip);
        self.low = high.unwrap_or_default().to_vec();
        self.entries.clear();
        self.bytes = 0;
        list
    }
}
