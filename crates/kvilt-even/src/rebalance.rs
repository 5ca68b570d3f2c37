//! Rebalance (EvenDB §3.4): brings a chunk back into its limits, in the background.
//!
//! A put, get or scan that leaves a chunk in need asks for attention; the worker looks at the chunk and does
//! the most pressing thing, one at a time:
//!
//! | need | what is done | file |
//! | --- | --- | --- |
//! | frozen tails | sorted into a new run; a run that is too large is split | `rebalance/munk.rs`, `rebalance/split.rs` |
//! | rows in tails that overwrite the run's | moved to their places in the run | `rebalance/sink.rs` |
//! | too much log, or a log that scans must sort | tables rewritten; a cold chunk may split | `rebalance/funk.rs`, `rebalance/divide.rs` |
//! | too small | coalesced with a neighbour | `rebalance/coalesce.rs` |
//! | memory | munks evicted and loaded by heat | `rebalance/memory.rs`, `rebalance/load.rs` |
//! | dead bytes in files | rewritten for space | `rebalance/space.rs`, `rebalance/samples.rs` |
//!
//! All of them read without the gate and flip the chunk's state under it. At most one job has a chunk at a
//! time ([`crate::chunk::Occupied`]), so what a job read of the structure is still so when it flips.

mod coalesce;
mod divide;
mod funk;
mod load;
mod memory;
mod munk;
mod samples;
mod sink;
mod space;
mod split;

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use kvilt_base::{Error, ErrorKind, Next, Result, Worker};
use kvilt_sync::published::{pin, settle};

use self::{funk::Aim, space::SpaceKeeper};
pub(crate) use self::{
    memory::{MunkRoom, RowRoom},
    space::Space,
};
use crate::{
    chunk::{Chunk, ChunkState, Occupied},
    commit,
    funk::Funk,
    munk::run::RunReader,
    reserve::Use,
    rest::{Calm, Pause, TICK, checkpoint_interval},
    store::Store,
};

/// Heat decays this often (EvenDB §4: access counts are halved periodically).
const DECAY_INTERVAL: Duration = Duration::from_millis(1000);
/// A funk with more parts than this is rewritten: each costs a cold read a look. Where many ranges are
/// written side by side, each split leaves both halves with a part more; so this must be above the logarithm
/// of how many chunks there will be.
const PARTS_MAX: usize = 24;
/// The range tombstones of a cold chunk's logs may take this part of its bytes in memory …
const TOMBSTONES_PART: u64 = 8;
/// … and this part of what a chunk may have.
const TOMBSTONES_CHUNK_PART: u64 = 64;
/// Deletes in a chunk for which its files are rewritten when the disk is full: what they free is needed.
pub(crate) const DELETES_WORTH_A_REWRITE: u32 = 16;
/// A chunk's longer bound takes this part of it at most, in parts …
const BOUND_SHARE: u64 = 128;
/// … unless the chunk would be so many times as large as others, and a munk of it too large for the budget.
/// That is no reason to make it smaller than so many bytes: with a budget of one megabyte there would be a
/// chunk for every ten keys of the longest.
const BOUND_GROWTH_MAX: u64 = 8;
const BOUND_GROWTH_BYTES: u64 = 4 << 20;
/// Logs with less than this part of such a chunk stay, though their indexes take memory that is short.
const INDEXED_LOG_PART: u64 = 8;
/// What scans may have read for want of order before a rewrite is due, in parts of what the rewrite would
/// read and write.
const ORDER_COST_MAX: u64 = 2;

/// The worker that rebalances.
pub(crate) struct Rebalancer {
    store: Weak<Store>,
    decayed_at: Duration,
    /// When all chunks are looked at for a better use of memory: a tick after the last look in vain at the
    /// earliest, for to look costs time for each chunk, and those that want something come by the hundred a
    /// second.
    look_at: Duration,
    /// When some are looked at that may be idle, and with which to go on.
    walk_at: Duration,
    walk: usize,
    calm: Calm,
    space: SpaceKeeper,
}

