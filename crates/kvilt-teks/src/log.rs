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
//! when the tables with all of its rows are flushed. A sync unmaps those that are sealed.
//!
//! Some free files are the *reserve*, see there.
//!
//! What is always true:
//! - T-10: a record that was appended is whole in its segment, so it outlives the process.
//! - T-11: behind a sync, all that was appended before it is durable, with the names of its files; a mark is
//!   stored only behind such a sync.
//! - T-13: what `announce` counts while a record is appended comes in the order of the log.
//! - T-15: a segment is appended to only in the boot in which it was begun.
//! - T-12: a segment is used again only when no record in it is waiting to be applied to a table, and no
//!   table that is not flushed has rows of it.

mod chain;
mod reserve;
mod segment;
mod verify;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kvilt_base::{Disk, Error, ErrorKind, File, Result, layout::FilesOfKind, planted};
use kvilt_format::{FileIdentity, HEADER_BYTES, redo};
use kvilt_sync::Group;
use parking_lot::{Mutex, RwLock};

use self::{
    chain::Resumed,
    reserve::{Files, Taken, take_over},
    segment::Segment,
};

pub use self::{
    chain::{Chain, Known, Replayed, replay},
    segment::Appended,
    verify::Part,
};

/// Lengths of a log's files.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of a segment, unless a record needs more.
    pub segment_bytes: u64,
    /// As many have room for the output of a flush; at least one.
    pub output_files: usize,
}

/// What a record, or a segment, is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It brings rows.
    Rows,
    /// It only deletes: then it may take of the reserve what flushes and opens can do without.
    Deletes,
    /// Those before it can be free when their tables are flushed: it may take any file of the reserve.
    Room,
}

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
    sizes: Sizes,
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
    /// The reserve was whole when the current segment was begun, or later: what brings rows may be appended.
    takes_rows: AtomicBool,
}

/// Where the next sync goes on.
struct Syncing {
    /// Where the last one ended, or behind the mark that says so: beyond it there is something to do.
    looked: Position,
    /// A sync failed: a later one finds nothing to do, and must not be believed.
    has_failed: bool,
}

impl Log {
    /// Begins the log of this run behind what earlier runs left: in their last segment, if that may be, else
    /// in one of its own.
    ///
    /// Errors: `NoSpace`, `Io`.
    pub fn begin(disk: Arc<dyn Disk>, store_id: u64, sizes: Sizes, mut chain: Chain) -> Result<Log> {
        let resumed = chain.end(&*disk)?;
        let Taken { free, other } = take_over(&*disk, sizes, &chain.unused);
        let own = Position { sequence: chain.last_sequence + 1, offset: 0 };
        let first = resumed.as_ref().map_or(own, |resumed| resumed.at);
        let log = Log {
            disk,
            store_id,
            sizes,
            segments: RwLock::default(),
            turning: Mutex::new(()),
            files: Mutex::new(Files::new(chain.segments, free, chain.last_number)),
            has_new_names: AtomicBool::new(false),
            durable: Mutex::new(first),
            syncing: Mutex::new(Syncing { looked: first, has_failed: false }),
            group: Group::new(),
            takes_rows: AtomicBool::new(false),
        };
        let segment = match resumed {
            Some(resumed) => log.resume(resumed)?,
            None => log.first_segment(own.sequence, other.as_ref())?,
        };
        if let Some(other) = other.filter(|other| other.name() != segment.name()) {
            // What cannot be removed is passed over by every open.
            let _ = log.disk.remove(other.name());
        }
        log.segments.write().push_back(segment);
        let mut files = log.files.lock();
        // As in `free_until`.
        let _ = log.refill(&mut files);
        drop(files);
        Ok(log)
    }

    fn resume(&self, Resumed { file, at }: Resumed) -> Result<Arc<Segment>> {
        let id = FileIdentity { store_id: self.store_id, number: file.name().number() };
        Segment::resume(file, redo::Segment { id, sequence: at.sequence }, at.offset).map(Arc::new)
    }

    /// A segment of this run's own. Nothing is brought yet, and an open on a full disk does with what there
    /// is.
    fn first_segment(&self, sequence: u64, other: Option<&Arc<dyn File>>) -> Result<Arc<Segment>> {
        match (self.next_segment(sequence, 0, Purpose::Room), other) {
            (Err(error), Some(other)) if error.kind() == ErrorKind::NoSpace => {
                self.begin_segment(&mut self.files.lock(), other, sequence)
            }
            (segment, _) => segment,
        }
    }

