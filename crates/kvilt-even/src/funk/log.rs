//! `ChunkLog`: a chunk's append-only data file (EvenDB §2.2, in-chunk logging), with its write buffer.
//!
//! ```text
//!   file: header | record | record | …      ──▶ tail.start
//!   buffer:                                     record | record | …
//! ```
//!
//! A record is appended to the buffer; the buffer goes to the file when it is full and at each checkpoint, so
//! a put makes no system call. Readers find a record by its offset, in the buffer or in the file, without a
//! lock. One log belongs to one epoch: after a crash nothing is ever appended behind a possibly torn tail.
//!
//! * **E-5** A log is appended to only in the run of the database that created it.
//! * **E-6** The manifest's length of a log covers only bytes that were synced before the manifest was.

mod reading;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use kvilt_base::{
    EntryRef, Error, ErrorKind, File, FileName, KeyRange, Kind, Mutant, RangeTombstone, Result, Version,
    limits, mutant,
};
use kvilt_format::{
    FileIdentity,
    log::{HEADER_BYTES, encode_header},
};
use kvilt_sync::{
    append::AppendBuffer,
    budget::{Charge, Part},
    published::{Published, pin},
};
use parking_lot::Mutex;

use super::{log_index, log_index::LogIndex, log_order::LogOrder};
use crate::{
    files::{Files, Hold},
    reserve::Use,
    tombstones::Tombstones,
};

/// A log's first buffer; it doubles while it keeps filling up between checkpoints.
const BUFFER_BYTES_MIN: usize = 4 << 10;
/// When all buffers together have this part of the memory budget, new ones are small.
const BUFFER_SHARE: u64 = 16;
/// A log longer than this takes no more records; the chunk begins another.
pub(crate) const ROTATE_BYTES: u64 = 1 << 30;
const _: () = assert!(ROTATE_BYTES + 2 * limits::BATCH_BYTES_MAX as u64 <= log_index::LOG_BYTES_LIMIT);

struct Buffer {
    bytes: AppendBuffer,
    _charge: Charge,
}

/// Where the file ends and the buffer begins.
struct LogTail {
    /// Offset in the file of the buffer's first byte: what lies before is in the file.
    start: u64,
    buffer: Option<Arc<Buffer>>,
}

/// What only the appending thread uses.
struct Writer {
    /// Capacity of the next buffer.
    buffer_bytes: usize,
    /// Room that was promised to the put that has the chunk's gate: a checkpoint that takes the buffer in between
    /// must leave one with this much room.
    promised_bytes: usize,
    promised_records: usize,
}

/// Which keys a log may have.
enum Span {
    /// None yet.
    Empty,
    /// From the first to the last of these, inclusive.
    Between(Vec<u8>, Vec<u8>),
    /// A log of an earlier run, or one with a range tombstone that has no end.
    Unknown,
}

impl Span {
    fn widen(&mut self, key: &[u8]) {
        match self {
            Span::Empty => *self = Span::Between(key.to_vec(), key.to_vec()),
            Span::Between(first, _) if key < first.as_slice() => key.clone_into(first),
            Span::Between(_, last) if key > last.as_slice() => key.clone_into(last),
            Span::Between(..) | Span::Unknown => {}
        }
    }
}

/// What to do when the disk is full while room is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfFull {
    /// The write fails, and nothing of it is visible.
    Fail,
    /// The buffer grows instead, up to a limit: a delete, which is what will make room.
    GrowForDeletes,
    /// The buffer grows instead: the write is durable elsewhere and must be applied.
    Grow,
}

/// Deletes on a full disk are kept in memory up to this many bytes a log.
const DELETES_BYTES_MAX: usize = 1 << 20;

