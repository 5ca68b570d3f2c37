//! `Ascent`: the first part of a log whose keys ascend, but for a little, and how a scan reads it: as good as
//! a table.
//!
//! Rows that are loaded in order lie in their logs in order; events that several threads write in the order
//! of time nearly so. To a scan such a log is a table that lacks its index, so the log keeps one while it is
//! appended to: in memory, for each piece of it, between which keys its rows lie. What comes behind the first
//! record that is too far out of order is sorted as before, by [`LogOrder`](super::log_order::LogOrder).
//!
//! Always true: below the end of an ascent, each live record of a piece, and of every later piece, has a key
//! at or above the piece's `first`, and each record of the pieces before it one at or below its `before`. A
//! log of an earlier run has no ascent before somebody has read it from its beginning.

mod source;

use std::{cmp::Ordering, ops::Range};

use kvilt_base::{
    Direction, KeyRange,
    key::{begins_with, cmp_joined, shared_prefix_len},
};
use kvilt_format::log::HEADER_BYTES;

#[cfg(test)]
pub(super) use self::source::Rows;
pub(crate) use self::source::{AscentSource, Wanted};
use crate::files::Files;

/// A shorter one is not worth a source of its own.
const PIECES_MIN: u64 = 8;

/// Pieces that a scan reads together at first, as it begins somewhere in the first of them.
const PIECES_AT_FIRST: usize = 2;

/// Pieces that a long scan reads together.
const PIECES_TOGETHER_MAX: usize = 32;

/// A record may come so many pieces late: what a thread writes that was stopped for a while between others.
const LATE_PIECES_MAX: usize = 32;

/// Of so many records, one may come late: more is no order, and overwriting old rows again and again is none
/// either.
const RECORDS_A_LATE_ONE: u64 = 8;

/// And so many besides, as the first may be among them.
const LATE_AT_FIRST: u64 = 4;

/// An ascent is over when its keys take more than this part of the log, in parts, and more than so many
/// bytes: an order would take less.
const KEYS_SHARE: u64 = 16;
const KEYS_BYTES_MIN: u64 = 64 << 10;
/// An ascent ends before a key of more bytes: a single one would take more than all else that is kept of a
/// log.
const KEY_BYTES_MAX: usize = 4 << 10;

/// Of keys that are longer, in bytes, what all have in common is kept once.
const LONG_KEY_BYTES: usize = 256;

/// Where what a key has behind the prefix lies among those that an ascent keeps: an allocation for each would
/// take more than the key.
#[derive(Clone, Copy, Debug)]
struct KeyAt {
    begin: u32,
    len: u32,
}

/// A part of an ascent that is read at once.
#[derive(Debug)]
struct Piece {
    /// At or below every key in it and in those behind it.
    first: KeyAt,
    /// The greatest key of those before it.
    before: KeyAt,
    /// The offset at which it begins.
    begin: u64,
}

/// The pieces of an ascent, and whether it is over.
#[derive(Debug)]
pub(crate) struct Ascent {
    /// Bytes of a piece, but for its last record: what a scan of few rows reads at least.
    piece_bytes: u64,
    pieces: Vec<Piece>,
    /// What all keys of the pieces begin with, if they are long.
    prefix: Vec<u8>,
    /// The keys of the pieces, without the prefix.
    keys: Vec<u8>,
    /// The greatest key so far.
    last: Option<Vec<u8>>,
    records: u64,
    late: u64,
    /// The first record that does not belong to it; none while it goes on.
    over_at: Option<u64>,
}

impl Ascent {
    /// That of an empty log.
    pub(crate) fn new(files: &Files) -> Self {
        Ascent {
            piece_bytes: files.log_piece_bytes,
            pieces: Vec::new(),
            prefix: Vec::new(),
            keys: Vec::new(),
            last: None,
            records: 0,
            late: 0,
            over_at: None,
        }
    }

    /// That of a log of which nothing is known.
    pub(crate) fn unknown(files: &Files) -> Self {
        Ascent { over_at: Some(HEADER_BYTES as u64), ..Ascent::new(files) }
    }

    /// Takes note of the next record. Returns by how many bytes of memory it grew.
    pub(crate) fn note(&mut self, key: &[u8], offset: u64) -> usize {
        if self.over_at.is_some() {
            return 0;
        }
        let is_late = self.last.as_deref().is_some_and(|last| last >= key);
        let is_too_much =
            key.len() > KEY_BYTES_MAX || self.keys_bytes() as u64 > KEYS_BYTES_MIN.max(offset / KEYS_SHARE);
        if is_late && !self.may_be_late(key) || is_too_much {
            // The pieces stay: a scan that has begun may read them still.
            let is_short = offset < PIECES_MIN * self.piece_bytes;
            self.over_at = Some(if is_short { HEADER_BYTES as u64 } else { offset });
            self.last = None;
            return 0;
        }
        self.records += 1;
        let bytes_before = self.keys_bytes();
        let begun = self.begin_piece_if_full(key, offset, is_late);
        if is_late {
            self.late += 1;
            self.lower_to(key);
        } else {
            key.clone_into(self.last.get_or_insert_default());
        }
        begun + self.keys_bytes().saturating_sub(bytes_before)
    }

    /// No more records come: what was kept to compare the next one with goes.
    pub(crate) fn end_notes(&mut self) {
        self.last = None;
        self.keys.shrink_to_fit();
    }

    /// Bytes of keys that it keeps.
    fn keys_bytes(&self) -> usize {
        self.prefix.len() + self.keys.len()
    }