impl Rebalancer {
    /// A worker for this store; it ends when the store is closed.
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        let now = store.world.clock.now();
        Rebalancer {
            store: Arc::downgrade(store),
            decayed_at: now,
            look_at: now,
            walk_at: now,
            walk: 0,
            calm: Calm::new(now),
            space: SpaceKeeper::default(),
        }
    }

    /// What is due each second, for as many as have passed.
    fn age(&mut self, store: &Store, now: Duration) {
        let seconds = now.saturating_sub(self.decayed_at).as_millis() / DECAY_INTERVAL.as_millis();
        let Ok(seconds @ 1..) = u32::try_from(seconds) else { return };
        self.decayed_at = now;
        store.expire_views();
        store.files.reads.age(seconds);
        store.munk_room.spare.age(now);
        store.look_for_room();
        store.look_at_rows();
        // No pin over all of them: what others have replaced would have to be kept as long.
        let chunks = store.index.load(&pin()).chunks().to_vec();
        for chunk in &chunks {
            chunk.heat.decay(seconds);
            let funk = Arc::clone(&chunk.state(&pin()).funk);
            funk.age(&store.files, seconds);
        }
    }

    /// Looks at a few chunks that nobody asked for. True if one is wanted now.
    fn walk(&mut self, store: &Store, now: Duration) -> bool {
        if now < self.walk_at {
            return false;
        }
        self.walk_at = now + TICK;
        let (next, count, of) = store.walk_idle(self.walk);
        self.walk = next;
        self.calm.walked(count, of);
        !store.attention.is_empty()
    }

    /// Rests until there may be something to do, which is a tick at least; without end if nobody is about.
    fn rest(&mut self, store: &Arc<Store>, now: Duration) -> Next {
        let longest = match self.calm.pause(store, now, self.space.next_look()) {
            Pause::Tick => Some(self.look_at.min(self.walk_at).saturating_sub(now).min(TICK)),
            Pause::Long(longest) => {
                let end = longest.map_or(Duration::MAX, |longest| now + longest);
                (self.look_at, self.walk_at) = (end, end);
                longest
            }
        };
        Next::Rest(longest)
    }

    /// Puts memory to a better use, if it is time to look for one. Looked for in vain, the next look is a
    /// tick away.
    fn use_memory(&mut self, store: &Store, now: Duration) -> bool {
        if now < self.look_at {
            return false;
        }
        let has_found = store.use_memory();
        if !has_found {
            self.look_at = now + TICK;
        }
        has_found
    }
}

impl Worker for Rebalancer {
    fn step(&mut self) -> Next {
        let Some(store) = self.store.upgrade() else { return Next::Done };
        if store.poison.is_closed() {
            return Next::Done;
        }
        store.counters.steps.add(1);
        store.rest.rebalancer.rise();
        if store.poison.cause().is_some() {
            // Nothing will be done any more, and who waits finds that out.
            store.progress.signal();
            return Next::Rest(None);
        }
        let now = store.world.clock.now();
        if self.calm.is_disturbed(&store, now) {
            (self.look_at, self.walk_at) = (self.look_at.min(now + TICK), self.walk_at.min(now + TICK));
        }
        self.age(&store, now);
        // Memory first: what the last step replaced is gone from its gauges, what this one replaces is not
        // yet.
        let has_moved_memory = store.keep_within_budget() || self.use_memory(&store, now);
        let has_worked = has_moved_memory | store.attend_next() | self.space.step(&store, now);
        self.calm.ask_for_memory(&store, now);
        let is_wanted = !has_worked && self.walk(&store, now);
        // What was replaced goes back to the system now, all that an index had named included; what some
        // reader still sees goes when that has ended.
        settle();
        store.progress.signal();
        if has_worked {
            self.calm.begin(now);
            (self.look_at, self.walk_at) = (self.look_at.min(now + TICK), self.walk_at.min(now + TICK));
            store.want_checkpoint();
        }
        if has_worked || is_wanted { Next::Again } else { self.rest(&store, now) }
    }

    fn panicked(&mut self, message: &str) {
        if let Some(store) = self.store.upgrade() {
            store
                .poison
                .poison(&Error::new(ErrorKind::Poisoned, format!("the rebalancer panicked: {message}")));
            store.progress.signal();
        }
    }
}

/// The worker that takes checkpoints, and until the first is due removes what the run before left.
pub(crate) struct Checkpointer {
    store: Weak<Store>,
    due: Duration,
    /// Whether nothing was dirty when it looked last.
    is_resting: bool,
    /// Checkpoints in a row that failed, or did not end all that there is to do.
    again: u32,
}

