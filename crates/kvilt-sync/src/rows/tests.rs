//! Tests of rows: against a model, and with readers beside who replaces.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering as Memory},
};

use kvilt_base::{Kind, Version};

use super::*;
use crate::published::{Published, pin, settle};

fn hash_of(key: &[u8]) -> u32 {
    // Some keys share a hash.
    key.iter()
        .fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte % 16)))
        .wrapping_mul(0x9e37_79b9)
}

fn row<'a>(key: &'a [u8], version: u64, value: &'a [u8]) -> EntryRef<'a> {
    EntryRef { key, version: Version::from_u64(version), kind: Kind::Put, value }
}

fn rows_of(rows: &[(&[u8], u64, &[u8])]) -> Rows {
    let mut builder = RowsBuilder::new(16).expect("there is memory");
    for &(key, version, value) in rows {
        let is_newest = builder.last().is_none_or(|last| last.key != key);
        builder.push(row(key, version, value), is_newest.then(|| hash_of(key))).expect("there is memory");
    }
    builder.finish()
}

fn replace(rows: &Rows, key: &[u8], version: u64, value: &[u8]) -> Replaced {
    let search = || {
        let pin = pin();
        (0..rows.len()).find(|at| rows.under(&pin).entry_at(*at).key == key).expect("it is there")
    };
    rows.replace(hash_of(key), row(key, version, value), &pin(), |_| true, search)
}

fn all(rows: &Rows) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    let pin = pin();
    let reading = rows.under(&pin);
    let owned = |entry: EntryRef<'_>| (entry.key.to_vec(), entry.version.to_u64(), entry.value.to_vec());
    (0..rows.len()).map(|at| owned(reading.entry_at(at))).collect()
}

/// S-16: as long as somebody has a pin, what it shows stays; then its memory is another row's.
#[test]
fn a_row_stays_as_long_as_a_pin_and_then_its_memory_serves_others() {
    let rows = rows_of(&[(b"a", 1, &[1; 1000]), (b"b", 1, &[1; 1000])]);
    let pinned = pin();
    let first = rows.under(&pinned).entry_at(0);
    for version in 2..=20 {
        assert_eq!(replace(&rows, b"a", version, &[version as u8; 1000]), Replaced::Done);
        assert_eq!((first.version.to_u64(), first.value), (1, &[1; 1000][..]));
    }
    drop(pinned);
    let grown = rows.region_bytes();
    const LAST: u64 = if cfg!(miri) { 40 } else { 399 };
    for version in 21..=LAST {
        while replace(&rows, b"a", version, &[version as u8; 1000]) != Replaced::Done {
            // Other tests' threads may be stopped under a pin.
            settle();
            std::thread::yield_now();
        }
        settle();
    }
    assert!(rows.region_bytes() <= grown + 64 * row_bytes(row(b"a", 0, &[0; 1000])), "{rows:?}");
    assert_eq!(rows.waste_bytes(), 0);
    assert_eq!(all(&rows)[0], (b"a".to_vec(), LAST, vec![LAST as u8; 1000]));
}

/// S-16, for a pin that is older than the rows: it has seen no era in which they were there until it reads
/// them.
#[test]
fn a_pin_that_is_older_than_the_rows_keeps_what_it_reads_of_them() {
    let pinned = pin();
    for _ in 0..10 {
        // Eras go on.
        drop(Published::new(0));
        settle();
    }
    let rows = rows_of(&[(b"a", 1, &[1; 1000]), (b"b", 1, &[1; 1000])]);
    let first = rows.under(&pinned).entry_at(0);
    for version in 2..200 {
        let _either = pinned.apart(|| replace(&rows, b"a", version, &[version as u8; 1000]));
        settle();
        assert_eq!((first.version.to_u64(), first.value), (1, &[1; 1000][..]));
    }
}

