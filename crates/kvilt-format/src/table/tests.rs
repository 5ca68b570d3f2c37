//! Tests of tables against a sorted vector; then with every bit flipped, every cut made, and hostile blocks.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use kvilt_base::{
    Direction, EntryRef, Error, ErrorKind, File, FileName, KeyRange, Kind, LargeValues, Result, Source,
    Version, limits,
};
use proptest::prelude::*;

use super::*;
use crate::{FileIdentity, memory::MemoryFile, names::TABLE};

const ID: FileIdentity = FileIdentity { store_id: 0xabcd, number: 3 };
const NAME: FileName = FileName::Of(TABLE, 3);

/// Key, version, value or tombstone; in the order of a table.
type Row = (Vec<u8>, u64, Option<Vec<u8>>);

fn entry(row: &Row) -> EntryRef<'_> {
    EntryRef {
        key: &row.0,
        version: Version::from_u64(row.1),
        kind: if row.2.is_some() { Kind::Put } else { Kind::Tombstone },
        value: row.2.as_deref().unwrap_or_default(),
    }
}

fn row(entry: EntryRef<'_>) -> Row {
    let value = (entry.kind == Kind::Put).then(|| entry.value.to_vec());
    (entry.key.to_vec(), entry.version.to_u64(), value)
}

fn build(rows: &[Row], options: TableOptions) -> (Arc<MemoryFile>, TableSummary) {
    let file = MemoryFile::new(NAME, Vec::new());
    let mut writer = TableWriter::new(file.clone(), ID, options);
    rows.iter().for_each(|row| writer.add(entry(row)).unwrap());
    assert_eq!(writer.entries_so_far(), rows.len() as u64);
    let bytes_so_far = writer.bytes_so_far();
    let summary = writer.finish().unwrap();
    assert_eq!(summary.len, file.len().unwrap());
    let is_plain = options.compression == Compression::None;
    assert!(!is_plain || bytes_so_far <= summary.len, "{bytes_so_far} of {}", summary.len);
    (file, summary)
}

fn open(rows: &[Row], options: TableOptions) -> Arc<Table> {
    let (file, summary) = build(rows, options);
    Arc::new(Table::open(file, ID, summary.len).unwrap())
}

fn open_bytes(bytes: Vec<u8>, len: u64) -> Result<Arc<Table>> {
    Table::open(MemoryFile::new(NAME, bytes), ID, len).map(Arc::new)
}

fn scan(table: &Arc<Table>, range: &KeyRange, direction: Direction) -> Result<Vec<Row>> {
    let mut source = table.source(range, direction)?;
    let mut out = Vec::new();
    while let Some(entry) = source.entry() {
        out.push(row(entry));
        if let Err(e) = source.advance() {
            assert!(source.entry().is_none(), "after an error a source has ended");
            return Err(e);
        }
    }
    Ok(out)
}

fn get(table: &Table, key: &[u8], at: u64) -> Result<Option<Row>> {
    let mut found = None;
    let is_found = table.get(key, Version::from_u64(at), |version, kind, value| {
        found = Some(row(EntryRef { key, version, kind, value }));
    })?;
    assert_eq!(is_found, found.is_some());
    Ok(found)
}

fn check(rows: &[Row], options: TableOptions, ranges: &[KeyRange], keys: &[Vec<u8>]) {
    let table = open(rows, options);
    for range in ranges {
        let expected: Vec<Row> = rows.iter().filter(|row| range.contains(&row.0)).cloned().collect();
        assert_eq!(scan(&table, range, Direction::Forward).unwrap(), expected, "{range:?}");
        let mut backward = scan(&table, range, Direction::Backward).unwrap();
        backward.reverse();
        assert_eq!(backward, expected, "backward {range:?}");
        check_estimate(&table, range, &expected);
    }
    for key in keys {
        for at in (0..7).chain([u64::MAX]) {
            let expected = rows.iter().find(|row| row.0 == *key && row.1 <= at);
            assert_eq!(get(&table, key, at).unwrap().as_ref(), expected, "{key:?} at {at}");
        }
    }
    assert_eq!(table.verify(&mut |_| true).unwrap(), rows.len() as u64);
    assert_eq!(table.entries(), rows.len() as u64);
    assert_eq!(table.first_key(), rows.first().map_or(b"".as_slice(), |row| &row.0));
    assert_eq!(table.last_key(), rows.last().map_or(b"".as_slice(), |row| &row.0));
    assert_eq!(table.version_max().to_u64(), rows.iter().map(|row| row.1).max().unwrap_or(0));
}

