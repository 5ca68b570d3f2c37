//! A chunk's log: a header, then records, one entry each, in the order they were written.
//!
//! Where it stands: the engine appends records that it encoded here to a file it owns, and reads them back
//! either one by one at a known offset or all of them up to the durable length. Format: `docs/format/log.md`.
//!
//! Always true: a log belongs to one epoch; its header carries a base version, and records hold the
//! difference to it. Among the records lie summaries of those before them ([`Summary`]). Nothing is ever
//! appended behind a possibly torn tail. A record below the durable length is good, or the log is `Corrupted`
//! (F-4).

mod large;
mod salvage;
mod summary;

use std::sync::Arc;

use kvilt_base::{EntryRef, Error, File, FileName, Kind, Result, Version, limits, planted};

use crate::{
    FileIdentity,
    checksum::{checksum, checksum_of_parts},
    coding::{Decoder, VARINT_BYTES_MAX, push_varint},
    header,
    names::LOG,
};

pub use large::LargeRecord;
pub use salvage::salvage;
pub use summary::{
    EARLIER_MAX, Outline, OutlineCursor, Outlines, SUMMARY_BODY_BYTES_MAX, SUMMARY_BYTES_MAX, Summary,
};

/// Bytes of the header that a log begins with; the first record follows.
pub const HEADER_BYTES: usize = header::HEADER_BYTES;

/// Bytes of a record before its key, at most: checksum, flags, four numbers.
pub const RECORD_HEAD_BYTES_MAX: usize = CHECKSUM_BYTES + 1 + 4 * VARINT_BYTES_MAX;

const CHECKSUM_BYTES: usize = 4;
const KIND_MASK: u8 = 0b0011;
const HAS_BATCH: u8 = 0b0100;
/// The flags of a summary: a kind that no entry has.
const SUMMARY: u8 = 0b0011;
/// Checksum, flags, and three numbers of one byte.
const RECORD_BYTES_MIN: usize = CHECKSUM_BYTES + 4;
/// How much a reader fetches at a time; long enough that the calls do not count.
const PIECE_BYTES: usize = 256 << 10;

/// What a log's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// Which file it is.
    pub id: FileIdentity,
    /// Versions in the records are relative to this one.
    pub base: Version,
}

/// The header of a log.
pub fn encode_header(id: FileIdentity, base: Version) -> [u8; HEADER_BYTES] {
    header::encode(header::LOG_MAGIC, id, base.to_u64())
}

/// Decodes the header of the log `name`, which must be the file `id`; `Corrupted` or `UnsupportedVersion`
/// else.
pub fn decode_header(bytes: &[u8], name: FileName, id: FileIdentity) -> Result<LogHeader> {
    let header = header::decode_of(bytes, header::LOG_MAGIC, name, id)?;
    Ok(LogHeader { id: header.id, base: Version::from_u64(header.by_kind) })
}

/// What stands before a record's key and value, after the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// What the entry does.
    pub kind: Kind,
    /// Bytes of the key.
    pub key_len: usize,
    /// Bytes of the value.
    pub value_len: usize,
    /// The entry's version.
    pub version: Version,
    /// The batch that the entry is part of; zero for none.
    pub batch: u64,
    /// Bytes before the key, the checksum included.
    pub head_len: usize,
}

impl RecordHead {
    /// Bytes of the whole record.
    pub fn record_len(&self) -> usize {
        self.head_len + self.key_len + self.value_len
    }
}

/// Appends the record of `entry`, which will lie at `offset` of the log, to `out`. `batch` is the id of the
/// write batch it is part of, or zero.
///
/// Panics if the entry's version is below `base`, or if key or value exceed their limits: both are checked
/// where writes come in.
///
/// ```
/// use kvilt_base::{EntryRef, Kind, Version};
/// use kvilt_format::{FileIdentity, log};
/// let (id, base) = (FileIdentity { store_id: 1, number: 2 }, Version::new(3, 0));
/// let entry = EntryRef { key: b"k", version: Version::new(3, 7), kind: Kind::Put, value: b"v" };
/// let mut out = Vec::new();
/// log::encode_record(&mut out, id, 64, base, entry, 0);
/// assert_eq!(log::decode_record(&out, id, 64, base), log::Decoded::Record { entry, batch: 0, len: out.len() });
/// ```
pub fn encode_record(
    out: &mut Vec<u8>,
    id: FileIdentity,
    offset: u64,
    base: Version,
    entry: EntryRef<'_>,
    batch: u64,
) {
    out.reserve(record_len_max(entry.key.len(), entry.value.len()));
    encode_before_value(out, id, offset, base, entry, batch);
    out.extend_from_slice(entry.value);
}

