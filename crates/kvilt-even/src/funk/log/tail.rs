//! `LogTail`: what of a log is not in its file yet, in the buffers that take records and give them to the
//! file.
//!
//! ```text
//!   the file:  … record | record | rec▒▒▒
//!                                  │  └ a piece of the page cache ends
//!                                  └ start: from here on records are found in the buffer
//!   filling:                         record | record | …  ◀── puts
//! ```
//!
//! A buffer is full when it reaches a place in the file where a piece of the page cache ends, and is
//! written up to there, mostly in the middle of a record. The next buffer begins with that record once more
//! (`docs/design/0055-writes-that-end-with-pieces-of-the-cache.md`). What a checkpoint writes ends with a
//! record.
//!
//! What is always true:
//!
//! * **E-15** A record that begins below `start` is in the file, all of it; any other is whole in the buffer
//!   in which it is found. Each byte is written by one buffer: of those that two have, the first writes what
//!   lies before its piece's end, the next the rest.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use kvilt_base::{Charge, planted};
use kvilt_sync::{
    append::AppendBuffer,
    segment::{Place, Slot},
};

use crate::{files::Files, parts, pool::Pool};

/// Longest write, in bytes, that the page cache of Linux 6.16 and later takes in one piece, if it begins at a
/// multiple of this length. It takes others page by page, which costs a fifth more, and in puts a half.
const PIECE_BYTES_MAX: usize = 32 << 10;

/// A buffer that ends with a piece has this part of it as room behind, for the rest of the record that lies
/// across.
const ACROSS_SHARE: usize = 8;

/// A log's first buffer; it doubles while it keeps filling up between checkpoints.
pub(super) const BUFFER_BYTES_MIN: usize = 4 << 10;
/// All buffers together may have this part of the memory budget; new ones are smaller, the less of it is
/// left.
const BUFFER_SHARE: u64 = 16;

/// Bytes that are to be appended, and how large a buffer for them may be.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) bytes: usize,
    pub(super) buffer_bytes_max: usize,
}

/// What of a log was written out to be synced.
pub(crate) struct WrittenOut {
    /// Whole batches end here.
    pub(super) end: u64,
    /// Where the last summary before the end lies.
    pub(super) summary: Option<u64>,
}

/// Records that follow one another in a log.
pub(super) struct Buffer {
    pub(super) bytes: AppendBuffer,
    /// So many of the first are written by the buffer before.
    in_file: usize,
    /// How many of the first bytes are in the file already, but for those: the buffer is not in the pool, and
    /// each record was written at once.
    through: AtomicUsize,
    /// With so many it is full, and they are written first.
    piece_end: Option<usize>,
    _charge: Charge,
}

impl Buffer {
    /// An empty one at this place of its log, which is full when nothing more fits.
    pub(super) fn new(files: &Files, place: Place, capacity: usize) -> Arc<Self> {
        Self::following(files, place, capacity, None)
    }

    /// The same, behind one that was set aside.
    pub(super) fn following(
        files: &Files,
        place: Place,
        capacity: usize,
        before: Option<&Flushing>,
    ) -> Arc<Self> {
        let slot = slot_behind(files, place, capacity, before);
        Self::with(files, slot, capacity, 0, None)
    }

    fn with(
        files: &Files,
        slot: Option<Slot>,
        capacity: usize,
        in_file: usize,
        piece_end: Option<usize>,
    ) -> Arc<Self> {
        let charge = files.budget.charge(parts::LOG_BUFFERS, capacity as u64);
        let bytes = match slot {
            Some(slot) => AppendBuffer::in_slot(slot, capacity),
            None => AppendBuffer::new(capacity),
        };
        Arc::new(Buffer { bytes, in_file, through: AtomicUsize::new(0), piece_end, _charge: charge })
    }

