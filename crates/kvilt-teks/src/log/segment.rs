//! `Segment`: a file of the log in use, mapped; or written through where the disk maps nothing.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use kvilt_base::{Error, File, FileName, Mapping, Result};
use kvilt_format::{HEADER_BYTES, redo};
use kvilt_sync::LogSegment;
use parking_lot::Mutex;

use super::Position;

/// See the module.
pub(super) struct Segment {
    format: redo::Segment,
    file: Arc<dyn File>,
    bytes: u64,
    body: Body,
    /// Records that are not in a table yet, and appends that are under way.
    unapplied: Arc<AtomicUsize>,
}

enum Body {
    Mapped(LogSegment),
    /// Where the next record is to be written.
    Written(Mutex<End>),
    /// Sealed and whole up to this offset: only its file is needed, and its pages are not mapped any more.
    AtRest(u64),
}

struct End {
    offset: u64,
    is_sealed: bool,
}

/// A record that is in the log and not in a table yet: its segment is kept.
pub struct Appended {
    segment: Arc<Segment>,
    offset: u64,
}

impl Segment {
    /// Begins a segment in a file whose room was taken, and which nobody needs as another.
    ///
    /// Errors: `Io`.
    pub(super) fn begin(file: Arc<dyn File>, format: redo::Segment) -> Result<Segment> {
        let failed = |e| Error::io("begin a segment of the redo log", e).in_file(file.name());
        let bytes = file.len().map_err(failed)?;
        let body = match map(&*file, bytes).map_err(failed)? {
            Some(mapping) => Body::Mapped(LogSegment::begin(mapping, &format.header())),
            None => written(&*file, format).map_err(failed)?,
        };
        Ok(Segment { format, file, bytes, body, unapplied: Arc::default() })
    }

    /// Goes on in a segment of an earlier run behind its last record. Nothing that was stored there is
    /// missing, so nothing of its own is found behind that.
    ///
    /// Errors: `Io`.
    pub(super) fn resume(file: Arc<dyn File>, format: redo::Segment, end: u64) -> Result<Segment> {
        let failed = |e| Error::io("go on in a segment of the redo log", e).in_file(file.name());
        let bytes = file.len().map_err(failed)?;
        let body = match map(&*file, bytes).map_err(failed)? {
            Some(mapping) => Body::Mapped(LogSegment::resume(mapping, end)),
            None => Body::Written(Mutex::new(End { offset: end, is_sealed: false })),
        };
        Ok(Segment { format, file, bytes, body, unapplied: Arc::default() })
    }

    /// The same without its mapping. It is sealed, and whole up to its end.
    pub(super) fn at_rest(&self, end: u64) -> Segment {
        let (file, unapplied) = (Arc::clone(&self.file), Arc::clone(&self.unapplied));
        Segment { format: self.format, file, bytes: self.bytes, body: Body::AtRest(end), unapplied }
    }

    pub(super) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    pub(super) fn sequence(&self) -> u64 {
        self.format.sequence
    }

    pub(super) fn name(&self) -> FileName {
        self.file.name()
    }

    /// Bytes of the file.
    pub(super) fn capacity(&self) -> u64 {
        self.bytes
    }

    /// Appends a record; none if there is no room for it. `announce` runs before any record behind it.
    ///
    /// Errors: those of a write, where the segment is not mapped.
    pub(super) fn append<T>(
        segment: &Arc<Segment>,
        body: &[u8],
        announce: impl FnOnce() -> T,
    ) -> Result<Option<(Appended, T)>> {
        // SeqCst, and before the room is taken: whoever sees the segment sealed, or full, sees this.
        segment.unapplied.fetch_add(1, Ordering::SeqCst);
        let mut appended = Appended { segment: Arc::clone(segment), offset: 0 };
        let written = match &segment.body {
            Body::Mapped(log) => log.reserve(body.len(), announce).map(|(reserved, announced)| {
                let offset = reserved.offset();
                reserved.fill(body, segment.format.word(offset, body));
                (offset, announced)
            }),
            Body::Written(end) => {
                let mut end = end.lock();
                let offset = segment.write_record(&mut end, body)?;
                offset.map(|offset| (offset, announce()))
            }
            Body::AtRest(_) => None,
        };
        Ok(written.map(|(offset, announced)| {
            appended.offset = offset;
            (appended, announced)
        }))
    }

