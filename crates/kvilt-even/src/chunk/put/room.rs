//! Room for a put: in the log's buffer and the munk's tail, and of memory where records are large against the
//! budget.
//!
//! Where it stands: step 2 of a put, the only one before the last that may do I/O, wait, or fail. Always
//! true: a put waits for a bounded time, for a reason that is counted.

use std::sync::{Arc, atomic::Ordering};

use kvilt_base::Result;
use kvilt_format::log::record_len_max;
use kvilt_sync::published::pin;
use parking_lot::MutexGuard;

use super::{Change, aside::Aside};
use crate::{
    chunk::{Chunk, ChunkState, GateState},
    funk::{
        Funk,
        log::{ChunkLog, IfFull, ROTATE_BYTES},
    },
    munk::{FROZEN_TAILS_MAX, tail::Tail},
    parts,
    stats::Stall,
    store::Store,
};

/// How often a put waits, for memory or for a log to be rewritten, before it goes on all the same:
/// back-pressure slows writers down, it never stops them.
const WAITS_MAX: u32 = 16;
/// How often a put waits for tails to be sorted; then it takes room for another tail.
const SORT_WAITS_MAX: u32 = 200;
/// Puts wait for tails to be sorted, and then take room for more, until there are so many that sorting must
/// have failed for good, and the put does too.
const TAILS_MAX: usize = 8 * FROZEN_TAILS_MAX;

/// How often a put of something large waits: the background has to read or write as much first, on a drive
/// that may be busy.
const LARGE_WAITS_MAX: u32 = 1000;
/// A cold chunk's log may be this many times as long as its limit before puts wait for the rewrite.
const LOG_OUTRUN: u64 = 4;
/// A chunk may have so many files before puts wait for the rewrite.
const PARTS_OUTRUN: usize = 40;

/// What room a chunk must have before a put to it is announced.
#[derive(Clone, Copy, Default)]
pub(super) struct Needed {
    pub(super) records: usize,
    pub(super) log_bytes: usize,
    pub(super) tail_bytes: usize,
}

impl Needed {
    pub(super) fn of(changes: &[Change<'_>]) -> Self {
        Needed {
            records: changes.len(),
            log_bytes: changes.iter().map(|c| record_len_max(c.key.len(), c.bytes().len())).sum(),
            tail_bytes: Tail::room_for(changes.iter().map(|c| (c.key.len(), c.bytes().len()))),
        }
    }
}

/// Whether there is room, or what to wait for.
pub(super) enum Room<'s> {
    Made,
    Wait(&'s Stall),
}

impl Store {
    /// Step 2 for several chunks, until one has to wait.
    pub(super) fn make_room_in_each<'e>(
        &self,
        each: impl Iterator<Item = (&'e Arc<Chunk>, &'e MutexGuard<'e, GateState>, Needed)>,
        if_full: IfFull,
        waits: &mut u32,
        aside: &mut Aside,
    ) -> Result<Room<'_>> {
        for (chunk, gate, needed) in each {
            if let Room::Wait(reason) = self.make_room(chunk, gate, needed, if_full, waits, aside)? {
                return Ok(Room::Wait(reason));
            }
        }
        Ok(Room::Made)
    }

