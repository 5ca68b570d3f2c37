//! `Log`: the redo log of a store, appended to by all writers at once.
//!
//! ```text
//!   sequence   17 sealed      18 sealed      19 current         file 2, free
//!              |------------| |------------| |------>         | |              |
//!              ^ first that a table needs    ^ synced to here
//! ```
//!
//! A writer appends to the current segment. If that has no room the writer seals it and begins the next, in a
//! file that is free or new. A sync makes durable what is whole, then says so by a mark. A segment is free
//! when the tables with all of its rows are flushed.
//!
//! What is always true:
//! - T-10: a record that was appended is whole in its segment, so it outlives the process.
//! - T-11: behind a sync, all that was appended before it is durable, with the names of its files; a mark is
//!   stored only behind such a sync.
//! - T-13: what `announce` counts while a record is appended comes in the order of the log.
//! - T-12: a segment is used again only when no record in it is waiting to be applied to a table, and no
//!   table that is not flushed has rows of it.

mod chain;
mod segment;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kvilt_base::{Disk, Error, ErrorKind, FileName, Result};
use kvilt_format::{FileIdentity, HEADER_BYTES, names::REDO, redo};
use kvilt_sync::Group;
use parking_lot::{Mutex, RwLock};

use self::{chain::Left, segment::Segment};

pub use self::{
    chain::{Chain, Known, Replayed, replay},
    segment::Appended,
};

/// Files that are kept for later when no record in them is needed; others are removed.
const FREE_FILES_MAX: usize = 2;

/// A position in a log: the segment, and the offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The segment's place in the order of the log.
    pub sequence: u64,
    /// The offset in its file, in bytes.
    pub offset: u64,
}

/// See the module. Any thread may append and sync.
pub struct Log {
    disk: Arc<dyn Disk>,
    store_id: u64,
    /// Bytes of a segment, unless a record needs more.
    segment_bytes: u64,
    /// Segments that are needed, in order; the last is the current one. Locked for moments, without I/O.
    segments: RwLock<VecDeque<Arc<Segment>>>,
    /// Held while the next segment is begun.
    turning: Mutex<()>,
    files: Mutex<Files>,
    /// Files were made whose names are not durable.
    has_new_names: AtomicBool,
    /// All before this is durable.
    durable: Mutex<Position>,
    /// Held while a sync is under way.
    syncing: Mutex<Syncing>,
    group: Group<()>,
}

/// Where the next sync goes on.
struct Syncing {
    /// Where the last one ended, or behind the mark that says so: beyond it there is something to do.
    looked: Position,
    /// A sync failed: a later one finds nothing to do, and must not be believed.
    has_failed: bool,
}

/// Files of the log beside those of its segments.
struct Files {
    /// Those of earlier runs.
    left: VecDeque<Left>,
    /// Those that earlier runs did not need, and a catalogue that a power cut may bring back does.
    stale: Vec<FileName>,
    free: Vec<Arc<Segment>>,
    last_number: u64,
}

impl Log {
    /// Begins the log of this run behind what earlier runs left, in a segment of its own.
    ///
    /// Errors: `NoSpace`, `Io`.
    pub fn begin(disk: Arc<dyn Disk>, store_id: u64, segment_bytes: u64, mut chain: Chain) -> Result<Log> {
        chain.end(&*disk)?;
        let first = Position { sequence: chain.last_sequence + 1, offset: 0 };
        let log = Log {
            disk,
            store_id,
            segment_bytes,
            segments: RwLock::default(),
            turning: Mutex::new(()),
            files: Mutex::new(Files {
                left: chain.segments,
                stale: chain.stale,
                free: Vec::new(),
                last_number: chain.last_number,
            }),
            has_new_names: AtomicBool::new(false),
            durable: Mutex::new(first),
            syncing: Mutex::new(Syncing { looked: first, has_failed: false }),
            group: Group::new(),
        };
        let segment = log.next_segment(first.sequence, 0)?;
        log.segments.write().push_back(segment);
        Ok(log)
    }

    /// Appends a record; when this returns it outlives the process. What is returned is kept until the record
    /// is applied to a table. `announce` runs once, after all file operations and before any record behind
    /// this one is appended (T-13).
    ///
    /// Errors: `NoSpace`, `Io`; then nothing was appended or announced.
    pub fn append<T>(&self, body: &[u8], announce: impl Fn() -> T) -> Result<(Appended, T)> {
        loop {
            let current = self.current();
            if let Some(appended) = Segment::append(&current, body, &announce)? {
                return Ok(appended);
            }
            self.turn(&current, body.len())?;
        }
    }

    /// Makes all durable that was appended before, together with others who ask for the same at the same
    /// time.
    ///
    /// Errors: `Io` if a sync failed; `Poisoned` if a writer panicked: then nobody knows what is durable, and
    /// the store must not go on.
    pub fn sync(&self) -> Result<()> {
        self.group.submit((), |_| self.sync_now())
    }

