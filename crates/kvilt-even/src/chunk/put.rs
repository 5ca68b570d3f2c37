//! Put (EvenDB algorithm 1, lines 10–22), and everything else that writes: batches, swaps, range deletes.
//!
//! The order of steps is what the promises rest on:
//!
//! 1. take the gate (several gates in key order), look again if the chunk was retired;
//! 2. make room in log buffer and tail: the only step before the last that may do I/O or wait, and the only one that may fail;
//! 3. announce the pending put, take its version, and wait for puts still pending at a lower one, so that puts
//!    become readable in the order of their versions (**E-7**: from here to step 5 nothing else waits, and nothing
//!    does I/O or fails);
//! 4. append to the log, then to the munk or the log's index;
//! 5. retire the announcement: scans that waited for it go on; a batch becomes visible as a whole;
//! 6. give the gate back, and write a log's buffer that step 2 found full and set aside.

mod aside;
mod delete_range;
mod replacing;
mod room;

use std::{cell::Cell, sync::Arc, sync::atomic::Ordering};

use kvilt_base::{EntryRef, Kind, Mutant, Result, Swap, mutant};
use kvilt_format::log::{encode_before_value, encode_record, record_len_max};
use kvilt_sync::{
    published::{Pin, pin},
    row_cache::Writing,
    versions::Pending,
};
use parking_lot::MutexGuard;

use self::{
    aside::Aside,
    replacing::{Replacing, fetch_ahead, fetch_replaced, flush_replaced},
};
use super::{Chunk, ChunkState, GateState, get::cold_key, ledger};
use crate::{
    funk::{
        Funk,
        log::{ChunkLog, IfFull, ROTATE_BYTES},
    },
    munk::{run, tail::Tail},
    stats::Stall,
    store::Store,
};

/// How often a put waits, for memory or for a log to be rewritten, before it goes on all the same: back-pressure
/// slows writers down, it never stops them.
const WAITS_MAX: u32 = 16;
/// How often a put waits for tails to be sorted; then it takes room for another tail.
const SORT_WAITS_MAX: u32 = 200;
/// A value of more bytes goes from the caller's memory into the log's buffer without a stop between.
const LARGE_VALUE_BYTES: usize = 64 << 10;
/// A cold chunk's log may be this many times as long as its limit before puts wait for the rewrite.
const LOG_OUTRUN: u64 = 4;
/// A chunk may have so many files before puts wait for the rewrite.
const PARTS_OUTRUN: usize = 40;

thread_local! {
    static ENCODED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// One thing to do to one key.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) key: &'a [u8],
    /// None deletes.
    pub(crate) value: Option<&'a [u8]>,
}

impl Change<'_> {
    fn kind(&self) -> Kind {
        if self.value.is_some() { Kind::Put } else { Kind::Tombstone }
    }

    fn bytes(&self) -> &[u8] {
        self.value.unwrap_or_default()
    }
}

/// What room a chunk must have before a put to it is announced.
#[derive(Clone, Copy, Default)]
struct Needed {
    records: usize,
    log_bytes: usize,
    tail_bytes: usize,
}

impl Needed {
    fn of(changes: &[Change<'_>]) -> Self {
        Needed {
            records: changes.len(),
            log_bytes: changes.iter().map(|c| record_len_max(c.key.len(), c.bytes().len())).sum(),
            tail_bytes: Tail::room_for(changes.iter().map(|c| (c.key.len(), c.bytes().len()))),
        }
    }
}

/// Whether there is room, or what to wait for.
enum Room<'s> {
    Made,
    Wait(&'s Stall),
}

/// A chunk whose gate is held, with the changes that go to it.
struct Entered<'e, 'c> {
    chunk: &'e Arc<Chunk>,
    gate: MutexGuard<'e, GateState>,
    changes: &'c [Change<'c>],
}

impl Store {
    /// Applies one change.
    pub(crate) fn apply_one(&self, change: Change<'_>, if_full: IfFull) -> Result<()> {
        self.apply_if(change, None, if_full).map(|_| ())
    }

    /// Applies one change if the key's value is `expected`.
    pub(crate) fn apply_swap(
        &self,
        change: Change<'_>,
        expected: Option<&[u8]>,
        if_full: IfFull,
    ) -> Result<Swap> {
        self.apply_if(change, Some(expected), if_full)
    }

    fn apply_if(&self, change: Change<'_>, expected: Option<Option<&[u8]>>, if_full: IfFull) -> Result<Swap> {
        let mut waits = 0;
        loop {
            let chunk = Arc::clone(self.index.load(&pin()).find(change.key));
            let gate = chunk.gate();
            if gate.is_retired {
                continue;
            }
            if let Some(expected) = expected {
                let state = chunk.state(&pin()).clone();
                if let Some(actual) = self.newest_differs(&state, change.key, expected)? {
                    return Ok(Swap::Differs(actual));
                }
            }
            let needed = Needed::of(std::slice::from_ref(&change));
            fetch_ahead(&chunk, change.key, run::entry_bytes(change.key.len(), change.bytes().len()));
            let mut aside = Aside::default();
            if let Room::Wait(reason) =
                self.make_room(&chunk, &gate, needed, if_full, &mut waits, &mut aside)?
            {
                drop(gate);
                self.stall(reason);
                continue;
            }
            self.world.spawn.between();
            let pin = pin();
            self.put_one(chunk.state(&pin), change, &pin);
            self.set_large_aside(chunk.state(&pin), needed, &mut aside);
            drop(gate);
            self.after_put(&chunk, &pin, std::slice::from_ref(&change));
            drop(pin);
            self.write_aside(aside);
            return Ok(Swap::Done);
        }
    }