impl Checkpointer {
    /// A worker for this store; it ends when the store is closed.
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        let due = store.world.clock.now() + store.config.durability.interval();
        Checkpointer { store: Arc::downgrade(store), due, is_resting: false, again: 0 }
    }

    /// Lies down if nothing is to be made durable. True if it may rest until that changes.
    fn lies_down(&mut self, store: &Store) -> bool {
        if store.wants_checkpoint() {
            return false;
        }
        store.rest.checkpointer.lie_down();
        self.is_resting = !store.wants_checkpoint();
        if !self.is_resting {
            store.rest.checkpointer.rise();
        }
        self.is_resting
    }

    /// There is something to be made durable again: due when it would have been without the rest.
    fn go_on(&mut self, store: &Store, now: Duration) {
        self.is_resting = false;
        self.again = 0;
        let interval = store.config.durability.interval();
        let behind = now.saturating_sub(self.due).as_nanos();
        let missed = u32::try_from(behind.div_ceil(interval.as_nanos())).unwrap_or(u32::MAX);
        self.due = self.due.saturating_add(interval.saturating_mul(missed)).max(now);
        // Until now what was durable was all there is.
        store.checkpoint.ended_us.store(now.as_micros() as u64, Ordering::Relaxed);
    }
}

impl Worker for Checkpointer {
    fn step(&mut self) -> Next {
        let Some(store) = self.store.upgrade() else { return Next::Done };
        if store.poison.is_closed() {
            return Next::Done;
        }
        store.counters.steps.add(1);
        store.rest.checkpointer.rise();
        let now = store.world.clock.now();
        if (now < self.due || !store.wants_checkpoint()) && store.files.remove_leftover() {
            return Next::Again;
        }
        if store.poison.cause().is_some() || self.lies_down(&store) {
            return Next::Rest(None);
        }
        if self.is_resting {
            self.go_on(&store, now);
        }
        // Taken in any case: left set, nobody would be woken for the next.
        let is_wanted_early = store.takes_early_checkpoint();
        if now < self.due && (!is_wanted_early || self.again > 0) {
            return Next::Rest(Some(self.due - now));
        }
        if commit::is_leading() {
            return Next::Rest(Some(TICK));
        }
        let was_written = store.counters.checkpoints.sum();
        // A failure poisons, or is seen by those who sync; the next round tries again.
        let made = store.checkpoint_now(false);
        let is_vain = made.is_err() || store.counters.checkpoints.sum() == was_written;
        self.again = if is_vain { self.again.saturating_add(1) } else { 0 };
        if store.files.reserve.is_short() {
            // Chunks may be worth a rewrite now that were not before.
            store.stir();
        }
        // From beginning to beginning, unless a checkpoint takes longer than that.
        self.due =
            now + checkpoint_interval(store.config.durability.interval(), self.again.saturating_sub(1));
        // If each checkpoint takes as long as its interval, no other step is left for it.
        if store.files.remove_leftover() {
            return Next::Again;
        }
        if self.lies_down(&store) {
            return Next::Rest(None);
        }
        Next::Rest(Some(self.due.saturating_sub(store.world.clock.now())))
    }

    fn panicked(&mut self, message: &str) {
        if let Some(store) = self.store.upgrade() {
            store
                .poison
                .poison(&Error::new(ErrorKind::Poisoned, format!("the checkpointer panicked: {message}")));
        }
    }
}

impl Store {
    /// Does one thing for the first chunk that needs it among those that want attention; false if none does.
    fn attend_next(&self) -> bool {
        while let Some(chunk) = self.attention.pop() {
            // Whoever has it now changes it; what is then still needed, the next put or reader asks for.
            let Some(occupied) = chunk.try_occupy() else { continue };
            match self.attend(&occupied) {
                Ok(true) => {
                    chunk.succeeded();
                    drop(occupied);
                    // There may be more to do, after others had their turn.
                    self.want(&chunk);
                    return true;
                }
                Ok(false) => {}
                Err(error) => self.background_failed(&chunk, &error),
            }
        }
        false
    }

