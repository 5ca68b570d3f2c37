//! Values are freed when no pin is left that sees them, and not before.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::*;

struct Counted(u64, u64, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0 = u64::MAX;
        self.2.fetch_add(1, Ordering::SeqCst);
    }
}

/// S-1.
#[test]
fn a_value_outlives_its_published_under_a_pin() {
    let p = Published::new(String::from("kept"));
    let pin = pin();
    let value = p.load(&pin);
    drop(p);
    for _ in 0..1000 {
        pin.flush();
    }
    assert_eq!(value, "kept");
}

/// A thread that came by when something was to be destroyed does not keep to itself what that had owned.
#[test]
fn what_a_destroyed_value_owned_is_destroyed_though_its_thread_does_no_more() {
    let (owner, owned) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let inner = Published::new(Counted(0, 0, owned.clone()));
    let outer = Published::new((inner, Counted(0, 0, owner.clone())));
    let (has_destroyed, destroyed) = std::sync::mpsc::channel();
    let (may_end, end) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            drop(outer);
            while owner.load(Ordering::SeqCst) == 0 {
                pin().flush();
                std::thread::yield_now();
            }
            has_destroyed.send(()).unwrap();
            // It lives on: at its end a thread gives everything away.
            let _ = end.recv();
        });
        destroyed.recv().unwrap();
        for _ in 0..if cfg!(miri) { 1_000 } else { 100_000_000 } {
            pin().flush();
            if owned.load(Ordering::SeqCst) > 0 {
                break;
            }
            // To whichever other test's thread was stopped under a pin.
            std::thread::yield_now();
        }
        let count = owned.load(Ordering::SeqCst);
        drop(may_end);
        assert_eq!(count, 1, "while the other thread rests");
    });
}

/// S-1 and S-2.
#[test]
fn readers_never_meet_a_destroyed_or_torn_value_and_all_are_destroyed() {
    const REPLACEMENTS: u64 = if cfg!(miri) { 20 } else { 5_000 };
    let destroyed = Arc::new(AtomicUsize::new(0));
    let p = Published::new(Counted(0, 0, destroyed.clone()));
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for i in 1..=REPLACEMENTS {
                    p.replace(Counted(i, i * 3, destroyed.clone()));
                }
            });
            s.spawn(|| {
                for _ in 0..REPLACEMENTS {
                    let pin = pin();
                    let value = p.load(&pin);
                    assert_eq!(value.1, value.0 * 3);
                }
            });
        }
    });
    drop(p);
    let expected = 2 * REPLACEMENTS as usize + 1;
    for _ in 0..100_000 {
        pin().flush();
        if destroyed.load(Ordering::SeqCst) == expected {
            return;
        }
        // To whichever other test's thread was stopped under a pin.
        std::thread::yield_now();
    }
    // Another test's thread may hold a pin for long, so all we may ask for is that most are gone.
    assert!(cfg!(miri) || destroyed.load(Ordering::SeqCst) > expected / 2);
}

/// Frees until so many were destroyed: other tests' threads may be stopped under a pin.
fn settle_until(destroyed: &AtomicUsize, expected: usize) {
    for _ in 0..if cfg!(miri) { 1_000 } else { 100_000 } {
        settle();
        if destroyed.load(Ordering::SeqCst) == expected {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{} of {expected} are destroyed", destroyed.load(Ordering::SeqCst));
}

const LATER: usize = 50;

/// A get whose reader took four seconds kept all that was replaced meanwhile, 2 GB of a budget of 64 MiB.
#[test]
fn a_pin_that_stays_keeps_what_it_found_and_nothing_that_came_later() {
    let destroyed = Arc::new(AtomicUsize::new(0));
    let p = Published::new(Counted(7, 21, destroyed.clone()));
    settle();
    let stays = pin();
    let found = p.load(&stays);
    for i in 0..LATER as u64 {
        // In an era of its own, if nobody else is about: each of them makes one.
        p.replace(Counted(i, i * 3, destroyed.clone()));
        settle();
    }
    // That one, the one that is there, and one that was born in the era in which the reader came by.
    let kept = 3;
    while destroyed.load(Ordering::SeqCst) < LATER + 1 - kept {
        settle();
        std::thread::yield_now();
    }
    assert_eq!((found.0, found.1), (7, 21));
    drop(stays);
    settle_until(&destroyed, LATER);
}

/// A scan whose reader deleted the range of each row that it was shown kept 6 GB at 4,000 rows.
#[test]
fn what_runs_apart_from_a_pin_does_not_make_it_keep_what_it_looks_at() {
    let destroyed = Arc::new(AtomicUsize::new(0));
    let p = Published::new(Counted(0, 0, destroyed.clone()));
    let stays = pin();
    stays.apart(|| {
        for i in 1..=LATER as u64 {
            let inner = pin();
            assert_eq!(p.load(&inner).0, i - 1);
            p.replace(Counted(i, 0, destroyed.clone()));
            drop(inner);
            settle();
        }
        while destroyed.load(Ordering::SeqCst) < LATER - 2 {
            settle();
            std::thread::yield_now();
        }
    });
    drop(stays);
    settle_until(&destroyed, LATER);
}

/// S-1, wherever the pins come from and whichever goes first.
#[test]
fn a_pin_that_outlives_what_ran_apart_keeps_what_it_found() {
    let p = Published::new(String::from("first"));
    let outer = pin();
    let inner = outer.apart(|| {
        let inner = pin();
        outer.apart(|| assert_eq!(p.load(&pin()), "first"));
        inner
    });
    let found = p.load(&inner);
    p.replace(String::from("second"));
    drop(outer);
    (0..100).for_each(|_| settle());
    assert_eq!((found.as_str(), p.load(&pin()).as_str()), ("first", "second"));
    drop(inner);
    settle();
}

/// The seat was given back while it was set aside, so another thread took it, and two threads told one
/// reservation what they read.
#[test]
fn a_seat_that_is_set_aside_stays_its_threads_though_its_last_pin_ends() {
    let own = pin().reservation();
    let outer = pin();
    let escaped = outer.apart(pin);
    assert!(!std::ptr::eq(escaped.reservation(), own));
    // This thread's seat is set aside here, not that of `escaped`.
    escaped.apart(|| {
        drop(outer);
        assert!(own.is_taken(), "given back while its thread goes on with it");
    });
    assert!(std::ptr::eq(pin().reservation(), own) && own.is_taken());
    drop(escaped);
    assert!(std::ptr::eq(pin().reservation(), own) && own.is_taken());
}

/// What waited is freed by the reader that it waited for, though nobody else comes by any more.
#[test]
fn memory_returns_when_the_reader_ends_that_it_waited_for() {
    let destroyed = Arc::new(AtomicUsize::new(0));
    let p = Published::new(Counted(1, 3, destroyed.clone()));
    let stays = pin();
    assert_eq!(p.load(&stays).1, 3);
    p.replace(Counted(2, 6, destroyed.clone()));
    settle();
    assert_eq!(destroyed.load(Ordering::SeqCst), 0);
    drop(stays);
    // Unless another test's thread was there as well.
    if destroyed.load(Ordering::SeqCst) == 0 {
        settle_until(&destroyed, 1);
    }
}
