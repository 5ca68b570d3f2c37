//! Puts checksums, magic numbers and identities right, so that bytes get past the guards.
//!
//! It goes by the lengths that stand there, and stops where they make no sense. The formats are those of
//! `docs/format/`; a test holds it to the encoders.

use kvilt_format::{
    FileIdentity, HEADER_BYTES,
    checksum::checksum,
    redo::{BODY_BYTES_MAX, Segment, WORD_BYTES, record_bytes},
};

use crate::fuzzing::header::{mend_header, put};

/// The store and number that each mended file has.
pub const IDENTITY: FileIdentity = FileIdentity { store_id: 0x7465_6b73_5f66_757a, number: 3 };

/// In place of lengths: a mark, and a segment's end.
const MARK: u32 = u32::MAX - 1;
const END: u32 = u32::MAX;
/// Bytes before a catalogue's body: of the record that it is.
const HEAD_BYTES: usize = 12;

/// A catalogue: one record with all that there is.
pub(super) fn levels(bytes: &mut [u8]) {
    let Some(body_len) = bytes.len().checked_sub(HEADER_BYTES + HEAD_BYTES) else { return };
    mend_header(bytes, b"KVILTlev", IDENTITY);
    let (record, salt) = (&mut bytes[HEADER_BYTES..], IDENTITY.salt(HEADER_BYTES as u64));
    put(record, 0, &(body_len as u32).to_le_bytes());
    let sum = checksum(salt, &record[HEAD_BYTES..]);
    put(record, 4, &sum.to_le_bytes());
    let sum = checksum(salt, &record[..8]);
    put(record, 8, &sum.to_le_bytes());
}

/// A segment: its records, marks and end.
pub(super) fn redo(bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    mend_header(bytes, b"KVILTred", IDENTITY);
    let segment = segment_of(bytes);
    let mut offset = HEADER_BYTES;
    while let Some(head) = bytes.get(offset..).and_then(|rest| rest.first_chunk::<WORD_BYTES>()) {
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let (word, next) = match len {
            0 => return,
            MARK => (segment.mark(offset as u64), WORD_BYTES),
            END => (segment.end(offset as u64), WORD_BYTES),
            len if len as usize > BODY_BYTES_MAX => return,
            len => {
                let body = bytes.get(offset + WORD_BYTES..).and_then(|rest| rest.get(..len as usize));
                let Some(body) = body else { return };
                (segment.word(offset as u64, body), record_bytes(body.len()))
            }
        };
        put(bytes, offset, &word.to_le_bytes());
        if len == END {
            return;
        }
        offset += next;
    }
}

/// The segment that a header of 64 bytes says it is.
pub(super) fn segment_of(bytes: &[u8]) -> Segment {
    let sequence = u64::from_le_bytes(*bytes[32..].first_chunk().expect("a header has eight more bytes"));
    Segment { id: IDENTITY, sequence }
}
