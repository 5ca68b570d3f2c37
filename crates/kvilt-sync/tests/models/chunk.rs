//! M2, M3, M6 and M8, what meets in a chunk: puts, gets, and the background that changes what the chunk
//! consists of.
//!
//! One key, or one count, stands for a chunk's entries; files, tables and the pile are left out. What is
//! real: published states, the log's write buffer, versions, the row cache; the gate is a lock, as in the
//! engine.

use kvilt_base::{Value, Version};
use kvilt_sync::{AppendBuffer, Published, RowCache, Versions, pin};

use crate::explorer::{
    explore,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// M2, put against rebalance, and S-2: a state that is loaded brings what its builder wrote. Puts go to the
/// part that the published state names, under the gate; a rebalance first diverts them (flips the state to a
/// new part), then merges what is frozen, then publishes the merged table. An entry is in exactly one place
/// at every moment.
fn put_against_rebalance(loads_under_the_gate: bool) {
    struct State {
        /// Which of the two parts is active.
        active: usize,
        /// What the merge made of part 0; none before.
        table: Option<usize>,
    }
    let gate = Arc::new(Mutex::new(()));
    let parts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let state = Arc::new(Published::new(State { active: 0, table: None }));
    let putter = {
        let (gate, parts, state) = (gate.clone(), parts.clone(), state.clone());
        thread::spawn(move || {
            let pin = pin();
            let before = (!loads_under_the_gate).then(|| state.load(&pin));
            let turn = gate.lock().unwrap();
            // The state is loaded under the gate: loaded before, it may name a part already merged.
            let part = &parts[before.unwrap_or_else(|| state.load(&pin)).active];
            part.store(part.load(Ordering::Relaxed) + 1, Ordering::Release);
            drop(turn);
        })
    };
    let rebalancer = {
        let (gate, parts, state) = (gate.clone(), parts.clone(), state.clone());
        thread::spawn(move || {
            let turn = gate.lock().unwrap();
            state.replace(State { active: 1, table: None });
            drop(turn);
            let merged = parts[0].load(Ordering::Acquire);
            let turn = gate.lock().unwrap();
            state.replace(State { active: 1, table: Some(merged) });
            drop(turn);
        })
    };
    let count = || {
        let pin = pin();
        let state = state.load(&pin);
        let old = state.table.unwrap_or_else(|| parts[0].load(Ordering::Acquire));
        old + if state.active == 1 { parts[1].load(Ordering::Acquire) } else { 0 }
    };
    let meanwhile = count();
    assert!(meanwhile <= 1);
    putter.join().unwrap();
    let after_put = count();
    assert_eq!(after_put, 1, "a put was lost or doubled by the rebalance");
    rebalancer.join().unwrap();
    assert_eq!(count(), 1, "a put was lost or doubled by the rebalance");
}

#[test]
fn a_diverted_put_is_in_the_old_part_or_the_new_exactly_once() {
    explore(|| put_against_rebalance(true));
}

/// M6, put and get against split. Chunk 0 is split: chunk 1 takes its place. A put that found chunk 0 through
/// the stale index sees under the gate that it is retired, and looks again. A get through the stale index may
/// read chunk 0, which is frozen by then, and still is linearizable: it returns what was there when the index
/// was loaded, or later.
fn split_against_put_and_get(checks_retired: bool) {
    struct Chunk {
        gate: Mutex<bool>,
        value: AtomicUsize,
    }
    let chunk = || Chunk { gate: Mutex::new(false), value: AtomicUsize::new(0) };
    let chunks = Arc::new([chunk(), chunk()]);
    let index = Arc::new(Published::new(0usize));
    let putter = {
        let (chunks, index) = (chunks.clone(), index.clone());
        thread::spawn(move || {
            loop {
                let found = *index.load(&pin());
                let is_retired = chunks[found].gate.lock().unwrap();
                if *is_retired && checks_retired {
                    continue;
                }
                chunks[found].value.store(1, Ordering::Release);
                break;
            }
        })
    };
    let splitter = {
        let (chunks, index) = (chunks.clone(), index.clone());
        thread::spawn(move || {
            let mut is_retired = chunks[0].gate.lock().unwrap();
            chunks[1].value.store(chunks[0].value.load(Ordering::Relaxed), Ordering::Relaxed);
            // Published before the gate opens: who then meets the retired chunk finds its successor.
            index.replace(1);
            *is_retired = true;
        })
    };
    let read = || chunks[*index.load(&pin())].value.load(Ordering::Acquire);
    let (first, second) = (read(), read());
    assert!(second >= first, "a get went back in time");
    putter.join().unwrap();
    assert_eq!(read(), 1, "a put through a stale index was lost");
    splitter.join().unwrap();
    assert_eq!(read(), 1, "a put through a stale index was lost");
}

/// What engine even calls E-2: a retired chunk does not change, and whoever still finds it is right to read
/// it.
#[test]
fn a_put_through_a_stale_index_is_not_lost_and_gets_do_not_go_back() {
    explore(|| split_against_put_and_get(true));
}

const KEY: &[u8] = b"k";

/// A chunk without a munk: a log, its index (where the newest record of the one key lies), and cached rows.
struct Cold {
    gate: Mutex<()>,
    versions: std::sync::Arc<Versions>,
    log: AppendBuffer,
    /// Offset of the newest record, plus one; 0 for none.
    index: AtomicUsize,
    rows: RowCache,
}

impl Cold {
    fn new() -> Arc<Self> {
        let rows = RowCache::new(1 << 20);
        let ticket = rows.ticket(KEY);
        rows.fill(ticket, KEY, Some(Value::copied(&[0])));
        let versions = Versions::new(Version::new(1, 0));
        Arc::new(Cold {
            gate: Mutex::new(()),
            versions,
            log: AppendBuffer::new(8),
            index: AtomicUsize::new(0),
            rows,
        })
    }

    /// The steps of a put: all under the gate, so that log, index and row cache see puts in one order.
    fn put(&self, value: u8, takes_gate: bool) {
        let turn = takes_gate.then(|| self.gate.lock().unwrap());
        let writing = self.rows.writing(KEY);
        let pending = self.versions.announce();
        let offset = self.log.append(&[value]).unwrap();
        self.index.store(offset + 1, Ordering::Release);
        writing.written(Some(&[value]));
        drop(pending);
        drop(turn);
    }

    fn newest_in_log(&self) -> u8 {
        match self.index.load(Ordering::Acquire) {
            0 => 0,
            next => self.log.read()[next - 1],
        }
    }
}

/// M3: two puts of one key, mostly at one version; the later in the log is the newest everywhere.
fn two_puts_of_one_key(take_gate: bool) {
    let chunk = Cold::new();
    let other = {
        let chunk = chunk.clone();
        thread::spawn(move || chunk.put(1, take_gate))
    };
    chunk.put(2, take_gate);
    other.join().unwrap();
    let last = *chunk.log.read().last().unwrap();
    assert_eq!(chunk.newest_in_log(), last, "log and index disagree about the newest put");
    if let Some(row) = chunk.rows.get(KEY) {
        assert_eq!(row.unwrap()[0], last, "log and row cache disagree about the newest put");
    }
}

#[test]
fn two_puts_of_one_key_are_in_one_order_everywhere() {
    explore(|| two_puts_of_one_key(true));
}

/// What a chunk consists of: with a munk its newest value is there, without one the index says where in the
/// log.
#[derive(Clone)]
struct Form {
    munk: Option<Arc<AtomicUsize>>,
    index: Option<Arc<AtomicUsize>>,
}

struct Changing {
    gate: Mutex<()>,
    form: Published<Form>,
    log: AppendBuffer,
}

impl Changing {
    fn new(has_munk: bool) -> Arc<Self> {
        let cell = Some(Arc::new(AtomicUsize::new(0)));
        let form = if has_munk { Form { munk: cell, index: None } } else { Form { munk: None, index: cell } };
        Arc::new(Changing { gate: Mutex::new(()), form: Published::new(form), log: AppendBuffer::new(8) })
    }

    fn put(&self, value: u8) {
        let turn = self.gate.lock().unwrap();
        let pin = pin();
        let form = self.form.load(&pin);
        let offset = self.log.append(&[value]).unwrap();
        if let Some(munk) = &form.munk {
            munk.store(value.into(), Ordering::Release);
        }
        if let Some(index) = &form.index {
            index.store(offset + 1, Ordering::Release);
        }
        drop(turn);
    }

    fn get(&self) -> usize {
        let pin = pin();
        let form = self.form.load(&pin);
        if let Some(munk) = &form.munk {
            return munk.load(Ordering::Acquire);
        }
        let next = form.index.as_ref().unwrap().load(Ordering::Acquire);
        self.value_below(next)
    }

    /// The newest value among the first `records`.
    fn value_below(&self, records: usize) -> usize {
        if records == 0 { 0 } else { self.log.read()[records - 1].into() }
    }

    /// The index is built while puts go on; under the gate it is caught up, and only then the munk goes.
    fn evict(&self, catches_up: bool) {
        let upto = {
            let _turn = self.gate.lock().unwrap();
            self.log.len()
        };
        let index = Arc::new(AtomicUsize::new(upto));
        let _turn = self.gate.lock().unwrap();
        if catches_up {
            index.store(self.log.len(), Ordering::Relaxed);
        }
        self.form.replace(Form { munk: None, index: Some(index) });
    }

    /// The munk is read from the log while puts go on; under the gate it is caught up, and only then read
    /// from.
    fn load(&self, catches_up: bool) {
        let upto = {
            let _turn = self.gate.lock().unwrap();
            self.log.len()
        };
        let munk = Arc::new(AtomicUsize::new(self.value_below(upto)));
        let _turn = self.gate.lock().unwrap();
        if catches_up {
            munk.store(self.value_below(self.log.len()), Ordering::Relaxed);
        }
        self.form.replace(Form { munk: Some(munk), index: None });
    }
}

/// M8: puts 1 and 2, then gets, while the munk goes or comes.
fn put_against_change(has_munk: bool, catches_up: bool) {
    let chunk = Changing::new(has_munk);
    let background = {
        let chunk = chunk.clone();
        thread::spawn(move || if has_munk { chunk.evict(catches_up) } else { chunk.load(catches_up) })
    };
    for value in 1..=2 {
        chunk.put(value);
        assert_eq!(chunk.get(), value.into(), "a put was lost while a munk came or went");
    }
    background.join().unwrap();
    assert_eq!(chunk.get(), 2, "a put was lost while a munk came or went");
}

#[test]
fn no_put_is_lost_when_a_munk_is_evicted() {
    explore(|| put_against_change(true, true));
}

#[test]
fn no_put_is_lost_when_a_munk_is_loaded() {
    explore(|| put_against_change(false, true));
}

#[cfg(any(loom, shuttle))]
mod twins {
    use super::*;

    #[test]
    #[should_panic(expected = "a put was lost or doubled by the rebalance")]
    fn a_put_that_loads_the_state_before_the_gate_is_lost() {
        explore(|| put_against_rebalance(false));
    }

    #[test]
    #[should_panic(expected = "disagree about the newest put")]
    fn puts_without_the_gate_are_in_different_orders() {
        explore(|| two_puts_of_one_key(false));
    }

    #[test]
    #[should_panic(expected = "a put through a stale index was lost")]
    fn a_put_that_trusts_a_stale_index_is_lost() {
        explore(|| split_against_put_and_get(false));
    }

    #[test]
    #[should_panic(expected = "a put was lost while a munk came or went")]
    fn an_eviction_that_does_not_catch_up_loses_a_put() {
        explore(|| put_against_change(true, false));
    }

    #[test]
    #[should_panic(expected = "a put was lost while a munk came or went")]
    fn a_load_that_does_not_catch_up_loses_a_put() {
        explore(|| put_against_change(false, false));
    }
}
