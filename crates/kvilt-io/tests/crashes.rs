//! What a crash may leave of a `MemoryDisk`: properties against a model that only knows what was done, and
//! that each kind of damage does come up.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use kvilt_base::disk::FileKind;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use kvilt_base::{
    Disk, File, FileName,
    queue::{BLOCK_BYTES, aligned},
};
use kvilt_io::{Keep, MemoryDisk, SeededRng, is_crash};
use proptest::prelude::*;

const LOG: FileKind = FileKind::read_at_random("log");
const TABLE: FileKind = FileKind::read_at_random("table");
const MANIFEST: FileKind = FileKind::new("manifest");
const SLAB: FileKind = FileKind::direct("slab");
const MANIFEST_TEMP: FileKind = FileKind::new("manifest.tmp");

const SECTOR_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;
const NAMES: u64 = 4;

#[derive(Clone, Debug)]
enum Op {
    Create(u64),
    /// Offset and length, and what byte to fill with.
    Write(u64, usize, usize, u8),
    Append(u64, usize, u8),
    Sync(u64),
    SyncDir,
    Rename(u64, u64),
    Remove(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let name = 0..NAMES;
    let op = prop_oneof![
        3 => name.clone().prop_map(Op::Create),
        3 => (name.clone(), 0..2500usize, 1..1500usize, 1u8..).prop_map(|(n, o, l, b)| Op::Write(n, o, l, b)),
        4 => (name.clone(), 1..900usize, 1u8..).prop_map(|(n, l, b)| Op::Append(n, l, b)),
        2 => name.clone().prop_map(Op::Sync),
        1 => Just(Op::SyncDir),
        2 => (name.clone(), name.clone()).prop_map(|(a, b)| Op::Rename(a, b)),
        1 => name.prop_map(Op::Remove),
    ];
    proptest::collection::vec(op, 1..30)
}

/// A file of the model: what it held after the last sync, and after each write since.
#[derive(Clone, Debug)]
struct ModelFile {
    states: Vec<Vec<u8>>,
}

/// What was done to the disk.
#[derive(Default)]
struct Model {
    files: Vec<ModelFile>,
    names: BTreeMap<FileName, usize>,
    /// What each name may stand for after a crash; None: nothing.
    possible: BTreeMap<FileName, BTreeSet<Option<usize>>>,
}

impl Model {
    fn bind(&mut self, name: FileName, file: Option<usize>) {
        let before = self.names.get(&name).copied();
        self.possible.entry(name).or_insert_with(|| BTreeSet::from([before])).insert(file);
        match file {
            Some(file) => self.names.insert(name, file),
            None => self.names.remove(&name),
        };
    }

    fn apply(&mut self, op: &Op) {
        let at = |n: u64| self.names.get(&FileName::Of(LOG, n)).copied();
        match *op {
            Op::Create(n) if at(n).is_none() => {
                self.files.push(ModelFile { states: vec![Vec::new()] });
                self.bind(FileName::Of(LOG, n), Some(self.files.len() - 1));
            }
            Op::Write(n, offset, len, byte) => {
                if let Some(file) = at(n) {
                    self.files[file].write(offset, len, byte);
                }
            }
            Op::Append(n, len, byte) => {
                if let Some(file) = at(n) {
                    let end = self.files[file].live().len();
                    self.files[file].write(end, len, byte);
                }
            }
            Op::Sync(n) => {
                if let Some(file) = at(n) {
                    let states = &mut self.files[file].states;
                    states.drain(..states.len() - 1);
                }
            }
            Op::SyncDir => self.possible.clear(),
            Op::Rename(from, to) => {
                if let Some(file) = at(from).filter(|_| from != to) {
                    self.bind(FileName::Of(LOG, from), None);
                    self.bind(FileName::Of(LOG, to), Some(file));
                }
            }
            Op::Remove(n) if at(n).is_some() => self.bind(FileName::Of(LOG, n), None),
            Op::Create(_) | Op::Remove(_) => {}
        }
    }

