//! Logs that are in order for a while, scanned against a map.

use std::{collections::BTreeMap, sync::Arc};

use kvilt_base::{EntryRef, ErrorKind, FileName, Kind, LargeValues, Merge, Result, Source, Version};
use kvilt_format::names::LOG;
use kvilt_io::MemoryDisk;

use super::*;
use crate::{
    bed,
    funk::{Funk, Part, PartFile, Purpose, log::ChunkLog},
    options::Options,
    parts,
    store::Store,
};

/// Of each key its newest version and value, none where it was deleted.
type Rows = BTreeMap<Vec<u8>, (Version, Option<Vec<u8>>)>;

/// A log, and what should be read from it.
struct Script {
    store: Arc<Store>,
    log: Arc<ChunkLog>,
    rows: Rows,
    version: u64,
}

impl Script {
    fn new() -> Self {
        let store = bed::open(MemoryDisk::new(1), &Options::tiny());
        let log = ChunkLog::create(&store.files, store.epoch_base);
        Script { log, rows: Rows::new(), version: store.epoch_base.to_u64(), store }
    }

    /// A put, or without a value a delete.
    fn append(&mut self, key: &str, value: Option<&[u8]>) {
        self.version += 1;
        let version = Version::from_u64(self.version);
        let (key, bytes) = (key.as_bytes(), value.unwrap_or_default());
        let kind = if value.is_some() { Kind::Put } else { Kind::Tombstone };
        let entry = EntryRef { key, version, kind, value: bytes };
        let offset = bed::append(&self.store, &self.log, entry).unwrap();
        self.log.index_record(key, offset);
        self.rows.insert(key.to_vec(), (version, value.map(<[u8]>::to_vec)));
    }

    /// Rows in the order of their keys, from number `from` to before `to`.
    fn ascend(&mut self, from: u32, to: u32) {
        for i in from..to {
            self.append(&format!("{i:06}"), Some(&i.to_le_bytes().repeat(30)));
        }
    }

    /// Holds all that can be read against the map, for many ranges and in both directions; then the same of
    /// the log as a later run finds it.
    fn check(&self) {
        self.check_log(&self.log);
        self.log.sync(&self.store.files).unwrap();
        let (number, len) = (self.log.number(), self.log.len());
        let recovered =
            Arc::new(ChunkLog::recovered(&self.store.files, (number, self.log.base()), len, None));
        assert_eq!(recovered.unordered_bytes(), len - HEADER_BYTES as u64, "nothing is known of it");
        self.check_log(&recovered);
        recovered.index(&self.store.files).unwrap();
        assert_eq!(recovered.unordered_bytes(), self.log.unordered_bytes());
        self.check_log(&recovered);
        recovered.forget(true);
        assert!(!recovered.has_index());
        recovered.all_tombstones(&self.store.files, &self.store.versions).unwrap();
        assert!(!recovered.has_index(), "what range tombstones it has is known without");
        self.check_log(&recovered);
    }

    fn check_log(&self, log: &Arc<ChunkLog>) {
        let funk = Funk { parts: Vec::new(), log: Some(Arc::clone(log)) };
        let mut bounds: Vec<String> = (0..4000).step_by(371).map(|i| format!("{i:06}")).collect();
        bounds.extend(["".into(), "000371x".into(), "9".into()]);
        for start in &bounds {
            for end in bounds.iter().map(Some).chain([None]) {
                let end = end.map(|end| end.clone().into_bytes());
                self.check_range(&funk, &KeyRange { start: start.clone().into_bytes(), end });
            }
        }
    }

    fn check_range(&self, funk: &Funk, range: &KeyRange) {
        let inside = self.rows.iter().filter(|(key, _)| range.contains(key));
        let expected: Vec<_> =
            inside.map(|(key, (version, value))| (key.clone(), *version, value.clone())).collect();
        for (direction, rows) in [Direction::Forward, Direction::Backward].into_iter().zip([None, Some(100)])
        {
            let purpose = Purpose::Scan { view: Version::NEWEST, rows, cost_bytes: None };
            let mut read = newest_of(funk.entries(range, direction, &self.store.files, purpose).unwrap());
            if direction == Direction::Backward {
                read.reverse();
            }
            assert!(read == expected, "{range:?} {direction:?}: {} rows of {}", read.len(), expected.len());
        }
    }
}

