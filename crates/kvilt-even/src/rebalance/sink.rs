//! Sinking: rows of tails take the places of those in the run that they overwrite, where that is all that a
//! tail has.
//!
//! While the background reads a run, puts go to a tail; and a key that a tail has stays with the tails, which
//! are looked at first. To sort so few rows into the run would mean to copy or weave all of it
//! (docs/design/0050-rows-replaced-one-by-one.md).

use std::sync::Arc;

use kvilt_base::{EntryRef, Kind};
use kvilt_sync::{
    published::{Pin, pin, settle},
    rows::Replaced,
};
use parking_lot::MutexGuard;

use crate::{
    chunk::{Chunk, ChunkState, GateState, Occupied},
    key_hash::key_hash,
    munk::{ChargedRun, Munk, tail::Tail},
    store::Store,
};

/// So many rows sink while puts wait, of so many bytes in all: some twenty microseconds' worth.
const ROWS_AT_GATE_MAX: usize = 32;
const BYTES_AT_GATE_MAX: usize = 64 << 10;
/// What comes while rows sink is next; each time it is a small part of the last.
const ROUNDS_MAX: usize = 8;
/// More than this part of a run in tails is sorted rather: rows are put one by one at some three times the
/// cost.
const PART_MAX: usize = 2;
/// How often a row waits for room, unless puts wait: a moment, until nobody can be reading what was replaced
/// before.
const WAITS_MAX: usize = 4;

impl Store {
    /// Whether the munk's frozen tails mostly overwrite what is below them. Then they are worth sorting:
    /// their keys go where rows take each other's places.
    pub(super) fn are_tails_overwriting(&self, chunk: &Chunk, munk: &Munk, pin: &Pin) -> bool {
        let (mut sampled, mut overwriting) = (0, 0);
        for (nth, tail) in munk.tails.iter().enumerate().skip(1) {
            tail.sample(&chunk.range, |entry| {
                let hash = key_hash(entry.key);
                let is_below = || munk.tails[nth + 1..].iter().any(|older| older.may_have(hash));
                sampled += 1;
                overwriting += usize::from(munk.run.run.under(pin).newest(entry.key).is_some() || is_below());
            });
        }
        overwriting > sampled / 2
    }

    /// Sinks the rows of the chunk's tails, the oldest tail first, for as long as all of a tail's do.
    pub(super) fn sink_tails(&self, chunk: &Occupied) {
        for _ in 0..ROUNDS_MAX {
            let Some((run, tails)) = self.to_sink(chunk) else { return };
            let sunk = self.count_sunk(chunk, (&run, &tails), WAITS_MAX);
            let is_all = sunk == tails.len();
            drop((run, tails));
            let pin = pin();
            let gate = chunk.gate();
            let state = chunk.state(&pin);
            self.drop_oldest_tails(chunk, &gate, state, sunk);
            if !is_all {
                return;
            }
        }
    }

    /// The run and frozen tails, if they are worth it and too long to be done with while puts wait; what is
    /// short enough is.
    fn to_sink(&self, chunk: &Occupied) -> Option<(Arc<ChargedRun>, Vec<Arc<Tail>>)> {
        let munk = Arc::clone(chunk.state(&pin()).munk.as_ref()?);
        let (rows, bytes) = size_of(&munk.tails);
        if rows == 0 || rows > munk.run.run.len() / PART_MAX {
            return None;
        }
        let is_short = rows <= ROWS_AT_GATE_MAX && bytes <= BYTES_AT_GATE_MAX;
        // What is frozen sinks first. To freeze the newest one takes another, so it is looked at before,
        // while puts go on.
        if !is_short && !munk.has_frozen_tails() && !could_sink(chunk, &munk.run, munk.tail()) {
            return None;
        }
        drop(munk);
        let pin = pin();
        let gate = chunk.gate();
        let state = chunk.state(&pin);
        let munk = state.munk.as_ref().filter(|_| !gate.is_retired)?;
        if is_short {
            let sunk = self.count_sunk(chunk, (&munk.run, &munk.tails), 0);
            self.drop_oldest_tails(chunk, &gate, state, sunk);
            return None;
        }
        if munk.has_frozen_tails() {
            return Some((Arc::clone(&munk.run), munk.tails[1..].to_vec()));
        }
        let munk = self.with_fresh_tail(munk, 0);
        let frozen = (Arc::clone(&munk.run), munk.tails[1..].to_vec());
        chunk.replace_state(&gate, ChunkState { munk: Some(munk), ..state.clone() });
        Some(frozen)
    }

    /// So many tails of the munk go, the oldest ones, for they have sunk; there is a fresh one if none is
    /// left.
    fn drop_oldest_tails(
        &self,
        chunk: &Occupied,
        gate: &MutexGuard<'_, GateState>,
        state: &ChunkState,
        count: usize,
    ) {
        if count == 0 {
            return;
        }
        let munk = state.munk.as_ref().expect("only the occupant evicts");
        let mut tails = munk.tails[..munk.tails.len() - count].to_vec();
        if tails.is_empty() {
            tails.push(self.new_tail(0, &munk.run.run));
        }
        let munk = Some(Arc::new(Munk { tails, ..Munk::clone(munk) }));
        chunk.replace_state(gate, ChunkState { munk, ..state.clone() });
    }

    /// How many tails have sunk: the oldest ones, since what is below would show if a newer one went first.
    fn count_sunk(
        &self,
        chunk: &Occupied,
        (run, tails): (&ChargedRun, &[Arc<Tail>]),
        waits_max: usize,
    ) -> usize {
        let has_sunk = |tail: &&Arc<Tail>| {
            could_sink(chunk, run, tail)
                && tail.each_newest(&mut |entry| {
                    !chunk.range.contains(entry.key) || self.has_row_sunk(run, entry, waits_max)
                })
        };
        tails.iter().rev().take_while(has_sunk).count()
    }

    fn has_row_sunk(&self, run: &ChargedRun, entry: EntryRef<'_>, waits_max: usize) -> bool {
        let mut waits = 0;
        loop {
            let mut is_there = false;
            let replaced = run.replace(entry, key_hash(entry.key), &pin(), |older| {
                // Of a tail that once sank in part.
                is_there =
                    (older.version, older.kind, older.value) == (entry.version, entry.kind, entry.value);
                !is_there
                    && older.version <= entry.version
                    && !self.versions.is_viewed(older.version..entry.version)
            });
            if replaced != Replaced::NoRoom || waits == waits_max {
                return is_there || replaced == Replaced::Done;
            }
            waits += 1;
            settle();
        }
    }
}

/// Whether all that a tail has of the chunk overwrites: then it sinks, unless a view sees what is below, or
/// there is no room.
fn could_sink(chunk: &Chunk, run: &ChargedRun, tail: &Tail) -> bool {
    // It may have a sibling's rows, too.
    tail.each_newest(&mut |entry| {
        let overwrites = || run.run.under(&pin()).newest(entry.key).is_some();
        !chunk.range.contains(entry.key) || (entry.kind == Kind::Put && overwrites())
    })
}

/// Rows and bytes of tails.
fn size_of(tails: &[Arc<Tail>]) -> (usize, usize) {
    tails.iter().fold((0, 0), |(rows, bytes), tail| (rows + tail.len(), bytes + tail.entry_bytes()))
}
