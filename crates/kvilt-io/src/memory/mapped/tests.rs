//! What a crash, a kill and a failed sync leave of a file that is mapped: stories, and a property against a
//! model that knows of each sector what it may hold.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeSet, sync::Arc};

use kvilt_base::{Disk, File, FileName, disk::FileKind};
use proptest::prelude::*;

use super::PAGE_BYTES;
use crate::{Keep, MemoryDisk, memory::image::SECTOR_BYTES};

const NAME: FileName = FileName::Of(FileKind::new("log"), 1);

/// A disk with one file, which is mapped and durable: pages of zeros.
struct Bed {
    disk: Arc<MemoryDisk>,
    file: Arc<dyn File>,
}

impl Bed {
    fn new(seed: u64, pages: usize) -> Self {
        let disk = MemoryDisk::new(seed);
        let file = disk.create(NAME).unwrap();
        file.allocate((pages * PAGE_BYTES) as u64).unwrap();
        file.sync().unwrap();
        disk.sync_dir().unwrap();
        let bed = Bed { disk, file };
        bed.map();
        bed
    }

    fn of(disk: Arc<MemoryDisk>) -> Self {
        let file = disk.open(NAME).unwrap();
        Bed { disk, file }
    }

    fn map(&self) {
        self.file.map(0, PAGE_BYTES).unwrap();
    }

    /// As a store through a mapping does.
    fn store(&self, offset: usize, bytes: &[u8]) {
        let inode = self.disk.inode(NAME).unwrap();
        let mapped = inode.with(|contents| contents.mapped.clone()).unwrap();
        mapped.write(offset, bytes);
    }

    fn lose_sync(&self) {
        self.disk.set_sync_failure_at(Some(0));
        self.file.sync().unwrap_err();
    }

    /// What the bytes at these offsets are after a power cut.
    fn left<const N: usize>(&self, keep: Keep, offsets: [usize; N]) -> [u8; N] {
        let bytes = self.disk.crash_image(keep).contents(NAME).unwrap();
        offsets.map(|offset| bytes[offset])
    }

    fn possible<const N: usize>(&self, offsets: [usize; N]) -> BTreeSet<[u8; N]> {
        self.keeps(0).map(|keep| self.left(keep, offsets)).collect()
    }

    fn keeps(&self, seed: u64) -> impl Iterator<Item = Keep> {
        let drawn = (seed..seed + 60).flat_map(|seed| [Keep::Random(seed), Keep::Prefix(seed)]);
        let singles = (0..self.disk.unsynced()).flat_map(|unit| [Keep::Only(unit), Keep::AllBut(unit)]);
        [Keep::SyncedOnly, Keep::All].into_iter().chain(drawn).chain(singles)
    }
}

#[test]
fn a_page_that_is_written_again_after_a_lost_sync_becomes_durable_whole_and_others_stay_lost() {
    let bed = Bed::new(1, 6);
    // One byte each, and one in the next sector of each page.
    let offsets: [usize; 8] = std::array::from_fn(|n| n / 2 * PAGE_BYTES + n % 2 * SECTOR_BYTES);
    for offset in offsets {
        bed.store(offset, b"a");
    }
    bed.lose_sync();
    bed.file.sync().unwrap();
    assert_eq!(bed.possible(offsets), BTreeSet::from([[0; 8]]), "the kernel takes the pages to be clean");
    assert_eq!(bed.disk.contents(NAME).unwrap()[0], b'a', "and readers see them");

    bed.store(offsets[0], b"b");
    bed.file.write_all_at(offsets[2] as u64, b"b").unwrap();
    bed.file.write_all_at(offsets[4] as u64, b"a").unwrap();
    assert_eq!(bed.left(Keep::SyncedOnly, offsets), [0; 8]);
    assert_eq!(&bed.left(Keep::All, offsets), b"babaaa\0\0");
    bed.file.sync().unwrap();
    assert_eq!(bed.possible(offsets), BTreeSet::from([*b"babaaa\0\0"]));

    bed.store(offsets[7], b"c");
    bed.file.sync().unwrap();
    assert_eq!(bed.possible(offsets), BTreeSet::from([*b"babaaaac"]), "now nothing is lost");
}

