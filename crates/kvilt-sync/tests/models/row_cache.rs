//! M4, the row cache: no fill and no hit brings back a row that a put has replaced (D3).
//!
//! Logs and tables are one atomic: what a get finds below the cache.

use kvilt_base::Value;
use kvilt_sync::RowCache;

use crate::explorer::{
    explore,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
};

const KEY: &[u8] = b"k";

struct Store {
    cache: RowCache,
    /// The row as the chunk has it; rises from 0.
    below: AtomicU8,
}

impl Store {
    fn new() -> Arc<Self> {
        Arc::new(Store { cache: RowCache::new(1 << 20), below: AtomicU8::new(0) })
    }

    fn read(&self, is_ticket_first: bool) -> u8 {
        if let Some(row) = self.cache.get(KEY) {
            return row.expect("never absent")[0];
        }
        let before = is_ticket_first.then(|| self.cache.ticket(KEY));
        let found = self.below.load(Ordering::Acquire);
        let ticket = before.unwrap_or_else(|| self.cache.ticket(KEY));
        self.cache.fill(ticket, KEY, Some(Value::copied(&[found])));
        found
    }

    fn put(&self, value: u8, is_announced: bool) {
        if is_announced {
            let writing = self.cache.writing(KEY);
            self.below.store(value, Ordering::Release);
            writing.written(Some(&[value]));
        } else {
            self.below.store(value, Ordering::Release);
            self.cache.written(KEY, Some(&[value]));
        }
    }
}

/// After a put, what is cached is its value: the promise of both forms of writing.
fn fill_against_put(is_ticket_first: bool, is_announced: bool) {
    let store = Store::new();
    let reader = {
        let store = store.clone();
        thread::spawn(move || {
            store.read(is_ticket_first);
        })
    };
    store.put(1, is_announced);
    assert_eq!(store.read(true), 1, "a stale row was cached");
    reader.join().unwrap();
    assert_eq!(store.read(true), 1, "a stale row was cached");
}

#[test]
fn a_fill_never_leaves_a_stale_row() {
    explore(|| fill_against_put(true, true));
}

#[test]
fn a_fill_never_leaves_a_stale_row_with_written_alone() {
    explore(|| fill_against_put(true, false));
}

/// S-50: reads by two threads, one after the other, do not go back, also while the put is on its way.
fn reads_against_put(is_announced: bool) {
    let store = Store::new();
    let seen = Arc::new(AtomicU8::new(0));
    let putter = {
        let store = store.clone();
        thread::spawn(move || store.put(1, is_announced))
    };
    let reader = {
        let (store, seen) = (store.clone(), seen.clone());
        thread::spawn(move || {
            let found = store.read(true);
            seen.fetch_max(found, Ordering::AcqRel);
        })
    };
    let at_least = seen.load(Ordering::Acquire);
    let found = store.read(true);
    assert!(found >= at_least, "a read went back in time");
    let at_least = found.max(seen.load(Ordering::Acquire));
    assert!(store.read(true) >= at_least, "a read went back in time");
    putter.join().unwrap();
    reader.join().unwrap();
}

#[test]
fn reads_do_not_go_back_while_a_put_is_on_its_way() {
    explore(|| reads_against_put(true));
}

#[cfg(any(loom, shuttle))]
mod twins {
    use super::*;

    #[test]
    #[should_panic(expected = "a stale row was cached")]
    fn a_ticket_taken_after_the_read_leaves_a_stale_row() {
        explore(|| fill_against_put(false, true));
    }

    #[test]
    #[should_panic(expected = "a read went back in time")]
    fn with_written_alone_a_read_may_go_back_during_the_put() {
        explore(|| reads_against_put(false));
    }
}
