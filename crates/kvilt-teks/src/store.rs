//! `Store`: what the threads of a store share.
//!
//! Locks are taken in this order: keys (by number), the structure, the redo log's own. Whoever changes the
//! sources holds the structure; readers take no lock.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kvilt_base::{
    Budget, Clock, Disk, Error, ErrorKind, Hand, Level, ReadView, Result, Rng, Settings, Spawn, Version,
};
use kvilt_format::bloom;
use kvilt_sync::{Doze, Home, Published, Versions, View, teks::TeksOptions};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    Options,
    catalogue::Catalogue,
    figures::Counters,
    log::Log,
    options,
    sources::{Memory, Sources, Tombstone},
};

/// Locks of keys: a writer has that of its key.
const KEY_LOCKS: usize = 1024;
/// With as many sealed tables that are not flushed, writers wait.
const SEALED_MAX: usize = 2;

/// A store that is open.
pub(crate) struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) store_id: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) spawn: Arc<dyn Spawn>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) settings: Settings,
    pub(crate) options: Options,
    pub(crate) versions: Arc<Versions>,
    pub(crate) sources: Published<Sources>,
    pub(crate) structure: Mutex<Structure>,
    /// Notified when a sealed table was flushed, or could not be.
    pub(crate) flushed: Condvar,
    /// None if the store is only read, and while it is opened.
    pub(crate) log: OnceLock<Log>,
    /// Held while a memory table is flushed or sorted tables are merged.
    pub(crate) compacting: Mutex<()>,
    pub(crate) counters: Counters,
    pub(crate) workers: OnceLock<Vec<Arc<dyn Hand>>>,
    pub(crate) doze: Doze,
    /// Whether something was appended since the last sync of the log.
    pub(crate) has_unsynced: AtomicBool,
    pub(crate) is_closed: AtomicBool,
    key_locks: Box<[Mutex<()>]>,
    hash_key: [u8; 16],
    poison: OnceLock<Error>,
}

/// What changes the sources, and what changes with them.
pub(crate) struct Structure {
    pub(crate) catalogue: Catalogue,
    /// Why the last flush failed, until one does not.
    pub(crate) trouble: Option<Error>,
}

impl Store {
    pub(crate) fn new(
        (disk, world): (Arc<dyn Disk>, &kvilt_base::World),
        (settings, options): (Settings, Options),
        versions: Arc<Versions>,
        catalogue: Catalogue,
        (sources, hash_key): (Sources, [u8; 16]),
    ) -> Self {
        Store {
            disk,
            store_id: catalogue.levels().store_id,
            clock: Arc::clone(&world.clock),
            rng: Arc::clone(&world.rng),
            spawn: Arc::clone(&world.spawn),
            budget: Arc::clone(&world.budget),
            settings,
            options,
            versions,
            sources: Published::new(sources),
            structure: Mutex::new(Structure { catalogue, trouble: None }),
            flushed: Condvar::new(),
            log: OnceLock::new(),
            compacting: Mutex::new(()),
            counters: Counters::default(),
            workers: OnceLock::new(),
            doze: Doze::default(),
            has_unsynced: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            key_locks: (0..KEY_LOCKS).map(|_| Mutex::new(())).collect(),
            hash_key,
            poison: OnceLock::new(),
        }
    }

    /// The sources at this moment, to be kept.
    pub(crate) fn sources_now(&self) -> Sources {
        self.sources.load(&kvilt_sync::pin()).clone()
    }

    // States.

    pub(crate) fn ensure_open(&self) -> Result<()> {
        match self.is_closed.load(Ordering::Acquire) {
            true => Err(Error::new(ErrorKind::Closed, "the store was closed")),
            false => Ok(()),
        }
    }

    pub(crate) fn allow_writes(&self) -> Result<&Log> {
        self.ensure_open()?;
        self.ensure_healthy()?;
        self.log.get().ok_or_else(|| Error::new(ErrorKind::ReadOnly, "the store was opened to be read only"))
    }

