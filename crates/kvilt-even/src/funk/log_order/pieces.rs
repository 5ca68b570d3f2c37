//! `Pieces`: a part of a log in key order whose order would take too much memory: the order of a few of its
//! keys at a time.
//!
//! For each piece all keys of the log are read again. Scans pay for that, so that a rewrite is due soon.
//!
//! What is always true: a piece takes no more than the bytes that it may, or one key.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use kvilt_base::{
    Charge, Direction, EntryRef, KeyRange, Kind, Result, Source, Streamed, Version, key::successor,
};
use kvilt_format::log::Outline;

use super::{Gathered, OrderSource, Record, Wanted, order_bytes};
use crate::{files::Files, funk::log::ChunkLog, parts};

/// Walks a part of a log in key order: of each key the record that a view sees.
pub(crate) struct Pieces<'f> {
    log: Arc<ChunkLog>,
    files: &'f Files,
    place: Range<u64>,
    /// What no piece has had yet.
    left: Option<KeyRange>,
    direction: Direction,
    wanted: Wanted<'f>,
    piece_bytes: u64,
    /// Of the piece, and what that is charged.
    source: OrderSource<'f>,
    charge: Charge,
}

impl<'f> Pieces<'f> {
    /// The entries of `range`, in `direction`. A piece takes `piece_bytes`.
    pub(crate) fn new(
        (log, place): (Arc<ChunkLog>, Range<u64>),
        files: &'f Files,
        range: &KeyRange,
        direction: Direction,
        (wanted, piece_bytes): (Wanted<'f>, u64),
    ) -> Result<Self> {
        assert!(!wanted.every_version, "a piece has one record of each key");
        let nothing = Arc::new(Gathered::default().sorted(place.clone()));
        let source = OrderSource::new((nothing, Arc::clone(&log)), files, range, direction, wanted);
        let charge = files.budget.charge(parts::LOG_INDEXES, 0);
        let left = Some(range.clone());
        let mut pieces = Pieces { log, files, place, left, direction, wanted, piece_bytes, source, charge };
        pieces.go_on()?;
        Ok(pieces)
    }

    /// Whether it has nothing of the range.
    pub(crate) fn is_empty(&self) -> bool {
        self.source.is_empty()
    }

    /// Makes the next piece if the one there is has come to its end.
    fn go_on(&mut self) -> Result<()> {
        while self.source.is_empty()
            && let Some(range) = self.left.take()
        {
            let piece = self.gather(range.clone())?;
            self.left = behind(range, &piece.range, self.direction);
            let order = piece.gathered.sorted(self.place.clone());
            self.charge = self.files.budget.charge(parts::LOG_INDEXES, order.memory_bytes() as u64);
            let of = (Arc::new(order), Arc::clone(&self.log));
            self.source = OrderSource::new(of, self.files, &piece.range, self.direction, self.wanted);
        }
        Ok(())
    }

    /// What comes first of a range.
    fn gather(&self, range: KeyRange) -> Result<Piece> {
        let mut piece = Piece { range, direction: self.direction, gathered: Gathered::default(), bytes: 0 };
        let read = self.log.for_each_outline(self.files, self.place.clone(), &mut |outline| {
            let Outline { offset, kind, key, version } = outline;
            let is_seen = version <= self.wanted.view && kind != Kind::RangeTombstone;
            if is_seen && piece.range.contains(key) {
                piece.push(Record { key, version, offset, kind });
                if piece.bytes > self.piece_bytes {
                    piece.cut(self.piece_bytes / 2);
                }
            }
            Ok(())
        })?;
        if let Some(cost) = self.wanted.cost_bytes {
            // Relaxed: a statistic.
            cost.fetch_add(read, Ordering::Relaxed);
        }
        Ok(piece)
    }
}

/// What is left of a range behind a piece of it, in `direction`.
fn behind(range: KeyRange, piece: &KeyRange, direction: Direction) -> Option<KeyRange> {
    if *piece == range {
        return None;
    }
    Some(match direction {
        Direction::Forward => KeyRange { start: piece.end.clone()?, ..range },
        Direction::Backward => KeyRange { end: Some(piece.start.clone()), ..range },
    })
}

/// The next keys while they are gathered.
struct Piece {
    /// Keys outside come later.
    range: KeyRange,
    direction: Direction,
    gathered: Gathered,
    /// What the order of these takes.
    bytes: u64,
}

impl Piece {
    fn push(&mut self, record: Record<'_>) {
        self.bytes += order_bytes(record.key);
        self.gathered.push(record);
    }

    /// Leaves out records that newer ones hide, and of the rest what comes last, until `bytes` are left, or
    /// one key.
    fn cut(&mut self, bytes: u64) {
        let gathered = std::mem::take(&mut self.gathered);
        self.bytes = 0;
        let mut records = gathered.records();
        records.dedup_by_key(|record| record.key);
        if self.direction == Direction::Backward {
            records.reverse();
        }
        for record in records {
            if self.bytes > bytes {
                match self.direction {
                    Direction::Forward => self.range.end = Some(record.key.to_vec()),
                    Direction::Backward => self.range.start = successor(record.key),
                }
                break;
            }
            self.push(record);
        }
    }
}

impl Source for Pieces<'_> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.source.entry()
    }

    fn key(&self) -> Option<&[u8]> {
        self.source.key()
    }

    fn version(&self) -> Option<Version> {
        self.source.version()
    }

    fn fetch(&mut self) -> Result<()> {
        self.source.fetch()
    }

    fn streamed(&self) -> Option<&dyn Streamed> {
        self.source.streamed()
    }

    fn advance(&mut self) -> Result<()> {
        self.source.advance()?;
        self.go_on()
    }
}
