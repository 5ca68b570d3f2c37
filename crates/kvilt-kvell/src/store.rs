//! `Store`: the shards of a store, and what they share: the root, views, and one version for each write.
//!
//! Locks are taken in this order: the root, views, shards by number. `write` has puts, batches, swaps and
//! range deletes; `read` gets and scans; `cut` makes durable.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use kvilt_base::{
    Clock, Disk, Error, ErrorKind, File, Hand, Level, ReadView, Result, Rng, Settings, Spawn, Version,
};
use kvilt_format::slab::Root;
use kvilt_sync::{Doze, Home};
use parking_lot::Mutex;
use siphasher::sip::SipHasher13;

use crate::{
    cut::UnfinishedCut,
    figures::Counters,
    shard::{Locked, Shard},
};

/// A store that is open.
pub(crate) struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) spawn: Arc<dyn Spawn>,
    pub(crate) settings: Settings,
    pub(crate) shards: Vec<Shard>,
    /// The version of the newest write that has begun.
    pub(crate) version: AtomicU64,
    pub(crate) rooted: Mutex<Rooted>,
    pub(crate) views: Mutex<Views>,
    pub(crate) counters: Counters,
    pub(crate) worker: OnceLock<Arc<dyn Hand>>,
    pub(crate) doze: Doze,
    /// Whether something is to be made durable, or to be dealt with.
    pub(crate) has_work: AtomicBool,
    pub(crate) is_closed: AtomicBool,
    pub(crate) budget_bytes: u64,
    poison: OnceLock<Error>,
    hash_key: [u8; 16],
}

/// What cuts change.
pub(crate) struct Rooted {
    /// The newest root that is durable in both copies.
    pub(crate) root: Root,
    /// None if the store is only read.
    pub(crate) file: Option<Arc<dyn File>>,
    /// The cut that was tried last: none is tried under the same number again.
    pub(crate) last_cut: u64,
    /// A cut of which only the root is missing.
    pub(crate) unfinished: Option<UnfinishedCut>,
}

/// Views that are open.
#[derive(Default)]
pub(crate) struct Views {
    /// The number of the newest.
    newest: u64,
    open: BTreeMap<u64, Arc<OpenView>>,
}

/// A view.
pub(crate) struct OpenView {
    opened: Duration,
    has_expired: AtomicBool,
}

