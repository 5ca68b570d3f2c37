//! `Even`: the engine, as the contract sees it. Each method checks its arguments and hands on.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use kvilt_base::{
    CheckReport, Direction, Disk, Durability, Engine, Error, ErrorKind, KeyRange, Layout, Operation,
    Progress, ReadView, Result, Rows, Scanned, Stats, Swap, Version, World, WriteBatch,
    directory::DirectoryLock,
    key::successor,
    limits::{ENGINE_KEY_BYTES_MAX, check_batch, check_key, check_value},
};
use kvilt_sync::{Home, View, published::pin};
use parking_lot::Mutex;

use crate::{
    chunk::put::{Change, settle},
    commit::Deed,
    copy,
    figures::Figures,
    funk::log::IfFull,
    options::Options,
    parts,
    pool::Pool,
    rebalance::{Checkpointer, Rebalancer},
    recovery,
    store::{Hands, Store},
};

/// An open `even` store.
pub(crate) struct Even {
    store: Arc<Store>,
    /// Asked before anything else: a child made by `fork` must touch no lock, let alone a file.
    home: Home,
    /// Held until closed.
    lock: Mutex<Option<DirectoryLock>>,
    /// Last, so that it is dropped when the store is.
    settling: Settling,
}

/// When dropped, lets go of the memory of a store that was dropped before it: chunks are published values,
/// and would otherwise keep it, and their part of the budget, until somebody happens to collect again.
#[derive(Default)]
struct Settling {
    /// Whether the store was dropped.
    is_due: bool,
}

impl Drop for Settling {
    fn drop(&mut self) {
        if self.is_due {
            kvilt_sync::settle();
        }
    }
}

impl Even {
    /// Opens the store in `disk`.
    pub(crate) fn open(disk: Arc<dyn Disk>, world: World, options: &Options) -> Result<Arc<Self>> {
        let (store, lock) = recovery::open(disk, world, options)?;
        if !store.config.is_read_only {
            let spawn = Arc::clone(&store.world.spawn);
            let rebalancer = spawn.spawn("kvilt-rebalance", Box::new(Rebalancer::new(&store)));
            let checkpointer = spawn.spawn("kvilt-checkpoint", Box::new(Checkpointer::new(&store)));
            *store.hands.lock() = Some(Hands { rebalancer, checkpointer });
        }
        let lock = Mutex::new(Some(lock));
        Ok(Arc::new(Even { store, home: Home::here(), lock, settling: Settling::default() }))
    }

    fn is_sync(&self) -> bool {
        matches!(self.store.config.durability, Durability::Sync { .. })
    }

    /// Fails where nothing may be written: in a child made by `fork`, and in a store that is open to be read
    /// only (B-7), where it fails whatever else would be said of the call.
    fn allow_change(&self) -> Result<()> {
        self.home.allow_write()?;
        if self.store.config.is_read_only { Err(self.read_only()) } else { Ok(()) }
    }

    #[cold]
    fn read_only(&self) -> Error {
        let place = self.store.files.disk.place();
        let message = format!("the store in {place} is open to be read only");
        Error::new(ErrorKind::ReadOnly, message).by_setting("read_only")
    }

    /// Why a read failed: the files of a store that was closed meanwhile may be gone.
    fn unless_closed<T>(&self, error: Error) -> Result<T> {
        self.store.poison.allow_read()?;
        Err(error)
    }

    fn write_one(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.allow_change()?;
        check_key(key, KEY_BYTES_MAX)?;
        check_value(value.unwrap_or_default())?;
        match &self.store.commit {
            None => self.store.apply_one(Change { key, value }, if_full([value])),
            Some(log) => {
                let deed = Deed::Write(vec![(key.to_vec(), value.map(<[u8]>::to_vec))]);
                self.store.commit(log, deed).map(|_| ())
            }
        }
    }
}

/// Gets of one call whose reads are in flight together: drives answer as many at a time, and what they read
/// is not dropped from the page cache before it is used.
const GETS_TOGETHER: usize = 64;

/// Longest key that can be written: its successor must be a key as well.
const KEY_BYTES_MAX: usize = ENGINE_KEY_BYTES_MAX - 1;

/// The same range of keys with bounds no longer than a key can be: no key lies between a bound that is cut
/// and the successor of what is left of it.
fn with_short_bounds(range: &KeyRange) -> KeyRange {
    let short = |bound: &Vec<u8>| match bound.get(..KEY_BYTES_MAX) {
        Some(prefix) if bound.len() > KEY_BYTES_MAX => successor(prefix),
        Some(_) | None => bound.clone(),
    };
    KeyRange { start: short(&range.start), end: range.end.as_ref().map(short) }
}