#[test]
fn a_page_of_a_file_that_is_not_mapped_becomes_durable_whole_too() {
    let disk = MemoryDisk::new(1);
    let file = disk.create(NAME).unwrap();
    file.write_all_at(0, &[b'-'; 2 * PAGE_BYTES]).unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    let bed = Bed { disk, file };
    let offsets = [0, SECTOR_BYTES, PAGE_BYTES];
    for offset in offsets {
        bed.file.write_all_at(offset as u64, b"a").unwrap();
    }
    bed.lose_sync();
    bed.file.write_all_at(5, b"x").unwrap();
    bed.file.sync().unwrap();
    assert_eq!(bed.possible(offsets), BTreeSet::from([*b"aa-"]));
}

#[test]
fn what_a_killed_process_stored_may_be_lost_to_a_later_power_cut_and_what_was_synced_may_not() {
    let bed = Bed::new(1, 4);
    let offsets = [0, PAGE_BYTES, 3 * PAGE_BYTES];
    bed.store(offsets[0], b"s");
    bed.file.sync().unwrap();
    bed.store(offsets[1], b"u");
    bed.store(offsets[2], b"u");
    for bed in [&bed, &Bed::of(bed.disk.kill_image()), &Bed::of(bed.disk.kill_image().kill_image())] {
        assert_eq!(&bed.disk.contents(NAME).unwrap()[PAGE_BYTES..][..1], b"u", "the kernel has it");
        assert_eq!(bed.possible(offsets), BTreeSet::from([*b"suu", *b"s\0u", *b"su\0", *b"s\0\0"]));
        assert_eq!(bed.disk.unsynced(), 2, "runs of pages");
    }
    let killed = Bed::of(bed.disk.kill_image());
    killed.map();
    assert_eq!(killed.left(Keep::SyncedOnly, offsets), *b"s\0\0", "mapping it again makes nothing durable");
    killed.file.sync().unwrap();
    assert_eq!(killed.possible(offsets), BTreeSet::from([*b"suu"]), "a sync of those that are left does");
}

#[test]
fn a_lost_sync_is_lost_to_the_next_process_too() {
    let bed = Bed::new(1, 2);
    bed.store(0, b"a");
    bed.store(PAGE_BYTES, b"a");
    bed.lose_sync();
    let killed = Bed::of(bed.disk.kill_image());
    killed.file.write_all_at(0, b"a").unwrap();
    killed.file.sync().unwrap();
    assert_eq!(killed.possible([0, PAGE_BYTES]), BTreeSet::from([*b"a\0"]));
}

#[test]
fn room_taken_behind_what_was_written_makes_nothing_durable() {
    let bed = Bed::new(1, 1);
    bed.store(0, b"u");
    bed.file.allocate(2 * PAGE_BYTES as u64).unwrap();
    bed.store(PAGE_BYTES, b"u");
    assert_eq!(bed.possible([0, PAGE_BYTES]), BTreeSet::from([*b"uu", *b"\0u", *b"u\0", *b"\0\0"]));
}

#[derive(Clone, Debug)]
enum Op {
    /// Where, and how much.
    Store(usize, usize),
    Write(usize, usize),
    WriteDurably(usize, usize),
    Sync,
    LoseSync,
    Map,
    Kill,
    Grow,
}

const PAGES_FIRST: usize = 3;

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (at, len) = (0..PAGES_FIRST * PAGE_BYTES - 6000, 1..6000usize);
    let op = prop_oneof![
        6 => (at.clone(), len.clone()).prop_map(|(at, len)| Op::Store(at, len)),
        3 => (at.clone(), len.clone()).prop_map(|(at, len)| Op::Write(at, len)),
        1 => (at, len).prop_map(|(at, len)| Op::WriteDurably(at, len)),
        2 => Just(Op::Sync),
        2 => Just(Op::LoseSync),
        1 => Just(Op::Map),
        1 => Just(Op::Kill),
        1 => Just(Op::Grow),
    ];
    proptest::collection::vec(op, 1..25)
}

/// What a file may hold after a power cut.
struct Model {
    live: Vec<u8>,
    /// Of each sector what is on the platter, then what it may show instead.
    sectors: Vec<Vec<Vec<u8>>>,
    /// Pages that the next sync writes.
    dirty: BTreeSet<usize>,
}

impl Model {
    fn new() -> Self {
        let mut model = Model { live: Vec::new(), sectors: Vec::new(), dirty: BTreeSet::new() };
        model.grow(PAGES_FIRST);
        model
    }