/// Whoever has stood still since before the rows were there keeps none of their memory.
#[test]
fn a_pin_that_is_older_than_the_rows_and_does_not_read_them_keeps_none() {
    let stays = pin();
    for _ in 0..10 {
        drop(Published::new(0));
        settle();
    }
    let rows = rows_of(&[(b"a", 1, &[1; 1000])]);
    let grown = rows.region_bytes() + 64 * row_bytes(row(b"a", 0, &[0; 1000]));
    // More than there would be room for.
    for version in 2..if cfg!(miri) { 80 } else { 500 } {
        while stays.apart(|| replace(&rows, b"a", version, &[version as u8; 1000])) != Replaced::Done {
            settle();
            std::thread::yield_now();
        }
    }
    assert!(rows.region_bytes() <= grown + (64 << 10), "{rows:?}");
}

#[test]
fn a_few_long_rows_are_replaced_and_what_never_has_room_need_not_be_waited_for() {
    const BYTES: usize = if cfg!(miri) { 33_000 } else { 70_000 };
    let rows = rows_of(&[(b"a", 1, &[1; BYTES]), (b"b", 1, &[1; BYTES]), (b"c", 1, &[1; 10])]);
    assert_eq!(replace(&rows, b"a", 2, &[2; 3 * BYTES]), Replaced::No);
    for version in 3..20 {
        for key in [b"a", b"b", b"c"] {
            while replace(&rows, key, version, &[version as u8; BYTES]) != Replaced::Done {
                settle();
                std::thread::yield_now();
            }
        }
    }
    assert!(rows.region_bytes() < 5 * BYTES + 1000, "{rows:?}");
}

#[test]
fn a_shortage_is_told_once_each_time_and_ends_with_the_pins() {
    let rows = rows_of(&[(b"a", 1, &[1; 1000])]);
    assert!(!rows.take_shortage());
    let pinned = pin();
    let done =
        (2..).take_while(|&version| replace(&rows, b"a", version, &[2; 1000]) == Replaced::Done).count();
    assert_eq!(done, (64 << 10) / row_bytes(row(b"a", 0, &[0; 1000])));
    assert!(rows.take_shortage() && !rows.take_shortage());
    assert_eq!(replace(&rows, b"a", 1000, &[3; 1000]), Replaced::NoRoom);
    assert!(rows.take_shortage() && !rows.take_shortage());
    drop(pinned);
    while replace(&rows, b"a", 1001, &[4; 1000]) != Replaced::Done {
        settle();
        std::thread::yield_now();
    }
    assert!(!rows.take_shortage());
}

/// S-17.
#[test]
fn who_shares_the_memory_or_holds_it_keeps_every_row_where_it_is() {
    let rows = rows_of(&[(b"a", 2, b"a2"), (b"a", 1, b"a1"), (b"b", 1, b"b1")]);
    let hold = rows.hold();
    assert_eq!(replace(&rows, b"b", 3, b"b3"), Replaced::No);
    let first = rows.first(2, &hold, hash_of);
    drop(hold);
    assert_eq!(
        (replace(&rows, b"b", 3, b"b3"), replace(&first, b"a", 3, b"a3")),
        (Replaced::No, Replaced::No)
    );
    assert_eq!(all(&first), all(&rows)[..2]);
    drop(rows);
    assert_eq!(replace(&first, b"b", 3, b"b3"), Replaced::No, "it has no such key");
    assert_eq!(replace(&first, b"a", 3, b"a3"), Replaced::Done);
    assert_eq!(all(&first), [(b"a".to_vec(), 3, b"a3".to_vec()), (b"a".to_vec(), 1, b"a1".to_vec())]);
}

#[test]
#[should_panic(expected = "of other rows")]
fn a_hold_is_good_for_its_own_rows_only() {
    let hold = rows_of(&[(b"a", 1, b"1")]).hold();
    rows_of(&[(b"a", 1, b"1")]).held(&hold);
}

#[test]
#[should_panic(expected = "is not that of the key's newest row")]
fn a_wrong_position_is_a_bug() {
    let old = rows_of(&[(b"b", 1, b"1")]);
    let rows = {
        let hold = old.hold();
        let mut weaver = RowsWeaver::new(&old, &hold, 1);
        weaver.begin_key(0, hash_of(b"a"));
        assert!(weaver.push(row(b"a", 1, b"1")));
        weaver.finish(old.bytes() * 2, hash_of).0
    };
    drop(old);
    let _ = rows.replace(hash_of(b"b"), row(b"b", 2, b"2"), &pin(), |_| true, || 0);
}

