//! `ChunkLog`: a chunk's append-only data file (EvenDB §2.2, in-chunk logging), with its write buffer.
//!
//! ```text
//!   file: header | record | … ──▶ tail.start, or a little further
//!   flushing:                       record | record | …
//!   filling:                                            record | …  ◀── puts
//! ```
//!
//! A record is appended to the buffer that is filling; that goes to the file when it is full and at each
//! checkpoint, so a put makes no system call. While it is written, it is the one that is flushing, and
//! records go into another. Readers find a record by its offset, in a buffer or in the file, without a lock.
//! One log belongs to one epoch: after a crash nothing is ever appended behind a possibly torn tail.
//!
//! * **E-5** A log is appended to only in the run of the database that created it.
//! * **E-6** The manifest's length of a log covers only bytes that were synced before the manifest was.

mod appending;
mod hiders;
mod intervals;
#[cfg(any(test, feature = "mutants"))]
mod planted;
mod reading;
mod summaries;
mod tail;

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use kvilt_base::{
    EntryRef, Error, ErrorKind, File, FileName, KeyRange, Kind, RangeTombstone, Result, Version, limits,
    planted,
};
use kvilt_format::{
    FileIdentity,
    log::{HEADER_BYTES, Outline, SUMMARY_BYTES_MAX},
    names::LOG,
};
use kvilt_sync::{
    published::{Published, pin},
    segment::Place,
};
use parking_lot::Mutex;

pub(crate) use self::{
    appending::IfFull,
    intervals::Intervals,
    reading::{WholeRecords, Window},
    summaries::SummaryRule,
};
use self::{
    appending::Writer,
    hiders::Hiders,
    intervals::FixedIntervals,
    summaries::{Gathered, Summaries},
    tail::{Buffer, LogTail},
};
use super::{
    ascent::Ascent,
    log_index,
    log_index::ChargedIndex,
    log_order::{LogOrder, Orders},
};
use crate::{
    files::{Files, Hold},
    key_hash::key_hash,
    shared_key::{LongKeys, SharedKey},
};

/// A log longer than this takes no more records; the chunk begins another.
pub(crate) const ROTATE_BYTES: u64 = 1 << 30;
const _: () = assert!(ROTATE_BYTES + 2 * limits::BATCH_BYTES_MAX as u64 <= log_index::LOG_BYTES_LIMIT);

/// Which keys a log may have.
enum Span {
    /// None yet.
    Empty,
    /// From the first to the last of these, inclusive; there may be none at either.
    Between(SharedKey, SharedKey),
    /// In one of these: a closed log of which more was learned.
    Among(Box<FixedIntervals>),
    /// A log of an earlier run, or one with a range tombstone that has no end.
    Unknown,
}

impl Span {
    fn widen(&mut self, key: &[u8], long_keys: &LongKeys) {
        match self {
            Span::Empty => *self = Span::Between(long_keys.keep_low(key), long_keys.keep_high(key)),
            Span::Between(first, _) if first.cmp(key).is_gt() => long_keys.keep_low_instead(first, key),
            Span::Between(_, last) if last.cmp(key).is_lt() => long_keys.keep_high_instead(last, key),
            Span::Between(..) | Span::Unknown => {}
            Span::Among(_) => unreachable!("a closed log gets no more keys"),
        }
    }
}

/// One log file. Appends are serialized by an inner lock; reads take none.
pub(crate) struct ChunkLog {
    number: u64,
    identity: FileIdentity,
    /// The version at which its run of the database began; versions in it are relative to this.
    base: Version,
    file: Mutex<Option<Arc<dyn File>>>,
    /// Replaced under the writer's lock.
    tail: Published<LogTail>,
    /// Held by who writes records to the file, and taken before the writer's lock. Never by a put that is
    /// announced.
    flusher: Mutex<()>,
    /// Never held across a call to the disk: a put that is announced takes it.
    writer: Mutex<Writer>,
    length: AtomicU64,
    durable: AtomicU64,
    /// The system was told that it need not keep what lies before.
    let_go: AtomicU64,
    /// The highest version that was appended in this run; changed under the writer's lock.
    newest: AtomicU64,
    /// Whether it takes no more records.
    is_closed: AtomicBool,
    span: Mutex<Span>,
    long_keys: Arc<LongKeys>,
    /// Whether it has any tombstone.
    has_deletes: AtomicBool,
    /// Whether it is in the list of logs that the next checkpoint syncs.
    is_dirty: AtomicBool,
    records: AtomicUsize,
    index: Published<Option<Arc<ChargedIndex>>>,
    building: Mutex<()>,
    orders: Mutex<Orders>,
    summaries: Summaries,
    /// For the next summary; none of a log that is closed. Nobody waits for it who has the writer's lock.
    gathered: Mutex<Option<Box<Gathered>>>,
    hiders: Hiders,
    /// Whether these are all that the log has: of an earlier run's, once it was read whole.
    knows_tombstones: AtomicBool,
    /// Batch ids are unique within a run only: those of earlier runs mean nothing.
    is_of_this_run: bool,
    hold: Hold,
}

