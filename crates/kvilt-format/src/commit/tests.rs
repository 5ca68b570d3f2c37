//! Tests of commit logs: whole batches come back in order, up to the first that is not good.

use kvilt_base::{ErrorKind, FileName, Result};
use proptest::prelude::*;

use super::{reader::PIECE_BYTES, *};
use crate::{memory::MemoryFile, names::COMMIT};

const ID: FileIdentity = FileIdentity { store_id: 21, number: 4 };
const NAME: FileName = FileName::Of(COMMIT, 4);

type Batch = Vec<(u8, Vec<u8>, Vec<u8>)>;

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let bytes = |n| prop::collection::vec(any::<u8>(), 0..n);
    prop::collection::vec(prop::collection::vec((0u8..4, bytes(20), bytes(200)), 0..6), 0..12)
}

fn change((tag, key, value): &(u8, Vec<u8>, Vec<u8>)) -> Change<'_> {
    match tag {
        0 => Change::Put { key, value },
        1 => Change::Delete { key },
        2 => Change::DeleteRange { start: key, end: Some(value) },
        _ => Change::DeleteRange { start: key, end: None },
    }
}

/// The log, and where its records end. A mark is written behind the header and behind each record if
/// `is_marked`.
fn log_with(batches: &[Batch], is_marked: bool) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = encode_header(ID, 7).to_vec();
    let mut ends = vec![bytes.len()];
    let push_mark = |bytes: &mut Vec<u8>| {
        if is_marked {
            let mark = encode_mark(ID, bytes.len() as u64);
            bytes.extend_from_slice(&mark);
        }
    };
    push_mark(&mut bytes);
    for batch in batches {
        let offset = bytes.len() as u64;
        encode_record(&mut bytes, ID, offset, batch.iter().map(change));
        ends.push(bytes.len());
        push_mark(&mut bytes);
    }
    (bytes, ends)
}

fn log_of(batches: &[Batch]) -> (Vec<u8>, Vec<usize>) {
    log_with(batches, false)
}

/// How many records come back right, and whether the end was torn.
fn read_all(bytes: &[u8], expected: &[Batch]) -> Result<(usize, bool)> {
    let mut reader = CommitReader::open(MemoryFile::new(NAME, bytes.to_vec()), ID)?;
    assert!(reader.batches_before().is_none_or(|before| before == 7));
    let mut count = 0;
    while let Some((_, changes)) = reader.next()? {
        assert!(changes.eq(expected[count].iter().map(change)), "record {count}");
        count += 1;
    }
    assert!(reader.next()?.is_none(), "the end stays the end");
    Ok((count, reader.is_torn()))
}

fn small() -> Vec<Batch> {
    vec![
        vec![(0, b"k".to_vec(), b"v".to_vec())],
        vec![(1, b"k".to_vec(), vec![]), (0, b"l".to_vec(), b"w".to_vec())],
        vec![(2, b"a".to_vec(), b"b".to_vec()), (3, b"x".to_vec(), vec![])],
    ]
}

proptest! {
    #[test]
    fn batches_come_back_and_a_cut_ends_at_the_last_whole_one(batches in batches(), cut in any::<prop::sample::Index>()) {
        let (bytes, ends) = log_of(&batches);
        prop_assert_eq!(read_all(&bytes, &batches).unwrap(), (batches.len(), false));
        let cut = cut.index(bytes.len() + 1);
        let whole = ends.iter().filter(|&&end| end <= cut).count();
        let end = ends[..whole].last().copied().unwrap_or(0);
        // What begins with zeros and goes no further is not told from zeros ahead.
        let is_torn = whole == 0 || bytes[end..cut].iter().any(|&byte| byte != 0);
        prop_assert_eq!(read_all(&bytes[..cut], &batches).unwrap(), (whole.saturating_sub(1), is_torn));
    }

    #[test]
    fn arbitrary_records_with_right_checksums_never_panic(body in prop::collection::vec(any::<u8>(), 1..100)) {
        let mut bytes = encode_header(ID, 0).to_vec();
        record::push(&mut bytes, &body, ID, HEADER_BYTES as u64).unwrap();
        let mut reader = CommitReader::open(MemoryFile::new(NAME, bytes), ID).unwrap();
        match reader.next() {
            Ok(Some((_, changes))) => drop(changes.collect::<Vec<_>>()),
            Ok(None) => prop_assert!(false, "the checksum is right"),
            Err(e) => prop_assert_eq!(e.kind(), ErrorKind::Corrupted),
        }
    }

    #[test]
    fn arbitrary_bytes_behind_the_header_end_the_log(tail in prop::collection::vec(any::<u8>(), 1..300)) {
        let mut bytes = encode_header(ID, 7).to_vec();
        bytes.extend_from_slice(&tail);
        let is_torn = tail.iter().any(|&byte| byte != 0);
        prop_assert_eq!(read_all(&bytes, &[]).unwrap(), (0, is_torn));
    }

    #[test]
    fn zeros_behind_a_log_are_its_end_and_hide_nothing(zeros in 1..(2 * PIECE_BYTES), is_marked in any::<bool>()) {
        let batches = small();
        let (mut bytes, _) = log_with(&batches, is_marked);
        let end = bytes.len();
        bytes.resize(end + zeros, 0);
        prop_assert_eq!(read_all(&bytes, &batches).unwrap(), (3, false));
        // A mark behind zeros says that there was something.
        let mut bad = bytes.clone();
        bad.extend_from_slice(&encode_mark(ID, bytes.len() as u64));
        prop_assert_eq!(read_all(&bad, &batches).unwrap_err().offset(), Some(end as u64));
        // Anything else is what never became a record.
        bytes.push(1);
        prop_assert_eq!(read_all(&bytes, &batches).unwrap(), (3, true));
    }
}