#[test]
#[should_panic(expected = "keys come in order")]
fn an_old_row_is_woven_once() {
    let old = rows_of(&[(b"a", 1, b"1"), (b"b", 1, b"1")]);
    let hold = old.hold();
    let mut weaver = RowsWeaver::new(&old, &hold, 1);
    weaver.begin_key(2, hash_of(b"c"));
    weaver.begin_key(1, hash_of(b"b"));
}

#[test]
#[should_panic(expected = "is kept once")]
fn an_old_row_is_kept_once() {
    let old = rows_of(&[(b"a", 1, b"1")]);
    let hold = old.hold();
    let mut weaver = RowsWeaver::new(&old, &hold, 1);
    weaver.begin_key(0, hash_of(b"a"));
    assert!(weaver.next_old(b"a").is_some());
    weaver.keep();
    weaver.keep();
}

/// Each time a key goes and another comes: buckets that overflow stay marked, until most are and all are made
/// anew.
#[test]
fn keys_that_come_and_go_do_not_crowd_their_hashes() {
    const KEYS: u32 = 16;
    const ROUNDS: u32 = if cfg!(miri) { 30 } else { 1000 };
    // Not `hash_of`: numbers that follow each other would be spread too evenly by a product.
    let spread = |key: &[u8]| {
        let mixed = u32::from_be_bytes(key.try_into().unwrap()).wrapping_mul(0x9e37_79b9);
        (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b)
    };
    let keys: Vec<[u8; 4]> = (0..KEYS).map(u32::to_be_bytes).collect();
    let mut builder = RowsBuilder::new(16).unwrap();
    keys.iter().for_each(|key| builder.push(row(key, 1, b""), Some(spread(key))).unwrap());
    let mut rows = builder.finish();
    for round in 0..ROUNDS {
        let (gone, new) = (round.to_be_bytes(), (round + KEYS).to_be_bytes());
        let woven = {
            let hold = rows.hold();
            let mut weaver = RowsWeaver::new(&rows, &hold, 1);
            weaver.begin_key(0, spread(&gone));
            assert!(weaver.next_old(&gone).is_some());
            weaver.begin_key(KEYS as usize, spread(&new));
            assert!(weaver.push(row(&new, 1, b"")));
            weaver.finish(rows.bytes(), spread).0
        };
        rows = woven;
        assert!(!rows.by_hash.is_crowded(), "round {round}");
        let pin = pin();
        assert!(rows.under(&pin).find(&gone, spread(&gone)).is_none());
        let mut there = round + 1..=round + KEYS;
        assert!(there.all(|key| {
            let key = key.to_be_bytes();
            rows.under(&pin).find(&key, spread(&key)).is_some()
        }));
    }
}

