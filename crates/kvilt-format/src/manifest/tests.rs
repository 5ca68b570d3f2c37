//! Tests of manifests: the root comes back after any edits; the newest state or an error, never an older
//! state.

use std::{collections::BTreeMap, sync::atomic::Ordering::SeqCst};

use kvilt_base::{Disk, ErrorKind, FileName, Version};
use proptest::prelude::*;

use super::*;
use crate::{
    FileIdentity,
    memory::MemoryDisk,
    names::{MANIFEST, MANIFEST_TEMP, WITNESS},
};

fn record(kind: PartKind, len: u64) -> FileRecord {
    FileRecord { kind, len, base: Version::new(1, 0), summary: None }
}

fn new_files(numbers: std::ops::Range<u64>) -> Edit {
    Edit {
        next_file: Some(numbers.end),
        files_upserted: numbers.map(|n| (n, record(PartKind::Table, n * 100))).collect(),
        ..Edit::default()
    }
}

fn chunk(key: &[u8], files: &[u64]) -> (Vec<u8>, Vec<u64>) {
    (key.to_vec(), files.to_vec())
}

/// Edits as an engine makes them: a first table, a split, a rebalance, a close.
fn life() -> Vec<Edit> {
    vec![
        Edit { chunks_upserted: vec![chunk(b"", &[1, 2])], ..new_files(1..3) },
        Edit {
            checkpoint: Some(Version::new(1, 8)),
            chunks_upserted: vec![chunk(b"", &[1, 2]), chunk(b"m", &[1, 2, 3])],
            ..new_files(3..4)
        },
        Edit {
            checkpoint: Some(Version::new(1, 9)),
            dead: Some(vec![(Version::new(0, 4), Version::new(1, 0))]),
            commit_first: Some(12),
            commit_is_begun: Some(true),
            files_removed: vec![1, 2, 3],
            chunks_upserted: vec![chunk(b"", &[4])],
            chunks_removed: vec![b"m".to_vec()],
            ..new_files(4..5)
        },
        Edit { is_clean: Some(true), ..Edit::default() },
    ]
}

/// A directory with the manifest of such a life; the root after each edit; and where each record ends.
fn lived() -> (MemoryDisk, Vec<Root>, Vec<u64>) {
    let disk = MemoryDisk::default();
    let mut root = Root::new(99);
    let mut writer = ManifestWriter::create(&disk, &root).unwrap();
    let mut roots = vec![root.clone()];
    let mut ends = vec![writer.len()];
    for edit in life() {
        root.apply(&edit).unwrap();
        let before = writer.len();
        assert_eq!(writer.append(&edit).unwrap(), writer.len() - before);
        roots.push(root.clone());
        ends.push(writer.len());
    }
    (disk, roots, ends)
}

#[test]
fn the_root_comes_back_and_a_fresh_manifest_takes_over() {
    let (disk, roots, ends) = lived();
    let last = roots.last().unwrap();
    let (root, number, valid_len) = read_manifest(&disk).unwrap().unwrap();
    assert_eq!((&root, number, valid_len), (last, 1, *ends.last().unwrap()));
    assert_eq!((root.users(4), root.users(1)), (1, 0));
    disk.place(FileName::Of(MANIFEST_TEMP, 2), b"left over".to_vec());
    let writer = ManifestWriter::create(&disk, &root).unwrap();
    assert_eq!(writer.number(), 3, "above a leftover, too");
    disk.place(FileName::Of(MANIFEST_TEMP, 4), b"left over".to_vec());
    ManifestWriter::create_numbered(&disk, 4, &root).unwrap();
    assert_eq!(read_manifest(&disk).unwrap().unwrap().0, *last);
    assert_eq!(read_manifest(&disk).unwrap().unwrap().1, 4);
    assert!(read_manifest(&MemoryDisk::default()).unwrap().is_none());
}