/// What a rewrite or a load reads of a log of which this chunk has a part.
fn read_for_rewrite(
    script: &Script,
    range: &KeyRange,
    share_bytes: u64,
) -> Vec<(Vec<u8>, Version, Option<Vec<u8>>)> {
    let part = Part { file: PartFile::Log(Arc::clone(&script.log)), share_bytes };
    let funk = Funk { parts: vec![part], log: None };
    let purpose = Purpose::Rewrite { log_upto: 0, streams: false };
    newest_of(funk.entries(range, Direction::Forward, &script.store.files, purpose).unwrap())
}

#[test]
fn a_rewrite_reads_its_part_of_a_log_in_order_and_no_more() {
    let mut script = Script::new();
    script.ascend(0, 3000);
    script.append("001005", Some(b"newer, and behind the ascent"));
    script.log.sync(&script.store.files).unwrap();
    let range = KeyRange::new("001000".."001100");
    for share_bytes in [script.log.len() / 30, script.log.len()] {
        let before = script.store.files.reads.bytes.sum();
        let read = read_for_rewrite(&script, &range, share_bytes);
        let expected: Vec<_> = script.rows.range(b"001000".to_vec()..b"001100".to_vec()).collect();
        assert!(read.iter().map(|row| &row.0).eq(expected.iter().map(|row| row.0)), "{} rows", read.len());
        assert!(read.iter().map(|row| (row.1, &row.2)).eq(expected.iter().map(|row| (row.1.0, &row.1.1))));
        let bytes = script.store.files.reads.bytes.sum() - before;
        assert!(bytes < script.log.len() / 15, "{bytes} of {}", script.log.len());
    }
}

#[test]
fn a_scan_that_says_how_many_rows_it_wants_reads_them_at_one_go() {
    let mut script = Script::new();
    script.ascend(0, 3000);
    script.log.sync(&script.store.files).unwrap();
    let funk = Funk { parts: Vec::new(), log: Some(Arc::clone(&script.log)) };
    let range = KeyRange::new("001000"..);
    let reads = |rows| {
        let reads = &script.store.files.reads;
        let (done, bytes) = (reads.done.sum(), reads.bytes.sum());
        let purpose = Purpose::Scan { view: Version::NEWEST, rows, cost_bytes: None };
        let mut entries = funk.entries(&range, Direction::Forward, &script.store.files, purpose).unwrap();
        (0..50).for_each(|_| entries.advance().unwrap());
        (reads.done.sum() - done, reads.bytes.sum() - bytes)
    };
    let (unknown, known) = (reads(None), reads(Some(55)));
    assert_eq!(known.0, 1);
    let wanted = 55 * script.log.len() / 3000;
    assert!(unknown.0 > 2 && known.1 < wanted * 5 / 4, "{unknown:?} {known:?} {wanted}");
    // Wrong hints cost reads and nothing else.
    assert!(reads(Some(1)).0 > 2);
    assert_eq!(reads(Some(u64::MAX)).0, reads(Some(2000)).0);
}

/// Of each key the newest entry, in the order of the merge.
fn newest_of(mut entries: Merge<'_>) -> Vec<(Vec<u8>, Version, Option<Vec<u8>>)> {
    let mut rows: Vec<(Vec<u8>, Version, Option<Vec<u8>>)> = Vec::new();
    while let Some(entry) = entries.entry() {
        let value = (entry.kind == Kind::Put).then(|| entry.value.to_vec());
        let row = (entry.key.to_vec(), entry.version, value);
        match rows.last_mut().filter(|last| last.0 == row.0) {
            Some(last) if last.1 < row.1 => *last = row,
            Some(_) => {}
            None => rows.push(row),
        }
        entries.advance().unwrap();
    }
    rows
}

#[test]
fn a_log_in_order_is_read_as_it_lies() {
    let mut script = Script::new();
    script.ascend(0, 3000);
    assert_eq!(script.log.unordered_bytes(), 0);
    let pieces = script.log.with_ascent(|ascent| ascent.pieces.len());
    assert!((600..900).contains(&pieces), "{pieces} pieces of {} bytes", script.log.len());
    script.check();
}

#[test]
fn what_comes_behind_the_order_is_newer() {
    let mut script = Script::new();
    script.ascend(0, 2000);
    let end = script.log.len();
    script.ascend(500, 600);
    script.append("000700", None);
    script.append("", Some(b"first of all"));
    script.ascend(2000, 2100);
    assert_eq!(script.log.unordered_bytes(), script.log.len() - end);
    script.check();
}

