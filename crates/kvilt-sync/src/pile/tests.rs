//! The pile against a map of versions, and under readers while others insert.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Memory};

use kvilt_base::Source;
use proptest::prelude::*;

use super::*;

fn v(n: u64) -> Version {
    Version::from_u64(n)
}

/// A hash of which only the bits of `mask` differ.
fn hash_in(mask: u32, key: &[u8]) -> u32 {
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 & mask
}

fn hash(key: &[u8]) -> u32 {
    hash_in(u32::MAX, key)
}

#[test]
fn a_single_put_replaces_its_version_and_a_batch_does_not() {
    let list = Pile::with_capacity(4096);
    list.insert(b"k", 5, v(1), Kind::Put, 0, b"a").unwrap();
    list.insert(b"k", 5, v(2), Kind::Put, 0, b"b").unwrap();
    list.insert(b"k", 5, v(2), Kind::Put, 0, b"c").unwrap();
    list.insert(b"k", 5, v(2), Kind::Tombstone, 9, b"").unwrap();
    let mut seen = Vec::new();
    let refused = list.find(b"k", 5, |f| {
        seen.push((f.version.to_u64(), f.batch, f.value));
        false
    });
    assert_eq!(refused, None);
    assert_eq!(seen, [(2, 9, &b""[..]), (2, 0, b"c"), (1, 0, b"a")]);
    assert_eq!(list.find(b"k", 5, |f| f.batch == 0).unwrap().value, b"c");
    assert_eq!(list.find(b"j", 5, |_| true), None);
    assert_eq!(list.len(), 4);
}

#[test]
#[should_panic(expected = "S-12")]
fn a_record_older_than_the_newest_is_a_bug_of_the_caller() {
    let list = Pile::with_capacity(4096);
    list.insert(b"k", 5, v(2), Kind::Put, 0, b"").unwrap();
    let _ = list.insert(b"k", 5, v(1), Kind::Put, 0, b"");
}

/// S-13: to the last byte, and behind it nothing is changed once it is refused.
#[test]
#[cfg_attr(
    miri,
    ignore = "minutes under miri, for it fills every block; the other tests take the same paths"
)]
fn room_that_was_promised_is_there_to_the_last_byte() {
    for capacity in [3000, 100_000, 300_000] {
        let list = Pile::with_capacity(capacity);
        let (mut inserted, mut promised) = (0u64, 0);
        loop {
            let key = format!("{:0width$}", inserted, width = 4 + inserted as usize % 13);
            let large = if inserted % 11 == 3 { capacity / 4 } else { 29 };
            let value = vec![1; inserted as usize * 7919 % large];
            let has_room = list.has_room(Pile::room_for(key.len(), value.len()));
            let (used, len) = (list.used_bytes(), list.len());
            let outcome =
                list.insert(key.as_bytes(), hash(key.as_bytes()), v(1), Kind::Put, inserted % 2, &value);
            assert!(!has_room || outcome.is_ok());
            promised += u64::from(has_room);
            if outcome == Err(Full) {
                assert_eq!((list.used_bytes(), list.len()), (used, len), "nothing was changed");
                assert_eq!(list.find(key.as_bytes(), hash(key.as_bytes()), |_| true), None);
                break;
            }
            inserted += 1;
        }
        assert!(promised > 20 && list.memory_bytes() > list.used_bytes());
        assert_eq!(drain(&list, &KeyRange::all(), Direction::Forward).len() as u64, inserted);
    }
}

/// S-13: so that a batch has room once it was promised for all of it.
#[test]
fn rows_of_all_sizes_have_the_room_that_was_promised_for_their_sum() {
    const SIZES: [usize; 5] = [33_000, 65_500, 40, 70_000, 200_000];
    let value = vec![5; 200_000];
    let sum = (0..40).map(|i| Pile::room_for(8, SIZES[i % 5])).sum();
    let list = Pile::with_capacity(sum);
    assert!(list.has_room(sum) && !list.has_room(sum + 1));
    for i in 0..40u64 {
        let (key, value) = (i.to_be_bytes(), &value[..SIZES[i as usize % 5]]);
        list.insert(&key, hash(&key), v(1), Kind::Put, 3, value).unwrap();
    }
    for i in 0..40u64 {
        let key = i.to_be_bytes();
        assert_eq!(list.find(&key, hash(&key), |_| true).unwrap().value.len(), SIZES[i as usize % 5]);
    }
}

