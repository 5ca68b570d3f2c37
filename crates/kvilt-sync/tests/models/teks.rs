//! M17 to M21, the table of engine `teks`: a move in the hash against lookups, weavers against scans, a
//! record that goes against views, its room against readers, a seal against puts.
//!
//! The table is the real one, its links included: with slots by themselves instead of buckets, two lanes, two
//! hands and two levels, so that a few keys meet everything. Left out: nodes and records lie in raw memory,
//! which no explorer sees; the queue is one under a lock; and no explorer drops what waits for pins, so M20
//! has records of its own over the real eras.

use std::ops::Range;

use kvilt_base::{Direction, EntryRef, KeyRange, Kind, Source, Version};
use kvilt_sync::{
    Versions, pin,
    teks::{Readers, Refused, TeksOptions, TeksSteps, TeksTable},
};

use crate::explorer::{explore, sync::Arc, thread};

/// No view is open, no batch in flight.
#[derive(Clone, Copy)]
struct Nobody;

impl Readers for Nobody {
    fn is_viewed(&self, _versions: Range<Version>) -> bool {
        false
    }

    fn is_in_flight(&self, _batch: u64) -> bool {
        false
    }
}

/// By the key's letter: its first choice, and how far apart the others are, in quarters of the table.
fn hash(_: &[u8; 16], key: &[u8]) -> u64 {
    let (first, step) = match key[0] {
        // Slots 0, 2, 0, 2.
        b'a' => (0, 2),
        // Slot 0 four times.
        b'b' => (0, 0),
        // Slots 2, 3, 0, 1.
        b'c' => (2, 1),
        letter => (u64::from(letter) % 4, 1),
    };
    first << 62 | step << 30 | u64::from(key[0]) << 1 | 1
}

fn table() -> Arc<TeksTable> {
    let options = TeksOptions { arena_bytes: 640, slots: 4, hash_key: [0; 16], steps: TeksSteps::default() };
    Arc::new(TeksTable::hashed_by(&options, hash).unwrap())
}

fn put(table: &TeksTable, key: &[u8], version: u64) -> Result<(), Refused> {
    let entry = EntryRef { key, version: Version::from_u64(version), kind: Kind::Put, value: b"v" };
    table.put(entry, 0, &Nobody)
}

fn is_found(table: &TeksTable, key: &[u8]) -> bool {
    table.under(&pin()).get(key, Version::NEWEST, &Nobody).is_some()
}

fn scanned(table: &TeksTable, direction: Direction) -> Vec<u8> {
    let pin = pin();
    let mut source = table.under(&pin).rows(&KeyRange::all(), direction, Version::NEWEST, Nobody);
    let mut found = Vec::new();
    while let Some(entry) = source.entry() {
        found.push(entry.key[0]);
        source.advance().unwrap();
    }
    found
}

/// M17, T-2: `b` needs the slot of `a`, and `a` that of `c`.
#[test]
fn a_key_in_motion_is_found() {
    explore(|| {
        let table = table();
        put(&table, b"a", 1).unwrap();
        put(&table, b"c", 1).unwrap();
        let reader = {
            let table = table.clone();
            thread::spawn(move || {
                assert!(is_found(&table, b"a"), "a key in motion is not found");
                assert!(is_found(&table, b"c"), "a key in motion is not found");
            })
        };
        put(&table, b"b", 1).unwrap();
        assert!(is_found(&table, b"b"), "a key that was put is not found");
        reader.join().unwrap();
        assert!([b"a", b"b", b"c"].iter().all(|key| is_found(&table, *key)));
    });
}

/// M17: two threads bring one key that needs a move, and each finds it.
#[test]
fn a_key_that_two_bring_comes_in_once() {
    explore(|| {
        let table = table();
        put(&table, b"a", 1).unwrap();
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                put(&table, b"b", 1).unwrap();
                assert!(is_found(&table, b"b") && is_found(&table, b"a"));
            })
        };
        put(&table, b"b", 1).unwrap();
        assert!(is_found(&table, b"b") && is_found(&table, b"a"));
        other.join().unwrap();
        assert_eq!(table.len(), 2, "a key came in twice");
        assert_eq!(scanned(&table, Direction::Forward), b"ab");
    });
}

/// M18, T-3: a weaver and a scan share what is queued.
#[test]
fn a_scan_has_what_was_put_before_it() {
    explore(|| {
        let table = table();
        put(&table, b"c", 1).unwrap();
        put(&table, b"a", 1).unwrap();
        let reader = {
            let table = table.clone();
            thread::spawn(move || {
                assert_eq!(scanned(&table, Direction::Forward), b"ac", "a key is not in a scan");
            })
        };
        table.weave(2);
        reader.join().unwrap();
        assert_eq!(scanned(&table, Direction::Backward), b"ca");
    });
}

