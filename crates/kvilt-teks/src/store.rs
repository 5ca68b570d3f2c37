//! `Store`: what the threads of a store share.
//!
//! Locks are taken in this order: keys (by number), the catalogue, publishing, the redo log's own. Readers
//! take none of them. Publishing is locked for a few moves of pointers, so a put that has announced itself
//! may wait for it (S-4); the catalogue is locked while its file is synced.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use kvilt_base::{
    Budget, Clock, Disk, Error, ErrorKind, Hand, Level, ReadView, Result, Rng, Settings, Spawn, Version,
};
use kvilt_format::bloom;
use kvilt_sync::{Doze, Home, Published, Versions, View, teks::TeksTable};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    Options,
    catalogue::Catalogue,
    figures::Counters,
    log::{Log, Position, Purpose},
    options,
    sizing::{Room, Sizing},
    sources::{Memory, Sources},
};

/// Locks of keys: a writer has that of its key.
const KEY_LOCKS: usize = 1024;
/// Writers wait while there are as many sealed tables that are not flushed …
const SEALED_MAX: usize = 2;
/// … but deletes on a full disk only while there are as many; they go on beside flushes that fail.
const SEALED_MAX_DELETES: usize = 5;
/// They wait, too, while level 0 has as many tables; from this number on, each write waits a little longer.
const LEVEL_0_STOP: usize = 24;
const LEVEL_0_SLOW: usize = 8;
/// Longest wait of a write for each table of level 0 beyond that.
const SLOW_STEP: Duration = Duration::from_micros(100);
/// A writer that waits for the background looks as often whether it may go on: a worker that died wakes
/// nobody.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// The place of the worker that weaves among all.
pub(crate) const FLUSHER: usize = 0;
/// Rows that have this part of a memory table's bytes together get a table with room for all of them.
const LARGE_PART: usize = 4;

/// Locks of keys that are held.
pub(crate) type KeyTurns<'s> = Vec<MutexGuard<'s, ()>>;

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
    publishing: Mutex<()>,
    pub(crate) catalogue: Mutex<Catalogue>,
    pub(crate) progress: Mutex<Progress>,
    /// Notified when progress was made, or none can be.
    pub(crate) progressed: Condvar,
    /// None if the store is only read, and while it is opened.
    pub(crate) log: OnceLock<Log>,
    /// Held while a memory table is flushed.
    pub(crate) flushing: Mutex<()>,
    /// Held while sorted tables are merged.
    pub(crate) merging: Mutex<()>,
    pub(crate) counters: Counters,
    pub(crate) workers: OnceLock<Vec<Arc<dyn Hand>>>,
    pub(crate) doze: Doze,
    /// Of the worker that weaves.
    pub(crate) weaver: Doze,
    /// Whether something was appended since the last sync of the log.
    pub(crate) has_unsynced: AtomicBool,
    pub(crate) is_closed: AtomicBool,
    /// The next memory table, made before it is needed.
    spare: Mutex<Option<TeksTable>>,
    /// When no table was left to be thinned: flushes and merges, and one.
    pub(crate) thinned_at: AtomicU64,
    key_locks: Box<[Mutex<()>]>,
    sizing: Sizing,
    poison: OnceLock<Error>,
}

/// How the background gets on.
#[derive(Default)]
pub(crate) struct Progress {
    /// Why the last flush failed, until one does not.
    pub(crate) flush_trouble: Option<Error>,
    /// Steps of the worker that flushes.
    pub(crate) flush_steps: u64,
    /// The last merge failed.
    pub(crate) is_merge_in_trouble: bool,
}