/// The same, but for the value, which is to follow: a large one need not be copied here.
///
/// Panics as [`encode_record`] does.
pub fn encode_before_value(
    out: &mut Vec<u8>,
    id: FileIdentity,
    offset: u64,
    base: Version,
    entry: EntryRef<'_>,
    batch: u64,
) {
    assert!(entry.key.len() <= limits::ENGINE_KEY_BYTES_MAX, "keys are checked at the door");
    assert!(entry.value.len() <= limits::VALUE_BYTES_MAX, "values are checked at the door");
    assert!(entry.version >= base, "a log's base is the first version of its epoch");
    let start = out.len();
    out.extend_from_slice(&[0; CHECKSUM_BYTES]);
    out.push(entry.kind as u8 | if batch == 0 { 0 } else { HAS_BATCH });
    push_varint(out, entry.key.len() as u64);
    push_varint(out, entry.value.len() as u64);
    push_varint(out, entry.version.to_u64() - base.to_u64());
    if batch != 0 {
        push_varint(out, batch);
    }
    out.extend_from_slice(entry.key);
    let sum = checksum_of_parts(id.salt(offset), [&out[start + CHECKSUM_BYTES..], entry.value]);
    out[start..start + CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Most bytes that the record of such an entry takes.
pub fn record_len_max(key_len: usize, value_len: usize) -> usize {
    RECORD_HEAD_BYTES_MAX + key_len + value_len
}

/// What stands at the start of some bytes of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A good record.
    Record {
        /// The entry in it.
        entry: EntryRef<'a>,
        /// The write batch that the entry is part of; zero for none.
        batch: u64,
        /// Bytes of the record; the next one follows.
        len: usize,
    },
    /// A good summary, which is no entry.
    Summary {
        /// Bytes of it; the next record follows.
        len: usize,
    },
    /// The bytes end before the record does; it may be good.
    Incomplete {
        /// Bytes that are needed to know more, at least; always more than were given.
        needed: usize,
    },
    /// No record, or a damaged one: this is wrong.
    Bad(&'static str),
}

/// Decodes the record at the start of `bytes`, which lie at `offset` of the log and may extend beyond it.
pub fn decode_record<'a>(bytes: &'a [u8], id: FileIdentity, offset: u64, base: Version) -> Decoded<'a> {
    let frame = match decode_frame(bytes, base) {
        Ok(frame) => frame,
        Err(Unfit::Incomplete { needed }) => return Decoded::Incomplete { needed },
        Err(Unfit::Bad(what)) => return Decoded::Bad(what),
    };
    let len = frame.len();
    let Some(record) = bytes.get(..len) else { return Decoded::Incomplete { needed: len } };
    if let Err(what) = check_record(record, id, offset) {
        return Decoded::Bad(what);
    }
    match frame {
        Frame::Entry(head) => Decoded::Record { entry: entry_of(record, &head), batch: head.batch, len },
        Frame::Summary { .. } => Decoded::Summary { len },
    }
}

/// The same of a record of which `bytes` need not have more than head and key: nothing is checked, and the
/// entry has no value. For estimates.
pub fn decode_key(bytes: &[u8], base: Version) -> Decoded<'_> {
    match decode_frame(bytes, base) {
        Ok(Frame::Entry(head)) => {
            let Some(key) = bytes.get(head.head_len..head.head_len + head.key_len) else {
                return Decoded::Incomplete { needed: head.head_len + head.key_len };
            };
            let entry = EntryRef { key, version: head.version, kind: head.kind, value: &[] };
            Decoded::Record { entry, batch: head.batch, len: head.record_len() }
        }
        Ok(Frame::Summary { len }) => Decoded::Summary { len },
        Err(Unfit::Incomplete { needed }) => Decoded::Incomplete { needed },
        Err(Unfit::Bad(what)) => Decoded::Bad(what),
    }
}

/// What stands at the start of a record: what it is, and how long.
enum Frame {
    Entry(RecordHead),
    Summary { len: usize },
}

impl Frame {
    fn len(&self) -> usize {
        match self {
            Frame::Entry(head) => head.record_len(),
            Frame::Summary { len } => *len,
        }
    }
}

