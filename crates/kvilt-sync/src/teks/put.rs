//! A put: into the hash, or to the records of a key that is there.
//!
//! What is always true: a put that is refused changes nothing that a reader sees; and when one returns, its
//! key has been queued for the list, by it or by the put that brought the key (T-3).

use std::fmt;

use kvilt_base::EntryRef;

use super::{
    LANES, OPEN, Readers, TeksTable,
    arena::{NewRecord, Node, Record, Span, node_units, record_units},
    buckets::Entered,
    lane::{Counts, Desk, Lane},
    list, records,
};
use crate::{
    published::drop_later,
    shim::{MutexGuard, Ordering, Patience, thread_number},
};

/// A table is full when this part of its slots is taken: beyond it, lookups look at more buckets.
const FULL_SLOTS: (usize, usize) = (9, 10);
/// A lane sums up the slots that all lanes have taken each time it has entered as many keys as this, or as
/// this part of all slots.
const KEYS_BEFORE_SUM: usize = 64;
const KEYS_BEFORE_SUM_PART: usize = 1 << 12;
/// The arena counts as full if it has no room for a row that is shorter than this part of it.
const SHORT_ROW_PART: u32 = 64;

/// Keys that [`TeksTable::fetch_ahead`] has fetched together: more would push each other out of a processor's
/// buffers for misses.
pub const KEYS_AHEAD: usize = 16;

/// Why a put was not done. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The hash or the arena has no room for the row. Records that went may still be waiting for pins: see
    /// [`TeksTable::relieve`].
    Full,
    /// The table is sealed: there is another one.
    Sealed,
}

/// A write of a key: until it is dropped, no other thread writes the key.
struct Write<'a>(Node<'a>);

