//! Tests of redo logs: what is read of whole, torn, damaged and older segments.

use kvilt_base::ErrorKind;
use proptest::prelude::*;

use super::*;
use crate::memory::MemoryFile;

const ID: FileIdentity = FileIdentity { store_id: 5, number: 3 };
const SEGMENT: Segment = Segment { id: ID, sequence: 9 };

/// The bytes of a segment, and what they end with.
struct Written(Vec<u8>);

impl Written {
    fn new() -> Self {
        Written(SEGMENT.header().to_vec())
    }

    fn push_word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    /// A record that puts `value` under `key`; says where it lies.
    fn push(&mut self, key: &[u8], value: &[u8]) -> usize {
        let offset = self.0.len();
        let mut body = Vec::new();
        push_changes(&mut body, [Change::Put { key, value }]);
        self.push_word(SEGMENT.word(offset as u64, &body));
        body.resize(body.len().next_multiple_of(WORD_BYTES), 0);
        self.0.extend_from_slice(&body);
        offset
    }

    fn push_mark(&mut self) {
        self.push_word(SEGMENT.mark(self.0.len() as u64));
    }

    fn reader(&self, is_whole: bool) -> RedoReader {
        let file: Arc<dyn File> = MemoryFile::new(FileName::Of(REDO, ID.number), self.0.clone());
        RedoReader::open(&file, ID, is_whole).unwrap().unwrap()
    }

    /// The first byte of each record's value, and how it ended.
    fn read(&self, is_whole: bool) -> Result<(Vec<u8>, Ending)> {
        let mut reader = self.reader(is_whole);
        let mut found = Vec::new();
        while let Some((_, mut changes)) = reader.next()? {
            let Some(Change::Put { value, .. }) = changes.next() else { panic!("only puts are written") };
            found.push(value[0]);
        }
        Ok((found, reader.ending()))
    }
}

/// Three records, with room behind them.
fn three() -> (Written, [usize; 3]) {
    let mut written = Written::new();
    let offsets = [1, 2, 3].map(|n| written.push(b"key", &vec![n; 10 * usize::from(n)]));
    written.0.resize(written.0.len() + 64, 0);
    (written, offsets)
}

#[test]
fn records_come_back_in_order_and_the_end_is_told_from_an_open_end() {
    let (mut written, _) = three();
    assert_eq!(written.read(false).unwrap(), (vec![1, 2, 3], Ending::Open));
    written.0.truncate(written.0.len() - 64);
    written.push_mark();
    let end = SEGMENT.end(written.0.len() as u64);
    written.push_word(end);
    for is_whole in [false, true] {
        assert_eq!(written.read(is_whole).unwrap(), (vec![1, 2, 3], Ending::Continued));
    }
    let mut reader = written.reader(true);
    let (offset, mut changes) = reader.next().unwrap().unwrap();
    assert_eq!(offset, HEADER_BYTES as u64);
    assert_eq!(changes.next(), Some(Change::Put { key: b"key", value: &[1; 10] }));
    assert_eq!(changes.next(), None);
}

/// After a kill the records behind such a record count: their writes may have returned, that of the torn
/// record has not.
#[test]
fn a_record_that_is_not_whole_is_passed_after_a_kill_and_ends_the_log_after_a_power_cut() {
    let (mut written, offsets) = three();
    let len = u64::from(written.reader(true).len_at(offsets[1]));
    written.0[offsets[1]..offsets[1] + 8].copy_from_slice(&begun(len as usize).to_le_bytes());
    assert_eq!(written.read(true).unwrap(), (vec![1, 3], Ending::Open));
    assert_eq!(written.read(false).unwrap(), (vec![1], Ending::Open));
}

/// What is not whole and was passed must not be taken for damage when the log has gone on and is synced.
#[test]
fn a_void_record_does_nothing() {
    let (mut written, offsets) = three();
    written.0[offsets[1] + 9] ^= 1;
    let mut reader = written.reader(true);
    while reader.next().unwrap().is_some() {}
    assert_eq!(reader.passed(), [offsets[1] as u64]);
    let mut bytes = written.0[offsets[1]..].to_vec();
    let record = void(SEGMENT, offsets[1] as u64, &mut bytes).unwrap().to_vec();
    written.0[offsets[1]..offsets[1] + record.len()].copy_from_slice(&record);
    written.0.truncate(written.0.len() - 64);
    written.push_mark();
    let mut reader = written.reader(false);
    let mut changes = Vec::new();
    while let Some((_, found)) = reader.next().unwrap() {
        changes.push(found.count());
    }
    assert_eq!(changes, [1, 0, 1]);
    assert!(void(SEGMENT, 64, &mut [9, 0, 0, 0, 0, 0, 0, 0, 1]).is_none());
}

#[test]
fn what_is_bad_before_a_mark_is_damage() {
    let (mut written, offsets) = three();
    written.0.truncate(written.0.len() - 64);
    written.push_mark();
    for offset in offsets {
        for at in [0, 5, 9] {
            let mut bad = Written(written.0.clone());
            bad.0[offset + at] ^= 4;
            for is_whole in [false, true] {
                let error = bad.read(is_whole).unwrap_err();
                assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupted, Some(offset as u64)));
            }
        }
    }
}