/// Why there is no frame.
enum Unfit {
    Incomplete { needed: usize },
    Bad(&'static str),
}

fn decode_frame(bytes: &[u8], base: Version) -> Result<Frame, Unfit> {
    if bytes.len() < RECORD_BYTES_MIN {
        return Err(Unfit::Incomplete { needed: RECORD_BYTES_MIN });
    }
    // A number that the bytes cut off is incomplete only while the longest head would not fit.
    let cut_off = |what: crate::coding::Malformed| {
        if bytes.len() < RECORD_HEAD_BYTES_MAX {
            Unfit::Incomplete { needed: bytes.len() + 1 }
        } else {
            Unfit::Bad(what.0)
        }
    };
    let mut decoder = Decoder::at(bytes, CHECKSUM_BYTES);
    let flags = decoder.u8().map_err(cut_off)?;
    if flags & !(KIND_MASK | HAS_BATCH) != 0 {
        return Err(Unfit::Bad("a record has unknown flags"));
    }
    if flags == SUMMARY {
        let body_len = decoder.varint().map_err(cut_off)?;
        if body_len > SUMMARY_BODY_BYTES_MAX as u64 {
            return Err(Unfit::Bad("a summary exceeds its limit"));
        }
        return Ok(Frame::Summary { len: decoder.position() + body_len as usize });
    }
    let kind = Kind::from_u8(flags & KIND_MASK).ok_or(Unfit::Bad("a record has an unknown kind"))?;
    let key_len = decoder.varint().map_err(cut_off)?;
    let value_len = decoder.varint().map_err(cut_off)?;
    let delta = decoder.varint().map_err(cut_off)?;
    let batch = if flags & HAS_BATCH == 0 { 0 } else { decoder.varint().map_err(cut_off)? };
    if flags & HAS_BATCH != 0 && batch == 0 {
        // Zero means none, which the flag says already: a record has one encoding.
        return Err(Unfit::Bad("a record names batch zero"));
    }
    if key_len > limits::ENGINE_KEY_BYTES_MAX as u64 || value_len > limits::VALUE_BYTES_MAX as u64 {
        return Err(Unfit::Bad("a record's key or value exceeds its limit"));
    }
    let version = base.to_u64().checked_add(delta).ok_or(Unfit::Bad("a record's version overflows"))?;
    Ok(Frame::Entry(RecordHead {
        kind,
        key_len: key_len as usize,
        value_len: value_len as usize,
        version: Version::from_u64(version),
        batch,
        head_len: decoder.position(),
    }))
}

fn check_record(record: &[u8], id: FileIdentity, offset: u64) -> Result<(), &'static str> {
    let (sum, covered) = record.split_at(CHECKSUM_BYTES);
    planted!(ChecksumIgnored => return Ok(()));
    if checksum(id.salt(offset), covered).to_le_bytes() != *sum {
        return Err("a record's checksum differs");
    }
    Ok(())
}

fn entry_of<'a>(record: &'a [u8], head: &RecordHead) -> EntryRef<'a> {
    let (key, value) = record[head.head_len..].split_at(head.key_len);
    EntryRef { key, version: head.version, kind: head.kind, value }
}

/// A record read from a file; its bytes lie in the reader's scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The entry.
    pub entry: EntryRef<'a>,
    /// The write batch that it is part of; zero for none.
    pub batch: u64,
    /// Bytes of the record; the next one follows.
    pub len: usize,
}

/// Reads the record at `offset`. The log must reach up to `limit`; `guess` bytes are read first, and more
/// only if the record is longer. `scratch` keeps its memory for the next call.
///
/// A record that is bad, or that ends behind `limit`, is `Corrupted`: the caller knows that one is there.
pub fn read_record_at<'s>(
    file: &dyn File,
    id: FileIdentity,
    base: Version,
    offset: u64,
    limit: u64,
    scratch: &'s mut Vec<u8>,
    guess: usize,
) -> Result<Record<'s>> {
    let name = FileName::Of(LOG, id.number);
    let there = usize::try_from(limit.saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut wanted = guess.max(RECORD_HEAD_BYTES_MAX).min(there);
    let mut len = 0;
    let head = loop {
        if scratch.len() < wanted {
            scratch.resize(wanted, 0);
        }
        let got = file
            .read_full_at(offset + len as u64, &mut scratch[len..wanted])
            .map_err(|e| Error::io("read a log record", e).at(name, offset))?;
        len += got;
        if len < wanted {
            return Err(Error::corrupted(name, offset, "the file ends within a record"));
        }
        let needed = match decode_frame(&scratch[..len], base) {
            Ok(Frame::Entry(head)) if head.record_len() <= len => break head,
            Ok(Frame::Entry(head)) => head.record_len(),
            Ok(Frame::Summary { .. }) => {
                return Err(Error::corrupted(name, offset, "a summary stands where an entry must be"));
            }
            Err(Unfit::Incomplete { needed }) => needed,
            Err(Unfit::Bad(what)) => return Err(Error::corrupted(name, offset, what)),
        };
        if needed > there {
            return Err(Error::corrupted(name, offset, "a record reaches beyond the log's end"));
        }
        wanted = needed;
    };
    let record = &scratch[..head.record_len()];
    check_record(record, id, offset).map_err(|what| Error::corrupted(name, offset, what))?;
    Ok(Record { entry: entry_of(record, &head), batch: head.batch, len: record.len() })
}