    /// Whether records of it are not in a table yet.
    pub(super) fn has_unapplied(&self) -> bool {
        self.unapplied.load(Ordering::SeqCst) > 0
    }

    /// Says in the file that the log goes on in the next segment.
    pub(super) fn seal(&self) -> Result<()> {
        match &self.body {
            Body::Mapped(log) => log.seal(|offset| self.format.end(offset)),
            Body::Written(end) => {
                let mut end = end.lock();
                if !end.is_sealed {
                    self.write(end.offset, &self.format.end(end.offset).to_le_bytes())?;
                    end.is_sealed = true;
                    // It is to be synced like what is before it.
                    end.offset += redo::WORD_BYTES as u64;
                }
            }
            Body::AtRest(_) => {}
        }
        Ok(())
    }

    /// Waits until all is whole that was appended before, and says where it ends; none if that cannot be.
    pub(super) fn filled(&self) -> Option<u64> {
        match &self.body {
            Body::Mapped(log) => log.filled(),
            Body::Written(end) => Some(end.lock().offset),
            Body::AtRest(end) => Some(*end),
        }
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| Error::io("sync the redo log", e).in_file(self.name()))
    }

    /// Says in the file that all before `end` was synced, if nothing was appended since: a mark vouches for
    /// all before it. Returns where the next sync has something to do.
    pub(super) fn mark(&self, end: u64) -> u64 {
        let behind = end + redo::WORD_BYTES as u64;
        let is_marked = match &self.body {
            Body::Mapped(log) => log.append_word_at(end, self.format.mark(end)),
            Body::Written(last) => {
                let mut last = last.lock();
                let has_room = behind + redo::WORD_BYTES as u64 <= self.bytes;
                let mut words = self.format.mark(end).to_le_bytes().to_vec();
                words.extend_from_slice(&[0; redo::WORD_BYTES]);
                // A log without it is as durable; what a failed write leaves is written over.
                let may = !last.is_sealed && last.offset == end && has_room;
                let is_marked = may && self.write(end, &words).is_ok();
                last.offset = if is_marked { behind } else { last.offset };
                is_marked
            }
            Body::AtRest(_) => false,
        };
        if is_marked { behind } else { end }
    }

    /// Writes a record, and before it the word of zero behind it.
    fn write_record(&self, end: &mut End, body: &[u8]) -> Result<Option<u64>> {
        let (offset, len) = (end.offset, redo::record_bytes(body.len()));
        if end.is_sealed || offset + (len + redo::WORD_BYTES) as u64 > self.bytes {
            return Ok(None);
        }
        let mut record = Vec::with_capacity(len);
        record.extend_from_slice(&self.format.word(offset, body).to_le_bytes());
        record.extend_from_slice(body);
        record.resize(len, 0);
        self.write(offset + len as u64, &[0; redo::WORD_BYTES])?;
        self.write(offset, &record)?;
        end.offset += len as u64;
        Ok(Some(offset))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(offset, bytes);
        written.map_err(|e| Error::io("write the redo log", e).at(self.name(), offset))
    }
}

/// None if the disk maps nothing.
fn map(file: &dyn File, bytes: u64) -> io::Result<Option<Arc<Mapping>>> {
    match file.map(0, usize::try_from(bytes).unwrap_or(usize::MAX)) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(None),
        mapped => mapped.map(Some),
    }
}

fn written(file: &dyn File, format: redo::Segment) -> io::Result<Body> {
    // What an earlier use left goes before the header says that it is another one.
    file.write_all_at(HEADER_BYTES as u64, &[0; redo::WORD_BYTES])?;
    file.write_all_at(0, &format.header())?;
    Ok(Body::Written(Mutex::new(End { offset: HEADER_BYTES as u64, is_sealed: false })))
}

impl Appended {
    /// Where the record is.
    pub fn position(&self) -> Position {
        Position { sequence: self.segment.sequence(), offset: self.offset }
    }
}

impl Drop for Appended {
    fn drop(&mut self) {
        self.segment.unapplied.fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Appended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Appended({:?})", self.position())
    }
}
