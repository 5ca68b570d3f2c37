//! M12, the pile: a key that a scan finds is found by its hash, too, while its table of slots grows.
//!
//! The pile is the real one, with so few slots and places that two keys make both grow. Its nodes and records
//! lie in raw memory, which no explorer sees: that they are whole when a slot leads to them is for miri and
//! the sanitizers to say.
//!
//! The first thread puts, so that it comes first in loom's first run. The other way round loom would try one
//! order only: it knows of an atomic's last access alone, and a writer that loads before it stores covers up
//! what others have loaded.

use kvilt_base::{Direction, KeyRange, Kind, Source, Version};
use kvilt_sync::Pile;

use crate::explorer::{explore, sync::Arc, thread};

/// By their first bits, the last two meet in a table of two.
const KEYS: [(&[u8], u32); 3] = [(b"b", 1 << 30), (b"a", 3 << 30), (b"c", 3 << 30 | 5)];

fn insert(pile: &Pile, (key, hash): (&[u8], u32), version: u64) {
    pile.insert(key, hash, Version::from_u64(version), Kind::Put, 0, b"").unwrap();
}

/// What a scan finds of [`KEYS`], by their numbers.
fn scanned(pile: &Pile) -> Vec<usize> {
    let mut source = pile.source(&KeyRange::all(), Direction::Forward);
    let mut found = Vec::new();
    while let Some(entry) = source.entry() {
        found.push(KEYS.iter().position(|(key, _)| *key == entry.key).expect("one that was inserted"));
        source.advance().unwrap();
    }
    found
}

fn is_found(pile: &Pile, (key, hash): (&[u8], u32)) -> bool {
    pile.may_have(hash) && pile.find(key, hash, |_| true).is_some()
}

/// S-10, S-14.
#[test]
fn a_key_that_a_scan_finds_a_get_finds_too() {
    explore(|| {
        let pile = Arc::new(Pile::with_capacity(4096));
        insert(&pile, KEYS[0], 1);
        let reader = {
            let pile = pile.clone();
            thread::spawn(move || {
                let before = scanned(&pile);
                assert!(before.contains(&0), "a key was lost");
                assert!(before.iter().all(|key| is_found(&pile, KEYS[*key])), "scanned, but not found");
                let after = scanned(&pile);
                assert!(before.iter().all(|key| after.contains(key)), "a scan went back in time");
            })
        };
        KEYS[1..].iter().for_each(|key| insert(&pile, *key, 2));
        reader.join().unwrap();
        assert_eq!(scanned(&pile), [1, 0, 2]);
        assert!(KEYS.iter().all(|key| is_found(&pile, *key)));
    });
}

#[cfg(any(loom, shuttle))]
mod twins {
    use kvilt_sync::{Published, pin};

    use super::*;
    use crate::explorer::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// A pile of slots that are taken or not, and the number of keys that scans know of.
    struct Slots {
        table: Published<Vec<AtomicBool>>,
        arrived: AtomicUsize,
    }

    /// A key is listed before or behind its slot in the table, which grows for it.
    fn scan_against_put(is_listed_last: bool) {
        let slots = Arc::new(Slots { table: Published::new(Vec::new()), arrived: AtomicUsize::new(0) });
        let reader = {
            let slots = slots.clone();
            thread::spawn(move || {
                let arrived = slots.arrived.load(Ordering::Acquire);
                let pin = pin();
                let table = slots.table.load(&pin);
                let is_there = |key: usize| table.get(key).is_some_and(|slot| slot.load(Ordering::Acquire));
                assert!((0..arrived).all(is_there), "scanned, but not found");
            })
        };
        let list = || slots.arrived.store(1, Ordering::Release);
        if !is_listed_last {
            list();
        }
        slots.table.replace(vec![AtomicBool::new(true)]);
        if is_listed_last {
            list();
        }
        reader.join().unwrap();
    }

    #[test]
    #[should_panic(expected = "scanned, but not found")]
    fn a_key_that_is_listed_before_its_slot_is_not_found() {
        explore(|| scan_against_put(false));
    }

    #[test]
    fn a_key_that_is_listed_behind_its_slot_is_found() {
        explore(|| scan_against_put(true));
    }
}
