//! Get (EvenDB algorithm 1, lines 1–9): the munk, else the row cache, else the logs by their index, else
//! tables.

use std::sync::{Arc, atomic::Ordering};

use kvilt_base::{Result, Value, Version};
use kvilt_sync::published::{Pin, pin};

use super::{Chunk, ChunkState};
use crate::{
    funk::{Answer, Place},
    munk::{Found, Munk},
    store::Store,
};

/// One get in so many is counted for a chunk's heat: a counter that every reader wrote would be a contended
/// line.
const SAMPLE: u32 = 16;

thread_local! {
    static SAMPLER: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// What the row cache knows a row of a cold chunk by.
pub(crate) fn cold_key(cold_id: u64, key: &[u8]) -> Vec<u8> {
    let mut cold_key = Vec::with_capacity(8 + key.len());
    cold_key.extend_from_slice(&cold_id.to_le_bytes());
    cold_key.extend_from_slice(key);
    cold_key
}

impl Store {
    /// Gives the value of `key` at `view` to `found`; false if it has none.
    pub(crate) fn get(&self, key: &[u8], view: Version, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.poison.allow_read()?;
        let pin = pin();
        let chunk = self.index.load(&pin).find(key);
        let state = chunk.state(&pin);
        if is_sampled() {
            self.count_get(chunk, state, key);
        }
        match self.find_in_munk(state, key, view, found, &pin) {
            Some(is_found) => Ok(is_found),
            None => {
                drop(pin);
                let is_found = self.find_cold(key, view, found);
                self.keep_readers_within_budget();
                is_found
            }
        }
    }

    /// Counts a get for all that were not counted since the last.
    fn count_get(&self, chunk: &Arc<Chunk>, state: &ChunkState, key: &[u8]) {
        // SeqCst: before it is asked whether anybody rests (S-80).
        chunk.heat.gets.fetch_add(SAMPLE, Ordering::SeqCst);
        self.stir();
        let Some(munk) = &state.munk else { return };
        if munk.searches_tails(key) {
            self.count_tail_searches(chunk, munk, SAMPLE);
        }
    }

    /// Counts what readers have had to look into tails for; when that is what it costs to have them no more,
    /// it is asked for.
    pub(super) fn count_tail_searches(&self, chunk: &Arc<Chunk>, munk: &Munk, count: u32) {
        // Relaxed: a statistic.
        chunk.heat.tail_searches.fetch_add(count, Ordering::Relaxed);
        if self.have_readers_paid(chunk, munk) {
            self.want_for_readers(chunk);
        }
    }

    /// Asks for what readers have paid for, unless it is asked for already.
    pub(super) fn want_for_readers(&self, chunk: &Arc<Chunk>) {
        // Relaxed: a request that is there already. Nobody attends to what is damaged.
        let is_of_no_use = chunk.is_queued.load(Ordering::Relaxed) || chunk.is_damaged();
        if !is_of_no_use && !chunk.is_backing_off(self.world.clock.now()) {
            self.want(chunk);
        }
    }

    /// Has the system fetch what gets of these keys would read of files first, so that these reads are in
    /// flight together; if reads wait for the drive, or it would cost more than it saves.
    pub(crate) fn will_get(&self, keys: &[&[u8]], view: Version) {
        if !self.files.reads.wait_for_the_drive() {
            return;
        }
        for key in keys {
            if let Some(state) = self.state_if_cold(key, view) {
                // What fails here fails in the get, which reports it.
                let _ = state.funk.will_find(key, view, &self.files);
            }
        }
    }

    /// The state of the key's chunk, if a get would look into its files.
    fn state_if_cold(&self, key: &[u8], view: Version) -> Option<ChunkState> {
        let pin = pin();
        let state = self.state_of(key, &pin);
        let is_cached = || view == Version::NEWEST && self.row_cache.contains(&cold_key(state.cold_id, key));
        (state.munk.is_none() && !is_cached()).then(|| state.clone())
    }

    /// A get at an open view. S-9: what was found counts only if the view has not expired when it was.
    pub(crate) fn find_at(&self, key: &[u8], view: Version, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let is_found = self.get(key, view, &mut |value| {
            if !self.versions.is_expired(view) {
                found(value);
            }
        })?;
        self.allow_view(view)?;
        Ok(is_found)
    }

    fn find_in_munk(
        &self,
        state: &ChunkState,
        key: &[u8],
        view: Version,
        found: &mut dyn FnMut(&[u8]),
        pin: &Pin,
    ) -> Option<bool> {
        let munk = state.munk.as_ref()?;
        self.counters.gets_from_munk.add(1);
        match munk.find(key, view, &self.versions, pin) {
            Found::Value(value) => {
                // A user's code: what it calls of the store is none of this get's.
                pin.apart(|| found(value));
                Some(true)
            }
            Found::Deleted | Found::Nothing => Some(false),
        }
    }

    fn find_cold(&self, key: &[u8], view: Version, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        loop {
            let (state, chunk_cold_id) = {
                let pin = pin();
                let state = self.state_of(key, &pin);
                if let Some(is_found) = self.find_in_munk(state, key, view, found, &pin) {
                    return Ok(is_found);
                }
                (state.clone(), state.cold_id)
            };
            if view != Version::NEWEST {
                return Ok(self.find_in_files(&state, key, view, found)?.is_found);
            }
            let cold_key = cold_key(chunk_cold_id, key);
            if let Some(row) = self.row_cache.get(&cold_key) {
                self.counters.gets_from_row_cache.add(1);
                if let Some(value) = &row {
                    found(value);
                }
                return Ok(row.is_some());
            }
            // S-51: the ticket comes before the state that is read. What was loaded above is only a guess.
            let ticket = self.row_cache.ticket(&cold_key);
            let state = {
                let pin = pin();
                self.state_of(key, &pin).clone()
            };
            if state.munk.is_some() || state.cold_id != chunk_cold_id {
                continue;
            }
            let (mut row, mut is_given) = (None, false);
            let answer = self.find_in_files(&state, key, view, &mut |value| {
                if self.row_cache.takes(cold_key.len() + value.len()) {
                    row = Some(Value::copied(value));
                } else {
                    // There is no other copy of a large value.
                    found(value);
                    is_given = true;
                }
            })?;
            if let Some(value) = &row {
                found(value);
            }
            if !answer.passed_batch && !is_given {
                self.row_cache.fill(ticket, &cold_key, row);
            }
            return Ok(answer.is_found);
        }
    }

    fn state_of<'p>(&self, key: &[u8], pin: &'p Pin) -> &'p ChunkState {
        self.index.load(pin).find(key).state(pin)
    }

    fn find_in_files(
        &self,
        state: &ChunkState,
        key: &[u8],
        view: Version,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<Answer> {
        let answer = state.funk.find(key, view, &self.files, &self.versions, found).inspect_err(|error| {
            self.index.load(&pin()).find(key).note(error);
        })?;
        match answer.place {
            Place::Log => self.counters.gets_from_log.add(1),
            Place::Table => self.counters.gets_from_table.add(1),
            Place::Nowhere => self.counters.gets_absent.add(1),
        }
        Ok(answer)
    }

    /// Whether the newest value of `key` is `expected`; else what it is. The caller holds the chunk's gate.
    pub(crate) fn newest_differs(
        &self,
        state: &ChunkState,
        key: &[u8],
        expected: Option<&[u8]>,
    ) -> Result<Option<Option<Value>>> {
        let mut is_expected = expected.is_none();
        let mut actual = None;
        let mut compare = |value: &[u8]| {
            is_expected = expected == Some(value);
            if !is_expected {
                actual = Some(Value::copied(value));
            }
        };
        let is_found = match &state.munk {
            Some(munk) => match munk.find(key, Version::NEWEST, &self.versions, &pin()) {
                Found::Value(value) => {
                    compare(value);
                    true
                }
                Found::Deleted | Found::Nothing => false,
            },
            None => self.find_in_files(state, key, Version::NEWEST, &mut compare)?.is_found,
        };
        if !is_found {
            is_expected = expected.is_none();
        }
        Ok((!is_expected).then_some(actual))
    }
}

/// Whether this get is one of those that are counted.
fn is_sampled() -> bool {
    SAMPLER.with(|sampler| {
        let n = sampler.get().wrapping_add(1);
        sampler.set(n);
        n % SAMPLE == 0
    })
}
