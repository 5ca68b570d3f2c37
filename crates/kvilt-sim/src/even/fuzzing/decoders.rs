//! One file at a time, through everything that reads its kind.

use std::sync::Arc;

use kvilt_base::{Direction, FileName, KeyRange, Kind as EntryKind, Result, Source, Version};
use kvilt_format::{
    HEADER_BYTES,
    commit::{Change, CommitReader, RECORD_HEAD_BYTES, encode_record as encode_commit},
    log::{Decoded, LogReader, Summary, decode_record, encode_record, read_record_at},
    manifest::{Edit, read_manifest},
    names::{COMMIT, LOG, MANIFEST, TABLE},
    table::{Table, TableSource},
};

use super::mend::{IDENTITY as ID, Kind, mend};
use crate::fuzzing::plain_file::{PlainDisk, PlainFile};

/// A table's keys that are looked up; more would only repeat.
const GETS_MAX: usize = 64;

/// The file in an input, mended unless the first byte's lowest bit says not to.
fn file_in(input: &[u8], kind: Kind) -> Option<(u8, Vec<u8>)> {
    let (how, bytes) = input.split_first()?;
    let mut bytes = bytes.to_vec();
    if how & 1 == 0 {
        mend(kind, &mut bytes);
    }
    Some((*how, bytes))
}

/// A chunk's log: read in pieces, record by record at known offsets, and from memory; all three see the same.
pub fn log(input: &[u8]) {
    let Some((how, bytes)) = file_in(input, Kind::Log) else { return };
    // The second bit cuts the durable length, as if the last record had never been synced whole.
    let durable_len =
        bytes.len() as u64 - if how & 2 == 0 { 0 } else { u64::from(how >> 2).min(bytes.len() as u64) };
    let file = PlainFile::new(FileName::Of(LOG, ID.number), bytes.clone());
    let Ok(mut reader) = LogReader::open(file.clone(), ID, durable_len) else { return };
    let base = reader.header().base;
    let mut scratch = Vec::new();
    loop {
        let mut offset = reader.offset();
        let Ok(Some((at, entry, batch))) = reader.next() else { break };
        // Summaries are all that it may have passed over.
        while offset < at {
            let Decoded::Summary { len } = decode_record(&bytes[offset as usize..], ID, offset, base) else {
                panic!("one reader sees a summary, another does not")
            };
            read_summary(&bytes[offset as usize..offset as usize + len], offset, base);
            offset += len as u64;
        }
        assert_eq!(offset, at);
        let len = match decode_record(&bytes[at as usize..], ID, at, base) {
            Decoded::Record { entry: again, batch: batch_again, len } => {
                assert_eq!((again, batch_again), (entry, batch));
                len
            }
            Decoded::Summary { .. } | Decoded::Incomplete { .. } | Decoded::Bad(_) => {
                panic!("one reader sees a record, another does not")
            }
        };
        let record = read_record_at(&*file, ID, base, at, durable_len, &mut scratch, usize::from(how));
        let record = record.expect("a record that one reader sees");
        assert_eq!((record.entry, record.batch, record.len), (entry, batch, len));
        let mut encoded = Vec::new();
        encode_record(&mut encoded, ID, at, base, entry, batch);
        assert!(encoded[..] == bytes[at as usize..at as usize + len], "a record has one encoding");
    }
}

/// A summary of a right checksum: malformed, or what it tells of lies where it says.
fn read_summary(record: &[u8], offset: u64, base: Version) {
    let Ok(summary) = Summary::decode(record.to_vec(), offset, base) else { return };
    assert_eq!(summary.end(), offset + record.len() as u64);
    let places = [summary.covered().start].into_iter().chain(summary.earlier().iter().copied());
    assert!(places.is_sorted_by(|a, b| a > b), "the way back ends");
    let (mut outlines, mut last, mut key_bytes) = (summary.outlines(), None, 0);
    while let Some(outline) = outlines.next() {
        assert!(last < Some(outline.offset) && summary.covered().contains(&outline.offset));
        last = Some(outline.offset);
        key_bytes += outline.key.len() as u64;
    }
    assert!(key_bytes <= offset - summary.covered().start, "no more keys than there are bytes");
}

