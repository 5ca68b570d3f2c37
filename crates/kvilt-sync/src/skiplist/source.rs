//! A skiplist's entries in order, as a `Source`.
//!
//! Forward it follows level 0. Backward there are no links: it searches the last node below the present key, which
//! is O(log n) a key and saves every node a link that could not be kept true without a lock. What is always
//! true: it stands on a record inside its range, or at the end; keys are strictly monotone.

use std::fmt;

use kvilt_base::{Direction, EntryRef, KeyRange, Result, Source, Version};

use super::{
    Skiplist,
    arena::{Node, Record},
};

/// All versions of a range's keys; see [`Skiplist::source`]. Belongs to one reader; holds no lock.
pub struct SkiplistSource<'a> {
    list: &'a Skiplist,
    direction: Direction,
    /// Where to stop: forward the range's end (exclusive), backward its start (inclusive). None: nowhere.
    limit: Option<Vec<u8>>,
    /// Where it stands; none at the end.
    place: Option<(Node<'a>, Record<'a>)>,
    /// Backward only: records of the present key that are newer than the present one, newest first.
    newer: Vec<Record<'a>>,
}

impl<'a> SkiplistSource<'a> {
    pub(super) fn new(list: &'a Skiplist, range: &KeyRange, direction: Direction) -> Self {
        let limit = match direction {
            Direction::Forward => range.end.clone(),
            Direction::Backward => Some(range.start.clone()).filter(|start| !start.is_empty()),
        };
        let mut source = SkiplistSource { list, direction, limit, place: None, newer: Vec::new() };
        if range.is_empty() {
            return source;
        }
        let node = match direction {
            Direction::Forward => list.first_at_or_above(&range.start),
            Direction::Backward => list.last_below(range.end.as_deref()),
        };
        source.stand_on(node);
        source
    }

    /// Stands on the first record, in its direction, of `node`, or at the end if that lies outside.
    fn stand_on(&mut self, node: Option<Node<'a>>) {
        let direction = self.direction;
        let is_inside = |node: &Node<'_>| match (direction, &self.limit) {
            (_, None) => true,
            (Direction::Forward, Some(end)) => node.key() < end.as_slice(),
            (Direction::Backward, Some(start)) => node.key() >= start.as_slice(),
        };
        let Some(node) = node.filter(is_inside) else {
            self.place = None;
            return;
        };
        let mut record = node.newest();
        // Rows of other sources mostly come first. When it is this one's turn, its record and the node behind it are there.
        record.fetch_ahead();
        if direction == Direction::Forward {
            node.next(0).inspect(|next| next.fetch_ahead());
        }
        if direction == Direction::Backward {
            while let Some(lower) = record.lower() {
                self.newer.push(record);
                record = lower;
            }
        }
        self.place = Some((node, record));
    }
}

impl Source for SkiplistSource<'_> {
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
        match (record, self.direction) {
            (Some(record), _) => self.place = Some((node, record)),
            (None, Direction::Forward) => self.stand_on(node.next(0)),
            (None, Direction::Backward) => self.stand_on(self.list.last_below(Some(node.key()))),
        }
        Ok(())
    }
}

impl fmt::Debug for SkiplistSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SkiplistSource {{ {:?} at {:?} }}", self.direction, self.entry())
    }
}