    /// The next one of the log with this number, which ends with `tail`, where nothing is filled: begins with
    /// `first`, and has room for what is wanted and for about `usual_bytes`, so that it ends with a piece
    /// unless that is little.
    pub(super) fn behind(
        (log, tail): (u64, &LogTail),
        files: &Files,
        first: &[u8],
        wanted: Wanted,
        usual_bytes: usize,
    ) -> Arc<Self> {
        let (carried, in_file) = tail.flushing.as_ref().map_or((&[][..], 0), Flushing::carried);
        let (begin, begun) = (tail.filling_start(), carried.len() + first.len());
        let bytes = usual_bytes.min(wanted.buffer_bytes_max);
        let piece = 1 << (wanted.buffer_bytes_max / 2).clamp(1, PIECE_BYTES_MAX).ilog2();
        let end = begin + (begun + bytes) as u64;
        let piece_end = (bytes >= piece).then(|| (end - end % piece as u64 - begin) as usize);
        let capacity = match piece_end {
            Some(piece_end) => piece_end.max(begun + wanted.bytes) + piece_end / ACROSS_SHARE,
            None => begun + bytes.max(wanted.bytes),
        };
        let slot = slot_behind(files, Place { log, offset: begin }, capacity, tail.flushing.as_ref());
        let buffer = Self::with(files, slot, capacity, in_file, piece_end);
        buffer.bytes.append(carried).expect("there is room for what is carried over");
        buffer.bytes.append(first).expect("there is room for what comes first");
        buffer
    }

    /// The first `len` bytes of `full`, which begins at this place, with room for `capacity` bytes.
    pub(super) fn grown(
        files: &Files,
        place: Place,
        (full, len): (&Buffer, usize),
        capacity: usize,
    ) -> Arc<Self> {
        let larger = Self::with(files, files.slot(capacity, place), capacity, full.in_file, None);
        larger.bytes.append(&full.bytes.read()[..len]).expect("the larger buffer holds the smaller");
        larger.goes_on_behind(full);
        if full.is_in_pool() && !larger.is_in_pool() {
            // What is there is nowhere else, and the disk takes nothing just now.
            files.pool.iter().for_each(Pool::lapse);
        }
        larger
    }

    pub(super) fn is_in_pool(&self) -> bool {
        self.bytes.slot().is_some()
    }

    /// What is not in the file yet, nor written by the buffer before, and where it begins.
    pub(super) fn not_through(&self) -> (usize, &[u8]) {
        let bytes = self.bytes.read();
        let begin = self.through.load(Ordering::Acquire).max(self.in_file).min(bytes.len());
        (begin, &bytes[begin..])
    }

    /// The first `len` bytes are in the file, but for those that the buffer before writes.
    pub(super) fn is_through(&self, len: usize) {
        self.through.fetch_max(len, Ordering::AcqRel);
    }

    /// A batch that went to `before` may go on here.
    pub(super) fn goes_on_behind(&self, before: &Buffer) {
        let batch = before.bytes.slot().and_then(Slot::last_batch);
        if let (Some(slot), Some((id, begin))) = (self.bytes.slot(), batch) {
            slot.note_batch(id, begin);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.piece_end.is_none_or(|end| self.len() < end) && self.bytes.remaining() >= bytes
    }

    /// Whether the end of its piece lies in what begins and ends there.
    pub(super) fn is_across(&self, begin: usize, end: usize) -> bool {
        self.piece_end.is_some_and(|piece_end| begin < piece_end && piece_end < end)
    }
}

/// The pool's pages for a buffer; none if it is to be on the heap. What follows bytes that a kill takes is of
/// no use to the next process, which could not tell where it belongs: so it is not in the pool either, and is
/// written together with them.
fn slot_behind(files: &Files, place: Place, capacity: usize, before: Option<&Flushing>) -> Option<Slot> {
    let is_before_safe = before.is_none_or(Flushing::outlives_the_process);
    is_before_safe.then(|| files.slot(capacity, place)).flatten()
}

/// A buffer that was set aside to be written to the file, and takes no more records.
#[derive(Clone)]
pub(super) struct Flushing {
    pub(super) buffer: Arc<Buffer>,
    /// It is written up to here.
    write_end: usize,
    /// Records that begin at or behind this are found in the next buffer, which begins with them.
    records_end: usize,
}

impl Flushing {
    /// All of it.
    pub(super) fn all(buffer: Arc<Buffer>) -> Self {
        let len = buffer.len();
        Flushing { buffer, write_end: len, records_end: len }
    }

