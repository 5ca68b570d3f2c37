//! The background: one worker weaves and flushes, one merges, one makes the log durable each interval.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use kvilt_base::{Error, ErrorKind, Next, Result, Worker};

use crate::store::{Progress, Store};

/// Keys that a step weaves into the order of the active table; a put wakes the weaver when as many wait.
pub(crate) const KEYS_A_STEP: usize = 4096;

/// Weaves, and flushes sealed tables.
pub(crate) struct Flusher {
    store: Weak<Store>,
}

/// Merges levels that are full.
pub(crate) struct Merger {
    store: Weak<Store>,
}

/// Makes the log durable each interval while there is something to be made durable, looks after the active
/// table then, and lets views expire.
pub(crate) struct Syncer {
    store: Weak<Store>,
    /// When the next sync may begin.
    due: Duration,
}

impl Flusher {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Flusher { store: Arc::downgrade(store) }
    }
}

impl Merger {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Merger { store: Arc::downgrade(store) }
    }
}

impl Syncer {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Syncer { store: Arc::downgrade(store), due: Duration::ZERO }
    }
}

impl Worker for Flusher {
    fn step(&mut self) -> Next {
        let Some(store) = at_work(&self.store) else { return Next::Done };
        // Keys that come from here on find it awake, or wake it.
        store.weaver.lie_down();
        let woven = {
            let pin = kvilt_sync::pin();
            let active = &store.sources.load(&pin).active;
            active.charge();
            active.table.weave(KEYS_A_STEP)
        };
        // A writer that rotates leaves sources behind, and has none collected for long: they keep tables that
        // were let go of.
        kvilt_sync::settle();
        store.make_spare();
        let flushed = store.with_room(|| store.flush_oldest());
        let flushed = flushed.and_then(|has| if has { Ok(true) } else { store.rotate_if_short() });
        let is_behind = woven == KEYS_A_STEP;
        next(&store, flushed, is_behind, |progress, trouble| {
            progress.flush_trouble = trouble;
            progress.flush_steps += 1;
        })
    }

    fn panicked(&mut self, message: &str) {
        poison(&self.store, message);
    }
}

impl Worker for Merger {
    fn step(&mut self) -> Next {
        let Some(store) = at_work(&self.store) else { return Next::Done };
        let merged = store.merge();
        next(&store, merged, false, |progress, trouble| progress.is_merge_in_trouble = trouble.is_some())
    }

    fn panicked(&mut self, message: &str) {
        poison(&self.store, message);
    }
}

/// The store, if it is there and open.
fn at_work(store: &Weak<Store>) -> Option<Arc<Store>> {
    let store = store.upgrade().filter(|store| !store.is_closed.load(Ordering::Acquire))?;
    store.counters.background_steps.fetch_add(1, Ordering::Relaxed);
    Some(store)
}

/// Notes how a step ended, wakes writers that wait for it, and says when the next one is.
fn next(
    store: &Store,
    outcome: Result<bool>,
    is_behind: bool,
    note: impl FnOnce(&mut Progress, Option<Error>),
) -> Next {
    let (has_done, trouble) = match outcome {
        Ok(has_done) => (has_done, None),
        Err(error) => (false, Some(error)),
    };
    let is_in_trouble = trouble.is_some() || store.is_short();
    note(&mut store.progress.lock(), trouble);
    if has_done || is_in_trouble {
        store.progressed.notify_all();
    }
    if has_done {
        // A table that was flushed may fill a level.
        store.wake();
    }
    match (has_done || is_behind, is_in_trouble && store.ensure_healthy().is_ok()) {
        (true, _) => Next::Again,
        // It is tried again: a disk may be full for a while.
        (false, true) => Next::Rest(Some(store.settings.durability.bounded().interval())),
        (false, false) => Next::Rest(None),
    }
}

impl Store {
    /// Charges what the active table has grown by, and has keys woven that wait, however few: behind a scan
    /// puts weave themselves until the queue was empty once.
    fn look_after_active(&self) {
        let active = Arc::clone(&self.sources.load(&kvilt_sync::pin()).active);
        active.charge();
        if active.table.queued() > 0 {
            self.wake_weaver();
        }
    }
}

impl Worker for Syncer {
    fn step(&mut self) -> Next {
        let Some(store) = at_work(&self.store) else { return Next::Done };
        store.expire_views();
        let now = store.clock.now();
        if now >= self.due && store.has_unsynced.swap(false, Ordering::SeqCst) {
            self.due = now.saturating_add(store.settings.durability.bounded().interval());
            if let Some(log) = store.log.get()
                && let Err(error) = log.sync()
            {
                store.poison(&error);
            }
            store.look_after_active();
        } else if !store.has_unsynced.load(Ordering::SeqCst) {
            store.doze.lie_down();
            if !store.has_unsynced.load(Ordering::SeqCst) {
                return Next::Rest(store.first_expiry().map(|expiry| expiry.saturating_sub(now)));
            }
            store.doze.rise();
        }
        // A view that is opened meanwhile expires behind that.
        let expiry = store.first_expiry().unwrap_or(now.saturating_add(store.settings.view_age_max));
        Next::Rest(Some(expiry.min(self.due).saturating_sub(store.clock.now())))
    }

    fn panicked(&mut self, message: &str) {
        poison(&self.store, message);
    }
}

fn poison(store: &Weak<Store>, message: &str) {
    if let Some(store) = store.upgrade() {
        store.poison(&Error::new(ErrorKind::Poisoned, format!("a worker panicked: {message}")));
    }
}
