//! Versions under one thread and under many; the interleavings are the models' (`tests/models/versions.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

fn versions() -> Arc<Versions> {
    Versions::new(Version::new(3, 0))
}

/// S-6: nobody but a view moves the version on, and it only rises.
#[test]
fn puts_share_a_version_until_a_view_is_opened() {
    let versions = versions();
    let (a, b) = (versions.announce(), versions.announce());
    assert_eq!((a.version(), b.version()), (Version::new(3, 0), Version::new(3, 0)));
    drop((a, b));
    let view = versions.open_view();
    assert_eq!(view.version(), Version::new(3, 0));
    assert_eq!(versions.announce().version(), Version::new(3, 1));
    assert_eq!(versions.advance(), Version::new(3, 1));
    assert_eq!(versions.advance(), Version::new(3, 2));
    assert_eq!(versions.current(), Version::new(3, 3));
}

/// S-4: an open view keeps no put waiting.
#[test]
fn a_put_waits_for_no_view() {
    let versions = versions();
    let _open = versions.open_view();
    for _ in 0..100 {
        assert!(versions.announce().version() > Version::new(3, 0));
    }
}

/// S-8: a put at a higher version goes on only when the put at a lower one has retired; so does the view
/// between.
#[test]
fn puts_become_readable_in_the_order_of_their_versions() {
    let versions = versions();
    let lower = versions.announce();
    let is_retired = AtomicBool::new(false);
    std::thread::scope(|s| {
        let view = s.spawn(|| versions.open_view().version());
        // The view has moved the counter on, and waits for the put above.
        while versions.current() <= lower.version() {
            std::thread::yield_now();
        }
        let higher = s.spawn(|| {
            let version = versions.announce().version();
            assert!(is_retired.load(Ordering::SeqCst), "a put at {version} overtook one at a lower version");
            version
        });
        let version = lower.version();
        is_retired.store(true, Ordering::SeqCst);
        drop(lower);
        assert_eq!(view.join().unwrap(), version);
        assert!(higher.join().unwrap() > version);
    });
}

#[test]
fn a_put_above_the_view_is_not_waited_for() {
    let versions = versions();
    let before = versions.advance();
    let _pending = versions.announce();
    versions.wait_for_pending(before);
}

#[test]
fn batches_have_ids_of_their_own_and_are_in_flight_until_dropped() {
    let versions = versions();
    assert!(!versions.is_in_flight(0));
    let mut seen = std::collections::HashSet::new();
    for _ in 0..if cfg!(miri) { 50 } else { 1000 } {
        let (a, b) = (versions.announce_batch(), versions.announce_batch());
        assert!(a.batch() != 0 && seen.insert(a.batch()) && seen.insert(b.batch()));
        assert!(versions.is_in_flight(a.batch()) && versions.is_in_flight(b.batch()));
        let (a_id, b_id) = (a.batch(), b.batch());
        drop(a);
        assert!(!versions.is_in_flight(a_id) && versions.is_in_flight(b_id));
    }
    let later = Versions::new(Version::new(4, 0));
    assert!(!seen.contains(&later.announce_batch().batch()));
    assert_eq!(versions.announce().batch(), 0);
}

/// More views than there are places for, and how many of them are forgotten.
const VIEWS: u32 = if cfg!(miri) { 280 } else { 600 };
const FORGOTTEN: u32 = VIEWS - 20;

#[test]
fn more_views_than_places_are_all_listed_and_forgotten() {
    let versions = versions();
    let mut views: Vec<View> = (0..VIEWS).map(|_| versions.open_view()).collect();
    let expected: Vec<Version> = (0..VIEWS).map(|i| Version::new(3, u64::from(i))).collect();
    assert_eq!(versions.open_views(), expected);
    assert_eq!(versions.open_view_count(), VIEWS as usize);
    views.drain(..FORGOTTEN as usize);
    assert_eq!(versions.open_views(), expected[FORGOTTEN as usize..]);
    views.clear();
    assert!(versions.open_views().is_empty());
    assert_eq!(versions.open_view_count(), 0);
}

#[test]
fn a_put_that_panics_is_retired() {
    let versions = versions();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _pending = versions.announce_batch();
        panic!("as planned");
    }));
    assert!(outcome.is_err());
    versions.wait_for_pending(versions.advance());
}