fn check_estimate(table: &Table, range: &KeyRange, expected: &[Row]) {
    assert!(table.approximate_bytes_in(range) <= table.len());
    if !expected.is_empty() {
        assert!(table.approximate_bytes_in(range) > 0);
    }
}

fn options() -> impl Strategy<Value = TableOptions> {
    (1usize..500, 1usize..20, any::<bool>(), prop_oneof![Just(0u32), Just(10)]).prop_map(
        |(block_bytes, restart_interval, is_packed, filter_bits_per_key)| TableOptions {
            block_bytes,
            restart_interval,
            compression: if is_packed { Compression::Lz4 } else { Compression::None },
            filter_bits_per_key,
        },
    )
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(0u8..3, 0..5),
        (0u8..4, 0u16..40).prop_map(|(app, n)| format!("app{app}/{n:05}").into_bytes()),
    ]
}

fn table_rows() -> impl Strategy<Value = Vec<Row>> {
    let value = prop_oneof![
        Just(None),
        prop::collection::vec(any::<u8>(), 0..30).prop_map(Some),
        (any::<u8>(), 0usize..900).prop_map(|(byte, len)| Some(vec![byte; len])),
    ];
    prop::collection::btree_map((key(), (0u64..7).prop_map(|v| 6 - v)), value, 0..120).prop_map(|map| {
        let mut rows: Vec<Row> = map.into_iter().map(|((key, version), v)| (key, version, v)).collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        rows
    })
}

proptest! {
    #[test]
    fn a_table_is_a_sorted_vector(
        rows in table_rows(),
        options in options(),
        bounds in prop::collection::vec((key(), prop::option::of(key())), 0..6),
        keys in prop::collection::vec(key(), 0..10),
    ) {
        let mut ranges = vec![KeyRange::all()];
        ranges.extend(bounds.into_iter().map(|(start, end)| KeyRange { start, end }));
        let keys: Vec<_> = keys.into_iter().chain(rows.iter().map(|row| row.0.clone())).collect();
        check(&rows, options, &ranges, &keys);
    }
}

fn numbered_rows(count: usize, value_bytes: usize) -> Vec<Row> {
    (0..count)
        .map(|i| (format!("user/{i:08}").into_bytes(), 5, Some(vec![(i % 251) as u8; value_bytes])))
        .collect()
}

#[test]
fn the_largest_keys_the_empty_key_and_large_values() {
    let longest = |byte: u8| [vec![b'k'; limits::ENGINE_KEY_BYTES_MAX - 1], vec![byte]].concat();
    let mut rows: Vec<Row> = vec![
        (vec![], 9, Some(vec![])),
        (vec![], 2, None),
        (b"a".to_vec(), 5, Some(vec![3; 1 << 20])),
        (b"b".to_vec(), 5, Some(b"small".to_vec())),
        (b"c".to_vec(), u64::MAX, Some(vec![4; 5000])),
        (b"c".to_vec(), 0, Some(vec![5; 5000])),
    ];
    rows.extend((0..40).map(|i| (longest(i), 1, Some(vec![i]))));
    let ranges = [
        KeyRange::all(),
        KeyRange::new(b"a".to_vec()..b"c".to_vec()),
        KeyRange::new(longest(7)..longest(20)),
    ];
    let keys: Vec<_> = rows.iter().map(|row| row.0.clone()).collect();
    for compression in [Compression::None, Compression::Lz4] {
        check(&rows, TableOptions { compression, ..TableOptions::default() }, &ranges, &keys);
    }
}

