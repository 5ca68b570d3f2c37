//! Scans of logs with long keys, whose orders take as much memory as the logs do.
//!
//! Alone in its process, as `memory.rs` is.

mod stepped;

use std::{ops::ControlFlow, sync::Arc};

use kvilt_base::{Budget, Direction, KeyRange, Rows};

const BUDGET: u64 = 2 << 20;
const KEYS: u32 = 3000;
const KEY_BYTES: usize = 8 << 10;

fn key(i: u32) -> Vec<u8> {
    [vec![b'p'; KEY_BYTES], i.to_be_bytes().to_vec()].concat()
}

/// Counts rows, and what is charged at each.
struct Watched {
    budget: Arc<Budget>,
    rows: u32,
    most: u64,
}

impl Rows for Watched {
    fn take(&mut self, _key: &[u8], _value: &[u8]) -> ControlFlow<()> {
        self.rows += 1;
        self.most = self.most.max(self.budget.used_in_all());
        ControlFlow::Continue(())
    }

    fn wanted(&self) -> Option<u64> {
        None
    }
}

/// A scan put one log after the other in order, faster than the background forgot the orders, each of which
/// has all keys of its log.
#[test]
fn a_scan_of_many_logs_forgets_their_orders_itself() {
    let (db, budget) = stepped::open(BUDGET);
    for n in 0..KEYS {
        db.put(&key(n * 1009 % KEYS), &n.to_be_bytes()).unwrap();
    }
    let view = db.view().unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut watched = Watched { budget: Arc::clone(&budget), rows: 0, most: 0 };
        assert!(db.scan(&view, &KeyRange::all(), direction, &mut watched).unwrap().left().is_none());
        assert_eq!(watched.rows, KEYS);
        assert!(watched.most < BUDGET + BUDGET / 2, "{} bytes were charged", watched.most);
    }
}