    /// Does the most pressing thing; false if there was none.
    fn attend(&self, chunk: &Occupied) -> Result<bool> {
        if chunk.gate().is_retired || chunk.is_damaged() {
            return Ok(false);
        }
        let state = chunk.state(&pin()).clone();
        if state.munk.as_ref().is_some_and(|munk| self.munk_wants_sorting(chunk, munk, &pin())) {
            self.compact_munk(chunk)?;
            return Ok(true);
        }
        // Relaxed: a hint.
        if state.munk.is_some()
            && chunk.heat.is_munk_unwanted.swap(false, Ordering::Relaxed)
            && self.evict(chunk)?
        {
            return Ok(true);
        }
        // What follows reads and writes files, and waits a while after it failed; sorting memory does not.
        if chunk.is_backing_off(self.world.clock.now()) {
            return Ok(false);
        }
        if self.funk_wants_rewrite(chunk, &state) || self.has_many_tombstones(chunk, &state) {
            return self.rewrite_with_room(chunk, Aim::Any);
        }
        if self.is_small(&state) {
            return self.coalesce(chunk);
        }
        Ok(false)
    }

    /// Rewrites the chunk's funk, on a full disk with the reserve's room. False if another rewrite has that.
    fn rewrite_with_room(&self, chunk: &Occupied, aim: Aim) -> Result<bool> {
        let Some(alone) = self.files.reserve.rewrite_alone() else { return Ok(false) };
        let rewritten =
            self.rewrite_funk(chunk, aim).or_else(|error| self.rewrite_on_reserve(chunk, aim, error));
        drop(alone);
        rewritten.inspect_err(|error| chunk.note(error))?;
        if self.files.reserve.is_short() && !commit::is_leading() {
            // What was replaced goes now: the next rewrite may need its room. A failure is seen by those who
            // sync.
            let _ = self.checkpoint_now(false);
        }
        Ok(true)
    }

    /// Once more, with some of the reserve's room, if it was the disk that is full.
    fn rewrite_on_reserve(&self, chunk: &Occupied, aim: Aim, error: Error) -> Result<()> {
        if error.kind() != ErrorKind::NoSpace {
            return Err(error);
        }
        let Some(_lease) = self.files.reserve.give(Use::Rewrite, 0) else { return Err(error) };
        self.rewrite_funk(chunk, aim)
    }

    fn is_too_large(&self, chunk: &Chunk, run: RunReader<'_>) -> bool {
        run.run().entry_bytes() as u64 >= self.chunk_bytes_rebalance(chunk) && run.can_be_cut()
    }

    /// Bytes at which the background splits this chunk. The bounds of all chunks are in memory and in the
    /// manifest, each several times: where they are long, chunks are larger.
    pub(crate) fn chunk_bytes_rebalance(&self, chunk: &Chunk) -> u64 {
        let usual = self.config.chunk_bytes_rebalance;
        (chunk.bound_bytes() as u64 * BOUND_SHARE)
            .clamp(usual, (usual * BOUND_GROWTH_MAX).max(BOUND_GROWTH_BYTES))
    }

    fn has_long_bounds(&self, chunk: &Chunk) -> bool {
        self.chunk_bytes_rebalance(chunk) > self.config.chunk_bytes_rebalance
    }

    /// Bytes of log that this chunk may have without a munk if it is written only.
    pub(crate) fn log_bytes_max_unread(&self, chunk: &Chunk) -> u64 {
        let usual = self.config.log_bytes_max_unread;
        if self.has_long_bounds(chunk) { usual.max(self.chunk_bytes_rebalance(chunk) / 2) } else { usual }
    }

    /// Whether the chunk's files should become one table.
    ///
    /// A rewrite costs the chunk's size in writes, so it must pay for itself: with a munk nobody reads the
    /// files, and the limit only bounds a later load; without one, gets find records by the log's index as
    /// fast as in a table, and only scans gain from order. So a cold chunk that nobody scans, or whose logs
    /// are in order as they are, may grow a long log, and one that must be put in order for each scan is
    /// rewritten early.
    pub(crate) fn funk_wants_rewrite(&self, chunk: &Chunk, state: &ChunkState) -> bool {
        let funk = &state.funk;
        if funk.parts.len() > PARTS_MAX {
            return true;
        }
        // Relaxed: a statistic.
        if self.files.reserve.is_short()
            && chunk.heat.deletes.load(Ordering::Relaxed) >= DELETES_WORTH_A_REWRITE
        {
            return true;
        }
        let log_bytes = funk.log_bytes();
        if let Some(munk) = &state.munk {
            // Files far larger than what lives: deletes and overwrites are to give their space back.
            let garbage_limit = self.config.log_bytes_max_cold + 4 * munk.entry_bytes();
            return log_bytes > self.config.log_bytes_max_cached
                || log_bytes + funk.table_bytes() > garbage_limit;
        }
        if log_bytes > self.log_bytes_max_unread(chunk) {
            return true;
        }
        // Relaxed: a statistic.
        let is_index_unwanted = chunk.heat.is_index_unwanted.load(Ordering::Relaxed);
        (self.is_order_due(chunk, funk) || (is_index_unwanted && self.is_worth_smaller_index(chunk, funk)))
            && !self.has_replaced_much()
    }

