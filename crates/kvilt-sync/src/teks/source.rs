//! A table's rows in order, as a `Source`.
//!
//! What is always true: it stands on a record inside its range, or at the end; keys are strictly monotone.

use std::fmt;

use kvilt_base::{Direction, EntryRef, KeyRange, Result, Source, Version, planted};

use super::{
    Readers, TeksTable,
    arena::{Node, Record},
    records,
};
use crate::shim::Ordering;

/// Records of a range; see [`TeksReading`](super::TeksReading). Belongs to one reader; holds no lock.
pub struct TeksSource<'r, R> {
    table: &'r TeksTable,
    range: KeyRange,
    direction: Direction,
    /// The version to see; none sees all.
    view: Option<Version>,
    readers: R,
    /// Where it stands; none at the end.
    place: Option<(Node<'r>, Record<'r>)>,
    /// Of all versions backward: records of the present key that are newer than the present one, newest
    /// first.
    newer: Vec<Record<'r>>,
}

impl<'r, R: Readers> TeksSource<'r, R> {
    /// The table has caught up.
    pub(super) fn new(
        table: &'r TeksTable,
        range: &KeyRange,
        direction: Direction,
        view: Option<Version>,
        readers: R,
    ) -> Self {
        let range = range.clone();
        let mut source =
            TeksSource { table, range, direction, view, readers, place: None, newer: Vec::new() };
        let first = source.first();
        source.stand_on(first);
        source
    }

    fn first(&self) -> Option<Node<'r>> {
        let TeksTable { list, arena, .. } = self.table;
        match (self.direction, &self.range.end) {
            (Direction::Forward, _) => {
                let start = &self.range.start;
                let found = if start.is_empty() { None } else { self.table.shortcut(start) };
                planted!(MissedSeekEnds => if !start.is_empty() { return found });
                found.or_else(|| list.seek(arena, start))
            }
            (Direction::Backward, None) => list.last(arena),
            (Direction::Backward, Some(end)) => match self.table.shortcut(end) {
                Some(node) => list.previous(arena, node),
                None => list.seek_back(arena, end),
            },
        }
    }

    /// Stands on what is to be seen of this node's key, or of the next that has something, or at the end.
    fn stand_on(&mut self, mut node: Option<Node<'r>>) {
        self.place = None;
        while let Some(present) = node.filter(|node| self.is_inside(node.key())) {
            if let Some(record) = self.first_record(present) {
                self.fetch_ahead(present);
                self.place = Some((present, record));
                return;
            }
            node = self.beside(present);
        }
    }

    fn is_inside(&self, key: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => self.range.end.as_deref().is_none_or(|end| key < end),
            Direction::Backward => key >= self.range.start.as_slice(),
        }
    }

    fn beside(&self, node: Node<'r>) -> Option<Node<'r>> {
        let TeksTable { list, arena, .. } = self.table;
        match self.direction {
            Direction::Forward => list.next(arena, node),
            Direction::Backward => list.previous(arena, node),
        }
    }

    /// Has the processor fetch what most likely comes next. Forward that is the record of the next node,
    /// which lies elsewhere if it was put again, and the node behind that one.
    fn fetch_ahead(&self, node: Node<'r>) {
        let TeksTable { list, arena, .. } = self.table;
        match self.direction {
            Direction::Forward => {
                let Some(next) = list.next(arena, node) else { return };
                arena.fetch_row(next.newest().place());
                arena.fetch_row(list.next(arena, next).map_or(0, Node::place));
            }
            // Relaxed: nothing is read there.
            Direction::Backward => arena.fetch_row(node.back().load(Ordering::Relaxed)),
        }
    }

    /// The record of a key that comes first in this direction.
    fn first_record(&mut self, node: Node<'r>) -> Option<Record<'r>> {
        if let Some(view) = self.view {
            return records::visible(node, view, &self.readers);
        }
        let mut record = node.newest();
        if self.direction == Direction::Backward {
            while let Some(older) = record.older() {
                self.newer.push(record);
                record = older;
            }
        }
        Some(record)
    }
}

impl<R: Readers> Source for TeksSource<'_, R> {
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
        let record = match (self.view, self.direction) {
            (Some(_), _) => None,
            (None, Direction::Forward) => record.older(),
            (None, Direction::Backward) => self.newer.pop(),
        };
        match record {
            Some(record) => self.place = Some((node, record)),
            None => {
                let next = self.beside(node);
                self.stand_on(next);
            }
        }
        Ok(())
    }
}

impl<R: Readers> fmt::Debug for TeksSource<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TeksSource {{ {:?} at {:?} }}", self.direction, self.entry())
    }
}
