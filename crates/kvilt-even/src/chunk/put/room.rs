//! The part of making room that is about memory: for a munk's next tail, and for records that are large against the budget.
//!
//! Where it stands: step 2 of a put. Always true: a put waits for a bounded time, for a reason that is counted.

use std::sync::{Arc, atomic::Ordering};

use kvilt_base::Result;
use kvilt_sync::{budget::Part, published::pin};
use parking_lot::MutexGuard;

use super::{Needed, SORT_WAITS_MAX, WAITS_MAX, aside::Aside};
use crate::{
    chunk::{Chunk, ChunkState, GateState},
    munk::FROZEN_TAILS_MAX,
    stats::Stall,
    store::Store,
};

/// Puts wait for tails to be sorted, and then take room for more, until there are so many that sorting must have failed for good, and the
/// put does too.
const TAILS_MAX: usize = 8 * FROZEN_TAILS_MAX;

/// How often a put of something large waits: the background has to read or write as much first, on a drive that may be busy.
const LARGE_WAITS_MAX: u32 = 1000;

impl Store {
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

    /// Whether a record waits that is large against the budget: another one is in a buffer, or was read by the background. One at a time
    /// is what memory is allowed for beside the budget.
    pub(super) fn waits_for_large(&self, needed: Needed, waits: &mut u32) -> bool {
        let is_taken = self.files.budget.used(Part::LogBuffers) > self.config.munk_put_bytes_max;
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

    /// Has the log's buffer written in step 6 if it was made for a large record.
    pub(super) fn set_large_aside(&self, state: &ChunkState, needed: Needed, aside: &mut Aside) {
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