    /// Step 2: afterwards `needed` fits into the chunk's log buffer and tail. Nothing is pinned when a log's
    /// buffer is written to the file, here or behind the gate: all that the process replaces in the meantime
    /// would have to be kept.
    pub(super) fn make_room(
        &self,
        chunk: &Arc<Chunk>,
        gate: &MutexGuard<'_, GateState>,
        needed: Needed,
        if_full: IfFull,
        waits: &mut u32,
        aside: &mut Aside,
    ) -> Result<Room<'_>> {
        self.allow(chunk, if_full)?;
        if let Some(reason) = self.make_tail_room(chunk, gate, needed.tail_bytes, waits)? {
            return Ok(Room::Wait(reason));
        }
        if self.waits_for_large(needed, waits) {
            return Ok(Room::Wait(&self.counters.stalls_memory));
        }
        let log = {
            let pin = pin();
            let state = chunk.state(&pin);
            let is_too_long = state.munk.is_none()
                && state.funk.log_bytes() > LOG_OUTRUN * self.log_bytes_max_unread(chunk);
            // Each run of the database begins a log of its own, and may end before the background has come to
            // rewrite.
            let has_too_many = state.funk.parts.len() > PARTS_OUTRUN;
            if (is_too_long || has_too_many) && *waits < WAITS_MAX && self.has_workers() {
                *waits += 1;
                self.want(chunk);
                return Ok(Room::Wait(&self.counters.stalls_log_full));
            }
            match &state.funk.log {
                // Who occupies the chunk replaces the parts that it found: there may not be others by then.
                // It ends, well or not.
                Some(log) if chunk.is_occupied() && !log.has_offsets_for(needed.log_bytes) => {
                    return Ok(Room::Wait(&self.counters.stalls_log_full));
                }
                Some(log) if log.len() < ROTATE_BYTES || chunk.is_occupied() => {
                    if log.is_empty() {
                        // A checkpoint may have looked while it was empty, and left it out.
                        self.mark_changed(&mut self.structure.lock(), chunk);
                    }
                    Arc::clone(log)
                }
                Some(_) | None => self.begin_log(chunk, gate, state),
            }
        };
        let is_aside = log.reserve(
            &self.files,
            (needed.records, needed.log_bytes),
            self.config.log_buffer_bytes_max,
            if_full,
        )?;
        if is_aside {
            aside.push(log);
        }
        Ok(Room::Made)
    }

    /// Fails if the chunk, whose gate the caller has, may not be written to.
    pub(super) fn allow(&self, chunk: &Chunk, if_full: IfFull) -> Result<()> {
        match if_full {
            // Under the gate: `close` passes through every gate after it has set the flag.
            IfFull::Fail | IfFull::GrowForDeletes => {
                self.poison.allow_write()?;
                chunk.allow_write()?;
                if if_full == IfFull::Fail { self.files.reserve.allow_data() } else { Ok(()) }
            }
            // Durable already: `close` waits for the commit log, and everything in it is applied.
            IfFull::Grow => self.poison.allow_apply(),
        }
    }

    /// Gives the chunk a new log; the old one, if any, becomes a part.
    pub(crate) fn begin_log(
        &self,
        chunk: &Arc<Chunk>,
        gate: &MutexGuard<'_, GateState>,
        state: &ChunkState,
    ) -> Arc<ChunkLog> {
        let mut structure = self.structure.lock();
        let log = ChunkLog::create(&self.files, self.epoch_base);
        let funk = Funk { log: Some(Arc::clone(&log)), ..state.funk.closed() };
        chunk.replace_state(gate, ChunkState { funk: Arc::new(funk), ..state.clone() });
        self.mark_changed(&mut structure, chunk);
        drop(structure);
        // The state that was replaced keeps files, too: as in `make_tail_room`.
        pin().flush();
        log
    }

    /// Begins another tail if `bytes` do not fit into the one there is, or says what to wait for.
    pub(super) fn make_tail_room(
        &self,
        chunk: &Arc<Chunk>,
        gate: &MutexGuard<'_, GateState>,
        bytes: usize,
        waits: &mut u32,
    ) -> Result<Option<&Stall>> {
        let pin = pin();
        let state = chunk.state(&pin);
        if state.munk.is_some() && self.may_wait_for_large(bytes, waits) {
            // The munk would be evicted for what is put, or because of it: better before. Relaxed: a hint.
            chunk.heat.is_munk_unwanted.store(true, Ordering::Relaxed);
            self.want(chunk);
            return Ok(Some(&self.counters.stalls_memory));
        }
        let Some(munk) = state.munk.as_ref().filter(|munk| !munk.tail().has_room(bytes)) else {
            return Ok(None);
        };
        if self.puts_wait_for_sorting(munk) {
            self.want(chunk);
            if *waits < SORT_WAITS_MAX {
                *waits += 1;
                return Ok(Some(&self.counters.stalls_tail_full));
            }
            if munk.tails.len() > TAILS_MAX {
                return Err(self.cannot_sort());
            }
        }
        if *waits < self.memory_waits_max() && self.has_workers() {
            *waits += 1;
            return Ok(Some(&self.counters.stalls_memory));
        }
        let munk = self.with_fresh_tail(munk, bytes);
        chunk.replace_state(gate, ChunkState { munk: Some(munk), ..state.clone() });
        // The state that was replaced keeps run and tails until somebody collects.
        pin.flush();
        self.want(chunk);
        Ok(None)
    }

    /// Whether a record waits that is large against the budget: another one is in a buffer, or was read by
    /// the background. One at a time is what memory is allowed for beside the budget.
    pub(super) fn waits_for_large(&self, needed: Needed, waits: &mut u32) -> bool {
        let is_taken = self.files.budget.used(parts::LOG_BUFFERS) > self.config.munk_put_bytes_max;
        is_taken && self.may_wait_for_large(needed.log_bytes, waits)
    }

    /// Whether so many bytes are large, and the put has not waited too often; then it does once more.
    fn may_wait_for_large(&self, bytes: usize, waits: &mut u32) -> bool {
        let is_large = bytes as u64 > self.config.munk_put_bytes_max;
        if !is_large || *waits >= LARGE_WAITS_MAX || !self.has_workers() {
            return false;
        }
        *waits += 1;
        true
    }

    /// Has the log's buffer written in step 6 if it was made for a large record. A store that is open to be
    /// read only keeps what it replays in memory.
    pub(super) fn set_large_aside(&self, state: &ChunkState, needed: Needed, aside: &mut Aside) {
        if self.config.is_read_only {
            return;
        }
        let buffer_bytes_max = self.config.log_buffer_bytes_max;
        let log = state.funk.log.as_ref().filter(|_| needed.log_bytes > buffer_bytes_max);
        if let Some(log) = log.filter(|log| log.set_large_aside(&self.files, buffer_bytes_max)) {
            aside.push_large(Arc::clone(log));
        }
    }

    fn cannot_sort(&self) -> kvilt_base::Error {
        let message =
            "the chunk takes no more writes for now: sorting its memory failed and will be tried again";
        kvilt_base::Error::new(kvilt_base::ErrorKind::LimitReached, message)
    }

    /// How often a put that needs memory waits for some: the more is used beyond the budget, the longer.
    fn memory_waits_max(&self) -> u32 {
        let (used, budget) = (self.files.budget.used_in_all(), self.config.budget_bytes);
        match used {
            _ if used <= budget => 0,
            _ if used <= budget + budget / 16 => WAITS_MAX,
            _ => SORT_WAITS_MAX,
        }
    }
}
