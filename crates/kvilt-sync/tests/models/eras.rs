//! M15, eras: what a reader has come by stays until it has left, whoever collects meanwhile; and a reader
//! that stays keeps nothing that was born later.
//!
//! The eras are the real ones. A value is a number, the link to it an atomic, and freeing it says so in a
//! flag: what the flag shows a reader between its following the link and its leaving is what the reader's
//! memory would be.

use kvilt_sync::eras::{Eras, Reach, Reservation, Waiting};

use crate::explorer::{
    explore,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

/// Values that a link leads to, one after the other.
struct Linked {
    eras: Eras,
    link: AtomicUsize,
    freed: [Arc<AtomicBool>; 3],
    births: [AtomicUsize; 3],
}

struct Value(Arc<AtomicBool>);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Linked {
    fn new() -> Arc<Self> {
        let linked = Linked {
            eras: Eras::beginning_at(1),
            link: AtomicUsize::new(0),
            freed: std::array::from_fn(|_| Arc::new(AtomicBool::new(false))),
            births: std::array::from_fn(|_| AtomicUsize::new(1)),
        };
        Arc::new(linked)
    }

    /// Puts a value in the place of the one before.
    fn replace(&self, value: usize) {
        self.births[value].store(self.eras.now() as usize, Ordering::Relaxed);
        let before = self.link.swap(value, Ordering::AcqRel);
        let birth = self.births[before].load(Ordering::Relaxed) as u64;
        self.eras.retire(0, birth, 1, Box::new(Value(Arc::clone(&self.freed[before]))));
    }

    /// Another era begins: what is born now is younger than a reader that has entered before.
    fn go_on(&self) {
        self.eras.retire(0, 0, 0, Box::new(()));
        drop(self.eras.collect(Reach::Some { thread: 0, turn: 0 }));
    }

    fn follow(&self, at: &Reservation) -> usize {
        let value = at.follow(&self.eras, || self.link.load(Ordering::Acquire));
        self.expect(value);
        value
    }

    fn expect(&self, value: usize) {
        assert!(!self.freed[value].load(Ordering::Relaxed), "value {value} is freed under its reader");
    }
}

/// S-19, S-1.
#[test]
fn what_a_reader_came_by_stays_until_it_leaves() {
    explore(|| {
        let linked = Linked::new();
        let reader = {
            let linked = linked.clone();
            thread::spawn(move || {
                let at = linked.eras.take();
                at.enter(&linked.eras);
                let first = linked.follow(at);
                // A value that is younger than the reader.
                linked.follow(at);
                linked.expect(first);
                let _is_last = at.leave();
                linked.eras.give_back(at);
            })
        };
        linked.go_on();
        for value in 1..3 {
            linked.replace(value);
            drop(linked.eras.collect(Reach::Some { thread: 0, turn: 0 }));
        }
        reader.join().unwrap();
        // One for who was there, and one for what was handed over.
        (0..2).for_each(|_| drop(linked.eras.collect(Reach::All)));
        assert_eq!(linked.eras.waiting(), Waiting::default());
        assert!(linked.freed[1].load(Ordering::Relaxed), "nobody reads, and something waits");
    });
}

/// What is handed over to a reader that is just leaving is found again.
#[test]
fn what_was_handed_over_is_freed_when_the_reader_has_left() {
    explore(|| {
        let linked = Linked::new();
        let reader = {
            let linked = linked.clone();
            thread::spawn(move || {
                let at = linked.eras.take();
                for _ in 0..2 {
                    at.enter(&linked.eras);
                    linked.follow(at);
                    let _is_last = at.leave();
                }
                linked.eras.give_back(at);
            })
        };
        linked.replace(1);
        (0..2).for_each(|_| drop(linked.eras.collect(Reach::All)));
        reader.join().unwrap();
        drop(linked.eras.collect(Reach::All));
        assert_eq!(linked.eras.waiting(), Waiting::default());
    });
}

/// A reader that follows no more links keeps what it has found, and nothing else.
#[test]
fn a_reader_that_stays_keeps_nothing_that_is_younger() {
    explore(|| {
        let linked = Linked::new();
        let at = linked.eras.take();
        at.enter(&linked.eras);
        assert_eq!(linked.follow(at), 0);
        let writer = {
            let linked = linked.clone();
            thread::spawn(move || {
                linked.replace(1);
                drop(linked.eras.collect(Reach::All));
                linked.replace(2);
                drop(linked.eras.collect(Reach::All));
                linked.replace(0);
                drop(linked.eras.collect(Reach::All));
            })
        };
        // Beside the writer, so that what it replaces first meets a reader under way.
        linked.expect(0);
        writer.join().unwrap();
        linked.expect(0);
        assert!(linked.freed[2].load(Ordering::Relaxed), "it was born and retired beside the reader");
        let _is_last = at.leave();
        drop(linked.eras.collect(Reach::All));
        assert_eq!(linked.eras.waiting(), Waiting::default());
    });
}

#[cfg(any(loom, shuttle))]
mod twins {
    use super::*;
    #[cfg(loom)]
    use crate::explorer::sync::atomic::fence;

    const IDLE: usize = usize::MAX;

    /// What is left out.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Flaw {
        None,
        /// Who reads follows a link that it loaded before it raised its upper era.
        RaisedAfterTheLoad,
        /// Who reads does not look whether the era has gone on.
        NeverRaised,
        /// Stores of who reads are not before its loads.
        #[cfg(loom)]
        NoFence,
    }

    /// The protocol by itself: one reader, and one who replaces two values, the second of them younger than
    /// the reader may be.
    fn protocol(flaw: Flaw) {
        struct Shared {
            era: AtomicUsize,
            lower: AtomicUsize,
            upper: AtomicUsize,
            link: AtomicUsize,
            freed: [AtomicBool; 3],
        }
        let shared = Arc::new(Shared {
            era: AtomicUsize::new(1),
            lower: AtomicUsize::new(IDLE),
            upper: AtomicUsize::new(0),
            link: AtomicUsize::new(0),
            freed: std::array::from_fn(|_| AtomicBool::new(false)),
        });
        let fence_unless_flawed = move || {
            #[cfg(loom)]
            if flaw != Flaw::NoFence {
                fence(Ordering::SeqCst);
            }
        };
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let era = shared.era.load(Ordering::Acquire);
                shared.upper.store(era, Ordering::Relaxed);
                shared.lower.store(era, Ordering::Release);
                fence_unless_flawed();
                let value = loop {
                    let value = shared.link.load(Ordering::Acquire);
                    let era = shared.era.load(Ordering::Relaxed);
                    if flaw == Flaw::NeverRaised || era <= shared.upper.load(Ordering::Relaxed) {
                        break value;
                    }
                    shared.upper.store(era, Ordering::Release);
                    fence_unless_flawed();
                    if flaw == Flaw::RaisedAfterTheLoad {
                        break value;
                    }
                };
                let is_freed = shared.freed[value].load(Ordering::Relaxed);
                assert!(!is_freed, "value {value} is freed under its reader");
                shared.lower.store(IDLE, Ordering::Release);
            })
        };
        let mut birth = 1;
        // What is born from here on is younger than a reader that has entered before.
        shared.era.fetch_add(1, Ordering::AcqRel);
        for value in 1..3 {
            let next_birth = shared.era.load(Ordering::Relaxed);
            let before = shared.link.swap(value, Ordering::AcqRel);
            let retired = shared.era.fetch_add(1, Ordering::AcqRel);
            #[cfg(loom)]
            fence(Ordering::SeqCst);
            let lower = shared.lower.load(Ordering::Acquire);
            let upper = shared.upper.load(Ordering::Acquire);
            if lower == IDLE || lower > retired || upper < birth {
                shared.freed[before].store(true, Ordering::Relaxed);
            }
            birth = next_birth;
        }
        reader.join().unwrap();
    }

    #[test]
    fn the_protocol_by_itself_is_right() {
        explore(|| protocol(Flaw::None));
    }

    #[test]
    #[should_panic(expected = "is freed under its reader")]
    fn an_upper_era_that_is_raised_behind_the_load_is_too_late() {
        explore(|| protocol(Flaw::RaisedAfterTheLoad));
    }

    #[test]
    #[should_panic(expected = "is freed under its reader")]
    fn an_upper_era_that_is_never_raised_covers_nothing_that_is_younger() {
        explore(|| protocol(Flaw::NeverRaised));
    }

    /// Only loom knows orders of memory.
    #[cfg(loom)]
    #[test]
    #[should_panic(expected = "is freed under its reader")]
    fn without_the_fence_a_reader_is_not_seen() {
        explore(|| protocol(Flaw::NoFence));
    }
}
