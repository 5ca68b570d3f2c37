//! The row cache under one thread, and before registers that writers and readers share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Memory};

use super::*;

fn value(bytes: &[u8]) -> Option<Value> {
    Some(Value::copied(bytes))
}

fn fill(cache: &RowCache, key: &[u8], row: Option<Value>) -> bool {
    cache.fill(cache.ticket(key), key, row)
}

/// S-51.
#[test]
fn a_fill_is_refused_if_its_bucket_was_written_since_the_ticket() {
    let cache = RowCache::new(1 << 20);
    let ticket = cache.ticket(b"k");
    cache.written(b"k", Some(b"new"));
    assert!(!cache.fill(ticket, b"k", value(b"old")));
    assert_eq!(cache.get(b"k"), None);

    assert!(fill(&cache, b"k", value(b"new")));
    assert_eq!(cache.get(b"k"), Some(value(b"new")));
    cache.written(b"k", None);
    assert_eq!(cache.get(b"k"), Some(None), "absence is a row");
}

#[test]
fn a_write_on_its_way_hides_the_row_and_refuses_fills() {
    let cache = RowCache::new(1 << 20);
    assert!(fill(&cache, b"k", value(b"old")));
    let before = cache.ticket(b"k");
    let writing = cache.writing(b"k");
    assert_eq!(cache.get(b"k"), None);
    let meanwhile = cache.ticket(b"k");
    assert!(!cache.fill(meanwhile, b"k", value(b"old")));
    writing.written(Some(b"new"));
    assert_eq!(cache.get(b"k"), Some(value(b"new")));
    assert!(!cache.fill(before, b"k", value(b"old")) && !cache.fill(meanwhile, b"k", value(b"old")));

    drop(cache.writing(b"k"));
    assert_eq!(cache.get(b"k"), None, "a write that gave up leaves nothing behind");
    assert!(fill(&cache, b"k", value(b"new")));
}

#[test]
fn of_two_writes_to_one_key_neither_claims_to_be_the_newest() {
    let cache = RowCache::new(1 << 20);
    assert!(fill(&cache, b"k", value(b"0")));
    let (first, second) = (cache.writing(b"k"), cache.writing(b"k"));
    second.written(Some(b"2"));
    first.written(Some(b"1"));
    assert_eq!(cache.get(b"k"), None);
    cache.written(b"k", Some(b"3"));
    assert_eq!(cache.get(b"k"), None, "what is not cached is not put there by a write");
}

/// S-53.
#[test]
fn the_limit_holds_and_rows_that_are_read_stay() {
    let cache = RowCache::new(1 << 20);
    let key = |i: u32| i.to_be_bytes();
    assert!(!fill(&cache, b"k", value(&vec![0; ROW_BYTES_MAX])));
    let mut hits = 0;
    for i in 0..if cfg!(miri) { 300 } else { 20_000 } {
        assert!(fill(&cache, &key(i), value(&[0; 100])));
        hits += u32::from(cache.get(&key(i % 50)).is_some());
        assert!(cache.bytes() <= 1 << 20);
    }
    assert!(hits > if cfg!(miri) { 250 } else { 19_000 }, "{hits} hits");
    cache.resize(1 << 14);
    assert!(cache.bytes() <= 1 << 14);
    cache.resize(0);
    assert_eq!(cache.bytes(), 0);
    assert!(!fill(&cache, b"k", None));
}

/// A ring lost 28 of 100 gets to as many rows that were read once.
#[test]
fn rows_that_are_read_often_outlive_many_that_are_read_once_and_their_own_writes() {
    let (hot, cold) = if cfg!(miri) { (20, 150) } else { (1000, 40_000_u32) };
    // Each of its shards has room for all that lie in it.
    let cache = RowCache::new((hot as usize * 1024).max(64 << 10));
    let get = |i: u32| {
        let key = i.to_be_bytes();
        let is_there = cache.get(&key).is_some();
        if !is_there {
            assert!(fill(&cache, &key, value(&[0; 300])));
        }
        is_there
    };
    // The cache is full of others, so that it counts.
    let get_all = |keys: std::ops::Range<u32>| keys.filter(|i| get(*i)).count();
    let _ = get_all(hot..hot + cold);
    for _ in 0..8 {
        let _ = get_all(0..hot);
    }
    (0..hot).for_each(|i| cache.writing(&i.to_be_bytes()).written(Some(&[1; 300])));
    let _ = get_all(hot + cold..hot + 2 * cold);
    let hits = get_all(0..hot);
    assert!(hits >= hot as usize * 9 / 10, "{hits} of {hot} rows are left");
}

