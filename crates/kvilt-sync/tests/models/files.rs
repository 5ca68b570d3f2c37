//! M6, second half: what a rebalance replaced is removed only when nobody can read it any more (E-8).
//!
//! A file is a flag, the chunk's state the number of its file and a hold on it. The pin under which a reader
//! takes its hold is a lock here: it lasts as long, and the pinned state cannot go away before. The manifest
//! names the new file from the beginning; that it names no old one is what a sweep waits for, and modelled
//! with the checkpoint.

use crate::explorer::{
    explore,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

#[derive(Clone)]
struct State {
    file: usize,
    /// The file outlives every hold.
    _hold: Arc<()>,
}

struct Store {
    state: Mutex<State>,
    exists: [AtomicBool; 2],
    /// The sweep's own hold on the first file: one more than readers and states have.
    known: Arc<()>,
}

fn sweep_against_reader(asks_holds: bool) {
    let known = Arc::new(());
    let store = Arc::new(Store {
        state: Mutex::new(State { file: 0, _hold: known.clone() }),
        exists: [AtomicBool::new(true), AtomicBool::new(true)],
        known,
    });
    let reader = {
        let store = store.clone();
        thread::spawn(move || {
            let state = store.state.lock().unwrap().clone();
            for _ in 0..2 {
                let exists = store.exists[state.file].load(Ordering::Acquire);
                assert!(exists, "a file was removed under its reader");
            }
        })
    };
    *store.state.lock().unwrap() = State { file: 1, _hold: Arc::new(()) };
    let is_held = Arc::strong_count(&store.known) > 1;
    if !(asks_holds && is_held) {
        store.exists[0].store(false, Ordering::Release);
    }
    reader.join().unwrap();
    assert_eq!(Arc::strong_count(&store.known), 1, "what is held for ever is never removed");
}

#[test]
fn a_file_outlives_its_readers() {
    explore(|| sweep_against_reader(true));
}

#[cfg(any(loom, shuttle))]
mod twins {
    use super::*;

    #[test]
    #[should_panic(expected = "a file was removed under its reader")]
    fn a_sweep_that_asks_nobody_removes_a_file_under_its_reader() {
        explore(|| sweep_against_reader(false));
    }
}
