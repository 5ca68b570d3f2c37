//! Scan (EvenDB algorithm 1, lines 23–33): chunk after chunk, each at the scan's version.
//!
//! A scan goes on by key, never by a remembered chunk: between two batches the chunk it was in may have been
//! split or coalesced. Versions it can see are kept while its view is open, so any chunk that holds the key
//! range now has what it needs.

use std::{
    borrow::Cow,
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
};

use kvilt_base::{Direction, KeyRange, Merge, Result, Rows, Scanned, Version, Visible, key::successor};
use kvilt_sync::published::pin;

use super::{Chunk, ChunkState};
use crate::{funk::Purpose, store::Store};
use kvilt_sync::tombstones::{Over, Tombstones};

/// What one scan wants of one chunk.
struct Wanted<'a> {
    view: Version,
    range: &'a KeyRange,
    direction: Direction,
}

/// How far a scan of one chunk came.
enum Reached {
    /// The end of what was wanted.
    End,
    /// This key: whoever takes the rows breaks there.
    Key(Vec<u8>),
    /// Far enough: whoever takes the rows wants no more of any.
    Enough,
}

/// How far a scan of one chunk came, and what that took.
struct Walked {
    reached: Reached,
    /// How often the merge went on with another source.
    turns: u64,
    /// Entries passed over.
    skipped: u64,
}

/// So many entries are passed over in the time that a search of a tail takes, about.
const ENTRIES_A_SEARCH: u64 = 8;

impl Store {
    /// Gives rows of `range` at `view` to `rows` until it breaks; says how that came to its end.
    pub(crate) fn scan(
        &self,
        view: Version,
        range: &KeyRange,
        direction: Direction,
        rows: &mut dyn Rows,
    ) -> Result<Scanned> {
        self.poison.allow_read()?;
        let mut left = Cow::Borrowed(range);
        while !left.is_empty() {
            let pin = pin();
            let index = self.index.load(&pin);
            let chunk = match direction {
                Direction::Forward => index.find(&left.start),
                Direction::Backward => index.find_before(left.end.as_deref()),
            };
            // SeqCst: before it is asked whether anybody rests (S-80).
            chunk.heat.scans.fetch_add(1, Ordering::SeqCst);
            self.stir();
            let here = left.intersection(&chunk.range);
            let state = chunk.state(&pin);
            let wanted = Wanted { view, range: &here, direction };
            let reached = match &state.munk {
                Some(munk) => {
                    let entries = munk.entries(&here, direction, &pin);
                    // Rows go to a user's code: what it calls of the store is none of this scan's.
                    let give = || self.give_rows(entries, munk.over(), &wanted, rows);
                    let Walked { reached, turns, skipped } = pin.apart(give)?;
                    if munk.run.run.have_scans_paid_for_order() {
                        self.want_for_readers(chunk);
                    }
                    if munk.has_tails() {
                        self.count_tail_searches(chunk, munk, 1 + turns as u32);
                    }
                    if !munk.tombstones.is_empty() && skipped >= ENTRIES_A_SEARCH {
                        self.count_tail_searches(chunk, munk, (skipped / ENTRIES_A_SEARCH) as u32);
                    }
                    reached
                }
                None => {
                    if self.is_order_due(chunk, &state.funk) && !self.has_replaced_much() {
                        self.want_for_readers(chunk);
                    }
                    // Reading files takes its time, and a pin would keep all memory that is replaced
                    // meanwhile.
                    let (chunk, state) = (Arc::clone(chunk), state.clone());
                    drop(pin);
                    let given = self.give_cold_rows(&chunk, &state, &wanted, rows).inspect_err(|error| {
                        self.index.load(&kvilt_sync::published::pin()).find(&here.start).note(error);
                    })?;
                    self.keep_readers_within_budget();
                    given
                }
            };
            match reached {
                Reached::Key(key) => {
                    let behind = behind_key(left.into_owned(), key, direction);
                    return Ok(behind.map_or(Scanned::Ended, Scanned::Left));
                }
                Reached::Enough => return Ok(Scanned::Enough),
                Reached::End => match behind_range(left.into_owned(), here, direction) {
                    Some(behind) => left = Cow::Owned(behind),
                    None => return Ok(Scanned::Ended),
                },
            }
        }
        Ok(Scanned::Ended)
    }

    fn give_cold_rows(
        &self,
        chunk: &Arc<Chunk>,
        state: &ChunkState,
        wanted: &Wanted<'_>,
        rows: &mut dyn Rows,
    ) -> Result<Reached> {
        let tombstones = state.funk.tombstones(&self.files, &self.versions)?;
        if tombstones.iter().any(|tombstones| tombstones.cover(&chunk.range)) {
            // Of an earlier run, maybe: then nobody else knows that all of it is dead.
            self.want(chunk);
        }
        let entries = state.funk.entries(
            wanted.range,
            wanted.direction,
            &self.files,
            Purpose::Scan {
                view: wanted.view,
                rows: rows.wanted(),
                cost_bytes: Some(&chunk.heat.unordered_cost_bytes),
            },
        )?;
        Ok(self.give_rows(entries, &tombstones, wanted, rows)?.reached)
    }

    /// Gives the rows among `entries`; says how far it came, and what that took.
    fn give_rows(
        &self,
        entries: Merge<'_>,
        tombstones: &[Arc<Tombstones>],
        wanted: &Wanted<'_>,
        rows: &mut dyn Rows,
    ) -> Result<Walked> {
        let mut given = 0;
        let mut visible = Visible::new(entries, wanted.direction, wanted.view, Over::new(tombstones));
        let flow = visible.each(|key, value| {
            // S-9: what was found counts only if the view has not expired when it was. The caller tells of
            // it.
            if self.versions.is_expired(wanted.view) {
                return ControlFlow::Break(());
            }
            given += 1;
            rows.take(key, value)
        });
        self.counters.scanned_rows.add(given);
        self.counters.scanned_skips.add(visible.skipped());
        let reached = match flow? {
            ControlFlow::Continue(()) => Reached::End,
            ControlFlow::Break(()) if rows.wanted() == Some(0) => Reached::Enough,
            ControlFlow::Break(()) => Reached::Key(visible.key().expect("a row has a key").to_vec()),
        };
        Ok(Walked { reached, turns: visible.turns(), skipped: visible.skipped() })
    }
}

/// What is left of a range behind a key, in `direction`.
fn behind_key(range: KeyRange, key: Vec<u8>, direction: Direction) -> Option<KeyRange> {
    let left = match direction {
        Direction::Forward => KeyRange { start: successor(&key), ..range },
        Direction::Backward => KeyRange { end: Some(key), ..range },
    };
    (!left.is_empty()).then_some(left)
}

/// What is left of a range behind the part of it that was read, in `direction`.
fn behind_range(range: KeyRange, read: KeyRange, direction: Direction) -> Option<KeyRange> {
    let left = match direction {
        Direction::Forward => KeyRange { start: read.end?, ..range },
        Direction::Backward => KeyRange { end: Some(read.start), ..range },
    };
    (!left.is_empty()).then_some(left)
}

#[cfg(test)]
mod tests;
