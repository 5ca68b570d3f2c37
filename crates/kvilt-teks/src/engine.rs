//! `Teks`: the contract's methods.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::Ordering::{self, Relaxed},
    },
};

use kvilt_base::{
    CheckReport, Direction, Engine, ErrorKind, KeyRange, Layout, Progress, ReadView, Result, Rows, Scanned,
    Stats, Swap, WriteBatch, directory::DirectoryLock, planted,
};
use kvilt_sync::Home;
use parking_lot::Mutex;

use crate::{check, copy, figures::Figures, log::Log, store::Store};

/// A store as its user has it: closed when dropped.
pub(crate) struct Teks {
    store: Arc<Store>,
    home: Home,
    /// Held until the store is closed.
    lock: Mutex<Option<DirectoryLock>>,
}

impl Teks {
    pub(crate) fn new((store, lock): (Arc<Store>, DirectoryLock)) -> Self {
        Teks { store, home: Home::here(), lock: Mutex::new(Some(lock)) }
    }

    /// Closes the store, and leaves open its directory, which the caller goes on to use.
    pub(crate) fn close_but_not_directory(&self) -> Result<()> {
        let mut lock = self.lock.lock();
        let closed = close(&self.store);
        drop(lock.take());
        closed
    }
}

impl Engine for Teks {
    fn get_with(&self, key: &[u8], at: Option<&ReadView>, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.home.allow_read()?;
        self.store.unless_closed(self.store.get(key, at.map(ReadView::version), found))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.home.allow_write()?;
        self.store.put(key, Some(value))
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.home.allow_write()?;
        self.store.put(key, None)
    }

    fn write(&self, batch: WriteBatch) -> Result<()> {
        self.home.allow_write()?;
        self.store.write(&batch)
    }

    fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        self.home.allow_write()?;
        self.store.unless_closed(self.store.compare_and_swap(key, expected, new))
    }

    fn delete_range(&self, range: &KeyRange) -> Result<()> {
        self.home.allow_write()?;
        self.store.delete_range(range)
    }

    fn view(&self) -> Result<ReadView> {
        self.home.allow_read()?;
        self.store.ensure_open()?;
        self.store.counters.views.fetch_add(1, Relaxed);
        Ok(self.store.open_view())
    }

    fn scan(
        &self,
        view: &ReadView,
        range: &KeyRange,
        direction: Direction,
        rows: &mut dyn Rows,
    ) -> Result<Scanned> {
        self.home.allow_read()?;
        self.store.unless_closed(self.store.scan(view.version(), range, direction, rows))
    }

    fn sync(&self) -> Result<()> {
        self.home.allow_write()?;
        let log = self.store.allow_writes()?;
        log.sync().inspect_err(|error| self.store.poison(error))
    }

    fn checkpoint_to(&self, directory: &Path) -> Result<()> {
        self.home.allow_write()?;
        self.store.ensure_open()?;
        self.store.unless_closed(copy::checkpoint_to(&self.store, directory))
    }

    fn stats(&self) -> Stats {
        if self.home.is_here() { stats(&self.store) } else { Stats::default() }
    }

    fn layout(&self) -> Result<Layout> {
        self.home.allow_read()?;
        self.store.ensure_open()?;
        self.store.unless_closed(self.store.layout())
    }

    fn check(&self, progress: &mut dyn FnMut(Progress) -> bool) -> Result<CheckReport> {
        self.home.allow_read()?;
        self.store.ensure_open()?;
        let report = check::check(&self.store, progress);
        // What it missed of a store that was closed meanwhile is no finding.
        self.store.ensure_open()?;
        report
    }

    fn close(&self) -> Result<()> {
        self.home.allow_write()?;
        let mut lock = self.lock.lock();
        let closed = close(&self.store);
        if lock.take().is_some() {
            self.store.disk.close();
        }
        closed
    }
}

