//! Range deletes between long keys: what is kept of them does not grow as their keys do.
//!
//! Alone in its process, as `memory.rs` is.

mod stepped;

use kvilt_base::{Direction, KeyRange, RowBatch};

const BUDGET: u64 = 2 << 20;
const KEYS: u64 = 600;
const KEY_BYTES: usize = 16 << 10;

fn key(i: u64) -> Vec<u8> {
    [vec![b'p'; KEY_BYTES], i.to_be_bytes().to_vec()].concat()
}

/// Each range tombstone had two whole keys, in the list of its log, where nobody charged them, and then in
/// its tree: 3,000 range deletes and as many puts with keys of 60 KB took 212 MB under a budget of 16 MiB.
#[test]
fn range_deletes_between_long_keys_take_little_memory() {
    let (db, budget) = stepped::open(BUDGET);
    let (mut most, mut most_indexes) = (0, 0);
    let place = |i: u64| i * 7919 % KEYS;
    for i in 0..KEYS {
        db.put(&key(place(i) * 10), &i.to_be_bytes()).unwrap();
        // Between rows, where it deletes none, and over one that was deleted or is still to come.
        let from = place(i * 31 + 7) * 10;
        db.delete_range(&KeyRange::new(key(from + 1)..key(from + 5))).unwrap();
        db.delete_range(&KeyRange::new(key(place(i) * 10 + 6)..key(place(i) * 10 + 9))).unwrap();
        most = most.max(budget.used_in_all());
        most_indexes = most_indexes.max(db.stats()["log_index_bytes_now"]);
        if i % 100 == 0 {
            db.sync().unwrap();
        }
    }
    let bounds = 4 * KEYS * KEY_BYTES as u64;
    assert!(most_indexes < bounds / 32, "{most_indexes} bytes of indexes and range tombstones");
    assert!(most < BUDGET + BUDGET / 2, "{most} bytes were charged");
    let view = db.view().unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut rows = RowBatch::new(1 << 30, usize::MAX, true);
        assert!(db.scan(&view, &KeyRange::all(), direction, &mut rows).unwrap().left().is_none());
        assert_eq!(rows.len() as u64, KEYS);
    }
    drop(view);
    db.delete_range(&KeyRange::new(key(0)..key(KEYS * 5))).unwrap();
    let view = db.view().unwrap();
    let mut rows = RowBatch::new(1 << 30, usize::MAX, true);
    assert!(db.scan(&view, &KeyRange::all(), Direction::Forward, &mut rows).unwrap().left().is_none());
    assert_eq!(rows.len() as u64, KEYS / 2);
    drop(view);
    assert!(db.check(&mut |_| true).unwrap().damages.is_empty());
}