    fn grow(&mut self, pages: usize) {
        self.live.resize(self.live.len() + pages * PAGE_BYTES, 0);
        self.sectors.resize(self.live.len() / SECTOR_BYTES, vec![vec![0; SECTOR_BYTES]]);
    }

    fn sector(&self, sector: usize) -> Vec<u8> {
        self.live[sector * SECTOR_BYTES..][..SECTOR_BYTES].to_vec()
    }

    fn write(&mut self, at: usize, len: usize, byte: u8) {
        self.live[at..at + len].fill(byte);
        for page in at / PAGE_BYTES..(at + len).div_ceil(PAGE_BYTES) {
            self.dirty.insert(page);
            let sectors = PAGE_BYTES / SECTOR_BYTES;
            for sector in page * sectors..(page + 1) * sectors {
                let now = self.sector(sector);
                self.sectors[sector].push(now);
            }
        }
    }

    fn write_durably(&mut self, at: usize, len: usize, byte: u8) {
        self.live[at..at + len].fill(byte);
        for offset in at..at + len {
            for possible in &mut self.sectors[offset / SECTOR_BYTES] {
                possible[offset % SECTOR_BYTES] = byte;
            }
        }
    }

    fn is_dirty(&self, sector: usize) -> bool {
        self.dirty.contains(&(sector * SECTOR_BYTES / PAGE_BYTES))
    }

    fn sync(&mut self) {
        for sector in (0..self.sectors.len()).filter(|sector| self.is_dirty(*sector)).collect::<Vec<_>>() {
            self.sectors[sector] = vec![self.sector(sector)];
        }
        self.dirty.clear();
    }

    fn lose_sync(&mut self) {
        self.sectors.iter_mut().for_each(|possible| possible.truncate(1));
        self.dirty.clear();
    }

    fn check(&self, image: &[u8], keep: Keep) {
        assert_eq!(image.len(), self.live.len());
        for (sector, now) in image.chunks(SECTOR_BYTES).enumerate() {
            let possible = &self.sectors[sector];
            let is_legal = match keep {
                Keep::SyncedOnly => now == possible[0],
                Keep::All if self.is_dirty(sector) => now == self.sector(sector),
                Keep::All => now == possible[0],
                Keep::Random(_) | Keep::Prefix(_) | Keep::Only(_) | Keep::AllBut(_) => {
                    possible.iter().any(|possible| now == possible)
                }
            };
            assert!(is_legal, "sector {sector} of {keep:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_image_of_a_mapped_file_is_a_legal_state(ops in ops(), seed: u64) {
        let seed = seed >> 1;
        let mut bed = Bed::new(seed, PAGES_FIRST);
        let (mut model, mut is_mapped) = (Model::new(), true);
        for (op, byte) in ops.iter().zip(1..) {
            match *op {
                Op::Store(at, len) if is_mapped => {
                    bed.store(at, &vec![byte; len]);
                    model.write(at, len, byte);
                }
                Op::Store(..) => {}
                Op::Write(at, len) => {
                    bed.file.write_all_at(at as u64, &vec![byte; len]).unwrap();
                    model.write(at, len, byte);
                }
                Op::WriteDurably(at, len) => {
                    bed.disk.inode(NAME).unwrap().write_durably(at, &vec![byte; len]);
                    model.write_durably(at, len, byte);
                }
                Op::Sync => {
                    bed.file.sync().unwrap();
                    model.sync();
                }
                Op::LoseSync => {
                    bed.lose_sync();
                    model.lose_sync();
                }
                Op::Map => {
                    bed.map();
                    is_mapped = true;
                }
                Op::Kill => {
                    bed = Bed::of(bed.disk.kill_image());
                    is_mapped = false;
                }
                Op::Grow => {
                    model.grow(1);
                    bed.file.allocate(model.live.len() as u64).unwrap();
                }
            }
            prop_assert_eq!(&bed.disk.contents(NAME).unwrap(), &model.live);
        }
        let killed = bed.disk.kill_image();
        prop_assert_eq!(killed.fingerprint(), bed.disk.fingerprint());
        for keep in bed.keeps(seed) {
            let image = bed.disk.crash_image(keep).contents(NAME).unwrap();
            model.check(&image, keep);
            prop_assert_eq!(image, killed.crash_image(keep).contents(NAME).unwrap());
        }
    }
}