    /// D-1 to D-4 of one image.
    fn check(&self, image: &MemoryDisk) {
        let found = image.snapshot();
        for n in 0..NAMES {
            let name = FileName::Of(LOG, n);
            let now = self.names.get(&name).copied();
            let possible = self.possible.get(&name).cloned().unwrap_or_else(|| BTreeSet::from([now]));
            let is_legal = match found.get(&name) {
                None => possible.contains(&None),
                Some(bytes) => possible.iter().flatten().any(|file| self.files[*file].may_be(bytes)),
            };
            assert!(is_legal, "{name}: {:?}, possible {possible:?}", found.get(&name).map(Vec::len));
        }
    }
}

impl ModelFile {
    fn live(&self) -> &Vec<u8> {
        self.states.last().unwrap()
    }

    fn write(&mut self, offset: usize, len: usize, byte: u8) {
        let mut bytes = self.live().clone();
        if bytes.len() < offset + len {
            bytes.resize(offset + len, 0);
        }
        bytes[offset..offset + len].fill(byte);
        self.states.push(bytes);
    }

    /// Whether each sector of the synced part is what it was at some moment since the sync.
    fn may_be(&self, bytes: &[u8]) -> bool {
        let synced = self.states[0].len();
        if bytes.len() < synced || bytes.len() > self.live().len() {
            return false;
        }
        (0..synced.div_ceil(SECTOR_BYTES)).all(|sector| {
            let range = sector * SECTOR_BYTES..synced.min((sector + 1) * SECTOR_BYTES);
            self.states.iter().any(|state| state[range.clone()] == bytes[range.clone()])
        })
    }
}

fn run(disk: &MemoryDisk, op: &Op) -> std::io::Result<()> {
    let write = |n: u64, at: Option<usize>, len: usize, byte: u8| {
        let file = disk.open(FileName::Of(LOG, n))?;
        let offset = at.map_or_else(|| file.len(), |at| Ok(at as u64))?;
        file.write_all_at(offset, &vec![byte; len])
    };
    match *op {
        Op::Create(n) => disk.create(FileName::Of(LOG, n)).map(drop),
        Op::Write(n, offset, len, byte) => write(n, Some(offset), len, byte),
        Op::Append(n, len, byte) => write(n, None, len, byte),
        Op::Sync(n) => disk.open(FileName::Of(LOG, n)).and_then(|file| file.sync()),
        Op::SyncDir => disk.sync_dir(),
        Op::Rename(from, to) => disk.rename(FileName::Of(LOG, from), FileName::Of(LOG, to)),
        Op::Remove(n) => disk.remove(FileName::Of(LOG, n)),
    }
}

fn keeps(seed: u64) -> impl Iterator<Item = Keep> {
    let drawn = (seed..seed + 6).flat_map(|seed| [Keep::Random(seed), Keep::Prefix(seed)]);
    [Keep::SyncedOnly, Keep::All].into_iter().chain(drawn)
}

/// Everything lost alone, and kept alone.
fn singles(disk: &MemoryDisk) -> impl Iterator<Item = Keep> {
    (0..disk.unsynced()).flat_map(|unit| [Keep::Only(unit), Keep::AllBut(unit)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_image_is_a_legal_state(ops in ops(), seed: u64, crash: Option<prop::sample::Index>) {
        let seed = seed >> 1;
        let disk = MemoryDisk::new(seed);
        let mut model = Model::default();
        if let Some(crash) = crash {
            disk.set_crash_at(Some(crash.index(ops.len()) as u64));
        }
        for op in &ops {
            let outcome = run(&disk, op);
            // A sync that the crash interrupts has not happened; anything else may have.
            let is_cut_short = outcome.as_ref().is_err_and(is_crash);
            if !(is_cut_short && matches!(op, Op::Sync(_) | Op::SyncDir)) {
                model.apply(op);
            }
            if is_cut_short {
                break;
            }
        }
        for keep in keeps(seed) {
            let image = disk.crash_image(keep);
            model.check(&image);
            prop_assert_eq!(image.snapshot(), disk.crash_image(keep).snapshot(), "the same seed, the same image");
            for again in keeps(seed) {
                prop_assert_eq!(image.snapshot(), image.crash_image(again).snapshot(), "an image is durable");
            }
        }
        for keep in singles(&disk) {
            let image = disk.crash_image(keep);
            model.check(&image);
            prop_assert_eq!(image.unsynced(), 0, "an image is durable");
        }
        let live: BTreeMap<_, _> =
            model.names.iter().map(|(name, file)| (*name, model.files[*file].live().clone())).collect();
        prop_assert_eq!(&disk.snapshot(), &live);
        prop_assert_eq!(&disk.crash_image(Keep::All).snapshot(), &live);
        let killed = disk.kill_image();
        prop_assert_eq!(&killed.snapshot(), &live);
        prop_assert_eq!(killed.fingerprint(), disk.fingerprint());
        for keep in keeps(seed).chain(singles(&disk)) {
            prop_assert_eq!(killed.crash_image(keep).snapshot(), disk.crash_image(keep).snapshot());
        }
    }

    #[test]
    fn an_image_and_its_origin_go_separate_ways(ops in ops(), more in ops(), seed: u64) {
        let (disk, alone) = (MemoryDisk::new(seed), MemoryDisk::new(seed));
        for op in &ops {
            prop_assert_eq!(run(&disk, op).is_ok(), run(&alone, op).is_ok());
        }
        let image = disk.crash_image(Keep::Random(seed));
        let then = image.snapshot();
        for op in &more {
            let _ = run(&disk, op);
            let _ = run(&alone, op);
        }
        prop_assert_eq!(image.snapshot(), then);
        let now = disk.snapshot();
        prop_assert_eq!(&alone.snapshot(), &now);
        for op in &more {
            let _ = run(&image, op);
        }
        prop_assert_eq!(disk.snapshot(), now);
        for keep in keeps(seed >> 1) {
            prop_assert_eq!(disk.crash_image(keep).snapshot(), alone.crash_image(keep).snapshot());
        }
    }
}

/// What the images of many seeds hold.
fn outcomes(disk: &MemoryDisk) -> BTreeSet<BTreeMap<FileName, Vec<u8>>> {
    (0..400)
        .flat_map(|seed| [Keep::Random(seed), Keep::Prefix(seed)])
        .map(|keep| disk.crash_image(keep).snapshot())
        .collect()
}

fn synced(disk: &MemoryDisk, name: FileName, bytes: &[u8]) -> Arc<dyn File> {
    let file = disk.create(name).unwrap();
    file.write_all_at(0, bytes).unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    file
}

#[test]
fn a_file_that_was_synced_without_its_directory_may_vanish_or_stay_but_not_change() {
    let disk = MemoryDisk::new(1);
    let file = disk.create(FileName::Of(LOG, 1)).unwrap();
    file.write_all_at(0, b"x").unwrap();
    file.sync().unwrap();
    let stays = BTreeMap::from([(FileName::Of(LOG, 1), b"x".to_vec())]);
    assert_eq!(outcomes(&disk), BTreeSet::from([BTreeMap::new(), stays]));
}

/// D-4.
#[test]
fn a_rename_shows_the_old_file_or_the_new_one() {
    let disk = MemoryDisk::new(1);
    let [temp, name] = [FileName::Of(MANIFEST_TEMP, 1), FileName::Of(MANIFEST, 1)];
    synced(&disk, name, b"old");
    synced(&disk, temp, b"new");
    disk.rename(temp, name).unwrap();
    let before = BTreeMap::from([(name, b"old".to_vec()), (temp, b"new".to_vec())]);
    let after = BTreeMap::from([(name, b"new".to_vec())]);
    assert_eq!(outcomes(&disk), BTreeSet::from([before, after]));
}

#[test]
fn a_rename_of_a_file_that_was_not_synced_may_leave_an_empty_one() {
    let disk = MemoryDisk::new(1);
    let [temp, name] = [FileName::Of(MANIFEST_TEMP, 1), FileName::Of(MANIFEST, 1)];
    synced(&disk, name, b"old");
    disk.create(temp).unwrap().write_all_at(0, b"new").unwrap();
    disk.rename(temp, name).unwrap();
    let found: BTreeSet<_> = outcomes(&disk).into_iter().map(|files| files[&name].clone()).collect();
    for expected in [&b"old"[..], b"", b"new", &[0; 3]] {
        assert!(found.contains(expected), "{expected:?} in {found:?}");
    }
}

/// D-3 for names: any subset of them.
#[test]
fn names_are_lost_in_any_order_or_in_a_given_one() {
    let disk = MemoryDisk::new(1);
    for n in [1, 2] {
        disk.create(FileName::Of(LOG, n)).unwrap();
    }
    let has = |keep: Keep| {
        let found = disk.crash_image(keep).snapshot();
        [1, 2].map(|n| found.contains_key(&FileName::Of(LOG, n)))
    };
    let random: BTreeSet<_> = (0..200).map(|seed| has(Keep::Random(seed))).collect();
    assert_eq!(random.len(), 4);
    let prefix: BTreeSet<_> = (0..200).map(|seed| has(Keep::Prefix(seed))).collect();
    assert_eq!(prefix, BTreeSet::from([[false, false], [true, false], [true, true]]));
}

/// D-3 for bytes: any subset of the sectors.
#[test]
fn writes_are_torn_between_sectors_and_show_old_states() {
    let disk = MemoryDisk::new(1);
    let name = FileName::Of(LOG, 1);
    let file = synced(&disk, name, &[1; 3 * SECTOR_BYTES]);
    file.write_all_at(0, &[2; 3 * SECTOR_BYTES]).unwrap();
    file.write_all_at(0, &[3; 3 * SECTOR_BYTES]).unwrap();
    let found: BTreeSet<_> = outcomes(&disk)
        .into_iter()
        .map(|files| {
            let sectors: Vec<&[u8]> = files[&name].chunks(SECTOR_BYTES).collect();
            assert!(sectors.iter().all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            [sectors[0][0], sectors[1][0], sectors[2][0]]
        })
        .collect();
    assert!(found.len() >= 15, "of the 27 states: {found:?}");
    assert!(found.contains(&[3, 1, 3]) && found.contains(&[1, 1, 1]) && found.contains(&[3, 3, 3]));
}

#[test]
fn every_write_is_lost_alone_and_kept_alone_torn_at_each_border() {
    let disk = MemoryDisk::new(1);
    let name = FileName::Of(LOG, 1);
    let file = synced(&disk, name, &[1; 3 * SECTOR_BYTES]);
    file.write_all_at(0, &[2; 3 * SECTOR_BYTES]).unwrap();
    file.write_all_at(SECTOR_BYTES as u64, &[3; 3 * SECTOR_BYTES]).unwrap();
    let sectors = |keep: Keep| -> Vec<u8> {
        disk.crash_image(keep).contents(name).unwrap().chunks(SECTOR_BYTES).map(|sector| sector[0]).collect()
    };
    let set = |keep: fn(usize) -> Keep| -> BTreeSet<Vec<u8>> {
        (0..disk.unsynced()).map(|unit| sectors(keep(unit))).collect()
    };
    // The first write whole and cut in two places; then the second, which lengthens the file.
    let kept = [[2, 2, 2].to_vec(), vec![2, 1, 1], vec![1, 2, 2], vec![2, 2, 1], vec![1, 1, 2]];
    let kept_of_second = [vec![1, 3, 3, 3], vec![1, 3, 1], vec![1, 1, 3, 3], vec![1, 3, 3], vec![1, 1, 1, 3]];
    assert_eq!(set(Keep::Only), BTreeSet::from_iter(kept.into_iter().chain(kept_of_second)));
    // Where the second lies over the first, losing the first loses both.
    let lost = [vec![1, 1, 1, 3], vec![1, 3, 3, 3], vec![2, 1, 1, 3], vec![1, 1, 3, 3], vec![2, 3, 1, 3]];
    let lost_of_second = [
        vec![2, 2, 2, 0],
        vec![2, 2, 2],
        vec![2, 2, 3, 3],
        vec![2, 3, 2, 0],
        vec![2, 3, 2],
        vec![2, 2, 2, 3],
        vec![2, 3, 3, 0],
        vec![2, 3, 3],
    ];
    assert_eq!(set(Keep::AllBut), BTreeSet::from_iter(lost.into_iter().chain(lost_of_second)));
}

/// A write alone is seen only under a name, and a name alone shows a file without what was written.
#[test]
fn a_write_is_kept_with_the_name_of_its_file_and_a_name_without_writes() {
    let disk = MemoryDisk::new(1);
    for n in [1, 2] {
        disk.create(FileName::Of(LOG, n)).unwrap().write_all_at(0, &[n as u8; 4]).unwrap();
    }
    let left = |keep: fn(usize) -> Keep| -> Vec<BTreeMap<FileName, Vec<u8>>> {
        (0..disk.unsynced()).map(|unit| disk.crash_image(keep(unit)).snapshot()).collect()
    };
    let [one, two] = [FileName::Of(LOG, 1), FileName::Of(LOG, 2)];
    let alone = |name, bytes: &[u8]| BTreeMap::from([(name, bytes.to_vec())]);
    let kept = left(Keep::Only);
    assert_eq!(kept[..2], [alone(one, b""), alone(two, b"")]);
    assert!(kept[2..].contains(&alone(one, &[1; 4])) && kept[2..].contains(&alone(two, &[2; 4])), "{kept:?}");
    let lost = left(Keep::AllBut);
    assert_eq!(lost[..2], [alone(two, &[2; 4]), alone(one, &[1; 4])]);
    let both = |first: &[u8]| BTreeMap::from([(one, first.to_vec()), (two, vec![2; 4])]);
    assert!(lost[2..].contains(&both(&[0; 4])) && lost[2..].contains(&both(b"")), "{lost:?}");
}

/// Recoveries of equal disks are played once: what a later crash depends on must be in the fingerprint.
#[test]
fn disks_with_the_same_fingerprint_hold_the_same_and_have_the_same_synced() {
    let made = |is_synced: bool, bytes: &[u8]| {
        let disk = MemoryDisk::new(1);
        let file = disk.create(FileName::Of(LOG, 1)).unwrap();
        file.write_all_at(0, bytes).unwrap();
        if is_synced {
            file.sync().unwrap();
        }
        disk
    };
    let disk = made(false, b"same");
    assert_eq!(disk.fingerprint(), made(false, b"same").fingerprint());
    assert_eq!(disk.fingerprint(), disk.kill_image().fingerprint());
    let others = [
        made(true, b"same"),
        made(false, b"same."),
        made(false, b"some"),
        disk.crash_image(Keep::All),
        disk.crash_image(Keep::SyncedOnly),
    ];
    let fingerprints: BTreeSet<u64> = others.iter().map(|disk| disk.fingerprint()).collect();
    assert_eq!(fingerprints.len(), others.len());
    assert!(!fingerprints.contains(&disk.fingerprint()));
}

#[test]
fn the_length_may_survive_without_the_bytes() {
    let disk = MemoryDisk::new(1);
    let name = FileName::Of(LOG, 1);
    let file = synced(&disk, name, &[1; SECTOR_BYTES]);
    file.write_all_at(SECTOR_BYTES as u64, &[2; 2 * SECTOR_BYTES]).unwrap();
    let found: Vec<_> = outcomes(&disk).into_iter().map(|files| files[&name].clone()).collect();
    assert!(found.iter().all(|bytes| bytes[..SECTOR_BYTES] == [1; SECTOR_BYTES]), "synced bytes stay");
    let has_zeros =
        |bytes: &Vec<u8>| bytes.len() == 3 * SECTOR_BYTES && bytes[SECTOR_BYTES..].iter().all(|b| *b == 0);
    let has_stale = |bytes: &Vec<u8>| bytes[SECTOR_BYTES..].iter().any(|b| *b != 0 && *b != 2);
    assert!(found.iter().any(has_zeros) && found.iter().any(has_stale));
    assert!(found.iter().any(|bytes| bytes.len() == SECTOR_BYTES));
    assert!(found.iter().any(|bytes| bytes.len() == 2 * SECTOR_BYTES));
}

/// D-2, and what is left without it.
#[test]
fn a_removed_file_is_back_when_the_removal_was_not_synced() {
    let disk = MemoryDisk::new(1);
    let name = FileName::Of(TABLE, 1);
    synced(&disk, name, b"x");
    disk.remove(name).unwrap();
    assert_eq!(disk.contents(name), None);
    assert_eq!(disk.crash_image(Keep::SyncedOnly).contents(name).unwrap(), b"x");
    assert_eq!(outcomes(&disk).len(), 2);
    disk.sync_dir().unwrap();
    assert_eq!(outcomes(&disk), BTreeSet::from([BTreeMap::new()]));
}

/// D-5: the second sync succeeds and saves nothing of what the first one dropped, but in pages written again.
#[test]
fn bytes_lost_by_a_failed_sync_are_read_until_a_crash_and_not_after_unless_their_page_is_written_again() {
    let disk = MemoryDisk::new(1);
    let name = FileName::Of(LOG, 1);
    let file = synced(&disk, name, &[1; 10]);
    file.write_all_at(4, &[2; 10]).unwrap();
    disk.set_sync_failure_at(Some(0));
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(disk.contents(name).unwrap(), [[1; 4].as_slice(), &[2; 10]].concat());
    for keep in keeps(1) {
        assert_eq!(disk.crash_image(keep).contents(name).unwrap(), [1; 10], "{keep:?}");
    }
    file.write_all_at(PAGE_BYTES as u64, &[3; 2]).unwrap();
    file.sync().unwrap();
    for keep in keeps(1) {
        let expected = [[1; 10].as_slice(), &[0; PAGE_BYTES - 10], &[3; 2]].concat();
        assert_eq!(disk.crash_image(keep).contents(name).unwrap(), expected, "later pages are durable");
    }
    file.write_all_at(100, &[4]).unwrap();
    file.sync().unwrap();
    for keep in keeps(1) {
        assert_eq!(disk.crash_image(keep).contents(name), disk.contents(name), "and the page written again");
    }
}

#[test]
fn after_the_crash_every_call_fails_until_it_is_lifted() {
    let disk = MemoryDisk::new(1);
    let file = disk.create(FileName::Of(LOG, 1)).unwrap();
    disk.set_crash_at(Some(2));
    file.write_all_at(0, b"one").unwrap();
    assert!(!disk.has_crashed());
    assert!(is_crash(&disk.remove(FileName::Of(LOG, 1)).unwrap_err()));
    assert!(disk.has_crashed());
    assert_eq!(disk.ops(), 2);
    let outcomes = [
        file.write_at(0, b"x").map(drop),
        file.read_at(0, &mut [0]).map(drop),
        file.len().map(drop),
        file.sync(),
        disk.sync_dir(),
        disk.list().map(drop),
        disk.open(FileName::Of(LOG, 1)).map(drop),
        disk.create(FileName::Of(LOG, 2)).map(drop),
        disk.rename(FileName::Of(LOG, 1), FileName::Of(LOG, 2)),
        disk.new_directory(Path::new("/x")).map(drop),
    ];
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(is_crash(&error) && error.to_string() == "crashed");
    }
    assert!(disk.lock().is_err());
    disk.set_crash_at(None);
    assert_eq!(disk.list().unwrap(), [], "the call during which the power failed took effect in memory");
}

#[test]
fn locks_vanish_in_images_and_so_do_old_handles() {
    let disk = MemoryDisk::new(1);
    let _held = disk.lock().unwrap();
    assert!(disk.lock().is_err());
    assert!(disk.kill_image().lock().is_ok());
    assert!(disk.crash_image(Keep::SyncedOnly).lock().is_ok());
}

#[test]
fn linked_files_share_what_is_written_and_synced_but_not_their_names() {
    let disk = MemoryDisk::new(1);
    let name = FileName::Of(LOG, 1);
    let file = synced(&disk, name, b"x");
    let copy = disk.new_directory(Path::new("/copy")).unwrap();
    disk.link(name, &*copy).unwrap();
    let copied_after = |disk: &MemoryDisk| {
        disk.crash_image(Keep::SyncedOnly).directory(Path::new("/copy")).unwrap().contents(name)
    };
    assert_eq!(copied_after(&disk), None);
    copy.sync_dir().unwrap();
    assert_eq!(copied_after(&disk).unwrap(), b"x");
    file.write_all_at(1, b"y").unwrap();
    assert_eq!(copied_after(&disk).unwrap(), b"x");
    file.sync().unwrap();
    assert_eq!(copied_after(&disk).unwrap(), b"xy");
    assert_eq!(disk.total_bytes(), 2, "one file, two names");
    assert_eq!(copied_after(&disk.kill_image()).unwrap(), b"xy");
}

#[test]
fn a_full_disk_takes_what_fits_and_then_nothing_until_there_is_room() {
    let disk = MemoryDisk::new(1);
    disk.set_capacity(Some(10));
    let [a, b] = [1, 2].map(|n| disk.create(FileName::Of(LOG, n)).unwrap());
    assert_eq!(a.write_at(0, &[1; 8]).unwrap(), 8);
    assert_eq!(b.write_at(0, &[2; 8]).unwrap(), 2);
    assert_eq!(b.write_at(2, &[2; 6]).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(b.write_at(0, &[3; 2]).unwrap(), 2, "overwriting takes no room");
    disk.remove(FileName::Of(LOG, 1)).unwrap();
    assert_eq!(b.write_at(2, &[2; 6]).unwrap(), 6);
    assert_eq!(disk.total_bytes(), 8);
    disk.set_capacity(None);
    assert_eq!(b.write_at(8, &[2; 600]).unwrap(), 600);
}

/// As file systems do, which give room out in blocks: else a write that goes on where it was short would end
/// as one that moves nothing.
#[test]
fn a_full_disk_takes_whole_blocks_of_a_direct_file() {
    let disk = MemoryDisk::new(1);
    disk.set_capacity(Some(2 * BLOCK_BYTES as u64 - 1));
    let file = disk.create(FileName::Of(SLAB, 1)).unwrap();
    assert_eq!(file.write_at(0, &aligned(2 * BLOCK_BYTES)).unwrap(), BLOCK_BYTES);
    let refused = file.write_all_at(0, &aligned(2 * BLOCK_BYTES)).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(disk.total_bytes(), BLOCK_BYTES as u64);
}

#[test]
fn damage_is_durable_and_counts_as_no_call() {
    let disk = MemoryDisk::new(1);
    let name = FileName::Of(TABLE, 1);
    synced(&disk, name, &[0; 4]);
    let ops = disk.ops();
    assert!(disk.flip_bit(name, 2, 7));
    assert!(!disk.flip_bit(name, 4, 0));
    assert!(!disk.truncate(name, 4));
    assert!(disk.truncate(name, 3));
    disk.replace(FileName::Of(TABLE, 2), b"planted".to_vec());
    let expected = BTreeMap::from([(name, vec![0, 0, 0x80]), (FileName::Of(TABLE, 2), b"planted".to_vec())]);
    assert_eq!(disk.snapshot(), expected);
    assert_eq!(disk.crash_image(Keep::SyncedOnly).snapshot(), expected);
    assert!(disk.lose(name) && !disk.lose(name));
    assert_eq!(disk.crash_image(Keep::Random(1)).contents(name), None);
    assert_eq!(disk.ops(), ops);
}

#[test]
fn a_thousand_small_scripts_take_the_same_path_twice() {
    let once = |seed: u64| {
        let disk = MemoryDisk::new(seed);
        let rng = SeededRng::new(seed);
        for _ in 0..20 {
            let (a, b) = (rng.below(NAMES), rng.below(NAMES));
            let op = match rng.below(6) {
                0 => Op::Create(a),
                1 | 2 => Op::Append(a, 1 + rng.below(700) as usize, rng.below(255) as u8),
                3 => Op::Sync(a),
                4 => Op::Rename(a, b),
                _ => Op::SyncDir,
            };
            let _ = run(&disk, &op);
        }
        disk.crash_image(Keep::Random(seed)).snapshot()
    };
    for seed in 0..1_000 {
        assert_eq!(once(seed), once(seed), "seed {seed}");
    }
}
