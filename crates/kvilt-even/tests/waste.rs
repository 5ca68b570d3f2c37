//! Where all rows have room in memory, none of them gives way to what nobody can see any more.
//!
//! Alone in its process, for the reason that `memory.rs` gives.

mod stepped;

const BUDGET: u64 = 1 << 20;
/// With what logs need, three quarters of the budget.
const KEYS: u32 = 800;
/// Has no divisor in common with the number of keys.
const STRIDE: u32 = 997;
const ROUNDS: u32 = 20;

#[test]
fn rows_that_fit_are_not_evicted_however_often_they_are_overwritten() {
    let (db, budget) = stepped::open(BUDGET);
    let mut over = 0;
    for i in 0..ROUNDS * KEYS {
        let key = i * STRIDE % KEYS;
        db.put(format!("{key:06}").as_bytes(), &[(i / KEYS) as u8; 500]).unwrap();
        over = over.max(budget.used_in_all().saturating_sub(BUDGET));
    }
    let stats = db.stats();
    println!("{stats:?}");
    assert!(stats.munk_compactions > 20, "nothing had to give way");
    assert_eq!(stats.munk_evictions, 0);
    assert!(over < BUDGET / 2, "{over} bytes over the budget");
    for key in 0..KEYS {
        let found = db.get(format!("{key:06}").as_bytes(), None).unwrap();
        assert_eq!(found.as_deref(), Some(&[(ROUNDS - 1) as u8; 500][..]), "{key}");
    }
}
