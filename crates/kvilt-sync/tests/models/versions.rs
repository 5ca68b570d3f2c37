//! M1 and M5, versions: no put is lost below a view, no view is missed by who compacts, a batch is seen
//! whole.
//!
//! Chunks are left out: a cell stands for what a put makes readable.

use std::time::Duration;

use kvilt_base::Version;
use kvilt_sync::Versions;

use crate::explorer::{
    explore,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

fn versions() -> std::sync::Arc<Versions> {
    // An explorer cannot look into `std`'s counts; they are not what is modelled.
    Versions::new(Version::new(1, 0))
}

/// S-3. A cell holds the version of the newest put in its high half. What a view finds must not change later
/// unless by puts above it.
fn put_against_scan(is_announced: bool) {
    let versions = versions();
    let cell = Arc::new(AtomicU64::new(u64::MAX));
    let putter = {
        let (versions, cell) = (versions.clone(), cell.clone());
        thread::spawn(move || {
            let pending = is_announced.then(|| versions.announce());
            let version = pending.as_ref().map_or_else(|| versions.current(), |p| p.version());
            cell.store(version.count(), Ordering::Relaxed);
            drop(pending);
        })
    };
    let view = versions.open_view();
    let found = cell.load(Ordering::Relaxed);
    putter.join().unwrap();
    let written = cell.load(Ordering::Relaxed);
    let is_below_view = written <= view.version().count();
    assert!(!is_below_view || found == written, "a put appeared below an open view");
}

#[test]
fn no_put_is_lost_below_a_view() {
    explore(|| put_against_scan(true));
}

/// S-8. A put at a higher version is announced only when every put at a lower version is readable: else a get
/// could see the higher one and miss the lower one, and a view between the two would contradict it.
#[test]
fn no_put_overtakes_one_at_a_lower_version() {
    explore(|| {
        let versions = versions();
        let (taken, readable) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicU64::new(0)));
        let lower = {
            let (versions, taken, readable) = (versions.clone(), taken.clone(), readable.clone());
            thread::spawn(move || {
                let pending = versions.announce();
                taken.store(pending.version().count(), Ordering::Release);
                readable.store(1, Ordering::Release);
                drop(pending);
            })
        };
        versions.advance();
        let pending = versions.announce();
        if taken.load(Ordering::Acquire) < pending.version().count() {
            assert_eq!(readable.load(Ordering::Acquire), 1, "a put overtook one at a lower version");
        }
        drop(pending);
        lower.join().unwrap();
    });
}

/// Two puts that share a slot one after the other, and a cut: nothing at or below the cut moves after it.
#[test]
fn a_cut_waits_for_every_put_at_or_below_it() {
    explore(|| {
        let versions = versions();
        let cells = [Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicU64::new(u64::MAX))];
        // One thread for both puts: a second one would wait (S-8) while the cut waits, and loom, which takes
        // no notice of fairness, would let the two wait for each other's yields for ever.
        let putter = {
            let (versions, cells) = (versions.clone(), cells.clone());
            thread::spawn(move || {
                for cell in &cells {
                    let pending = versions.announce();
                    cell.store(pending.version().count(), Ordering::Relaxed);
                }
            })
        };
        // As a checkpoint does it.
        let cut = versions.advance();
        versions.wait_for_pending(cut);
        let found = cells.each_ref().map(|cell| cell.load(Ordering::Relaxed));
        putter.join().unwrap();
        for (cell, found) in cells.iter().zip(found) {
            let written = cell.load(Ordering::Relaxed);
            assert!(written > cut.count() || written == found);
        }
    });
}

/// S-7. Two versions of a key exist; who compacts drops the older one unless a listed view needs it. A view
/// finds what it needs.
fn compaction_against_view(already_open: usize, lists_views_last: bool) {
    let versions = versions();
    let others: Vec<_> = (0..already_open).map(|_| versions.open_view()).collect();
    // Above what the other views read, so that they do not keep it.
    let older = versions.current().count();
    let older_is_there = Arc::new(AtomicUsize::new(1));
    let newer = Arc::new(AtomicU64::new(u64::MAX));
    let compactor = {
        let (versions, older_is_there, newer) = (versions.clone(), older_is_there.clone(), newer.clone());
        thread::spawn(move || {
            let before = (!lists_views_last).then(|| versions.open_views());
            // A put at the version of this moment, then the compaction of the same chunk.
            let pending = versions.announce();
            newer.store(pending.version().count(), Ordering::Release);
            drop(pending);
            let current = versions.current();
            let views = before.unwrap_or_else(|| versions.open_views());
            let newest = newer.load(Ordering::Relaxed);
            assert!(newest <= current.count());
            if !views.iter().any(|view| (older..newest).contains(&view.count())) {
                older_is_there.store(0, Ordering::Release);
            }
        })
    };
    let view = versions.open_view();
    let sees_newer = newer.load(Ordering::Acquire) <= view.version().count();
    let sees_older = older_is_there.load(Ordering::Acquire) == 1;
    assert!(sees_newer || sees_older, "a compaction dropped what a view reads");
    drop(view);
    compactor.join().unwrap();
    drop(others);
}

#[test]
fn no_view_is_missed_by_who_compacts() {
    explore(|| compaction_against_view(0, true));
}

#[test]
fn no_view_beyond_the_places_is_missed_either() {
    // Explored builds have two places; they are taken here, so the third view overflows into the map.
    explore(|| compaction_against_view(2, true));
}

