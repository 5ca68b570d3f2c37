//! Values that are large against the budget: one at a time is in memory, and no munk takes them.
//!
//! Alone in its process, as `memory.rs` is.

mod stepped;

use kvilt_base::{Direction, KeyRange, RowBatch};

const BUDGET: u64 = 1 << 20;
const VALUE: usize = 2 << 20;

/// Each value went into a munk, a buffer, a copy for the thread, and the merges of the background: a store of
/// values of 64 MiB took twenty of them. What is charged stays below the budget and one value, with the
/// background that reads them included.
#[test]
fn values_larger_than_the_budget_are_in_memory_one_at_a_time() {
    let (db, budget) = stepped::open(BUDGET);
    let key = |i: u32| format!("blob/{:03}", i * 37 % 100);
    let mut most = 0;
    for i in 0..60 {
        db.put(key(i).as_bytes(), &vec![i as u8; VALUE]).unwrap();
        most = most.max(budget.used_in_all());
    }
    let allowed = BUDGET + BUDGET / 8 + VALUE as u64 + (64 << 10);
    assert!(most <= allowed, "{most} bytes were charged, {allowed} are allowed");
    let stats = db.stats();
    assert!(stats["munk_bytes_now"] <= BUDGET, "a munk has {} bytes", stats["munk_bytes_now"]);
    assert!(stats["stalls_memory"] > 0, "no put waited for the munk to go");
    for i in 0..60 {
        let mut found = None;
        db.get_with(key(i).as_bytes(), None, &mut |value| found = Some((value[0], value.len()))).unwrap();
        assert_eq!(found, Some((i as u8, VALUE)), "{}", key(i));
    }
    let view = db.view().unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut rows = RowBatch::new(1 << 30, usize::MAX, true);
        assert!(db.scan(&view, &KeyRange::all(), direction, &mut rows).unwrap().left().is_none());
        assert_eq!(rows.len(), 60);
    }
    drop(view);
    assert!(db.check(&mut |_| true).unwrap().damages.is_empty());
}
