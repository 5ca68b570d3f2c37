//! `Kvell`: the contract's methods.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use kvilt_base::{
    CheckReport, Direction, Engine, FileName, KeyRange, Layout, LayoutRange, Progress, ReadView, Result,
    Rows, Scanned, Stats, Swap, WriteBatch, directory::DirectoryLock, layout::files_by_kind,
    queue::MeansKind,
};
use kvilt_format::{
    FORMAT_VERSION,
    names::{MAP, SLAB},
};
use kvilt_sync::Home;
use parking_lot::Mutex;

use crate::{check, copy, figures::Figures, snapshot, store::Store};

/// A store as its user has it: closed when dropped, without waiting for what is in flight elsewhere.
pub(crate) struct Kvell {
    store: Arc<Store>,
    home: Home,
    /// Held until the store is closed.
    lock: Mutex<Option<DirectoryLock>>,
}

impl Kvell {
    pub(crate) fn new((store, lock): (Arc<Store>, DirectoryLock)) -> Self {
        Kvell { store, home: Home::here(), lock: Mutex::new(Some(lock)) }
    }
}

fn number_of(view: &ReadView) -> u64 {
    view.version().to_u64()
}

impl Engine for Kvell {
    fn get_with(&self, key: &[u8], at: Option<&ReadView>, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.home.allow_read()?;
        self.store.unless_closed(self.store.get(key, at.map(number_of), found))
    }

    fn get_many(
        &self,
        keys: &[&[u8]],
        at: Option<&ReadView>,
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.home.allow_read()?;
        self.store.unless_closed(self.store.get_many(keys, at.map(number_of), found))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.home.allow_write()?;
        self.store.with_room(&mut || self.store.put(key, Some(value)))
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.home.allow_write()?;
        self.store.with_room(&mut || self.store.put(key, None))
    }

    fn write(&self, batch: WriteBatch) -> Result<()> {
        self.home.allow_write()?;
        self.store.with_room(&mut || self.store.write(&batch))
    }

    fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        self.home.allow_write()?;
        self.store
            .unless_closed(self.store.with_room(&mut || self.store.compare_and_swap(key, expected, new)))
    }

    fn delete_range(&self, range: &KeyRange) -> Result<()> {
        self.home.allow_write()?;
        self.store.with_room(&mut || self.store.delete_range(range))
    }

    fn view(&self) -> Result<ReadView> {
        self.home.allow_read()?;
        self.store.ensure_open()?;
        self.store.counters.views.fetch_add(1, Ordering::Relaxed);
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
        self.store.unless_closed(self.store.scan(number_of(view), range, direction, rows))
    }

    fn sync(&self) -> Result<()> {
        self.home.allow_write()?;
        self.store.allow_writes()?;
        self.store.cut()
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
        self.store.unless_closed(layout(&self.store))
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

impl Drop for Kvell {
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

impl Kvell {
    /// Closes the store, and leaves open its directory, which the caller goes on to use.
    pub(crate) fn close_but_not_directory(&self) -> Result<()> {
        let mut lock = self.lock.lock();
        let closed = close(&self.store);
        drop(lock.take());
        closed
    }
}

fn close(store: &Store) -> Result<()> {
    if store.is_closed.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    if let Some(worker) = store.worker.get() {
        worker.wake();
        worker.join();
    }
    // Writes that were let in before are over when the last cut is taken, and those that wait are refused.
    for shard in &store.shards {
        shard.reserve_range(&mut shard.lock(), &KeyRange::all());
    }
    let mut rooted = store.rooted.lock();
    let outcome = match store.settings.read_only {
        true => Ok(()),
        false => store.ensure_healthy().and_then(|()| snapshot::close(store, &mut rooted)),
    };
    rooted.file = None;
    for shard in &store.shards {
        let mut state = shard.lock();
        state.blocks.set_cache_bytes(0);
        shard.release_range(&mut state);
    }
    outcome
}

fn stats(store: &Store) -> Stats {
    let mut stats = Stats::default();
    let mut own = Figures { shards_now: store.shards.len() as u64, ..Figures::default() };
    let counters = &store.counters;
    for shard in &store.shards {
        let means = shard.queue().means();
        own.io_direct_now = u64::from(means.is_direct);
        own.io_uring_now = u64::from(means.kind == MeansKind::IoUring);
        let mut state = shard.lock();
        state.charge();
        let blocks = state.blocks.figures();
        own.io_in_flight_now += state.blocks.in_flight() as u64;
        own.index_keys_now += state.index.len();
        own.index_bytes_now += state.index_bytes();
        own.cache_bytes_now += state.blocks.cache_bytes();
        own.cache_hits += blocks.hits;
        own.cache_misses += blocks.misses;
        own.blocks_written += blocks.writes;
        own.slots_waiting_now += (state.unused.len() + state.unused_before_cut.len()) as u64;
        stats.reads += blocks.reads;
        stats.bytes_read += blocks.read_bytes;
        stats.bytes_written += blocks.written_bytes;
        stats.files_now += 1;
        stats.memory_bytes_now += state.memory_bytes();
        for slab in state.slabs.iter().flatten() {
            own.slots_used_now += slab.used().set_count();
            own.slots_free_now += slab.free_slots();
            stats.files_now += 1;
            stats.disk_bytes_now += slab.len();
            let dead = slab.slots() - slab.used().set_count();
            stats.dead_bytes_now += dead * slab.class().slot_bytes() as u64;
        }
    }
    own.cuts = counters.cuts.load(Ordering::Relaxed);
    own.map_pages_written = counters.map_pages.load(Ordering::Relaxed);
    stats.bytes_written += own.map_pages_written * kvilt_format::slab::PAGE_BYTES as u64
        + own.cuts * 2 * kvilt_format::slab::ROOT_COPY_BYTES as u64;
    let (views, age) = store.views_now();
    stats.open_views_now = views;
    stats.oldest_view_age_us_now = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    stats.budget_bytes = store.budget_bytes;
    stats.gets = counters.gets.load(Ordering::Relaxed);
    stats.puts = counters.puts.load(Ordering::Relaxed);
    stats.batches = counters.batches.load(Ordering::Relaxed);
    stats.views = counters.views.load(Ordering::Relaxed);
    stats.views_expired = counters.views_expired.load(Ordering::Relaxed);
    stats.scanned_rows = counters.scanned_rows.load(Ordering::Relaxed);
    stats.background_steps = counters.background_steps.load(Ordering::Relaxed);
    stats.user_bytes = counters.user_bytes.load(Ordering::Relaxed);
    stats.open_us = counters.open_us.load(Ordering::Relaxed);
    stats.own = own.declared();
    stats
}

/// What a kind of files is called.
fn word_for(name: FileName) -> &'static str {
    match name {
        FileName::Of(SLAB, _) => "slab",
        FileName::Of(MAP, _) => "map",
        FileName::Of(..) | FileName::Once(_) => "other",
    }
}

fn layout(store: &Store) -> Result<Layout> {
    let files = files_by_kind(&*store.disk, word_for)?;
    let file_bytes = files.get("slab").map_or(0, |kind| kind.bytes);
    let ranges = vec![LayoutRange { keys: KeyRange::all(), file_bytes }];
    Ok(Layout { format_version: FORMAT_VERSION, files, ranges })
}