impl TeksTable {
    /// Has the processor fetch what puts of the first [`KEYS_AHEAD`] of these keys will read, all at once.
    pub fn fetch_ahead<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let mut hashes = [0; KEYS_AHEAD];
        let mut number = 0;
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hash_of(key);
            self.buckets.fetch_ahead(*hash);
            number += 1;
        }
        let hashes = &hashes[..number];
        for hash in hashes {
            self.buckets.each_likely(*hash, |place| self.arena.fetch_head(place));
        }
        for hash in hashes {
            self.buckets
                .each_likely(*hash, |place| self.arena.fetch_head(self.node_at(place).newest().place()));
        }
    }

    /// Puts a row, as the newest of its key. Readers find it when this returns, unless its `batch` is in
    /// flight; 0 is none. Panics if the key has a record of a higher version.
    ///
    /// `entry.version` is that of an announcement that is pending; or, where nobody reads yet, any.
    pub fn put(&self, entry: EntryRef<'_>, batch: u64, readers: &impl Readers) -> Result<(), Refused> {
        let hash = self.hash_of(entry.key);
        self.buckets.fetch_ahead(hash);
        let _turn = (!self.steps.is_concurrent).then(|| self.turn.lock());
        let (lane, mut desk) = self.lane();
        // Acquire: pairs with `seal`; whoever sees it finds the other table.
        if self.state.load(Ordering::Acquire) != OPEN {
            return Err(Refused::Sealed);
        }
        let done = self.put_at(lane, &mut desk, entry, hash, batch, readers);
        let batch = desk.batch(&self.arena);
        if desk.is_due(&self.arena) {
            // Relaxed: a hint.
            self.is_due.store(1, Ordering::Relaxed);
        }
        drop(desk);
        // T-7. Not under the lock: the batch wants it when it is dropped.
        if let Some(batch) = batch {
            drop_later(self.birth, batch);
        }
        done
    }

    fn put_at(
        &self,
        lane: &Lane,
        desk: &mut Desk,
        entry: EntryRef<'_>,
        hash: u64,
        batch: u64,
        readers: &impl Readers,
    ) -> Result<(), Refused> {
        let record = NewRecord { version: entry.version, kind: entry.kind, batch, value: entry.value };
        let record_units = record_units(batch != 0, entry.value.len()).ok_or(Refused::Full)?;
        loop {
            if let Some(node) = self.node_of(entry.key, hash) {
                let span = self.room(desk, record_units)?;
                Counts::add(&lane.counts.live_units, record_units as usize);
                self.put_record(lane, desk, node, record, span, readers);
                break;
            }
            if self.is_full() {
                return Err(Refused::Full);
            }
            if self.put_row(lane, desk, entry.key, hash, record)? {
                break;
            }
        }
        Counts::add(&lane.counts.records, 1);
        Ok(())
    }

    /// A record of a key that is there.
    fn put_record(
        &self,
        lane: &Lane,
        desk: &mut Desk,
        node: Node<'_>,
        record: NewRecord<'_>,
        span: Span,
        readers: &impl Readers,
    ) {
        let new = self.arena.new_record(span, record);
        let went = {
            let _write = Write::begin(node);
            records::push(node, new, readers, self.steps.is_in_place)
        };
        for record in went.into_iter().flatten() {
            let span = Self::span_of(record);
            Counts::subtract(&lane.counts.live_units, span.units() as usize);
            Counts::add(&lane.counts.went, 1);
            desk.went(span);
        }
    }

    #[expect(unsafe_code, reason = "a record that went becomes memory")]
    fn span_of(record: Record<'_>) -> Span {
        // SAFETY: `records::push` took it out, once, and the span goes to the desk's batch, which waits for
        // the pins that may see it (T-7).
        unsafe { record.into_span() }
    }

    /// A node for a key that is not there. False if it is by now.
    fn put_row(
        &self,
        lane: &Lane,
        desk: &mut Desk,
        key: &[u8],
        hash: u64,
        record: NewRecord<'_>,
    ) -> Result<bool, Refused> {
        let height = list::height_of(hash);
        let node_units = node_units(key.len(), height).ok_or(Refused::Full)?;
        let record_units = record_units(record.batch != 0, record.value.len()).ok_or(Refused::Full)?;
        let units = node_units + record_units;
        let span = self.room(desk, units)?;
        let node = self.arena.new_row(span, key, height, record);
        let is_it = |place| self.node_at(place).key() == key;
        let hash_of = |place| self.hash_of(self.node_at(place).key());
        match self.buckets.enter(hash, node.place(), is_it, hash_of) {
            Entered::New => {
                // Until it is dropped, no other put of the key returns; so what does is in the queue (T-3).
                let _write = Write(node);
                if self.steps.is_asynchronous {
                    self.weaving.push(node);
                } else {
                    self.list.link(&self.arena, &[node]);
                }
                Counts::add(&lane.counts.live_units, units as usize);
                self.count_key(lane);
                Ok(true)
            }
            Entered::There(_) => {
                desk.give(Self::unused(node, units));
                Ok(false)
            }
            Entered::NoPath => {
                desk.give(Self::unused(node, units));
                self.set_full();
                Err(Refused::Full)
            }
        }
    }

    #[expect(unsafe_code, reason = "a node that was not entered becomes memory")]
    fn unused(node: Node<'_>, units: u32) -> Span {
        // SAFETY: the hash has not taken it, so no link leads to it.
        unsafe { node.into_span(units) }
    }

    /// A lane that is this put's until it is done.
    fn lane(&self) -> (&Lane, MutexGuard<'_, Desk>) {
        let own = thread_number() % LANES;
        let others = (0..LANES).map(|nth| &self.lanes[(own + nth) % LANES]);
        let free = others.filter_map(|lane| Some((&**lane, lane.desk.try_lock()?))).next();
        free.unwrap_or_else(|| (&self.lanes[own], self.lanes[own].desk.lock()))
    }

    fn room(&self, desk: &mut Desk, units: u32) -> Result<Span, Refused> {
        let room = desk.take(&self.arena, units).or_else(|| {
            // What other lanes have: a lock is tried only, so no order of locks is broken.
            let desks = self.lanes.iter().filter_map(|lane| lane.desk.try_lock());
            desks.into_iter().find_map(|mut desk| desk.take(&self.arena, units))
        });
        let room = room.or_else(|| self.joined_room(desk, units));
        if room.is_none() && units < self.arena.units() / SHORT_ROW_PART {
            self.set_full();
        }
        room.ok_or(Refused::Full)
    }

    /// Room of all lanes that was cut up, put together again.
    #[cold]
    fn joined_room(&self, desk: &mut Desk, units: u32) -> Option<Span> {
        let mut spans = desk.give_up(&self.arena);
        for mut other in self.lanes.iter().filter_map(|lane| lane.desk.try_lock()) {
            spans.append(&mut other.give_up(&self.arena));
        }
        Span::join(spans).into_iter().for_each(|span| desk.give(span));
        desk.take(&self.arena, units)
    }

    fn count_key(&self, lane: &Lane) {
        Counts::add(&lane.counts.keys, 1);
        let step = (self.buckets.slots() / KEYS_BEFORE_SUM_PART).clamp(1, KEYS_BEFORE_SUM);
        // Relaxed: this put's lane.
        let is_due = lane.counts.keys.load(std::sync::atomic::Ordering::Relaxed).is_multiple_of(step);
        if is_due && self.len() * FULL_SLOTS.1 >= self.buckets.slots() * FULL_SLOTS.0 {
            self.set_full();
        }
    }

    fn set_full(&self) {
        // Relaxed: whoever sees it later asks for less.
        self.is_full.store(1, Ordering::Relaxed);
    }
}

impl<'a> Write<'a> {
    /// Waits for another write of the key.
    fn begin(node: Node<'a>) -> Self {
        let mut patience = Patience::new();
        while !node.begin_write() {
            patience.wait();
        }
        Write(node)
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        self.0.end_write();
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Full => "the table has no room for the row",
            Refused::Sealed => "the table is sealed",
        })
    }
}

impl std::error::Error for Refused {}