    /// Steps 3 to 5 for one change.
    fn put_one(&self, state: &ChunkState, change: Change<'_>, pin: &Pin) {
        let replacing = state.munk.as_ref().and_then(|munk| fetch_replaced(munk, change.key, pin));
        let cold_key = state.munk.is_none().then(|| cold_key(state.cold_id, change.key));
        // S-50: the cached row goes before the new entry can be read elsewhere.
        let cold_key = cold_key.filter(|_| !mutant(Mutant::RowCacheNotTold));
        let writing = cold_key.as_deref().map(|key| self.row_cache.writing(key));
        let half_done = self.poison.unless_done("a put");
        let pending = self.versions.announce();
        self.append(state, &pending, change, replacing);
        half_done.done();
        if let Some(writing) = writing {
            writing.written(change.value);
        }
        drop(pending);
    }

    /// Applies `changes`, sorted by key and each key once, as one.
    pub(crate) fn apply_batch(&self, changes: &[Change<'_>], if_full: IfFull) -> Result<()> {
        debug_assert!(changes.is_sorted_by(|a, b| a.key < b.key));
        match changes {
            [] => return self.poison.allow_write(),
            [change] => return self.apply_one(*change, if_full),
            _ => {}
        }
        let mut waits = 0;
        loop {
            let chunks = self.chunks_of(changes);
            let Some(entered) = enter_all(&chunks) else { continue };
            let mut aside = Aside::default();
            let needed = entered.iter().map(|e| (e.chunk, &e.gate, Needed::of(e.changes)));
            if let Room::Wait(reason) = self.make_room_in_each(needed, if_full, &mut waits, &mut aside)? {
                drop(entered);
                aside.write(&self.files);
                self.stall(reason);
                continue;
            }
            self.world.spawn.between();
            let pin = pin();
            self.put_all(&entered, &pin);
            for Entered { chunk, changes, .. } in &entered {
                self.set_large_aside(chunk.state(&pin), Needed::of(changes), &mut aside);
            }
            drop(entered);
            for (chunk, changes) in &chunks {
                self.after_put(chunk, &pin, changes);
            }
            drop(pin);
            self.write_aside(aside);
            self.counters.batches.add(1);
            return Ok(());
        }
    }

    /// The chunks that `changes` go to, in key order, with what goes to each.
    fn chunks_of<'c>(&self, changes: &'c [Change<'c>]) -> Vec<(Arc<Chunk>, &'c [Change<'c>])> {
        let pin = pin();
        let index = self.index.load(&pin);
        let mut chunks = Vec::new();
        let mut left = changes;
        while let Some(first) = left.first() {
            let chunk = index.find(first.key);
            let (here, behind) = left.split_at(left.partition_point(|c| chunk.range.contains(c.key)));
            chunks.push((Arc::clone(chunk), here));
            left = behind;
        }
        chunks
    }

    /// Steps 3 to 5 for a batch.
    fn put_all(&self, entered: &[Entered<'_, '_>], pin: &Pin) {
        let mut cold_keys = Vec::new();
        for Entered { chunk, changes, .. } in entered {
            let state = chunk.state(pin);
            if state.munk.is_none() {
                cold_keys.extend(changes.iter().map(|c| cold_key(state.cold_id, c.key)));
            }
        }
        let writing: Vec<Writing<'_>> = cold_keys.iter().map(|key| self.row_cache.writing(key)).collect();
        let half_done = self.poison.unless_done("a batch");
        let pending = self.versions.announce_batch();
        for Entered { chunk, changes, .. } in entered {
            let state = chunk.state(pin);
            for change in *changes {
                self.append(state, &pending, *change, None);
            }
        }
        half_done.done();
        drop(pending);
        // Only now, when gets find the new entries, may rows be cached again.
        drop(writing);
    }

    /// Step 4 for one change: log first, then what makes it readable, which may take a row's place.
    fn append(
        &self,
        state: &ChunkState,
        pending: &Pending<'_>,
        change: Change<'_>,
        replacing: Option<Replacing<'_>>,
    ) {
        let (version, batch) = (pending.version(), pending.batch());
        let entry = EntryRef { key: change.key, version, kind: change.kind(), value: change.bytes() };
        let (log, offset) = self.append_record(state, entry, batch);
        match &state.munk {
            Some(munk) => {
                if !replacing.is_some_and(|replacing| self.replace_in_run(munk, entry, replacing)) {
                    munk.tail().insert(change.key, version, entry.kind, batch, entry.value);
                }
                log.index_record_of_munk(change.key, offset);
            }
            None => log.index_record(change.key, offset),
        }
    }

    fn append_record<'s>(
        &self,
        state: &'s ChunkState,
        entry: EntryRef<'_>,
        batch: u64,
    ) -> (&'s Arc<ChunkLog>, u64) {
        let log = state.funk.log.as_ref().expect("room was made in a log");
        let mut encoded = ENCODED.take();
        encoded.clear();
        // Who has the gate is the only one to append, so this is where the record will lie.
        let offset = log.len();
        let id = self.files.identity(log.number());
        // A large value is copied once, into the buffer.
        let value_apart = if entry.value.len() > LARGE_VALUE_BYTES { entry.value } else { &[] };
        if value_apart.is_empty() {
            encode_record(&mut encoded, id, offset, log.base(), entry, batch);
        } else {
            encode_before_value(&mut encoded, id, offset, log.base(), entry, batch);
        }
        log.append(entry, &encoded, value_apart, offset);
        if state.munk.is_none() {
            log.note(&entry, offset);
        }
        // One huge value must not pin its size in every thread that ever wrote one.
        if encoded.capacity() <= 1 << 20 {
            ENCODED.set(encoded);
        }
        if log.becomes_dirty() {
            self.dirty.lock().push(Arc::clone(log));
        }
        (log, offset)
    }

    /// Step 2 for several chunks, until one has to wait.
    fn make_room_in_each<'e>(
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

    /// Step 2: afterwards `needed` fits into the chunk's log buffer and tail. Nothing is pinned when a log's buffer is written to the
    /// file, here or behind the gate: all that the process replaces in the meantime would have to be kept.
    fn make_room(
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
            // Each run of the database begins a log of its own, and may end before the background has come to rewrite.
            let has_too_many = state.funk.parts.len() > PARTS_OUTRUN;
            if (is_too_long || has_too_many) && *waits < WAITS_MAX && self.has_workers() {
                *waits += 1;
                self.want(chunk);
                return Ok(Room::Wait(&self.counters.stalls_log_full));
            }
            match &state.funk.log {
                // Who occupies the chunk replaces the parts that it found: there may not be others by then. It ends, well or not.
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
    fn allow(&self, chunk: &Chunk, if_full: IfFull) -> Result<()> {
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
        if state.munk.is_none() {
            log.begin_notes(&self.files);
        }
        let funk = Funk { log: Some(Arc::clone(&log)), ..state.funk.closed() };
        chunk.replace_state(gate, ChunkState { funk: Arc::new(funk), ..state.clone() });
        self.mark_changed(&mut structure, chunk);
        drop(structure);
        // The state that was replaced keeps files, too: as in `make_tail_room`.
        pin().flush();
        log
    }

    /// Counts, and asks for what the put made necessary.
    fn after_put(&self, chunk: &Arc<Chunk>, pin: &Pin, changes: &[Change<'_>]) {
        let bytes: usize = changes.iter().map(|c| c.key.len() + c.bytes().len()).sum();
        let longest = changes.iter().map(|c| c.key.len() + c.bytes().len()).max().unwrap_or(0);
        let deletes = changes.iter().filter(|change| change.value.is_none()).count();
        self.counters.puts.add(changes.len() as u64);
        self.counters.user_bytes.add(bytes as u64);
        // Relaxed: statistics.
        chunk.ledger.append(
            (bytes + changes.len() * ledger::RECORD_BYTES) as u64,
            changes.len() as u64,
            deletes as u64,
            (longest + ledger::RECORD_BYTES) as u64,
        );
        // SeqCst: before it is asked whether anybody rests (S-80). On common processors it costs no more.
        chunk.heat.puts.fetch_add(changes.len() as u32, Ordering::SeqCst);
        self.changed();
        flush_replaced(pin);
        if deletes > 0 {
            chunk.heat.deletes.fetch_add(deletes as u32, Ordering::Relaxed);
        }
        let wants_rewrite = || self.funk_wants_rewrite(chunk, chunk.state(pin));
        if !chunk.is_queued.load(Ordering::Relaxed)
            && wants_rewrite()
            && !chunk.is_backing_off(self.world.clock.now())
        {
            self.want(chunk);
        }
    }
}

/// Takes the gates of chunks in key order, with what goes to each; none if one was retired.
fn enter_all<'e, 'c>(chunks: &'e [(Arc<Chunk>, &'c [Change<'c>])]) -> Option<Vec<Entered<'e, 'c>>> {
    let entered = chunks.iter().map(|(chunk, changes)| Some(Entered { chunk, gate: enter(chunk)?, changes }));
    entered.collect()
}

fn enter(chunk: &Chunk) -> Option<MutexGuard<'_, GateState>> {
    Some(chunk.gate()).filter(|gate| !gate.is_retired)
}

/// Sorts changes by key and leaves, of those to one key, the last.
pub(crate) fn settle(changes: &mut Vec<Change<'_>>) {
    // Stable, so that the last one to a key stays last.
    changes.sort_by(|a, b| a.key.cmp(b.key));
    changes.dedup_by(|later, kept| {
        let is_same = later.key == kept.key;
        if is_same {
            *kept = *later;
        }
        is_same
    });
}

#[cfg(test)]
mod tests;
