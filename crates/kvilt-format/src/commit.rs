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

pub use crate::change::{Change, Changes};

use crate::{FileIdentity, change::push_changes, header, record};

/// Bytes of the header that a commit log begins with; the first record follows.
pub const HEADER_BYTES: usize = header::HEADER_BYTES;

/// Bytes of a record before its body, and of a mark.
pub const RECORD_HEAD_BYTES: usize = record::HEAD_BYTES;

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
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_HEAD_BYTES]);
    push_changes(out, changes);
    record::seal(out, start, id, offset);
}

/// The mark that may lie at `offset`, once everything before it in the chain is synced.
pub fn encode_mark(id: FileIdentity, offset: u64) -> [u8; RECORD_HEAD_BYTES] {
    record::mark(id, offset)
}

#[cfg(test)]
mod tests;
