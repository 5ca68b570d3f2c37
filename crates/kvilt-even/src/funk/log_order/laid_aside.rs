//! `LaidAside`: the order of a closed log, as notes in the log's file behind the last record.
//!
//! Nobody but the run that wrote it reads it: where it lies, and its checksum, are known in memory only. So
//! it needs no promise of durability, recovery never sees it, and it goes with the file. An order leaves out
//! what newer records hide, and these may be lost in a crash: another reason to believe none of an earlier
//! run.

use kvilt_format::checksum::checksum;

use super::{LogOrder, Notes, notes::Noted};
use crate::{files::Files, funk::log::ChunkLog};

/// Where an order was laid aside.
pub(crate) struct LaidAside {
    offset: u64,
    bytes: usize,
    checksum: u32,
    noted: Noted,
}

impl LaidAside {
    /// Writes the order of a closed log to its file; none if the log has no file, or it does not take it.
    /// Neither is an error: what was to be written can be made again from the log.
    pub(crate) fn write(order: &LogOrder, log: &ChunkLog, files: &Files) -> Option<LaidAside> {
        let notes = Notes::of(order, log.base(), files);
        let bytes = notes.copy().bytes();
        let offset = log.write_behind(files, &bytes)?;
        let checksum = checksum(files.identity(log.number()).salt(offset), &bytes);
        Some(LaidAside { offset, bytes: bytes.len(), checksum, noted: notes.noted() })
    }

    /// The order, if it is what was written.
    pub(super) fn read(&self, log: &ChunkLog, files: &Files) -> Option<LogOrder> {
        let bytes = log.read_behind(files, self.offset, self.bytes)?;
        if checksum(files.identity(log.number()).salt(self.offset), &bytes) != self.checksum {
            return None;
        }
        self.noted.order(&bytes, log.base()).ok()
    }

    /// Where in the log it begins.
    pub(super) fn start(&self) -> u64 {
        self.noted.place.start
    }
}