/// A key that is longer than a block, so that its record begins in the next of a row's own.
#[test]
fn a_row_may_be_longer_than_a_block_and_so_may_its_key() {
    let list = Pile::with_capacity(1 << 20);
    let key = vec![7; 65_600];
    list.insert(&key, 7, v(1), Kind::Put, 0, b"one").unwrap();
    list.insert(&key, 7, v(2), Kind::Put, 0, &[2; 100_000]).unwrap();
    list.insert(b"short", hash(b"short"), v(2), Kind::Put, 0, b"").unwrap();
    assert_eq!(list.find(&key, 7, |f| f.version == v(1)).unwrap().value, b"one");
    assert_eq!(list.find(&key, 7, |_| true).unwrap().value, [2; 100_000]);
    assert_eq!(drain(&list, &KeyRange::all(), Direction::Backward).len(), 3);
}

#[test]
fn what_cannot_be_held_is_refused_and_not_cut() {
    let list = Pile::with_capacity(100);
    assert!(list.has_room(100) && !list.has_room(100 + 8));
    assert_eq!(list.insert(b"k", 5, v(1), Kind::Put, 0, &[0; 1 << 20]), Err(Full));
    assert_eq!(Pile::room_for(1 << 24, 0), usize::MAX);
    assert_eq!(Pile::room_for(0, 1 << 28), usize::MAX);
    assert!(!list.has_room(usize::MAX));
    assert_eq!(list.source(&KeyRange::all(), Direction::Backward).entry(), None);
}

/// Place 0 is none, and a slot of zeros is empty: the first row must not be there, whatever its hash.
#[test]
fn a_long_first_row_is_found_by_a_hash_of_zeros() {
    let list = Pile::with_capacity(1 << 20);
    let key = vec![7; 70_000];
    list.insert(&key, 0, v(1), Kind::Put, 0, b"one").unwrap();
    list.insert(&key, 0, v(2), Kind::Put, 0, b"two").unwrap();
    assert_eq!(list.find(&key, 0, |_| true).unwrap().value, b"two");
    assert_eq!(drain(&list, &KeyRange::all(), Direction::Forward).len(), 2);
}

/// S-14: whoever asks for order while keys come has all that came before, sorted or not.
#[test]
fn keys_that_came_are_in_order_whoever_asked_for_it_before() {
    const KEYS: usize = if cfg!(miri) { 60 } else { 600 };
    /// So many of the last are asked for one by one.
    const LAST: usize = if cfg!(miri) { 1 } else { 9 };
    const STEPS: &[usize] = if cfg!(miri) { &[7] } else { &[1, 7, 7919] };
    for step in STEPS {
        let list = Pile::for_prefix(1 << 20, b"key");
        let mut model = std::collections::BTreeSet::new();
        for i in 0..KEYS {
            let key = format!("key{:05}", i * step % KEYS).into_bytes();
            list.insert(&key, hash(&key), v(1), Kind::Put, 0, b"").unwrap();
            model.insert(key);
            if i % 41 == 0 || i + LAST >= KEYS {
                let found = drain(&list, &KeyRange::all(), Direction::Forward);
                assert!(found.iter().map(|entry| &entry.0).eq(&model), "{i} of {step}");
            }
        }
        let mut came = Vec::new();
        list.for_each_key(|key| came.push(key.to_vec()));
        assert!(
            came.iter().enumerate().all(|(i, key)| *key == format!("key{:05}", i * step % KEYS).as_bytes())
        );
        assert!(came.into_iter().collect::<std::collections::BTreeSet<_>>() == model);
        let range = KeyRange::new("key00010".."key00013");
        assert!(list.touches(&range) && !list.touches(&KeyRange::new("key000100".."key000101")));
        let sampled = |range: &KeyRange, count| {
            let mut keys = Vec::new();
            list.sample(range, count, |entry| keys.push(entry.key.to_vec()));
            keys
        };
        let arrived = |key: &Vec<u8>| list.arrivals.between(0, KEYS).position(|a| list.node(a).key() == key);
        let newest = sampled(&KeyRange::all(), 16).iter().map(arrived).max().flatten();
        assert!(newest.is_some_and(|at| at > KEYS * 7 / 8), "{newest:?} of {KEYS}");
        assert_eq!(sampled(&KeyRange::all(), 16).len(), 16);
        assert!(sampled(&KeyRange::all(), 0).is_empty());
        assert!(sampled(&range, 16).iter().all(|key| range.contains(key)));
    }
}

/// Who looks again and again at a few keys that came behind those that are sorted has them sorted in the end.
#[test]
fn keys_that_many_looked_at_are_sorted_for_all() {
    let list = Pile::with_capacity(1 << 20);
    let insert = |i: u32| list.insert(&i.to_be_bytes(), i, v(1), Kind::Put, 0, b"").unwrap();
    (0..100).for_each(insert);
    let sources =
        |count: usize| (0..count).for_each(|_| drop(list.source(&KeyRange::all(), Direction::Forward)));
    sources(1);
    assert_eq!(list.order.sorted().len(), 100);
    (100..110).for_each(insert);
    sources(5);
    assert_eq!(list.order.sorted().len(), 100, "not yet");
    sources(20);
    assert_eq!(list.order.sorted().len(), 110);
}