impl ChunkLog {
    /// A new, empty log of this run; its file is created when its first buffer is written.
    pub(crate) fn create(files: &Files, base: Version) -> Arc<Self> {
        let number = files.next_number();
        let log = Self::with(files, (number, base), 0, None);
        log.index.replace(Some(ChargedIndex::new(files)));
        Arc::new(log)
    }

    /// A log of an earlier run, `len` bytes of which are durable, with where in them its last summary lies.
    /// Nothing is read yet.
    pub(crate) fn recovered(
        files: &Files,
        (number, base): (u64, Version),
        len: u64,
        summary: Option<u64>,
    ) -> Arc<Self> {
        let log = Self::with(files, (number, base), len, summary);
        files.know(FileName::Of(LOG, number), &log.hold);
        Arc::new(log)
    }

    fn with(files: &Files, (number, base): (u64, Version), length: u64, summary: Option<u64>) -> Self {
        ChunkLog {
            number,
            identity: files.identity(number),
            base,
            file: Mutex::new(None),
            tail: Published::new(LogTail::behind(length)),
            flusher: Mutex::new(()),
            writer: Mutex::new(Writer::new(
                files,
                if length > 0 { Ascent::unknown(files) } else { Ascent::new(files) },
            )),
            length: AtomicU64::new(length),
            durable: AtomicU64::new(length),
            let_go: AtomicU64::new(0),
            is_closed: AtomicBool::new(length > 0),
            long_keys: Arc::clone(&files.long_keys),
            span: Mutex::new(if length > 0 { Span::Unknown } else { Span::Empty }),
            has_deletes: AtomicBool::new(false),
            newest: AtomicU64::new(0),
            is_dirty: AtomicBool::new(false),
            records: AtomicUsize::new(0),
            index: Published::new(None),
            building: Mutex::new(()),
            orders: Mutex::default(),
            summaries: Summaries::of(summary),
            gathered: Mutex::new((length == 0).then(|| Box::new(Gathered::new(base, files)))),
            hiders: Hiders::new(files),
            knows_tombstones: AtomicBool::new(false),
            is_of_this_run: length == 0,
            hold: Hold::new(AtomicU64::new(length)),
        }
    }

    /// Of a log of an earlier run: its end, from `begin` on, where a record begins, is not in its file.
    pub(crate) fn ends_in_memory(&self, files: &Files, begin: u64, bytes: &[u8]) {
        let buffer = Buffer::new(files, Place { log: self.number, offset: begin }, bytes.len());
        buffer.bytes.append(bytes).expect("it is as long");
        self.tail.replace(LogTail { start: begin, flushing: None, filling: Some(buffer) });
    }

    /// Of a log of an earlier run, which lies in `file`: a checkpoint has yet to sync what is behind the
    /// first `len` bytes.
    pub(crate) fn is_durable_up_to(&self, len: u64, file: Arc<dyn File>) {
        self.durable.store(len, Ordering::Release);
        *self.file.lock() = Some(file);
    }

    /// Whether this run appends to it, or has.
    pub(crate) fn is_of_this_run(&self) -> bool {
        self.is_of_this_run
    }

    /// Its number in the directory.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Where its versions begin.
    pub(crate) fn base(&self) -> Version {
        self.base
    }

