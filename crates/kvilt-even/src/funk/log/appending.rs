//! The appending half of [`ChunkLog`]: room for records, records, and the buffers' way into the file.
//!
//! A put that is announced takes the writer's lock, which nobody holds across a call to the disk. A buffer
//! that is full, or that a checkpoint wants in the file, is set aside, and puts go on in another. Who writes
//! to the file has a turn of the flusher: a checkpoint, or the put that has set the buffer aside, once it has
//! given the chunk's gate back. `docs/design/0032-a-buffer-that-is-flushing.md` and
//! `docs/design/0054-full-buffers-behind-the-gate.md` say why so.
//!
//! What is always true:
//! - The file takes records in the order of their offsets, always from where the last good write ended: a
//!   failed or short write is written over. That may be in the middle of a record ([`super::tail`]).
//! - One buffer at most is set aside, and only who has a turn takes it off. After a write that failed there
//!   is one buffer again, which holds everything that is not in the file; until a write has succeeded, a put
//!   whose buffer is full writes it before it is announced, and is told.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use kvilt_base::{
    Charge, EntryRef, Error, ErrorKind, FileName, Kind, RangeTombstone, Result, Version, mutant, planted,
};
use kvilt_format::{
    log::{HEADER_BYTES, encode_header},
    names::LOG,
};
use kvilt_sync::{
    published::{Pin, pin},
    segment::Place,
};
use parking_lot::MutexGuard;

use super::super::ascent::Ascent;
use super::{
    ChunkLog, Span, sync_failed,
    tail::{
        BUFFER_BYTES_MIN, Buffer, Flushing, LogTail, Wanted, WrittenOut, fitting, have_buffers_their_share,
    },
};
use crate::{
    files::Files,
    mutants, parts,
    pool::{Pool, caught},
    reserve::Use,
};

/// Pages of the system, in bytes, or a part of one.
const PAGE_BYTES: u64 = 4096;
/// Of a log that only its munk is read for, the index may have this part of the log's bytes, and so much in
/// any case.
const INDEX_SHARE: u64 = 16;
const INDEX_BYTES_MIN: u64 = 64 << 10;
/// A buffer with more bytes than this, for a large record, is written as soon as that is appended; and so is
/// one with more than buffers usually have and more than these bytes, if all together have their part of the
/// budget.
const LARGE_BUFFER_BYTES: usize = 1 << 20;
const LONG_BUFFER_BYTES: usize = 8 << 10;
/// Deletes on a full disk are kept in memory up to this many bytes a log.
const DELETES_BYTES_MAX: usize = 1 << 20;

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

impl IfFull {
    fn may_grow(self, buffered_bytes: usize) -> bool {
        match self {
            IfFull::Fail => false,
            IfFull::GrowForDeletes => buffered_bytes < DELETES_BYTES_MAX,
            IfFull::Grow => true,
        }
    }
}

/// What only those use who append or exchange buffers.
pub(super) struct Writer {
    /// What the next buffer has room for, about.
    buffer_bytes: usize,
    /// Room that was promised to the put that has the chunk's gate: a checkpoint that takes the buffer in
    /// between must leave one with this much room.
    promised_bytes: usize,
    promised_records: usize,
    /// Where a batch begins that is not whole yet: no checkpoint names it, so recovery can leave it out.
    batch_begin: Option<u64>,
    /// Where in the buffer that is filling the record begins in which its piece ends.
    across: Option<usize>,
    /// Whether the file took nothing the last time.
    has_failed: bool,
    /// Of what was appended, and of a log of an earlier run once it was read.
    pub(super) ascent: Ascent,
    /// For the memory of the ascent.
    pub(super) charge: Charge,
}

impl Writer {
    pub(super) fn new(files: &Files, ascent: Ascent) -> Self {
        let charge = files.budget.charge(parts::LOG_INDEXES, 0);
        Writer {
            buffer_bytes: BUFFER_BYTES_MIN,
            promised_bytes: 0,
            promised_records: 0,
            batch_begin: None,
            across: None,
            has_failed: false,
            ascent,
            charge,
        }
    }