/// A hash that was not added is mostly known to be none, and one that was is always there.
#[test]
fn most_hashes_that_nobody_added_are_not_there() {
    const KEYS: u32 = if cfg!(miri) { 60 } else { 2000 };
    let list = Pile::with_capacity(1 << 20);
    assert!(!list.may_have(hash(b"a")));
    for i in 0..KEYS {
        let key = i.to_be_bytes();
        list.insert(&key, hash(&key), v(1), Kind::Put, 0, b"").unwrap();
    }
    assert!((0..KEYS).all(|i| list.may_have(hash(&i.to_be_bytes()))));
    assert_eq!((KEYS..KEYS * 10).filter(|i| list.may_have(hash(&i.to_be_bytes()))).count(), 0);
}

#[test]
fn key_heads_order_like_keys() {
    let keys: [&[u8]; 9] = [
        b"",
        b"\0",
        b"\0\0\0\0\0\0\0\0",
        b"\0\0\0\0\0\0\0\0\0",
        b"a",
        b"a\0",
        b"abcdefgh",
        b"abcdefgh\0",
        b"\xff",
    ];
    for prefix in [&b""[..], b"\0", b"a", b"abcdef", b"abcdefgh", b"b", b"\xff\xff"] {
        let list = Pile::for_prefix(4096, prefix);
        for pair in keys.windows(2) {
            assert!(list.head_of(pair[0]) <= list.head_of(pair[1]), "{pair:?} for {prefix:?}");
        }
        for key in keys.iter().rev() {
            list.insert(key, hash(key), v(1), Kind::Put, 0, key).unwrap();
        }
        assert_eq!(drain(&list, &KeyRange::all(), Direction::Forward).len(), keys.len());
        for key in &keys {
            assert_eq!(list.find(key, hash(key), |_| true).unwrap().value, *key);
        }
    }
}

/// Version, batch, kind and value.
type Record = (u64, u64, Kind, Vec<u8>);

type Entry = (Vec<u8>, u64, Kind, Vec<u8>);

fn drain(list: &Pile, range: &KeyRange, direction: Direction) -> Vec<Entry> {
    let mut source = list.source(range, direction);
    let mut entries = Vec::new();
    while let Some(e) = source.entry() {
        entries.push((e.key.to_vec(), e.version.to_u64(), e.kind, e.value.to_vec()));
        source.advance().unwrap();
    }
    entries
}

#[derive(Clone, Debug)]
struct Insert {
    key: Vec<u8>,
    is_later: bool,
    kind: Kind,
    batch: u64,
    value: Vec<u8>,
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0u8, b'a', b'b', 0xff]);
    prop_oneof![
        prop::collection::vec(byte.clone(), 0..4),
        // Behind one key head.
        prop::collection::vec(byte, 0..3).prop_map(|tail| [b"samehead", tail.as_slice()].concat()),
        any::<u16>().prop_map(|n| n.to_be_bytes().to_vec()),
    ]
}