#[test]
fn a_short_ascent_is_none() {
    let mut script = Script::new();
    script.ascend(10, 14);
    script.ascend(0, 600);
    assert_eq!(script.log.unordered_bytes(), script.log.len() - HEADER_BYTES as u64);
    script.check();
}

#[test]
fn rows_that_come_a_little_late_belong_to_it() {
    let mut script = Script::new();
    for block in (0..2000).step_by(40) {
        // Two change places, one comes thirty rows late, and one is written again.
        let late = [0, 1, 2, 4, 5, 7, 6].into_iter().chain(8..34).chain([3, 20]).chain(34..40);
        for row in late {
            script.append(&format!("{:06}", block + row), Some(&[row as u8; 100]));
        }
    }
    assert_eq!(script.log.unordered_bytes(), 0);
    script.check();
}

#[test]
fn rows_that_come_too_late_or_too_often_end_it() {
    let mut script = Script::new();
    script.ascend(0, 1000);
    let end = script.log.len();
    script.append("000500", Some(b"500 rows late"));
    assert_eq!(script.log.unordered_bytes(), script.log.len() - end);
    script.check();

    let mut script = Script::new();
    script.ascend(0, 80);
    for i in 0..200 {
        script.append(if i % 2 == 0 { "a" } else { "b" }, Some(&[i; 100]));
    }
    assert!(script.log.unordered_bytes() > script.log.len() / 2);
    script.check();
}

#[test]
fn deletes_may_ascend_too() {
    let mut script = Script::new();
    for i in 0..1000 {
        script.append(&format!("{i:06}"), (i % 3 > 0).then_some(&[7; 100]));
    }
    assert_eq!(script.log.unordered_bytes(), 0);
    script.check();
}

#[test]
fn a_scan_that_has_begun_keeps_its_rows_when_the_ascent_is_given_up() {
    let mut script = Script::new();
    script.ascend(0, 10);
    let (log, store) = (Arc::clone(&script.log), Arc::clone(&script.store));
    let all = KeyRange::all();
    let mut before = AscentSource::new(
        Arc::clone(&log),
        &store.files,
        &all,
        Direction::Backward,
        log.len(),
        Wanted { rows: Some(2), large_values: LargeValues::AtOnce },
    )
    .unwrap();
    for _ in 0..10 {
        script.append("000005", Some(b"newer"));
    }
    assert_eq!(log.unordered_bytes(), log.len() - HEADER_BYTES as u64);
    let mut rows = 0;
    while before.entry().is_some() {
        rows += 1;
        before.advance().unwrap();
    }
    assert_eq!(rows, 10);
}

/// Keys of sixty kilobytes that had a prefix in common took as much memory as the store had bytes.
#[test]
fn what_long_keys_have_in_common_is_kept_once() {
    let mut script = Script::new();
    let prefix = "p".repeat(1000);
    for i in 0..150 {
        // Some come late.
        let number = if i % 16 == 7 { i - 3 } else { i * 2 };
        script.append(&format!("{prefix}{number:06}"), Some(b"x"));
    }
    let bytes = script.log.with_ascent(Ascent::keys_bytes);
    assert!(bytes < 4 << 10, "{bytes} bytes of keys in memory");
    assert_eq!(script.log.unordered_bytes(), 0);
    script.check();
    // A key that does not share it.
    script.append("q", Some(b"y"));
    script.append("r", Some(b"y"));
    script.check();
}

#[test]
fn a_log_of_keys_that_are_nearly_all_of_it_has_no_ascent() {
    let mut script = Script::new();
    for i in 0..20 {
        script.append(&format!("{i:02}{}", "p".repeat(5000)), Some(b"x"));
    }
    assert_eq!(script.log.with_ascent(Ascent::keys_bytes), 0);
    script.check();
}

/// What was written out is charged until no test beside this one sees it any more.
fn until_buffers_are_freed(script: &Script) {
    while script.store.files.budget.used(parts::LOG_BUFFERS) > 0 {
        kvilt_sync::settle();
        std::thread::yield_now();
    }
}