    /// A buffer was full before a checkpoint wanted it.
    fn grow_next(&mut self, wanted: Wanted) {
        self.buffer_bytes = (self.buffer_bytes * 2).min(wanted.buffer_bytes_max);
    }
}

/// Whether a full buffer was set aside.
pub(crate) type IsAside = bool;

impl ChunkLog {
    /// Makes sure that so many records of so many bytes together can be appended without a system call. The
    /// caller has the gate, so nobody appends meanwhile. If this says so, a full buffer was set aside, and
    /// the caller is to [write](ChunkLog::write_aside) it once it has given the gate back; else it may have
    /// been written here.
    pub(crate) fn reserve(
        &self,
        files: &Files,
        (records, bytes): (usize, usize),
        buffer_bytes_max: usize,
        if_full: IfFull,
    ) -> Result<IsAside> {
        let wanted = Wanted { bytes, buffer_bytes_max };
        if let Some(is_aside) = self.promise(files, records, wanted) {
            return Ok(is_aside);
        }
        let _turn = self.flusher.lock();
        // What was set aside before goes first. If that fails, it is one buffer with what came since, and has
        // this put's room: so it is the next one that is told.
        let _is_told_later = self.flush_aside(files);
        if let Some(is_aside) = self.promise(files, records, wanted) {
            return Ok(is_aside);
        }
        self.make_room(files, wanted, if_full)?;
        Ok(false)
    }

    /// Promises the room to a put, if it is there or takes nothing but memory.
    fn promise(&self, files: &Files, records: usize, wanted: Wanted) -> Option<IsAside> {
        let mut writer = self.writer.lock();
        writer.promised_bytes = wanted.bytes;
        writer.promised_records = records;
        let pin = pin();
        let tail = self.tail.load(&pin);
        if tail.has_room(wanted.bytes) {
            return Some(false);
        }
        if tail.is_nothing_filled() {
            self.begin_buffer(files, &mut writer, tail.clone(), wanted);
            return Some(false);
        }
        if tail.flushing.is_some() || writer.has_failed || files.reserve.is_short() || files.is_read_only {
            return None;
        }
        writer.grow_next(wanted);
        let full = tail.filling.clone().expect("something is filled");
        if let Some(mut gathered) = self.gathered.try_lock() {
            // Not once it is written: the summary that the next buffer may begin with tells of all that is
            // before it.
            gathered.iter_mut().for_each(|gathered| gathered.gather(tail.start, full.bytes.read()));
        }
        let flushing = Some(Flushing::piece(full, writer.across));
        let aside = LogTail { start: tail.start, flushing, filling: None };
        self.begin_buffer(files, &mut writer, aside, wanted);
        Some(true)
    }

    /// Writes the full buffer to the file and begins another, or lets it grow. It is the caller's turn, and
    /// nothing is set aside.
    fn make_room(&self, files: &Files, wanted: Wanted, if_full: IfFull) -> Result<()> {
        let tail = self.end();
        let full = tail.filling.as_ref().expect("a log without a buffer is given one");
        let all = Flushing::all(Arc::clone(full));
        let grow = || {
            let place = self.place(tail.start);
            let larger = Buffer::grown(files, place, (full, full.len()), (full.len() + wanted.bytes) * 2);
            let _writer = self.writer.lock();
            self.tail.replace(LogTail { filling: Some(larger), ..tail.clone() });
        };
        if files.is_read_only {
            grow();
            return Ok(());
        }
        match self.write_buffer(files, tail.start, &all) {
            Ok(()) => self.writer.lock().grow_next(wanted),
            Err(e) if e.kind() == ErrorKind::NoSpace && if_full.may_grow(full.len()) => {
                grow();
                return Ok(());
            }
            Err(e) if e.kind() == ErrorKind::NoSpace && mutant(&mutants::BufferDropped) => {}
            // So many deletes that memory must not hold them: the reserve does.
            Err(e) if e.kind() == ErrorKind::NoSpace && if_full == IfFull::GrowForDeletes => {
                let _lease = files.reserve.give(Use::DeletesUnderGate, full.len() as u64).ok_or(e)?;
                self.write_buffer(files, tail.start, &all)?;
            }
            Err(e) => return Err(e),
        }
        let written = LogTail::behind(tail.start + full.len() as u64);
        let mut writer = self.writer.lock();
        writer.has_failed = false;
        self.begin_buffer(files, &mut writer, written, wanted);
        Ok(())
    }