#[test]
fn an_empty_table_holds_nothing() {
    check(&[], TableOptions::default(), &[KeyRange::all(), KeyRange::prefix(b"x")], &[b"x".to_vec()]);
}

#[test]
fn many_versions_of_one_key_span_blocks_and_each_is_found_in_one() {
    let rows: Vec<Row> = (0..2000u64)
        .rev()
        .map(|v| (b"hot".to_vec(), v, Some(vec![v as u8; 20])))
        .chain([(b"i".to_vec(), 1, None)])
        .collect();
    let (file, summary) = build(&rows, TableOptions::default());
    let table = Table::open(file.clone(), ID, summary.len).unwrap();
    let before = file.reads.load(SeqCst);
    for at in (0..2100).step_by(7) {
        assert_eq!(get(&table, b"hot", at).unwrap().unwrap().1, at.min(1999));
    }
    assert_eq!(file.reads.load(SeqCst) - before, 300, "one read each");
    assert_eq!(table.verify(&mut |_| true).unwrap(), 2001);
}

#[test]
fn a_long_scan_reads_in_large_pieces_and_a_short_one_reads_little() {
    let rows = numbered_rows(40_000, 100);
    let (file, summary) = build(&rows, TableOptions::default());
    let table = Arc::new(Table::open(file.clone(), ID, summary.len).unwrap());
    for direction in [Direction::Forward, Direction::Backward] {
        let before = file.reads.load(SeqCst);
        assert_eq!(scan(&table, &KeyRange::all(), direction).unwrap().len(), rows.len());
        let reads = file.reads.load(SeqCst) - before;
        assert!(reads < summary.len / (200 << 10) + 10, "{reads} reads for {} bytes", summary.len);
        let before = file.reads.load(SeqCst);
        let few = KeyRange::new(b"user/00020000".as_slice()..b"user/00020010".as_slice());
        assert_eq!(scan(&table, &few, direction).unwrap().len(), 10);
        assert_eq!(file.reads.load(SeqCst) - before, 1);
    }
    let absent = (0..1000).filter(|i| {
        let before = file.reads.load(SeqCst);
        assert_eq!(get(&table, format!("user/{i:08}x").as_bytes(), 9).unwrap(), None);
        file.reads.load(SeqCst) != before
    });
    assert!(absent.count() < 30, "the filter spares the reads");
    assert!(table.memory_bytes() < 40_000 * 5, "{}", table.memory_bytes());
}

#[test]
fn half_of_the_rows_take_half_of_the_bytes() {
    let rows = numbered_rows(10_000, 100);
    let table = open(&rows, TableOptions::default());
    let half = KeyRange::new(b"user/00002500".as_slice()..b"user/00007500".as_slice());
    let share = table.approximate_bytes_in(&half) as f64 / table.len() as f64;
    assert!((0.48..0.52).contains(&share), "{share}");
}

#[test]
fn lz4_makes_a_table_of_repetitions_smaller() {
    let rows = numbered_rows(2_000, 200);
    let plain = build(&rows, TableOptions::default()).1.len;
    let packed =
        build(&rows, TableOptions { compression: Compression::Lz4, ..TableOptions::default() }).1.len;
    assert!(packed * 3 < plain, "{packed} of {plain}");
}

#[test]
#[should_panic(expected = "F-6")]
fn entries_out_of_order_are_a_bug_of_the_caller() {
    build(&[(b"a".to_vec(), 5, None), (b"a".to_vec(), 5, None)], TableOptions::default());
}