    /// The segment from which on records are to be kept for a table that is made now: all rows that are put
    /// to it have records there.
    pub fn first_needed(&self) -> u64 {
        let segments = self.segments.read();
        let oldest = segments.iter().find(|segment| segment.has_unapplied());
        oldest.or(segments.back()).expect("a log has a segment").sequence()
    }

    /// No table needs what lies before this segment any more, and that is durable.
    pub fn free_until(&self, first_needed: u64) {
        let mut unneeded = Vec::new();
        {
            let mut segments = self.segments.write();
            while segments.len() > 1 && segments[0].sequence() < first_needed {
                unneeded.extend(segments.pop_front());
            }
        }
        let mut files = self.files.lock();
        let mut names = std::mem::take(&mut files.stale);
        while let Some(left) = files.left.pop_front_if(|left| left.sequence < first_needed) {
            names.push(left.name);
        }
        for name in names {
            // What cannot be removed is passed over by every open.
            let _ = self.disk.remove(name);
        }
        for segment in unneeded {
            if files.free.len() < FREE_FILES_MAX && segment.capacity() == self.segment_bytes {
                files.free.push(segment);
            } else {
                let _ = self.disk.remove(segment.name());
            }
        }
    }

    /// Up to where all is durable.
    pub fn synced(&self) -> Position {
        *self.durable.lock()
    }

    /// Bytes of all files of the log.
    pub fn bytes(&self) -> u64 {
        let in_use: u64 = self.segments.read().iter().map(|segment| segment.capacity()).sum();
        let files = self.files.lock();
        let free: u64 = files.free.iter().map(|segment| segment.capacity()).sum();
        in_use + free + files.left.iter().map(|left| left.bytes).sum::<u64>()
    }

    /// Ends the log for good: nothing is appended any more, and all is durable.
    ///
    /// Errors: as [`Log::sync`].
    pub fn close(&self) -> Result<()> {
        self.sync()?;
        for segment in self.files.lock().free.drain(..) {
            // As in `free_until`.
            let _ = self.disk.remove(segment.name());
        }
        Ok(())
    }

    fn current(&self) -> Arc<Segment> {
        Arc::clone(self.segments.read().back().expect("a log has a segment"))
    }

    /// Begins the segment behind `full`, unless somebody else did.
    fn turn(&self, full: &Arc<Segment>, body_len: usize) -> Result<()> {
        let _turning = self.turning.lock();
        if !Arc::ptr_eq(&self.current(), full) {
            return Ok(());
        }
        // In this order: if there is no room for the next one, no file has its sequence, and the next append
        // tries again. A log that ends with a sealed segment is whole.
        full.seal()?;
        let next = self.next_segment(full.sequence() + 1, body_len)?;
        self.segments.write().push_back(next);
        Ok(())
    }

    /// A segment with room for a record of this length.
    fn next_segment(&self, sequence: u64, body_len: usize) -> Result<Arc<Segment>> {
        let needed = HEADER_BYTES as u64 + redo::record_bytes(body_len) as u64 + redo::WORD_BYTES as u64;
        let mut files = self.files.lock();
        if needed <= self.segment_bytes
            && let Some(free) = files.free.pop()
        {
            return Segment::again(&free, sequence).map(Arc::new);
        }
        let number = files.last_number + 1;
        let name = FileName::Of(REDO, number);
        let failed = |e| Error::io("make a segment of the redo log", e).in_file(name);
        let file = self.disk.create(name).map_err(failed)?;
        files.last_number = number;
        self.has_new_names.store(true, Ordering::Release);
        let format = redo::Segment { id: FileIdentity { store_id: self.store_id, number }, sequence };
        let made = file
            .allocate(needed.max(self.segment_bytes))
            .map_err(failed)
            .and_then(|()| Segment::begin(file, format));
        if made.is_err() {
            // The first error is the one to report.
            let _ = self.disk.remove(name);
        }
        made.map(Arc::new)
    }

    fn sync_now(&self) -> Result<()> {
        let mut syncing = self.syncing.lock();
        if syncing.has_failed {
            return Err(Error::new(ErrorKind::Poisoned, "an earlier sync of the redo log failed"));
        }
        let outcome = self.sync_behind(&mut syncing);
        syncing.has_failed = outcome.is_err();
        outcome
    }

    fn sync_behind(&self, syncing: &mut Syncing) -> Result<()> {
        let segments: Vec<_> = {
            let segments = self.segments.read();
            segments.iter().filter(|segment| segment.sequence() >= syncing.looked.sequence).cloned().collect()
        };
        if self.has_new_names.swap(false, Ordering::AcqRel) {
            self.disk.sync_dir().map_err(|e| Error::io("sync the names of the redo log", e))?;
        }
        for segment in segments {
            let end = segment.filled().ok_or_else(|| {
                Error::new(ErrorKind::Poisoned, "a write ended in a panic, and its record is not whole")
            })?;
            let reached = Position { sequence: segment.sequence(), offset: end };
            if reached > syncing.looked {
                segment.sync()?;
                *self.durable.lock() = reached;
                syncing.looked = Position { offset: segment.mark(end), ..reached };
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({} segments, synced to {:?})", self.segments.read().len(), self.synced())
    }
}

#[cfg(test)]
mod tests;
