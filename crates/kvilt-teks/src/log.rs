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
//! when the tables with all of its rows are flushed. One that is sealed and synced is not mapped any more.
//!
//! Some free files are the *reserve*: more than there are segments, up to a limit. Puts need all of it, for
//! a flush takes somewhat more room than the segments that it frees have. On a full disk deletes take of it
//! what the next open and flush can do without, and what gives room back is lent the rest: flushes, merges,
//! catalogues (`Loan`). A segment is free when there is one behind it, so a flush may have to begin one.
//!
//! What is always true:
//! - T-10: a record that was appended is whole in its segment, so it outlives the process.
//! - T-11: behind a sync, all that was appended before it is durable, with the names of its files; a mark is
//!   stored only behind such a sync.
//! - T-13: what `announce` counts while a record is appended comes in the order of the log.
//! - T-12: a segment is used again only when no record in it is waiting to be applied to a table, and no
//!   table that is not flushed has rows of it.
//! - T-14: a segment for what brings rows is begun only if the reserve is whole behind that.

mod chain;
mod segment;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kvilt_base::{Disk, Error, ErrorKind, File, FileName, Result, planted};
use kvilt_format::{FileIdentity, HEADER_BYTES, names::REDO, redo};
use kvilt_sync::Group;
use parking_lot::{Mutex, RwLock};

use self::{chain::Left, segment::Segment};

pub use self::{
    chain::{Chain, Known, Replayed, replay},
    segment::Appended,
};

/// Files of the reserve beside those for the output of a flush: for deletes, for turns (`TURN_FILES`), for a
/// segment that two tables share, and for what tables have beside rows.
const OTHER_FILES: usize = 6;
/// Those of them that deletes leave: the next flush may have to begin a segment so that the one before can be
/// free, and so does an open that comes before its end.
const TURN_FILES: usize = 2;
/// Files of the reserve of a log with one segment.
const RESERVE_FILES_MIN: usize = 4;
/// Free files that are kept beside the reserve; others are removed.
const FREE_FILES_MAX: usize = 2;
/// Files that a log which is closed leaves beside those for the output of a flush.
const CLOSED_OTHER_FILES: usize = TURN_FILES + 1;

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

/// Files of the log beside those of its segments.
struct Files {
    /// Those of earlier runs.
    left: VecDeque<Left>,
    /// Each has the bytes of a segment.
    free: Vec<Arc<dyn File>>,
    /// Files of the reserve when it is whole: few at first, and never less than there were.
    wanted: usize,
    /// The current segment is sealed, and there was no room for the next.
    is_full: bool,
    /// Loans of the reserve that were not given back.
    loans: usize,
    /// A write was refused, and no file was made for one since.
    is_wanting: bool,
    /// The same, until somebody asks.
    has_refused: bool,
    last_number: u64,
}

/// Leave to use the reserve for work that gives room back. While there is one nobody else makes the reserve
/// whole; the last one tries that when it is dropped.
pub(crate) struct Loan<'l>(&'l Log);

impl Log {
    /// Begins the log of this run behind what earlier runs left, in a segment of its own.
    ///
    /// Errors: `NoSpace`, `Io`.
    pub fn begin(disk: Arc<dyn Disk>, store_id: u64, sizes: Sizes, mut chain: Chain) -> Result<Log> {
        chain.end(&*disk)?;
        let free = take_over(&*disk, sizes, &chain.unused);
        let first = Position { sequence: chain.last_sequence + 1, offset: 0 };
        let log = Log {
            disk,
            store_id,
            sizes,
            segments: RwLock::default(),
            turning: Mutex::new(()),
            files: Mutex::new(Files {
                left: chain.segments,
                free,
                wanted: RESERVE_FILES_MIN,
                is_full: false,
                loans: 0,
                is_wanting: false,
                has_refused: false,
                last_number: chain.last_number,
            }),
            has_new_names: AtomicBool::new(false),
            durable: Mutex::new(first),
            syncing: Mutex::new(Syncing { looked: first, has_failed: false }),
            group: Group::new(),
            takes_rows: AtomicBool::new(false),
        };
        // Nothing is brought yet, and an open on a full disk does with what there is.
        let segment = log.next_segment(first.sequence, 0, Purpose::Room)?;
        log.segments.write().push_back(segment);
        let mut files = log.files.lock();
        // As in `free_until`.
        let _ = log.refill(&mut files);
        drop(files);
        Ok(log)
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
        let kept = files.wanted + FREE_FILES_MAX;
        for segment in unneeded {
            if files.free.len() < kept && segment.capacity() == self.sizes.segment_bytes {
                files.free.push(Arc::clone(segment.file()));
            } else {
                let _ = self.disk.remove(segment.name());
            }
        }
        // What cannot be made now is tried when it is needed.
        let _ = self.refill(&mut files);
    }

