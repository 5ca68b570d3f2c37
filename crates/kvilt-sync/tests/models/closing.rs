//! M10 and M11, the end of a store: close while puts and a worker are under way, and poison.
//!
//! A chunk is a gate and a count of records, a checkpoint a copy of that count; the worker is one thread that
//! writes a checkpoint a step and rests in between, as `kvilt-io` runs it. Left out: what workers else do,
//! and errors other than the first.

use crate::explorer::{
    explore,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

/// Which step of closing, or of poisoning, is left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// Close does not pass through the gates.
    SkipsGates,
    /// The worker is told to wake, and the telling is not remembered.
    ForgetsWake,
    /// Close does not wait for the worker.
    SkipsJoin,
    /// A put asks whether it may before it has the gate.
    AsksOutside,
}

struct Store {
    flaw: Flaw,
    is_closed: AtomicBool,
    is_poisoned: AtomicBool,
    gate: Mutex<()>,
    records: AtomicUsize,
    durable: AtomicUsize,
    /// Whether the worker is told to wake.
    wake: Mutex<bool>,
    woken: Condvar,
    /// Whether the directory belongs to somebody else by now.
    is_given_back: AtomicBool,
}

impl Store {
    fn new(flaw: Flaw) -> Arc<Self> {
        Arc::new(Store {
            flaw,
            is_closed: AtomicBool::new(false),
            is_poisoned: AtomicBool::new(false),
            gate: Mutex::new(()),
            records: AtomicUsize::new(0),
            durable: AtomicUsize::new(0),
            wake: Mutex::new(false),
            woken: Condvar::new(),
            is_given_back: AtomicBool::new(false),
        })
    }

    fn may_write(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire) && !self.is_poisoned.load(Ordering::Acquire)
    }

    /// True if it was acknowledged.
    fn put(&self) -> bool {
        let early = (self.flaw == Flaw::AsksOutside).then(|| self.may_write());
        let _turn = self.gate.lock().unwrap();
        let may = early.unwrap_or_else(|| self.may_write());
        if may {
            self.records.fetch_add(1, Ordering::AcqRel);
        }
        may
    }

    fn checkpoint(&self) {
        assert!(!self.is_given_back.load(Ordering::Acquire), "a worker wrote after the store was closed");
        self.durable.fetch_max(self.records.load(Ordering::Acquire), Ordering::AcqRel);
    }

    fn work(&self) {
        while !self.is_closed.load(Ordering::Acquire) {
            self.checkpoint();
            let mut is_woken = self.wake.lock().unwrap();
            // The flaw: it trusts to be resting whenever it is told.
            if self.flaw == Flaw::ForgetsWake {
                is_woken = self.woken.wait(is_woken).unwrap();
            }
            while !*is_woken {
                is_woken = self.woken.wait(is_woken).unwrap();
            }
            *is_woken = false;
        }
    }

    fn close(&self, worker: thread::JoinHandle<()>) {
        self.is_closed.store(true, Ordering::Release);
        if self.flaw != Flaw::SkipsGates {
            // A put that was let in before has the gate; behind this none is on its way.
            drop(self.gate.lock().unwrap());
        }
        *self.wake.lock().unwrap() = true;
        self.woken.notify_all();
        let worker = if self.flaw == Flaw::SkipsJoin {
            Some(worker)
        } else {
            worker.join().unwrap();
            None
        };
        self.checkpoint();
        self.is_given_back.store(true, Ordering::Release);
        if let Some(worker) = worker {
            worker.join().unwrap();
        }
    }
}

/// M10: every put that was acknowledged is in the last checkpoint, nothing is written after it, and nobody
/// hangs.
fn close_against_put_and_worker(flaw: Flaw) {
    let store = Store::new(flaw);
    let worker = {
        let store = store.clone();
        thread::spawn(move || store.work())
    };
    let putter = {
        let store = store.clone();
        thread::spawn(move || usize::from(store.put()))
    };
    store.close(worker);
    let acknowledged = putter.join().unwrap();
    let durable = store.durable.load(Ordering::Acquire);
    assert!(acknowledged <= durable, "close lost a put that was acknowledged");
}

#[test]
fn a_close_loses_no_acknowledged_put_and_leaves_no_worker_behind() {
    explore(|| close_against_put_and_worker(Flaw::None));
}

/// M11: behind the poison no put is accepted. One that had its gate when the poison came still may be: so it
/// is looked at from behind the gate.
fn poison_against_put(flaw: Flaw) {
    let store = Store::new(flaw);
    let putter = {
        let store = store.clone();
        thread::spawn(move || {
            store.put();
            store.put();
        })
    };
    store.is_poisoned.store(true, Ordering::Release);
    let behind_the_gate = {
        let _turn = store.gate.lock().unwrap();
        store.records.load(Ordering::Acquire)
    };
    putter.join().unwrap();
    assert_eq!(store.records.load(Ordering::Acquire), behind_the_gate, "a put was accepted after the poison");
    assert!(!store.put(), "a put was accepted after the poison");
}

#[test]
fn no_put_is_accepted_after_the_poison() {
    explore(|| poison_against_put(Flaw::None));
}

#[cfg(any(loom, shuttle))]
mod twins {
    use super::*;

    #[test]
    #[should_panic(expected = "close lost a put that was acknowledged")]
    fn a_close_that_passes_no_gate_loses_a_put() {
        explore(|| close_against_put_and_worker(Flaw::SkipsGates));
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn a_wake_that_is_not_remembered_hangs_the_close() {
        explore(|| close_against_put_and_worker(Flaw::ForgetsWake));
    }

    #[test]
    #[should_panic(expected = "a worker wrote after the store was closed")]
    fn a_close_that_does_not_wait_for_the_worker_is_overtaken_by_it() {
        explore(|| close_against_put_and_worker(Flaw::SkipsJoin));
    }

    #[test]
    #[should_panic(expected = "a put was accepted after the poison")]
    fn a_put_that_asks_before_it_has_the_gate_is_accepted_after_the_poison() {
        explore(|| poison_against_put(Flaw::AsksOutside));
    }
}
