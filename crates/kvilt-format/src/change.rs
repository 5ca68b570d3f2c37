//! Changes: what a record of a commit log or of a redo log does to keys.
//!
//! Where it stands: the body of such a record is the number of its changes, then the changes.

use kvilt_base::limits;

use crate::coding::{Decoder, Malformed, push_prefixed, push_varint};

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

/// Appends the body of a record: the number of changes, then the changes, all of which count or none.
pub fn push_changes<'a>(out: &mut Vec<u8>, changes: impl IntoIterator<Item = Change<'a>, IntoIter: Clone>) {
    let changes = changes.into_iter();
    push_varint(out, changes.clone().count() as u64);
    changes.for_each(|change| push_change(out, change));
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
    /// The changes that fill `decoder` to its end.
    pub(crate) fn decode(mut decoder: Decoder<'a>) -> Result<Self, Malformed> {
        // A change takes at least its tag and a length.
        let left = decoder.count(2)?;
        let changes = Changes { decoder: decoder.clone(), left };
        for _ in 0..left {
            decode_change(&mut decoder)?;
        }
        if !decoder.is_empty() {
            return Err(Malformed("a record has bytes behind its last change"));
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