    /// Whether the chunk's logs are so long that a rewrite is no high price for the memory of their indexes.
    /// Chunks with long bounds are large against the budget: one would be rewritten for each of its rows.
    pub(crate) fn is_worth_smaller_index(&self, chunk: &Chunk, funk: &Funk) -> bool {
        let part = if self.has_long_bounds(chunk) { funk.table_bytes() / INDEXED_LOG_PART } else { 0 };
        funk.log_bytes() > part.max(self.config.log_bytes_max_cold / 16)
    }

    /// Whether scans have paid as much for want of order in a cold chunk's logs as its rewrite costs: who
    /// rewrites then, and not before, never pays much more than who knew what is to come.
    pub(crate) fn is_order_due(&self, chunk: &Chunk, funk: &Funk) -> bool {
        self.has_paid_for_order(chunk, funk) && funk.unordered_bytes() > self.config.log_bytes_max_cold / 16
    }

    fn has_paid_for_order(&self, chunk: &Chunk, funk: &Funk) -> bool {
        // Relaxed: a statistic.
        let paid = chunk.heat.unordered_cost_bytes.load(Ordering::Relaxed);
        paid > ORDER_COST_MAX * (funk.log_bytes() + funk.table_bytes())
    }

    /// Whether a chunk is worth coalescing with a neighbour.
    fn is_small(&self, state: &ChunkState) -> bool {
        self.chunk_bytes(state) < self.config.chunk_bytes_min
    }

    /// About how large a chunk is.
    pub(crate) fn chunk_bytes(&self, state: &ChunkState) -> u64 {
        match &state.munk {
            Some(munk) => munk.entry_bytes(),
            None => state.funk.table_bytes() + state.funk.log_bytes(),
        }
    }

    /// Looks at a few chunks that nobody asked for, from the one at `from` on: tails are sorted that it is
    /// due to sort, an idle small chunk is coalesced. Says where to go on, and how many of how many it has
    /// looked at.
    fn walk_idle(&self, from: usize) -> (usize, usize, usize) {
        let pin = pin();
        let chunks = self.index.load(&pin).chunks();
        let count = chunks.len().min(64);
        for i in 0..count {
            let chunk = &chunks[(from + i) % chunks.len()];
            let state = chunk.state(&pin);
            let is_idle = chunk.heat.puts.load(Ordering::Relaxed) == 0;
            let needs = self.funk_wants_rewrite(chunk, state)
                || state.munk.as_ref().is_some_and(|munk| self.munk_wants_sorting(chunk, munk, &pin))
                || (is_idle
                    && chunks.len() > 1
                    && self.is_small(state)
                    && self.has_small_neighbour(chunks, chunk, &pin));
            if needs
                && !chunk.is_damaged()
                && !chunk.is_occupied()
                && !chunk.is_backing_off(self.world.clock.now())
            {
                self.want(chunk);
            }
        }
        ((from + count) % chunks.len(), count, chunks.len())
    }

    /// Whether a cold chunk's range tombstones take too much memory, or leave nothing of it. With a munk
    /// nobody reads the logs.
    fn has_many_tombstones(&self, chunk: &Chunk, state: &ChunkState) -> bool {
        if state.munk.is_some() {
            return false;
        }
        let mut bytes = 0;
        for log in state.funk.logs_newest_first() {
            let tombstones = log.tombstones(&self.versions);
            bytes += tombstones.bytes();
            if tombstones.cover(&chunk.range) {
                return true;
            }
        }
        let part = self.chunk_bytes(state) / TOMBSTONES_PART;
        bytes > part + self.config.chunk_bytes_rebalance / TOMBSTONES_CHUNK_PART
    }

    /// A background job failed. Corruption stays with its chunk, a full disk passes; nothing was changed, and
    /// it is tried again later.
    fn background_failed(&self, chunk: &Chunk, error: &Error) {
        chunk.back_off(self.world.clock.now());
        if error.kind() == ErrorKind::Poisoned {
            self.poison.poison(error);
        }
    }
}
