//! `Node`: a node of the index's B-tree: a list of entries, or a list of separators between children.
//!
//! Always true: all leaves have the same depth; a child's keys are at or above the separator before it and
//! below the one behind it. So all keys that can ever lie in a child begin with what these two share, which
//! its list skips; a child at an end skips what its parent skips. A way that was sought through a node begins
//! with these bytes, too, so whoever changes a node has them in hand. `heap` is the index's account.

#[cfg(test)]
mod tests;

use std::{mem, ops::ControlFlow};

use kvilt_base::{Direction, KeyRange};

use crate::place::Place;

use super::{
    entries::Entries,
    list::{List, Spot},
};

/// Most bytes of a node's list, its first key apart. A search reads half of it, from its beginning.
pub(super) const LIST_BYTES_MAX: usize = 768;

/// Most entries of a list: separators are short.
pub(super) const LIST_ENTRIES_MAX: usize = 48;

/// Fewest separators of a node that is split, however long they are: the tree must not be a chain.
const SEPARATORS_SPLIT_MIN: usize = 4;

/// A node joins a neighbour when its list has less than this part of the most bytes and entries.
const SMALL_PART: usize = 4;

/// Children for which a node gets memory at a time.
const CHILDREN_STEP: usize = 4;

/// Most bytes that an entry has beside its key, and a list's memory beside its entries.
const ENTRY_BYTES_MAX: usize = 80;

/// Most bytes of a new node beside its list: memory for children comes in steps.
const NODE_BYTES_MAX: usize = 2 * CHILDREN_STEP * size_of::<Node>();

/// What the allocator adds to a piece of memory, and the multiple that it rounds to, in bytes (glibc).
const ALLOCATOR_BYTES: (usize, usize) = (8, 16);

/// A leaf, or an inner node.
#[derive(Debug)]
pub(super) struct Node {
    list: List,
    /// One more than separators; none in a leaf.
    children: Vec<Node>,
}

/// The bounds of a walk or a removal, where the way to them leads through the node.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'a> {
    /// First key inside, or none if all keys of the node are behind it.
    start: Option<&'a [u8]>,
    /// First key outside, or none if all keys of the node are before it.
    end: Option<&'a [u8]>,
}

impl<'a> Bounds<'a> {
    /// All of `range`, for the root.
    pub(super) fn of(range: &'a KeyRange) -> Self {
        Bounds { start: Some(&range.start), end: range.end.as_deref() }
    }

    /// The bounds for child `i`, where `first` has the start and `last` the end.
    fn of_child(self, i: usize, first: usize, last: usize) -> Self {
        Bounds { start: self.start.filter(|_| i == first), end: self.end.filter(|_| i == last) }
    }
}

impl Node {
    pub(super) fn leaf(list: List) -> Self {
        Node { list, children: Vec::new() }
    }

    pub(super) fn inner(list: List, mut children: Vec<Node>) -> Self {
        children.shrink_to_fit();
        Node { list, children }
    }

    fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// Entries of its list.
    pub(super) fn count(&self) -> usize {
        self.list.count()
    }

    pub(super) fn is_large(&self) -> bool {
        let count_min = if self.is_leaf() { 2 } else { SEPARATORS_SPLIT_MIN };
        let (count, bytes) = (self.list.count(), self.list.bytes_after_first());
        count >= count_min && (count > LIST_ENTRIES_MAX || bytes > LIST_BYTES_MAX)
    }

    fn is_small(&self) -> bool {
        self.list.count() < LIST_ENTRIES_MAX / SMALL_PART
            && self.list.bytes_len() < LIST_BYTES_MAX / SMALL_PART
    }

    /// Heap bytes of the node without its children's.
    fn heap(&self) -> u64 {
        let [bytes, heads] = self.list.pieces().map(heap);
        bytes + heads + heap(self.children.capacity() * size_of::<Node>())
    }