    /// Appends a record; when this returns it outlives the process. What is returned is kept until the record
    /// is applied to a table. `announce` runs once, after all file operations and before any record behind
    /// this one is appended (T-13).
    ///
    /// Errors: `NoSpace`, `Io`; then nothing was appended or announced.
    pub fn append<T>(
        &self,
        body: &[u8],
        purpose: Purpose,
        announce: impl Fn() -> T,
    ) -> Result<(Appended, T)> {
        if purpose == Purpose::Rows && !self.takes_rows.load(Ordering::Relaxed) {
            self.allow_rows()?;
        }
        loop {
            let current = self.current();
            if let Some(appended) = Segment::append(&current, body, &announce)? {
                return Ok(appended);
            }
            self.turn(&current, body.len(), purpose)?;
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
        let first = oldest.or(segments.back()).expect("a log has a segment").sequence();
        first + planted!(TableBeginsBehindItsRows, 0 => 1)
    }

    /// No table needs what lies before this segment any more, and that is durable.
    pub fn free_until(&self, first_needed: u64) {
        let first_needed = first_needed + planted!(SegmentFreedEarly, 0 => 1);
        let mut unneeded = Vec::new();
        {
            let mut segments = self.segments.write();
            while segments.len() > 1 && segments[0].sequence() < first_needed {
                unneeded.extend(segments.pop_front());
            }
        }
        let mut files = self.files.lock();
        while let Some(left) = files.left.pop_front_if(|left| left.sequence < first_needed) {
            // What cannot be removed is passed over by every open.
            let _ = self.disk.remove(left.name);
        }
        unneeded.iter().for_each(|segment| self.keep_or_remove(&mut files, segment));
        // What cannot be made now is tried when it is needed.
        let _ = self.refill(&mut files);
    }

    /// Begins the next segment if the current one is full and there was no room for another, so that a flush
    /// of the tables of now frees it. Whether there was room for that.
    ///
    /// Errors: `Io`.
    pub(crate) fn turn_if_full(&self) -> Result<bool> {
        let _turning = self.turning.lock();
        if !self.files.lock().is_full {
            return Ok(false);
        }
        match self.next_segment(self.current().sequence() + 1, 0, Purpose::Room) {
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(false),
            next => next.map(|next| {
                self.segments.write().push_back(next);
                true
            }),
        }
    }

    /// Up to where all is durable.
    pub fn synced(&self) -> Position {
        *self.durable.lock()
    }

    /// All files of the log.
    pub fn files(&self) -> FilesOfKind {
        let segments: Vec<u64> = self.segments.read().iter().map(|segment| segment.capacity()).collect();
        let files = self.files.lock();
        let free = files.free.iter().map(|_| self.sizes.segment_bytes);
        let all = segments.into_iter().chain(free).chain(files.left.iter().map(|left| left.bytes));
        all.fold(FilesOfKind::default(), |sum, bytes| FilesOfKind {
            files: sum.files + 1,
            bytes: sum.bytes + bytes,
        })
    }

    /// Ends the log for good: nothing is appended any more, and all is durable.
    ///
    /// Errors: as [`Log::sync`].
    pub fn close(&self) -> Result<()> {
        self.sync()?;
        self.leave_reserve();
        Ok(())
    }

    fn current(&self) -> Arc<Segment> {
        Arc::clone(self.segments.read().back().expect("a log has a segment"))
    }

    /// Begins the segment behind `full`, unless somebody else did.
    fn turn(&self, full: &Arc<Segment>, body_len: usize, purpose: Purpose) -> Result<()> {
        let _turning = self.turning.lock();
        if !Arc::ptr_eq(&self.current(), full) {
            return Ok(());
        }
        // In this order: if there is no room for the next one, no file has its sequence, and the next append
        // tries again. A log that ends with a sealed segment is whole.
        full.seal()?;
        self.files.lock().is_full = true;
        let next = self.next_segment(full.sequence() + 1, body_len, purpose)?;
        self.segments.write().push_back(next);
        Ok(())
    }

    /// A segment with room for a record of this length.
    fn next_segment(&self, sequence: u64, body_len: usize, purpose: Purpose) -> Result<Arc<Segment>> {
        let needed = HEADER_BYTES as u64 + redo::record_bytes(body_len) as u64 + redo::WORD_BYTES as u64;
        let mut files = self.files.lock();
        let file = self.next_file(&mut files, needed, purpose);
        files.is_wanting = file.is_err();
        files.has_refused |= file.is_err() && purpose != Purpose::Room;
        self.begin_segment(&mut files, &file?, sequence)
    }

    fn begin_segment(&self, files: &mut Files, file: &Arc<dyn File>, sequence: u64) -> Result<Arc<Segment>> {
        let id = FileIdentity { store_id: self.store_id, number: file.name().number() };
        let begun = Segment::begin(Arc::clone(file), redo::Segment { id, sequence });
        if begun.is_err() {
            // The first error is the one to report.
            let _ = self.disk.remove(file.name());
        }
        let begun = begun?;
        files.is_full = false;
        let is_whole = files.loans == 0 && files.free.len() >= files.wanted;
        self.takes_rows.store(is_whole, Ordering::Relaxed);
        Ok(Arc::new(begun))
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
        planted!(SegmentNameNotSynced => self.has_new_names.store(false, Ordering::Release));
        if self.has_new_names.swap(false, Ordering::AcqRel) {
            self.disk.sync_dir().map_err(|e| Error::io("sync the names of the redo log", e))?;
        }
        let last = segments.last().map_or(0, |segment| segment.sequence());
        for segment in segments {
            let end = segment.filled().ok_or_else(|| {
                Error::new(ErrorKind::Poisoned, "a write ended in a panic, and its record is not whole")
            })?;
            // The log went on behind it before it was asked for its end: so it was sealed.
            let is_sealed = segment.sequence() < last;
            // Before it is synced: the kernel protects each mapped page that it writes, and interrupts the
            // other processors for that.
            let segment = if is_sealed { self.lay_to_rest(segment, end) } else { segment };
            let reached = Position { sequence: segment.sequence(), offset: end };
            if reached > syncing.looked {
                let synced = planted!(SegmentNotSynced, segment.sync() => Ok(()));
                planted!(SyncFailureIgnored, synced => Ok(()))?;
                *self.durable.lock() = reached;
                syncing.looked = Position { offset: segment.mark(end), ..reached };
            }
        }
        Ok(())
    }

    /// Lets go of the mapping of a segment that is sealed and whole up to its end.
    fn lay_to_rest(&self, segment: Arc<Segment>, end: u64) -> Arc<Segment> {
        let at_rest = Arc::new(segment.at_rest(end));
        let mut segments = self.segments.write();
        if let Some(place) = segments.iter_mut().find(|other| Arc::ptr_eq(other, &segment)) {
            *place = Arc::clone(&at_rest);
        }
        at_rest
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({} segments, synced to {:?})", self.segments.read().len(), self.synced())
    }
}

#[cfg(test)]
mod tests;
