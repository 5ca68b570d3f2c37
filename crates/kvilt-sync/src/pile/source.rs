//! A pile's entries in order, as a `Source`.
//!
//! Most keys are in order already ([`Order`](super::order::Order)); those that came since are sorted for this
//! source alone, and both are walked side by side. What is always true: it stands on a record inside its
//! range, or at the end; keys are strictly monotone.

use std::{fmt, ops::Range, sync::Arc};

use kvilt_base::{Direction, EntryRef, KeyRange, Result, Source, Version};

use super::{
    Pile,
    arena::{Node, Record},
    arrivals::Arrival,
    order::{Sorted, in_order},
};

/// So many rows the processor is told to fetch before they are read.
const ROWS_AHEAD: usize = 3;

/// All versions of a range's keys; see [`Pile::source`]. Belongs to one reader; holds no lock.
pub struct PileSource<'a> {
    pile: &'a Pile,
    direction: Direction,
    sorted: Arc<Sorted>,
    /// Positions in `sorted` that are still to come.
    remaining: Range<usize>,
    /// What `sorted` has not, sorted as well.
    since: Vec<Arrival>,
    /// Positions in `since` that are still to come.
    since_remaining: Range<usize>,
    /// Where it stands; none at the end.
    place: Option<(Node<'a>, Record<'a>)>,
    /// Backward only: records of the present key that are newer than the present one, newest first.
    newer: Vec<Record<'a>>,
}

impl<'a> PileSource<'a> {
    pub(super) fn new(pile: &'a Pile, range: &KeyRange, direction: Direction) -> Self {
        let compare = |a, b| pile.compare(a, b);
        let sorted = pile.order.mostly(&pile.arrivals, compare);
        let remaining = pile.positions(&sorted, range);
        let since = pile.arrivals.between(sorted.len(), pile.arrivals.len());
        let since = in_order(pile.inside(since, range), compare);
        let mut source = PileSource {
            pile,
            direction,
            remaining,
            sorted,
            since_remaining: 0..since.len(),
            since,
            place: None,
            newer: Vec::new(),
        };
        source.stand_on_next();
        source
    }

    /// Stands on the first record, in its direction, of the next key, or at the end.
    fn stand_on_next(&mut self) {
        let Some(next) = self.take_next() else {
            self.place = None;
            return;
        };
        let node = self.pile.node(next);
        let mut record = node.newest();
        if self.direction == Direction::Backward {
            while let Some(lower) = record.lower() {
                self.newer.push(record);
                record = lower;
            }
        }
        self.place = Some((node, record));
    }

    /// The key that comes next, which is then no longer to come.
    fn take_next(&mut self) -> Option<Arrival> {
        let forward = self.direction == Direction::Forward;
        let end_of = |range: &Range<usize>| if forward { range.start } else { range.end.wrapping_sub(1) };
        let sorted = (!self.remaining.is_empty()).then(|| self.sorted.get(end_of(&self.remaining)));
        let since = (!self.since_remaining.is_empty()).then(|| self.since[end_of(&self.since_remaining)]);
        let is_since = match (sorted, since) {
            (Some(sorted), Some(since)) => {
                let order = sorted.head.cmp(&since.head).then_with(|| self.pile.compare(sorted, since));
                if forward { order.is_gt() } else { order.is_lt() }
            }
            (sorted, _) => sorted.is_none(),
        };
        let (next, range) =
            if is_since { (since, &mut self.since_remaining) } else { (sorted, &mut self.remaining) };
        if next.is_some() {
            if forward {
                range.start += 1
            } else {
                range.end -= 1
            };
        }
        if !is_since {
            self.fetch_ahead();
        }
        next
    }

    /// Has the processor fetch a row that will be read soon.
    fn fetch_ahead(&self) {
        let Range { start, end } = self.remaining;
        let ahead = match self.direction {
            Direction::Forward => start + ROWS_AHEAD - 1,
            Direction::Backward => end.wrapping_sub(ROWS_AHEAD),
        };
        if (start..end).contains(&ahead) {
            self.pile.node(self.sorted.get(ahead)).fetch_ahead();
        }
    }
}

impl Source for PileSource<'_> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        let (node, record) = self.place?;
        let found = record.found();
        Some(EntryRef { key: node.key(), version: found.version, kind: found.kind, value: found.value })
    }

    fn key(&self) -> Option<&[u8]> {
        self.place.map(|(node, _)| node.key())
    }

    fn version(&self) -> Option<Version> {
        self.place.map(|(_, record)| record.version())
    }

    fn advance(&mut self) -> Result<()> {
        let (node, record) = self.place.expect("advance is not called at the end");
        let record = match self.direction {
            Direction::Forward => record.lower(),
            Direction::Backward => self.newer.pop(),
        };
        match record {
            Some(record) => self.place = Some((node, record)),
            None => self.stand_on_next(),
        }
        Ok(())
    }
}

impl fmt::Debug for PileSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PileSource {{ {:?} at {:?} }}", self.direction, self.entry())
    }
}