#[test]
fn a_failed_read_is_an_io_error_then_the_end_and_may_be_retried() {
    #[derive(Debug)]
    struct Failing(Arc<MemoryFile>, std::ops::Range<u64>, std::sync::atomic::AtomicBool);
    impl File for Failing {
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
            let touches = offset < self.1.end && offset + buffer.len() as u64 > self.1.start;
            if touches && self.2.load(SeqCst) {
                return Err(std::io::Error::other("bad sector"));
            }
            self.0.read_at(offset, buffer)
        }
        fn write_at(&self, _: u64, _: &[u8]) -> std::io::Result<usize> {
            unreachable!("tables are not written twice")
        }
        fn sync(&self) -> std::io::Result<()> {
            Ok(())
        }
        fn len(&self) -> std::io::Result<u64> {
            self.0.len()
        }
        fn map(&self, _offset: u64, _len: usize) -> std::io::Result<Arc<kvilt_base::Mapping>> {
            Err(std::io::ErrorKind::Unsupported.into())
        }

        fn changed_ns(&self) -> std::io::Result<u64> {
            Err(std::io::ErrorKind::Unsupported.into())
        }

        fn name(&self) -> FileName {
            NAME
        }
    }
    let rows = numbered_rows(2_000, 100);
    let (file, summary) = build(&rows, TableOptions::default());
    let failing = Arc::new(Failing(file, 100_000..100_001, true.into()));
    let table = Arc::new(Table::open(failing.clone(), ID, summary.len).unwrap());
    let e = scan(&table, &KeyRange::all(), Direction::Forward).unwrap_err();
    assert_eq!((e.kind(), e.file()), (ErrorKind::Io, Some("0000000000000003.table")));
    assert!(e.offset().is_some());
    assert_eq!(get(&table, b"user/00000000", 9).unwrap().unwrap(), rows[0], "other blocks stay readable");
    failing.2.store(false, SeqCst);
    assert_eq!(scan(&table, &KeyRange::all(), Direction::Forward).unwrap(), rows);
}

/// Everything a reader may ask of a hurt table: right, or `Corrupted`; returns whether anything was refused.
fn interrogate(bytes: Vec<u8>, len: u64, rows: &[Row]) -> bool {
    let is_corrupted = |e: Error| {
        assert_eq!(e.kind(), ErrorKind::Corrupted, "{e}");
        assert_eq!(e.file(), Some("0000000000000003.table"));
        assert!(e.offset().is_some());
    };
    let table = match open_bytes(bytes, len) {
        Ok(table) => table,
        Err(e) => {
            is_corrupted(e);
            return true;
        }
    };
    let mut is_refused = table.has_damaged_filter();
    for direction in [Direction::Forward, Direction::Backward] {
        match scan(&table, &KeyRange::all(), direction) {
            Ok(mut scanned) => {
                if direction == Direction::Backward {
                    scanned.reverse();
                }
                assert_eq!(scanned, rows);
            }
            Err(e) => {
                is_corrupted(e);
                is_refused = true;
            }
        }
    }
    for row in rows {
        match get(&table, &row.0, row.1) {
            Ok(found) => assert_eq!(found.as_ref(), Some(row)),
            Err(e) => is_corrupted(e),
        }
    }
    match table.verify(&mut |_| true) {
        Ok(entries) => assert_eq!(entries, rows.len() as u64),
        Err(e) => {
            is_corrupted(e);
            is_refused = true;
        }
    }
    is_refused
}

fn small_table(compression: Compression) -> (Vec<u8>, Vec<Row>) {
    let mut rows = numbered_rows(12, 20);
    rows.push((b"v".to_vec(), 9, Some(vec![1; 120])));
    rows.push((b"v".to_vec(), 4, None));
    let options =
        TableOptions { block_bytes: 100, restart_interval: 3, compression, ..TableOptions::default() };
    (build(&rows, options).0.to_vec(), rows)
}

/// F-2: no bit of a table is without a checksum.
#[test]
fn every_flipped_bit_is_found_and_gives_no_wrong_answer() {
    for compression in [Compression::None, Compression::Lz4] {
        let (good, rows) = small_table(compression);
        assert!(!interrogate(good.clone(), good.len() as u64, &rows));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(interrogate(bad, good.len() as u64, &rows), "bit {bit} goes unnoticed");
        }
    }
}

#[test]
fn every_truncation_and_every_wrong_length_is_corruption() {
    let (good, rows) = small_table(Compression::None);
    for cut in 0..good.len() {
        assert!(interrogate(good[..cut].to_vec(), good.len() as u64, &rows), "cut {cut}");
        assert!(interrogate(good[..cut].to_vec(), cut as u64, &rows), "cut {cut}, and its length believed");
    }
    let longer = [good.as_slice(), &[0; 10]].concat();
    assert!(!interrogate(longer, good.len() as u64, &rows), "bytes behind the length do not count");
}