    /// Gives the log a fresh buffer behind `tail`, whose own, if any, has nothing in it; the header comes
    /// first, or a summary that is due.
    fn begin_buffer(
        &self,
        files: &Files,
        writer: &mut MutexGuard<'_, Writer>,
        mut tail: LogTail,
        wanted: Wanted,
    ) {
        let len = self.len();
        let first = if len < HEADER_BYTES as u64 {
            encode_header(self.identity, self.base).to_vec()
        } else {
            self.summary_due(files, len).unwrap_or_default()
        };
        let usual_bytes = fitting(writer.buffer_bytes, files);
        let mut buffer = Buffer::behind((self.number, &tail), files, &first, wanted, usual_bytes);
        if let Some(flushing) = tail.flushing.take_if(|_| files.pool.is_some() && !buffer.is_in_pool()) {
            // What it carries over would be neither in the file nor in the pool once that is written: so all
            // of it goes with the one before.
            tail.flushing = Some(Flushing::all(flushing.buffer));
            buffer = Buffer::behind((self.number, &tail), files, &first, wanted, usual_bytes);
        }
        writer.across = None;
        self.tail.replace(LogTail { filling: Some(buffer), ..tail });
        let end = len + first.len() as u64;
        self.length.store(end, Ordering::Release);
        if len > 0 && end > len {
            self.summaries.appended(len);
        }
    }

    /// The summary that is due where the log ends: unless the disk is full, for it can be done without, or a
    /// checkpoint still looks at what it has written, which may take a while.
    fn summary_due(&self, files: &Files, offset: u64) -> Option<Vec<u8>> {
        if files.reserve.is_short() {
            return None;
        }
        self.gathered.try_lock()?.as_mut()?.due(self.identity, offset)
    }

    /// Whether it may hold a record above `cut`, so that having synced it does not make all of it durable:
    /// the checkpoint that covers the record is still to come.
    pub(crate) fn reaches_above(&self, cut: Version) -> bool {
        self.newest.load(Ordering::Acquire) > cut.to_u64()
    }

    /// Appends an entry, encoded as `record` and perhaps its value behind that, for which room was reserved,
    /// at `offset`, where the log ends. False if it is not in the pool: then it is to be
    /// [written](ChunkLog::write_through) before anybody can read it.
    pub(crate) fn append(&self, entry: EntryRef<'_>, record: [&[u8]; 2], offset: u64) -> bool {
        let mut writer = self.writer.lock();
        self.newest.fetch_max(entry.version.to_u64(), Ordering::AcqRel);
        writer.promised_records = writer.promised_records.saturating_sub(1);
        if writer.promised_records == 0 {
            writer.promised_bytes = 0;
        }
        self.span.lock().widen(entry.key, &self.long_keys);
        if entry.kind != Kind::Put {
            // Relaxed: who narrows the log has the gate, or looks again when it has.
            self.has_deletes.store(true, Ordering::Relaxed);
        }
        let grown = writer.ascent.note(entry.key, offset);
        if grown > 0 {
            writer.charge.grow(grown as u64);
        }
        let pin = pin();
        let tail = self.tail.load(&pin);
        let buffer = tail.filling.as_ref().expect("room was reserved");
        let is_in_pool = buffer.is_in_pool();
        let at = buffer.bytes.append_parts(&record).expect("room was reserved");
        let record_len = record[0].len() + record[1].len();
        if buffer.is_across(at, at + record_len) {
            writer.across = Some(at);
        }
        assert_eq!(offset, tail.filling_start() + at as u64, "whoever appends has the gate");
        self.length.store(offset + record_len as u64, Ordering::Release);
        self.records.fetch_add(1, Ordering::Relaxed);
        is_in_pool
    }