/// What slots and map of rows that went had was nobody's, and as much again.
#[test]
fn a_limit_that_falls_gives_back_what_rows_had_and_keeps_the_others() {
    let rows = if cfg!(miri) { 200 } else { 100_000_u32 };
    let cache = RowCache::new(rows as usize * 400);
    (0..rows).for_each(|i| assert!(fill(&cache, &i.to_be_bytes(), value(&[0; 8]))));
    let slots = || cache.tables().shards.iter().map(|shard| shard.lock().slots()).sum::<usize>();
    assert_eq!(slots(), rows as usize);
    cache.resize(rows as usize * 16);
    let left = (0..rows).filter(|i| cache.contains(&i.to_be_bytes())).count();
    assert!(left > 0 && slots() <= 4 * left, "{} slots for {left} rows", slots());
    for i in (0..rows).filter(|i| cache.contains(&i.to_be_bytes())) {
        assert_eq!(cache.get(&i.to_be_bytes()), Some(value(&[0; 8])));
    }
    assert!(cache.bytes() <= rows as usize * 16);
}

/// A large row that is counted more often than a small one may be worth less than many small ones.
#[test]
fn a_large_row_takes_the_place_of_many_only_if_it_is_asked_for_more_often_than_all_of_them() {
    let cache = RowCache::new(1 << 20);
    let small = if cfg!(miri) { 100 } else { 8000_u32 };
    for _ in 0..3 {
        for i in 0..small {
            if cache.get(&i.to_be_bytes()).is_none() {
                let _ = fill(&cache, &i.to_be_bytes(), value(&[0; 100]));
            }
        }
    }
    let cached = || (0..small).filter(|i| cache.get(&i.to_be_bytes()).is_some()).count();
    let before = cached();
    assert!(cache.get(b"large").is_none() && fill(&cache, b"large", value(&[0; 32 << 10])));
    let after = cached();
    assert!(after + 10 >= before, "{before} rows before, {after} behind one of 32 KiB");
}

/// S-50. Values of a key rise; a reader that saw one, from the cache or from below, must never see a smaller
/// one again, which is what linearizable means for a register that only rises.
#[test]
fn no_reader_goes_back_in_time() {
    const WRITES: u64 = if cfg!(miri) { 16 } else { 40_000 };
    const KEYS: usize = 3;
    const LIMIT: usize = 1 << 16;
    let cache = RowCache::new(LIMIT);
    let below: [AtomicU64; KEYS] = Default::default();
    // The largest value that some reader has returned, by key.
    let returned: [AtomicU64; KEYS] = Default::default();
    let is_over = AtomicBool::new(false);
    let key = |k: usize| [k as u8];
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let mut k = 0;
                while !is_over.load(Memory::Acquire) {
                    k = (k + 1) % KEYS;
                    let at_least = returned[k].load(Memory::SeqCst);
                    let got = match cache.get(&key(k)) {
                        Some(row) => u64::from_be_bytes(row.unwrap()[..].try_into().unwrap()),
                        None => {
                            let ticket = cache.ticket(&key(k));
                            let got = below[k].load(Memory::SeqCst);
                            cache.fill(ticket, &key(k), value(&got.to_be_bytes()));
                            got
                        }
                    };
                    assert!(got >= at_least, "key {k}: {got} after {at_least}");
                    returned[k].fetch_max(got, Memory::SeqCst);
                }
            });
        }
        for i in 1..=WRITES {
            let k = i as usize % KEYS;
            let key = key(k);
            let writing = cache.writing(&key);
            below[k].store(i, Memory::SeqCst);
            writing.written(Some(&i.to_be_bytes()));
            // With nothing cached a reader goes below and fills, against the next write.
            if i % 7 == 0 {
                cache.resize(0);
                cache.resize(LIMIT);
            }
        }
        is_over.store(true, Memory::Release);
    });
}