impl Store {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        world: &kvilt_base::World,
        settings: Settings,
        shards: Vec<Shard>,
        version: Version,
        rooted: Rooted,
    ) -> Self {
        Store {
            disk,
            clock: Arc::clone(&world.clock),
            rng: Arc::clone(&world.rng),
            spawn: Arc::clone(&world.spawn),
            settings,
            shards,
            version: AtomicU64::new(version.to_u64()),
            hash_key: rooted.root.hash_key,
            rooted: Mutex::new(rooted),
            views: Mutex::default(),
            counters: Counters::default(),
            worker: OnceLock::new(),
            doze: Doze::default(),
            has_work: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            budget_bytes: world.budget.bytes_max(),
            poison: OnceLock::new(),
        }
    }

    pub(crate) fn shard_number(&self, key: &[u8]) -> usize {
        shard_number(&self.hash_key, key, self.shards.len())
    }

    pub(crate) fn shard_of(&self, key: &[u8]) -> &Shard {
        &self.shards[self.shard_number(key)]
    }

    /// All shards, locked: a moment of the whole store.
    pub(crate) fn lock_all(&self) -> Vec<Locked<'_>> {
        self.shards.iter().map(Shard::lock).collect()
    }

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

    pub(crate) fn allow_writes(&self) -> Result<()> {
        self.ensure_open()?;
        if self.settings.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the store was opened to be read only"));
        }
        self.ensure_healthy()
    }

    pub(crate) fn ensure_healthy(&self) -> Result<()> {
        match self.poison.get() {
            Some(why) => {
                let message = format!("no more writes: {}", why.message());
                Err(Error::new(ErrorKind::Poisoned, message))
            }
            None => Ok(()),
        }
    }

    /// From now on nothing is written any more, for this reason.
    pub(crate) fn poison(&self, why: &Error) {
        let _ = self.poison.set(why.clone());
    }

    pub(crate) fn level(&self) -> Level {
        self.settings.durability.level()
    }

    /// The worker has something to do.
    pub(crate) fn has_made_work(&self) {
        self.has_work.fetch_or(true, Ordering::SeqCst);
        if self.doze.must_wake()
            && let Some(worker) = self.worker.get()
        {
            worker.wake();
        }
    }

    /// Opens a view on this moment.
    pub(crate) fn open_view(self: &Arc<Self>) -> ReadView {
        let view = Arc::new(OpenView { opened: self.clock.now(), has_expired: AtomicBool::new(false) });
        let number = {
            let mut views = self.views.lock();
            views.newest += 1;
            let number = views.newest;
            for state in &mut self.lock_all() {
                state.clock = number;
                state.history.open(number);
            }
            views.open.insert(number, view);
            number
        };
        let held = Held { store: Some(Arc::clone(self)), number, home: Home::here() };
        ReadView::new(Version::from_u64(number), Box::new(held))
    }

    /// Refuses a view that has expired. Asked after what was read at it, so what was read is right.
    pub(crate) fn ensure_view(&self, number: u64) -> Result<()> {
        let has_expired = match self.views.lock().open.get(&number) {
            Some(view) => view.has_expired.load(Ordering::Acquire),
            None => true,
        };
        match has_expired {
            true => Err(Error::new(ErrorKind::SnapshotTooOld, "the snapshot or scan has expired")),
            false => Ok(()),
        }
    }

    /// Lets views expire that are older than the limit.
    pub(crate) fn expire_views(&self) {
        let oldest_allowed = self.clock.now().saturating_sub(self.settings.view_age_max);
        let views = self.views.lock();
        for (number, view) in &views.open {
            if view.opened < oldest_allowed && !view.has_expired.swap(true, Ordering::AcqRel) {
                self.counters.views_expired.fetch_add(1, Ordering::Relaxed);
                self.forget_view(*number);
            }
        }
    }

    /// When the oldest view expires.
    pub(crate) fn first_expiry(&self) -> Option<Duration> {
        let views = self.views.lock();
        let open = views.open.values().filter(|view| !view.has_expired.load(Ordering::Acquire));
        // Behind the limit, not at it.
        let limit = self.settings.view_age_max.saturating_add(Duration::from_nanos(1));
        open.map(|view| view.opened.saturating_add(limit)).min()
    }

    fn close_view(&self, number: u64) {
        let mut views = self.views.lock();
        views.open.remove(&number);
        self.forget_view(number);
    }

    fn forget_view(&self, number: u64) {
        let mut has_notes = false;
        for shard in &self.shards {
            let mut state = shard.lock();
            state.history.close(number);
            has_notes |= !state.history.is_empty();
        }
        if has_notes {
            self.has_made_work();
        }
    }

    /// Bytes of all indexes.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().index_bytes()).sum()
    }

    /// How many views are open, and how old the oldest is.
    pub(crate) fn views_now(&self) -> (u64, Duration) {
        let views = self.views.lock();
        let oldest = views.open.values().map(|view| view.opened).min();
        let age = oldest.map_or(Duration::ZERO, |opened| self.clock.now().saturating_sub(opened));
        (views.open.len() as u64, age)
    }
}

/// The shard of a key: part of the format, see `docs/format/root.md`.
pub(crate) fn shard_number(hash_key: &[u8; 16], key: &[u8], shards: usize) -> usize {
    let hash = SipHasher13::new_with_key(hash_key).hash(key);
    // The high bits of the product: as even as the hash, without a division.
    ((u128::from(hash) * shards as u128) >> u64::BITS) as usize
}

/// Poisons the store if it is dropped by a panic: nobody knows how far what it guards has come.
pub(crate) struct PanicGuard<'s>(pub(crate) &'s Store);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(&Error::new(ErrorKind::Poisoned, "a write or a cut ended in a panic"));
        }
    }
}

/// Closes a view when dropped.
struct Held {
    store: Option<Arc<Store>>,
    number: u64,
    home: Home,
}

impl Drop for Held {
    fn drop(&mut self) {
        let store = self.store.take();
        if self.home.is_here() {
            store.inspect(|store| store.close_view(self.number));
        } else {
            // A lock that some thread of the other process held would never be given back here.
            std::mem::forget(store);
        }
    }
}