/// Reads a log from its first record to its durable length, in large pieces.
///
/// One thread at a time. After an error it must not be used again.
#[derive(Debug)]
pub struct LogReader {
    file: Arc<dyn File>,
    header: LogHeader,
    durable_len: u64,
    /// Bytes of the file; the first one lies at `buffer_offset`.
    buffer: Vec<u8>,
    buffer_offset: u64,
    /// Where the next record starts, in the buffer.
    next: usize,
}

impl LogReader {
    /// Opens a log, of which the first `durable_len` bytes must be good, and checks its header. A durable
    /// length of less than a header means that nothing of the log counts: it has no records, and no byte is
    /// read.
    ///
    /// Errors: `Corrupted` if the file is shorter, or is not the file `id`; `Io` if it cannot be read.
    pub fn open(file: Arc<dyn File>, id: FileIdentity, durable_len: u64) -> Result<LogReader> {
        let name = FileName::Of(LOG, id.number);
        let mut reader = LogReader {
            file,
            header: LogHeader { id, base: Version::ZERO },
            durable_len,
            buffer: Vec::new(),
            buffer_offset: 0,
            next: 0,
        };
        if durable_len < HEADER_BYTES as u64 {
            reader.durable_len = 0;
            return Ok(reader);
        }
        let len = reader.file.len().map_err(|e| Error::io("ask for a log's length", e).in_file(name))?;
        if len < durable_len {
            let message = format!("the log has {len} bytes; {durable_len} were synced");
            return Err(Error::corrupted(name, len, message));
        }
        reader.fill(HEADER_BYTES)?;
        reader.header = decode_header(&reader.buffer, name, id)?;
        reader.next = HEADER_BYTES;
        Ok(reader)
    }

    /// What the header says; version zero as base if the log has no durable bytes.
    pub fn header(&self) -> LogHeader {
        self.header
    }

    /// Offset of the next record; the durable length at the end.
    pub fn offset(&self) -> u64 {
        self.buffer_offset + self.next as u64
    }

    /// The next entry's offset, itself and its batch; none at the durable length. Summaries are passed over.
    #[expect(
        clippy::should_implement_trait,
        reason = "entries borrow from the reader, which Iterator cannot say"
    )]
    pub fn next(&mut self) -> Result<Option<(u64, EntryRef<'_>, u64)>> {
        let name = FileName::Of(LOG, self.header.id.number);
        let (offset, start, head) = loop {
            let offset = self.offset();
            let Some(frame) = self.frame()? else { return Ok(None) };
            let start = self.next;
            self.next += frame.len();
            let record = &self.buffer[start..self.next];
            check_record(record, self.header.id, offset)
                .map_err(|what| Error::corrupted(name, offset, what))?;
            if let Frame::Entry(head) = frame {
                break (offset, start, head);
            }
        };
        Ok(Some((offset, entry_of(&self.buffer[start..self.next], &head), head.batch)))
    }

    /// What the next record is, all of it in the buffer; none at the durable length.
    fn frame(&mut self) -> Result<Option<Frame>> {
        let name = FileName::Of(LOG, self.header.id.number);
        let offset = self.offset();
        let left = usize::try_from(self.durable_len - offset).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(None);
        }
        loop {
            let needed = match decode_frame(&self.buffer[self.next..], self.header.base) {
                Ok(frame) if frame.len() <= self.buffer.len() - self.next => return Ok(Some(frame)),
                Ok(frame) => frame.len(),
                Err(Unfit::Incomplete { needed }) => needed,
                Err(Unfit::Bad(what)) => return Err(Error::corrupted(name, offset, what)),
            };
            if needed > left {
                return Err(Error::corrupted(name, offset, "a record reaches beyond the durable length"));
            }
            self.fill(needed)?;
        }
    }

    /// Makes the buffer hold at least `needed` bytes from the next record on; the caller knows that they lie
    /// below the durable length.
    fn fill(&mut self, needed: usize) -> Result<()> {
        let offset = self.offset();
        self.buffer.drain(..self.next);
        self.buffer_offset = offset;
        self.next = 0;
        let left = usize::try_from(self.durable_len - offset).unwrap_or(usize::MAX);
        let wanted = needed.max(PIECE_BYTES).min(left);
        let kept = self.buffer.len();
        self.buffer.resize(wanted, 0);
        self.file.read_exact_at(offset + kept as u64, &mut self.buffer[kept..]).map_err(|e| {
            let name = FileName::Of(LOG, self.header.id.number);
            if e.kind() == std::io::ErrorKind::UnexpectedEof {
                Error::corrupted(name, offset, "the file ends before its durable length")
            } else {
                Error::io("read a log", e).at(name, offset)
            }
        })
    }
}

#[cfg(test)]
mod tests;