/// What a scan reads together was counted in pieces; a piece ends with a record, of whatever size.
#[test]
fn large_records_are_read_one_by_one() {
    let mut script = Script::new();
    for i in 0..6 {
        script.append(&format!("{i:06}"), Some(&vec![i; 2 << 20]));
    }
    script.log.sync(&script.store.files).unwrap();
    let funk = Funk { parts: Vec::new(), log: Some(Arc::clone(&script.log)) };
    until_buffers_are_freed(&script);
    let purpose = Purpose::Rewrite { log_upto: script.log.len(), streams: false };
    let all = KeyRange::all();
    let mut entries = funk.entries(&all, Direction::Forward, &script.store.files, purpose).unwrap();
    let mut rows = 0;
    while let Some(entry) = entries.entry() {
        assert_eq!(entry.value.len(), 2 << 20);
        rows += 1;
        let charged = script.store.files.budget.used(parts::LOG_BUFFERS);
        assert!((2 << 20..3 << 20).contains(&charged), "{charged} bytes are charged for what was read");
        entries.advance().unwrap();
    }
    assert_eq!(rows, 6);
    let scan = Purpose::Scan { view: Version::NEWEST, rows: None, cost_bytes: None };
    let mut back = funk.entries(&all, Direction::Backward, &script.store.files, scan).unwrap();
    (0..6).rev().for_each(|i| {
        assert_eq!(back.entry().unwrap().key, format!("{i:06}").as_bytes());
        back.advance().unwrap();
    });
}

/// Each source of a merge had a value in memory. Those that are fetched or streamed are not read before their
/// turn; what they say before is right if they are to be fetched, and else found wrong when the value is
/// copied.
#[test]
fn large_records_are_read_when_their_turn_comes() {
    let mut script = Script::new();
    let large = |i: u8| vec![i; (1 << 20) + 1 + usize::from(i)];
    // The third comes late, so it waits beside another.
    for i in [0, 1, 3, 2, 5] {
        script.append(&format!("{i:06}"), Some(&large(i)));
        script.append(&format!("{i:06}+"), Some(b"small"));
    }
    script.log.sync(&script.store.files).unwrap();
    let (files, all) = (&script.store.files, KeyRange::all());
    until_buffers_are_freed(&script);
    let charged = || files.budget.used(parts::LOG_BUFFERS);
    let source = |range: &KeyRange, direction, large_values| {
        let wanted = Wanted { rows: None, large_values };
        let log = Arc::clone(&script.log);
        AscentSource::new(log, files, range, direction, script.log.len(), wanted)
    };
    for direction in [Direction::Forward, Direction::Backward] {
        let mut fetched = source(&all, direction, LargeValues::Fetched).unwrap();
        let mut found = Rows::new();
        while let Some(key) = fetched.key().map(<[u8]>::to_vec) {
            assert_eq!(charged(), 0, "a value is in memory that nobody has fetched");
            fetched.fetch().unwrap();
            let EntryRef { version, value, .. } = fetched.entry().unwrap();
            assert!(value.len() < 100 || charged() == value.len() as u64);
            found.insert(key, (version, Some(value.to_vec())));
            fetched.advance().unwrap();
        }
        assert_eq!(found, script.rows, "{direction:?}");
    }
    let mut streamed = source(&all, Direction::Forward, LargeValues::Streamed).unwrap();
    let mut found = Rows::new();
    while let Some(EntryRef { key, version, value, .. }) = streamed.entry() {
        let mut bytes = value.to_vec();
        if let Some(value) = streamed.streamed() {
            assert!(bytes.is_empty());
            value
                .copy(&mut |piece| {
                    bytes.extend_from_slice(piece);
                    Ok(())
                })
                .unwrap();
            assert_eq!(bytes.len(), value.len());
        }
        found.insert(key.to_vec(), (version, Some(bytes)));
        streamed.advance().unwrap();
    }
    assert_eq!(found, script.rows);
    assert_eq!(charged(), 0);
}

/// What a rewrite gets of a log, each value copied from wherever it is, and how many of them were streamed.
fn rewritten(script: &Script) -> Result<(Rows, usize)> {
    script.log.sync(&script.store.files)?;
    let parts = vec![Part { file: PartFile::Log(Arc::clone(&script.log)), share_bytes: script.log.len() }];
    let funk = Funk { parts, log: None };
    let purpose = Purpose::Rewrite { log_upto: 0, streams: true };
    let mut entries = funk.entries(&KeyRange::all(), Direction::Forward, &script.store.files, purpose)?;
    let (mut found, mut streamed) = (Rows::new(), 0);
    while let Some(EntryRef { key, version, value, .. }) = entries.entry() {
        let mut bytes = value.to_vec();
        if let Some(value) = entries.streamed() {
            streamed += 1;
            value.copy(&mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })?;
        }
        found.insert(key.to_vec(), (version, Some(bytes)));
        entries.advance()?;
    }
    Ok((found, streamed))
}

