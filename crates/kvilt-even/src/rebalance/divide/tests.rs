//! Cold chunks with long logs: what was written once is divided, what was written over is rewritten.

use std::sync::Arc;

use kvilt_base::Version;
use kvilt_io::{Keep, MemoryDisk};
use kvilt_sync::published::pin;

use crate::{bed, chunk::put::Change, funk::log::IfFull, options::Options, store::Store};

/// Rows that make a cold log too long for `Options::tiny`, and are too few for a put to wait.
const ROWS: usize = 120;

/// A store whose only chunk is cold, on a disk of its own.
fn cold_store() -> (Arc<MemoryDisk>, Arc<Store>) {
    let disk = MemoryDisk::new(1);
    let store = bed::open(disk.clone(), &Options::tiny());
    put(&store, &key(0), "before");
    store.checkpoint_now(false).unwrap();
    reopened(&disk)
}

/// As after a power cut.
fn reopened(disk: &MemoryDisk) -> (Arc<MemoryDisk>, Arc<Store>) {
    let image = disk.crash_image(Keep::SyncedOnly);
    (image.clone(), bed::open(image, &Options::tiny()))
}

fn key(i: usize) -> String {
    format!("key{i:04}")
}

fn put(store: &Store, key: &str, value: &str) {
    store.apply_one(Change { key: key.as_bytes(), value: Some(value.as_bytes()) }, IfFull::Fail).unwrap();
}

fn value_of(store: &Store, key: &str) -> Option<String> {
    let mut value = None;
    let mut found = |bytes: &[u8]| value = Some(String::from_utf8(bytes.to_vec()).unwrap());
    store.get(key.as_bytes(), Version::NEWEST, &mut found).unwrap();
    value
}

fn value(i: usize) -> String {
    format!("{i:0100}")
}

/// Does what the chunk of the first key needs; says whether that was anything.
fn attend(store: &Store) -> bool {
    let chunk = Arc::clone(store.index.load(&pin()).find(b""));
    store.attend(&chunk.try_occupy().unwrap()).unwrap()
}

fn chunks(store: &Store) -> usize {
    store.index.load(&pin()).chunks().len()
}

#[test]
fn rows_that_were_written_once_are_not_written_again() {
    let (disk, store) = cold_store();
    for i in 0..ROWS {
        put(&store, &key(i), &value(i));
    }
    assert!(attend(&store));
    assert!(chunks(&store) > 2, "{} chunks", chunks(&store));
    assert_eq!(store.counters.table_bytes_written.sum(), 0);
    assert!(!attend(&store), "its share of the files is small enough");
    let is_whole = |store: &Store| (0..ROWS).all(|i| value_of(store, &key(i)) == Some(value(i)));
    assert!(is_whole(&store));
    put(&store, &key(0), "behind");
    store.checkpoint_now(false).unwrap();
    let (_, left) = reopened(&disk);
    assert_eq!(chunks(&left), chunks(&store));
    assert_eq!(value_of(&left, &key(0)).as_deref(), Some("behind"));
    put(&left, &key(0), &value(0));
    assert!(is_whole(&left));
}

#[test]
fn rows_that_were_written_over_are_rewritten_and_so_are_those_of_a_chunk_that_was() {
    let (_disk, store) = cold_store();
    let fill = |rows: usize| (0..ROWS).for_each(|i| put(&store, &key(i % rows), &value(i)));
    fill(ROWS / 6);
    assert!(attend(&store));
    let written = store.counters.table_bytes_written.sum();
    assert!(written > 0, "to free the rest");
    fill(ROWS);
    while attend(&store) {}
    assert!(store.counters.table_bytes_written.sum() > written, "once written over, always");
    assert!((0..ROWS).all(|i| value_of(&store, &key(i)) == Some(value(i))));
}
