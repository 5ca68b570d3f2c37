//! The range tombstones of a log: as they came, until somebody asks, and then in order.
//!
//! While its chunk has a munk nobody asks a log, so a range delete notes what it appended and no more. Who
//! asks, or finds that many were noted, sorts them in; puts that come meanwhile note theirs beside it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use kvilt_base::{Charge, EntryRef, KeyRange, RangeTombstone, Result};
use kvilt_sync::{
    published::{Published, pin},
    versions::Versions,
};
use parking_lot::Mutex;

use super::{ChunkLog, Window, range_tombstone};
use crate::{files::Files, parts};
use kvilt_sync::tombstones::Tombstones;

/// So many range tombstones may be noted before they are sorted in, whether anybody asks or not: sorted,
/// those that lie under others take no memory.
const NOTED_MAX: usize = 256;

/// And so many bytes of their bounds: sorted, long ones are kept without what they share.
const NOTED_BYTES_MAX: usize = 32 << 10;

/// Range tombstones are read together that lie within so many bytes.
const TOMBSTONES_READ_BYTES: u64 = 64 << 10;

/// The range tombstones of one log.
pub(super) struct Hiders {
    sorted: Published<Arc<Tombstones>>,
    /// What came since, each with the batch that wrote it. Held for moments only: a put that is announced
    /// waits for it.
    noted: Mutex<Vec<(Arc<RangeTombstone>, u64)>>,
    noted_count: AtomicUsize,
    /// Of their bounds.
    noted_bytes: AtomicUsize,
    /// Held by who sorts; what is sorted is charged.
    sorting: Mutex<Charge>,
}

impl Hiders {
    /// None yet.
    pub(super) fn new(files: &Files) -> Self {
        Hiders {
            sorted: Published::new(Tombstones::none()),
            noted: Mutex::default(),
            noted_count: AtomicUsize::new(0),
            noted_bytes: AtomicUsize::new(0),
            sorting: Mutex::new(files.budget.charge(parts::LOG_INDEXES, 0)),
        }
    }

    /// Notes one that was just appended, of a batch that is in flight.
    pub(super) fn note(&self, tombstone: RangeTombstone, batch: u64) {
        let bytes = bound_bytes(&tombstone);
        let tombstone = Arc::new(tombstone);
        let mut noted = self.noted.lock();
        noted.push((tombstone, batch));
        // Relaxed: a hint.
        self.noted_bytes.fetch_add(bytes, Ordering::Relaxed);
        // Release: pairs with the load in `all`. Who sees the batch settled sees this, too.
        self.noted_count.store(noted.len(), Ordering::Release);
    }

    /// Whether so many are noted that they should be sorted in.
    pub(super) fn are_many_noted(&self) -> bool {
        // Relaxed, both: hints.
        self.noted_count.load(Ordering::Relaxed) > NOTED_MAX
            || self.noted_bytes.load(Ordering::Relaxed) > NOTED_BYTES_MAX
    }

    /// All of them.
    pub(super) fn all(&self, versions: &Versions) -> Arc<Tombstones> {
        if self.noted_count.load(Ordering::Acquire) > 0 {
            self.sort(versions);
        }
        Arc::clone(self.sorted.load(&pin()))
    }

    fn sort(&self, versions: &Versions) {
        let mut charge = self.sorting.lock();
        // They stay until they can be found elsewhere.
        let noted = self.noted.lock().clone();
        let mut all = Tombstones::clone(self.sorted.load(&pin()));
        noted.iter().for_each(|(tombstone, batch)| all.push(tombstone, *batch, versions));
        charge.set(all.bytes());
        self.sorted.replace(Arc::new(all));
        let mut left = self.noted.lock();
        left.drain(..noted.len());
        let bytes = noted.iter().map(|(tombstone, _)| bound_bytes(tombstone)).sum();
        self.noted_bytes.fetch_sub(bytes, Ordering::Relaxed);
        // Release: who finds none noted finds them sorted.
        self.noted_count.store(left.len(), Ordering::Release);
    }

    /// These are all: of a log of an earlier run, which was read.
    pub(super) fn replace(&self, all: Tombstones) {
        let mut charge = self.sorting.lock();
        charge.set(all.bytes());
        self.sorted.replace(Arc::new(all));
    }
}

impl ChunkLog {
    /// The range tombstones in it. Complete only if the index is built or it is a log of this run.
    pub(crate) fn tombstones(&self, versions: &Versions) -> Arc<Tombstones> {
        self.hiders.all(versions)
    }

    /// The same where nobody asked for them for long, so that they take no more memory than they must.
    pub(crate) fn sort_tombstones(&self, versions: &Versions) {
        if self.hiders.are_many_noted() {
            self.hiders.all(versions);
        }
    }

    /// The range tombstones in it, all of them: of an earlier run's log, building the index finds them.
    pub(crate) fn all_tombstones(&self, files: &Files, versions: &Versions) -> Result<Arc<Tombstones>> {
        // Acquire: pairs with `read_keys`.
        if !self.is_of_this_run && !self.knows_tombstones.load(Ordering::Acquire) {
            self.index(files)?;
        }
        Ok(self.tombstones(versions))
    }

    /// The range tombstones at these offsets, which ascend, of a log of an earlier run. Many lie near each
    /// other.
    pub(super) fn read_tombstones(&self, files: &Files, offsets: &[u64]) -> Result<Tombstones> {
        let mut all = Tombstones::default();
        let mut window = Window::default();
        for offset in offsets.iter().copied() {
            let mut push = |entry: EntryRef<'_>| all.push_old(&range_tombstone(&entry));
            if self.record_in(&window, offset, &mut push)? {
                continue;
            }
            self.read_window(files, offset..(offset + TOMBSTONES_READ_BYTES).min(self.len()), &mut window)?;
            if !self.record_in(&window, offset, &mut push)? {
                self.record_at(files, offset, |entry, _| push(entry))?;
            }
        }
        Ok(all)
    }
}

fn bound_bytes(tombstone: &RangeTombstone) -> usize {
    let KeyRange { start, end } = &tombstone.range;
    start.len() + end.as_ref().map_or(0, Vec::len)
}