/// M18: beside two that link one node another one comes in before it, and is in a scan behind its put.
#[test]
fn nodes_that_come_in_side_by_side_lose_none() {
    explore(|| {
        let table = table();
        put(&table, b"c", 1).unwrap();
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                put(&table, b"a", 1).unwrap();
                assert!(scanned(&table, Direction::Forward).starts_with(b"a"), "a key is not in a scan");
            })
        };
        table.weave(1);
        other.join().unwrap();
        assert_eq!(scanned(&table, Direction::Forward), b"ac");
        assert_eq!(scanned(&table, Direction::Backward), b"ca");
    });
}

/// M19, T-5: what a view sees does not change, and it sees something.
#[test]
fn a_record_that_a_view_sees_does_not_go() {
    explore(|| {
        let (table, versions) = (table(), Versions::new(Version::from_u64(1)));
        put(&table, b"a", 1).unwrap();
        let reader = {
            let (table, versions) = (table.clone(), versions.clone());
            thread::spawn(move || {
                let view = versions.open_view();
                let seen = || {
                    let pin = pin();
                    let found = table.under(&pin).get(b"a", view.version(), &*versions);
                    found.expect("a view lost its record").value.to_vec()
                };
                let first = seen();
                assert_eq!(seen(), first, "a view has changed");
            })
        };
        let pending = versions.announce();
        let entry = EntryRef { key: b"a", version: pending.version(), kind: Kind::Put, value: b"w" };
        table.put(entry, 0, &*versions).unwrap();
        drop(pending);
        reader.join().unwrap();
    });
}

/// M21, T-6: a put that was done is in the table that is sealed, and one that was refused is not.
#[test]
fn a_put_is_done_before_the_seal_or_refused() {
    explore(|| {
        let table = table();
        let sealer = {
            let table = table.clone();
            thread::spawn(move || {
                table.seal();
                let rows = |direction| {
                    let reading = table.sealed().expect("it was sealed above");
                    let source = reading.versions(&KeyRange::all(), direction, Nobody);
                    source.entry().map(|entry| entry.key.to_vec())
                };
                let first = rows(Direction::Forward);
                assert_eq!(rows(Direction::Backward), first, "a sealed table has changed");
                first.is_some()
            })
        };
        let is_done = put(&table, b"a", 1).is_ok();
        assert_eq!(sealer.join().unwrap(), is_done, "a put was lost, or done behind the seal");
    });
}

mod room {
    //! M20, T-7: records that went wait together, over the real eras; a reader walks from one to the next.

    use kvilt_sync::eras::{Eras, Reach};

    use super::*;
    use crate::explorer::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// Records 1 and 2 of a key, the newer one first; a put of record 3 takes both out.
    struct Key {
        eras: Eras,
        birth: u64,
        newest: AtomicUsize,
        is_free: Arc<[AtomicBool; 4]>,
    }

    /// A batch of spans.
    struct Batch(Arc<[AtomicBool; 4]>);

    impl Drop for Batch {
        fn drop(&mut self) {
            [1, 2].iter().for_each(|record: &usize| self.0[*record].store(true, Ordering::Relaxed));
        }
    }

    /// What is done wrong.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) enum Flaw {
        None,
        /// The records wait before no link leads to them.
        WaitsEarly,
        /// The reader has no pin.
        NoPin,
    }

    pub(super) fn reader_against_put(flaw: Flaw) {
        let eras = Eras::beginning_at(1);
        let birth = eras.now();
        let is_free = Arc::new(std::array::from_fn(|_| AtomicBool::new(false)));
        let key = Arc::new(Key { eras, birth, newest: AtomicUsize::new(2), is_free });
        let reader = {
            let key = key.clone();
            thread::spawn(move || {
                let at = key.eras.take();
                if flaw != Flaw::NoPin {
                    at.enter(&key.eras);
                    at.cover(&key.eras, key.birth);
                }
                // From the newest record to older ones; behind the third there is none.
                let newest = key.newest.load(Ordering::Acquire);
                let mut records = (1..=newest).rev().filter(|_| newest < 3);
                let is_written = |record: usize| key.is_free[record].load(Ordering::Relaxed);
                assert!(!records.any(is_written), "a record was written under a reader");
                if flaw != Flaw::NoPin {
                    at.leave();
                }
            })
        };
        let go = || key.eras.retire(0, key.birth, 1, Box::new(Batch(Arc::clone(&key.is_free))));
        if flaw == Flaw::WaitsEarly {
            go();
            drop(key.eras.collect(Reach::Some { thread: 0, turn: 0 }));
        }
        key.newest.store(3, Ordering::Release);
        if flaw != Flaw::WaitsEarly {
            go();
        }
        drop(key.eras.collect(Reach::Some { thread: 0, turn: 0 }));
        reader.join().unwrap();
        drop(key.eras.collect(Reach::All));
        assert!(key.is_free[1].load(Ordering::Relaxed), "room is lost");
    }

    #[test]
    fn room_is_written_to_behind_its_readers() {
        explore(|| reader_against_put(Flaw::None));
    }
}