#[test]
fn every_flipped_bit_is_corruption_or_the_newest_root() {
    let (disk, roots, ends) = lived();
    let good = disk.bytes(FileName::Of(MANIFEST, 1));
    let last_mark = *ends.last().unwrap() as usize - record::HEAD_BYTES;
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        match reader::replay(&bad, FileName::Of(MANIFEST, 1)) {
            Ok((root, _)) => {
                assert_eq!(&root, roots.last().unwrap(), "bit {bit}");
                assert!(bit / 8 >= last_mark, "only the last mark may be hurt in silence");
            }
            Err(e) => assert_eq!((e.kind(), e.offset().is_some()), (ErrorKind::Corrupted, true), "bit {bit}"),
        }
    }
}

#[test]
fn every_truncation_is_corruption_or_a_root_that_was() {
    let (disk, roots, ends) = lived();
    let good = disk.bytes(FileName::Of(MANIFEST, 1));
    for cut in 0..good.len() {
        // The mark behind a record is not needed to read it.
        let whole = ends.iter().filter(|&&end| end as usize - record::HEAD_BYTES <= cut).count();
        match reader::replay(&good[..cut], FileName::Of(MANIFEST, 1)) {
            Ok((root, valid_len)) => {
                assert_eq!(root, roots[whole - 1], "cut {cut}");
                assert!(valid_len <= cut as u64);
            }
            Err(e) => assert!(whole == 0 && e.kind() == ErrorKind::Corrupted, "cut {cut}: {e}"),
        }
    }
}

#[test]
fn a_torn_append_is_left_out_whatever_of_it_reached_the_disk() {
    let (disk, roots, ends) = lived();
    let good = disk.bytes(FileName::Of(MANIFEST, 1));
    let start = ends[2] as usize;
    let record_end = ends[3] as usize - record::HEAD_BYTES;
    for byte in start..record_end {
        // The record reached the disk but for one byte; its mark was not written, as the sync never returned.
        let mut torn = good[..record_end].to_vec();
        torn[byte] ^= 0xa5;
        let (root, valid_len) = reader::replay(&torn, FileName::Of(MANIFEST, 1)).unwrap();
        assert_eq!((&root, valid_len), (&roots[2], start as u64));
    }
    for filler in [0, 0xff] {
        let mut torn = good[..start].to_vec();
        torn.resize(start + 700, filler);
        assert_eq!(reader::replay(&torn, FileName::Of(MANIFEST, 1)).unwrap().0, roots[2]);
    }
}

/// A mark that lies across the end of a sector is not synced when the next edit is appended behind it. The
/// power cut kept the edit's sector and lost half of the mark's; the store could not be opened any more.
#[test]
fn a_torn_mark_before_an_append_that_was_not_synced_is_a_torn_end() {
    let (disk, roots, ends) = lived();
    let whole = disk.bytes(FileName::Of(MANIFEST, 1));
    let edit_start = ends[ends.len() - 2] as usize;
    let mark_start = edit_start - record::HEAD_BYTES;
    let edit_end = whole.len() - record::HEAD_BYTES;
    // Its first four bytes are zero in any case.
    for lost in 5..=record::HEAD_BYTES {
        let mut torn = whole[..edit_end].to_vec();
        torn[mark_start..mark_start + lost].fill(0);
        let (root, valid_len) = reader::replay(&torn, FileName::Of(MANIFEST, 1)).unwrap();
        assert_eq!((&root, valid_len), (&roots[roots.len() - 2], mark_start as u64), "{lost} bytes lost");

        // The mark behind the edit says that both were synced.
        let mut damaged = whole.clone();
        damaged[mark_start..mark_start + lost].fill(0);
        let error = reader::replay(&damaged, FileName::Of(MANIFEST, 1)).unwrap_err();
        assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupted, Some(mark_start as u64)));
    }
}

