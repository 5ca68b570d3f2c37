//! Verifying the log of an open store: what is durable of it is read once more, from its files.

use kvilt_base::{Error, FileName, Result};
use kvilt_format::{
    FileIdentity,
    redo::{Ending, RedoReader},
};

use super::{Log, Position};
use crate::sources::open_needed;

/// A segment, and where what is durable of it ends.
#[derive(Clone, Copy)]
pub struct Part {
    name: FileName,
    sequence: u64,
    end: u64,
    /// The log goes on in the next segment.
    is_sealed: bool,
}

impl Part {
    /// Bytes that are verified.
    pub fn bytes(&self) -> u64 {
        self.end
    }
}

impl Log {
    /// The segments that are needed now, oldest first, as far as they are durable.
    pub fn parts(&self) -> Vec<Part> {
        let Position { sequence: last, offset } = self.synced();
        let files = self.files.lock();
        let left = files.left.iter().map(|left| (left.name, left.sequence, Some(left.end)));
        let mut parts: Vec<_> = left.collect();
        drop(files);
        let segments: Vec<_> = self.segments.read().iter().cloned().collect();
        parts.extend(segments.into_iter().filter(|segment| segment.sequence() <= last).map(|segment| {
            let end = if segment.sequence() == last { Some(offset) } else { segment.filled() };
            (segment.name(), segment.sequence(), end)
        }));
        let part = |(name, sequence, end): (_, _, Option<u64>)| {
            end.map(|end| Part { name, sequence, end, is_sealed: sequence < last })
        };
        parts.into_iter().filter_map(part).collect()
    }

    /// Reads and verifies a part of the log, unless its segment was freed meanwhile. Whether it was not.
    ///
    /// Errors: `Corrupted`, also if the file is missing; `Io`.
    pub fn verify(&self, part: Part) -> Result<bool> {
        let verified = self.read_again(part);
        // Asked after that: a file whose segment is freed becomes another one.
        if self.is_needed(part) { verified.map(|()| true) } else { Ok(false) }
    }

    fn read_again(&self, part: Part) -> Result<()> {
        let Part { name, sequence, end, is_sealed } = part;
        let file = open_needed(&*self.disk, name)?;
        let id = FileIdentity { store_id: self.store_id, number: name.number() };
        let damaged = |offset, message: &str| Error::corrupted(name, offset, message);
        let reader = RedoReader::open(&file, id, true)?
            .filter(|reader| reader.sequence() == sequence)
            .ok_or_else(|| damaged(0, "the header is damaged"))?;
        // Others append behind the end while this reads.
        let mut reader = if is_sealed { reader } else { reader.cut_at(end) };
        while reader.next()?.is_some() {}
        if let Some(offset) = reader.passed().first() {
            return Err(damaged(*offset, "a record is damaged: it was synced"));
        }
        let is_continued = reader.ending() == Ending::Continued;
        if !is_continued && (is_sealed || reader.offset() < end) {
            return Err(damaged(reader.offset(), "the redo log ends here, and more was synced"));
        }
        Ok(())
    }

    fn is_needed(&self, part: Part) -> bool {
        let segments = self.segments.read();
        let in_use = segments.iter().any(|segment| segment.sequence() == part.sequence);
        in_use || self.files.lock().left.iter().any(|left| left.sequence == part.sequence)
    }
}
