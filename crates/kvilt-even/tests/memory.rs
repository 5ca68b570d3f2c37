//! Row 17: one number bounds the memory; over it munks are evicted first, and writers slowed then.
//!
//! Alone in its process: memory that was replaced is counted until no thread of the process can still read
//! it, so tests beside this one would change its figures.

mod stepped;

use kvilt_base::{Direction, KeyRange, RowBatch};

const BUDGET: u64 = 256 << 10;
const KEYS: u32 = 6000;
/// Has no divisor in common with the number of keys.
const STRIDE: u32 = 997;

/// Sixteen times the budget is written, with views held that keep old versions. What is counted stays below
/// twice the budget although the background moves only when a put waits: munks go, and when that is not
/// enough, puts wait. Every row is there all the same.
#[test]
fn over_the_budget_munks_are_evicted_and_then_writers_wait() {
    let (db, budget) = stepped::open(BUDGET);
    let mut most = 0;
    let mut views = Vec::new();
    for i in 0..16 * BUDGET as u32 / 512 {
        // All over, so that every munk takes some: what comes in order only needs the last one.
        let key = i * STRIDE % KEYS;
        db.put(format!("{key:06}").as_bytes(), &[7; 500]).unwrap();
        if i % 1000 == 0 {
            views.push(db.view().unwrap());
        }
        most = most.max(budget.used_in_all());
    }
    let stats = db.stats();
    println!("{most} bytes at most, {} evictions, {} waits", stats["munk_evictions"], stats["stalls_memory"]);
    assert!(stats["munk_evictions"] > 0, "nothing was evicted");
    assert!(stats["stalls_memory"] > 0, "no writer waited");
    assert!(most < 2 * BUDGET, "{most} bytes of {BUDGET}");
    drop(views);
    let view = db.view().unwrap();
    let mut rows = RowBatch::new(64 << 20, usize::MAX, true);
    assert!(db.scan(&view, &KeyRange::all(), Direction::Forward, &mut rows).unwrap().left().is_none());
    assert_eq!(rows.len(), KEYS as usize);
    assert!(db.check(&mut |_| true).unwrap().damages.is_empty());
}
