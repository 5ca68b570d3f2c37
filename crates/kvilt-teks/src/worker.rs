//! The background: one worker flushes and merges, one makes the log durable each interval.

use std::sync::{Arc, Weak, atomic::Ordering};

use kvilt_base::{Error, ErrorKind, Next, Worker};

use crate::store::Store;

/// Keys that a step weaves into the order of the active table.
const KEYS_A_STEP: usize = 4096;

/// Weaves, flushes and merges while there is something to do.
pub(crate) struct Compactor {
    store: Weak<Store>,
}

/// Makes the log durable each interval while there is something to be made durable, and lets views expire.
pub(crate) struct Syncer {
    store: Weak<Store>,
}

impl Compactor {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Compactor { store: Arc::downgrade(store) }
    }
}

impl Syncer {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Syncer { store: Arc::downgrade(store) }
    }
}

impl Worker for Compactor {
    fn step(&mut self) -> Next {
        let Some(store) = self.store.upgrade() else { return Next::Done };
        if store.is_closed.load(Ordering::Acquire) {
            return Next::Done;
        }
        store.counters.background_steps.fetch_add(1, Ordering::Relaxed);
        let woven = {
            let pin = kvilt_sync::pin();
            let active = &store.sources.load(&pin).active;
            active.charge();
            active.table.weave(KEYS_A_STEP)
        };
        match store.compact() {
            Ok(has_done) => {
                if store.structure.lock().trouble.take().is_some() {
                    store.flushed.notify_all();
                }
                if has_done || woven == KEYS_A_STEP { Next::Again } else { Next::Rest(None) }
            }
            Err(error) => {
                let is_lasting = store.ensure_healthy().is_err();
                store.structure.lock().trouble = Some(error);
                store.flushed.notify_all();
                // It is tried again: a disk may be full for a while.
                match is_lasting {
                    true => Next::Rest(None),
                    false => Next::Rest(Some(store.settings.durability.bounded().interval())),
                }
            }
        }
    }

    fn panicked(&mut self, message: &str) {
        poison(&self.store, message);
    }
}

impl Worker for Syncer {
    fn step(&mut self) -> Next {
        let Some(store) = self.store.upgrade() else { return Next::Done };
        if store.is_closed.load(Ordering::Acquire) {
            return Next::Done;
        }
        store.counters.background_steps.fetch_add(1, Ordering::Relaxed);
        store.expire_views();
        let interval = store.settings.durability.bounded().interval();
        if store.has_unsynced.swap(false, Ordering::SeqCst) {
            if let Some(log) = store.log.get()
                && let Err(error) = log.sync()
            {
                store.poison(&error);
            }
            return Next::Rest(Some(interval));
        }
        store.doze.lie_down();
        if store.has_unsynced.load(Ordering::SeqCst) {
            store.doze.rise();
            return Next::Rest(Some(interval));
        }
        match store.views_now().0 {
            0 => Next::Rest(None),
            _ => Next::Rest(Some(store.settings.view_age_max.max(interval))),
        }
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