    /// Sets the buffer aside if it has much more than buffers usually have, so that its memory does not stay
    /// until the next checkpoint. The caller has the gate; if this says so, it is to
    /// [write](ChunkLog::write_aside) it once it has given that back.
    pub(crate) fn set_large_aside(&self, files: &Files, buffer_bytes_max: usize) -> IsAside {
        let writer = self.writer.lock();
        let tail = self.end();
        let large_bytes = if have_buffers_their_share(files) {
            buffer_bytes_max.max(LONG_BUFFER_BYTES)
        } else {
            LARGE_BUFFER_BYTES
        };
        let is_large = tail.filling.as_ref().is_some_and(|filling| filling.len() > large_bytes);
        if !is_large || tail.flushing.is_some() || writer.has_failed || files.reserve.is_short() {
            return false;
        }
        let full = tail.filling.expect("it is large");
        self.tail.replace(LogTail { start: tail.start, flushing: Some(Flushing::all(full)), filling: None });
        true
    }

    /// Has the processor fetch what the index will need for a record of a key with this hash.
    pub(crate) fn fetch_index(&self, pin: &Pin, hash: u32) {
        if let Some(index) = self.index.load(pin) {
            index.index.fetch_ahead(pin, hash);
        }
    }

    /// Enters a record just appended into the index, if it keeps one.
    pub(crate) fn index_record(&self, key: &[u8], offset: u64) {
        if let Some(index) = self.index.load(&pin()) {
            index.insert(key, offset);
        }
    }

    /// The same for a chunk that has a munk, which reads nothing in it: the index is kept as long as it is
    /// small against the log, for it makes an eviction cheap and tells at a split which half has rows of the
    /// log.
    pub(crate) fn index_record_of_munk(&self, key: &[u8], offset: u64) {
        let pin = pin();
        let Some(index) = self.index.load(&pin) else { return };
        index.insert(key, offset);
        if index.index.bytes() > INDEX_BYTES_MIN + self.len() / INDEX_SHARE {
            self.index.replace(None);
        }
    }

    /// Adds a range tombstone just appended.
    pub(crate) fn add_tombstone(&self, tombstone: RangeTombstone, batch: u64) {
        planted!(TombstoneNotInSpan => return self.hiders.note(tombstone, batch));
        match &tombstone.range.end {
            // Whoever has keys under it must keep reading this log.
            Some(end) => self.span.lock().widen(end, &self.long_keys),
            None => *self.span.lock() = Span::Unknown,
        }
        self.hiders.note(tombstone, batch);
    }

    /// Where the file ends, and what follows it; held without a pin, for who reads or writes the file.
    pub(super) fn end(&self) -> LogTail {
        self.tail.load(&pin()).clone()
    }

    /// It is the caller's turn. The buffer begins at `start`.
    fn write_buffer(&self, files: &Files, start: u64, flushing: &Flushing) -> Result<()> {
        let (begin, bytes) = flushing.to_write();
        self.write(files, start, &flushing.buffer, (begin, bytes))?;
        if let Some(gathered) = &mut *self.gathered.lock() {
            gathered.gather(start, flushing.buffer.bytes.read());
        }
        Ok(())
    }

