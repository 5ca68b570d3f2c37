//! M14, rest without end: a worker that lies down beside work that comes in at that moment is woken, or has
//! seen it.
//!
//! The worker takes what there is, lies down, looks once more, and rests; a wake is remembered, as the pool
//! and `kvilt-io` remember it. That it rests is where the model ends: what has come by then must have been
//! seen, or have woken. Left out: rests that end by time, which would hide what is looked for.

use kvilt_sync::Doze;

use crate::explorer::{
    explore,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Which step is left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The worker looks for work before it says that it dozes, and not again.
    LooksBefore,
    /// Who makes work asks whether anybody dozes before it is made.
    AsksBefore,
}

#[derive(Default)]
struct Store {
    /// Work of the one kind: a list behind a lock.
    listed: Mutex<usize>,
    /// Work of the other: a count.
    counted: AtomicUsize,
    doze: Doze,
    wakes: AtomicUsize,
}

impl Store {
    fn wake_if(&self, must: bool) {
        if must {
            // Relaxed: read when all is over.
            self.wakes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn list_some(&self, flaw: Flaw) {
        let early = (flaw == Flaw::AsksBefore).then(|| self.doze.must_wake());
        *self.listed.lock().unwrap() += 1;
        self.wake_if(early.unwrap_or_else(|| self.doze.must_wake()));
    }

    fn count_some(&self, flaw: Flaw) {
        let early = (flaw == Flaw::AsksBefore).then(|| self.doze.must_wake());
        self.counted.fetch_add(1, Ordering::SeqCst);
        self.wake_if(early.unwrap_or_else(|| self.doze.must_wake()));
    }

    fn made(&self) -> usize {
        *self.listed.lock().unwrap() + self.counted.load(Ordering::Relaxed)
    }

    /// Works until it rests; says what it has seen.
    fn work(&self, flaw: Flaw) -> usize {
        loop {
            let seen = self.made();
            self.doze.lie_down();
            if flaw == Flaw::LooksBefore || self.made() == seen {
                return seen;
            }
            self.doze.rise();
        }
    }
}

/// Two make work, one of each kind, while the worker lies down.
fn two_make_work(flaw: Flaw) {
    let store = Arc::new(Store::default());
    let makers: Vec<_> = [Store::list_some, Store::count_some]
        .into_iter()
        .map(|make| {
            let store = Arc::clone(&store);
            thread::spawn(move || make(&store, flaw))
        })
        .collect();
    let seen = store.work(flaw);
    for maker in makers {
        maker.join().unwrap();
    }
    let wakes = store.wakes.load(Ordering::Relaxed);
    assert!(seen == 2 || wakes > 0, "it sleeps beside work");
}

/// S-80.
#[test]
fn work_that_comes_while_somebody_lies_down_is_seen_or_wakes() {
    explore(|| two_make_work(Flaw::None));
}

/// S-80.
#[test]
fn of_two_that_make_work_at_once_one_wakes() {
    explore(|| {
        let store = Arc::new(Store::default());
        store.doze.lie_down();
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.list_some(Flaw::None))
        };
        store.count_some(Flaw::None);
        other.join().unwrap();
        assert_eq!(store.wakes.load(Ordering::Relaxed), 1);
    });
}

#[cfg(any(loom, shuttle))]
mod twins {
    use super::*;

    #[test]
    #[should_panic(expected = "it sleeps beside work")]
    fn who_does_not_look_again_sleeps_beside_work() {
        explore(|| two_make_work(Flaw::LooksBefore));
    }

    #[test]
    #[should_panic(expected = "it sleeps beside work")]
    fn who_asks_before_there_is_work_wakes_nobody() {
        explore(|| two_make_work(Flaw::AsksBefore));
    }
}
