//! Tests of logs: what goes in comes out; what was hurt is said, never guessed.

use kvilt_base::ErrorKind;
use proptest::prelude::*;

use super::*;
use crate::{memory::MemoryFile, names::LOG};

const ID: FileIdentity = FileIdentity { store_id: 0x1122_3344_5566_7788, number: 9 };
const NAME: FileName = FileName::Of(LOG, 9);
const BASE: Version = Version::new(3, 5);

/// Key, version's distance from the base, kind, value, batch.
type Row = (Vec<u8>, u64, u8, Vec<u8>, u64);

fn rows(value_bytes: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (
        prop::collection::vec(any::<u8>(), 0..40),
        prop_oneof![0u64..300, any::<u32>().prop_map(u64::from)],
        0u8..3,
        prop::collection::vec(any::<u8>(), 0..value_bytes),
        prop_oneof![Just(0u64), any::<u64>()],
    );
    prop::collection::vec(row, 0..30)
}

fn entry(row: &Row) -> EntryRef<'_> {
    let version = Version::from_u64(BASE.to_u64() + row.1);
    EntryRef { key: &row.0, version, kind: Kind::from_u8(row.2).unwrap(), value: &row.3 }
}

fn log_of(rows: &[Row]) -> Vec<u8> {
    let mut bytes = encode_header(ID, BASE).to_vec();
    for row in rows {
        let offset = bytes.len() as u64;
        encode_record(&mut bytes, ID, offset, BASE, entry(row), row.4);
    }
    bytes
}

fn small_rows() -> Vec<Row> {
    vec![
        (b"apple".to_vec(), 0, 0, b"red".to_vec(), 0),
        (b"apple".to_vec(), 2, 1, vec![], 0),
        (vec![], 300, 0, vec![], 77),
        (b"b".to_vec(), 400, 2, b"c".to_vec(), 0),
    ]
}

/// All rows up to the durable length, or the error.
fn read_all(bytes: &[u8], durable_len: u64) -> Result<Vec<(u64, Row)>> {
    let mut reader = LogReader::open(MemoryFile::new(NAME, bytes.to_vec()), ID, durable_len)?;
    let mut out = Vec::new();
    while let Some((offset, e, batch)) = reader.next()? {
        let delta = e.version.to_u64() - BASE.to_u64();
        out.push((offset, (e.key.to_vec(), delta, e.kind as u8, e.value.to_vec(), batch)));
    }
    assert_eq!(reader.offset(), if durable_len < 64 { 0 } else { durable_len });
    Ok(out)
}

proptest! {
    #[test]
    fn records_come_back_one_by_one_and_all_together(rows in rows(600), guess in 0usize..700) {
        let bytes = log_of(&rows);
        let read = read_all(&bytes, bytes.len() as u64).unwrap();
        prop_assert_eq!(read.iter().map(|(_, row)| row.clone()).collect::<Vec<_>>(), rows);
        let file = MemoryFile::new(NAME, bytes.clone());
        let mut scratch = Vec::new();
        for (offset, row) in &read {
            let limit = bytes.len() as u64;
            let record = read_record_at(&*file, ID, BASE, *offset, limit, &mut scratch, guess).unwrap();
            prop_assert_eq!((record.entry, record.batch), (entry(row), row.4));
            prop_assert!(record.len <= record_len_max(row.0.len(), row.3.len()));
        }
    }

    #[test]
    fn a_cut_record_is_incomplete_and_says_truly_how_much_it_needs(rows in rows(300)) {
        for row in rows {
            let mut bytes = Vec::new();
            encode_record(&mut bytes, ID, 0, BASE, entry(&row), row.4);
            for cut in 0..bytes.len() {
                match decode_record(&bytes[..cut], ID, 0, BASE) {
                    Decoded::Incomplete { needed } => prop_assert!(cut < needed && needed <= bytes.len()),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), fix in any::<bool>()) {
        let mut bytes = bytes;
        if fix && bytes.len() > 4 {
            // A right checksum over whatever the head claims, so that the parser behind it is reached.
            if let Ok(frame) = decode_frame(&bytes, BASE) && frame.len() <= bytes.len() {
                let sum = checksum(ID.salt(64), &bytes[4..frame.len()]);
                bytes[..4].copy_from_slice(&sum.to_le_bytes());
            }
        }
        match decode_record(&bytes, ID, 64, BASE) {
            Decoded::Record { len, .. } => prop_assert!(len <= bytes.len()),
            Decoded::Summary { len } => {
                let _ = Summary::decode(bytes[..len].to_vec(), 64, BASE);
                let _ = Summary::decode(bytes[..len].to_vec(), 640, BASE);
            }
            Decoded::Incomplete { needed } => prop_assert!(needed > bytes.len()),
            Decoded::Bad(_) => {}
        }
        let _ = decode_header(&bytes, NAME, ID);
        let mut log = encode_header(ID, BASE).to_vec();
        log.extend_from_slice(&bytes);
        let len = log.len() as u64;
        let _ = read_all(&log, len);
        let file = MemoryFile::new(NAME, log);
        let mut scratch = Vec::new();
        let _ = read_record_at(&*file, ID, BASE, 64, len, &mut scratch, 16);
        prop_assert!(scratch.len() <= len as usize, "no more memory than the log has bytes");
    }
}

/// F-4: nothing below the durable length is skipped.
#[test]
fn every_flipped_bit_below_the_durable_length_is_corruption_with_file_and_offset() {
    let rows = small_rows();
    let good = log_of(&rows);
    let offsets: Vec<u64> = read_all(&good, good.len() as u64).unwrap().iter().map(|(o, _)| *o).collect();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let e = read_all(&bad, good.len() as u64).unwrap_err();
        assert_eq!((e.kind(), e.file()), (ErrorKind::Corrupted, Some("0000000000000009.log")), "bit {bit}");
        let hurt = offsets.iter().rev().find(|&&o| o <= bit as u64 / 8).copied();
        if let Some(hurt) = hurt {
            assert_eq!(e.offset(), Some(hurt), "bit {bit}");
        }
    }
}

/// F-4: the durable length parts corruption from a torn tail.
#[test]
fn a_log_shorter_than_its_durable_length_is_corruption_and_a_longer_one_is_a_tail() {
    let rows = small_rows();
    let good = log_of(&rows);
    for cut in 0..good.len() {
        let e = read_all(&good[..cut], good.len() as u64).unwrap_err();
        assert_eq!((e.kind(), e.offset()), (ErrorKind::Corrupted, Some(cut as u64)));
    }
    let last = read_all(&good, good.len() as u64).unwrap()[3].0;
    let mut torn = good.clone();
    torn[last as usize + 9] ^= 1;
    assert_eq!(
        read_all(&torn, last).unwrap().len(),
        3,
        "what lies behind the durable length is not looked at"
    );
    assert_eq!(read_all(b"", 0).unwrap(), vec![], "a log of which nothing is durable may not even exist");
    let e = read_all(&good, last + 3).unwrap_err();
    assert_eq!(
        (e.kind(), e.offset()),
        (ErrorKind::Corrupted, Some(last)),
        "a length in the midst of a record"
    );
}

#[test]
fn a_log_under_another_name_or_from_another_store_is_refused() {
    let good = log_of(&small_rows());
    for id in [FileIdentity { number: 8, ..ID }, FileIdentity { store_id: 1, ..ID }] {
        let e = LogReader::open(MemoryFile::new(NAME, good.clone()), id, good.len() as u64).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corrupted);
        assert!(
            matches!(decode_record(&good[64..], id, 64, BASE), Decoded::Bad(_)),
            "records are salted, too"
        );
    }
}

