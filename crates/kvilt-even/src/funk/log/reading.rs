//! The reading half of [`ChunkLog`]: one record by its offset, or all of them in the order written.
//!
//! What lies below the tail's start is read from the file, the rest from the buffers. The only lock is the
//! one around the file's handle, held while the file is opened, never while it is read or written. Always
//! true here: bytes of the file that cannot be decoded are damage, named with file and offset; nothing is
//! skipped but entries that a crash cut off.

use std::{
    cell::Cell,
    io,
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use kvilt_base::{EntryRef, Error, File, FileName, Kind, Large, Result, Version, mutant};
use kvilt_format::{
    log::{Decoded, HEADER_BYTES, LargeRecord, decode_header, decode_key, decode_record},
    names::LOG,
};
use kvilt_sync::published::pin;

use super::ChunkLog;
use crate::{files::Files, mutants};

/// A log is read in pieces of this size.
const READ_BYTES: usize = 256 << 10;
/// Bytes behind the place where a log is read that the system is asked to fetch, while the drive is waited
/// for.
const READ_AHEAD_BYTES: u64 = 2 << 20;
/// So many bytes are kept of what a thread has read a record to.
const SCRATCH_BYTES_MAX: usize = 1 << 20;
/// A record of more than this part of what is streamed is large: the call that reads it costs little beside
/// what it reads.
const LARGE_RECORD_PART: usize = 8;
/// What stands before a record's value has no more bytes: the longest key, and a little.
const BEGINNING_BYTES: usize = 66 << 10;
/// Bytes that are read of a record whose key alone is wanted.
const KEY_BYTES: usize = 256;
/// What an index that is wrong would come to.
const NO_ENTRY: &str = "a summary stands where an entry must be";

thread_local! {
    /// Where cold records are read to; taken and put back, so that a reentrant read merely allocates.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Takes records with offset and batch, and large ones with the record instead of the value.
type EachRecord<'e> = dyn FnMut(u64, EntryRef<'_>, u64, Option<LargeRecord>) -> Result<()> + 'e;

/// Bytes of a log's file that were read together.
#[derive(Default)]
pub(crate) struct Window {
    start: u64,
    bytes: Large,
}

/// Records of a log that were read in one piece, with their places.
pub(crate) struct WholeRecords {
    bytes: Large,
    records: Vec<WholeRecord>,
}

struct WholeRecord {
    key: Range<usize>,
    value: Range<usize>,
    version: Version,
    kind: Kind,
}

impl WholeRecords {
    /// Gives each to `each`, with the places of its key and its value among the bytes.
    pub(crate) fn for_each(&self, mut each: impl FnMut(EntryRef<'_>, usize, usize)) {
        for WholeRecord { key, value, version, kind } in &self.records {
            let bytes = |place: &Range<usize>| &self.bytes[place.clone()];
            let entry = EntryRef { key: bytes(key), version: *version, kind: *kind, value: bytes(value) };
            each(entry, key.start, value.start);
        }
    }

    /// What was read.
    pub(crate) fn into_bytes(self) -> Large {
        self.bytes
    }
}

/// Records of more bytes are large ones.
fn large_record_bytes(files: &Files) -> usize {
    files.streamed_bytes_min / LARGE_RECORD_PART
}

impl ChunkLog {
    /// Every live entry of `place`, read in one piece that is not copied; none if the file does not have all
    /// of it.
    pub(crate) fn read_whole(&self, files: &Files, place: Range<u64>) -> Result<Option<WholeRecords>> {
        let begin = place.start.max(HEADER_BYTES as u64);
        if place.end > self.end().start || place.end <= begin {
            return Ok(None);
        }
        let mut bytes = Large::zeroed((place.end - begin) as usize);
        self.opened(files)?.read_exact_at(begin, &mut bytes).map_err(|e| self.read_failed(begin, e))?;
        let (mut records, mut done) = (Vec::new(), 0);
        while done < bytes.len() {
            let offset = begin + done as u64;
            match decode_record(&bytes[done..], self.identity, offset, self.base) {
                Decoded::Record { entry, len, .. } => {
                    done += len;
                    let value = done - entry.value.len()..done;
                    let key = value.start - entry.key.len()..value.start;
                    if !files.dead.contain(entry.version) {
                        let (version, kind) = (entry.version, entry.kind);
                        records.push(WholeRecord { key, value, version, kind });
                    }
                }
                Decoded::Summary { len } => done += len,
                Decoded::Incomplete { .. } => {
                    return Err(self.bad_record(offset, "the record runs past the synced length"));
                }
                Decoded::Bad(_) if mutant(&mutants::DamageIsTornTail) => break,
                Decoded::Bad(why) => return Err(self.bad_record(offset, why)),
            }
        }
        Ok(Some(WholeRecords { bytes, records }))
    }

    /// Reads what the file has of `place`, and nothing of what is still in a buffer.
    pub(crate) fn read_window(&self, files: &Files, place: Range<u64>, window: &mut Window) -> Result<()> {
        let end = place.end.min(self.end().start);
        window.start = place.start;
        window.bytes.clear();
        window.bytes.resize(end.saturating_sub(place.start) as usize, 0);
        if window.bytes.is_empty() {
            return Ok(());
        }
        let read = self.opened(files)?.read_exact_at(place.start, &mut window.bytes);
        read.map_err(|e| {
            // Else it would be taken for what was to be read.
            window.bytes.clear();
            self.read_failed(place.start, e)
        })
    }

    /// Gives the record at `offset` to `read` if `window` has all of it, and says whether.
    pub(crate) fn record_in(
        &self,
        window: &Window,
        offset: u64,
        read: impl FnOnce(EntryRef<'_>),
    ) -> Result<bool> {
        let begin = offset.checked_sub(window.start).map(|begin| begin as usize);
        let Some(bytes) = begin.and_then(|begin| window.bytes.get(begin..)) else { return Ok(false) };
        match decode_record(bytes, self.identity, offset, self.base) {
            Decoded::Record { entry, .. } => {
                read(entry);
                Ok(true)
            }
            Decoded::Incomplete { .. } => Ok(false),
            Decoded::Summary { .. } => Err(self.bad_record(offset, NO_ENTRY)),
            Decoded::Bad(why) => Err(self.bad_record(offset, why)),
        }
    }

    /// Reads the record at `offset` and gives it to `read`.
    pub(crate) fn record_at<R>(
        &self,
        files: &Files,
        offset: u64,
        read: impl FnOnce(EntryRef<'_>, u64) -> R,
    ) -> Result<R> {
        self.decoded_at(
            files,
            offset,
            self.likely_record_bytes(),
            |bytes| decode_record(bytes, self.identity, offset, self.base),
            |entry, batch, _| read(entry, batch),
        )
    }

    /// Gives what is known of the record at `offset` without its value, and its length, to `read`. Nothing is
    /// checked: this is for estimates.
    pub(crate) fn key_at<R>(
        &self,
        files: &Files,
        offset: u64,
        read: impl FnOnce(EntryRef<'_>, usize) -> R,
    ) -> Result<R> {
        self.decoded_at(
            files,
            offset,
            KEY_BYTES,
            |bytes| decode_key(bytes, self.base),
            |entry, _, len| read(entry, len),
        )
    }

    /// Has the system fetch what [`ChunkLog::key_at`] reads.
    pub(crate) fn will_read_key(&self, files: &Files, offset: u64) -> Result<()> {
        self.will_read(files, offset..offset + KEY_BYTES as u64)
    }

    /// Whether its records are so large, on average, that each is better read by itself.
    pub(crate) fn has_large_records(&self, files: &Files) -> bool {
        self.mean_record_bytes() > large_record_bytes(files) && self.records.load(Ordering::Relaxed) > 0
    }

    /// Reads the record at `offset` into memory of its own, in which its value lies at the place returned;
    /// none if it is not large, or not in the file yet.
    pub(crate) fn read_large(&self, files: &Files, offset: u64) -> Result<Option<(Large, Range<usize>)>> {
        let end = self.end().start;
        if offset >= end {
            return Ok(None);
        }
        let mut bytes = Large::zeroed(large_record_bytes(files).min((end - offset) as usize));
        let file = self.opened(files)?;
        loop {
            file.read_exact_at(offset, &mut bytes).map_err(|e| self.read_failed(offset, e))?;
            let needed = match decode_record(&bytes, self.identity, offset, self.base) {
                Decoded::Record { entry, len, .. } => {
                    let value = len - entry.value.len()..len;
                    return Ok((len > large_record_bytes(files)).then_some((bytes, value)));
                }
                Decoded::Incomplete { needed } if needed as u64 <= end - offset => needed,
                Decoded::Incomplete { .. } => {
                    return Err(self.bad_record(offset, "the record runs past the synced length"));
                }
                Decoded::Summary { .. } => return Err(self.bad_record(offset, NO_ENTRY)),
                Decoded::Bad(why) => return Err(self.bad_record(offset, why)),
            };
            bytes = Large::zeroed(needed);
        }
    }

    /// The record at `offset`, and its beginning, of which no more is read; none if it is not large, or not
    /// in the file yet.
    pub(crate) fn large_record(&self, files: &Files, offset: u64) -> Result<Option<(LargeRecord, Vec<u8>)>> {
        let end = self.end().start;
        if offset >= end {
            return Ok(None);
        }
        let file = self.opened(files)?;
        let mut beginning = vec![0; BEGINNING_BYTES.min((end - offset) as usize)];
        file.read_exact_at(offset, &mut beginning).map_err(|e| self.read_failed(offset, e))?;
        let large = self.begin_large(files, &file, (offset, end), &beginning).map(|(large, _)| large);
        Ok(large.map(|large| (large, beginning)))
    }

    /// What begins with `bytes` at `offset`, if it is a large record that does not reach beyond `end`.
    fn begin_large<'b>(
        &self,
        files: &Files,
        file: &Arc<dyn File>,
        (offset, end): (u64, u64),
        bytes: &'b [u8],
    ) -> Option<(LargeRecord, EntryRef<'b>)> {
        let of = (file, self.identity, self.base);
        let begun = LargeRecord::begin(of, offset, bytes, files.streamed_bytes_min);
        begun.filter(|(large, _)| large.record_len() as u64 <= end - offset)
    }

    /// Gives what `decode` finds at `offset`, in a buffer or in the file, to `read`. Of the file `wanted`
    /// bytes are read first.
    fn decoded_at<R>(
        &self,
        files: &Files,
        offset: u64,
        wanted: usize,
        decode: impl for<'b> Fn(&'b [u8]) -> Decoded<'b>,
        read: impl FnOnce(EntryRef<'_>, u64, usize) -> R,
    ) -> Result<R> {
        let tail = self.end();
        if offset >= tail.start {
            return match decode(tail.bytes_from(offset)) {
                Decoded::Record { entry, batch, len } => Ok(read(entry, batch, len)),
                Decoded::Summary { .. } | Decoded::Incomplete { .. } | Decoded::Bad(_) => {
                    unreachable!("a buffer holds whole records, and an entry is asked for")
                }
            };
        }
        let mut scratch = SCRATCH.take();
        let result = self.read_from_file(files, offset..tail.start, wanted, &mut scratch, decode, read);
        // One huge value must not pin its size in every thread that ever read one.
        if scratch.capacity() <= SCRATCH_BYTES_MAX {
            SCRATCH.set(scratch);
        }
        result
    }

    /// Reads `wanted` bytes at the start of `place`, and more as long as `decode` finds them incomplete.
    fn read_from_file<R>(
        &self,
        files: &Files,
        place: Range<u64>,
        mut wanted: usize,
        scratch: &mut Vec<u8>,
        decode: impl for<'b> Fn(&'b [u8]) -> Decoded<'b>,
        read: impl FnOnce(EntryRef<'_>, u64, usize) -> R,
    ) -> Result<R> {
        let file = self.opened(files)?;
        let (offset, there) = (place.start, (place.end - place.start) as usize);
        loop {
            let len = wanted.min(there);
            if scratch.capacity() < len {
                // To grow would copy what is read again, and might take twice as much as is needed.
                *scratch = vec![0; len];
            } else if scratch.len() < len {
                scratch.resize(len, 0);
            }
            file.read_exact_at(offset, &mut scratch[..len]).map_err(|e| self.read_failed(offset, e))?;
            match decode(&scratch[..len]) {
                Decoded::Record { entry, batch, len } => return Ok(read(entry, self.batch_now(batch), len)),
                Decoded::Incomplete { needed } if needed <= there && needed > len => wanted = needed,
                Decoded::Incomplete { .. } => {
                    return Err(self.bad_record(offset, "the record runs past the synced length"));
                }
                Decoded::Summary { .. } => return Err(self.bad_record(offset, NO_ENTRY)),
                Decoded::Bad(why) => return Err(self.bad_record(offset, why)),
            }
        }
    }

    fn batch_now(&self, batch: u64) -> u64 {
        if self.is_of_this_run { batch } else { 0 }
    }

    fn bad_record(&self, offset: u64, why: &str) -> Error {
        Error::corrupted(self.name(), offset, format!("a log record that was synced is damaged: {why}"))
    }

    /// A size that most of its records fit into.
    pub(crate) fn likely_record_bytes(&self) -> usize {
        let mean = self.mean_record_bytes();
        (mean + mean / 4).clamp(256, 32 << 10)
    }

    /// What a record takes on average; as much as the whole log where nobody has counted them.
    pub(crate) fn mean_record_bytes(&self) -> usize {
        self.len() as usize / self.records.load(Ordering::Relaxed).max(1)
    }

    /// Where most records lie that begin at `offset`, all of them.
    pub(crate) fn likely_place(&self, offset: u64) -> Range<u64> {
        offset..offset + self.likely_record_bytes() as u64
    }

    /// Has the system fetch what will be read, as far as that is in the file.
    pub(crate) fn will_read(&self, files: &Files, place: Range<u64>) -> Result<()> {
        let end = place.end.min(self.end().start);
        if place.start < end {
            self.opened(files)?.will_read(place.start, (end - place.start) as usize);
        }
        Ok(())
    }

    /// Tells the system that what the file has of `place` need not stay in the page cache.
    pub(crate) fn will_not_read(&self, files: &Files, place: Range<u64>) -> Result<()> {
        let end = place.end.min(self.end().start);
        if place.start < end {
            self.opened(files)?.will_not_read(place.start, end - place.start);
        }
        Ok(())
    }

    /// Gives every live entry from offset `from` up to `upto` to `each`, in the order written, with its
    /// offset and batch. Entries that a crash cut off are left out.
    pub(crate) fn for_each(
        &self,
        files: &Files,
        from: u64,
        upto: u64,
        each: &mut dyn FnMut(u64, EntryRef<'_>, u64) -> Result<()>,
    ) -> Result<()> {
        self.walk(files, from..upto, false, &mut |at, entry, batch, _| each(at, entry, batch))
    }

    /// Gives every live entry of `place` to `each`, in the order written; of large ones that are in the file
    /// no more than the beginning is read, and nothing verified.
    pub(crate) fn for_each_streamed(
        &self,
        files: &Files,
        place: Range<u64>,
        each: &mut dyn FnMut(EntryRef<'_>, Option<LargeRecord>) -> Result<()>,
    ) -> Result<()> {
        self.walk(files, place, true, &mut |_, entry, _, large| each(entry, large))
    }

    fn walk(
        &self,
        files: &Files,
        Range { start: from, end: upto }: Range<u64>,
        streams: bool,
        each: &mut EachRecord<'_>,
    ) -> Result<()> {
        let tail = self.end();
        let mut at = from.max(HEADER_BYTES as u64);
        if at < tail.start.min(upto) {
            at = self.for_each_in_file(files, at..tail.start.min(upto), streams, each)?;
        }
        while at < upto {
            match decode_record(tail.bytes_from(at), self.identity, at, self.base) {
                Decoded::Record { entry, batch, len } => {
                    each(at, entry, batch, None)?;
                    at += len as u64;
                }
                Decoded::Summary { len } => at += len as u64,
                Decoded::Incomplete { .. } | Decoded::Bad(_) => {
                    unreachable!("a buffer holds whole records")
                }
            }
        }
        Ok(())
    }

    /// If it streams, large records are only begun.
    fn for_each_in_file(
        &self,
        files: &Files,
        Range { start: from, end: upto }: Range<u64>,
        streams: bool,
        each: &mut EachRecord<'_>,
    ) -> Result<u64> {
        let file = self.opened(files)?;
        let mut piece = Large::default();
        let mut at = from;
        let mut wanted = READ_BYTES;
        let is_one_piece = upto - from <= (READ_BYTES + READ_BYTES / 4) as u64;
        let mut asked_until = if !is_one_piece && files.reads.wait_for_the_drive() { from } else { upto };
        while at < upto {
            if asked_until < upto && asked_until <= at + READ_AHEAD_BYTES / 2 {
                // The drive reads the next pieces while this one is decoded; not a large value that was
                // passed.
                let (from, end) = (asked_until.max(at), upto.min(at + READ_AHEAD_BYTES));
                file.will_read(from, (end - from) as usize);
                asked_until = end;
            }
            // What is left over is better read at once than by a read of its own.
            let left = upto - at;
            let is_last = left <= (wanted + wanted / 4) as u64;
            let len = if is_last { left as usize } else { wanted };
            if piece.capacity() < len {
                // To grow would copy what is read again, and might take twice as much as is needed.
                piece = Large::zeroed(len);
            }
            piece.resize(len, 0);
            file.read_exact_at(at, &mut piece).map_err(|e| self.read_failed(at, e))?;
            let mut done = 0;
            wanted = READ_BYTES;
            while done < len {
                let (offset, bytes) = (at + done as u64, &piece[done..]);
                // One that may be large and whole: not with limits as users have them, where a piece is less.
                let mut begun = (streams && bytes.len() > files.streamed_bytes_min)
                    .then(|| self.begin_large(files, &file, (offset, upto), bytes))
                    .flatten();
                if begun.is_none() {
                    match decode_record(bytes, self.identity, offset, self.base) {
                        Decoded::Record { entry, batch, len } => {
                            if !files.dead.contain(entry.version) {
                                each(offset, entry, self.batch_now(batch), None)?;
                            }
                            done += len;
                            continue;
                        }
                        Decoded::Summary { len } => {
                            done += len;
                            continue;
                        }
                        Decoded::Incomplete { needed } => {
                            if offset + needed as u64 > upto {
                                return Err(self.bad_record(offset, "the record runs past the synced length"));
                            }
                            if streams {
                                begun = self.begin_large(files, &file, (offset, upto), bytes);
                            }
                            // Its beginning may be cut off, too.
                            wanted = if streams && done > 0 { READ_BYTES } else { READ_BYTES.max(needed) };
                        }
                        Decoded::Bad(_) if mutant(&mutants::DamageIsTornTail) => return Ok(upto),
                        Decoded::Bad(why) => return Err(self.bad_record(offset, why)),
                    }
                }
                let Some((large, entry)) = begun else { break };
                wanted = READ_BYTES;
                done += large.record_len();
                if files.dead.contain(entry.version) {
                    large.verify()?;
                } else {
                    each(offset, entry, 0, Some(large))?;
                }
            }
            at += done as u64;
        }
        Ok(at)
    }

    /// Verifies the header in the file, if the file has one yet.
    pub(crate) fn check_header(&self, files: &Files) -> Result<()> {
        if self.tail.load(&pin()).start < HEADER_BYTES as u64 {
            return Ok(());
        }
        self.read_header(&*self.opened(files)?)
    }

    fn read_header(&self, file: &dyn File) -> Result<()> {
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(0, &mut header).map_err(|e| self.read_failed(0, e))?;
        decode_header(&header, self.name(), self.identity).map(|_| ())
    }

    pub(super) fn opened(&self, files: &Files) -> Result<Arc<dyn File>> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let opened = files.open(FileName::Of(LOG, self.number))?;
        self.read_header(&*opened)?;
        Ok(Arc::clone(file.insert(opened)))
    }

    pub(super) fn read_failed(&self, offset: u64, error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            let durable = self.durable_len();
            return Error::corrupted(
                self.name(),
                offset,
                format!("the log is shorter than the {durable} bytes that were synced"),
            );
        }
        Error::io("read a log", error).at(self.name(), offset)
    }
}