/// A store's directory: such a life and a witness of it.
fn witnessed() -> (MemoryDisk, Root) {
    let disk = MemoryDisk::default();
    let mut root = Root::new(99);
    let mut witness = Witness::create(&disk, 99).unwrap();
    let mut writer = ManifestWriter::create(&disk, &root).unwrap();
    for edit in life() {
        root.apply(&edit).unwrap();
        writer.append(&edit).unwrap();
        witness.write(writer.claim()).unwrap();
    }
    assert!(witness.claim().len < writer.len(), "the mark is not synced");
    (disk, root)
}

fn corrupted_in(disk: &MemoryDisk) -> Option<String> {
    read_root(disk).err().map(|e| {
        assert_eq!(e.kind(), ErrorKind::Corrupted, "{e}");
        assert!(e.offset().is_some());
        e.file().unwrap().to_string()
    })
}

#[test]
fn what_the_witness_has_seen_of_the_manifest_must_be_there() {
    let (disk, root) = witnessed();
    let good = disk.bytes(FileName::Of(MANIFEST, 1));
    let (found, witness) = read_root(&disk).unwrap().unwrap();
    assert_eq!((&found, witness.store_id()), (&root, 99));
    let synced = witness.claim().len as usize;
    for cut in 0..=good.len() {
        disk.place(FileName::Of(MANIFEST, 1), good[..cut].to_vec());
        let expected = (cut < synced).then(|| "0000000000000001.manifest".to_string());
        assert_eq!(corrupted_in(&disk), expected, "cut {cut}");
    }
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        disk.place(FileName::Of(MANIFEST, 1), bad);
        match read_root(&disk) {
            Ok(found) => assert!(bit / 8 >= synced && found.unwrap().0 == root, "bit {bit}"),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Corrupted, "bit {bit}"),
        }
    }
    disk.remove(FileName::Of(MANIFEST, 1)).unwrap();
    assert_eq!(corrupted_in(&disk).as_deref(), Some("0000000000000001.manifest"));
}

#[test]
fn one_good_half_of_the_witness_is_enough_and_none_is_corruption() {
    let (disk, root) = witnessed();
    let good = disk.bytes(WITNESS);
    assert_eq!(good.len(), 1024);
    let claim = Witness::read(&disk, Some(99)).unwrap().unwrap().claim();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        disk.place(WITNESS, bad);
        let (found, witness) = read_root(&disk).unwrap().unwrap();
        assert!(found == root && witness.claim() <= claim, "bit {bit}");
    }
    let halves = good.split_at(512);
    let both = |a: &[u8], b: &[u8]| [a, b].concat();
    for bad in [vec![], good[..511].to_vec(), vec![0; 1024], both(halves.1, halves.0)] {
        disk.place(WITNESS, bad);
        assert_eq!(corrupted_in(&disk).as_deref(), Some("WITNESS"));
    }
    disk.place(WITNESS, both(halves.0, halves.0));
    assert!(corrupted_in(&disk).is_none());
    disk.remove(WITNESS).unwrap();
    assert_eq!(corrupted_in(&disk).as_deref(), Some("WITNESS"), "no witness is no excuse");
    Witness::create(&disk, 98).unwrap();
    assert_eq!(corrupted_in(&disk).as_deref(), Some("WITNESS"), "another store's");
}

