//! Inputs to begin with, made by the encoders.

use kvilt_base::{KeyRange, Level, RangeTombstone, Version, disk::Habitat};
use kvilt_format::{
    HEADER_BYTES,
    levels::{Levels, TableOf},
    redo::{Change, Segment, WORD_BYTES, push_changes, record_bytes, void},
};

use super::mend::IDENTITY;

/// Catalogues of an empty store, of one with tables, and of one with range deletes.
pub(super) fn catalogues() -> Vec<Vec<u8>> {
    let table = |number: u64, first: &str, last: &str| TableOf {
        number,
        len: 900 + number,
        version_min: Version::new(2, number),
        first_key: first.into(),
        last_key: last.into(),
    };
    let delete = |start: &str, end: Option<&str>, count: u64| RangeTombstone {
        range: KeyRange { start: start.into(), end: end.map(Into::into) },
        version: Version::new(3, count),
    };
    let empty = Levels {
        store_id: IDENTITY.store_id,
        number: IDENTITY.number,
        epoch: 0,
        level: Level::Async,
        habitat: Habitat::NOWHERE,
        last_file: 1,
        log_first: 1,
        log_synced: (1, 0),
        levels: Vec::new(),
        tombstones: Vec::new(),
    };
    let full = Levels {
        epoch: 3,
        level: Level::Sync,
        habitat: Habitat { boot: *b"fedcba9876543210", device: 5, inode: 77 },
        last_file: 300,
        log_first: 40,
        log_synced: (42, 4096),
        levels: vec![
            vec![table(300, "apple", "zoo"), table(9, "", "b")],
            vec![table(2, "", "fig"), table(4, "grape", "kiwi")],
            vec![],
            vec![table(1, "x", "x")],
        ],
        ..empty.clone()
    };
    let deleted = Levels { tombstones: vec![delete("a", Some("b"), 7), delete("", None, 9)], ..full.clone() };
    [empty, full, deleted].map(|levels| [&[0], &levels.encode()[..]].concat()).to_vec()
}

/// Segments: a new one; one with records; a sealed one with marks; one with a record that was made void.
pub(super) fn segments() -> Vec<Vec<u8>> {
    let records: [&[Change<'_>]; 3] = [
        &[Change::Put { key: b"apple", value: b"red" }],
        &[Change::Put { key: b"", value: b"" }, Change::Delete { key: b"fig" }],
        &[
            Change::DeleteRange { start: b"a", end: Some(b"b") },
            Change::DeleteRange { start: b"x", end: None },
            Change::Put { key: &[b'k'; 40], value: &[b'v'; 90] },
        ],
    ];
    let segment = Segment { id: IDENTITY, sequence: 7 };
    let begun = || segment.header().to_vec();
    let add = |bytes: &mut Vec<u8>, changes: &[Change<'_>]| {
        let (offset, mut body) = (bytes.len(), Vec::new());
        push_changes(&mut body, changes.iter().copied());
        bytes.extend_from_slice(&segment.word(offset as u64, &body).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.resize(offset + record_bytes(body.len()), 0);
    };
    let mark = |bytes: &mut Vec<u8>| {
        let word = segment.mark(bytes.len() as u64);
        bytes.extend_from_slice(&word.to_le_bytes());
    };
    let mut some = begun();
    records.iter().for_each(|changes| add(&mut some, changes));
    some.extend_from_slice(&[0; 2 * WORD_BYTES]);
    let mut sealed = begun();
    mark(&mut sealed);
    records.iter().for_each(|changes| add(&mut sealed, changes));
    mark(&mut sealed);
    add(&mut sealed, records[0]);
    let end = segment.end(sealed.len() as u64);
    sealed.extend_from_slice(&end.to_le_bytes());
    let mut with_void = begun();
    records.iter().for_each(|changes| add(&mut with_void, changes));
    void(segment, HEADER_BYTES as u64, &mut with_void[HEADER_BYTES..]).expect("a record stands there");
    [begun(), some, sealed, with_void].map(|bytes| [&[0], &bytes[..]].concat()).to_vec()
}