    /// Entries below, and heap bytes of all nodes.
    pub(super) fn measure(&self) -> (u64, u64) {
        let own = (if self.is_leaf() { self.list.count() as u64 } else { 0 }, self.heap());
        self.children.iter().map(Node::measure).fold(own, |sum, n| (sum.0 + n.0, sum.1 + n.1))
    }

    #[inline]
    pub(super) fn get(&self, key: &[u8]) -> Option<Place> {
        let mut node = self;
        while !node.is_leaf() {
            node = &node.children[node.list.rank(key)];
        }
        let spot = node.list.find(key);
        spot.is_equal.then(|| node.list.place(&spot))
    }

    /// Inserts, or changes the place and returns the old one. Its caller splits it if it has one entry more
    /// and is large.
    pub(super) fn insert(&mut self, key: &[u8], place: Place, heap: &mut u64) -> Option<Place> {
        if !self.is_leaf() {
            let i = self.list.rank(key);
            let count = self.children[i].count();
            let old = self.children[i].insert(key, place, heap);
            if self.children[i].count() > count && self.children[i].is_large() {
                self.split(i, key, self.children[i].ends_with(key), heap);
            }
            return old;
        }
        let spot = self.list.find(key);
        if spot.is_equal {
            return Some(self.list.set_place(&spot, place));
        }
        *heap -= self.heap();
        self.list.insert(&spot, key, place);
        *heap += self.heap();
        None
    }

    /// Removes `key`. Its caller joins it with a neighbour if it is small.
    pub(super) fn remove(&mut self, key: &[u8], heap: &mut u64) -> Option<Place> {
        if !self.is_leaf() {
            let i = self.list.rank(key);
            let old = self.children[i].remove(key, heap);
            self.mend(i, key, heap);
            return old;
        }
        let spot = self.list.find(key);
        if !spot.is_equal {
            return None;
        }
        *heap -= self.heap();
        let old = self.list.remove(&spot);
        *heap += self.heap();
        Some(old)
    }

    /// Puts a node above this one, which is the root, and splits it.
    pub(super) fn grow(&mut self, way: &[u8], heap: &mut u64) {
        let is_append = self.ends_with(way);
        let below = mem::replace(self, Node::leaf(List::new(false, 0)));
        self.children.push(below);
        *heap += self.heap();
        self.split(0, way, is_append, heap);
    }

    /// Takes nodes away that have one child, of the root.
    pub(super) fn shrink(&mut self, heap: &mut u64) {
        while self.children.len() == 1 {
            *heap -= self.heap();
            *self = self.children.remove(0);
        }
    }

    /// Whether `way` leads to the last entry, or behind it.
    fn ends_with(&self, way: &[u8]) -> bool {
        self.list.find(way).index + 1 >= self.list.count()
    }

    /// Splits child `i`: in the middle, or near the end, so that ascending keys leave full nodes.
    fn split(&mut self, i: usize, way: &[u8], is_append: bool, heap: &mut u64) {
        *heap -= self.heap() + self.children[i].heap();
        let child = &mut self.children[i];
        let count = child.list.count();
        let at = if is_append { count - 1 - count / 16 } else { child.list.middle() };
        let mut separator = way[..child.list.skip()].to_vec();
        let right = if child.is_leaf() {
            let at = at.clamp(1, count - 1);
            let shared = child.list.shared(at);
            let list = child.list.split_off(at);
            separator.extend_from_slice(&list.first()[..=shared]);
            Node::leaf(list)
        } else {
            let at = at.clamp(1, count - 2);
            let mut list = child.list.split_off(at);
            separator.extend_from_slice(list.first());
            list.remove(&Spot::default());
            let children = child.children.split_off(at + 1);
            child.children.shrink_to(at + 1 + CHILDREN_STEP);
            Node::inner(list, children)
        };
        self.list.insert(&self.list.find(&separator), &separator, Place::default());
        if self.children.len() == self.children.capacity() {
            self.children.reserve_exact(CHILDREN_STEP);
        }
        self.children.insert(i + 1, right);
        for i in [i, i + 1] {
            // A child may skip more already, if its parent was split since.
            let skip = self.skip_of(i).max(self.children[i].list.skip());
            self.children[i].list.set_skip(skip, &separator);
        }
        *heap += self.heap() + self.children[i].heap() + self.children[i + 1].heap();
    }

