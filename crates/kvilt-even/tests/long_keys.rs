//! Keys that are nearly all of their rows: what is kept of them in memory and in the manifest does not grow
//! as they do.
//!
//! Alone in its process, as `memory.rs` is.

mod stepped;

use kvilt_base::{Direction, KeyRange, RowBatch};

const BUDGET: u64 = 2 << 20;
const KEYS: u32 = 3000;
const KEY_BYTES: usize = 8 << 10;

fn key(i: u32) -> Vec<u8> {
    [vec![b'p'; KEY_BYTES], i.to_be_bytes().to_vec()].concat()
}

/// Seven hundred megabytes of such keys under a budget of 16 MiB took a gigabyte of memory, most of which was
/// charged to nothing: whole keys for every few kilobytes of a log, for each log's first and last key, for
/// each chunk's bounds. What is charged stays below the budget and a half; the bounds of chunks, which are
/// not charged, are few, for chunks with long bounds are larger.
#[test]
fn long_keys_are_not_kept_whole_everywhere() {
    let (db, budget) = stepped::open(BUDGET);
    let mut most = 0;
    for n in 0..KEYS {
        // In no order, and each twice.
        db.put(&key(n * 1009 % KEYS), &n.to_be_bytes()).unwrap();
        db.put(&key(n * 1009 % KEYS), &n.to_le_bytes()).unwrap();
        most = most.max(budget.used_in_all());
        if n % 500 == 0 {
            db.sync().unwrap();
        }
    }
    let stats = db.stats();
    assert!(most < BUDGET + BUDGET / 2, "{most} bytes were charged");
    let bounds = stats["chunks_now"] * KEY_BYTES as u64;
    let keys = u64::from(KEYS) * KEY_BYTES as u64;
    assert!(
        stats["chunks_now"] > 1 && bounds < keys / 32,
        "{} chunks have {bounds} bytes of bounds",
        stats["chunks_now"]
    );
    assert!(
        stats["manifest_bytes_written"] < keys / 4,
        "{} bytes of manifests",
        stats["manifest_bytes_written"]
    );
    for n in (0..KEYS).step_by(7) {
        let mut found = Vec::new();
        db.get_with(&key(n * 1009 % KEYS), None, &mut |value| found = value.to_vec()).unwrap();
        assert_eq!(found, n.to_le_bytes(), "key {n}");
    }
    for n in 0..KEYS / 2 {
        db.delete(&key(n)).unwrap();
    }
    let view = db.view().unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut rows = RowBatch::new(1 << 30, usize::MAX, true);
        assert!(db.scan(&view, &KeyRange::all(), direction, &mut rows).unwrap().left().is_none());
        assert_eq!(rows.len() as u32, KEYS - KEYS / 2);
    }
    drop(view);
    assert!(db.check(&mut |_| true).unwrap().damages.is_empty());
}