fn inserts() -> impl Strategy<Value = Vec<Insert>> {
    let kind = prop_oneof![3 => Just(Kind::Put), 1 => Just(Kind::Tombstone)];
    let batch = prop_oneof![3 => Just(0u64), 1 => 1..u64::MAX];
    let insert = (keys(), prop::bool::weighted(0.3), kind, batch, prop::collection::vec(any::<u8>(), 0..20));
    let insert =
        insert.prop_map(|(key, is_later, kind, batch, value)| Insert { key, is_later, kind, batch, value });
    prop::collection::vec(insert, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// S-12 and S-14: the pile is the map, in both directions and every range, and finds what the map has.
    #[test]
    #[cfg_attr(miri, ignore = "hours under miri; the other tests take the same paths")]
    fn it_is_a_map_of_versions(
        inserts in inserts(), mask in prop::sample::select(vec![u32::MAX, 3 << 30, 0]), prefix in keys(), bounds in prop::collection::vec((keys(), keys()), 8),
    ) {
        // Whatever its keys are thought to begin with.
        let list = Pile::for_prefix(1 << 20, &prefix);
        // Key → records, oldest first.
        let mut model: BTreeMap<Vec<u8>, Vec<Record>> = BTreeMap::new();
        let mut version = 1;
        for i in &inserts {
            version += u64::from(i.is_later);
            list.insert(&i.key, hash_in(mask, &i.key), v(version), i.kind, i.batch, &i.value).unwrap();
            let records = model.entry(i.key.clone()).or_default();
            if i.batch == 0 {
                records.retain(|record| record.0 != version);
            }
            records.push((version, i.batch, i.kind, i.value.clone()));
        }
        prop_assert_eq!(list.len(), inserts.len());

        let ranges = bounds.iter().flat_map(|(a, b)| {
            [KeyRange { start: a.clone(), end: Some(b.clone()) }, KeyRange { start: a.clone(), end: None },
             KeyRange { start: vec![], end: Some(b.clone()) }, KeyRange::all()]
        });
        for range in ranges {
            let mut expected: Vec<Entry> = model
                .iter()
                .filter(|(key, _)| range.contains(key))
                .flat_map(|(key, records)| {
                    // Of one version, the newest record only.
                    let mut newest: Vec<&Record> = records.iter().rev().collect();
                    newest.dedup_by_key(|record| record.0);
                    newest.into_iter().map(|(version, _, kind, value)| (key.clone(), *version, *kind, value.clone()))
                })
                .collect();
            prop_assert_eq!(&drain(&list, &range, Direction::Forward), &expected);
            expected.reverse();
            prop_assert_eq!(&drain(&list, &range, Direction::Backward), &expected);
        }
        for (key, records) in &model {
            for at in 0..=version {
                let expected = records.iter().rev().find(|r| r.0 <= at);
                let found = list.find(key, hash_in(mask, key), |f| f.version <= v(at));
                let settled = records.iter().rev().find(|r| r.0 <= at && r.1 == 0);
                let found_at = list.find_at(key, hash_in(mask, key), v(at), |batch| batch != 0);
                prop_assert_eq!(found_at.map(|f| (f.version.to_u64(), f.value.to_vec())), settled.map(|r| (r.0, r.3.clone())));
                prop_assert_eq!(
                    found.map(|f| (f.version.to_u64(), f.batch, f.kind, f.value.to_vec())),
                    expected.cloned()
                );
            }
        }
    }
}

/// The value that `key` has at `version`, for readers to check.
fn value_of(key: u64, version: u64) -> Vec<u8> {
    let mut value = (key * 1_000_003 + version).to_le_bytes().to_vec();
    value.resize(8 + (key % 40) as usize, key as u8);
    value
}

fn check_stream(list: &Pile, direction: Direction) -> usize {
    let mut source = list.source(&KeyRange::all(), direction);
    let mut last: Option<(u64, u64)> = None;
    let mut entries = 0;
    while let Some(e) = source.entry() {
        let at = (u64::from_be_bytes(e.key.try_into().unwrap()), e.version.to_u64());
        assert_eq!(e.value, value_of(at.0, at.1));
        if let Some(last) = last {
            let (first, second) = if direction == Direction::Forward { (last, at) } else { (at, last) };
            assert!(
                first.0 < second.0 || (first.0 == second.0 && first.1 > second.1),
                "{last:?} then {at:?}"
            );
        }
        last = Some(at);
        entries += 1;
        source.advance().unwrap();
    }
    entries
}

/// S-10: readers in both directions and by key meet whole records only, in order, and miss none that was
/// inserted before they began, while two threads insert (taking turns).
#[test]
fn readers_meet_whole_records_in_order_while_others_insert() {
    const INSERTS: u64 = if cfg!(miri) { 60 } else { 30_000 };
    const KEYS: u64 = INSERTS / 3;
    let list = Pile::with_capacity(INSERTS as usize * 200);
    let done = [AtomicU64::new(0), AtomicU64::new(0)];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let (list, done) = (&list, &done[writer as usize]);
                s.spawn(move || {
                    for i in 0..INSERTS / 2 {
                        // Each writer has keys of its own; versions rise.
                        let key = (i * 7919 % KEYS) * 2 + writer;
                        list.insert(
                            &key.to_be_bytes(),
                            hash(&key.to_be_bytes()),
                            v(i + 1),
                            Kind::Put,
                            0,
                            &value_of(key, i + 1),
                        )
                        .unwrap();
                        done.store(i + 1, Memory::Release);
                    }
                })
            })
            .collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let (list, done, is_over) = (&list, &done, &is_over);
            s.spawn(move || {
                while !is_over.load(Memory::Acquire) {
                    let before: u64 = done.iter().map(|d| d.load(Memory::Acquire)).sum();
                    assert!(check_stream(list, direction) as u64 >= before);
                    let last = done[0].load(Memory::Acquire);
                    if last > 0 {
                        let key = (last - 1) * 7919 % KEYS * 2;
                        let found = list
                            .find(&key.to_be_bytes(), hash(&key.to_be_bytes()), |_| true)
                            .expect("it was inserted");
                        assert!(found.version >= v(last));
                        assert_eq!(found.value, value_of(key, found.version.to_u64()));
                    }
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        is_over.store(true, Memory::Release);
    });
    assert_eq!(check_stream(&list, Direction::Forward), INSERTS as usize);
}
