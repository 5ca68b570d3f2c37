//! The list: a skip list over the nodes of the hash, in the order of keys.
//!
//! It only grows, so a link changes to a nearer node and never back, and is set by compare-and-swap without
//! marks. Any thread searches and walks without waiting.
//!
//! What is always true:
//! - Each level is a list by ascending keys, and has only nodes that the level below has. A node comes in
//!   from level 0 on.
//! - Level 0 may be linked by several threads at once ([`List::help`]): before the node is in, its own link
//!   only changes to a nearer node, and it comes in only where its link says what follows. The levels above
//!   belong to one thread ([`List::link`]).
//! - A link back leads to some node that is before, or to the beginning: mostly to the last one.

#![expect(unsafe_code, reason = "links are turned into nodes here and in `teks.rs`, nowhere else")]

use super::arena::{Arena, Node, UNSET};
use crate::shim::{AtomicU32, AtomicUsize, IS_EXPLORED, Ordering};

/// Levels: with a quarter of the nodes a level up, enough for 268 million.
pub(super) const HEIGHT_MAX: usize = if IS_EXPLORED { 2 } else { 14 };
/// The beginning of the list as a place before a node, and its end as a place behind one.
const NONE: u32 = 0;

pub(super) struct List {
    first: [AtomicU32; HEIGHT_MAX],
    /// Levels in use. It may be read too low: that costs steps.
    height: AtomicUsize,
}

/// Between which nodes a key lies, level by level.
struct Gap {
    before: [u32; HEIGHT_MAX],
    behind: [u32; HEIGHT_MAX],
}

/// A search for a gap, on its way.
struct Search {
    gap: Gap,
    /// None at its end.
    level: Option<usize>,
    before: u32,
    /// To be compared next.
    behind: u32,
    /// The node that was at or behind the key a level above.
    known: u32,
}

/// The height of a key's node: one more with a quarter of the hashes.
pub(super) fn height_of(hash: u64) -> usize {
    let mixed = (hash ^ hash >> 31).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (1 + mixed.leading_zeros() as usize / 2).min(HEIGHT_MAX)
}

impl List {
    pub(super) fn new() -> Self {
        List { first: std::array::from_fn(|_| AtomicU32::new(NONE)), height: AtomicUsize::new(1) }
    }