    pub(crate) fn ensure_healthy(&self) -> Result<()> {
        match self.poison.get() {
            Some(why) => Err(Error::new(ErrorKind::Poisoned, format!("no more writes: {}", why.message()))),
            None => Ok(()),
        }
    }

    /// From now on nothing is written any more, for this reason.
    pub(crate) fn poison(&self, why: &Error) {
        let _ = self.poison.set(why.clone());
        // Writers that wait for a flush look from time to time; whoever poisons may hold the structure.
        self.flushed.notify_all();
    }

    pub(crate) fn level(&self) -> Level {
        self.settings.durability.level()
    }

    // Keys.

    /// The number of a key's lock.
    pub(crate) fn key_lock(&self, key: &[u8]) -> usize {
        // Not the keyed hash: a lock that many keys share costs time only.
        bloom::hash(key) as usize % KEY_LOCKS
    }

    /// Locks keys by the numbers of their locks, which ascend.
    pub(crate) fn lock_keys(&self, numbers: impl IntoIterator<Item = usize>) -> Vec<MutexGuard<'_, ()>> {
        numbers.into_iter().map(|number| self.key_locks[number].lock()).collect()
    }

    pub(crate) fn lock_all_keys(&self) -> Vec<MutexGuard<'_, ()>> {
        self.lock_keys(0..KEY_LOCKS)
    }

    // Room.

    /// Waits while too many sealed tables are not flushed. To be called without locks and announcements.
    ///
    /// Errors: that of the last flush; `Poisoned`, `Closed`.
    pub(crate) fn make_room(&self) -> Result<()> {
        if self.sources.load(&kvilt_sync::pin()).sealed.len() < SEALED_MAX {
            return Ok(());
        }
        let begun = self.clock.now();
        let mut structure = self.structure.lock();
        let outcome = loop {
            if self.sources.load(&kvilt_sync::pin()).sealed.len() < SEALED_MAX {
                break Ok(());
            }
            self.allow_writes()?;
            if let Some(trouble) = &structure.trouble {
                break Err(trouble.clone());
            }
            self.wake();
            let has_helped = MutexGuard::unlocked(&mut structure, || self.spawn.help());
            if !has_helped {
                self.flushed.wait_for(&mut structure, FLUSH_LOOK);
            }
        };
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        let micros = self.clock.now().saturating_sub(begun).as_micros();
        self.counters.stalls_us.fetch_add(micros as u64, Ordering::Relaxed);
        outcome
    }

    /// Makes a new table the active one, with room for a row of this length, unless that was done since
    /// `full` was the active one.
    pub(crate) fn rotate(&self, full: &Arc<Memory>, row_bytes: usize) -> Result<()> {
        let structure = self.structure.lock();
        let mut sources = self.sources_now();
        if !Arc::ptr_eq(&sources.active, full) {
            return Ok(());
        }
        // While the store is opened, rows come from the log of earlier runs.
        let log_first = self.log.get().map_or(structure.catalogue.levels().log_first, Log::first_needed);
        let active = self.new_memory(full.number + 1, log_first, row_bytes)?;
        let sealed = std::mem::replace(&mut sources.active, active);
        sources.sealed.insert(0, Arc::clone(&sealed));
        self.sources.replace(sources);
        sealed.table.seal();
        sealed.charge();
        drop(structure);
        self.counters.rotations.fetch_add(1, Ordering::Relaxed);
        self.wake();
        Ok(())
    }

    fn new_memory(&self, number: u64, log_first: u64, row_bytes: usize) -> Result<Arc<Memory>> {
        let options = table_options(self.budget.bytes_max(), &self.options, self.hash_key, row_bytes);
        new_memory(&options, number, log_first, &self.budget)
    }

    /// The background has something to do.
    pub(crate) fn wake(&self) {
        if let Some(workers) = self.workers.get() {
            workers.iter().for_each(|worker| worker.wake());
        }
    }

    /// Something was appended to the log.
    pub(crate) fn has_appended(&self) {
        if !self.has_unsynced.swap(true, Ordering::SeqCst) || self.doze.must_wake() {
            self.wake();
        }
    }

    // Views.

    /// Opens a view on this moment.
    pub(crate) fn open_view(self: &Arc<Self>) -> ReadView {
        let view = self.versions.open_view_at(self.clock.now());
        let version = view.version();
        let held = Held { view: Some(view), store: Some(Arc::clone(self)), home: Home::here() };
        ReadView::new(version, Box::new(held))
    }

    /// Refuses a view that has expired. Asked after what was read at it.
    pub(crate) fn ensure_view(&self, view: Version) -> Result<()> {
        match view != Version::NEWEST && self.versions.is_expired(view) {
            true => Err(Error::new(ErrorKind::SnapshotTooOld, "the snapshot or scan has expired")),
            false => Ok(()),
        }
    }

    /// Lets views expire that are older than the limit.
    pub(crate) fn expire_views(&self) {
        let oldest_allowed = self.clock.now().saturating_sub(self.settings.view_age_max);
        let expired = self.versions.expire_views(oldest_allowed);
        self.counters.views_expired.fetch_add(expired as u64, Ordering::Relaxed);
    }

    /// How many views are open, and how old the oldest is.
    pub(crate) fn views_now(&self) -> (u64, Duration) {
        let oldest = self.versions.oldest_view_opened();
        let age = oldest.map_or(Duration::ZERO, |opened| self.clock.now().saturating_sub(opened));
        (self.versions.open_view_count() as u64, age)
    }

    /// Adds a range delete to the sources.
    pub(crate) fn add_tombstone(&self, of: kvilt_base::RangeTombstone) {
        let _structure = self.structure.lock();
        let mut sources = self.sources_now();
        let memory = sources.active.number;
        sources.tombstones.push(Arc::new(Tombstone { of, memory }));
        self.sources.replace(sources);
    }
}