impl Drop for Teks {
    fn drop(&mut self) {
        if self.home.is_here() {
            // Nobody is left to be told.
            let _ = self.close();
        } else {
            // The store is another process's: nothing of it is written, waited for or given back. The lock
            // is: this process does not keep it when that one has ended.
            std::mem::forget(Arc::clone(&self.store));
        }
    }
}

fn close(store: &Store) -> Result<()> {
    if store.is_closed.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    store.progressed.notify_all();
    for worker in store.workers.get().into_iter().flatten() {
        worker.wake();
        worker.join();
    }
    // Writes that were let in before are over, and those that wait are refused.
    drop(store.lock_all_keys());
    match store.log.get() {
        Some(log) => {
            store.ensure_healthy()?;
            log.close()?;
            planted!(EndNotNoted, note_end(store, log) => Ok(()))
        }
        None => Ok(()),
    }
}

/// Says in the catalogue where the log ends: a segment that is missing, or shorter, would not be missed else.
fn note_end(store: &Store, log: &Log) -> Result<()> {
    let mut catalogue = store.catalogue.lock();
    let synced = log.synced();
    let changed = catalogue.change(|levels| levels.log_synced = (synced.sequence, synced.offset));
    match changed {
        // All is durable as it is.
        Err(error) if error.kind() == ErrorKind::NoSpace && !catalogue.is_unsure() => Ok(()),
        changed => changed.map(drop),
    }
}

fn stats(store: &Store) -> Stats {
    let mut stats = Stats::default();
    let mut own = Figures::default();
    let (counters, sources) = (&store.counters, store.sources_now());
    for memory in sources.memories() {
        memory.charge();
        let fill = memory.table.fill();
        own.table_keys_now += fill.keys as u64;
        own.table_records_now += fill.records as u64;
        own.table_records_replaced_now += fill.went as u64;
        own.table_bytes_now += fill.live_bytes as u64;
        stats.memory_bytes_now += memory.memory_bytes();
    }
    own.queued_now = sources.active.table.queued() as u64;
    own.sealed_now = sources.sealed.len() as u64;
    own.level_0_tables_now = sources.levels.first().map_or(0, |level| level.len() as u64);
    sources.tombstones.for_each_piece(|_| own.range_deletes_now += 1);
    own.cached_now = sources.cached.len() as u64;
    stats.memory_bytes_now += sources.tombstones.bytes();
    for sorted in sources.sorted() {
        own.sorted_tables_now += 1;
        stats.disk_bytes_now += sorted.of.len;
        stats.memory_bytes_now += sorted.table.memory_bytes() as u64;
    }
    let log = store.log_files().unwrap_or_default();
    own.log_bytes_now = log.bytes;
    stats.disk_bytes_now += log.bytes;
    // With the catalogue.
    stats.files_now = own.sorted_tables_now + log.files + 1;
    own.rotations = counters.rotations.load(Relaxed);
    own.flushes = counters.flushes.load(Relaxed);
    own.merges = counters.merges.load(Relaxed);
    own.thinned = counters.thinned.load(Relaxed);
    let (views, age) = store.views_now();
    stats.open_views_now = views;
    stats.oldest_view_age_us_now = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    stats.budget_bytes = store.budget.bytes_max();
    stats.gets = counters.gets.load(Relaxed);
    stats.puts = counters.puts.load(Relaxed);
    stats.batches = counters.batches.load(Relaxed);
    stats.views = counters.views.load(Relaxed);
    stats.views_expired = counters.views_expired.load(Relaxed);
    stats.scanned_rows = counters.scanned_rows.load(Relaxed);
    stats.background_steps = counters.background_steps.load(Relaxed);
    stats.stalls = counters.stalls.load(Relaxed);
    stats.stalls_us = counters.stalls_us.load(Relaxed);
    stats.user_bytes = counters.user_bytes.load(Relaxed);
    stats.open_us = counters.open_us.load(Relaxed);
    stats.bytes_written = counters.table_bytes_written.load(Relaxed)
        + counters.catalogue_bytes_written.load(Relaxed)
        + counters.log_bytes.load(Relaxed);
    stats.own = own.declared();
    stats
}
