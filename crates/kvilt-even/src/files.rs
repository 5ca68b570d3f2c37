//! `Files`: the store's directory as the engine sees it: numbers, creation, reading counts, and deletion of
//! what nobody needs any more.
//!
//! * **E-8** A file is removed only when neither the last durable manifest names it nor anybody in this
//!   process can still read it; when the store is closed, whoever holds what it replaced is not asked.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use kvilt_base::{Budget, Disk, Error, ErrorKind, File, FileName, Result, Version, World, limits, planted};
use kvilt_format::{FileIdentity, names::LOG};
use kvilt_sync::segment::{Place, Slot};
use parking_lot::Mutex;

use crate::{
    funk::log::SummaryRule,
    pool::{Change, Pool},
    reads::Reads,
    reserve::Reserve,
    shared_key::LongKeys,
    stats::Counters,
};

/// Held by whoever may still read a file; the file outlives every hold. It knows how many bytes were written
/// to the file, if that is a table or a log.
pub(crate) type Hold = Arc<AtomicU64>;

/// The versions that a crash cut off: for each recovered epoch those behind its last checkpoint (EvenDB §3.5,
/// the recovery table). An entry of a log with such a version was never acknowledged as durable, and is
/// ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadVersions(pub(crate) Vec<(Version, Version)>);

impl DeadVersions {
    /// Whether `version` lies behind its epoch's last checkpoint.
    pub(crate) fn contain(&self, version: Version) -> bool {
        planted!(DeadTooMany => return self.0.iter().any(|&(last, next)| last <= version && version < next));
        self.0.iter().any(|&(last, next)| last < version && version < next)
    }
}

/// The directory, and what all who read and write files share.
pub(crate) struct Files {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) store_id: u64,
    pub(crate) budget: Arc<Budget>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) dead: DeadVersions,
    pub(crate) reserve: Reserve,
    pub(crate) reads: Arc<Reads>,
    /// Bytes of a piece of a log that is in order; see [`crate::funk::ascent`].
    pub(crate) log_piece_bytes: u64,
    /// Values of more bytes go from file to file in pieces.
    pub(crate) streamed_bytes_min: usize,
    /// For first and last keys of files.
    pub(crate) long_keys: Arc<LongKeys>,
    /// When a log is summed up.
    pub(crate) summary_rule: SummaryRule,
    /// Whether the store is open to be read only: what is appended stays in memory (B-7).
    pub(crate) is_read_only: bool,
    /// Where write buffers are; none where a commit log has what they have.
    pub(crate) pool: Option<Pool>,
    next: AtomicU64,
    /// Files that exist, with a hold each: if that is the only one, nobody else has any.
    known: Mutex<HashMap<u64, (FileName, Hold)>>,
    /// Files that a run before this one left, and nobody names: to be removed.
    leftovers: Mutex<Vec<FileName>>,
    /// Whether names were created since the directory was last synced.
    has_new_names: AtomicBool,
    /// Held while the directory is synced.
    syncing_names: Mutex<()>,
}

/// What a sweep left.
pub(crate) struct Swept {
    /// Whether no file is left that is not claimed.
    pub(crate) is_all: bool,
    /// Bytes of files that somebody holds.
    pub(crate) left_bytes: u64,
}

