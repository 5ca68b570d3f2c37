//! The reserve of the log: free files that are room on a full disk.
//!
//! There are more of them than segments, up to a limit. Puts need all of it, for a flush takes somewhat more
//! room than the segments that it frees have. On a full disk deletes take of it what the next open and flush
//! can do without, and what gives room back is lent the rest: flushes, merges, catalogues (`Loan`). A segment
//! is free when there is one behind it, so a flush may have to begin one.
//!
//! What is always true:
//! - T-14: a segment for what brings rows is begun only if the reserve is whole behind that.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use kvilt_base::{Disk, Error, ErrorKind, File, FileName, Result};
use kvilt_format::{HEADER_BYTES, names::REDO, redo};

use super::{Log, Purpose, Sizes, chain::Left, segment::Segment};

/// Files of the reserve beside those for the output of a flush: for deletes, for turns (`TURN_FILES`), for a
/// segment that two tables share, and for what tables have beside rows.
pub(super) const OTHER_FILES: usize = 6;
/// Those of them that deletes leave: the next flush may have to begin a segment so that the one before can be
/// free, and so does an open that comes before its end.
pub(super) const TURN_FILES: usize = 2;
/// Files of the reserve of a log with one segment.
pub(super) const RESERVE_FILES_MIN: usize = 4;
/// Free files that are kept beside the reserve; others are removed.
const FREE_FILES_MAX: usize = 2;
/// Files that a log which is closed leaves beside those for the output of a flush.
const CLOSED_OTHER_FILES: usize = TURN_FILES + 1;

/// Files of the log beside those of its segments.
pub(super) struct Files {
    /// Those of earlier runs.
    pub(super) left: VecDeque<Left>,
    /// Each has the bytes of a segment.
    pub(super) free: Vec<Arc<dyn File>>,
    /// Files of the reserve when it is whole: few at first, and never less than there were.
    pub(super) wanted: usize,
    /// The current segment is sealed, and there was no room for the next.
    pub(super) is_full: bool,
    /// Loans of the reserve that were not given back.
    pub(super) loans: usize,
    /// A write was refused, and no file was made for one since.
    pub(super) is_wanting: bool,
    /// The same, until somebody asks.
    pub(super) has_refused: bool,
    pub(super) last_number: u64,
}

/// Leave to use the reserve for work that gives room back. While there is one nobody else makes the reserve
/// whole; the last one tries that when it is dropped.
pub(crate) struct Loan<'l>(&'l Log);

impl Files {
    pub(super) fn new(left: VecDeque<Left>, free: Vec<Arc<dyn File>>, last_number: u64) -> Self {
        Files {
            left,
            free,
            wanted: RESERVE_FILES_MIN,
            is_full: false,
            loans: 0,
            is_wanting: false,
            has_refused: false,
            last_number,
        }
    }
}

impl Log {
    /// Whether the reserve is not whole, or a write was refused.
    pub(crate) fn is_short(&self) -> bool {
        let files = self.files.lock();
        files.is_wanting || files.loans > 0 || files.free.len() < files.wanted
    }

    /// Bytes of the segments of earlier runs that have no records in them.
    pub(crate) fn unused_bytes(&self) -> u64 {
        self.files.lock().left.iter().map(|left| left.bytes.saturating_sub(left.end)).sum()
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

    /// Whether a write was refused since this was asked last.
    pub(crate) fn take_refusal(&self) -> bool {
        std::mem::take(&mut self.files.lock().has_refused)
    }

    /// Keeps the file of a segment that is free, unless there are enough.
    pub(super) fn keep_or_remove(&self, files: &mut Files, segment: &Segment) {
        let has_room = files.free.len() < files.wanted + FREE_FILES_MAX;
        if has_room && segment.capacity() == self.sizes.segment_bytes {
            files.free.push(Arc::clone(segment.file()));
        } else {
            // What cannot be removed is passed over by every open.
            let _ = self.disk.remove(segment.name());
        }
    }

    /// Leaves of the reserve what the next open and flush need on a full disk.
    pub(super) fn leave_reserve(&self) {
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
    }

    pub(super) fn next_file(
        &self,
        files: &mut Files,
        needed: u64,
        purpose: Purpose,
    ) -> Result<Arc<dyn File>> {
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
    pub(super) fn allow_rows(&self) -> Result<()> {
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
    pub(super) fn refill(&self, files: &mut Files) -> Result<bool> {
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
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut files = self.0.files.lock();
        files.loans -= 1;
        // As in `free_until`.
        let _ = self.0.refill(&mut files);
    }
}

/// Free files of earlier runs.
pub(super) struct Taken {
    /// Those that can be segments of this run.
    pub(super) free: Vec<Arc<dyn File>>,
    /// The longest of another length, as the store had another memory budget: it can be the first segment if
    /// there is no room for another.
    pub(super) other: Option<Arc<dyn File>>,
}

/// Takes files of earlier runs; others are removed.
pub(super) fn take_over(disk: &dyn Disk, sizes: Sizes, unused: &[FileName]) -> Taken {
    let mut free = Vec::new();
    let mut other: Option<(u64, Arc<dyn File>)> = None;
    for name in unused {
        let file = disk.open(*name).and_then(|file| file.len().map(|bytes| (bytes, file)));
        // Its blocks are there, too: what is mapped cannot fail for want of room.
        let file = file.and_then(|(bytes, file)| file.allocate(bytes).map(|()| (bytes, file)));
        let passed = match file {
            Ok((bytes, file)) if bytes == sizes.segment_bytes => {
                let has_room = free.len() < sizes.output_files + OTHER_FILES;
                if has_room {
                    free.push(file);
                }
                (!has_room).then_some(*name)
            }
            Ok((bytes, file)) if bytes >= HEADER_BYTES as u64 + redo::WORD_BYTES as u64 => {
                let is_longest = other.as_ref().is_none_or(|(most, _)| *most < bytes);
                let shorter = if is_longest { other.replace((bytes, file)) } else { Some((bytes, file)) };
                shorter.map(|(_, file)| file.name())
            }
            _ => Some(*name),
        };
        if let Some(name) = passed {
            // What cannot be removed is passed over by every open.
            let _ = disk.remove(name);
        }
    }
    Taken { free, other: other.map(|(_, file)| file) }
}