    /// What the separators around child `i` share.
    fn skip_of(&self, i: usize) -> usize {
        self.list.skip() + if i < self.list.count() { self.list.shared(i) } else { 0 }
    }

    /// Joins child `i` with a neighbour, if it is small and has one.
    fn mend(&mut self, i: usize, way: &[u8], heap: &mut u64) {
        if self.children.len() > 1 && self.children[i].is_small() {
            self.join(i.min(self.children.len() - 2), way, heap);
        }
    }

    /// Makes one child of children `i` and `i + 1`, or two of the same size if that is too large.
    fn join(&mut self, i: usize, way: &[u8], heap: &mut u64) {
        *heap -= self.heap() + self.children[i].heap() + self.children[i + 1].heap();
        let separator = self.list.key(i, way);
        self.list.remove(&self.list.find(&separator));
        let mut right = self.children.remove(i + 1);
        self.children.shrink_to(self.children.len() + CHILDREN_STEP);
        let skip = self.skip_of(i);
        let left = &mut self.children[i];
        left.list.set_skip(skip, &separator);
        right.list.set_skip(skip, &separator);
        if !left.is_leaf() {
            left.list.insert(&left.list.find(&separator), &separator, Place::default());
        }
        left.list.append(&right.list);
        let seam = left.children.len();
        left.children.reserve_exact(right.children.len());
        left.children.append(&mut right.children);
        *heap += self.heap() + self.children[i].heap();
        let left = &mut self.children[i];
        if seam > 0 && (left.children[seam - 1].is_small() || left.children[seam].is_small()) {
            left.join(seam - 1, &separator, heap);
        }
        if left.is_large() {
            self.split(i, &separator, false, heap);
        }
    }