/// A log without order was read as a whole where its records are small on average, with all large ones that
/// are among them.
#[test]
fn large_values_of_logs_without_order_stay_in_the_file() {
    let large = |i: u8| vec![i; (1 << 20) + 1 + usize::from(i)];
    for small_rows in [0, 100] {
        let mut script = Script::new();
        for i in (0..6).rev() {
            script.append(&format!("{i:06}"), Some(&large(i)));
            for j in (0..small_rows).rev() {
                script.append(&format!("{j:06}/{i}"), Some(b"small"));
            }
        }
        let (found, streamed) = rewritten(&script).unwrap();
        assert_eq!(found, script.rows);
        assert_eq!(streamed, 6, "{small_rows} small rows between two");
    }
}

/// The older of two large records of one key and version was dropped unread. If its key was another one
/// before it was damaged, the log was removed, that row was gone, and nothing was reported.
#[test]
fn a_rewrite_reports_a_large_record_whose_damaged_key_is_that_of_a_newer_one() {
    let key = |i: u8| format!("{i:06}");
    for (numbers, small_rows) in [([0, 1, 2, 3], 0), ([3, 2, 1, 0], 100)] {
        let mut script = Script::new();
        for j in (0..small_rows).rev() {
            script.append(&format!("{j:06}/"), Some(b"small"));
        }
        let mut offsets = Vec::new();
        for i in numbers {
            offsets.push(script.log.len());
            // Puts between two views share a version.
            script.version -= u64::from(i == numbers[2]);
            script.append(&key(i), Some(&vec![i; (1 << 20) + 1]));
        }
        let unordered_bytes = if small_rows == 0 { 0 } else { script.log.len() - HEADER_BYTES as u64 };
        assert_eq!(script.log.unordered_bytes(), unordered_bytes);
        assert!(rewritten(&script).unwrap() == (script.rows.clone(), 4));

        let (name, offset) = (FileName::Of(LOG, script.log.number()), offsets[1]);
        let file = script.store.files.open(name).unwrap();
        let mut beginning = [0; 64];
        file.read_exact_at(offset, &mut beginning).unwrap();
        let undamaged = key(numbers[1]);
        let at = beginning.windows(undamaged.len()).position(|bytes| bytes == undamaged.as_bytes()).unwrap();
        file.write_all_at(offset + at as u64, key(numbers[2]).as_bytes()).unwrap();
        let error = rewritten(&script).map(|(rows, _)| rows.len()).unwrap_err();
        assert_eq!(
            (error.kind(), error.file(), error.offset()),
            (ErrorKind::Corrupted, Some(name.to_string().as_str()), Some(offset)),
            "{error}"
        );
    }
}

/// Rows that wait are pushed again newest first. While both of two rows of one key and version stayed, the
/// next sort took the older one for the newer, and a scan showed it.
#[test]
fn of_large_records_of_one_key_and_version_the_newest_is_read() {
    let mut script = Script::new();
    let large = |i: u8| vec![i; (1 << 20) + 1 + usize::from(i)];
    script.append("000000", Some(&large(0)));
    script.append("000002", Some(&large(1)));
    script.append("000003", Some(&large(2)));
    // Late, and in place of the one before.
    script.version -= 2;
    script.append("000002", Some(&large(3)));
    script.version += 1;
    // Late, so that the rows above it wait.
    script.append("000001", Some(&large(4)));
    script.append("000004", Some(&large(5)));
    assert_eq!(script.log.unordered_bytes(), 0);
    assert!(rewritten(&script).unwrap() == (script.rows.clone(), 5));
    let files = &script.store.files;
    for direction in [Direction::Forward, Direction::Backward] {
        let wanted = Wanted { rows: None, large_values: LargeValues::Fetched };
        let (log, all) = (Arc::clone(&script.log), KeyRange::all());
        let mut source = AscentSource::new(log, files, &all, direction, script.log.len(), wanted).unwrap();
        let mut read = Vec::new();
        while source.entry().is_some() {
            source.fetch().unwrap();
            let EntryRef { key, version, value, .. } = source.entry().unwrap();
            read.push((key.to_vec(), (version, Some(value.to_vec()))));
            source.advance().unwrap();
        }
        assert_eq!(read.len(), 5, "{direction:?}");
        assert!(read.into_iter().collect::<Rows>() == script.rows, "{direction:?}");
    }
}