/// F-2: well-formed bytes of another file, or of another place in this one, are damage.
#[test]
fn swapped_tables_and_swapped_blocks_are_found() {
    let (good, rows) = small_table(Compression::None);
    for id in [FileIdentity { number: 4, ..ID }, FileIdentity { store_id: 1, ..ID }] {
        let e = Table::open(MemoryFile::new(NAME, good.clone()), id, good.len() as u64).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corrupted);
    }
    let table = open_bytes(good.clone(), good.len() as u64).unwrap();
    let offset = |block| table.index().offset(block) as usize;
    let len = table.index().stored_len(0);
    assert_eq!(
        len,
        table.index().stored_len(1),
        "blocks of one size, so that only their place tells them apart"
    );
    let mut bad = good.clone();
    bad.copy_within(offset(1)..offset(1) + len, offset(0));
    assert!(interrogate(bad, good.len() as u64, &rows));
}

/// F-5: without its filter a table answers as before.
#[test]
fn a_damaged_filter_is_left_out() {
    let rows = numbered_rows(500, 10);
    let (file, summary) = build(&rows, TableOptions::default());
    let mut bytes = file.to_vec();
    let table = open_bytes(bytes.clone(), summary.len).unwrap();
    let filter_offset = table.index().offset(table.index().len()) as usize;
    bytes[filter_offset + 7] ^= 0xff;
    let table = open_bytes(bytes, summary.len).unwrap();
    assert!(table.has_damaged_filter());
    for row in &rows {
        assert_eq!(get(&table, &row.0, 9).unwrap().as_ref(), Some(row));
    }
}

/// A large value goes to the file without a stop between; the file is the same as if it had been copied.
#[test]
fn a_large_value_has_a_block_like_any_other() {
    let row = |i: u64, len: usize| (format!("k{i}").into_bytes(), i, Some(vec![i as u8; len]));
    let rows: Vec<Row> =
        [10, 300 << 10, 20, 1 << 20, 2 << 20, 30].into_iter().zip(1..).map(|(len, i)| row(i, len)).collect();
    let (file, summary) = build(&rows, TableOptions::default());
    let table = open_bytes(file.to_vec(), summary.len).unwrap();
    for row in &rows {
        assert_eq!(get(&table, &row.0, 9).unwrap().as_ref(), Some(row));
    }
    let block_of = |row: &Row| {
        let mut block = block::BlockWriter::new(16);
        block.add(entry(row));
        let mut stored = Vec::new();
        let offset = table.index().offset(table.index().find(&row.0, Version::NEWEST));
        stored::push(&mut stored, block.finish(), false, ID, offset);
        (offset as usize, stored)
    };
    for large in [1, 3, 4] {
        let (offset, stored) = block_of(&rows[large]);
        assert!(file.to_vec()[offset..].starts_with(&stored), "row {large}");
    }
}

/// A table with right checksums around blocks that somebody made up.
fn hostile_table(blocks: &[Vec<u8>], separators: &[(Vec<u8>, u64)], filter: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = crate::header::encode(crate::header::TABLE_MAGIC, ID, 0).to_vec();
    let mut index = index::IndexWriter::default();
    for (block, (key, version)) in blocks.iter().zip(separators) {
        let offset = bytes.len();
        stored::push(&mut bytes, block, false, ID, offset as u64);
        index.add(key, Version::from_u64(*version), bytes.len() - offset);
    }
    let filter_offset = bytes.len() as u64;
    if let Some(filter) = filter {
        stored::push(&mut bytes, filter, false, ID, filter_offset);
    }
    let index_offset = bytes.len() as u64;
    stored::push(&mut bytes, &index.encode(b"", b""), false, ID, index_offset);
    let offset = bytes.len() as u64;
    let footer = footer::Footer {
        filter_offset,
        filter_len: index_offset - filter_offset,
        index_offset,
        index_len: offset - index_offset,
        entries: 3,
        version_max: Version::ZERO,
        payload_bytes: 0,
    };
    bytes.extend_from_slice(&footer::encode(&footer, ID, offset));
    bytes
}

