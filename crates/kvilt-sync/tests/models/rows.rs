//! M13, rows: who finds a row by its position finds it, or a newer one, by its hash, while it is replaced;
//! and a hold stops that.
//!
//! The rows are the real ones. Their bytes lie in raw memory, which no explorer sees: that a row is whole
//! when a place leads to it is for miri and the sanitizers to say. No explorer drops what waits for pins, so
//! memory is not used again here; that is crossbeam's, and modelled there.

use kvilt_base::{EntryRef, Kind, Version};
use kvilt_sync::{
    Rows, pin,
    rows::{Replaced, RowsBuilder},
};

use crate::explorer::{explore, sync::Arc, thread};

fn row(version: u64) -> EntryRef<'static> {
    EntryRef { key: b"key", version: Version::from_u64(version), kind: Kind::Put, value: b"value" }
}

fn rows() -> Arc<Rows> {
    let mut builder = RowsBuilder::new(100).unwrap();
    builder.push(row(1), Some(7)).unwrap();
    Arc::new(builder.finish())
}

fn replace(rows: &Rows, version: u64) -> Replaced {
    rows.replace(7, row(version), &pin(), |_| true, || 0)
}

/// S-15, S-18.
#[test]
fn a_row_found_by_position_is_found_by_hash() {
    explore(|| {
        let rows = rows();
        let reader = {
            let rows = rows.clone();
            thread::spawn(move || {
                let pin = pin();
                let by_position = rows.under(&pin).entry_at(0).version;
                let by_hash = rows.under(&pin).find(b"key", 7).unwrap().version;
                assert!(by_position <= by_hash, "found by position, but not by hash");
            })
        };
        assert_eq!((replace(&rows, 2), replace(&rows, 3)), (Replaced::Done, Replaced::Done));
        reader.join().unwrap();
    });
}

/// S-16: what is read under a hold does not change, whoever comes first.
#[test]
fn under_a_hold_nothing_is_replaced() {
    explore(|| {
        let rows = rows();
        let reader = {
            let rows = rows.clone();
            thread::spawn(move || {
                let hold = rows.hold();
                let first = rows.held(&hold).entry_at(0).version;
                thread::yield_now();
                assert_eq!(rows.held(&hold).entry_at(0).version, first, "replaced under a hold");
                assert_eq!(rows.held(&hold).find(b"key", 7).unwrap().version, first, "replaced under a hold");
            })
        };
        let _either = replace(&rows, 2);
        reader.join().unwrap();
        assert_eq!(replace(&rows, 3), Replaced::Done, "nobody holds it any more");
    });
}

#[cfg(any(loom, shuttle))]
mod twins {
    use super::*;
    use crate::explorer::sync::atomic::{AtomicUsize, Ordering};

    /// The two places of a row, exchanged in one order or the other.
    fn places(is_position_first: bool) {
        let places = Arc::new((AtomicUsize::new(1), AtomicUsize::new(1)));
        let reader = {
            let places = places.clone();
            thread::spawn(move || {
                let by_position = places.0.load(Ordering::Acquire);
                let by_hash = places.1.load(Ordering::Acquire);
                assert!(by_position <= by_hash, "found by position, but not by hash");
            })
        };
        if is_position_first {
            places.0.store(2, Ordering::Release);
        }
        places.1.store(2, Ordering::Release);
        places.0.store(2, Ordering::Release);
        reader.join().unwrap();
    }

    #[test]
    #[should_panic(expected = "found by position, but not by hash")]
    fn a_position_that_is_exchanged_first_shows_what_the_hash_does_not() {
        explore(|| places(true));
    }

    #[test]
    fn a_position_that_is_exchanged_last_is_right() {
        explore(|| places(false));
    }

    /// A hold that is taken without the lock that who replaces has.
    fn hold_against_replacement(has_lock: bool) {
        use crate::explorer::sync::Mutex;
        let holds = Arc::new((Mutex::new(()), AtomicUsize::new(0), AtomicUsize::new(1)));
        let reader = {
            let holds = holds.clone();
            thread::spawn(move || {
                {
                    let _lock = has_lock.then(|| holds.0.lock().unwrap());
                    holds.1.fetch_add(1, Ordering::AcqRel);
                }
                let first = holds.2.load(Ordering::Acquire);
                assert_eq!(holds.2.load(Ordering::Acquire), first, "replaced under a hold");
            })
        };
        {
            let _lock = holds.0.lock().unwrap();
            if holds.1.load(Ordering::Acquire) == 0 {
                holds.2.store(2, Ordering::Release);
            }
        }
        reader.join().unwrap();
    }

    #[test]
    #[should_panic(expected = "replaced under a hold")]
    fn a_hold_without_the_lock_comes_in_between() {
        explore(|| hold_against_replacement(false));
    }

    #[test]
    fn a_hold_with_the_lock_does_not() {
        explore(|| hold_against_replacement(true));
    }
}
