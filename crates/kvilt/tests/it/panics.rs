//! Row 20: a panic in code of the user's, called by the store or calling it, is the user's own. It is passed
//! on, nothing stays held, and everybody else goes on.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use kvilt::{Db, Durability, Env};

/// More than there are places for announced puts (128): one that leaked each time would be missed.
const PANICS: u32 = 150;
const ROWS: u32 = 4000;

fn open(path: &std::path::Path, durability: Durability) -> Db {
    let env = Env::new(1 << 20).unwrap();
    Db::builder(path).env(&env).durability(durability).open().unwrap()
}

const MODES: [Durability; 2] = [Durability::Async { interval: Duration::from_millis(20) }, Durability::Sync];

/// More rows than fit into memory, so that gets find theirs in munks, logs and tables.
fn filled(path: &std::path::Path, durability: Durability) -> Db {
    let db = open(path, durability);
    for from in (0..ROWS).step_by(100) {
        let mut batch = kvilt::WriteBatch::new();
        for i in from..from + 100 {
            batch.put(key(i), [7; 700]);
        }
        db.write(batch).unwrap();
    }
    db.sync().unwrap();
    db
}

fn key(i: u32) -> String {
    format!("{:05}", i % ROWS)
}

/// Runs what panics, many times, while another thread writes, reads, scans and syncs; then everything must
/// still work, after a reopen too.
fn everybody_else_goes_on(panics: impl Fn(&Db, u32)) {
    for durability in MODES {
        let dir = tempfile::tempdir().unwrap();
        let db = filled(dir.path(), durability);
        let other = db.clone();
        std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                for i in 0..PANICS {
                    other.put(format!("other{i}"), "x").unwrap();
                    assert_eq!(other.get(key(i * 31)).unwrap().unwrap().len(), 700);
                    assert_eq!(other.range(key(i)..).limit(10).count(), 10);
                    if i % 10 == 0 {
                        other.sync().unwrap();
                    }
                }
            });
            for i in 0..PANICS {
                let panicked = catch_unwind(AssertUnwindSafe(|| panics(&db, i)));
                let panic = panicked.unwrap_err();
                assert_eq!(
                    panic.downcast_ref::<&str>(),
                    Some(&"the user's own"),
                    "it is passed on as it was"
                );
            }
            other.join().unwrap();
        });
        assert_eq!(db.stats().open_views_now, 0, "no view stays open");
        db.put("after", "1").unwrap();
        assert_eq!(db.iter().count(), (ROWS + PANICS + 1) as usize);
        assert!(db.check().unwrap().damages.is_empty());
        db.sync().unwrap();
        db.close().unwrap();
        drop(db);
        assert_eq!(open(dir.path(), durability).iter().count(), (ROWS + PANICS + 1) as usize);
    }
}

#[test]
fn a_panic_while_a_value_is_looked_at_releases_everything() {
    everybody_else_goes_on(|db, i| {
        db.get_with(key(i * 97), |bytes| {
            assert_eq!(bytes.len(), 700);
            std::panic::panic_any("the user's own");
        })
        .unwrap();
    });
}

#[test]
fn a_panic_while_a_value_of_a_snapshot_is_looked_at_releases_everything() {
    everybody_else_goes_on(|db, i| {
        db.snapshot().get_with(key(i * 97), |_| std::panic::panic_any("the user's own")).unwrap();
    });
}

#[test]
fn a_panic_while_a_value_is_updated_releases_everything() {
    everybody_else_goes_on(|db, i| {
        db.update(key(i * 97), |_| -> Option<Vec<u8>> { std::panic::panic_any("the user's own") }).unwrap();
    });
}

#[test]
fn a_panic_in_the_middle_of_a_scan_releases_everything() {
    everybody_else_goes_on(|db, i| {
        for (n, row) in db.range(key(i)..).rev().enumerate() {
            row.unwrap();
            assert!(n < 20);
            if n == (i % 20) as usize {
                std::panic::panic_any("the user's own");
            }
        }
    });
}

#[test]
fn a_panic_while_a_check_tells_how_far_it_is_releases_everything() {
    everybody_else_goes_on(|db, _| {
        db.check_with(|_| std::panic::panic_any("the user's own")).unwrap();
    });
}