impl Store {
    pub(crate) fn new(
        (disk, world): (Arc<dyn Disk>, &kvilt_base::World),
        (settings, options): (Settings, Options),
        versions: Arc<Versions>,
        catalogue: Catalogue,
        (sources, sizing): (Sources, Sizing),
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
            publishing: Mutex::new(()),
            catalogue: Mutex::new(catalogue),
            progress: Mutex::default(),
            progressed: Condvar::new(),
            log: OnceLock::new(),
            flushing: Mutex::new(()),
            merging: Mutex::new(()),
            counters: Counters::default(),
            workers: OnceLock::new(),
            doze: Doze::default(),
            weaver: Doze::default(),
            has_unsynced: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            spare: Mutex::new(None),
            thinned_at: AtomicU64::new(0),
            key_locks: (0..KEY_LOCKS).map(|_| Mutex::new(())).collect(),
            sizing,
            poison: OnceLock::new(),
        }
    }

    /// The sources at this moment, to be kept.
    pub(crate) fn sources_now(&self) -> Sources {
        self.sources.load(&kvilt_sync::pin()).clone()
    }

    /// Publishes changed sources.
    pub(crate) fn change_sources(&self, change: impl FnOnce(&mut Sources)) {
        let _publishing = self.publishing.lock();
        let mut sources = self.sources_now();
        change(&mut sources);
        self.sources.replace(sources);
    }

    // States.

    /// What a call came to: one that failed because the store was closed meanwhile says that, and not which
    /// file was gone.
    pub(crate) fn unless_closed<T>(&self, result: Result<T>) -> Result<T> {
        result.or_else(|error| {
            self.ensure_open()?;
            Err(error)
        })
    }

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
        // Writers that wait look from time to time, too: the lock of the progress may be held here.
        self.progressed.notify_all();
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
    pub(crate) fn lock_keys(&self, numbers: impl IntoIterator<Item = usize>) -> KeyTurns<'_> {
        numbers.into_iter().map(|number| self.key_locks[number].lock()).collect()
    }

    pub(crate) fn lock_all_keys(&self) -> KeyTurns<'_> {
        self.lock_keys(0..KEY_LOCKS)
    }

    // Room.

    /// Waits while the background is behind, and sees to a memory table with room for rows, if they need
    /// much. To be called without locks and announcements.
    ///
    /// Errors: that of the last flush; `Poisoned`, `Closed`.
    pub(crate) fn make_room(&self, room: Room, purpose: Purpose) -> Result<()> {
        let (sealed, level_0) = self.backlog();
        if sealed >= SEALED_MAX || level_0 >= LEVEL_0_SLOW {
            self.wait_for_background(purpose)?;
        }
        self.make_large_room(room)
    }

    /// Bytes of a memory table.
    pub(crate) fn table_bytes(&self) -> usize {
        options::table_bytes(self.budget.bytes_max())
    }

    /// Tables that are sealed and not flushed, and tables of level 0.
    fn backlog(&self) -> (usize, usize) {
        let pin = kvilt_sync::pin();
        let sources = self.sources.load(&pin);
        (sources.sealed.len(), sources.levels.first().map_or(0, Vec::len))
    }

    #[cold]
    fn wait_for_background(&self, purpose: Purpose) -> Result<()> {
        let begun = self.clock.now();
        let outcome = self.wait_for_flush(purpose).and_then(|()| self.wait_for_merge());
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        let micros = self.clock.now().saturating_sub(begun).as_micros();
        self.counters.stalls_us.fetch_add(micros as u64, Ordering::Relaxed);
        outcome
    }

    fn wait_for_flush(&self, purpose: Purpose) -> Result<()> {
        let before = self.progress.lock().flush_steps;
        while let sealed = self.backlog().0
            && sealed >= SEALED_MAX
        {
            self.allow_writes()?;
            {
                let progress = self.progress.lock();
                if let Some(trouble) = &progress.flush_trouble {
                    let is_let_by = purpose == Purpose::Deletes && trouble.kind() == ErrorKind::NoSpace;
                    if is_let_by && sealed < SEALED_MAX_DELETES {
                        return Ok(());
                    }
                    // What failed before this write began may be possible by now.
                    if progress.flush_steps != before {
                        return Err(trouble.clone());
                    }
                }
            }
            self.wait_for_progress(LOOK);
        }
        Ok(())
    }

    /// A merge that fails keeps nobody waiting: level 0 grows.
    fn wait_for_merge(&self) -> Result<()> {
        let behind = self.backlog().1.saturating_sub(LEVEL_0_SLOW - 1);
        if behind > 0 && !self.progress.lock().is_merge_in_trouble {
            self.wait_for_progress(SLOW_STEP * behind as u32);
        }
        while self.backlog().1 >= LEVEL_0_STOP && !self.progress.lock().is_merge_in_trouble {
            self.allow_writes()?;
            self.wait_for_progress(LOOK);
        }
        Ok(())
    }

    /// Wakes the background and waits until it has done something, for this time at most.
    pub(crate) fn wait_for_progress(&self, most: Duration) {
        self.wake();
        if !self.spawn.help() {
            self.progressed.wait_for(&mut self.progress.lock(), most);
        }
    }

    /// Whether rows need so much room that a table is made for them.
    pub(crate) fn is_large(&self, room: Room) -> bool {
        room.bytes > self.table_bytes() / LARGE_PART
    }

    /// If rows need much room, the active table has it, unless others take it.
    pub(crate) fn make_large_room(&self, room: Room) -> Result<()> {
        if !self.is_large(room) {
            return Ok(());
        }
        let active = Arc::clone(&self.sources.load(&kvilt_sync::pin()).active);
        let fill = active.table.fill();
        let needed = room.with_waste();
        if fill.arena_bytes - fill.used_bytes < needed.bytes || fill.slots < fill.keys + needed.rows {
            self.rotate_unannounced(&active, room)?;
        }
        Ok(())
    }

    /// Whether the redo log, or range deletes, have become long though the active table is not full: room of
    /// rows that are overwritten is used again, and a range delete takes none. `end` is the log's end.
    pub(crate) fn is_overlong(&self, sources: &Sources, end: Position) -> bool {
        let Sources { active, sealed, tombstones, .. } = sources;
        // The active table may be a later one by now.
        let segments = end.sequence.saturating_sub(active.log_first);
        let is_long = segments >= options::segments_max(self.budget.bytes_max());
        let are_many =
            tombstones.bytes() > self.table_bytes() as u64 && active.version_min < tombstones.newest();
        (is_long || are_many) && sealed.is_empty()
    }

    /// The same as [`Store::rotate`], by a thread that has announced nothing.
    pub(crate) fn rotate_unannounced(&self, full: &Arc<Memory>, room: Room) -> Result<()> {
        let pending = self.versions.announce();
        self.rotate(full, room, pending.version())
    }

    /// Makes a new table the active one, with room for these rows, unless that was done since `full` was the
    /// active one. The caller has announced a put of this version, or is alone: so no put that is under way
    /// has a lower one (S-8).
    pub(crate) fn rotate(&self, full: &Arc<Memory>, room: Room, version: Version) -> Result<()> {
        let publishing = self.publishing.lock();
        let mut sources = self.sources_now();
        if !Arc::ptr_eq(&sources.active, full) {
            return Ok(());
        }
        // While the store is opened, rows come from the log of earlier runs.
        let log_first = self.log.get().map_or(full.log_first, Log::first_needed);
        let table = self.next_table(room)?;
        let active = Memory::new(table, full.number + 1, (log_first, version), &self.budget);
        full.charge();
        sources.sealed.insert(0, std::mem::replace(&mut sources.active, Arc::new(active)));
        self.shrink(&mut sources);
        self.sources.replace(sources);
        full.table.seal();
        drop(publishing);
        self.counters.rotations.fetch_add(1, Ordering::Relaxed);
        self.wake();
        Ok(())
    }

    /// Lets go of cached tables so that the active table can grow to its full size within the budget.
    pub(crate) fn shrink(&self, sources: &mut Sources) {
        let indexes: u64 = sources.sorted().map(|sorted| sorted.table.memory_bytes() as u64).sum();
        let others = indexes + sources.tombstones.bytes() + self.table_bytes() as u64;
        sources.shrink(others, self.budget.bytes_max());
    }

    /// A memory table with room for these rows.
    pub(crate) fn next_table(&self, room: Room) -> Result<TeksTable> {
        let spare = self.spare.lock().take_if(|spare| Sizing::has_room(spare, room));
        spare.map_or_else(|| self.sizing.table(room), Ok)
    }

    /// Makes the next memory table ahead. It takes memory when rows are put to it.
    pub(crate) fn make_spare(&self) {
        if self.spare.lock().is_none() {
            // Without it the next rotation makes one, and reports the error.
            let spare = self.sizing.table(Room::default()).ok();
            *self.spare.lock() = spare;
        }
    }

    /// The background has something to do.
    pub(crate) fn wake(&self) {
        if let Some(workers) = self.workers.get() {
            workers.iter().for_each(|worker| worker.wake());
        }
    }

    /// New keys wait to be woven.
    pub(crate) fn wake_weaver(&self) {
        if self.weaver.must_wake()
            && let Some(workers) = self.workers.get()
        {
            workers[FLUSHER].wake();
        }
    }

    /// Something was appended to the log. The worker that syncs looks each interval, unless it rests.
    pub(crate) fn has_appended(&self) {
        // SeqCst, and a change in any case: see `Doze`.
        self.has_unsynced.swap(true, Ordering::SeqCst);
        if self.doze.must_wake() {
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

    /// When the oldest view expires.
    pub(crate) fn first_expiry(&self) -> Option<Duration> {
        // Behind the limit, not at it.
        let limit = self.settings.view_age_max.saturating_add(Duration::from_micros(1));
        Some(self.versions.oldest_view_opened()?.saturating_add(limit))
    }

    /// Adds a range delete to the sources. The caller has all keys, or is alone.
    pub(crate) fn add_tombstone(&self, tombstone: &kvilt_base::RangeTombstone) {
        self.change_sources(|sources| {
            sources.tombstones = sources.tombstones.with(tombstone, 0, &self.versions);
        });
    }
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