#[test]
fn without_rows_nothing_is_found_or_replaced() {
    let rows = Rows::empty();
    assert!(rows.is_empty() && rows.bytes() == 0 && rows.waste_bytes() == 0 && !rows.is_scattered());
    assert!(rows.under(&pin()).find(b"a", 1).is_none());
    assert_eq!(rows.replace(1, row(b"a", 1, b""), &pin(), |_| true, || 0), Replaced::No);
    assert!(!rows.fetch_row(1) && !rows.fetch_ahead(1, 100));
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..Default::default()
    })]
    /// Rows of all lengths are replaced, held, and woven, and are what a map says.
    #[test]
    fn rows_are_what_a_map_says(
        keys in proptest::collection::btree_set("[a-d]{1,3}", 1..20),
        steps in proptest::collection::vec((0..20usize, 0..3000usize, 0..8u8), 0..if cfg!(miri) { 20 } else { 300 }),
    ) {
        let mut expected: BTreeMap<Vec<u8>, (u64, Vec<u8>)> =
            keys.iter().map(|key| (key.clone().into_bytes(), (1, key.clone().into_bytes()))).collect();
        let keys: Vec<Vec<u8>> = expected.keys().cloned().collect();
        let first: Vec<(&[u8], u64, &[u8])> = keys.iter().map(|key| (&key[..], 1, &key[..])).collect();
        let mut rows = rows_of(&first);
        for (version, (at, len, what)) in (2..).zip(steps) {
            let key = &keys[at % keys.len()];
            let value = vec![version as u8; len];
            match what {
                0 => {
                    // Another row for the key is woven in: the others stay where they are.
                    let woven = {
                        let hold = rows.hold();
                        proptest::prop_assert_eq!(replace(&rows, key, version, b"held"), Replaced::No);
                        let at = keys.iter().position(|other| other == key).unwrap();
                        let mut weaver = RowsWeaver::new(&rows, &hold, 1);
                        weaver.begin_key(at, hash_of(key));
                        let has_room = weaver.push(row(key, version, &value));
                        assert!(weaver.next_old(key).is_some() && weaver.next_old(key).is_none());
                        let bytes = rows.bytes() + value.len() - expected[key].1.len();
                        has_room.then(|| weaver.finish(bytes, hash_of).0)
                    };
                    if let Some(woven) = woven {
                        rows = woven;
                        expected.insert(key.clone(), (version, value));
                    }
                }
                _ => {
                    if replace(&rows, key, version, &value) == Replaced::Done {
                        expected.insert(key.clone(), (version, value));
                    }
                }
            }
            settle();
        }
        let found = all(&rows);
        let wanted: Vec<_> = expected.iter().map(|(key, (version, value))| (key.clone(), *version, value.clone())).collect();
        proptest::prop_assert_eq!(&found, &wanted);
        let bytes: usize = wanted.iter().map(|(key, _, value)| ROW_HEAD_BYTES + key.len() + value.len()).sum();
        proptest::prop_assert_eq!(rows.bytes(), bytes);
        let pin = pin();
        for (key, (version, value)) in &expected {
            let entry = rows.under(&pin).find(key, hash_of(key)).unwrap();
            proptest::prop_assert_eq!((entry.version.to_u64(), entry.value), (*version, &value[..]));
        }
        proptest::prop_assert!(rows.under(&pin).find(b"none", hash_of(b"none")).is_none());
    }
}

/// S-15, S-16, S-18: two threads read by position and by hash beside one that replaces, and see whole rows
/// that never grow older.
#[test]
fn readers_see_whole_rows_that_never_grow_older() {
    const ROUNDS: u64 = if cfg!(miri) { 60 } else { 30_000 };
    let keys: Vec<[u8; 1]> = (b'a'..=b'h').map(|key| [key]).collect();
    let value_of =
        |key: u8, version: u64| vec![key ^ version as u8; 40 + (version as usize * 7 + key as usize) % 50];
    let values: Vec<Vec<u8>> = keys.iter().map(|key| value_of(key[0], 1)).collect();
    let first: Vec<(&[u8], u64, &[u8])> =
        keys.iter().zip(&values).map(|(key, value)| (&key[..], 1, &value[..])).collect();
    let rows = rows_of(&first);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|s| {
        for reader in 0..2usize {
            let (rows, keys, is_over) = (&rows, &keys, &is_over);
            s.spawn(move || {
                // By position, and by hash: who replaces a row may have been stopped when only its hash leads
                // to the new one.
                let mut seen = [[0; 8]; 2];
                let mut at = reader;
                while !is_over.load(Memory::Acquire) {
                    at = (at + 3) % keys.len();
                    let pin = pin();
                    let reading = rows.under(&pin);
                    let by_position = reading.entry_at(at);
                    let by_hash = reading.find(&keys[at], hash_of(&keys[at])).unwrap();
                    assert!(by_position.version <= by_hash.version, "found by position, but not by hash");
                    for (seen, entry) in seen.iter_mut().zip([by_position, by_hash]) {
                        let version = entry.version.to_u64();
                        assert!(version >= seen[at], "it grew older");
                        seen[at] = version;
                        assert_eq!(
                            (entry.key, entry.value),
                            (&keys[at][..], &value_of(keys[at][0], version)[..])
                        );
                    }
                }
            });
        }
        for version in 2..ROUNDS {
            let key = &keys[(version * 5 % 8) as usize];
            while replace(&rows, key, version, &value_of(key[0], version)) != Replaced::Done {
                settle();
                std::thread::yield_now();
            }
        }
        is_over.store(true, Memory::Release);
    });
    assert!(cfg!(miri) || rows.region_bytes() < 256 << 10, "memory was used again: {rows:?}");
}