#[cfg(any(loom, shuttle))]
mod twins {
    use super::{
        room::{Flaw, reader_against_put},
        *,
    };
    use crate::explorer::sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    };

    #[test]
    #[should_panic(expected = "a record was written under a reader")]
    fn records_that_wait_before_they_are_unlinked_are_written_under_a_reader() {
        explore(|| reader_against_put(Flaw::WaitsEarly));
    }

    #[test]
    #[should_panic(expected = "a record was written under a reader")]
    fn a_reader_without_a_pin_keeps_nothing() {
        explore(|| reader_against_put(Flaw::NoPin));
    }

    /// A key moves from the first slot to the second, where another takes its place; one or the other first.
    fn lookup_against_move(is_written_first: bool) {
        let slots = Arc::new([AtomicUsize::new(1), AtomicUsize::new(0)]);
        let reader = {
            let slots = slots.clone();
            thread::spawn(move || {
                let is_found = slots.iter().any(|slot| slot.load(Ordering::Acquire) == 1);
                assert!(is_found, "a key in motion is not found");
            })
        };
        let [write, overwrite] = [(1, 1), (0, 2)];
        let steps = if is_written_first { [write, overwrite] } else { [overwrite, write] };
        steps.iter().for_each(|&(slot, key): &(usize, usize)| slots[slot].store(key, Ordering::Release));
        reader.join().unwrap();
    }

    #[test]
    #[should_panic(expected = "a key in motion is not found")]
    fn a_slot_that_is_overwritten_first_hides_its_key() {
        explore(|| lookup_against_move(false));
    }

    #[test]
    fn a_key_that_is_written_first_is_found() {
        explore(|| lookup_against_move(true));
    }

    /// A key moves to an earlier choice, which the reader has passed.
    #[test]
    #[should_panic(expected = "a key in motion is not found")]
    fn a_key_that_moves_to_an_earlier_choice_is_missed() {
        explore(|| {
            let slots = Arc::new([AtomicUsize::new(0), AtomicUsize::new(1)]);
            let reader = {
                let slots = slots.clone();
                thread::spawn(move || {
                    let is_found = slots.iter().any(|slot| slot.load(Ordering::Acquire) == 1);
                    assert!(is_found, "a key in motion is not found");
                })
            };
            slots[0].store(1, Ordering::Release);
            slots[1].store(2, Ordering::Release);
            reader.join().unwrap();
        });
    }

    /// A scan that looks whether the queue is empty, and whether as many nodes were woven as were queued, as
    /// the paper's code does; of two weavers the second is done before the first.
    #[test]
    #[should_panic(expected = "a key is not in a scan")]
    fn a_count_of_what_was_woven_is_no_prefix() {
        explore(|| {
            let queue = Arc::new(Mutex::new(vec![1, 0]));
            let linked = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
            let weave = |queue: &Mutex<Vec<usize>>, linked: &[AtomicBool; 2]| {
                let node = queue.lock().unwrap().pop();
                node.into_iter().for_each(|node| linked[node].store(true, Ordering::Release));
            };
            let weaver = {
                let (queue, linked) = (queue.clone(), linked.clone());
                thread::spawn(move || weave(&queue, &linked))
            };
            weave(&queue, &linked);
            // What a scan does: the queue is empty, and it looks at nobody's hands.
            if queue.lock().unwrap().is_empty() {
                let is_whole = linked.iter().all(|node| node.load(Ordering::Acquire));
                assert!(is_whole, "a key is not in a scan");
            }
            weaver.join().unwrap();
        });
    }

    /// The put asks nobody whether a view needs what it takes out.
    #[test]
    #[should_panic(expected = "a view lost its record")]
    fn without_asking_for_views_a_record_goes_that_one_sees() {
        explore(|| {
            let (table, versions) = (table(), Versions::new(Version::from_u64(1)));
            put(&table, b"a", 1).unwrap();
            let reader = {
                let (table, versions) = (table.clone(), versions.clone());
                thread::spawn(move || {
                    let view = versions.open_view();
                    let pin = pin();
                    let found = table.under(&pin).get(b"a", view.version(), &*versions);
                    assert!(found.is_some(), "a view lost its record");
                })
            };
            let pending = versions.announce();
            put(&table, b"a", pending.version().to_u64()).unwrap();
            drop(pending);
            reader.join().unwrap();
        });
    }

    /// A seal that waits for no put.
    #[test]
    #[should_panic(expected = "done behind the seal")]
    fn a_seal_that_does_not_wait_is_overtaken() {
        explore(|| {
            let (is_sealed, rows) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let sealer = {
                let (is_sealed, rows) = (is_sealed.clone(), rows.clone());
                thread::spawn(move || {
                    is_sealed.store(true, Ordering::Release);
                    let before = rows.load(Ordering::Acquire);
                    assert_eq!(rows.load(Ordering::Acquire), before, "done behind the seal");
                })
            };
            if !is_sealed.load(Ordering::Acquire) {
                rows.store(1, Ordering::Release);
            }
            sealer.join().unwrap();
        });
    }
}