    /// The node that a link leads to.
    fn node(arena: &Arena, place: u32) -> Node<'_> {
        // SAFETY: links of this list, and links back, have places of nodes of the table's arena only, stored
        // (Release) behind the node and loaded with Acquire.
        unsafe { arena.node(place) }
    }

    fn link_behind<'a>(&'a self, arena: &'a Arena, before: u32, level: usize) -> &'a AtomicU32 {
        if before == NONE { &self.first[level] } else { Self::node(arena, before).link(level) }
    }

    fn behind(&self, arena: &Arena, before: u32, level: usize) -> u32 {
        // Acquire: pairs with the exchanges in `link` and `link_bottom`.
        self.link_behind(arena, before, level).load(Ordering::Acquire)
    }

    /// The gaps of several keys, looked up side by side: while one waits for memory, the others go on.
    fn gaps(&self, arena: &Arena, nodes: &[Node<'_>]) -> Vec<Gap> {
        let mut searches: Vec<Search> = nodes.iter().map(|_| self.search(arena)).collect();
        let mut is_going_on = true;
        while is_going_on {
            is_going_on = false;
            for (search, node) in searches.iter_mut().zip(nodes) {
                is_going_on |= self.step(arena, search, node.key());
            }
        }
        searches.into_iter().map(|search| search.gap).collect()
    }

    fn search(&self, arena: &Arena) -> Search {
        // Relaxed: see the field.
        let level = self.height.load(Ordering::Relaxed) - 1;
        let behind = self.behind(arena, NONE, level);
        arena.fetch_node(behind);
        let gap = Gap { before: [NONE; HEIGHT_MAX], behind: [NONE; HEIGHT_MAX] };
        Search { gap, level: Some(level), before: NONE, behind, known: NONE }
    }

    /// Compares one key, and has the processor fetch the next. False when nothing is left to do.
    fn step(&self, arena: &Arena, search: &mut Search, key: &[u8]) -> bool {
        let Some(level) = search.level else { return false };
        let Search { before, behind, known, .. } = *search;
        let is_compared = behind != NONE && behind != known;
        if is_compared && Self::node(arena, behind).key() < key {
            search.before = behind;
        } else {
            (search.gap.before[level], search.gap.behind[level], search.known) = (before, behind, behind);
            search.level = level.checked_sub(1);
        }
        if let Some(level) = search.level {
            search.behind = self.behind(arena, search.before, level);
            arena.fetch_node(search.behind);
        }
        search.level.is_some()
    }

    /// The gap in which `key` lies, or before which it begins.
    fn gap(&self, arena: &Arena, key: &[u8]) -> Gap {
        let mut gap = Gap { before: [NONE; HEIGHT_MAX], behind: [NONE; HEIGHT_MAX] };
        let (mut before, mut known) = (NONE, NONE);
        // Relaxed: see the field.
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            let mut behind = self.behind(arena, before, level);
            // A node that was at or behind the key a level above need not be compared again.
            while behind != NONE && behind != known {
                self.fetch_ahead(arena, before, behind, level);
                if Self::node(arena, behind).key() >= key {
                    break;
                }
                before = behind;
                behind = self.behind(arena, before, level);
            }
            (gap.before[level], gap.behind[level], known) = (before, behind, behind);
        }
        gap
    }

    /// Has the processor fetch the node that is compared now, and the one that comes next if the search goes
    /// down from here.
    #[inline]
    fn fetch_ahead(&self, arena: &Arena, before: u32, behind: u32, level: usize) {
        arena.fetch_node(behind);
        if level > 0 {
            // Relaxed: nothing is read there.
            arena.fetch_node(self.link_behind(arena, before, level - 1).load(Ordering::Relaxed));
        }
    }

    /// The first node at or behind `key`.
    pub(super) fn seek<'a>(&self, arena: &'a Arena, key: &[u8]) -> Option<Node<'a>> {
        let behind =
            if key.is_empty() { self.behind(arena, NONE, 0) } else { self.gap(arena, key).behind[0] };
        (behind != NONE).then(|| Self::node(arena, behind))
    }

    /// The last node before `key`.
    pub(super) fn seek_back<'a>(&self, arena: &'a Arena, key: &[u8]) -> Option<Node<'a>> {
        let before = self.gap(arena, key).before[0];
        (before != NONE).then(|| Self::node(arena, before))
    }

    pub(super) fn last<'a>(&self, arena: &'a Arena) -> Option<Node<'a>> {
        let mut before = NONE;
        // Relaxed: see the field.
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            loop {
                let behind = self.behind(arena, before, level);
                if behind == NONE {
                    break;
                }
                before = behind;
            }
        }
        (before != NONE).then(|| Self::node(arena, before))
    }

    /// The node behind one that is in the list.
    #[inline]
    pub(super) fn next<'a>(&self, arena: &'a Arena, node: Node<'a>) -> Option<Node<'a>> {
        // Acquire: as in `behind`.
        let behind = node.link(0).load(Ordering::Acquire);
        (behind != NONE).then(|| Self::node(arena, behind))
    }

    /// The node before one that is in the list.
    pub(super) fn previous<'a>(&self, arena: &'a Arena, node: Node<'a>) -> Option<Node<'a>> {
        // Acquire: pairs with the stores here and in `link_bottom`.
        let hint = node.back().load(Ordering::Acquire);
        let mut before = hint;
        loop {
            let behind = self.behind(arena, before, 0);
            if behind == node.place() {
                break;
            }
            assert!(behind != NONE, "a link back leads to a node before");
            before = behind;
        }
        if before != hint {
            // Release: pairs with the load above, in another thread.
            node.back().store(before, Ordering::Release);
        }
        (before != NONE).then(|| Self::node(arena, before))
    }

    /// Brings a node into level 0, whoever else does so at the same time. If it was this thread, it knows
    /// between which nodes. `gap` is where it belonged a moment ago, if that is known.
    fn link_bottom(&self, arena: &Arena, node: Node<'_>, mut gap: Option<Gap>) -> Option<Gap> {
        while !node.is_linked() {
            let gap = gap.take().unwrap_or_else(|| self.gap(arena, node.key()));
            let (before, behind) = (gap.before[0], gap.behind[0]);
            if behind == node.place() {
                // Another thread has done it, and may not have said so yet.
                node.set_linked();
                break;
            }
            if !Self::point(arena, node, behind) {
                continue;
            }
            // Release: pairs with `previous`.
            node.back().store(before, Ordering::Release);
            let link = self.link_behind(arena, before, 0);
            // AcqRel: Release, with the node and its link; Acquire passes on what the link led to.
            if link.compare_exchange(behind, node.place(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                if behind != NONE {
                    // Release: as above. Of two that come in before one node the farther may be left here.
                    Self::node(arena, behind).back().store(node.place(), Ordering::Release);
                }
                node.set_linked();
                return Some(gap);
            }
        }
        None
    }

    /// Has the link of a node that comes in lead to `behind`. False if other threads have been here
    /// meanwhile, and the gap has to be looked up again.
    ///
    /// It is set only to a node that is nearer than the present one, or in place of none. So the node is not
    /// in the list where this exchange succeeds: `behind` was in the list before the present link was loaded,
    /// and no node comes in where its link leads past one that is there.
    fn point(arena: &Arena, node: Node<'_>, behind: u32) -> bool {
        let link = node.link(0);
        // Acquire: the node that it leads to is read.
        let present = link.load(Ordering::Acquire);
        let is_nearer = || Self::is_before(arena, behind, present);
        present == behind
            || is_nearer()
                && link.compare_exchange(present, behind, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether `place` is nearer to the list's beginning than a link that leads to `other` or is not set.
    fn is_before(arena: &Arena, place: u32, other: u32) -> bool {
        other == UNSET
            || place != NONE
                && (other == NONE || Self::node(arena, place).key() < Self::node(arena, other).key())
    }

    /// Brings a node into the list, as far as it is in sight of scans: any thread, as often as it likes.
    pub(super) fn help(&self, arena: &Arena, node: Node<'_>) {
        self.link_bottom(arena, node, None);
    }

    /// Brings nodes into the list with all their levels: one thread, once.
    pub(super) fn link(&self, arena: &Arena, nodes: &[Node<'_>]) {
        for (node, gap) in nodes.iter().zip(self.gaps(arena, nodes)) {
            self.link_all(arena, *node, gap);
        }
    }

    fn link_all(&self, arena: &Arena, node: Node<'_>, gap: Gap) {
        let gap = self.link_bottom(arena, node, Some(gap));
        let height = node.height();
        if height == 1 {
            return;
        }
        // Relaxed: see the field.
        self.height.fetch_max(height, Ordering::Relaxed);
        let gap = gap.unwrap_or_else(|| self.gap(arena, node.key()));
        for level in 1..height {
            let (mut before, mut behind) = (gap.before[level], gap.behind[level]);
            loop {
                // Relaxed: published by the exchange.
                node.link(level).store(behind, Ordering::Relaxed);
                let link = self.link_behind(arena, before, level);
                // AcqRel: as in `link_bottom`.
                match link.compare_exchange(behind, node.place(), Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(nearer) => behind = nearer,
                }
                while behind != NONE && Self::node(arena, behind).key() < node.key() {
                    before = behind;
                    behind = self.behind(arena, before, level);
                }
            }
        }
    }
}
