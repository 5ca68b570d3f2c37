//! What a range delete leaves behind, and what it asks for.

use std::sync::{Arc, atomic::Ordering};

use kvilt_base::{KeyRange, Version, steps::take_steps};
use kvilt_io::{Keep, MemoryDisk};
use kvilt_sync::published::pin;

use crate::{
    bed,
    chunk::{Chunk, put::Change},
    funk::log::IfFull,
    munk::Munk,
    options::Options,
    store::Store,
};

fn open(disk: &Arc<MemoryDisk>) -> Arc<Store> {
    bed::open(disk.clone(), &Options::default())
}

fn put(store: &Store, key: u32) {
    let key = key.to_be_bytes();
    store.apply_one(Change { key: &key, value: Some(&[7; 40]) }, IfFull::Fail).unwrap();
}

fn delete(store: &Store, keys: std::ops::Range<u32>) {
    let range =
        KeyRange { start: keys.start.to_be_bytes().to_vec(), end: Some(keys.end.to_be_bytes().to_vec()) };
    store.apply_delete_range(&range, IfFull::GrowForDeletes).unwrap();
}

fn has(store: &Store, key: u32) -> bool {
    store.get(&key.to_be_bytes(), Version::NEWEST, &mut |_| {}).unwrap()
}

fn only_chunk(store: &Store) -> Arc<Chunk> {
    Arc::clone(store.index.load(&pin()).find(b""))
}

fn munk_of(chunk: &Chunk) -> Arc<Munk> {
    Arc::clone(chunk.state(&pin()).munk.as_ref().expect("a new store's chunk has one"))
}

/// Neither a record nor a range tombstone, as often as it comes; and after a crash it is all the same.
#[test]
fn a_range_delete_that_deletes_nothing_writes_nothing() {
    let disk = MemoryDisk::new(1);
    let store = open(&disk);
    let log_bytes = || only_chunk(&store).state(&pin()).funk.log_bytes();
    (0..100).filter(|key| key % 10 != 5).for_each(|key| put(&store, key));
    let before = log_bytes();
    (0..1_000).for_each(|i| delete(&store, i * 10 % 100 + 5..i * 10 % 100 + 6));
    (0..1_000).for_each(|_| delete(&store, 200..u32::MAX));
    assert_eq!((log_bytes(), munk_of(&only_chunk(&store)).tombstones.bytes()), (before, 0));
    // Of the rows that it deletes some are there the first time only, and one comes back.
    delete(&store, 20..30);
    let once = log_bytes();
    assert!(once > before);
    (0..1_000).for_each(|_| delete(&store, 20..30));
    assert_eq!(log_bytes(), once);
    put(&store, 25);
    assert!(has(&store, 25) && !has(&store, 26));
    store.checkpoint_now(false).unwrap();
    let with_row = log_bytes();
    delete(&store, 20..30);
    assert!(log_bytes() > with_row && !has(&store, 25));
    let rows_of = |store: &Store| (0..100).filter(|key| has(store, *key)).count();
    assert_eq!((rows_of(&store), rows_of(&open(&disk.crash_image(Keep::SyncedOnly)))), (81, 82));
}

/// Each takes a few steps more, none asks for a copy of the munk until they cover much of it; and who looks
/// for a row beside them takes a few steps, in the munk and, once that is gone, in the log.
#[test]
fn of_many_range_deletes_each_and_every_get_beside_them_takes_a_few_steps() {
    let disk = MemoryDisk::new(1);
    let store = open(&disk);
    (0..20_000).for_each(|key| put(&store, key));
    let chunk = only_chunk(&store);
    take_steps();
    let deletes_from = |from: u32| {
        (from..from + 1_000).for_each(|i| {
            let start = i * 7_919 % 2_000 * 10;
            delete(&store, start..start + 1);
        });
        take_steps() / 1_000
    };
    let (early, late) = (deletes_from(0), deletes_from(1_000));
    assert!(late <= 400 && late <= early + early / 2, "{early} and then {late} steps");
    assert_eq!(chunk.heat.deletes.load(Ordering::Relaxed), 2_000 * 16);
    let gets = || {
        take_steps();
        let rows = (0..2_000).filter(|i| has(&store, i * 10 + 1) && !has(&store, i * 10)).count();
        (rows, take_steps() / 4_000)
    };
    let (rows, mean_steps) = gets();
    assert!(rows == 2_000 && mean_steps <= 40, "{rows} rows, {mean_steps} steps");
    store.checkpoint_now(false).unwrap();
    let again = open(&disk.crash_image(Keep::SyncedOnly));
    assert!(only_chunk(&again).state(&pin()).munk.is_none());
    assert!(!has(&again, 0));
    take_steps();
    let rows = (0..2_000).filter(|i| has(&again, i * 10 + 1) && !has(&again, i * 10)).count();
    let mean_steps = take_steps() / 4_000;
    assert!(rows == 2_000 && mean_steps <= 40, "{rows} rows, {mean_steps} steps");
}

/// A munk is copied for its range tombstones when they cover much of it, when scans have passed by what they
/// cover, and when nobody writes; not for each of them.
#[test]
fn a_munk_is_copied_for_what_range_tombstones_cover_and_not_for_their_number() {
    let disk = MemoryDisk::new(1);
    let store = open(&disk);
    (0..20_000).for_each(|key| put(&store, key));
    let chunk = only_chunk(&store);
    let occupied = chunk.try_occupy().unwrap();
    store.compact_munk(&occupied).unwrap();
    let is_due = || store.are_tombstones_due(&chunk, &munk_of(&chunk));
    (0..500).for_each(|i| delete(&store, i * 40..i * 40 + 2));
    assert!(!is_due(), "they cover a twentieth");
    // As if nobody had written for a while.
    let puts = chunk.heat.puts.swap(0, Ordering::Relaxed);
    assert!(is_due());
    chunk.heat.puts.store(puts, Ordering::Relaxed);
    delete(&store, 0..8_000);
    assert!(is_due());
    store.compact_munk(&occupied).unwrap();
    assert!(munk_of(&chunk).tombstones.is_empty() && !is_due());
    assert_eq!((0..20_000).filter(|key| has(&store, *key)).count(), 12_000 - 300 * 2);
}