/// Writers bump a register to the version they got; a view must afterwards find, for every writer, the last
/// value at or below its version to be final. This is the scan's promise (S-3), seen from outside.
#[test]
fn what_a_view_finds_no_longer_changes() {
    const ROUNDS: u64 = if cfg!(miri) { 30 } else { 20_000 };
    const WRITERS: usize = 3;
    let versions = versions();
    // For each writer: (version, count of puts at it), packed, newest two versions.
    let cells: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writers: Vec<_> = cells
            .iter()
            .map(|cell| {
                let versions = &versions;
                s.spawn(move || {
                    for _ in 0..ROUNDS {
                        let pending = versions.announce();
                        let version = pending.version().count();
                        let last = cell.load(Ordering::Relaxed);
                        assert!(last >> 24 <= version, "versions never go back");
                        let puts = if last >> 24 == version { (last & 0xff_ffff) + 1 } else { 1 };
                        cell.store(version << 24 | puts, Ordering::Relaxed);
                        drop(pending);
                    }
                })
            })
            .collect();
        s.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let view = versions.open_view();
                let first: Vec<u64> = cells.iter().map(|c| c.load(Ordering::Relaxed)).collect();
                for _ in 0..50 {
                    for (cell, first) in cells.iter().zip(&first) {
                        let now = cell.load(Ordering::Relaxed);
                        let is_final = now == *first || now >> 24 > view.version().count();
                        assert!(is_final, "a put appeared below {view:?}");
                    }
                }
                assert!(versions.open_views().contains(&view.version()));
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Release);
    });
}

#[test]
fn more_threads_than_cores_share_the_slots() {
    const THREADS: usize = if cfg!(miri) { 4 } else { 200 };
    let versions = versions();
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                for _ in 0..50 {
                    let batch = versions.announce_batch();
                    assert!(versions.is_in_flight(batch.batch()));
                    std::thread::yield_now();
                }
            });
        }
    });
    versions.wait_for_pending(versions.advance());
    assert_eq!(versions.open_view_count(), 0);
}

#[test]
fn old_views_expire_by_their_age_and_are_counted_once() {
    let versions = Versions::new(Version::new(1, 0));
    let at = |second: u32| Duration::from_secs(second.into());
    let views: Vec<View> = (0..VIEWS).map(|second| versions.open_view_at(at(second))).collect();
    let without_age = versions.open_view();
    assert_eq!(versions.oldest_view_opened(), Some(at(0)));
    assert_eq!(versions.expire_views(at(0)), 0);
    let (expired, left) = (FORGOTTEN as usize, (VIEWS - FORGOTTEN) as usize);
    assert_eq!(versions.expire_views(at(FORGOTTEN)), expired, "in places and beyond them");
    assert_eq!(versions.expire_views(at(FORGOTTEN)), 0, "nobody expires twice");
    assert_eq!(versions.oldest_view_opened(), Some(at(FORGOTTEN)));
    assert_eq!(views.iter().filter(|view| versions.is_expired(view.version())).count(), expired);
    assert_eq!(versions.open_views().len(), left + 1, "nothing is kept for the others");
    assert_eq!(versions.open_view_count(), views.len() + 1, "they are still held");
    assert!(!versions.is_expired(without_age.version()) && !versions.is_expired(Version::NEWEST));
    drop(views);
    let next = versions.open_view_at(at(VIEWS));
    assert!(!versions.is_expired(next.version()), "a place used again has a moment of its own");
    assert_eq!(versions.oldest_view_opened(), Some(at(VIEWS)));
}

#[test]
fn views_are_seen_between_two_versions_until_they_expire() {
    let versions = Versions::new(Version::new(1, 0));
    let at = |n| Version::new(1, n);
    assert!(!versions.is_viewed(at(0)..at(9)));
    let first = versions.open_view_at(Duration::from_secs(1));
    versions.advance();
    let second = versions.open_view_at(Duration::from_secs(5));
    assert_eq!((first.version(), second.version()), (at(0), at(2)));
    assert!(
        versions.is_viewed(at(0)..at(1))
            && versions.is_viewed(at(0)..at(9))
            && versions.is_viewed(at(2)..at(3))
    );
    assert!(!versions.is_viewed(at(1)..at(2)) && !versions.is_viewed(at(3)..at(9)), "neither is in there");
    assert!(!versions.is_viewed(at(0)..at(0)), "nothing is");
    versions.expire_views(Duration::from_secs(3));
    assert!(!versions.is_viewed(at(0)..at(1)) && versions.is_viewed(at(2)..at(3)));
    drop(second);
    assert!(!versions.is_viewed(at(0)..at(9)));
    // Beyond the places there is a map.
    let many: Vec<View> = (0..260).map(|_| versions.open_view()).collect();
    assert!(many.iter().rev().take(8).all(|view| versions.is_viewed(view.version()..view.version().next())));
}
