//! Put (EvenDB algorithm 1, lines 10–22), and everything else that writes: batches, swaps, range deletes.
//!
//! The order of steps is what the promises rest on:
//!
//! 1. take the gate (several gates in key order), look again if the chunk was retired;
//! 2. make room in log buffer and tail: the only step before the last that may do I/O or wait, and the only
//!    one that may fail;
//! 3. announce the pending put, take its version, and wait for puts still pending at a lower one, so that
//!    puts become readable in the order of their versions (**E-7**: from here to step 5 nothing else waits,
//!    and nothing does I/O, unless a buffer is not in the pool, or fails);
//! 4. append to the log, then to the munk or the log's index;
//! 5. retire the announcement: scans that waited for it go on; a batch becomes visible as a whole;
//! 6. give the gate back, and write a log's buffer that step 2 found full and set aside.

mod aside;
mod batch;
mod delete_range;
mod replacing;
mod room;

use std::{cell::Cell, sync::Arc, sync::atomic::Ordering};

use kvilt_base::{EntryRef, Kind, Result, Swap, planted};
use kvilt_format::log::{encode_before_value, encode_record};
use kvilt_sync::{
    published::{Pin, pin},
    versions::Pending,
};

pub(crate) use self::batch::settle;
use self::{
    aside::Aside,
    replacing::{Replacing, fetch_ahead, fetch_replaced, flush_replaced},
    room::{Needed, Room},
};
use super::{Chunk, ChunkState, get::cold_key, ledger};
use crate::{
    funk::log::{ChunkLog, IfFull},
    munk::run,
    store::Store,
};

/// A value of more bytes goes from the caller's memory into the log's buffer without a stop between.
const LARGE_VALUE_BYTES: usize = 64 << 10;

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
                // One that finds another value asks for no room, which would say so.
                self.poison.allow_write()?;
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
        let cold_key = planted!(RowCacheNotTold, cold_key => None);
        // S-50: the cached row goes before the new entry can be read elsewhere.
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
        let is_in_pool = log.append(entry, [&encoded, value_apart], offset);
        if batch == 0 && !is_in_pool {
            log.write_through(&self.files);
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

#[cfg(test)]
mod tests;
