//! A reader keeps what it found. What comes and goes beside it, from other threads or from its own code, is
//! freed as if it were not there; and what waited for it is freed when it ends.
//!
//! Alone in its process: what waits for readers is counted for all stores of a process. One test, for the
//! same reason.

mod stepped;

use std::ops::ControlFlow;

use kvilt_base::{Direction, Engine, KeyRange, Scanned, key::successor};
use kvilt_sync::waiting;

const BUDGET: u64 = 1 << 20;
/// With what logs need, half of the budget.
const KEYS: u32 = 400;
const ROUNDS: u32 = 60;
/// What a thread retires between two collections, and some that were retired since.
const UNCOLLECTED_MAX: u64 = 200;

fn key(number: u32) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

fn fill(db: &dyn Engine, value: u8) {
    (0..KEYS).for_each(|number| db.put(&key(number), &[value; 500]).expect("there is room"));
}

/// What puts, range deletes and sorts replace beside a reader; most that was counted meanwhile.
fn overwrite(db: &dyn Engine, used: impl Fn() -> u64) -> (u64, u64) {
    let mut most = (0, 0);
    for round in 1..=ROUNDS {
        // What is there may not be replaced in place, so that it is sorted anew, and replaced as a whole.
        let view = db.view().expect("a store in use");
        fill(db, round as u8);
        drop(view);
        let odd = KeyRange { start: key(round), end: Some(successor(&key(round))) };
        db.delete_range(&odd).expect("there is room");
        most = (most.0.max(used()), most.1.max(waiting().bytes));
    }
    most
}

#[test]
fn a_reader_keeps_what_it_found_and_its_memory_returns_when_it_ends() {
    let (db, budget) = stepped::open(BUDGET);
    fill(&*db, 0);
    let before = db.stats()["munk_bytes_now"];

    // A get whose reader takes its time.
    let mut most = (0, 0);
    let is_found = db.get_with(&key(KEYS - 1), None, &mut |value| {
        most = overwrite(&*db, || budget.used_in_all());
        assert_eq!(value, [0; 500], "it reads what it found");
    });
    assert!(is_found.expect("a store in use"));
    println!(
        "get: {before} bytes before, most used and waiting: {most:?}, {:?}",
        db.stats()["munk_compactions"]
    );
    assert!(db.stats()["munk_compactions"] > u64::from(ROUNDS / 4), "little was replaced");
    assert!(most.0 < 2 * BUDGET, "{most:?} of {BUDGET}");
    assert!(0 < most.1 && most.1 < 2 * before, "{most:?}, and {before} when it began");
    kvilt_sync::settle();
    assert_eq!(waiting().values, 0, "the reader has ended");

    // A scan whose reader deletes what it is shown.
    let view = db.view().expect("a store in use");
    let (mut shown, mut most) = (0, 0);
    let all = KeyRange::all();
    let left = db.scan(&view, &all, Direction::Forward, &mut |key: &[u8], _value: &[u8]| {
        let shown_alone = KeyRange { start: key.to_vec(), end: Some(successor(key)) };
        db.delete_range(&shown_alone).expect("there is room");
        (shown, most) = (shown + 1, most.max(waiting().values));
        ControlFlow::Continue(())
    });
    assert_eq!(left.expect("a store in use"), Scanned::Ended);
    println!("scan: {shown} rows, at most {most} values waiting");
    assert!(shown >= u64::from(KEYS - 1), "{shown} of {KEYS}");
    assert!(most < UNCOLLECTED_MAX, "{most} values, of {shown} deletes");
    drop(view);
    kvilt_sync::settle();
    assert_eq!(waiting().values, 0, "the reader has ended");
}