    /// A late key comes before pieces that begin above it.
    fn lower_to(&mut self, key: &[u8]) {
        let from = self.pieces.partition_point(|piece| self.cmp(piece.first, key).is_lt());
        if from < self.pieces.len() {
            let first = self.keep(key);
            self.pieces[from..].iter_mut().for_each(|piece| piece.first = first);
        }
    }

    /// How a key that is kept compares with another.
    fn cmp(&self, at: KeyAt, key: &[u8]) -> Ordering {
        cmp_joined(&self.prefix, self.rest(at), key)
    }

    fn rest(&self, at: KeyAt) -> &[u8] {
        &self.keys[at.begin as usize..][..at.len as usize]
    }

    /// The prefix becomes one that `key` begins with; the keys have the rest of what it was.
    fn fit_prefix(&mut self, key: &[u8]) {
        if self.pieces.is_empty() && self.keys.is_empty() && key.len() > LONG_KEY_BYTES {
            self.prefix = key.to_vec();
        }
        if begins_with(key, &self.prefix) {
            return;
        }
        let rest = self.prefix.split_off(shared_prefix_len(&self.prefix, key));
        let before = std::mem::take(&mut self.keys);
        let mut moved = |at: &mut KeyAt| {
            let key = &before[at.begin as usize..][..at.len as usize];
            *at = KeyAt { begin: self.keys.len() as u32, len: (rest.len() + key.len()) as u32 };
            self.keys.extend_from_slice(&rest);
            self.keys.extend_from_slice(key);
        };
        for piece in &mut self.pieces {
            moved(&mut piece.first);
            moved(&mut piece.before);
        }
    }

    fn keep(&mut self, key: &[u8]) -> KeyAt {
        self.fit_prefix(key);
        // No more than three keys are kept at a time, and none behind the limit.
        let rest = &key[self.prefix.len()..];
        let at = KeyAt { begin: self.keys.len() as u32, len: rest.len() as u32 };
        self.keys.extend_from_slice(rest);
        at
    }

    /// Whether a key that is not above all before it still belongs to the ascent.
    fn may_be_late(&self, key: &[u8]) -> bool {
        let is_again = self.last.as_deref() == Some(key);
        let is_seldom = self.late < LATE_AT_FIRST + self.records / RECORDS_A_LATE_ONE;
        let is_near = match self.pieces.len().checked_sub(LATE_PIECES_MAX) {
            Some(earliest) => self.cmp(self.pieces[earliest].first, key).is_le(),
            None => true,
        };
        !is_again && is_seldom && is_near
    }

    fn begin_piece_if_full(&mut self, key: &[u8], offset: u64, is_late: bool) -> usize {
        if self.pieces.last().is_some_and(|piece| offset < piece.begin + self.piece_bytes) {
            return 0;
        }
        let last = self.last.take();
        let (before, first) = match &last {
            // Any key will do that is above all before the piece and at or below all from here on: the
            // shortest.
            Some(last) if !is_late => {
                let between = self.keep(&key[..shared_prefix_len(last, key) + 1]);
                (between, between)
            }
            Some(last) => {
                self.fit_prefix(key);
                (self.keep(last), self.keep(key))
            }
            // None is before it.
            None => {
                let first = self.keep(key);
                (first, first)
            }
        };
        self.last = last;
        self.pieces.push(Piece { first, before, begin: offset });
        size_of::<Piece>()
    }

    /// Where it ends in the first `len` bytes of the log.
    pub(crate) fn end(&self, len: u64) -> u64 {
        self.over_at.unwrap_or(len).min(len)
    }

    /// The pieces that may have keys of `range`.
    fn pieces_of(&self, range: &KeyRange) -> Range<usize> {
        let behind = range.end.as_deref().map_or(self.pieces.len(), |end| {
            self.pieces.partition_point(|piece| self.cmp(piece.first, end).is_lt())
        });
        // All keys of a piece are below the range if that is so of all before the next.
        let from = self
            .pieces
            .partition_point(|piece| self.cmp(piece.before, &range.start).is_lt())
            .saturating_sub(1);
        from.min(behind)..behind
    }

    /// So many of the next pieces, `most` at most, as have no more bytes than so many usually have; one at
    /// least. A record may be larger than all of them.
    fn fitting(&self, left: &Range<usize>, direction: Direction, most: usize, end: u64) -> usize {
        let bytes = |pieces: usize| {
            let place = match direction {
                Direction::Forward => self.place_of(&(left.start..left.start + pieces), end),
                Direction::Backward => self.place_of(&(left.end - pieces..left.end), end),
            };
            place.end - place.start
        };
        let mut pieces = most;
        while pieces > 1 && bytes(pieces) > 2 * most as u64 * self.piece_bytes {
            pieces /= 2;
        }
        pieces
    }

    /// Where some pieces lie below `end`.
    fn place_of(&self, pieces: &Range<usize>, end: u64) -> Range<u64> {
        let begin = |piece: usize| self.pieces.get(piece).map_or(end, |piece| piece.begin).min(end);
        begin(pieces.start)..begin(pieces.end)
    }
}

/// Pieces that have so many bytes together, mostly, as the first of them lie somewhere in a piece.
fn pieces_for(bytes: u64, piece_bytes: u64) -> usize {
    if bytes == 0 {
        return 0;
    }
    usize::try_from(bytes.saturating_add(piece_bytes / 2).div_ceil(piece_bytes)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