/// Without marks no writer reported it as synced.
#[test]
fn every_flipped_bit_ends_a_log_without_marks_before_its_record() {
    let batches = small();
    let (good, ends) = log_of(&batches);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let whole = ends.iter().filter(|&&end| end <= bit / 8).count();
        assert_eq!(read_all(&bad, &batches).unwrap(), (whole.saturating_sub(1), true), "bit {bit}");
    }
}

/// The mark is found wherever it stands, however much of the log has been read before.
#[test]
fn a_mark_proves_what_is_long_before_it() {
    for records in [1, 4, 40] {
        let batches: Vec<Batch> = vec![vec![(0, vec![b'k'; 100], vec![b'v'; 9000])]; records];
        for bad in 0..records {
            let (mut bytes, ends) = log_of(&batches);
            let mark = encode_mark(ID, bytes.len() as u64);
            bytes.extend_from_slice(&mark);
            bytes[ends[bad] + 50] ^= 1;
            let error = read_all(&bytes, &batches).unwrap_err();
            assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupted, Some(ends[bad] as u64)));
        }
    }
}

/// F-4 for commit logs: what a mark says was synced is never cut off silently.
#[test]
fn every_flipped_bit_before_a_mark_is_corruption_where_it_is() {
    let batches = small();
    let (good, ends) = log_with(&batches, true);
    let last_mark = *ends.last().unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        if bit / 8 >= last_mark {
            assert_eq!(read_all(&bad, &batches).unwrap(), (batches.len(), true), "bit {bit}");
            continue;
        }
        let error = read_all(&bad, &batches).unwrap_err();
        assert_eq!((error.kind(), error.file()), (ErrorKind::Corrupted, Some(NAME.to_string().as_str())));
        let offset = usize::try_from(error.offset().expect("says where")).unwrap();
        let starts_before = ends.iter().rposition(|&end| end <= bit / 8).map_or(0, |record| ends[record]);
        let is_close =
            if starts_before == 0 { offset <= 12 } else { (starts_before..=bit / 8).contains(&offset) };
        assert!(is_close, "bit {bit}, told {offset}");
    }
}

#[test]
fn a_mark_is_found_far_behind_the_damage_and_across_pieces() {
    for padding in [0, 1, 11, 12, 13, PIECE_BYTES - 30, PIECE_BYTES, 2 * PIECE_BYTES + 5] {
        let batches = vec![vec![(0, b"k".to_vec(), vec![9; padding])], vec![(1, b"l".to_vec(), vec![])]];
        let (mut bytes, ends) = log_of(&batches);
        bytes[70] ^= 1;
        assert_eq!(read_all(&bytes, &batches).unwrap(), (0, true), "{padding}: no mark");
        let mark = encode_mark(ID, ends[2] as u64);
        bytes.extend_from_slice(&mark);
        assert_eq!(read_all(&bytes, &batches).unwrap_err().offset(), Some(64), "{padding}");
        // A mark of another place is none.
        let end = bytes.len() - 12;
        bytes[end..].copy_from_slice(&encode_mark(ID, ends[2] as u64 + 1));
        assert_eq!(read_all(&bytes, &batches).unwrap(), (0, true), "{padding}: moved");
    }
}

#[test]
fn a_header_that_was_never_synced_is_an_empty_log() {
    for bytes in [vec![], vec![0; 30], vec![0; 64], vec![0xa5; 64], vec![0; 500]] {
        assert_eq!(read_all(&bytes, &[]).unwrap(), (0, true));
    }
    let (mut bytes, _) = log_of(&small());
    bytes[3] ^= 1;
    assert_eq!(read_all(&bytes, &[]).unwrap(), (0, true));
    let (mut bytes, _) = log_with(&small(), true);
    bytes[3] ^= 1;
    assert_eq!(read_all(&bytes, &[]).unwrap_err().kind(), ErrorKind::Corrupted);
}

/// F-2.
#[test]
fn another_files_header_or_records_do_not_pass() {
    let (good, _) = log_of(&small());
    let other = FileIdentity { number: 5, ..ID };
    let open = |bytes: Vec<u8>| CommitReader::open(MemoryFile::new(FileName::Of(COMMIT, 5), bytes), other);
    assert_eq!(open(good.clone()).unwrap_err().kind(), ErrorKind::Corrupted);
    let mut stale = encode_header(other, 7).to_vec();
    stale.extend_from_slice(&good[64..]);
    let mut reader = open(stale).unwrap();
    assert!(reader.next().unwrap().is_none() && reader.is_torn());
}

#[test]
fn a_batch_beyond_a_piece_comes_back() {
    let batches =
        vec![vec![(0, b"large".to_vec(), vec![9; 3 * PIECE_BYTES])], vec![(0, b"small".to_vec(), vec![])]];
    let (bytes, _) = log_of(&batches);
    assert_eq!(read_all(&bytes, &batches).unwrap(), (2, false));
}