    /// Bytes appended, those in the buffer included.
    pub(crate) fn len(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// Whether so many bytes of records, behind a summary, would have offsets that its index can keep.
    pub(crate) fn has_offsets_for(&self, bytes: usize) -> bool {
        self.len() + ((bytes + SUMMARY_BYTES_MAX) as u64) < log_index::LOG_BYTES_LIMIT
    }

    /// No more records come: what reads it may rely on its length. The caller holds the gate.
    pub(crate) fn close(&self) {
        // Pairs with the load in `index`: who sees it closed sees its final length.
        self.is_closed.store(true, Ordering::Release);
        self.writer.lock().ascent.end_notes();
        // Who has it is done soon, and then it goes when a second has passed.
        if let Some(mut gathered) = self.gathered.try_lock() {
            *gathered = None;
        }
    }

    /// Whether a key of `range` may be in it.
    pub(crate) fn may_touch(&self, range: &KeyRange) -> bool {
        match &*self.span.lock() {
            Span::Empty => false,
            Span::Between(first, last) => {
                let last = last.cmp(&range.start);
                let is_before = planted!(BorderDropped, last.is_lt() => last.is_le());
                range.end.as_deref().is_none_or(|end| first.cmp(end).is_lt()) && !is_before
            }
            Span::Among(intervals) => intervals.touch(range),
            Span::Unknown => true,
        }
    }

    /// Between which of `keys` it has rows: `keys` ascend and are all that its chunk's munk has, and the log
    /// has none that is not among them but those that `narrow` will be told of. None if that cannot be known.
    pub(crate) fn intervals_among<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Option<Intervals> {
        if !self.may_narrow() {
            return None;
        }
        let pin = pin();
        let index = self.index.load(&pin).as_ref()?;
        let has = |key: &[u8]| index.index.offsets(&pin, key_hash(key)).next().is_some();
        Some(Intervals::of(keys.map(|key| (key, has(key)))))
    }

    /// Whether its munk tells between which keys its rows lie. It does not have the keys that were deleted,
    /// but a tombstone may hide rows in older files: a log with one may have it anywhere.
    fn may_narrow(&self) -> bool {
        planted!(DeletesNotInSpan => return true);
        !self.has_deletes()
    }

    /// Whether it has a tombstone of a key or a range.
    pub(crate) fn has_deletes(&self) -> bool {
        // Relaxed: who must not miss one has the gate, or looks again when whatever the delete did was seen.
        self.has_deletes.load(Ordering::Relaxed)
    }

    /// Takes note between which keys its rows lie, now that it is closed; unless a delete came since these
    /// were found.
    pub(crate) fn narrow(&self, intervals: Intervals) {
        let is_closed = self.is_closed.load(Ordering::Relaxed);
        let mut span = self.span.lock();
        if is_closed && self.may_narrow() && !intervals.are_long() && matches!(*span, Span::Between(..)) {
            *span = Span::Among(Box::new(intervals.fixed()));
        }
    }

    /// Whether it has no records.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() <= HEADER_BYTES as u64
    }

    /// Bytes that a power cut leaves.
    pub(crate) fn durable_len(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Bytes appended that are not in the file yet.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.len().saturating_sub(self.tail.load(&pin()).start)
    }

    /// Marks it dirty; true if it was not, and the caller must enter it into the list of dirty logs.
    pub(crate) fn becomes_dirty(&self) -> bool {
        !self.is_dirty.load(Ordering::Relaxed) && !self.is_dirty.swap(true, Ordering::AcqRel)
    }

    /// Takes it off the list of dirty logs; a put from here on will enter it again.
    pub(crate) fn taken_for_sync(&self) {
        self.is_dirty.store(false, Ordering::Release);
    }

    // ---- reading ----

    fn name(&self) -> FileName {
        FileName::Of(LOG, self.number)
    }

    // ---- index and order ----

    /// The index, built by reading the log if there is none. Also makes [`ChunkLog::tombstones`] complete.
    pub(crate) fn index(&self, files: &Files) -> Result<Arc<ChargedIndex>> {
        if let Some(index) = self.index.load(&pin()) {
            return Ok(Arc::clone(index));
        }
        let _building = self.building.lock();
        if let Some(index) = self.index.load(&pin()) {
            return Ok(Arc::clone(index));
        }
        // A log that still takes records without indexing them belongs to a chunk that has a munk by now: we
        // come late, with an old state. What we find serves us, but must not be taken for complete by others.
        let is_closed = self.is_closed.load(Ordering::Acquire);
        let mut keys = Vec::new();
        self.read_keys(files, 0..self.len(), &mut |key, offset| keys.push((key_hash(key), offset)))?;
        let index = ChargedIndex::of_closed(keys, files);
        if is_closed {
            self.index.replace(Some(Arc::clone(&index)));
        }
        Ok(index)
    }

    /// Enters the records of a part of it into `index`, which grows.
    pub(crate) fn extend_index(&self, files: &Files, index: &ChargedIndex, place: Range<u64>) -> Result<()> {
        self.read_keys(files, place, &mut |key, offset| index.insert(key, offset))
    }