    /// Writes bytes of a buffer, which begins at `start`, to the file: those from `begin` on.
    fn write(
        &self,
        files: &Files,
        start: u64,
        buffer: &Buffer,
        (begin, bytes): (usize, &[u8]),
    ) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !buffer.is_in_pool() {
            // A kill within the write leaves a part of it, and nothing of the rest.
            files.pool.iter().for_each(Pool::spill);
        }
        let offset = start + begin as u64;
        let len = self.hold.load(Ordering::Relaxed);
        let mut change = files.change(FileName::Of(LOG, self.number), len);
        let file = {
            let mut file = self.file.lock();
            match &*file {
                Some(file) => Arc::clone(file),
                None => {
                    let name = FileName::Of(LOG, self.number);
                    let is_there = self.hold.load(Ordering::Relaxed) > 0;
                    let opened = if is_there { files.open(name)? } else { files.create(name, &self.hold)? };
                    Arc::clone(file.insert(opened))
                }
            }
        };
        change.iter_mut().for_each(|change| change.file = Some(Arc::clone(&file)));
        file.write_all_at(offset, bytes)
            .map_err(|e| Error::io("append to a log", e).at(FileName::Of(LOG, self.number), offset))?;
        self.hold.fetch_max(offset + bytes.len() as u64, Ordering::Relaxed);
        files.counters.log_bytes_written.add(bytes.len() as u64);
        files.reserve.grow_with(bytes.len() as u64);
        Ok(())
    }

    /// Writes what was appended to the file if its buffer is not in the pool, so that a kill does not take
    /// it. The caller has the gate, and nobody can read what it appended before this returns. What a
    /// checkpoint writes meanwhile is the same.
    pub(crate) fn write_through(&self, files: &Files) {
        let Some(pool) = &files.pool else { return };
        planted!(NotWrittenThrough => return);
        let pin = pin();
        let tail = self.tail.load(&pin);
        let filling = tail.filling.as_ref().map(|filling| (tail.filling_start(), filling));
        // A checkpoint may have set it aside just now.
        let flushing = tail.flushing.as_ref().map(|flushing| (tail.start, &flushing.buffer));
        for (start, buffer) in flushing.into_iter().chain(filling) {
            let (begin, bytes) = buffer.not_through();
            if buffer.is_in_pool() || bytes.is_empty() {
                continue;
            }
            files.counters.writes_through.add(1);
            let write = || self.write(files, start, buffer, (begin, bytes)).map_err(io::Error::other);
            match caught(write) {
                Ok(()) => buffer.is_through(begin + bytes.len()),
                Err(_) => {
                    // The next write of the buffer meets the same error. A kill before that falls back to the
                    // last checkpoint.
                    files.counters.writes_through_failed.add(1);
                    pool.lapse();
                }
            }
        }
    }

    /// Writes to the file what is appended so far, and says what that is. No promise that it survives.
    pub(crate) fn write_out(&self, files: &Files) -> Result<WrittenOut> {
        let _turn = self.flusher.lock();
        loop {
            self.flush_aside(files)?;
            // Unless a put was quicker to set another one aside.
            if let Some(written) = self.set_aside(files) {
                self.flush_aside(files)?;
                return Ok(written);
            }
        }
    }

    /// Writes the buffer that a put has set aside, which has given the gate back. Who has the turn does it,
    /// or comes to do it: a failure is told to the next put that needs a buffer, or the checkpoint.
    pub(crate) fn write_aside(&self, files: &Files) {
        if let Some(_turn) = self.flusher.try_lock() {
            let _is_told_later = self.flush_aside(files);
        }
    }

    /// Writes what was set aside to the file, if anything was. It is the caller's turn.
    fn flush_aside(&self, files: &Files) -> Result<()> {
        let tail = self.end();
        let Some(flushing) = &tail.flushing else { return Ok(()) };
        let outcome = self.write_buffer(files, tail.start, flushing);
        let mut writer = self.writer.lock();
        writer.has_failed = outcome.is_err();
        match outcome {
            Ok(()) => {
                self.tail.replace(LogTail { start: tail.filling_start(), flushing: None, ..self.end() });
            }
            Err(_) => self.put_back(files, &writer),
        }
        outcome
    }

    /// Takes the buffer for the file and leaves another only if a put relies on it: a log that is not written
    /// to costs nothing between checkpoints. Says where it ends and which summary is the last before that;
    /// none if another one is set aside.
    fn set_aside(&self, files: &Files) -> Option<WrittenOut> {
        let mut writer = self.writer.lock();
        let LogTail { start, flushing: None, filling: full } = self.end() else { return None };
        if full.as_ref().is_some_and(|full| full.len() < writer.buffer_bytes / 4) {
            writer.buffer_bytes = (writer.buffer_bytes / 2).max(BUFFER_BYTES_MIN);
        }
        let is_awaited = writer.promised_bytes > 0 && !self.is_closed.load(Ordering::Relaxed);
        let end = start + full.as_ref().map_or(0, |full| full.len() as u64);
        let bytes = writer.buffer_bytes.max(writer.promised_bytes);
        let flushing = full.map(Flushing::all);
        let filling = is_awaited.then(|| {
            let next = Buffer::following(files, self.place(end), bytes, flushing.as_ref());
            flushing.iter().for_each(|full| next.goes_on_behind(&full.buffer));
            next
        });
        self.tail.replace(LogTail { start, flushing, filling });
        let whole = end.min(writer.batch_begin.unwrap_or(end));
        // A log is named when it has a record.
        let named = if whole > HEADER_BYTES as u64 { whole } else { 0 };
        Some(WrittenOut { end: named, summary: self.summaries.last() })
    }

    /// After a failed write: one buffer with everything that is not in the file, and with the room that was
    /// promised.
    fn put_back(&self, files: &Files, writer: &Writer) {
        let LogTail { start, flushing, filling } = self.end();
        let flushing = flushing.expect("set aside before it was written");
        let since = filling.filter(|filling| !filling.bytes.is_empty());
        let filling = match since {
            None if flushing.buffer.bytes.remaining() >= writer.promised_bytes => flushing.buffer,
            since => {
                let behind = since.as_ref().map_or(&[][..], |since| since.bytes.read());
                let len = flushing.records().len();
                let capacity = len + behind.len() + writer.promised_bytes;
                let all = Buffer::grown(files, self.place(start), (&flushing.buffer, len), capacity);
                // A batch may have begun since, and be noted there.
                since.iter().for_each(|since| all.goes_on_behind(since));
                all.bytes.append(behind).expect("the larger buffer holds both");
                all
            }
        };
        self.tail.replace(LogTail { start, flushing: None, filling: Some(filling) });
    }

    /// A batch with this id begins here, for the next process. The caller has the gate, room was reserved,
    /// and it has a pin until the batch is whole: so the buffer with the note is not given back before,
    /// though a checkpoint may write it.
    pub(crate) fn note_batch(&self, id: u64) {
        let mut writer = self.writer.lock();
        writer.batch_begin = Some(self.len());
        let tail = self.end();
        if let Some(slot) = tail.filling.as_ref().and_then(|filling| filling.bytes.slot()) {
            slot.note_batch(id, self.len());
        }
    }

    /// The batch that was noted is whole for the next process. The caller has the gate still.
    pub(crate) fn batch_is_whole(&self) {
        self.writer.lock().batch_begin = None;
    }

    fn place(&self, offset: u64) -> Place {
        Place { log: self.number, offset }
    }

    /// Has the system begin to bring to the drive what was written out.
    pub(crate) fn begin_sync(&self, WrittenOut { end, .. }: &WrittenOut) {
        let durable = self.durable_len();
        if durable < *end
            && let Some(file) = self.file.lock().clone()
        {
            file.will_sync(durable, end - durable);
        }
    }

    /// Makes durable what was written out.
    pub(crate) fn sync_written(&self, WrittenOut { end, summary }: WrittenOut) -> Result<()> {
        if end <= self.durable_len() {
            return Ok(());
        }
        let file = self.file.lock().clone().expect("a log with bytes has a file");
        planted!(LogNotSynced => {
            self.became_durable(end, summary);
            return Ok(());
        });
        file.sync().map_err(|e| sync_failed(e, FileName::Of(LOG, self.number)))?;
        self.became_durable(end, summary);
        Ok(())
    }

    fn became_durable(&self, end: u64, summary: Option<u64>) {
        self.durable.fetch_max(end, Ordering::AcqRel);
        self.summaries.became_durable(summary);
    }

    /// Makes everything appended so far durable.
    #[cfg(test)]
    pub(crate) fn sync(&self, files: &Files) -> Result<()> {
        self.sync_written(self.write_out(files)?)
    }
}

impl ChunkLog {
    /// Tells the system that it need not keep in memory what was synced: nobody reads it, because it is in a
    /// munk.
    pub(crate) fn let_go(&self) {
        // Whole pages: the last one is written to again.
        let upto = self.durable_len() & !(PAGE_BYTES - 1);
        // Relaxed: only a checkpoint does this, one at a time.
        let from = self.let_go.load(Ordering::Relaxed);
        if from < upto
            && let Some(file) = self.file.lock().clone()
        {
            file.will_not_read(from, upto - from);
            self.let_go.store(upto, Ordering::Relaxed);
        }
    }
}
