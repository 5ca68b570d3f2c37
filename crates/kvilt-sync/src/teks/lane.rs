//! `Lane`: what a put has for itself while it writes; its piece of the arena, room of records that went, and
//! counts.
//!
//! ```text
//!   record went ─► waiting (few) ─► batch, with the eras ─► returned ─► free ─► taken by another row
//! ```
//!
//! A put takes a lane that is free, its thread's own if it can, and has it until it is done. So a seal that
//! has taken each lane once knows that no put is under way (T-6).
//!
//! What is always true: T-7, a span that is free was never seen by a reader, or its record went, and each pin
//! that was there then has ended since.

use std::{
    collections::BTreeMap,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::arena::{Arena, Span, UNIT_BYTES};
use crate::shim::{IS_EXPLORED, Mutex};

/// Units of a piece, which a lane takes of the arena at once; or this part of the arena if that is less, for
/// what lanes leave of their pieces is lost when the arena is full.
const PIECE_UNITS: u32 = (64 << 10) / UNIT_BYTES as u32;
const PIECE_PART: u32 = 256;
/// Records that went and wait for pins together, which costs an allocation …
const BATCH_SPANS: usize = if IS_EXPLORED { 1 } else { 16 };
/// … or as many as have these units together.
const BATCH_UNITS: u32 = (32 << 10) / UNIT_BYTES as u32;
/// … or more than this part of the arena.
const BATCH_PART: u32 = 256;
/// Records that wait for pins, and at which nobody has looked yet, until somebody should …
const UNSEEN_SPANS: usize = 4 * BATCH_SPANS;
/// … or until their units are this part of the arena.
const UNSEEN_PART: u32 = 64;

pub(super) struct Lane {
    pub(super) desk: Mutex<Desk>,
    /// Written by the put that has the desk.
    pub(super) counts: Counts,
}

/// Relaxed, all: counts.
#[derive(Default)]
pub(super) struct Counts {
    /// Keys that were entered.
    pub(super) keys: AtomicUsize,
    /// Records that were put.
    pub(super) records: AtomicUsize,
    /// Records that went.
    pub(super) went: AtomicUsize,
    /// Units of nodes, and of records that have not gone.
    pub(super) live_units: AtomicUsize,
}

pub(super) struct Desk {
    /// What is left of the piece.
    piece: Option<Span>,
    /// By length. A list that has become empty stays: the next row of its length wants it.
    free: BTreeMap<u32, Vec<Span>>,
    waiting: Vec<Span>,
    waiting_units: u32,
    /// Spans that wait for pins, in batches.
    away: usize,
    returned: Arc<Mutex<Vec<Span>>>,
    /// Of these, what was handed over since somebody was asked to look.
    unseen: usize,
    unseen_units: u32,
}

/// Records that went: dropped when no reader sees them.
pub(super) struct Batch {
    spans: Vec<Span>,
    returned: Arc<Mutex<Vec<Span>>>,
}

impl Lane {
    pub(super) fn new() -> Self {
        let desk = Desk {
            piece: None,
            free: BTreeMap::new(),
            waiting: Vec::new(),
            waiting_units: 0,
            away: 0,
            returned: Arc::new(Mutex::new(Vec::new())),
            unseen: 0,
            unseen_units: 0,
        };
        Lane { desk: Mutex::new(desk), counts: Counts::default() }
    }
}

impl Counts {
    pub(super) fn add(count: &AtomicUsize, more: usize) {
        // Not a read-modify-write: the desk's holder is alone.
        count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    pub(super) fn subtract(count: &AtomicUsize, less: usize) {
        // Another lane may have counted what goes here, so a lane's count may wrap; the sum of all does not.
        count.store(count.load(Ordering::Relaxed).wrapping_sub(less), Ordering::Relaxed);
    }
}

impl Desk {
    /// Memory for a row: such as a row of its length had, else new memory, else part of what a longer one
    /// had. In this order room keeps its length; rows of changing lengths would cut it up.
    pub(super) fn take(&mut self, arena: &Arena, units: u32) -> Option<Span> {
        if !self.has_free(units) {
            self.collect(arena);
        }
        if let Some(span) = self.free.get_mut(&units).and_then(Vec::pop) {
            return Some(span);
        }
        self.take_new(arena, units).or_else(|| self.take_longer(units))
    }

    fn has_free(&self, units: u32) -> bool {
        self.free.get(&units).is_some_and(|spans| !spans.is_empty())
    }

    fn take_new(&mut self, arena: &Arena, units: u32) -> Option<Span> {
        let is_short = |piece: &Span| piece.units() < units;
        if self.piece.as_ref().is_none_or(is_short) {
            let fresh = arena.take(units, PIECE_UNITS.min(arena.units() / PIECE_PART))?;
            let rest = self.piece.replace(fresh);
            rest.into_iter().for_each(|rest| self.give(rest));
        }
        let (span, rest) = self.piece.take()?.cut(units);
        self.piece = rest;
        Some(span)
    }

    fn take_longer(&mut self, units: u32) -> Option<Span> {
        let mut longer = self.free.range_mut(units..).map(|(_, spans)| spans);
        let (span, rest) = longer.find_map(Vec::pop)?.cut(units);
        rest.into_iter().for_each(|rest| self.give(rest));
        Some(span)
    }

    /// Memory that no reader has seen is free.
    pub(super) fn give(&mut self, span: Span) {
        self.free.entry(span.units()).or_default().push(span);
    }

    /// All room that is free here, for another desk.
    pub(super) fn give_up(&mut self, arena: &Arena) -> Vec<Span> {
        self.collect(arena);
        self.free.values_mut().flat_map(|spans| spans.drain(..)).chain(self.piece.take()).collect()
    }

    /// A record went that readers may still see.
    pub(super) fn went(&mut self, span: Span) {
        self.waiting_units += span.units();
        self.waiting.push(span);
    }

    /// What is to wait for pins, if it is enough.
    pub(super) fn batch(&mut self, arena: &Arena) -> Option<Batch> {
        let units_max = BATCH_UNITS.min(arena.units() / BATCH_PART);
        let is_enough = self.waiting.len() >= BATCH_SPANS || self.waiting_units > units_max;
        is_enough.then(|| {
            self.unseen += self.waiting.len();
            self.unseen_units = self.unseen_units.saturating_add(self.waiting_units);
            self.waiting_units = 0;
            let spans = std::mem::replace(&mut self.waiting, Vec::with_capacity(BATCH_SPANS));
            self.away += spans.len();
            Batch { spans, returned: Arc::clone(&self.returned) }
        })
    }

    /// Whether enough room waits for pins that somebody should see which of them are left. It asks again only
    /// when as much more waits.
    pub(super) fn is_due(&mut self, arena: &Arena) -> bool {
        let is_due = self.unseen >= UNSEEN_SPANS || self.unseen_units > arena.units() / UNSEEN_PART;
        if is_due {
            (self.unseen, self.unseen_units) = (0, 0);
        }
        is_due
    }

    /// What pins have let go of is free.
    fn collect(&mut self, arena: &Arena) {
        if self.away == 0 {
            return;
        }
        let returned = std::mem::take(&mut *self.returned.lock());
        self.away -= returned.len();
        for span in returned {
            if cfg!(debug_assertions) {
                arena.poison(&span);
            }
            self.give(span);
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.returned.lock().append(&mut self.spans);
    }
}
