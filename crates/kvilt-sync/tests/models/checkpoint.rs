//! M7, checkpoint against puts and the switch to another log: whatever is at or below the cut is durable when
//! the checkpoint is, and so is, one checkpoint later, whatever was written meanwhile.
//!
//! A log is the versions of its records, a file the count of them that were synced, the manifest the number
//! of the last log that it names. What is real: versions, the published state; gate, structure lock, writer
//! lock and the list of dirty logs are locks, as in the engine. Left out: buffers, I/O, failures.

use kvilt_base::Version;
use kvilt_sync::{Published, Versions, pin};

use crate::explorer::{
    explore,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

struct Log {
    /// Versions of the records, under the writer lock.
    records: Mutex<Vec<u64>>,
    /// How many there are, for who has no lock.
    len: AtomicUsize,
    is_dirty: AtomicBool,
    durable: AtomicUsize,
}

impl Log {
    fn new() -> Self {
        Log {
            records: Mutex::new(Vec::new()),
            len: AtomicUsize::new(0),
            is_dirty: AtomicBool::new(false),
            durable: AtomicUsize::new(0),
        }
    }

    /// True if it was not dirty, and the caller must enter it into the list.
    fn becomes_dirty(&self) -> bool {
        // Relaxed: what orders it is the writer lock, taken by the append before and by the sync that
        // follows.
        !self.is_dirty.load(Ordering::Relaxed) && !self.is_dirty.swap(true, Ordering::AcqRel)
    }
}

/// What a checkpoint, or the switch of logs, does in another place than it should.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The list of dirty logs is taken before the puts at or below the cut are done.
    TakesListEarly,
    /// Logs are marked clean after their sync.
    CleansLate,
    /// The sync looks at the length without the writer lock.
    #[cfg(loom)]
    SyncsWithoutLock,
    /// The files are named first, and then the version is taken, without a lock around both.
    NamesEarly,
}

struct Store {
    flaw: Flaw,
    versions: std::sync::Arc<Versions>,
    gate: Mutex<()>,
    structure: Mutex<()>,
    /// The number of the log that takes records; those below it are part of the chunk too.
    active: Published<usize>,
    logs: [Log; 2],
    dirty: Mutex<Vec<usize>>,
}

impl Store {
    fn new(flaw: Flaw) -> Arc<Self> {
        Arc::new(Store {
            flaw,
            versions: Versions::new(Version::new(1, 0)),
            gate: Mutex::new(()),
            structure: Mutex::new(()),
            active: Published::new(0),
            logs: [Log::new(), Log::new()],
            dirty: Mutex::new(Vec::new()),
        })
    }

    fn put(&self) {
        let turn = self.gate.lock().unwrap();
        let number = *self.active.load(&pin());
        let log = &self.logs[number];
        let pending = self.versions.announce();
        {
            let mut records = log.records.lock().unwrap();
            records.push(pending.version().count());
            log.len.store(records.len(), Ordering::Release);
        }
        if log.becomes_dirty() {
            self.dirty.lock().unwrap().push(number);
        }
        drop(pending);
        drop(turn);
    }

    fn switch(&self) {
        let _turn = self.gate.lock().unwrap();
        let _structure = self.structure.lock().unwrap();
        self.active.replace(1);
    }

    /// The version of the cut, and the last log that the manifest names.
    fn checkpoint(&self) -> (u64, usize) {
        let (version, named) = if self.flaw == Flaw::NamesEarly {
            let named = *self.active.load(&pin());
            (self.versions.advance(), named)
        } else {
            let _structure = self.structure.lock().unwrap();
            (self.versions.advance(), *self.active.load(&pin()))
        };
        let take = || std::mem::take(&mut *self.dirty.lock().unwrap());
        let early = (self.flaw == Flaw::TakesListEarly).then(take);
        self.versions.wait_for_pending(version);
        let dirty = early.unwrap_or_else(take);
        if self.flaw != Flaw::CleansLate {
            self.clean(&dirty);
        }
        for number in &dirty {
            self.sync(&self.logs[*number]);
        }
        if self.flaw == Flaw::CleansLate {
            self.clean(&dirty);
        }
        (version.count(), named)
    }

    fn clean(&self, dirty: &[usize]) {
        for number in dirty {
            self.logs[*number].is_dirty.store(false, Ordering::Release);
        }
    }

    fn sync(&self, log: &Log) {
        #[cfg(loom)]
        if self.flaw == Flaw::SyncsWithoutLock {
            log.durable.fetch_max(log.len.load(Ordering::Acquire), Ordering::AcqRel);
            return;
        }
        let len = log.records.lock().unwrap().len();
        log.durable.fetch_max(len, Ordering::AcqRel);
    }

    /// Everything at or below the cut is in a log that the manifest names, and synced.
    fn expect_durable(&self, (version, named): (u64, usize)) {
        for (number, log) in self.logs.iter().enumerate() {
            let durable = log.durable.load(Ordering::Acquire);
            for (place, record) in log.records.lock().unwrap().iter().enumerate() {
                if *record <= version {
                    assert!(number <= named, "a put at or below the cut is in a log that is not named");
                    assert!(place < durable, "a put at or below the cut was not synced");
                }
            }
        }
    }
}

/// A put, twice, while a checkpoint is under way; then one more checkpoint.
fn checkpoint_against_puts(flaw: Flaw) {
    let store = Store::new(flaw);
    let putter = {
        let store = store.clone();
        thread::spawn(move || (0..2).for_each(|_| store.put()))
    };
    let cut = store.checkpoint();
    store.expect_durable(cut);
    putter.join().unwrap();
    let cut = store.checkpoint();
    store.expect_durable(cut);
}

#[test]
fn a_checkpoint_covers_every_put_at_or_below_its_cut() {
    explore(|| checkpoint_against_puts(Flaw::None));
}

/// A put in each log, with the switch between, while a checkpoint is under way.
fn checkpoint_against_switch(flaw: Flaw) {
    let store = Store::new(flaw);
    let putter = {
        let store = store.clone();
        thread::spawn(move || {
            store.put();
            store.switch();
            store.put();
        })
    };
    let cut = store.checkpoint();
    putter.join().unwrap();
    store.expect_durable(cut);
}

#[test]
fn a_checkpoint_names_the_log_of_every_put_at_or_below_its_cut() {
    explore(|| checkpoint_against_switch(Flaw::None));
}

#[cfg(any(loom, shuttle))]
mod twins {
    use super::*;

    #[test]
    #[should_panic(expected = "a put at or below the cut was not synced")]
    fn a_list_of_dirty_logs_taken_early_lacks_one() {
        explore(|| checkpoint_against_puts(Flaw::TakesListEarly));
    }

    #[test]
    #[should_panic(expected = "a put at or below the cut was not synced")]
    fn a_log_marked_clean_after_its_sync_is_forgotten() {
        explore(|| checkpoint_against_puts(Flaw::CleansLate));
    }

    /// The put stores the length and loads the mark, the checkpoint stores the mark and loads the length:
    /// without the lock, both loads may come first. Shuttle knows no reordering of memory, so only loom can
    /// see this.
    #[test]
    #[cfg(loom)]
    #[should_panic(expected = "a put at or below the cut was not synced")]
    fn a_sync_without_the_writer_lock_misses_a_record() {
        explore(|| checkpoint_against_puts(Flaw::SyncsWithoutLock));
    }

    #[test]
    #[should_panic(expected = "a put at or below the cut is in a log that is not named")]
    fn files_named_before_the_cut_lack_a_log() {
        explore(|| checkpoint_against_switch(Flaw::NamesEarly));
    }
}
