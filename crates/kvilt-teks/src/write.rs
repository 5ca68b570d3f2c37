//! Writes: puts, deletes, batches and swaps.
//!
//! Each goes the same way: make room, lock the keys, append to the log, announce, put, retire; at last it
//! does what it owes the active table and the log. So the log, the hash and the list agree on each key; and
//! what a reader has seen is in the log.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use kvilt_base::{
    EntryRef, Error, ErrorKind, Kind, Level, Result, Swap, Value, Version, WriteBatch, limits, planted,
};
use kvilt_format::redo::{self, Change};
use kvilt_sync::{
    Pending, Versions,
    teks::{KEYS_AHEAD, Refused},
};

use crate::{
    log::{Appended, Position, Purpose},
    sizing::Room,
    sources::Seen,
    store::{KeyTurns, PanicGuard, Store},
    worker::KEYS_A_STEP,
};

thread_local! {
    /// The body of a record, to be used again.
    static BODY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A longer body is not kept for the next write, in bytes.
const BODY_KEPT_BYTES_MAX: usize = 64 << 10;

/// What a write of this value is for.
fn purpose_of(value: Option<&[u8]>) -> Purpose {
    if value.is_some() { Purpose::Rows } else { Purpose::Deletes }
}

impl Store {
    pub(crate) fn put(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        limits::check_key(key, limits::ENGINE_KEY_BYTES_MAX)?;
        limits::check_value(value.unwrap_or_default())?;
        self.insist(purpose_of(value), || {
            self.allow_writes()?;
            self.make_room(Room::of(key, value), purpose_of(value))?;
            let end = {
                let _turn = self.lock_keys([self.key_lock(key)]);
                self.change(key, value)?
            };
            self.relieve(end)
        })
    }

    pub(crate) fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        limits::check_key(key, limits::ENGINE_KEY_BYTES_MAX)?;
        limits::check_value(new.unwrap_or_default())?;
        self.insist(purpose_of(new), || {
            self.allow_writes()?;
            self.make_room(Room::of(key, new), purpose_of(new))?;
            let turn = self.lock_keys([self.key_lock(key)]);
            let mut there: Option<Value> = None;
            self.find(key, Version::NEWEST, &mut |value| there = Some(Value::copied(value)))?;
            if there.as_deref() != expected {
                return Ok(Swap::Differs(there));
            }
            let end = self.change(key, new)?;
            drop(turn);
            self.relieve(end)?;
            Ok(Swap::Done)
        })
    }

    /// Changes a key whose lock is held. Returns where its record is in the log.
    fn change(&self, key: &[u8], value: Option<&[u8]>) -> Result<Position> {
        let _guard = PanicGuard(self);
        let change = match value {
            Some(value) => Change::Put { key, value },
            None => Change::Delete { key },
        };
        let (appended, pending) = self.append([change], purpose_of(value), Versions::announce)?;
        self.apply(key, value, pending.version(), pending.batch())?;
        drop(pending);
        self.counters.count_put(key, value);
        Ok(appended.position())
    }

    pub(crate) fn write(&self, batch: &WriteBatch) -> Result<()> {
        let (operations_max, bytes_max) = (self.settings.batch_operations_max, self.settings.batch_bytes_max);
        limits::check_batch(batch, operations_max, bytes_max, limits::ENGINE_KEY_BYTES_MAX)?;
        self.allow_writes()?;
        // The last operation of a key counts.
        let by_key: BTreeMap<&[u8], Option<&[u8]>> =
            batch.operations().map(|operation| (operation.key, operation.value)).collect();
        if by_key.is_empty() {
            return Ok(());
        }
        let brings_rows = batch.operations().any(|operation| operation.value.is_some());
        let purpose = if brings_rows { Purpose::Rows } else { Purpose::Deletes };
        self.insist(purpose, || self.write_keys(&by_key, purpose))?;
        self.counters.count_batch(batch);
        Ok(())
    }

    fn write_keys(&self, by_key: &BTreeMap<&[u8], Option<&[u8]>>, purpose: Purpose) -> Result<()> {
        self.allow_writes()?;
        let mut room = Room::default();
        by_key.iter().for_each(|(key, value)| room.add(key, *value));
        self.make_room(room, purpose)?;
        let locks: BTreeSet<usize> = by_key.keys().map(|key| self.key_lock(key)).collect();
        let turns = self.lock_keys(locks);
        self.change_all(by_key, purpose, turns)
    }

    /// Changes keys at once. There is room for them, and the caller has the locks of all.
    pub(crate) fn change_all(
        &self,
        by_key: &BTreeMap<&[u8], Option<&[u8]>>,
        purpose: Purpose,
        turns: KeyTurns<'_>,
    ) -> Result<()> {
        let _guard = PanicGuard(self);
        let changes = by_key.iter().map(|(key, value)| match value {
            Some(value) => Change::Put { key, value },
            None => Change::Delete { key },
        });
        planted!(BatchInPieces => for change in changes.clone() {
            drop(self.append([change], purpose, Versions::announce)?);
        });
        let (appended, pending) = self.append(changes, purpose, Versions::announce_batch)?;
        let mut rows = by_key.iter();
        while rows.len() > 0 {
            self.fetch_ahead(rows.clone().map(|(key, _)| *key));
            for (key, value) in rows.by_ref().take(KEYS_AHEAD) {
                self.apply(key, *value, pending.version(), pending.batch())?;
            }
        }
        drop(pending);
        drop(turns);
        let end = appended.position();
        drop(appended);
        self.relieve(end)
    }

    /// Appends a record to the log, durably at level sync, and announces the write.
    ///
    /// At level async the announcement comes with the append, so that versions ascend in the log: a power cut
    /// leaves the log up to some record, and a view that was open must not have seen a write behind it
    /// without one before it. At level sync nothing is seen that is not durable with all before it, and no
    /// scan waits for a sync (S-4).
    ///
    /// Errors: `NoSpace`, `Io`: then nothing has changed, but after a failed sync, which poisons.
    pub(crate) fn append<'c, 's>(
        &'s self,
        changes: impl IntoIterator<Item = Change<'c>, IntoIter: Clone>,
        purpose: Purpose,
        announce: impl Fn(&'s Versions) -> Pending<'s>,
    ) -> Result<(Appended, Pending<'s>)> {
        // Again, for what has happened while keys were waited for.
        let log = self.allow_writes()?;
        BODY.with_borrow_mut(|body| {
            body.clear();
            redo::push_changes(body, changes);
            // Relaxed: a statistic.
            self.counters.log_bytes.fetch_add(redo::record_bytes(body.len()) as u64, Ordering::Relaxed);
            let appended = match self.level() {
                Level::Async => log.append(body, purpose, || announce(&self.versions)),
                Level::Sync => log.append(body, purpose, || ()).and_then(|(appended, ())| {
                    planted!(AcknowledgedBeforeSync, log.sync() => Ok(()))
                        .inspect_err(|error| self.poison(error))?;
                    Ok((appended, announce(&self.versions)))
                }),
            };
            if appended.is_err() {
                // The background may make room.
                self.wake();
            }
            if body.capacity() > BODY_KEPT_BYTES_MAX {
                *body = Vec::new();
            }
            appended
        })
    }

    /// Has the log synced in time and kept short, room of overwritten records used again, and new keys woven:
    /// by the background if many wait, and here while scans come. To be called when a write has retired;
    /// `end` is where its record is.
    pub(crate) fn relieve(&self, end: Position) -> Result<()> {
        if self.level() == Level::Async {
            self.has_appended();
        }
        let (active, is_overlong) = {
            let pin = kvilt_sync::pin();
            let sources = self.sources.load(&pin);
            (Arc::clone(&sources.active), self.is_overlong(sources, end))
        };
        active.table.relieve();
        if active.table.queued() >= KEYS_A_STEP {
            self.wake_weaver();
        }
        if is_overlong { self.rotate_unannounced(&active, Room::default()) } else { Ok(()) }
    }

    /// Puts a row into the active table. What is in the log must get there, so an error poisons.
    fn apply(&self, key: &[u8], value: Option<&[u8]>, version: Version, batch: u64) -> Result<()> {
        let kind = if value.is_some() { Kind::Put } else { Kind::Tombstone };
        let entry = EntryRef { key, version, kind, value: value.unwrap_or_default() };
        self.put_to_table(entry, batch).inspect_err(|error| self.poison(error))
    }

    /// Has the processor fetch what puts of the first [`KEYS_AHEAD`] of these keys will read.
    fn fetch_ahead<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let pin = kvilt_sync::pin();
        self.sources.load(&pin).active.table.fetch_ahead(keys);
    }

    pub(crate) fn put_to_table(&self, entry: EntryRef<'_>, batch: u64) -> Result<()> {
        let mut has_rotated = false;
        loop {
            let active = {
                let pin = kvilt_sync::pin();
                let active = &self.sources.load(&pin).active;
                match active.table.put(entry, batch, &Seen(&self.versions)) {
                    Ok(()) => return Ok(()),
                    Err(Refused::Sealed) => continue,
                    Err(Refused::Full) => Arc::clone(active),
                }
            };
            if has_rotated && active.table.is_empty() {
                let message = "a memory table that was made for a row has no room for it";
                return Err(Error::new(ErrorKind::Io, message));
            }
            self.rotate(&active, Room::of(entry.key, Some(entry.value)), entry.version)?;
            has_rotated = true;
        }
    }
}