fn hostile_block() -> impl Strategy<Value = Vec<u8>> {
    let plain = |rows: Vec<Row>| {
        let mut writer = block::BlockWriter::new(2);
        rows.iter().for_each(|row| writer.add(entry(row)));
        writer.finish().to_vec()
    };
    let hurt = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        (table_rows().prop_filter("a block has entries", |rows| !rows.is_empty()), hurt).prop_map(
            move |(mut rows, hurt)| {
                rows.truncate(6);
                let mut bytes = plain(rows);
                hurt.into_iter().for_each(|(place, byte)| {
                    let place = place.index(bytes.len());
                    bytes[place] = byte;
                });
                bytes
            }
        ),
    ]
}

proptest! {
    /// F-3: a right checksum is no reason to trust what it covers.
    #[test]
    fn hostile_blocks_with_right_checksums_neither_panic_nor_hang(
        blocks in prop::collection::vec(hostile_block(), 0..4),
        mut separators in prop::collection::vec((key(), 0u64..5), 4),
        is_sorted in any::<bool>(),
        filter in prop::option::of(prop::collection::vec(any::<u8>(), 0..70)),
        range in (key(), prop::option::of(key())),
    ) {
        if is_sorted {
            separators.sort();
        } else {
            // Then no two share anything, as far as the index can tell.
            separators[0].0.clear();
        }
        let bytes = hostile_table(&blocks, &separators, filter.as_deref());
        let len = bytes.len() as u64;
        let Ok(table) = open_bytes(bytes, len) else { return Ok(()) };
        let range = KeyRange { start: range.0, end: range.1 };
        for range in [KeyRange::all(), range] {
            let _ = scan(&table, &range, Direction::Forward);
            let _ = scan(&table, &range, Direction::Backward);
            prop_assert!(table.approximate_bytes_in(&range) <= len);
        }
        for (key, at) in &separators {
            let _ = get(&table, key, *at);
        }
        let _ = table.verify(&mut |_| true);
    }

    #[test]
    fn arbitrary_bytes_are_no_table(mut bytes in prop::collection::vec(any::<u8>(), 0..400), fix in any::<bool>()) {
        if fix && bytes.len() >= 64 {
            bytes[..64].copy_from_slice(&crate::header::encode(crate::header::TABLE_MAGIC, ID, 0));
        }
        let len = bytes.len() as u64;
        prop_assert_eq!(open_bytes(bytes, len).unwrap_err().kind(), ErrorKind::Corrupted);
    }
}

#[test]
fn tables_and_their_sources_go_where_threads_go() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Table>();
    is_shared::<TableSource>();
    is_shared::<TableWriter>();
}

/// The separators of blocks of long keys, each nearly a whole key, took as much memory while a table was
/// written as all its blocks.
#[test]
fn separators_of_long_keys_are_held_without_what_they_share() {
    let key = |i: u16| [vec![b'p'; 60 << 10], i.to_be_bytes().to_vec()].concat();
    let rows: Vec<Row> = (0..200).map(|i| (key(i), 1, Some(vec![i as u8]))).collect();
    let mut writer = TableWriter::new(MemoryFile::new(NAME, Vec::new()), ID, TableOptions::default());
    for row in &rows {
        writer.add(entry(row)).unwrap();
        assert!(writer.memory_bytes() < 1 << 20, "{} bytes", writer.memory_bytes());
    }
    let table = open(&rows, TableOptions::default());
    assert_eq!(scan(&table, &KeyRange::all(), Direction::Forward).unwrap(), rows);
}