    /// Gives the key and the place of each record in `place` to `each`, and of a log of an earlier run enters
    /// the range tombstones into the list. Where summaries tell the keys, only these are read.
    fn read_keys(&self, files: &Files, place: Range<u64>, each: &mut dyn FnMut(&[u8], u64)) -> Result<()> {
        let from = place.start;
        let mut tombstones = Vec::new();
        let mut records = 0;
        let mut ascent = Ascent::new(files);
        let mut ascent_bytes = 0;
        self.for_each_outline(files, place, &mut |Outline { offset, kind, key, .. }| {
            records += 1;
            ascent_bytes += ascent.note(key, offset);
            match kind {
                Kind::Put | Kind::Tombstone => each(key, offset),
                // It was entered when it was put.
                Kind::RangeTombstone if self.is_of_this_run => {}
                Kind::RangeTombstone => tombstones.push(offset),
            }
            Ok(())
        })?;
        if self.records.load(Ordering::Relaxed) == 0 {
            // Before anything is noted: if one cannot be read, the next reader must meet the same.
            let tombstones = self.read_tombstones(files, &tombstones)?;
            // Not of this run: what is in the file is all there is.
            self.records.store(records, Ordering::Relaxed);
            if !self.is_of_this_run && from == 0 {
                let mut writer = self.writer.lock();
                writer.charge.grow(ascent_bytes as u64);
                writer.ascent = ascent;
            }
            if !tombstones.is_empty() {
                self.hiders.replace(tombstones);
            }
            if from == 0 {
                // Release: pairs with `all_tombstones`. They stay when the index is forgotten.
                self.knows_tombstones.store(true, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Whether all its records are in an index.
    pub(crate) fn has_index(&self) -> bool {
        self.index.load(&pin()).is_some()
    }

    /// Gives it a complete index, or takes it away.
    pub(crate) fn replace_index(&self, index: Option<Arc<ChargedIndex>>) {
        let _building = self.building.lock();
        self.index.replace(index);
    }

    /// Has the index of a closed log take no more memory than it must.
    fn fix_index(&self, files: &Files) {
        // Acquire: pairs with the store in `close`, behind which no record is entered.
        if !self.is_closed.load(Ordering::Acquire) || !self.has_index() {
            return;
        }
        let _building = self.building.lock();
        let pin = pin();
        if let Some(fixed) = self.index.load(&pin).as_ref().and_then(|index| index.fixed(files, &pin)) {
            self.index.replace(Some(fixed));
        }
    }

    /// Asks its [`Ascent`] something. Waits for no disk.
    pub(crate) fn with_ascent<R>(&self, ask: impl FnOnce(&Ascent) -> R) -> R {
        ask(&self.writer.lock().ascent)
    }

    /// Bytes that a scan must put in order first.
    pub(crate) fn unordered_bytes(&self) -> u64 {
        let len = self.len();
        len - self.with_ascent(|ascent| ascent.end(len))
    }

    /// The records of a part of it in key order, newest first, for a scan. They may have others as well.
    /// None if to make them takes more than `bytes_max`.
    pub(crate) fn orders(
        &self,
        files: &Files,
        place: Range<u64>,
        (bytes_max, cost_bytes): (u64, Option<&AtomicU64>),
    ) -> Result<Option<Vec<Arc<LogOrder>>>> {
        self.orders.lock().of(self, files, place, (bytes_max, cost_bytes))
    }

    /// So many seconds have passed: orders that nobody asks for grow old, and a log that was closed is done
    /// with growing.
    pub(crate) fn age(&self, files: &Files, seconds: u32) {
        self.orders.lock().age(seconds);
        self.fix_index(files);
        if self.is_closed.load(Ordering::Acquire) {
            *self.gathered.lock() = None;
        }
    }

    /// Forgets orders that nobody has asked for lately.
    pub(crate) fn forget_unread(&self) {
        self.orders.lock().forget_unread();
    }

    /// Forgets what can be read again: orders, and with `and_index` the index.
    pub(crate) fn forget(&self, and_index: bool) {
        self.orders.lock().forget();
        if and_index && self.index.load(&pin()).is_some() {
            self.replace_index(None);
        }
    }
}

/// A failed sync: nobody may trust what was written since the last good one (D-5).
pub(crate) fn sync_failed(error: io::Error, name: FileName) -> Error {
    planted!(SyncRetried => return Error::io("sync", error).in_file(name));
    Error::new(ErrorKind::Poisoned, format!("a sync failed, so unsynced writes may be lost: {error}"))
        .in_file(name)
}

/// The range tombstone that an entry of a log is. Its value is the end of the range behind a byte that says
/// whether there is one.
pub(crate) fn range_tombstone(entry: &EntryRef<'_>) -> RangeTombstone {
    let end = match entry.value.split_first() {
        Some((1, end)) => Some(end.to_vec()),
        _ => None,
    };
    RangeTombstone { range: KeyRange { start: entry.key.to_vec(), end }, version: entry.version }
}

/// The value that says where a range ends; see [`range_tombstone`].
pub(crate) fn range_end_value(end: Option<&[u8]>) -> Vec<u8> {
    match end {
        Some(end) => [&[1], end].concat(),
        None => vec![0],
    }
}

#[cfg(test)]
mod tests;