/// On a full disk puts fail, and deletes go on for as long as there is some memory for them.
fn if_full<'v>(values: impl IntoIterator<Item = Option<&'v [u8]>>) -> IfFull {
    if values.into_iter().all(|value| value.is_none()) { IfFull::GrowForDeletes } else { IfFull::Fail }
}

impl Engine for Even {
    fn get_with(&self, key: &[u8], at: Option<&ReadView>, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.home.allow_read()?;
        check_key(key, KEY_BYTES_MAX)?;
        let result = match at {
            None => self.store.get(key, Version::NEWEST, found),
            Some(view) => self.store.find_at(key, view.version(), found),
        };
        result.or_else(|error| self.unless_closed(error))
    }

    fn get_many(
        &self,
        keys: &[&[u8]],
        at: Option<&ReadView>,
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.home.allow_read()?;
        for (nth, group) in keys.chunks(GETS_TOGETHER).enumerate() {
            if group.len() > 1 {
                self.store.will_get(group, at.map_or(Version::NEWEST, ReadView::version));
            }
            for (i, key) in group.iter().enumerate() {
                let i = nth * GETS_TOGETHER + i;
                if !self.get_with(key, at, &mut |value| found(i, Some(value)))? {
                    found(i, None);
                }
            }
        }
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_one(key, Some(value))
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.write_one(key, None)
    }

    fn write(&self, batch: WriteBatch) -> Result<()> {
        self.allow_change()?;
        let config = &self.store.config;
        check_batch(&batch, config.batch_operations_max, config.batch_bytes_max, KEY_BYTES_MAX)?;
        match &self.store.commit {
            None => {
                let mut changes = Vec::with_capacity(batch.len());
                changes.extend(batch.operations().map(|o| Change { key: o.key, value: o.value }));
                settle(&mut changes);
                self.store.apply_batch(&changes, if_full(changes.iter().map(|change| change.value)))
            }
            Some(log) => {
                let changes = batch.into_operations().into_iter().map(|operation| match operation {
                    Operation::Put { key, value } => (key, Some(value)),
                    Operation::Delete { key } => (key, None),
                });
                self.store.commit(log, Deed::Write(changes.collect())).map(|_| ())
            }
        }
    }

    fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        self.allow_change()?;
        check_key(key, KEY_BYTES_MAX)?;
        check_value(new.unwrap_or_default())?;
        let swapped = match &self.store.commit {
            None => self.store.apply_swap(Change { key, value: new }, expected, if_full([new])),
            Some(log) => {
                let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                let deed = Deed::Swap { key: key.to_vec(), expected: owned(expected), new: owned(new) };
                self.store.commit(log, deed)
            }
        };
        swapped.or_else(|error| self.unless_closed(error))
    }

    fn delete_range(&self, range: &KeyRange) -> Result<()> {
        self.allow_change()?;
        let range = with_short_bounds(range);
        if range.is_empty() {
            return self.store.poison.allow_write();
        }
        match &self.store.commit {
            None => self.store.apply_delete_range(&range, IfFull::GrowForDeletes),
            Some(log) => self.store.commit(log, Deed::DeleteRange(range)).map(|_| ()),
        }
    }

    fn view(&self) -> Result<ReadView> {
        self.home.allow_write()?;
        self.store.poison.allow_read()?;
        self.store.counters.views.add(1);
        let view = self.store.versions.open_view_at(self.store.world.clock.now());
        // It will expire. A view moves the version on, by a read-modify-write behind which there is a fence.
        self.store.stir();
        Ok(ReadView::new(view.version(), Box::new(HeldView { view: Some(view), home: self.home })))
    }

    fn scan(
        &self,
        view: &ReadView,
        range: &KeyRange,
        direction: Direction,
        rows: &mut dyn Rows,
    ) -> Result<Scanned> {
        self.home.allow_read()?;
        let scanned = self.store.scan(view.version(), range, direction, rows);
        let scanned = scanned.or_else(|error| self.unless_closed(error))?;
        // S-9: behind the last read, before the rows are believed.
        self.store.allow_view(view.version())?;
        Ok(scanned)
    }

    fn sync(&self) -> Result<()> {
        self.allow_change()?;
        self.store.poison.allow_write()?;
        if self.is_sync() {
            // What was acknowledged is in the commit log, synced.
            return Ok(());
        }
        self.store.checkpoint_now(false)
    }

    fn checkpoint_to(&self, directory: &Path) -> Result<()> {
        self.allow_change()?;
        self.store.poison.allow_write()?;
        copy::checkpoint_to(&self.store, directory).or_else(|error| self.unless_closed(error))
    }

    fn stats(&self) -> Stats {
        if self.home.is_here() { self.store.stats() } else { Stats::default() }
    }

    fn layout(&self) -> Result<Layout> {
        self.home.allow_read()?;
        self.store.layout().or_else(|error| self.unless_closed(error))
    }

    fn check(&self, progress: &mut dyn FnMut(Progress) -> bool) -> Result<CheckReport> {
        self.home.allow_write()?;
        let report = self.store.check(progress);
        // What it missed of a store that was closed meanwhile is no finding.
        self.store.poison.allow_read()?;
        report
    }

    fn close(&self) -> Result<()> {
        self.home.allow_write()?;
        let store = &self.store;
        // One at a time: a second close waits for the first, and tries again what that could not do.
        let mut lock = self.lock.lock();
        if lock.is_none() {
            return Ok(());
        }
        store.poison.close();
        // A put that was let in before has its gate; behind this none is on its way.
        {
            let pin = pin();
            store.index.load(&pin).chunks().iter().for_each(|chunk| drop(chunk.gate()));
        }
        let hands = store.hands.lock().take();
        if let Some(Hands { rebalancer, checkpointer }) = hands {
            rebalancer.wake();
            checkpointer.wake();
            rebalancer.join();
            checkpointer.join();
        }
        let closed = match store.poison.cause() {
            _ if store.config.is_read_only => Ok(()),
            // What could not be made durable will never be: the caller is told, and the directory is free.
            Some(cause) => Err(cause.clone()),
            None => match store.checkpoint_now(true) {
                // Who only read on a full disk has nothing to lose.
                Err(error) if error.kind() == ErrorKind::NoSpace && store.is_all_durable() => Ok(()),
                closed => Ok(closed?),
            },
        };
        match &closed {
            Ok(()) => {
                store.structure.lock().journals.close(&store.files);
                store.files.pool.iter().for_each(Pool::close);
            }
            Err(_) => store.files.pool.iter().for_each(Pool::keep),
        }
        // Whoever still has a file, what waits for readers above all, has it no longer.
        store.files.disk.close();
        *lock = None;
        closed
    }
}

impl Drop for Even {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // The store is another process's: nothing of it is written, waited for, or given back. What is
            // dropped is the copy of the directory's descriptor, so that this process does not keep the lock
            // when that one has ended.
            std::mem::forget(Arc::clone(&self.store));
            return;
        }
        // Errors are for those who call `close`; what it could not make durable is left to the next process.
        let closed = catch_unwind(AssertUnwindSafe(|| self.close()));
        if !matches!(closed, Ok(Ok(()))) {
            self.store.files.pool.iter().for_each(Pool::keep);
        }
        self.store.files.disk.close();
        self.settling.is_due = true;
    }
}

/// A view, as long as a handle on it lives.
struct HeldView {
    view: Option<View>,
    home: Home,
}

impl Drop for HeldView {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // A lock that some thread of the other process held would never be given back here.
            std::mem::forget(self.view.take());
        }
    }
}