/// All entries of a source that streams, each with its value; and how many of them were streamed.
fn drain_streaming(table: &Arc<Table>, range: &KeyRange) -> Result<(Vec<Row>, usize)> {
    let mut source = table.source_with(range, Direction::Forward, LargeValues::Streamed)?;
    let (mut rows, mut streamed) = (Vec::new(), 0);
    while let Some(entry) = source.entry() {
        let mut row = row(entry);
        if let Some(value) = source.streamed() {
            let mut bytes = Vec::new();
            value.copy(&mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })?;
            assert_eq!(bytes.len(), value.len());
            row.2 = Some(bytes);
            streamed += 1;
        }
        rows.push(row);
        source.advance()?;
    }
    Ok((rows, streamed))
}

/// Small values, and large ones between them.
fn rows_with_large_values() -> Vec<Row> {
    let large = limits::STREAMED_BYTES_MIN + 100;
    let lens = [large, 10, large, large, 20, 30, large];
    let row = |(len, i): (usize, u64)| (format!("k{i}").into_bytes(), i, Some(vec![i as u8; len]));
    lens.into_iter().zip(1..).map(row).collect()
}

/// A merge of tables and logs with values of 64 MiB had one of each in memory, and wrote it from there.
#[test]
fn large_values_go_from_table_to_table_without_lying_in_memory() {
    let rows = rows_with_large_values();
    let options = TableOptions::default();
    let table = open(&rows, options);
    let middle = KeyRange { start: b"k2".to_vec(), end: Some(b"k4".to_vec()) };
    assert_eq!(drain_streaming(&table, &KeyRange::all()).unwrap(), (rows.clone(), 4));
    assert_eq!(drain_streaming(&table, &middle).unwrap(), (rows[1..3].to_vec(), 1));
    let (expected, _) = build(&rows, options);
    let copy = MemoryFile::new(NAME, Vec::new());
    let mut writer = TableWriter::new(copy.clone(), ID, options);
    let mut source = table.source_with(&KeyRange::all(), Direction::Forward, LargeValues::Streamed).unwrap();
    while let Some(entry) = source.entry() {
        match source.streamed() {
            Some(value) => writer.add_streamed(entry, value).unwrap(),
            None => writer.add(entry).unwrap(),
        }
        assert!(writer.memory_bytes() < limits::STREAMED_BYTES_MIN);
        source.advance().unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(copy.to_vec(), expected.to_vec());
    // Packed blocks are unpacked in memory.
    let packed = open(&rows, TableOptions { compression: Compression::Lz4, ..options });
    assert_eq!(drain_streaming(&packed, &KeyRange::all()).unwrap(), (rows, 0));
}

/// Where values are fetched, nothing is believed before it is verified: each entry is right, or the source
/// ends.
#[test]
fn large_values_are_fetched_one_by_one() {
    let rows = rows_with_large_values();
    let table = open(&rows, TableOptions::default());
    let mut source = table.source_with(&KeyRange::all(), Direction::Forward, LargeValues::Fetched).unwrap();
    for expected in &rows {
        assert_eq!(source.key(), Some(expected.0.as_slice()));
        assert_eq!(source.version(), Some(Version::from_u64(expected.1)));
        source.fetch().unwrap();
        assert_eq!(&row(source.entry().unwrap()), expected);
        source.advance().unwrap();
    }
    assert_eq!(source.key(), None);
}

/// The key by which a merge sorts is not verified when it is read; no merge ends well with a wrong one.
#[test]
fn a_damaged_large_block_is_found_before_it_counts() {
    let rows = rows_with_large_values();
    let (file, summary) = build(&rows, TableOptions::default());
    let whole = open_bytes(file.to_vec(), summary.len).unwrap();
    // That of the third row, and its end.
    let begin = whole.index().offset(2) as usize;
    let end = whole.index().offset(3) as usize;
    for at in (begin..begin + 20).chain([begin + (300 << 10)]).chain(end - 14..end) {
        let mut bytes = file.to_vec();
        bytes[at] ^= 0x81;
        let table = open_bytes(bytes, summary.len).unwrap();
        let streamed = drain_streaming(&table, &KeyRange::all());
        assert_eq!(streamed.unwrap_err().kind(), ErrorKind::Corrupted, "byte {at}");
        let fetched = || {
            let all = KeyRange::all();
            let mut source = table.source_with(&all, Direction::Forward, LargeValues::Fetched)?;
            let mut found = 0;
            while source.key().is_some() {
                assert_eq!(source.key(), Some(rows[found].0.as_slice()), "byte {at}");
                found += 1;
                source.fetch()?;
                source.advance()?;
            }
            Ok::<(), Error>(())
        };
        assert_eq!(fetched().unwrap_err().kind(), ErrorKind::Corrupted, "byte {at}");
    }
}

/// What counts of dead bytes ask: long rows are known by their blocks, and their values are not read.
#[test]
fn rows_are_measured_without_reading_long_ones() {
    let options = TableOptions { block_bytes: 256, ..TableOptions::default() };
    let mut rows: Vec<Row> =
        (0..400).map(|i| (format!("k{i:03}").into_bytes(), 9, Some(vec![1; 20]))).collect();
    rows.insert(201, (b"k200x".to_vec(), 9, Some(vec![2; 100_000])));
    let (file, summary) = build(&rows, options);
    let table = Table::open(file.clone(), ID, summary.len).unwrap();
    let reads = || file.reads.load(SeqCst);
    let before = reads();
    assert!((100_000..100_100).contains(&table.newest_bytes(b"k200x").unwrap()));
    assert!((80_000..100_000).contains(&table.weighted_row_bytes(256)), "nearly all bytes are of one row");
    assert_eq!(reads(), before);
    assert_eq!(table.newest_bytes(b"k200").unwrap(), 24);
    assert_eq!(table.newest_bytes(b"nobody put this").unwrap(), 0);
    let bytes_in = |start: &[u8], end: &[u8]| {
        table.approximate_bytes_in(&KeyRange { start: start.to_vec(), end: Some(end.to_vec()) })
    };
    assert!((100_000..101_000).contains(&bytes_in(b"k200x", b"k200y")), "a range of the long row alone");
    assert!(bytes_in(b"k150", b"k200x") < 3_000, "a range up to it");
    assert!((100_000..103_000).contains(&bytes_in(b"k200x", b"k250")), "a range from it on");
    assert_eq!(table.sampled_newest_permille(8).unwrap(), 1000);
    let alike: Vec<Row> = rows.iter().filter(|row| row.0.len() == 4).cloned().collect();
    assert!((24..40).contains(&open(&alike, options).weighted_row_bytes(256)));
    let versions = |key: &Row| [9, 5, 4, 2].map(|version| (key.0.clone(), version, Some(vec![1; 20])));
    let table = open(&alike.iter().flat_map(versions).collect::<Vec<_>>(), options);
    let permille = table.sampled_newest_permille(64).unwrap();
    assert!((200..=330).contains(&permille), "{permille} thousandths of four versions");
    let large = |version| (b"k200".to_vec(), version, Some(vec![2; 100_000]));
    let permille =
        open(&[large(9), large(7), large(5), large(3)], options).sampled_newest_permille(8).unwrap();
    assert_eq!(permille, 250, "of four versions of a large row, one is the newest");
    assert_eq!(open(&[], options).sampled_newest_permille(8).unwrap(), 0);
}

/// Places at equal distances met only newest entries where each row has a block of its own and all keys have
/// as many versions: half of such a table was dead, and was taken for live.
#[test]
fn samples_of_a_table_do_not_follow_its_pattern() {
    let options = TableOptions { block_bytes: 256, ..TableOptions::default() };
    for versions in [2, 3, 4, 8] {
        let versions_of = |key: u64| (1..=versions).rev().map(move |version| (key, version));
        let row =
            |(key, version): (u64, u64)| (format!("k{key:03}").into_bytes(), version, Some(vec![1; 400]));
        let table = open(&(0..240).flat_map(versions_of).map(row).collect::<Vec<_>>(), options);
        let permille = table.sampled_newest_permille(64).unwrap();
        let right = 1000 / versions;
        assert!((right - 80..=right + 80).contains(&permille), "{permille} of {versions} versions");
    }
}
