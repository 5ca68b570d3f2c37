//! The worked examples of `docs/format/`: the bytes in each document are the bytes that the code writes.
//!
//! Where it stands: tests only. A document's example is the lines of its block marked `hex`: an offset, two
//! spaces, bytes, two spaces, a remark; `00 × 500` are 500 zeros. Always true: if a format changes, one of
//! these tests fails and prints what the document must say.

use std::sync::Arc;

use kvilt_base::{EntryRef, FileName, Kind, Level, Version, disk::Habitat};

use crate::{
    FileIdentity, commit, log, manifest,
    memory::MemoryDisk,
    memory::MemoryFile,
    names::{COMMIT, LOG, MANIFEST, REDO, TABLE},
    redo, slab, table,
};

const STORE: u64 = 0x1122_3344_5566_7788;

/// The bytes of a document's example; panics if an offset in it is not where its bytes are.
fn example(document: &str) -> Vec<u8> {
    let (_, rest) = document.split_once("```hex\n").expect("the document has an example");
    let (block, _) = rest.split_once("```").expect("the example ends");
    let mut bytes = Vec::new();
    for line in block.lines() {
        let mut parts = line.split("  ");
        let offset = usize::from_str_radix(parts.next().unwrap(), 16).unwrap();
        assert_eq!(offset, bytes.len(), "the offset of \"{line}\"");
        let of_line = parts.next().unwrap();
        if let Some(("00", count)) = of_line.split_once(" × ") {
            bytes.resize(bytes.len() + count.parse::<usize>().unwrap(), 0);
            continue;
        }
        for byte in of_line.split_whitespace() {
            bytes.push(u8::from_str_radix(byte, 16).unwrap());
        }
    }
    bytes
}

fn check(document: &str, written: &[u8]) {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
    let documented = example(document);
    assert_eq!(hex(&documented), hex(written), "left: documented, right: written");
}

fn entry<'a>(key: &'a [u8], count: u64, value: Option<&'a [u8]>) -> EntryRef<'a> {
    let kind = if value.is_some() { Kind::Put } else { Kind::Tombstone };
    EntryRef { key, version: Version::new(1, count), kind, value: value.unwrap_or_default() }
}

#[test]
fn log_md_shows_what_is_written() {
    let id = FileIdentity { store_id: STORE, number: 0x2a };
    let base = Version::new(1, 0);
    let mut bytes = log::encode_header(id, base).to_vec();
    log::encode_record(&mut bytes, id, 64, base, entry(b"apple", 7, Some(b"red")), 0);
    log::encode_record(&mut bytes, id, 80, base, entry(b"fig", 300, None), 0x83);
    let mut outlines = log::Outlines::new(base);
    outlines.push_records(&bytes[64..]);
    bytes.extend_from_slice(&outlines.summary(id, 94, std::iter::empty()));
    check(include_str!("../../../docs/format/log.md"), &bytes);

    let file = MemoryFile::new(FileName::Of(LOG, 0x2a), bytes.clone());
    let mut reader = log::LogReader::open(file, id, bytes.len() as u64).unwrap();
    assert_eq!(reader.next().unwrap(), Some((64, entry(b"apple", 7, Some(b"red")), 0)));
    assert_eq!(reader.next().unwrap(), Some((80, entry(b"fig", 300, None), 0x83)));
    assert_eq!(reader.next().unwrap(), None);
}

