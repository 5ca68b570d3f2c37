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
const PUTS_A_VIEW: u32 = 40;

/// Puts all keys so often, and says how many munks were copied. Where what is put may not take the place of
/// what is there, a view is open that sees that, for a few puts.
fn overwrite(has_views: bool) -> u64 {
    let (db, budget) = stepped::open(BUDGET);
    let (mut over, mut view) = (0, None);
    for i in 0..ROUNDS * KEYS {
        if has_views && i % PUTS_A_VIEW == 0 {
            view = Some(db.view().expect("a store in use"));
        }
        let key = i * STRIDE % KEYS;
        db.put(format!("{key:06}").as_bytes(), &[(i / KEYS) as u8; 500]).expect("there is room");
        over = over.max(budget.used_in_all().saturating_sub(BUDGET));
    }
    drop(view);
    let stats = db.stats();
    println!("{stats:?}");
    assert_eq!(stats["munk_evictions"], 0);
    assert!(over < BUDGET / 2, "{over} bytes over the budget");
    for key in 0..KEYS {
        let found = db.get(format!("{key:06}").as_bytes(), None).expect("a store in use");
        assert_eq!(found.as_deref(), Some(&[(ROUNDS - 1) as u8; 500][..]), "{key}");
    }
    stats["munk_compactions"]
}

/// One test, for the reason above.
#[test]
fn rows_that_fit_are_not_evicted_however_often_they_are_overwritten() {
    let copied = overwrite(true);
    assert!(copied > 20, "nothing had to give way: {copied}");
    let copied = overwrite(false);
    assert!(copied < 20, "rows take each other's places: {copied}");
}