    /// Whether the reserve is not whole, or a write was refused.
    pub(crate) fn is_short(&self) -> bool {
        let files = self.files.lock();
        files.is_wanting || files.loans > 0 || files.free.len() < files.wanted
    }

    /// Gives the reserve up, but what deletes may take. None if there is nothing to be given.
    pub(crate) fn lend(&self) -> Option<Loan<'_>> {
        let mut files = self.files.lock();
        let kept = usize::from(files.free.len() > self.output_files(&files));
        if files.free.len() <= kept {
            return None;
        }
        for file in files.free.drain(kept..) {
            // As in `free_until`.
            let _ = self.disk.remove(file.name());
        }
        files.loans += 1;
        Some(Loan(self))
    }

    /// Tries to make the reserve whole, and a file more if a write was refused. Whether it has both.
    pub(crate) fn restore(&self) -> bool {
        let mut files = self.files.lock();
        if !matches!(self.refill(&mut files), Ok(true)) {
            return false;
        }
        if files.is_wanting && files.free.len() <= files.wanted {
            let Ok(file) = self.make(&mut files, self.sizes.segment_bytes) else { return false };
            files.free.push(file);
        }
        files.is_wanting = false;
        true
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

    /// Whether a write was refused since this was asked last.
    pub(crate) fn take_refusal(&self) -> bool {
        std::mem::take(&mut self.files.lock().has_refused)
    }

    /// Up to where all is durable.
    pub fn synced(&self) -> Position {
        *self.durable.lock()
    }

    /// Bytes of all files of the log.
    pub fn bytes(&self) -> u64 {
        let in_use: u64 = self.segments.read().iter().map(|segment| segment.capacity()).sum();
        let files = self.files.lock();
        let free = files.free.len() as u64 * self.sizes.segment_bytes;
        in_use + free + files.left.iter().map(|left| left.bytes).sum::<u64>()
    }

    /// Ends the log for good: nothing is appended any more, and all is durable.
    ///
    /// Errors: as [`Log::sync`].
    pub fn close(&self) -> Result<()> {
        self.sync()?;
        let mut files = self.files.lock();
        let kept = (self.output_files(&files) + CLOSED_OTHER_FILES).min(files.free.len());
        for file in files.free.split_off(kept) {
            // As in `free_until`.
            let _ = self.disk.remove(file.name());
        }
        for file in files.free.drain(..) {
            // They are no segments any more, so the next run takes them over.
            if file.write_all_at(0, &[0; HEADER_BYTES]).is_err() {
                let _ = self.disk.remove(file.name());
            }
        }
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
        let file = file?;
        let id = FileIdentity { store_id: self.store_id, number: file.name().number() };
        let begun = Segment::begin(Arc::clone(&file), redo::Segment { id, sequence });
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

    fn next_file(&self, files: &mut Files, needed: u64, purpose: Purpose) -> Result<Arc<dyn File>> {
        if purpose != Purpose::Room {
            files.wanted = files.wanted.max(self.output_files(files) + OTHER_FILES);
        }
        let is_usual = needed <= self.sizes.segment_bytes;
        if purpose == Purpose::Rows {
            self.ensure_whole(files)?;
        }
        if is_usual
            && files.free.len() > files.wanted
            && let Some(free) = files.free.pop()
        {
            return Ok(free);
        }
        let made = self.make(files, needed.max(self.sizes.segment_bytes));
        match made {
            Err(error) if error.kind() == ErrorKind::NoSpace && purpose != Purpose::Rows => {
                if purpose == Purpose::Deletes && files.free.len() <= self.output_files(files) + TURN_FILES {
                    // The next flush, which makes room, needs them, and an open that comes before it.
                    return Err(error);
                }
                let Some(one) = files.free.pop() else { return Err(error) };
                let is_last = purpose == Purpose::Room && files.free.is_empty();
                if is_usual && !is_last {
                    return Ok(one);
                }
                // A file that is open keeps its room.
                let name = one.name();
                drop(one);
                // As in `free_until`.
                let _ = self.disk.remove(name);
                // With the last file goes the room of the catalogue that says so: half of it is enough.
                self.make(files, if is_last { self.sizes.segment_bytes / 2 } else { needed })
            }
            made => made,
        }
    }

    /// As many files have room for the output of the next flush: rows of earlier runs' segments may be in it.
    fn output_files(&self, files: &Files) -> usize {
        (self.segments.read().len() + files.left.len()).min(self.sizes.output_files)
    }

    /// Lets what brings rows be appended to the current segment, which was begun with a file of the reserve.
    #[cold]
    fn allow_rows(&self) -> Result<()> {
        let mut files = self.files.lock();
        let whole = self.ensure_whole(&mut files);
        files.has_refused |= whole.is_err();
        self.takes_rows.store(whole.is_ok(), Ordering::Relaxed);
        whole
    }

    /// Makes the reserve whole, or refuses what brings rows.
    fn ensure_whole(&self, files: &mut Files) -> Result<()> {
        if self.refill(files)? {
            return Ok(());
        }
        let message = "the disk is full: deletes go on, and give room back in the background";
        Err(Error::new(ErrorKind::NoSpace, message).in_file(self.disk.place()))
    }

    /// Makes the reserve whole, unless some of it is lent. Whether it is.
    ///
    /// Errors: `NoSpace`, `Io`; then it is not.
    fn refill(&self, files: &mut Files) -> Result<bool> {
        while files.loans == 0 && files.free.len() < files.wanted {
            let file = self.make(files, self.sizes.segment_bytes)?;
            files.free.push(file);
        }
        Ok(files.loans == 0)
    }

    /// A new file with room for this many bytes.
    fn make(&self, files: &mut Files, bytes: u64) -> Result<Arc<dyn File>> {
        let number = files.last_number + 1;
        let name = FileName::Of(REDO, number);
        let failed = |e| Error::io("make a segment of the redo log", e).in_file(name);
        let file = self.disk.create(name).map_err(failed)?;
        files.last_number = number;
        self.has_new_names.store(true, Ordering::Release);
        if let Err(e) = file.allocate(bytes) {
            // The first error is the one to report.
            let _ = self.disk.remove(name);
            return Err(failed(e));
        }
        Ok(file)
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
            let reached = Position { sequence: segment.sequence(), offset: end };
            if reached > syncing.looked {
                let synced = planted!(SegmentNotSynced, segment.sync() => Ok(()));
                planted!(SyncFailureIgnored, synced => Ok(()))?;
                *self.durable.lock() = reached;
                syncing.looked = Position { offset: segment.mark(end), ..reached };
            }
            // The log went on behind it before it was asked for its end: so it was sealed.
            if segment.sequence() < last {
                self.lay_to_rest(&segment, end);
            }
        }
        Ok(())
    }

    /// Lets go of the mapping of a segment that is sealed, and synced up to its end.
    fn lay_to_rest(&self, segment: &Arc<Segment>, end: u64) {
        let mut segments = self.segments.write();
        if let Some(place) = segments.iter_mut().find(|other| Arc::ptr_eq(other, segment)) {
            *place = Arc::new(segment.at_rest(end));
        }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut files = self.0.files.lock();
        files.loans -= 1;
        // As in `free_until`.
        let _ = self.0.refill(&mut files);
    }
}

/// Files of earlier runs that can be segments of this one; others are removed.
fn take_over(disk: &dyn Disk, sizes: Sizes, unused: &[FileName]) -> Vec<Arc<dyn File>> {
    let mut free = Vec::new();
    for name in unused {
        let file = disk.open(*name).ok().filter(|file| {
            // Its blocks are there, too: what is mapped cannot fail for want of room.
            let is_one = file.len().is_ok_and(|bytes| bytes == sizes.segment_bytes);
            free.len() < sizes.output_files + OTHER_FILES
                && is_one
                && file.allocate(sizes.segment_bytes).is_ok()
        });
        match file {
            Some(file) => free.push(file),
            // What cannot be removed is passed over by every open.
            None => drop(disk.remove(*name)),
        }
    }
    free
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({} segments, synced to {:?})", self.segments.read().len(), self.synced())
    }
}

#[cfg(test)]
mod tests;