impl Files {
    /// The files of a store whose next free number is `next`.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        store_id: u64,
        next: u64,
        dead: DeadVersions,
        reserve: Reserve,
        world: &World,
        counters: Arc<Counters>,
    ) -> Self {
        Files {
            disk,
            store_id,
            budget: Arc::clone(&world.budget),
            counters,
            dead,
            reserve,
            reads: Reads::new(Arc::clone(&world.clock)),
            log_piece_bytes: 8 << 10,
            streamed_bytes_min: limits::STREAMED_BYTES_MIN,
            long_keys: Arc::default(),
            summary_rule: SummaryRule { covered_bytes: 128 << 10, percent: 6 },
            is_read_only: false,
            pool: None,
            next: AtomicU64::new(next),
            known: Mutex::default(),
            leftovers: Mutex::default(),
            has_new_names: AtomicBool::new(false),
            syncing_names: Mutex::default(),
        }
    }

    /// A buffer of the pool for `bytes` of a log; none if it is to be on the heap.
    pub(crate) fn slot(&self, bytes: usize, place: Place) -> Option<Slot> {
        self.pool.as_ref()?.slot(bytes, place)
    }

    /// A file of `len` bytes is about to grow, and has when what this returns is dropped: see
    /// [`Pool::change`].
    pub(crate) fn change(&self, name: FileName, len: u64) -> Option<Change<'_>> {
        self.pool.as_ref()?.change(name, len)
    }

    /// A number that no file has or had.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The number that the next file will get.
    pub(crate) fn peek_number(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// What checksums of this file are salted with.
    pub(crate) fn identity(&self, number: u64) -> FileIdentity {
        FileIdentity { store_id: self.store_id, number }
    }

    /// Creates a file; it is removed some time after `hold` was given up, unless the manifest names it.
    pub(crate) fn create(&self, name: FileName, hold: &Hold) -> Result<Arc<dyn File>> {
        let file = self.disk.create(name).map_err(|e| Error::io("create a file", e).in_file(name))?;
        self.know(name, hold);
        if let (FileName::Of(LOG, number), Some(pool)) = (name, &self.pool) {
            pool.has_file(number, true);
        }
        // Pairs with the swap in `sync_names`: whoever sees the file in a chunk sees the flag.
        self.has_new_names.store(true, Ordering::Release);
        Ok(self.reads.watch(file))
    }

    /// Opens a file that exists.
    pub(crate) fn open(&self, name: FileName) -> Result<Arc<dyn File>> {
        let opened = self.disk.open(name).map_err(|e| {
            if e.kind() == std::io::ErrorKind::NotFound {
                return Error::corrupted(name, 0, "a file that the manifest names is missing");
            }
            if e.kind() == std::io::ErrorKind::InvalidData {
                // A link, a directory, or another file than was there before.
                return Error::corrupted(name, 0, e.to_string());
            }
            Error::io("open a file", e).in_file(name)
        });
        opened.map(|file| self.reads.watch(file))
    }

    /// Registers a file that existed before this open.
    pub(crate) fn know(&self, name: FileName, hold: &Hold) {
        self.known.lock().insert(name.number(), (name, Arc::clone(hold)));
    }

    /// A run before this one may have made names that no directory's sync has covered.
    pub(crate) fn has_unsynced_names(&self) {
        self.has_new_names.store(true, Ordering::Release);
    }

    /// Makes the names of all created files durable. A failure poisons, and is not forgotten.
    pub(crate) fn sync_names(&self) -> Result<()> {
        // Who finds that another has taken the new names waits until they are durable.
        let _syncing = self.syncing_names.lock();
        planted!(NamesNotSynced => return Ok(()));
        if !self.has_new_names.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.disk.sync_dir().map_err(|error| {
            self.has_new_names.store(true, Ordering::Release);
            let message = format!("a sync of the directory failed, so new files may be lost: {error}");
            Error::new(ErrorKind::Poisoned, message).in_file(self.disk.place())
        })
    }

    /// Enters files that are nobody's.
    pub(crate) fn leave(&self, orphans: Vec<FileName>) {
        self.leftovers.lock().extend(orphans);
    }

    /// Removes one of the files that a run before this one left; false if there is none. One at a time, and
    /// not in the open: a system takes a millisecond to free some megabytes, and a killed store may leave
    /// hundreds of them.
    pub(crate) fn remove_leftover(&self) -> bool {
        let Some(name) = self.leftovers.lock().pop() else { return false };
        // Harmless if it fails: the next open finds it again.
        let _ = self.disk.remove(name);
        true
    }

    /// Removes the files that nobody holds, or all when `is_closing`, and that `is_live` does not claim
    /// (E-8). A failure to remove is no error: the next open removes what is left. Files with numbers below
    /// `made_before` that are left are held by readers.
    pub(crate) fn sweep(
        &self,
        is_closing: bool,
        made_before: u64,
        is_live: impl Fn(FileName) -> bool,
    ) -> Swept {
        let mut garbage = Vec::new();
        let mut swept = Swept { is_all: true, left_bytes: 0 };
        self.known.lock().retain(|_, (name, hold)| {
            if is_live(*name) {
                return true;
            }
            let is_garbage = is_closing || Arc::strong_count(hold) == 1;
            if is_garbage {
                garbage.push(*name);
            } else {
                swept.is_all = false;
                if name.number() < made_before {
                    // Relaxed: a statistic.
                    swept.left_bytes += hold.load(Ordering::Relaxed);
                }
            }
            !is_garbage
        });
        // In an order that is the same in each run of a simulation.
        garbage.sort_unstable();
        garbage.into_iter().for_each(|name| self.remove(name));
        while is_closing && self.remove_leftover() {}
        swept
    }

    /// An error changes nothing: the next open finds it.
    fn remove(&self, name: FileName) {
        let of_run = self.pool.as_ref().filter(|pool| name.number() > pool.number());
        let (FileName::Of(LOG, number), Some(pool)) = (name, of_run) else {
            let _ = self.disk.remove(name);
            return;
        };
        let _change = pool.change(name, 0);
        if self.disk.remove(name).is_ok() {
            pool.has_file(number, false);
        }
    }

    /// Removes a file that was given up before anybody could name it; an error changes nothing, for the next
    /// sweep or open finds it.
    pub(crate) fn remove_unfinished(&self, name: FileName) {
        self.known.lock().remove(&name.number());
        self.remove(name);
    }

    /// Bytes of all tables and logs in the directory, those included that wait for a checkpoint to be
    /// removed.
    pub(crate) fn bytes(&self) -> u64 {
        // Relaxed: a statistic.
        self.known.lock().values().map(|(_, hold)| hold.load(Ordering::Relaxed)).sum()
    }

    /// How many files are known.
    pub(crate) fn count(&self) -> u64 {
        self.known.lock().len() as u64
    }
}