#[test]
fn claims_take_turns_and_the_one_before_is_synced_first() {
    let disk = MemoryDisk::default();
    assert!(read_root(&disk).unwrap().is_none());
    let mut witness = Witness::create(&disk, 7).unwrap();
    assert!(read_root(&disk).unwrap().is_none(), "a store whose making was cut short");
    for len in 1..6 {
        let before = disk.bytes(WITNESS);
        let claim = Claim { manifest: 3, len };
        witness.write(claim).unwrap();
        witness.verify().unwrap();
        assert_eq!(Witness::read(&disk, None).unwrap().unwrap().claim(), claim);
        let after = disk.bytes(WITNESS);
        let is_same = |half: std::ops::Range<usize>| before[half.clone()] == after[half];
        assert_eq!((is_same(0..512), is_same(512..1024)), (len % 2 == 1, len % 2 == 0));
    }
    assert!(corrupted_in(&disk).is_some(), "its manifest is missing");
    let good = disk.bytes(WITNESS);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        disk.place(WITNESS, bad);
        let hurt = Witness::read(&disk, None).unwrap().unwrap();
        hurt.verify().expect("a half that was bad before may be a torn write");
    }
    let file = disk.open(WITNESS).unwrap();
    file.write_all_at(0, &good).unwrap();
    disk.0.fail_sync.store(true, SeqCst);
    let before = disk.bytes(WITNESS);
    assert_eq!(witness.write(Claim { manifest: 4, len: 1 }).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(disk.bytes(WITNESS), before, "never over the good half while the other is not synced");
    disk.0.fail_sync.store(false, SeqCst);
    assert_eq!(witness.sync().unwrap_err().kind(), ErrorKind::Poisoned, "a failed sync is never tried again");
}

#[test]
fn forged_heads_cost_no_more_than_their_bytes() {
    let (disk, ..) = lived();
    let mut bytes = disk.bytes(FileName::Of(MANIFEST, 1));
    let id = FileIdentity { store_id: 99, number: 1 };
    let end = bytes.len() + (1 << 20);
    bytes.push(0xff);
    while bytes.len() + 12 < end {
        // A good head that claims all that follows, before a body that is not what it says.
        let offset = bytes.len() as u64;
        let body_len = (end - bytes.len() - 12) as u32;
        let head = [body_len.to_le_bytes(), [1, 2, 3, 4]].concat();
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&crate::checksum::checksum(id.salt(offset), &head).to_le_bytes());
    }
    bytes.resize(end, 0);
    let e = reader::replay(&bytes, FileName::Of(MANIFEST, 1)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Corrupted);
}

#[test]
fn a_manifest_under_another_number_is_refused() {
    let (disk, ..) = lived();
    disk.place(FileName::Of(MANIFEST, 2), disk.bytes(FileName::Of(MANIFEST, 1)));
    let e = read_manifest(&disk).unwrap_err();
    assert_eq!((e.kind(), e.file()), (ErrorKind::Corrupted, Some("0000000000000002.manifest")));
}

