//! Scans of logs with long keys, whose orders take as much memory as the logs do.
//!
//! Alone in its process, as `memory.rs` is.

mod stepped;

use std::{ops::ControlFlow, sync::Arc};

use kvilt_base::{Budget, Direction, KeyRange, Rows};

const BUDGET: u64 = 2 << 20;
const KEYS: u32 = 3000;
const KEY_BYTES: usize = 8 << 10;

/// Keys that differ at their ends.
fn alike(i: u32) -> Vec<u8> {
    [vec![b'p'; KEY_BYTES], i.to_be_bytes().to_vec()].concat()
}

/// Keys that have nothing in common.
fn unlike(i: u32) -> Vec<u8> {
    let mut state = u64::from(i).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let noise = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()
    });
    i.to_be_bytes().into_iter().chain(noise.take(KEY_BYTES / 8).flatten()).collect()
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
/// has all keys of its log. And it made those of all logs of a chunk, whatever they took.
#[test]
fn a_scan_of_many_logs_forgets_their_orders_itself() {
    for key in [alike, unlike] {
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
}