#[test]
fn commit_md_shows_what_is_written() {
    use commit::Change;
    let id = FileIdentity { store_id: STORE, number: 0x2d };
    let first = [Change::Put { key: b"apple", value: b"red" }, Change::Delete { key: b"fig" }];
    let second = [
        Change::DeleteRange { start: b"a", end: Some(b"b") },
        Change::DeleteRange { start: b"x", end: None },
    ];
    let mut bytes = commit::encode_header(id, 5).to_vec();
    let push_mark = |bytes: &mut Vec<u8>| {
        let mark = commit::encode_mark(id, bytes.len() as u64);
        bytes.extend_from_slice(&mark);
    };
    push_mark(&mut bytes);
    commit::encode_record(&mut bytes, id, 76, first);
    push_mark(&mut bytes);
    commit::encode_record(&mut bytes, id, 117, second);
    check(include_str!("../../../docs/format/commit.md"), &bytes);

    let file = MemoryFile::new(FileName::Of(COMMIT, 0x2d), bytes);
    let mut reader = commit::CommitReader::open(file, id).unwrap();
    assert_eq!(reader.batches_before(), Some(5));
    assert!(reader.next().unwrap().unwrap().1.eq(first));
    assert!(reader.next().unwrap().unwrap().1.eq(second));
    assert!(reader.next().unwrap().is_none() && !reader.is_torn());
}

#[test]
fn table_md_shows_what_is_written() {
    let id = FileIdentity { store_id: STORE, number: 0x2b };
    let file = MemoryFile::new(FileName::Of(TABLE, 0x2b), Vec::new());
    let options = table::TableOptions { restart_interval: 2, ..table::TableOptions::default() };
    let mut writer = table::TableWriter::new(file.clone(), id, options);
    let entries =
        [entry(b"apple", 7, Some(b"red")), entry(b"apple", 3, Some(b"green")), entry(b"apricot", 5, None)];
    entries.iter().for_each(|entry| writer.add(*entry).unwrap());
    let len = writer.finish().unwrap().len;
    check(include_str!("../../../docs/format/table.md"), &file.to_vec());

    let table = Arc::new(table::Table::open(file, id, len).unwrap());
    assert_eq!(table.verify(&mut |_| true).unwrap(), 3);
    let is_found = table.get(b"apple", Version::new(1, 6), |version, kind, value| {
        assert_eq!((version, kind, value), (Version::new(1, 3), Kind::Put, b"green".as_slice()));
    });
    assert!(is_found.unwrap());
}

#[test]
fn manifest_md_shows_what_is_written() {
    use manifest::{Edit, FileRecord, ManifestWriter, PartKind, Root, read_manifest};
    let disk = MemoryDisk::default();
    let mut root = Root::new(STORE);
    let mut writer = ManifestWriter::create(&disk, &root).unwrap();
    let edit = Edit {
        next_file: Some(0x2c),
        checkpoint: Some(Version::new(1, 300)),
        files_upserted: vec![
            (0x2a, FileRecord { kind: PartKind::Log, len: 119, base: Version::new(1, 0), summary: Some(94) }),
            (0x2b, FileRecord::table(318)),
        ],
        chunks_upserted: vec![(b"".to_vec(), vec![0x2b, 0x2a])],
        ..Edit::default()
    };
    root.apply(&edit).unwrap();
    writer.append(&edit).unwrap();
    let bytes = disk.bytes(FileName::Of(MANIFEST, 1));
    check(include_str!("../../../docs/format/manifest.md"), &bytes);

    disk.place(FileName::Of(MANIFEST, 1), bytes.clone());
    assert_eq!(read_manifest(&disk).unwrap(), Some((root, 1, bytes.len() as u64)));
    assert_eq!(disk.bytes(FileName::Of(MANIFEST, 1)).len() as u64, writer.len());
}

#[test]
fn slab_md_shows_what_is_written() {
    use slab::{Class, Content, Decoded, Item};
    let class = Class::new(2).unwrap();
    let id = FileIdentity { store_id: STORE, number: slab::slab_name(3, class).number() };
    let item = |count, content| Item { version: Version::new(1, count), batch_len: 1, content };
    let items = [
        (0, item(7, Content::Value { key: b"apple", value: b"red" })),
        (2, Item { batch_len: 2, ..item(9, Content::Value { key: b"fig", value: b"" }) }),
        (51, item(10, Content::RangeDelete { start: b"a", end: Some(b"b") })),
    ];
    let mut bytes = slab::encode_slab_header(id).to_vec();
    bytes.resize(class.block_offset(2) as usize, 0);
    for (slot, item) in items {
        let place = class.slot_offset(slot);
        item.encode_into(&mut bytes[place as usize..], id, place);
    }
    check(include_str!("../../../docs/format/slab.md"), &bytes);

    slab::check_slab_header(&bytes, id).unwrap();
    for slot in 0..102 {
        let place = class.slot_offset(slot);
        let found = Item::decode(&bytes[place as usize..][..class.slot_bytes()], id, place);
        let written = items.iter().find(|(of, _)| *of == slot);
        assert_eq!(found, written.map_or(Decoded::Empty, |(_, item)| Decoded::Item(*item)));
    }
}