#[test]
fn a_full_disk_lets_the_append_be_tried_again_and_a_failed_sync_does_not() {
    let disk = MemoryDisk::default();
    let mut root = Root::new(1);
    let mut writer = ManifestWriter::create(&disk, &root).unwrap();
    let long = Edit { chunks_upserted: vec![chunk(b"", &[1]), chunk(&[b'x'; 300], &[1])], ..new_files(1..2) };
    disk.0.fail_write.store(true, SeqCst);
    assert_eq!(writer.append(&long).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(read_manifest(&disk).unwrap().unwrap().0, root, "half a record is a torn end");
    disk.0.fail_write.store(false, SeqCst);
    let short = Edit { next_file: Some(9), ..Edit::default() };
    root.apply(&short).unwrap();
    writer.append(&short).unwrap();
    assert_eq!(read_manifest(&disk).unwrap().unwrap().0, root, "a shorter record over half of a longer one");
    disk.0.fail_sync.store(true, SeqCst);
    assert_eq!(writer.append(&short).unwrap_err().kind(), ErrorKind::Poisoned);
    disk.0.fail_sync.store(false, SeqCst);
    assert_eq!(writer.append(&short).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(disk.open(FileName::Of(MANIFEST, 1)).unwrap().name(), FileName::Of(MANIFEST, 1));
}

/// An edit that must be refused, and leave the root as it was.
fn refused(what: &str, edit: Edit) {
    let mut root = Root::new(1);
    for edit in &life()[..2] {
        root.apply(edit).unwrap();
    }
    let before = root.clone();
    let e = root.apply(&edit).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Corrupted, "{what}");
    assert_eq!(root, before, "{what}");
}

#[test]
fn an_edit_that_does_not_fit_is_refused_and_changes_nothing() {
    let edit = Edit::default;
    refused("an unknown file", Edit { chunks_upserted: vec![chunk(b"x", &[7])], ..edit() });
    refused("a used file removed", Edit { files_removed: vec![3], ..edit() });
    refused("an unknown file removed", Edit { files_removed: vec![8], ..edit() });
    refused("removed and used at once", {
        Edit { files_removed: vec![3], chunks_upserted: vec![chunk(b"m", &[3])], ..edit() }
    });
    refused("removed twice", {
        Edit { files_removed: vec![3, 3], chunks_upserted: vec![chunk(b"m", &[])], ..edit() }
    });
    refused("an unknown chunk removed", Edit { chunks_removed: vec![b"q".to_vec()], ..edit() });
    refused("the first chunk removed", Edit { chunks_removed: vec![b"".to_vec()], ..edit() });
    refused("a chunk twice", Edit { chunks_upserted: vec![chunk(b"q", &[]), chunk(b"q", &[])], ..edit() });
    refused("a file at next_file", {
        Edit { files_upserted: vec![(4, record(PartKind::Log, 0))], ..edit() }
    });
    refused("next_file back", Edit { next_file: Some(3), ..edit() });
    refused("the checkpoint back", Edit { checkpoint: Some(Version::ZERO), ..edit() });
    refused("dead versions reversed", {
        Edit { dead: Some(vec![(Version::new(2, 0), Version::new(1, 0))]), ..edit() }
    });
    let mut nothing = Root::nothing(1);
    assert!(nothing.apply(&edit()).is_err(), "a manifest without chunks");
}

#[test]
fn thirty_thousand_chunks_are_read_and_small_edits_stay_small() {
    let disk = MemoryDisk::default();
    let mut root = Root::new(5);
    let mut edit = new_files(1..60_001);
    edit.chunks_upserted = (0..30_000u64)
        .map(|i| {
            let key = if i == 0 { vec![] } else { format!("chunk/{i:08}").into_bytes() };
            (key, vec![2 * i + 1, 2 * i + 2])
        })
        .collect();
    root.apply(&edit).unwrap();
    let mut writer = ManifestWriter::create(&disk, &root).unwrap();
    assert!(writer.len() < 3 << 20, "{}", writer.len());
    for i in 0..1_000u64 {
        let upserted = vec![(2 * i + 2, record(PartKind::Log, i))];
        let edit = Edit { files_upserted: upserted, ..Edit::default() };
        root.apply(&edit).unwrap();
        assert!(writer.append(&edit).unwrap() < 60);
    }
    assert_eq!(read_manifest(&disk).unwrap().unwrap().0, root);
}

type FileModel = BTreeMap<u64, (bool, u64, u64)>;

fn edits() -> impl Strategy<Value = Edit> {
    let files: BoxedStrategy<FileModel> =
        prop::collection::btree_map(any::<u64>(), (any::<bool>(), any::<u64>(), any::<u64>()), 0..6).boxed();
    let chunks = prop::collection::btree_map(
        prop::collection::vec(any::<u8>(), 0..10),
        prop::collection::vec(any::<u64>(), 0..4),
        0..6,
    );
    let scalars = (any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<bool>>(), any::<Option<u64>>());
    let scalars = (scalars, any::<Option<bool>>());
    let dead = prop::option::of(prop::collection::vec((any::<u64>(), any::<u64>()), 0..4));
    let removed = (any::<Vec<u64>>(), prop::collection::vec(any::<Vec<u8>>(), 0..4));
    (scalars, dead, files, chunks, removed).prop_map(
        |((scalars, commit_is_begun), dead, files, chunks, removed)| Edit {
            next_file: scalars.0,
            checkpoint: scalars.1.map(Version::from_u64),
            is_clean: scalars.2,
            commit_first: scalars.3,
            commit_is_begun,
            dead: dead.map(|dead| {
                dead.into_iter().map(|(a, b)| (Version::from_u64(a), Version::from_u64(b))).collect()
            }),
            files_upserted: files
                .into_iter()
                .map(|(number, (is_log, len, base))| {
                    let kind = if is_log { PartKind::Log } else { PartKind::Table };
                    let summary = (is_log && len % 3 == 0 && len / 3 >= 64).then_some(len / 3);
                    (number, FileRecord { kind, len, base: Version::from_u64(base), summary })
                })
                .collect(),
            files_removed: removed.0,
            chunks_upserted: chunks.into_iter().collect(),
            chunks_removed: removed.1,
        },
    )
}

#[test]
fn a_summary_lies_in_its_log() {
    for (len, at, is_right) in
        [(100, 64, true), (100, 99, true), (100, 100, false), (100, 63, false), (0, 0, false)]
    {
        let summary = FileRecord { summary: Some(at), ..record(PartKind::Log, len) };
        let mut bytes = Vec::new();
        Edit { files_upserted: vec![(1, summary)], ..Edit::default() }.encode(&mut bytes);
        assert_eq!(Edit::decode(&bytes).is_ok(), is_right, "at {at} of {len}");
    }
}

proptest! {
    #[test]
    fn edits_come_back(edit in edits()) {
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        prop_assert_eq!(Edit::decode(&bytes), Ok(edit));
    }

    #[test]
    fn arbitrary_bytes_are_an_edit_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..200), first in 1u8..11) {
        let _ = Edit::decode(&bytes);
        let tagged = [&[first], bytes.as_slice()].concat();
        if let Ok(edit) = Edit::decode(&tagged) {
            let _ = Root::new(1).apply(&edit);
            let _ = Root::nothing(1).apply(&edit);
        }
    }

    #[test]
    fn arbitrary_manifests_with_right_checksums_never_panic(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..4), tail in any::<Vec<u8>>()) {
        let id = FileIdentity { store_id: 5, number: 1 };
        let mut bytes = crate::header::encode(crate::header::MANIFEST_MAGIC, id, 0).to_vec();
        for body in bodies {
            let offset = bytes.len() as u64;
            record::push(&mut bytes, &body, id, offset).unwrap();
        }
        bytes.extend_from_slice(&tail);
        let _ = reader::replay(&bytes, FileName::Of(MANIFEST, 1));
        let _ = reader::replay(&tail, FileName::Of(MANIFEST, 1));
    }

    /// The model: a root is its plain fields, and apply is the obvious thing.
    #[test]
    fn apply_keeps_count_of_users(steps in prop::collection::vec((0usize..4, prop::collection::vec(1u64..6, 0..4), any::<bool>()), 0..30)) {
        let keys: [&[u8]; 4] = [b"", b"a", b"b", b"c"];
        let mut root = Root::new(1);
        root.apply(&new_files(1..6)).unwrap();
        for (key, files, is_removal) in steps {
            let edit = if is_removal {
                Edit { chunks_removed: vec![keys[key].to_vec()], ..Edit::default() }
            } else {
                Edit { chunks_upserted: vec![chunk(keys[key], &files)], ..Edit::default() }
            };
            let fits = !is_removal || key > 0 && root.chunks.contains_key(keys[key]);
            prop_assert_eq!(root.apply(&edit).is_ok(), fits);
            for file in 1..6 {
                let users = root.chunks.values().flatten().filter(|&&f| f == file).count();
                prop_assert_eq!(root.users(file) as usize, users);
            }
        }
        let mut copy = Root::nothing(1);
        copy.apply(&root.to_edit()).unwrap();
        prop_assert_eq!(copy, root);
    }
}