/// F-2: of another use of the file, another file, another place.
#[test]
fn what_an_earlier_use_left_does_not_pass() {
    let (written, offsets) = three();
    let mut later = written.0.clone();
    let segment = Segment { sequence: 10, ..SEGMENT };
    later[..HEADER_BYTES].copy_from_slice(&segment.header());
    assert_eq!(Written(later).read(false).unwrap(), (vec![], Ending::Open));
    let mut moved = written.0[..HEADER_BYTES].to_vec();
    moved.extend_from_slice(&written.0[offsets[1]..]);
    assert_eq!(Written(moved).read(false).unwrap(), (vec![], Ending::Open));
    let file: Arc<dyn File> = MemoryFile::new(FileName::Of(REDO, 3), written.0.clone());
    let other = FileIdentity { store_id: 6, ..ID };
    assert_eq!(RedoReader::open(&file, other, true).unwrap_err().kind(), ErrorKind::Corrupted);
}

#[test]
fn a_segment_without_a_whole_header_is_in_no_use() {
    let (written, _) = three();
    for len in 0..HEADER_BYTES {
        let file: Arc<dyn File> = MemoryFile::new(FileName::Of(REDO, 3), written.0[..len].to_vec());
        assert!(RedoReader::open(&file, ID, true).unwrap().is_none(), "{len} bytes");
    }
}

proptest! {
    /// F-3: whatever the bytes behind the header, the reader ends, and what it gives was written.
    #[test]
    fn any_damage_is_an_error_or_leaves_a_part(
        at in HEADER_BYTES..HEADER_BYTES + 150, flip in 1..=255_u8, is_whole: bool,
    ) {
        let (mut written, _) = three();
        written.0[at] ^= flip;
        if let Ok((found, _)) = written.read(is_whole) {
            prop_assert!(found.iter().all(|n| [1, 2, 3].contains(n)) && found.is_sorted());
        }
    }

    #[test]
    fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..400), is_whole: bool) {
        let mut written = Written::new();
        written.0.extend_from_slice(&bytes);
        let _ = written.read(is_whole);
    }
}

/// The first byte of each value that is salvaged, and where something is bad; and how it ended.
fn salvaged(written: &Written, synced: u64, is_whole: bool) -> (Vec<u8>, Vec<u64>, Ending) {
    let (mut reader, mut found, mut bad) = (written.reader(is_whole), Vec::new(), Vec::new());
    while let Some(record) = reader.salvage(synced) {
        match record {
            SalvagedRecord::Good(mut changes) => match changes.next() {
                Some(Change::Put { value, .. }) => found.push(value[0]),
                other => panic!("only puts are written: {other:?}"),
            },
            SalvagedRecord::Bad { offset, .. } => bad.push(offset),
        }
    }
    (found, bad, reader.ending())
}

#[test]
fn of_a_damaged_segment_each_record_that_is_whole_is_salvaged() {
    let (good, offsets) = three();
    let end = good.0.len() as u64;
    assert_eq!(salvaged(&good, 0, false), (vec![1, 2, 3], vec![], Ending::Open));
    // A bit of the length leads nowhere, or into the middle of another record; one of the body, on.
    for bit in 0..(offsets[2] - offsets[1]) * 8 {
        let mut bad = Written(good.0.clone());
        bad.0[offsets[1] + bit / 8] ^= 1 << (bit % 8);
        let is_padding = bit / 8 >= WORD_BYTES + 7 + 20;
        let (found, at, _) = salvaged(&bad, offsets[2] as u64, false);
        match is_padding {
            true => assert_eq!((found, at), (vec![1, 2, 3], vec![]), "bit {bit}"),
            false => assert_eq!((found, at), (vec![1, 3], vec![offsets[1] as u64]), "bit {bit}"),
        }
        // What was not synced may be torn by a power cut: there the log ends.
        assert_eq!(salvaged(&bad, 0, false).1, [], "bit {bit}");
    }
    let cut = Written(good.0[..offsets[2] + 12].to_vec());
    assert_eq!(salvaged(&cut, end, true), (vec![1, 2], vec![offsets[2] as u64], Ending::Open));
    let nothing = Written(good.0[..offsets[0]].to_vec());
    assert_eq!(salvaged(&nothing, end, true), (vec![], vec![offsets[0] as u64], Ending::Open));
}

#[test]
fn a_segment_is_known_by_its_records_also_without_its_header() {
    let (mut written, offsets) = three();
    written.0.truncate(offsets[2] + WORD_BYTES + 36);
    written.0.resize(written.0.len().next_multiple_of(WORD_BYTES), 0);
    let mark = written.0.len() as u64;
    written.push_mark();
    written.0[..HEADER_BYTES].fill(0xa5);
    let file: Arc<dyn File> = MemoryFile::new(FileName::Of(REDO, ID.number), written.0.clone());
    let reader = RedoReader::open_as(&file, SEGMENT, false).unwrap();
    assert!(reader.has_any());
    assert_eq!(reader.synced_to(), Some(mark));
    for other in [8, 10] {
        let other = RedoReader::open_as(&file, Segment { sequence: other, ..SEGMENT }, false).unwrap();
        assert!(!other.has_any() && other.synced_to().is_none());
    }
}
