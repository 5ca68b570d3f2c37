//! What is charged is what is used: rows that take others' places cost no more of the budget than they take.
//!
//! Alone in its process, for the reason that `memory.rs` gives.

mod stepped;

use kvilt_even::parts;

const BUDGET: u64 = 256 << 10;
/// With their values, a third of the budget.
const KEYS: u32 = 400;
const VALUE: usize = 200;
/// Has no divisor in common with the number of keys.
const STRIDE: u32 = 97;

/// Where a row of a run was replaced, the run was charged up to the next multiple of 16 KiB, whatever its
/// size: twice its memory where chunks are as small as a budget like this makes them. Then puts waited
/// hundreds of times for a gauge that nobody brought down, for what was in use was within the budget, and
/// munks were evicted that had room.
#[test]
fn rows_replaced_in_place_are_charged_what_they_take() {
    let (db, budget) = stepped::open(BUDGET);
    let mut most = 0;
    for round in 0..8 {
        for i in 0..KEYS {
            // All over, so that every munk takes some.
            let key = i * STRIDE % KEYS;
            db.put(format!("{key:06}").as_bytes(), &[round; VALUE]).expect("there is room");
            most = most.max(budget.used(parts::MUNKS));
        }
    }
    let stats = db.stats();
    println!("{most} bytes of munks at most, {stats:?}");
    assert!(stats["munks_now"] > 8, "the chunks are too large to show it: {stats:?}");
    assert!(most < BUDGET * 9 / 10, "{most} bytes were charged for munks of {BUDGET}");
    assert_eq!(stats["munk_evictions"], 0, "there was room for all: {stats:?}");
    assert!(stats["stalls_memory"] < 10, "puts waited for room that was there: {stats:?}");
}
