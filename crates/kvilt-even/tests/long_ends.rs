//! Keys that differ in the middle, and go on for long: where chunks and files begin is kept without what
//! follows.
//!
//! Alone in its process, as `memory.rs` is.

mod stepped;

use kvilt_base::{Direction, KeyRange, RowBatch};

const BUDGET: u64 = 1 << 20;
const KEYS: u32 = 1500;
const PART_BYTES: usize = 8 << 10;

fn key(i: u32) -> Vec<u8> {
    let middle = i.wrapping_mul(0x9e37_79b9).to_be_bytes();
    [&[b'p'; PART_BYTES], middle.as_slice(), &[b'q'; PART_BYTES]].concat()
}

/// Chunks began with whole keys, and a small budget made them small: 8,000 such keys of 60 KB under one
/// megabyte were 821 chunks, whose bounds and files' first and last keys took 400 MB. Each chunk that was
/// written to had a buffer for one such key, too.
#[test]
fn chunks_do_not_begin_with_whole_keys() {
    let (db, _budget) = stepped::open(BUDGET);
    let mut most_buffers = 0;
    for i in 0..KEYS {
        db.put(&key(i), &i.to_be_bytes()).unwrap();
        most_buffers = most_buffers.max(db.stats()["log_buffer_bytes_now"]);
    }
    assert!(most_buffers < BUDGET / 8, "{most_buffers} bytes of buffers");
    db.sync().unwrap();
    let (stats, layout) = (db.stats(), db.layout().unwrap());
    let starts: Vec<usize> = layout.ranges.iter().map(|range| range.keys.start.len()).collect();
    assert!(starts.len() > 3, "{} chunks", starts.len());
    assert!(starts.iter().all(|len| *len < PART_BYTES + 16), "{starts:?}");
    let keys = u64::from(KEYS) * 2 * PART_BYTES as u64;
    assert!(stats["chunks_now"] * (PART_BYTES as u64) < keys / 64, "{} chunks", stats["chunks_now"]);
    for i in (0..KEYS).step_by(7) {
        let mut found = Vec::new();
        db.get_with(&key(i), None, &mut |value| found = value.to_vec()).unwrap();
        assert_eq!(found, i.to_be_bytes(), "key {i}");
    }
    let view = db.view().unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut rows = RowBatch::new(1 << 30, usize::MAX, true);
        assert!(db.scan(&view, &KeyRange::all(), direction, &mut rows).unwrap().left().is_none());
        assert_eq!(rows.len() as u32, KEYS);
    }
    drop(view);
    assert!(db.check(&mut |_| true).unwrap().damages.is_empty());
}
