//! Commit logs: a header, then records, one write batch each, in the order of acknowledgement; between them
//! marks.
//!
//! Where it stands: at level sync a write is acknowledged when its record here is synced. At open, the
//! records since the last checkpoint are applied again: those of all commit logs, one after the other, a
//! *chain*. Format: `docs/format/commit.md`.
//!
//! Always true: a mark is written only when everything before it in the chain was synced. So a bad record
//! with a mark anywhere behind it was once whole and synced: that is corruption. Without one it is a torn
//! tail, which no writer reported as synced, and it ends the chain. A good record behind it saves nothing:
//! sectors that were not synced reach the disk in any order, and a write must not survive one that came
//! before it.

mod reader;

pub use reader::CommitReader;

use kvilt_base::limits;

use crate::{
    FileIdentity,
    coding::{Decoder, Malformed, push_prefixed, push_varint},
    header, record,
};

/// Bytes of the header that a commit log begins with; the first record follows.
pub const HEADER_BYTES: usize = header::HEADER_BYTES;

/// Bytes of a record before its body, and of a mark.
pub const RECORD_HEAD_BYTES: usize = record::HEAD_BYTES;

const PUT: u8 = 0;
const DELETE: u8 = 1;
const DELETE_RANGE: u8 = 2;
const DELETE_RANGE_TO_END: u8 = 3;

/// One operation of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Give `key` this `value`.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
    },
    /// Take `key`'s value away.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Take the value of every key of a range away.
    DeleteRange {
        /// First key of the range.
        start: &'a [u8],
        /// First key behind it; none if it has no end.
        end: Option<&'a [u8]>,
    },
}

/// The header of a commit log before whose first record `batches_before` others lie in the chain.
pub fn encode_header(id: FileIdentity, batches_before: u64) -> [u8; HEADER_BYTES] {
    header::encode(header::COMMIT_MAGIC, id, batches_before)
}

/// Appends to `out` the record of one write batch, which will lie at `offset`: all of `changes`, or none of
/// them, count after a crash.
///
/// Panics if the changes together exceed 4 GiB: batches are limited to far less where they come in.
///
/// ```
/// use kvilt_format::{FileIdentity, commit::{Change, encode_record}};
/// let id = FileIdentity { store_id: 1, number: 2 };
/// let mut out = Vec::new();
/// encode_record(&mut out, id, 64, [Change::Put { key: b"k", value: b"v" }, Change::Delete { key: b"old" }]);
/// assert_eq!(out.len(), 12 + 1 + 5 + 5);
/// ```
pub fn encode_record<'a>(
    out: &mut Vec<u8>,
    id: FileIdentity,
    offset: u64,
    changes: impl IntoIterator<Item = Change<'a>, IntoIter: Clone>,
) {
    let changes = changes.into_iter();
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_HEAD_BYTES]);
    push_varint(out, changes.clone().count() as u64);
    for change in changes {
        push_change(out, change);
    }
    record::seal(out, start, id, offset);
}

/// The mark that may lie at `offset`, once everything before it in the chain is synced.
pub fn encode_mark(id: FileIdentity, offset: u64) -> [u8; RECORD_HEAD_BYTES] {
    record::mark(id, offset)
}

fn push_change(out: &mut Vec<u8>, change: Change<'_>) {
    match change {
        Change::Put { key, value } => {
            out.push(PUT);
            push_prefixed(out, key);
            push_prefixed(out, value);
        }
        Change::Delete { key } => {
            out.push(DELETE);
            push_prefixed(out, key);
        }
        Change::DeleteRange { start, end: Some(end) } => {
            out.push(DELETE_RANGE);
            push_prefixed(out, start);
            push_prefixed(out, end);
        }
        Change::DeleteRange { start, end: None } => {
            out.push(DELETE_RANGE_TO_END);
            push_prefixed(out, start);
        }
    }
}

/// The changes of one record, in order. They were all decoded once before, so that iterating cannot fail.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    decoder: Decoder<'a>,
    left: usize,
}

impl<'a> Changes<'a> {
    fn decode(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut decoder = Decoder::new(body);
        // A change takes at least its tag and a length.
        let left = decoder.count(2)?;
        let changes = Changes { decoder: decoder.clone(), left };
        for _ in 0..left {
            decode_change(&mut decoder)?;
        }
        if !decoder.is_empty() {
            return Err(Malformed("a commit record has bytes behind its last change"));
        }
        Ok(changes)
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        self.left = self.left.checked_sub(1)?;
        Some(decode_change(&mut self.decoder).expect("decoded once when the record was checked"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Changes<'_> {}

fn decode_change<'a>(decoder: &mut Decoder<'a>) -> Result<Change<'a>, Malformed> {
    let tag = decoder.u8()?;
    let key = decode_key(decoder)?;
    match tag {
        PUT => {
            let value = decoder.prefixed()?;
            if value.len() > limits::VALUE_BYTES_MAX {
                return Err(Malformed("a value exceeds its limit"));
            }
            Ok(Change::Put { key, value })
        }
        DELETE => Ok(Change::Delete { key }),
        DELETE_RANGE => Ok(Change::DeleteRange { start: key, end: Some(decode_key(decoder)?) }),
        DELETE_RANGE_TO_END => Ok(Change::DeleteRange { start: key, end: None }),
        _ => Err(Malformed("a change has an unknown tag")),
    }
}

fn decode_key<'a>(decoder: &mut Decoder<'a>) -> Result<&'a [u8], Malformed> {
    let key = decoder.prefixed()?;
    // A range may end at the successor of the longest key.
    if key.len() > limits::ENGINE_KEY_BYTES_MAX {
        return Err(Malformed("a key exceeds its limit"));
    }
    Ok(key)
}

#[cfg(test)]
mod tests;
