//! Puts checksums, magic numbers and identities of a file right, so that its bytes get past the guards.
//!
//! It walks through a file as its reader does, by the lengths that stand there, and stops where they make no
//! sense. The formats are those of `docs/format/`; a test holds it to the encoders.

use kvilt_format::{FileIdentity, HEADER_BYTES, checksum::checksum, coding::Decoder};

use crate::fuzzing::header::mend_header;

/// The file that every mended one claims to be.
pub const IDENTITY: FileIdentity = FileIdentity { store_id: 0x6b76_696c_745f_667a, number: 3 };

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Log,
    Commit,
    Table,
    Manifest,
}

impl Kind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Kind::Log => b"KVILTlog",
            Kind::Commit => b"KVILTcom",
            Kind::Table => b"KVILTtab",
            Kind::Manifest => b"KVILTman",
        }
    }
}

/// Mends a file of this kind with the common identity.
pub(super) fn mend(kind: Kind, bytes: &mut [u8]) {
    mend_as(kind, bytes, IDENTITY);
}

/// Mends a file of this kind.
pub(super) fn mend_as(kind: Kind, bytes: &mut [u8], id: FileIdentity) {
    mend_header(bytes, kind.magic(), id);
    match kind {
        Kind::Log => mend_log(bytes, id),
        Kind::Table => mend_table(bytes, id),
        Kind::Commit | Kind::Manifest => mend_records(bytes, id),
    }
}

fn mend_log(bytes: &mut [u8], id: FileIdentity) {
    let mut start = HEADER_BYTES;
    while let Some(len) = log_record_len(bytes.get(start..).unwrap_or_default()) {
        let Some(record) = start.checked_add(len).and_then(|end| bytes.get_mut(start..end)) else { return };
        let sum = checksum(id.salt(start as u64), &record[4..]);
        record[..4].copy_from_slice(&sum.to_le_bytes());
        start += len;
    }
}

/// The flags of a summary among a log's records.
const SUMMARY: u8 = 3;

fn log_record_len(bytes: &[u8]) -> Option<usize> {
    let mut decoder = Decoder::at(bytes, 4);
    let flags = decoder.u8().ok()?;
    if flags == SUMMARY {
        let body_len = decoder.varint_usize().ok()?;
        return decoder.position().checked_add(body_len);
    }
    let (key_len, value_len) = (decoder.varint_usize().ok()?, decoder.varint_usize().ok()?);
    decoder.varint().ok()?;
    if flags & 0b100 != 0 {
        decoder.varint().ok()?;
    }
    decoder.position().checked_add(key_len)?.checked_add(value_len)
}

/// Mends the records of a commit log or a manifest: they have one frame.
fn mend_records(bytes: &mut [u8], id: FileIdentity) {
    let mut start = HEADER_BYTES;
    while let Some(head) = bytes.get(start..).and_then(|rest| rest.first_chunk::<12>()) {
        let body_len = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
        let Some(record) = bytes.get_mut(start..).and_then(|rest| rest.get_mut(..12 + body_len)) else {
            return;
        };
        let salt = id.salt(start as u64);
        let sum = checksum(salt, &record[12..]);
        record[4..8].copy_from_slice(&sum.to_le_bytes());
        let sum = checksum(salt, &record[..8]);
        record[8..12].copy_from_slice(&sum.to_le_bytes());
        start += record.len();
    }
}

const FOOTER_BYTES: usize = 96;

fn mend_table(bytes: &mut [u8], id: FileIdentity) {
    let Some(data_len) = bytes.len().checked_sub(HEADER_BYTES + FOOTER_BYTES) else { return };
    let footer_offset = HEADER_BYTES + data_len;
    let number = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[footer_offset + at..footer_offset + at + 8].try_into().expect("eight bytes"))
    };
    // Filter and index get what they ask for, as far as there is that much; the blocks have the rest.
    let index_len = number(bytes, 24).min(data_len as u64) as usize;
    let filter_len = number(bytes, 8).min((data_len - index_len) as u64) as usize;
    let (index_offset, filter_offset) = (footer_offset - index_len, footer_offset - index_len - filter_len);
    let footer = &mut bytes[footer_offset..];
    let fields = [(0, filter_offset), (8, filter_len), (16, index_offset), (24, index_len)];
    for (at, field) in fields {
        footer[at..at + 8].copy_from_slice(&(field as u64).to_le_bytes());
    }
    footer[56..64].copy_from_slice(&id.store_id.to_le_bytes());
    footer[64..72].copy_from_slice(&id.number.to_le_bytes());
    footer[72..84].fill(0);
    let sum = checksum(id.salt(footer_offset as u64), &footer[..84]);
    footer[84..88].copy_from_slice(&sum.to_le_bytes());
    footer[88..].copy_from_slice(b"KVILTend");
    mend_block(bytes, id, filter_offset, filter_len);
    mend_block(bytes, id, index_offset, index_len);
    mend_blocks(bytes, id, filter_offset, index_offset, index_len);
}

/// Mends the blocks that the index names.
fn mend_blocks(bytes: &mut [u8], id: FileIdentity, end: usize, index_offset: usize, index_len: usize) {
    let index = bytes[index_offset..index_offset + index_len.saturating_sub(5)].to_vec();
    let mut decoder = Decoder::new(&index);
    let mut start = HEADER_BYTES;
    let mut lens = || {
        for _ in 0..3 {
            decoder.prefixed().ok()?;
        }
        let count = decoder.count(3).ok()?;
        for _ in 0..count {
            decoder.prefixed().ok()?;
            decoder.varint().ok()?;
            let len = decoder.varint_usize().ok()?;
            if len > end - start {
                return None;
            }
            mend_block(bytes, id, start, len);
            start += len;
        }
        Some(())
    };
    let _ = lens();
}

/// Mends a stored block: its last four bytes are the checksum.
fn mend_block(bytes: &mut [u8], id: FileIdentity, start: usize, len: usize) {
    if len < 5 {
        return;
    }
    let (covered, sum) = bytes[start..start + len].split_at_mut(len - 4);
    sum.copy_from_slice(&checksum(id.salt(start as u64), covered).to_le_bytes());
}