    /// Up to the end of its piece, if that lies in the record that begins at `across`, and little follows
    /// from there on.
    pub(super) fn piece(buffer: Arc<Buffer>, across: Option<usize>) -> Self {
        let Some((records_end, write_end)) = across.zip(buffer.piece_end) else { return Self::all(buffer) };
        let carried_max = write_end / ACROSS_SHARE;
        if buffer.len() - records_end > carried_max {
            return Self::all(buffer);
        }
        Flushing { buffer, write_end, records_end }
    }

    /// Whether all of it is in the pool or in the file. What is not: records of a batch that is still being
    /// appended; a header or a summary that no record has followed yet.
    fn outlives_the_process(&self) -> bool {
        self.buffer.is_in_pool() || self.to_write().1.is_empty()
    }

    /// What of it is to be written, and where that begins in it.
    pub(super) fn to_write(&self) -> (usize, &[u8]) {
        let begin = self.buffer.not_through().0.min(self.write_end);
        (begin, &self.buffer.bytes.read()[begin..self.write_end])
    }

    /// The records that are found in it, all of them whole.
    pub(super) fn records(&self) -> &[u8] {
        &self.buffer.bytes.read()[..self.records_end]
    }

    /// What the next buffer begins with, and how much of that is written with this one.
    fn carried(&self) -> (&[u8], usize) {
        let carried = &self.buffer.bytes.read()[self.records_end..];
        let written = self.write_end - self.records_end;
        let written = planted!(CarriedNotWritten, written => carried.len());
        (carried, written)
    }
}

/// Where the file ends, and what follows it in memory. Cheap to clone.
#[derive(Clone)]
pub(super) struct LogTail {
    /// Records that begin before this are in the file.
    pub(super) start: u64,
    /// Begins at `start`.
    pub(super) flushing: Option<Flushing>,
    /// Follows, and takes records.
    pub(super) filling: Option<Arc<Buffer>>,
}

impl LogTail {
    /// Nothing in memory behind a file of so many bytes.
    pub(super) fn behind(start: u64) -> Self {
        LogTail { start, flushing: None, filling: None }
    }

    /// Where the buffer that takes records begins.
    pub(super) fn filling_start(&self) -> u64 {
        self.start + self.flushing.as_ref().map_or(0, |flushing| flushing.records_end as u64)
    }

    /// What is in memory from `offset` on, up to the end of the buffer that has it; whole records, if one
    /// begins there.
    pub(super) fn bytes_from(&self, offset: u64) -> &[u8] {
        let filling_start = self.filling_start();
        let (records, start) = if offset < filling_start {
            (self.flushing.as_ref().map(Flushing::records), self.start)
        } else {
            (self.filling.as_ref().map(|filling| filling.bytes.read()), filling_start)
        };
        &records.expect("an offset behind the file lies in a buffer")[(offset - start) as usize..]
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.filling.as_ref().is_some_and(|buffer| buffer.has_room(bytes))
    }

    pub(super) fn is_nothing_filled(&self) -> bool {
        self.filling.as_ref().is_none_or(|buffer| buffer.bytes.is_empty())
    }
}

/// What there is room for of a buffer of `bytes`. If many logs are written to, all get smaller ones: a
/// few that got hardly any would be written out again and again.
pub(super) fn fitting(bytes: usize, files: &Files) -> usize {
    let share = files.budget.bytes_max() / BUFFER_SHARE;
    let left = share.saturating_sub(files.budget.used(parts::LOG_BUFFERS));
    let fitting = u128::from(left) * 2 * bytes as u128 / u128::from(share.max(1));
    usize::try_from(fitting).unwrap_or(usize::MAX).clamp(BUFFER_BYTES_MIN.min(bytes), bytes)
}

/// Whether all buffers together have what they may have.
pub(super) fn have_buffers_their_share(files: &Files) -> bool {
    files.budget.used(parts::LOG_BUFFERS) > files.budget.bytes_max() / BUFFER_SHARE
}