/// S-5. Who finds one entry of a batch finds the other.
fn batch_against_get(is_batch: bool) {
    let versions = versions();
    // A cell holds the batch id of its newest entry; 0 is the entry before.
    let cells = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let putter = {
        let (versions, cells) = (versions.clone(), cells.clone());
        thread::spawn(move || {
            let pending = if is_batch { versions.announce_batch() } else { versions.announce() };
            // Entries of single puts count at once; 1 is no id that was ever given out.
            let id = pending.batch().max(1);
            cells[0].store(id, Ordering::Release);
            cells[1].store(id, Ordering::Release);
        })
    };
    let sees = |cell: usize| {
        let batch = cells[cell].load(Ordering::Acquire);
        batch != 0 && !versions.is_in_flight(batch)
    };
    // In the order of writing: who finds the first entry could, without the announcement, still miss the
    // second.
    let first = sees(0);
    let second = sees(1);
    assert!(!first || second, "half a batch was seen");
    putter.join().unwrap();
    assert!(sees(0) && sees(1));
}

#[test]
fn a_batch_is_seen_whole_or_not_at_all() {
    explore(|| batch_against_get(true));
}

/// A view that is open sees a batch at or below it as retired: a scan never meets one in flight.
#[test]
fn no_batch_is_in_flight_below_a_view() {
    explore(|| {
        let versions = versions();
        let cell = Arc::new([AtomicU64::new(0), AtomicU64::new(u64::MAX)]);
        let putter = {
            let (versions, cell) = (versions.clone(), cell.clone());
            thread::spawn(move || {
                let pending = versions.announce_batch();
                cell[1].store(pending.version().count(), Ordering::Relaxed);
                cell[0].store(pending.batch(), Ordering::Release);
            })
        };
        let view = versions.open_view();
        let batch = cell[0].load(Ordering::Acquire);
        if cell[1].load(Ordering::Relaxed) <= view.version().count() && batch != 0 {
            assert!(!versions.is_in_flight(batch));
        }
        putter.join().unwrap();
    });
}

/// S-9. A compaction lets a view expire and drops what only that view needs. Who reads at the view and then
/// asks finds it expired if what it read lacks something.
fn expiry_against_read(asks_behind_the_read: bool) {
    let versions = versions();
    let view = versions.open_view_at(Duration::from_secs(1));
    let older_is_there = Arc::new(AtomicUsize::new(1));
    let compactor = {
        let (versions, older_is_there) = (versions.clone(), older_is_there.clone());
        thread::spawn(move || {
            versions.expire_views(Duration::from_secs(2));
            if versions.open_views().is_empty() {
                older_is_there.store(0, Ordering::Release);
            }
        })
    };
    let asked_before = versions.is_expired(view.version());
    let found = older_is_there.load(Ordering::Acquire) == 1;
    let is_expired = if asks_behind_the_read { versions.is_expired(view.version()) } else { asked_before };
    assert!(found || is_expired, "an expired view gave an answer");
    compactor.join().unwrap();
}

#[test]
fn a_view_is_expired_before_what_it_needs_is_dropped() {
    explore(|| expiry_against_read(true));
}

/// D5, the handshake alone: of a put and a view that meet, one sees the other. Each stores, then loads what
/// the other stores; without fences both loads may come first. (`Versions` has the fences; this is the pair
/// without the rest.)
#[cfg(loom)]
fn handshake(is_fenced: bool) {
    let announced = Arc::new(AtomicUsize::new(0));
    let counter = Arc::new(AtomicUsize::new(0));
    let put = {
        let (announced, counter) = (announced.clone(), counter.clone());
        thread::spawn(move || {
            announced.store(1, Ordering::Release);
            if is_fenced {
                loom::sync::atomic::fence(Ordering::SeqCst);
            }
            counter.load(Ordering::Acquire)
        })
    };
    counter.store(1, Ordering::Release);
    if is_fenced {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
    let view_sees_put = announced.load(Ordering::Acquire) == 1;
    let put_sees_view = put.join().unwrap() == 1;
    assert!(view_sees_put || put_sees_view, "a put and a view missed each other");
}

#[test]
#[cfg(loom)]
fn of_a_put_and_a_view_one_sees_the_other() {
    explore(|| handshake(true));
}

#[cfg(any(loom, shuttle))]
mod twins {
    use super::*;

    #[test]
    #[should_panic(expected = "a put appeared below an open view")]
    fn without_the_announcement_a_put_is_lost() {
        explore(|| put_against_scan(false));
    }

    /// Shuttle knows no reordering of memory, so only loom can see this.
    #[test]
    #[cfg(loom)]
    #[should_panic(expected = "a put and a view missed each other")]
    fn without_the_fences_a_put_and_a_view_miss_each_other() {
        explore(|| handshake(false));
    }

    #[test]
    #[should_panic(expected = "a compaction dropped what a view reads")]
    fn views_listed_before_the_newest_put_are_too_few() {
        explore(|| compaction_against_view(0, false));
    }

    #[test]
    #[should_panic(expected = "an expired view gave an answer")]
    fn a_view_asked_before_the_read_may_expire_under_it() {
        explore(|| expiry_against_read(false));
    }

    #[test]
    #[should_panic(expected = "half a batch was seen")]
    fn a_batch_announced_like_a_put_is_seen_by_halves() {
        explore(|| batch_against_get(false));
    }
}