/// How often a writer that waits for a flush looks whether it may go on: a worker that died wakes nobody.
const FLUSH_LOOK: Duration = Duration::from_millis(100);

/// The options of a memory table that has room for a row of this length.
pub(crate) fn table_options(
    budget_bytes: u64,
    options: &Options,
    hash_key: [u8; 16],
    row_bytes: usize,
) -> TeksOptions {
    let bytes = options::table_bytes(budget_bytes);
    let mut table = TeksOptions::for_rows(bytes, options.row_bytes, hash_key);
    // Some room more than one row needs, since a pool counts as full before its end.
    table.arena_bytes = table.arena_bytes.max(row_bytes.saturating_add(row_bytes / 16).saturating_add(4096));
    table.slots = table.slots.max(64);
    table
}

pub(crate) fn new_memory(
    options: &TeksOptions,
    number: u64,
    log_first: u64,
    budget: &Arc<Budget>,
) -> Result<Arc<Memory>> {
    let memory = Memory::new(options, number, log_first, budget);
    memory.map(Arc::new).map_err(|e| Error::io("make a memory table", e))
}

/// Poisons the store if it is dropped by a panic: nobody knows how far what it guards has come.
pub(crate) struct PanicGuard<'s>(pub(crate) &'s Store);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(&Error::new(ErrorKind::Poisoned, "a write ended in a panic"));
        }
    }
}

/// Closes a view when dropped.
struct Held {
    view: Option<View>,
    store: Option<Arc<Store>>,
    home: Home,
}

impl Drop for Held {
    fn drop(&mut self) {
        let (view, store) = (self.view.take(), self.store.take());
        if !self.home.is_here() {
            // What some thread of the other process held would never be given back here.
            std::mem::forget((view, store));
        }
    }
}
