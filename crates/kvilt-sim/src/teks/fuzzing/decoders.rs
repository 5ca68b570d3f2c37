//! One file at a time through everything that decodes it.

use std::sync::Arc;

use kvilt_base::{File, FileName, Result};
use kvilt_format::{
    HEADER_BYTES,
    levels::Levels,
    names::REDO,
    redo::{Changes, Ending, RedoReader, SalvagedRecord, WORD_BYTES, push_changes},
};

use super::mend::{self, IDENTITY as ID};
use crate::fuzzing::plain_file::PlainFile;

/// Whether the first byte says to mend what follows.
fn is_to_mend(how: u8) -> bool {
    how & 1 == 0
}

pub(super) fn catalogue_of(bytes: &[u8]) -> Result<Levels> {
    Levels::decode(bytes, ID.number)
}

/// A catalogue: what is read comes back when it is written again.
pub fn levels(input: &[u8]) {
    let Some((how, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if is_to_mend(*how) {
        mend::levels(&mut bytes);
    }
    let Ok(levels) = catalogue_of(&bytes) else { return };
    // Of the header, the field by kind says nothing.
    assert!(levels.encode()[HEADER_BYTES..] == bytes[HEADER_BYTES..], "a catalogue has one encoding");
    assert!(Levels::decode(&bytes, ID.number + 1).is_err(), "a catalogue passes as another");
}

/// A record: where it lies, and its changes, encoded.
type Record = (u64, Vec<u8>);

/// What a reader finds in a segment.
pub(super) struct Read {
    pub(super) records: Vec<Record>,
    /// Where records lie that are not whole, and how it ends; none if something before a mark is damaged.
    end: Option<(Vec<u64>, Ending, u64)>,
}

fn encoded(changes: Changes<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    push_changes(&mut body, changes);
    body
}

fn file_of(bytes: &[u8]) -> Arc<dyn File> {
    PlainFile::new(FileName::Of(REDO, ID.number), bytes.to_vec())
}

pub(super) fn records_of(bytes: &[u8], is_whole: bool) -> Read {
    let mut read = Read { records: Vec::new(), end: None };
    let Ok(Some(mut reader)) = RedoReader::open(&file_of(bytes), ID, is_whole) else { return read };
    loop {
        match reader.next() {
            Ok(Some((offset, changes))) => read.records.push((offset, encoded(changes))),
            Ok(None) => {
                read.end = Some((reader.passed().to_vec(), reader.ending(), reader.offset()));
                return read;
            }
            Err(_) => return read,
        }
    }
}

/// A segment: after a kill, after a power cut, and as a rescue reads it.
pub fn redo(input: &[u8]) {
    let Some((how, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if is_to_mend(*how) {
        mend::redo(&mut bytes);
    }
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let (whole, cut) = (records_of(&bytes, true), records_of(&bytes, false));
    assert!(whole.records.starts_with(&cut.records), "a power cut leaves what a kill does not");
    for (offset, body) in &whole.records {
        let word = mend::segment_of(&bytes).word(*offset, body);
        let there = &bytes[*offset as usize..];
        // One that was made void keeps its length.
        let is_void = body[..] == [0];
        assert!(is_void || there.starts_with(&[&word.to_le_bytes(), &body[..]].concat()), "one encoding");
    }
    let Some((passed, ending, offset)) = whole.end else { return };
    // What fills the last word may be beyond the end.
    assert!(offset as usize <= bytes.len().next_multiple_of(WORD_BYTES));
    assert!(passed.iter().all(|passed| *passed < offset));
    let file = file_of(&bytes);
    let mut reader = RedoReader::open_as(&file, mend::segment_of(&bytes), true).expect("it can be read");
    let mut rescued = Vec::new();
    while let Some(salvaged) = reader.salvage(0) {
        match salvaged {
            SalvagedRecord::Good(changes) => rescued.push(encoded(changes)),
            SalvagedRecord::Bad { offset, .. } => panic!("nothing was synced, and {offset} is damaged"),
        }
    }
    assert!(rescued.iter().eq(whole.records.iter().map(|(_, body)| body)), "a rescue reads otherwise");
    assert_eq!(reader.ending(), ending);
    // Whatever is said to be synced: it ends, and says of no byte twice that it is damaged.
    let mut reader = RedoReader::open_as(&file, mend::segment_of(&bytes), false).expect("it can be read");
    let mut damaged_to = 0;
    while let Some(salvaged) = reader.salvage(u64::from(*how) << 3) {
        if let SalvagedRecord::Bad { offset, bytes } = salvaged {
            assert!(offset >= damaged_to);
            damaged_to = offset + bytes;
        }
    }
}