    /// Appends the entries within `bounds` to `out` until it has `len`; then breaks. `low` is at or below all
    /// keys of the node and begins with the bytes that it skips.
    pub(super) fn walk(
        &self,
        low: &[u8],
        bounds: Bounds<'_>,
        direction: Direction,
        len: usize,
        out: &mut Entries,
    ) -> ControlFlow<()> {
        let (first, last) = self.span(bounds);
        let mut cursor = self.list.cursor(low);
        let forward = direction == Direction::Forward;
        if self.is_leaf() {
            let mut back = Entries::new();
            for i in 0..last {
                cursor.advance();
                if i >= first {
                    let out = if forward { &mut *out } else { &mut back };
                    out.push(cursor.key(), cursor.place());
                    if forward && out.len() == len {
                        return ControlFlow::Break(());
                    }
                }
            }
            back.iter().rev().take(len - out.len()).for_each(|(key, place)| out.push(key, place));
            return if out.len() == len { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        }
        let mut lows = Entries::new();
        for i in 0..=last {
            if i > 0 {
                cursor.advance();
            }
            let low = if i == 0 { low } else { cursor.key() };
            if i >= first && forward {
                self.children[i].walk(low, bounds.of_child(i, first, last), direction, len, out)?;
            } else if i >= first {
                lows.push(low, Place::default());
            }
        }
        for i in (first..first + lows.len()).rev() {
            let low = lows.key(i - first);
            self.children[i].walk(low, bounds.of_child(i, first, last), direction, len, out)?;
        }
        ControlFlow::Continue(())
    }

    /// The entries of a leaf within `bounds`, half open; of an inner node the first and the last child there.
    fn span(&self, bounds: Bounds<'_>) -> (usize, usize) {
        let of = |key: &[u8]| if self.is_leaf() { self.list.find(key).index } else { self.list.rank(key) };
        (bounds.start.map_or(0, of), bounds.end.map_or(self.list.count(), of))
    }

    /// Moves the entries within `bounds` into a node of the same depth; both are in the account then.
    pub(super) fn take(&mut self, bounds: Bounds<'_>, heap: &mut u64) -> Node {
        let Some(way) = bounds.start.or(bounds.end) else {
            let taken = mem::replace(self, Node::empty(self.height(), self.list.skip()));
            *heap += self.measure().1;
            return taken;
        };
        *heap -= self.heap();
        let (first, last) = self.span(bounds);
        let behind = self.list.split_off(last);
        let list = self.list.split_off(first);
        let mut children = Vec::new();
        if !self.is_leaf() {
            children.push(self.children[first].take(bounds.of_child(first, first, last), heap));
        }
        if !self.is_leaf() && first < last {
            let moved: Vec<Node> = self.children.drain(first + 1..last).collect();
            // The separators stay that bound other children, as these skip bytes by them; between the two
            // comes an empty node.
            let mut staying = vec![list.key(0, way)];
            if !moved.is_empty() {
                staying.push(list.key(list.count() - 1, way));
                let empty = Node::empty(moved[0].height(), self.list.skip());
                *heap += empty.measure().1;
                self.children.insert(first + 1, empty);
            }
            for key in &staying {
                self.list.insert(&self.list.find(key), key, Place::default());
            }
            children.extend(moved);
            let child = &mut self.children[first + staying.len()];
            children.push(child.take(bounds.of_child(last, first, last), heap));
        }
        self.list.append(&behind);
        self.children.shrink_to(self.children.len() + CHILDREN_STEP);
        let taken = Node::inner(list, children);
        *heap += self.heap() + taken.heap();
        for i in (first..=first + 2).rev() {
            if i < self.children.len() {
                self.mend(i, way, heap);
            }
        }
        taken
    }

    /// Lets the nodes at the beginning, or at the end, have any key there; `way` led to them.
    pub(super) fn widen(&mut self, is_beginning: bool, way: &[u8], heap: &mut u64) {
        *heap -= self.heap();
        self.list.set_skip(0, way);
        *heap += self.heap();
        let child = if is_beginning { self.children.first_mut() } else { self.children.last_mut() };
        if let Some(child) = child {
            child.widen(is_beginning, way, heap);
        }
    }

    /// Nodes between this one and a leaf below, the leaf included.
    fn height(&self) -> usize {
        self.children.first().map_or(0, |child| child.height() + 1)
    }

    /// A node without entries.
    fn empty(height: usize, skip: usize) -> Node {
        let children = if height == 0 { Vec::new() } else { vec![Node::empty(height - 1, skip)] };
        Node { list: List::new(height == 0, skip), children }
    }

    /// At most what an insertion of `key` adds to the account: nodes that are nearly full may be split.
    pub(super) fn heap_of_new(&self, key: &[u8]) -> u64 {
        let mut node = self;
        // If the root is split, a new one comes above it, with a separator cut from its keys.
        let mut most = NODE_BYTES_MAX + ENTRY_BYTES_MAX + self.list.bytes_len() + key.len();
        loop {
            let child = (!node.is_leaf()).then(|| &node.children[node.list.rank(key)]);
            // The entry that comes: the key, or a separator cut from the keys of a child.
            let entry = ENTRY_BYTES_MAX
                + child.map_or(key.len() - node.list.skip(), |child| {
                    let skipped = child.list.skip().saturating_sub(node.list.skip());
                    skipped + child.list.bytes_len() + key.len()
                });
            let is_nearly_large = node.list.count() + 1 > LIST_ENTRIES_MAX
                || node.list.bytes_after_first() + node.list.first().len() + entry > LIST_BYTES_MAX;
            if is_nearly_large {
                // Then the right half begins with a whole key, in a node of its own.
                most += NODE_BYTES_MAX + 2 * entry + node.list.bytes_len();
            } else {
                most = NODE_BYTES_MAX + entry;
            }
            match child {
                Some(child) => node = child,
                None => return most as u64,
            }
        }
    }
}

/// What the allocator takes for a piece of memory.
fn heap(bytes: usize) -> u64 {
    let (word, multiple) = ALLOCATOR_BYTES;
    if bytes == 0 { 0 } else { (bytes + word).next_multiple_of(multiple) as u64 }
}