#[test]
fn slab_md_shows_a_tombstone() {
    use slab::{Class, Content, Item, TOMBSTONE_BYTES};
    let id = FileIdentity { store_id: STORE, number: 0x300 };
    let place = Class::TOMBSTONES.slot_offset(1);
    let content = Content::Tombstone { place: 0x0200_0000_0000_0000 };
    let item = Item { version: Version::new(1, 11), batch_len: 1, content };
    let mut bytes = [0; TOMBSTONE_BYTES];
    item.encode_into(&mut bytes, id, place);
    let (_, second) = include_str!("../../../docs/format/slab.md").split_once("## A tombstone").unwrap();
    check(second, &bytes);
}

#[test]
fn occupancy_map_md_shows_what_is_written() {
    use slab::{Class, DecodedPage, MAP_BITS_BYTES, MapPage, PAGE_BYTES};
    let id = FileIdentity { store_id: STORE, number: 3 };
    let mut bytes = slab::encode_map_header(id).to_vec();
    let mut bits = [0; MAP_BITS_BYTES];
    let mut push = |cut, copy, bits: &[u8; MAP_BITS_BYTES]| {
        let mut page = [0; PAGE_BYTES];
        assert_eq!(bytes.len() as u64, slab::map_page_offset(0, copy));
        let class = Class::new(2).unwrap();
        MapPage { class, first_slot: 0, cut, bits }.encode_into(&mut page, id, bytes.len() as u64);
        bytes.extend_from_slice(&page);
    };
    bits[0] = 0b101;
    push(1 << 40 | 4, 0, &bits);
    (bits[0], bits[6]) = (0, 0b1000);
    push(1 << 40 | 5, 1, &bits);
    check(include_str!("../../../docs/format/occupancy-map.md"), &bytes);

    slab::check_map_header(&bytes, id).unwrap();
    let page = |copy| {
        let offset = slab::map_page_offset(0, copy);
        let bytes = bytes[offset as usize..].first_chunk().unwrap();
        MapPage::decode(bytes, id, offset)
    };
    let pair = [page(0), page(1)];
    assert_eq!(slab::newest_of_pair([&pair[0], &pair[1]], 1 << 40 | 4), Some(0));
    assert_eq!(slab::newest_of_pair([&pair[0], &pair[1]], 1 << 40 | 5), Some(1));
    let DecodedPage::Page(newest) = pair[1] else { panic!("it is good") };
    assert!(newest.is_set(51) && !newest.is_set(0));
}

#[test]
fn root_md_shows_what_is_written() {
    use slab::{MapTotal, Root};
    let cut = 1 << 40 | 5;
    let older = Root {
        store_id: STORE,
        generation: 6,
        cut: 1 << 40 | 4,
        version: Version::new(1, 9),
        in_flight: vec![Version::new(1, 8)],
        hash_key: *b"0123456789abcdef",
        epoch: 1,
        level: Level::Async,
        habitat: Habitat { boot: *b"boot-id-16-bytes", device: 0x802, inode: 0x1234 },
        is_clean: false,
        maps: vec![MapTotal::default(), MapTotal { pairs: 1, stamps: slab::pair_stamp(0, 1 << 40 | 4) }],
    };
    let newer = Root {
        generation: 7,
        cut,
        version: Version::new(1, 10),
        in_flight: Vec::new(),
        is_clean: true,
        maps: vec![MapTotal::default(), MapTotal { pairs: 1, stamps: slab::pair_stamp(0, cut) }],
        ..older.clone()
    };
    let bytes = [older.encode().as_slice(), newer.encode().as_slice()].concat();
    check(include_str!("../../../docs/format/root.md"), &bytes);
    assert_eq!(Root::newest(&bytes).unwrap(), Some(newer));
}