impl Store {
    /// Figures about every part.
    fn stats(&self) -> Stats {
        let counters = &self.counters;
        let budget = &self.files.budget;
        let (mut stats, mut own) = (Stats::default(), Figures::default());
        {
            let pin = pin();
            let chunks = self.index.load(&pin).chunks();
            own.chunks_now = chunks.len() as u64;
            own.munks_now = chunks.iter().filter(|c| c.state(&pin).munk.is_some()).count() as u64;
        }
        let share = self.space_by_chunk();
        stats.disk_bytes_now = share.held_bytes();
        stats.dead_bytes_now = share.dead_bytes();
        stats.files_now = self.files.count() + 1;
        stats.open_views_now = self.versions.open_view_count() as u64;
        stats.budget_bytes = self.config.budget_bytes;
        own.munk_bytes_now = budget.used(parts::MUNKS);
        own.row_cache_bytes_now = self.row_cache.bytes() as u64;
        own.log_index_bytes_now = budget.used(parts::LOG_INDEXES);
        own.table_bytes_now = budget.used(parts::TABLES);
        own.log_buffer_bytes_now = budget.used(parts::LOG_BUFFERS);
        (own.pool_bytes_now, own.pool_bytes_written) =
            self.files.pool.as_ref().map(Pool::bytes).unwrap_or_default();
        let waiting = kvilt_sync::waiting();
        stats.waiting_values_now = waiting.values;
        stats.waiting_bytes_now = waiting.bytes;
        own.gets_from_munk = counters.gets_from_munk.sum();
        own.gets_from_row_cache = counters.gets_from_row_cache.sum();
        own.gets_from_log = counters.gets_from_log.sum();
        own.gets_from_table = counters.gets_from_table.sum();
        stats.gets = own.gets_from_munk
            + own.gets_from_row_cache
            + own.gets_from_log
            + own.gets_from_table
            + counters.gets_absent.sum();
        self.add_counts(&mut stats, &mut own);
        stats.bytes_written = own.log_bytes_written
            + own.table_bytes_written
            + own.manifest_bytes_written
            + own.commit_bytes_written
            + own.pool_bytes_written;
        stats.memory_bytes_now = own.munk_bytes_now
            + own.row_cache_bytes_now
            + own.log_index_bytes_now
            + own.table_bytes_now
            + own.log_buffer_bytes_now;
        stats.stalls = own.stalls_tail_full + own.stalls_memory + own.stalls_log_full + own.stalls_space;
        stats.stalls_us =
            own.stalls_tail_full_us + own.stalls_memory_us + own.stalls_log_full_us + own.stalls_space_us;
        stats.own = own.declared();
        stats
    }

    fn add_counts(&self, stats: &mut Stats, own: &mut Figures) {
        let counters = &self.counters;
        stats.puts = counters.puts.sum();
        stats.batches = counters.batches.sum();
        stats.views = counters.views.sum();
        stats.views_expired = counters.views_expired.sum();
        stats.scanned_rows = counters.scanned_rows.sum();
        stats.scanned_skips = counters.scanned_skips.sum();
        own.munk_compactions = counters.munk_compactions.sum();
        own.munk_weavings = counters.munk_weavings.sum();
        own.funk_rebalances = counters.funk_rebalances.sum();
        own.space_rewrites = counters.space_rewrites.sum();
        own.splits = counters.splits.sum();
        own.coalesces = counters.coalesces.sum();
        own.munk_loads = counters.munk_loads.sum();
        own.munk_evictions = counters.munk_evictions.sum();
        own.checkpoints = counters.checkpoints.sum();
        stats.background_steps = counters.steps.sum();
        let now = self.world.clock.now();
        let oldest_view = self.versions.oldest_view_opened();
        stats.oldest_view_age_us_now = oldest_view.map_or(0, |at| now.saturating_sub(at).as_micros() as u64);
        let now_us = now.as_micros() as u64;
        // Where nothing is to be made durable none is made, and none is missing.
        let checkpointed_us =
            if self.wants_checkpoint() { self.checkpoint.ended_us.load(Ordering::Relaxed) } else { now_us };
        own.checkpoint_age_us_now = now_us.saturating_sub(checkpointed_us);
        stats.user_bytes = counters.user_bytes.sum();
        own.log_bytes_written = counters.log_bytes_written.sum();
        own.table_bytes_written = counters.table_bytes_written.sum();
        own.manifest_bytes_written = counters.manifest_bytes_written.sum();
        own.commit_bytes_written = counters.commit_bytes_written.sum();
        own.writes_through = counters.writes_through.sum();
        own.writes_through_failed = counters.writes_through_failed.sum();
        let reads = &self.files.reads;
        stats.bytes_read = reads.bytes.sum();
        stats.reads = reads.done.sum();
        stats.reads_waited = reads.waited.sum();
        own.reads_ahead = reads.ahead.sum();
        own.stalls_tail_full = counters.stalls_tail_full.times.sum();
        own.stalls_tail_full_us = counters.stalls_tail_full.us.sum();
        own.stalls_memory = counters.stalls_memory.times.sum();
        own.stalls_memory_us = counters.stalls_memory.us.sum();
        own.stalls_log_full = counters.stalls_log_full.times.sum();
        own.stalls_log_full_us = counters.stalls_log_full.us.sum();
        own.stalls_space = counters.stalls_space.times.sum();
        own.stalls_space_us = counters.stalls_space.us.sum();
        own.torn_tails = counters.torn_tails.sum();
        stats.open_us = self.open_us.load(Ordering::Relaxed);
    }
}