/// F-2: a record that was written to the wrong place, or is left from an earlier write there, does not pass.
#[test]
fn a_record_at_another_place_is_damage() {
    let row = (b"k".to_vec(), 1, 0, b"v".to_vec(), 0);
    let good = log_of(&[row.clone(), row]);
    let len = (good.len() - 64) / 2;
    let mut swapped = good.clone();
    swapped[64..64 + len].copy_from_slice(&good[64 + len..]);
    swapped[64 + len..].copy_from_slice(&good[64..64 + len]);
    let e = read_all(&swapped, good.len() as u64).unwrap_err();
    assert_eq!((e.kind(), e.offset()), (ErrorKind::Corrupted, Some(64)));
}

#[test]
fn the_largest_key_and_values_beyond_a_piece_come_back() {
    let rows: Vec<Row> = vec![
        (vec![7; limits::ENGINE_KEY_BYTES_MAX], 1, 0, vec![1; 3 << 20], 0),
        (b"small".to_vec(), 1, 0, b"x".to_vec(), 0),
        (vec![], 2, 0, vec![2; PIECE_BYTES], u64::MAX),
    ];
    let bytes = log_of(&rows);
    let read = read_all(&bytes, bytes.len() as u64).unwrap();
    assert!(read.into_iter().map(|(_, row)| row).eq(rows));
}

#[test]
fn a_length_beyond_the_limits_is_bad_before_memory_is_taken() {
    let mut bytes = vec![0; 4];
    bytes.push(0);
    push_varint(&mut bytes, 1);
    push_varint(&mut bytes, limits::VALUE_BYTES_MAX as u64 + 1);
    bytes.extend_from_slice(&[0; 60]);
    assert!(matches!(decode_record(&bytes, ID, 64, BASE), Decoded::Bad(_)));
    let mut overflow = vec![0; 4];
    overflow.extend_from_slice(&[0, 0, 0]);
    push_varint(&mut overflow, u64::MAX);
    assert!(matches!(decode_record(&overflow, ID, 64, BASE), Decoded::Bad(_)), "a version beyond 64 bits");
}

#[test]
fn a_key_is_decoded_from_the_start_of_its_record() {
    let row = (b"some key".to_vec(), 7, 0, vec![3; 10_000], 5);
    let bytes = log_of(std::slice::from_ref(&row));
    let record = &bytes[HEADER_BYTES..];
    let head_bytes = record.len() - 10_000 - row.0.len();
    for there in 0..head_bytes + row.0.len() {
        let decoded = decode_key(&record[..there], BASE);
        assert!(matches!(decoded, Decoded::Incomplete { needed } if needed > there), "{there}: {decoded:?}");
    }
    let Decoded::Record { entry: found, batch, len } = decode_key(&record[..head_bytes + row.0.len()], BASE)
    else {
        panic!("head and key are there")
    };
    assert_eq!((found.key, found.version, found.kind), (entry(&row).key, entry(&row).version, Kind::Put));
    assert_eq!((found.value, batch, len), (&[][..], 5, record.len()));
}