#[test]
fn index_snapshot_md_shows_what_is_written() {
    use slab::{SnapshotReader, SnapshotWriter};
    let id = FileIdentity { store_id: STORE, number: 3 };
    let entries = [(b"apple".as_slice(), 0x0200_0000_0000_0000), (b"apricot", 0x0500_0000_0000_0007)];
    let mut bytes = Vec::new();
    let sink = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    let mut writer = SnapshotWriter::new(sink, id, 7).unwrap();
    entries.iter().for_each(|(key, place)| writer.add(key, *place).unwrap());
    writer.finish().unwrap();
    check(include_str!("../../../docs/format/index-snapshot.md"), &bytes);

    let mut rest = bytes.as_slice();
    let source = |buffer: &mut [u8]| Ok(std::io::Read::read(&mut rest, buffer).unwrap());
    let mut reader = SnapshotReader::new(source, id).unwrap();
    assert_eq!(reader.generation(), 7);
    for entry in entries {
        assert_eq!(reader.next_entry().unwrap(), Some(entry));
    }
    assert_eq!(reader.next_entry().unwrap(), None);
}

#[test]
fn redo_md_shows_what_is_written() {
    use redo::{Change, Ending, Segment};
    let id = FileIdentity { store_id: STORE, number: 2 };
    let segment = Segment { id, sequence: 7 };
    let mut bytes = segment.header().to_vec();
    let mut body = Vec::new();
    let changes = [Change::Put { key: b"apple", value: b"red" }, Change::Delete { key: b"fig" }];
    redo::push_changes(&mut body, changes);
    bytes.extend_from_slice(&segment.word(64, &body).to_le_bytes());
    body.resize(body.len().next_multiple_of(redo::WORD_BYTES), 0);
    bytes.extend_from_slice(&body);
    bytes.extend_from_slice(&segment.mark(bytes.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&segment.end(bytes.len() as u64).to_le_bytes());
    check(include_str!("../../../docs/format/redo.md"), &bytes);

    let file: Arc<dyn kvilt_base::File> = MemoryFile::new(FileName::Of(REDO, 2), bytes);
    let mut reader = redo::RedoReader::open(&file, id, false).unwrap().unwrap();
    assert_eq!(reader.sequence(), 7);
    let (offset, found) = reader.next().unwrap().unwrap();
    assert_eq!(offset, 64);
    assert_eq!(found.collect::<Vec<_>>(), changes);
    assert!(reader.next().unwrap().is_none());
    assert_eq!(reader.ending(), Ending::Continued);
}

#[test]
fn levels_md_shows_what_is_written() {
    use crate::levels::{Levels, TableOf};
    use kvilt_base::{KeyRange, RangeTombstone};
    let table = |number, first: &[u8], last: &[u8]| TableOf {
        number,
        len: 300,
        version_min: Version::new(1, 2),
        first_key: first.to_vec(),
        last_key: last.to_vec(),
    };
    let levels = Levels {
        store_id: STORE,
        number: 6,
        epoch: 2,
        level: Level::Async,
        habitat: Habitat { boot: [0xb0; 16], device: 8, inode: 9 },
        last_file: 6,
        log_first: 4,
        log_synced: (4, 64),
        levels: vec![vec![table(5, b"fig", b"kiwi")], vec![table(3, b"apple", b"lime")]],
        tombstones: vec![RangeTombstone {
            range: KeyRange { start: b"a".to_vec(), end: Some(b"b".to_vec()) },
            version: Version::new(1, 7),
        }],
    };
    let bytes = levels.encode();
    check(include_str!("../../../docs/format/levels.md"), &bytes);
    assert_eq!(Levels::decode(&bytes, 6).unwrap(), levels);
}