/// The commit log: what is read comes back when it is written again.
pub fn commit(input: &[u8]) {
    let Some((_, bytes)) = file_in(input, Kind::Commit) else { return };
    let file = PlainFile::new(FileName::Of(COMMIT, ID.number), bytes.clone());
    let Ok(mut reader) = CommitReader::open(file, ID) else { return };
    let mut end = HEADER_BYTES as u64;
    while let Ok(Some((at, changes))) = reader.next() {
        let marks_bytes = at.checked_sub(end).expect("records lie one behind the other");
        assert_eq!(marks_bytes % RECORD_HEAD_BYTES as u64, 0, "nothing but marks lies between");
        let changes: Vec<Change<'_>> = changes.collect();
        let mut encoded = Vec::new();
        encode_commit(&mut encoded, ID, at, changes.iter().copied());
        let there = bytes.get(at as usize..at as usize + encoded.len());
        assert!(there == Some(&encoded[..]), "a record has one encoding");
        end = at + encoded.len() as u64;
    }
}

/// The manifest: the root that it leads to is one that can be written and read again.
pub fn manifest(input: &[u8]) {
    let Some((_, bytes)) = file_in(input, Kind::Manifest) else { return };
    let len = bytes.len() as u64;
    let disk = PlainDisk(PlainFile::new(FileName::Of(MANIFEST, ID.number), bytes));
    let Ok(Some((root, number, valid_len))) = read_manifest(&disk) else { return };
    assert!(number == ID.number && valid_len <= len);
    let edit = root.to_edit();
    let mut encoded = Vec::new();
    edit.encode(&mut encoded);
    assert!(Edit::decode(&encoded).is_ok_and(|again| again == edit), "an edit comes back as it was");
}

type Row = (Vec<u8>, Version, EntryKind, Vec<u8>);

/// A table: opened, verified, scanned from both ends, asked for its keys.
pub fn table(input: &[u8]) {
    let Some((how, bytes)) = file_in(input, Kind::Table) else { return };
    let len = bytes.len() as u64;
    let file = PlainFile::new(FileName::Of(TABLE, ID.number), bytes);
    let Ok(table) = Table::open(file, ID, len) else { return };
    let table = Arc::new(table);
    let verified = table.verify(&mut |_| true);
    let forward = rows(table.source(&KeyRange::all(), Direction::Forward));
    let backward = rows(table.source(&KeyRange::all(), Direction::Backward));
    let _ = table.sampled_newest_permille(GETS_MAX as u64);
    let _ = table.get(&[how], Version::NEWEST, |_, _, _| {});
    let Ok(entries) = verified else { return };
    let (Ok(forward), Ok(mut backward)) = (forward, backward) else { panic!("verified and unreadable") };
    backward.reverse();
    assert!(forward == backward, "a table reads otherwise from its other end");
    assert_eq!(forward.len() as u64, entries);
    for (key, version, kind, value) in forward.iter().take(GETS_MAX) {
        let mut found = false;
        let answer =
            table.get(key, *version, |v, k, bytes| found = (v, k, bytes) == (*version, *kind, &value[..]));
        assert!(answer.is_ok_and(|is_found| is_found) && found, "a verified table lacks an entry for a get");
    }
}

fn rows(source: Result<TableSource>) -> Result<Vec<Row>> {
    let mut source = source?;
    let mut rows = Vec::new();
    while let Some(entry) = source.entry() {
        rows.push((entry.key.to_vec(), entry.version, entry.kind, entry.value.to_vec()));
        source.advance()?;
    }
    Ok(rows)
}