impl IfFull {
    fn may_grow(self, buffered_bytes: usize) -> bool {
        match self {
            IfFull::Fail => false,
            IfFull::GrowForDeletes => buffered_bytes < DELETES_BYTES_MAX,
            IfFull::Grow => true,
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
    tail: Published<LogTail>,
    writer: Mutex<Writer>,
    length: AtomicU64,
    durable: AtomicU64,
    /// The highest version that was appended in this run; changed under the writer's lock.
    newest: AtomicU64,
    /// Whether it takes no more records.
    is_closed: AtomicBool,
    span: Mutex<Span>,
    /// Whether it is in the list of logs that the next checkpoint syncs.
    is_dirty: AtomicBool,
    records: AtomicUsize,
    index: Published<Option<Arc<ChargedIndex>>>,
    building: Mutex<()>,
    order: Mutex<Option<(Arc<LogOrder>, Charge)>>,
    tombstones: Published<Arc<Tombstones>>,
    /// Batch ids are unique within a run only: those of earlier runs mean nothing.
    is_of_this_run: bool,
    hold: Hold,
}

/// An index charged to the budget.
pub(crate) struct ChargedIndex {
    pub(crate) index: LogIndex,
    charge: Mutex<Charge>,
}

impl ChargedIndex {
    pub(crate) fn new(files: &Files) -> Arc<Self> {
        let index = LogIndex::new();
        let charge = Mutex::new(files.budget.charge(Part::LogIndexes, index.bytes()));
        Arc::new(ChargedIndex { index, charge })
    }

    fn insert(&self, key: &[u8], offset: u64) {
        let before = self.index.bytes();
        self.index.insert(&pin(), log_index::hash(key), offset);
        let grown = self.index.bytes() - before;
        if grown > 0 {
            self.charge.lock().grow(grown);
        }
    }
}

impl ChunkLog {
    /// A new, empty log of this run; its file is created when its first buffer is written. `is_indexed` says
    /// whether records are to be indexed as they come (the chunk has no munk).
    pub(crate) fn create(files: &Files, base: Version, is_indexed: bool) -> Arc<Self> {
        let number = files.next_number();
        let log = Self::with(files, number, base, LogTail { start: 0, buffer: None }, 0, 0);
        if is_indexed {
            log.index.replace(Some(ChargedIndex::new(files)));
        }
        Arc::new(log)
    }

    /// A log of an earlier run, `len` bytes of which are durable. Nothing is read yet.
    pub(crate) fn recovered(files: &Files, number: u64, base: Version, len: u64) -> Arc<Self> {
        let log = Self::with(files, number, base, LogTail { start: len, buffer: None }, len, len);
        files.know(FileName::Log(number), &log.hold);
        Arc::new(log)
    }

    /// The bug of a log that takes records again after a crash.
    pub(crate) fn reopened_for_append(files: &Files, number: u64, base: Version, len: u64) -> Arc<Self> {
        let log = Self::with(files, number, base, LogTail { start: len, buffer: None }, len, len);
        files.know(FileName::Log(number), &log.hold);
        log.is_closed.store(false, Ordering::Relaxed);
        log.index.replace(Some(ChargedIndex::new(files)));
        // What it held before the crash is indexed as far as it can be read.
        if let Some(index) = log.index.load(&pin()) {
            let _ = log.extend_index(files, index, 0, len);
        }
        Arc::new(log)
    }

    fn with(files: &Files, number: u64, base: Version, tail: LogTail, length: u64, durable: u64) -> Self {
        ChunkLog {
            number,
            identity: files.identity(number),
            base,
            file: Mutex::new(None),
            tail: Published::new(tail),
            writer: Mutex::new(Writer {
                buffer_bytes: BUFFER_BYTES_MIN,
                promised_bytes: 0,
                promised_records: 0,
            }),
            length: AtomicU64::new(length),
            durable: AtomicU64::new(durable),
            is_closed: AtomicBool::new(length > 0),
            span: Mutex::new(if length > 0 { Span::Unknown } else { Span::Empty }),
            newest: AtomicU64::new(0),
            is_dirty: AtomicBool::new(false),
            records: AtomicUsize::new(0),
            index: Published::new(None),
            building: Mutex::new(()),
            order: Mutex::new(None),
            tombstones: Published::new(Tombstones::none()),
            is_of_this_run: length == 0,
            hold: Hold::default(),
        }
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

    /// No more records come: what reads it may rely on its length. The caller holds the gate.
    pub(crate) fn close(&self) {
        // Pairs with the load in `index`: who sees it closed sees its final length.
        self.is_closed.store(true, Ordering::Release);
    }

    /// Whether a key of `range` may be in it.
    pub(crate) fn may_touch(&self, range: &KeyRange) -> bool {
        match &*self.span.lock() {
            Span::Empty => false,
            Span::Between(first, last) => {
                let is_before =
                    last < &range.start || (mutant(Mutant::BorderDropped) && last == &range.start);
                range.end.as_deref().is_none_or(|end| first.as_slice() < end) && !is_before
            }
            Span::Unknown => true,
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

    // ---- appending ----

    /// Makes sure that so many records of so many bytes together can be appended without a system call. May write the buffer
    /// out.
    pub(crate) fn reserve(
        &self,
        files: &Files,
        (records, bytes): (usize, usize),
        buffer_bytes_max: usize,
        if_full: IfFull,
    ) -> Result<()> {
        let mut writer = self.writer.lock();
        writer.promised_bytes = bytes;
        writer.promised_records = records;
        if self.tail.load(&pin()).buffer.as_ref().is_some_and(|b| b.bytes.remaining() >= bytes) {
            return Ok(());
        }
        let (start, buffer) = self.end();
        let is_first = start == 0 && buffer.is_none();
        if let Some(full) = &buffer {
            match self.write_buffer(files, start, full) {
                Ok(()) => writer.buffer_bytes = (writer.buffer_bytes * 2).min(buffer_bytes_max),
                Err(e) if e.kind() == ErrorKind::NoSpace && if_full.may_grow(full.bytes.len()) => {
                    self.grow_buffer(files, start, full, bytes);
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::NoSpace && mutant(Mutant::BufferDropped) => {}
                // So many deletes that memory must not hold them: the reserve does.
                Err(e) if e.kind() == ErrorKind::NoSpace && if_full == IfFull::GrowForDeletes => {
                    let _lease =
                        files.reserve.give(Use::DeletesUnderGate, full.bytes.len() as u64).ok_or(e)?;
                    self.write_buffer(files, start, full)?;
                }
                Err(e) => return Err(e),
            }
        }
        let start = start + buffer.map_or(0, |b| b.bytes.len() as u64);
        let header_bytes = if is_first { HEADER_BYTES } else { 0 };
        let is_short = files.budget.used(Part::LogBuffers) > files.budget.bytes_max() / BUFFER_SHARE;
        let wanted = if is_short { BUFFER_BYTES_MIN } else { writer.buffer_bytes };
        let buffer = self.new_buffer(files, wanted.min(buffer_bytes_max).max(bytes + header_bytes));
        if is_first {
            buffer
                .bytes
                .append(&encode_header(self.identity, self.base))
                .expect("a buffer has room for a header");
            self.length.store(HEADER_BYTES as u64, Ordering::Release);
        }
        self.tail.replace(LogTail { start, buffer: Some(buffer) });
        Ok(())
    }

    /// Whether it may hold a record above `cut`, so that having synced it does not make all of it durable: the
    /// checkpoint that covers the record is still to come.
    pub(crate) fn reaches_above(&self, cut: Version) -> bool {
        self.newest.load(Ordering::Acquire) > cut.to_u64()
    }

    /// Appends one encoded record of `key` at a version, for which room was reserved, at `offset`, where the log ends.
    pub(crate) fn append(&self, (key, version): (&[u8], Version), record: &[u8], offset: u64) {
        let mut writer = self.writer.lock();
        self.newest.fetch_max(version.to_u64(), Ordering::AcqRel);
        writer.promised_records = writer.promised_records.saturating_sub(1);
        if writer.promised_records == 0 {
            writer.promised_bytes = 0;
        }
        self.span.lock().widen(key);
        let pin = pin();
        let tail = self.tail.load(&pin);
        let buffer = tail.buffer.as_ref().expect("room was reserved");
        let at = buffer.bytes.append(record).expect("room was reserved");
        assert_eq!(offset, tail.start + at as u64, "whoever appends has the gate");
        self.length.store(offset + record.len() as u64, Ordering::Release);
        self.records.fetch_add(1, Ordering::Relaxed);
    }

    /// Enters a record just appended into the index, if it keeps one.
    pub(crate) fn index_record(&self, key: &[u8], offset: u64) {
        if let Some(index) = self.index.load(&pin()) {
            index.insert(key, offset);
        }
    }

    /// Adds a range tombstone just appended.
    pub(crate) fn add_tombstone(&self, tombstone: RangeTombstone, batch: u64) {
        match &tombstone.range.end {
            _ if mutant(Mutant::TombstoneNotInSpan) => {}
            // Whoever has keys under it must keep reading this log.
            Some(end) => self.span.lock().widen(end),
            None => *self.span.lock() = Span::Unknown,
        }
        let _writer = self.writer.lock();
        let pin = pin();
        self.tombstones.replace(self.tombstones.load(&pin).with(tombstone, batch));
    }

    /// Where the file ends, and the buffer that begins there; held without a pin, for who reads or writes the file.
    fn end(&self) -> (u64, Option<Arc<Buffer>>) {
        let pin = pin();
        let tail = self.tail.load(&pin);
        (tail.start, tail.buffer.clone())
    }

    fn new_buffer(&self, files: &Files, bytes: usize) -> Arc<Buffer> {
        let charge = files.budget.charge(Part::LogBuffers, bytes as u64);
        Arc::new(Buffer { bytes: AppendBuffer::new(bytes), _charge: charge })
    }

    fn grow_buffer(&self, files: &Files, start: u64, full: &Buffer, bytes: usize) {
        let content = full.bytes.read();
        let larger = self.new_buffer(files, (content.len() + bytes) * 2);
        larger.bytes.append(content).expect("the larger buffer holds the smaller");
        self.tail.replace(LogTail { start, buffer: Some(larger) });
    }

    fn write_buffer(&self, files: &Files, start: u64, buffer: &Buffer) -> Result<()> {
        let bytes = buffer.bytes.read();
        if bytes.is_empty() {
            return Ok(());
        }
        let file = {
            let mut file = self.file.lock();
            match &*file {
                Some(file) => Arc::clone(file),
                None => {
                    let name = FileName::Log(self.number);
                    let opened =
                        if start == 0 { files.create(name, &self.hold)? } else { files.open(name)? };
                    Arc::clone(file.insert(opened))
                }
            }
        };
        // Always at the offset where the last good write ended: a failed or short write is written over.
        file.write_all_at(start, bytes)
            .map_err(|e| Error::io("append to a log", e).at(FileName::Log(self.number), start))?;
        files.counters.log_bytes_written.add(bytes.len() as u64);
        files.reserve.grow_with(bytes.len() as u64);
        Ok(())
    }

    /// Writes the buffer to the file. No promise that it survives.
    fn flush(&self, files: &Files) -> Result<u64> {
        let mut writer = self.writer.lock();
        let (start, buffer) = self.end();
        let Some(buffer) = buffer else { return Ok(start) };
        self.write_buffer(files, start, &buffer)?;
        if buffer.bytes.len() < writer.buffer_bytes / 4 {
            writer.buffer_bytes = (writer.buffer_bytes / 2).max(BUFFER_BYTES_MIN);
        }
        let start = start + buffer.bytes.len() as u64;
        // The buffer is given back: a log that is not written to costs nothing between checkpoints.
        let is_awaited = writer.promised_bytes > 0 && !self.is_closed.load(Ordering::Relaxed);
        let fresh =
            is_awaited.then(|| self.new_buffer(files, writer.buffer_bytes.max(writer.promised_bytes)));
        self.tail.replace(LogTail { start, buffer: fresh });
        Ok(start)
    }

    /// Makes everything appended so far durable.
    pub(crate) fn sync(&self, files: &Files) -> Result<()> {
        let len = self.flush(files)?;
        if len <= self.durable_len() {
            return Ok(());
        }
        let file = self.file.lock().clone().expect("a log with bytes has a file");
        if !mutant(Mutant::LogNotSynced) {
            file.sync().map_err(|e| sync_failed(e, FileName::Log(self.number)))?;
        }
        self.durable.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    // ---- reading ----

    fn name(&self) -> FileName {
        FileName::Log(self.number)
    }

    /// The range tombstones in it. Complete only if the index is built or it is a log of this run.
    pub(crate) fn tombstones(&self) -> Arc<Tombstones> {
        Arc::clone(self.tombstones.load(&pin()))
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
        // A log that still takes records without indexing them belongs to a chunk that has a munk by now: we come
        // late, with an old state. What we find serves us, but must not be taken for complete by others.
        let is_closed = self.is_closed.load(Ordering::Acquire);
        let index = ChargedIndex::new(files);
        self.extend_index(files, &index, 0, self.len())?;
        if is_closed {
            self.index.replace(Some(Arc::clone(&index)));
        }
        Ok(index)
    }

    /// Enters the records from `from` up to `upto` into `index`, and for a log of an earlier run the range
    /// tombstones into the list.
    pub(crate) fn extend_index(
        &self,
        files: &Files,
        index: &ChargedIndex,
        from: u64,
        upto: u64,
    ) -> Result<()> {
        let mut tombstones = Tombstones::default();
        let mut records = 0;
        self.for_each(files, from, upto, &mut |offset, entry, _batch| {
            records += 1;
            if entry.kind == Kind::RangeTombstone {
                tombstones.push(range_tombstone(&entry), 0);
            } else {
                index.insert(entry.key, offset);
            }
            Ok(())
        })?;
        if self.records.load(Ordering::Relaxed) == 0 {
            // Not of this run: what is in the file is all there is.
            self.records.store(records, Ordering::Relaxed);
            if !tombstones.is_empty() {
                self.tombstones.replace(Arc::new(tombstones));
            }
        }
        Ok(())
    }

    /// Gives it a complete index, or takes it away.
    pub(crate) fn replace_index(&self, index: Option<Arc<ChargedIndex>>) {
        let _building = self.building.lock();
        self.index.replace(index);
        *self.order.lock() = None;
    }

    /// The records in key order, for a scan; kept until the log grows.
    pub(crate) fn order(self: &Arc<Self>, files: &Files) -> Result<Arc<LogOrder>> {
        let len = self.len();
        let mut order = self.order.lock();
        if let Some((order, _)) = order.as_ref().filter(|(order, _)| order.upto() >= len) {
            return Ok(Arc::clone(order));
        }
        let fresh = Arc::new(LogOrder::read(self, files, len)?);
        let charge = files.budget.charge(Part::LogIndexes, fresh.memory_bytes() as u64);
        *order = Some((Arc::clone(&fresh), charge));
        Ok(fresh)
    }

    /// Forgets what can be read again: the order, and with `and_index` the index.
    pub(crate) fn forget(&self, and_index: bool) {
        *self.order.lock() = None;
        if and_index && self.index.load(&pin()).is_some() {
            self.replace_index(None);
        }
    }
}

/// A failed sync: nobody may trust what was written since the last good one (D-5).
pub(crate) fn sync_failed(error: io::Error, name: FileName) -> Error {
    if mutant(Mutant::SyncRetried) {
        return Error::io("sync", error).in_file(name);
    }
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
