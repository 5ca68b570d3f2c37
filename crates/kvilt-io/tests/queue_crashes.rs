//! What power cuts and kills leave of transfers on a `MemoryDisk` (D-6 to D-8).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeSet, io::ErrorKind, sync::Arc};

use kvilt_base::{
    Completed, Disk, File, FileName, Queue, Transfer, Work,
    disk::FileKind,
    queue::{BLOCK_BYTES, aligned},
};
use kvilt_io::{Keep, MemoryDisk, SeededRng, is_crash};

const SLAB: FileKind = FileKind::direct("slab");
const NAME: FileName = FileName::Of(SLAB, 1);
const SECTOR: usize = 512;
const SECTORS: usize = BLOCK_BYTES / SECTOR;

struct Bed {
    disk: Arc<MemoryDisk>,
    file: Arc<dyn File>,
    queue: Arc<dyn Queue>,
}

/// A file of `blocks` blocks of zeros, synced, and a queue.
fn bed(seed: u64, blocks: usize) -> Bed {
    let disk = MemoryDisk::new(seed);
    let file = disk.create(NAME).unwrap();
    if blocks > 0 {
        file.write_all_at(0, &aligned(blocks * BLOCK_BYTES)).unwrap();
    }
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    let queue = disk.queue(16).unwrap();
    Bed { disk, file, queue }
}

impl Bed {
    fn write(&self, token: u64, block: u64, byte: u8, is_durable: bool) -> Transfer {
        let mut buffer = aligned(BLOCK_BYTES);
        buffer.fill(byte);
        let work = Work::Write { bytes: buffer.freeze(), is_durable };
        Transfer { token, file: self.file.clone(), offset: block * BLOCK_BYTES as u64, work }
    }

    fn complete(&self, transfers: Vec<Transfer>) -> Vec<Completed> {
        let count = transfers.len();
        self.queue.submit(transfers);
        let mut done = Vec::new();
        while done.len() < count {
            self.queue.reap(&mut done);
        }
        done
    }

    fn written(&self, block: u64, byte: u8, is_durable: bool) {
        let done = self.complete(vec![self.write(0, block, byte, is_durable)]);
        assert!(done.iter().all(|completed| completed.outcome.is_ok()));
    }
}

fn contents(disk: &MemoryDisk) -> Vec<u8> {
    disk.contents(NAME).unwrap()
}

/// Which sectors of a block are `byte`; each must be that or zero, all of it.
fn sectors(bytes: &[u8], byte: u8) -> Vec<bool> {
    let is_new = |sector: &[u8]| {
        assert!(sector.iter().all(|b| *b == sector[0]), "a sector is not torn");
        assert!([0, byte].contains(&sector[0]));
        sector[0] == byte
    };
    bytes.chunks(SECTOR).map(is_new).collect()
}

/// The images of a kill and of a power cut.
fn images(disk: &MemoryDisk, keep: Keep) -> [Arc<MemoryDisk>; 2] {
    [disk.crash_image(keep), disk.kill_image_with(keep)]
}

#[test]
fn a_write_in_flight_is_there_whole_or_not_or_any_of_its_sectors() {
    let bed = bed(1, 1);
    bed.queue.submit(vec![bed.write(1, 0, 7, true)]);
    assert!(contents(&bed.disk).iter().all(|byte| *byte == 0), "nobody reads it yet");
    for kill in [0, 1] {
        let seen = |keep| sectors(&contents(&images(&bed.disk, keep)[kill]), 7);
        assert_eq!(seen(Keep::SyncedOnly), [false; SECTORS]);
        assert_eq!(seen(Keep::All), [true; SECTORS]);
        let random: BTreeSet<_> = (0..300).map(|seed| seen(Keep::Random(seed))).collect();
        assert!(random.len() > 100, "{} images", random.len());
        let torn: BTreeSet<_> = (0..300).map(|seed| seen(Keep::Prefix(seed))).collect();
        assert_eq!(torn.len(), SECTORS + 1, "each prefix");
        assert!(torn.iter().all(|image| image.is_sorted_by(|a, b| a >= b)));
        let count = bed.disk.unsynced();
        assert_eq!(count, 1 + 2 * (SECTORS - 1), "whole, and both sides of each border");
        for unit in 0..count {
            let (only, but) = (seen(Keep::Only(unit)), seen(Keep::AllBut(unit)));
            assert!(only.contains(&true));
            assert!(only.iter().zip(&but).all(|(a, b)| a != b), "one has what the other has not");
        }
    }
}

#[test]
fn what_a_kill_left_of_a_write_in_flight_is_no_safer_than_any_other_write() {
    let bed = bed(1, 1);
    bed.queue.submit(vec![bed.write(1, 0, 7, true)]);
    let killed = bed.disk.kill_image_with(Keep::All);
    assert_eq!(contents(&killed), [7; BLOCK_BYTES]);
    assert_eq!(contents(&killed.crash_image(Keep::SyncedOnly)), [0; BLOCK_BYTES]);
    let reached: BTreeSet<_> = (0..40)
        .map(|seed| {
            let bed = self::bed(seed, 1);
            bed.queue.submit(vec![bed.write(1, 0, 7, true)]);
            sectors(&contents(&bed.disk.kill_image()), 7).iter().filter(|is_new| **is_new).count()
        })
        .collect();
    assert!(reached.contains(&0) && reached.contains(&SECTORS) && reached.len() > 4, "{reached:?}");
}

#[test]
fn a_write_in_flight_beyond_the_end_makes_the_file_longer_by_what_landed() {
    let bed = bed(1, 0);
    bed.queue.submit(vec![bed.write(1, 0, 7, false)]);
    for keep in (0..100).map(Keep::Random).chain((0..100).map(Keep::Prefix)) {
        for image in images(&bed.disk, keep) {
            let bytes = contents(&image);
            let seen = sectors(&bytes, 7);
            assert!(seen.last().is_none_or(|is_new| *is_new), "no longer than what landed");
        }
    }
}

#[test]
fn a_completed_write_is_undone_by_a_power_cut_unless_it_is_durable_or_synced() {
    let bed = bed(1, 2);
    bed.written(0, 1, true);
    bed.written(1, 2, false);
    let image = bed.disk.crash_image(Keep::SyncedOnly);
    assert_eq!(contents(&image), [[1; BLOCK_BYTES], [0; BLOCK_BYTES]].concat());
    assert_eq!(contents(&bed.disk.kill_image()), [[1; BLOCK_BYTES], [2; BLOCK_BYTES]].concat());
    bed.file.sync().unwrap();
    let image = bed.disk.crash_image(Keep::SyncedOnly);
    assert_eq!(contents(&image), [[1; BLOCK_BYTES], [2; BLOCK_BYTES]].concat());
}

#[test]
fn a_sync_makes_nothing_durable_that_is_in_flight() {
    let bed = bed(1, 1);
    bed.queue.submit(vec![bed.write(1, 0, 7, false)]);
    bed.file.sync().unwrap();
    assert_eq!(contents(&bed.disk.crash_image(Keep::SyncedOnly)), [0; BLOCK_BYTES]);
    let mut done = Vec::new();
    bed.queue.reap(&mut done);
    assert_eq!(contents(&bed.disk.crash_image(Keep::SyncedOnly)), [0; BLOCK_BYTES]);
    bed.file.sync().unwrap();
    assert_eq!(contents(&bed.disk.crash_image(Keep::SyncedOnly)), [7; BLOCK_BYTES]);
}

/// D-7: durable and other writes of the same blocks, and what each block may be after a power cut.
#[test]
fn a_durable_write_is_in_every_image_and_one_before_it_never_comes_back() {
    const BLOCKS: u64 = 4;
    for seed in 0..200 {
        let bed = bed(seed, (seed % 3) as usize);
        let rng = SeededRng::new(seed);
        // What may be seen of each block: what was durable, and all since.
        let mut allowed: Vec<BTreeSet<u8>> = vec![BTreeSet::from([0]); BLOCKS as usize];
        let mut is_certain = [false; BLOCKS as usize];
        for byte in 1..30 {
            let block = rng.below(BLOCKS);
            match rng.below(8) {
                0 => {
                    bed.file.sync().unwrap();
                    for (block, allowed) in allowed.iter_mut().enumerate() {
                        *allowed =
                            BTreeSet::from([*contents(&bed.disk).get(block * BLOCK_BYTES).unwrap_or(&0)]);
                        is_certain[block] |= allowed.iter().any(|byte| *byte != 0);
                    }
                }
                1..=3 => {
                    bed.written(block, byte, true);
                    allowed[block as usize] = BTreeSet::from([byte]);
                    is_certain[block as usize] = true;
                }
                _ => {
                    bed.written(block, byte, false);
                    allowed[block as usize].insert(byte);
                }
            }
            let units = bed.disk.unsynced();
            let keeps = [Keep::SyncedOnly, Keep::All].into_iter();
            let keeps = keeps.chain((0..3).map(Keep::Random)).chain((0..2).map(Keep::Prefix));
            let keeps = keeps.chain((units > 0).then(|| Keep::Only(rng.below(units as u64) as usize)));
            let keeps = keeps.chain((units > 0).then(|| Keep::AllBut(rng.below(units as u64) as usize)));
            for keep in keeps.collect::<Vec<_>>() {
                let image = contents(&bed.disk.crash_image(keep));
                for (block, allowed) in allowed.iter().enumerate().filter(|(block, _)| is_certain[*block]) {
                    let bytes = &image[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES];
                    let seen: BTreeSet<u8> = bytes.iter().copied().collect();
                    assert!(
                        seen.is_subset(allowed),
                        "seed {seed}, byte {byte}, block {block}, {keep:?}: {seen:?}, not of {allowed:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn power_fails_at_each_submission_and_at_each_completion() {
    // A batch of three writes: one op for it, and one for each that is executed.
    let ops = |bed: &Bed| bed.disk.ops();
    let whole = bed(3, 3);
    let before = ops(&whole);
    whole.complete((0..3).map(|n| whole.write(n, n, 7, true)).collect());
    assert_eq!(ops(&whole), before + 4);
    whole.complete(vec![Transfer { work: Work::Read(aligned(BLOCK_BYTES)), ..whole.write(9, 0, 0, false) }]);
    assert_eq!(ops(&whole), before + 4, "a read changes nothing");

    for crash in 0..4 {
        let bed = bed(3, 3);
        bed.disk.set_crash_at(Some(ops(&bed) + crash));
        let done = bed.complete((0..3).map(|n| bed.write(n, n, 7, true)).collect());
        assert!(bed.disk.has_crashed());
        let (good, bad): (Vec<_>, Vec<_>) = done.iter().partition(|completed| completed.outcome.is_ok());
        assert_eq!(good.len() as u64, crash.saturating_sub(1));
        assert!(bad.iter().all(|completed| is_crash(completed.outcome.as_ref().unwrap_err())));
        let block = |image: &[u8], n: u64| sectors(&image[n as usize * BLOCK_BYTES..][..BLOCK_BYTES], 7);
        for keep in [Keep::SyncedOnly, Keep::All].into_iter().chain((0..20).map(Keep::Random)) {
            for image in images(&bed.disk, keep).map(|image| contents(&image)) {
                for completed in &good {
                    assert_eq!(block(&image, completed.token), [true; SECTORS], "{crash}, {keep:?}");
                }
                for completed in &bad {
                    let seen = block(&image, completed.token);
                    assert!(keep != Keep::SyncedOnly || seen == [false; SECTORS]);
                    assert!(keep != Keep::All || seen == [true; SECTORS], "it was in flight");
                }
            }
        }
        let late = bed.complete(vec![bed.write(8, 2, 9, false)]);
        assert!(is_crash(late[0].outcome.as_ref().unwrap_err()));
        assert_ne!(contents(&bed.disk.crash_image(Keep::All))[2 * BLOCK_BYTES], 9, "it never was in flight");
        bed.disk.set_crash_at(None);
        for completed in &bad {
            let image = contents(&bed.disk.crash_image(Keep::All));
            assert_eq!(block(&image, completed.token), [false; SECTORS], "the crash was taken back");
        }
        bed.written(0, 7, false);
    }
}

#[test]
#[should_panic(expected = "one of the two is a write")]
fn a_write_that_overlaps_what_is_in_flight_is_the_callers_mistake() {
    let bed = bed(1, 2);
    let read = Work::Read(aligned(2 * BLOCK_BYTES));
    bed.queue.submit(vec![Transfer { work: read, ..bed.write(1, 0, 0, false) }]);
    bed.queue.submit(vec![bed.write(2, 1, 7, false)]);
}

#[test]
fn reads_may_overlap_and_a_completed_write_is_in_nobodys_way() {
    let bed = bed(1, 1);
    let read = |token| Transfer { work: Work::Read(aligned(BLOCK_BYTES)), ..bed.write(token, 0, 0, false) };
    assert_eq!(bed.complete(vec![read(1), read(2)]).len(), 2);
    bed.written(0, 1, false);
    bed.written(0, 2, false);
    let done = bed.complete(vec![read(3), read(4)]);
    assert!(done.iter().all(|completed| completed.work.bytes() == [2; BLOCK_BYTES]));
}

#[test]
fn a_full_disk_takes_what_fits_and_refuses_the_rest() {
    let bed = bed(1, 2);
    bed.disk.set_capacity(Some(3 * BLOCK_BYTES as u64));
    let long = |token, block: u64| {
        let work = Work::Write { bytes: aligned(2 * BLOCK_BYTES).freeze(), is_durable: true };
        Transfer { token, file: bed.file.clone(), offset: block * BLOCK_BYTES as u64, work }
    };
    bed.written(1, 5, true);
    for (block, is_refused) in [(1, false), (2, true), (8, true)] {
        let done = bed.complete(vec![long(1, block)]);
        let outcome = done[0].outcome.as_ref().map_err(|error| error.kind());
        assert_eq!(outcome, if is_refused { Err(ErrorKind::StorageFull) } else { Ok(&()) }, "{block}");
    }
    assert_eq!(bed.file.len().unwrap(), 3 * BLOCK_BYTES as u64);
    bed.disk.set_capacity(None);
    assert!(bed.complete(vec![long(1, 2)])[0].outcome.is_ok());
}

#[test]
fn a_durable_write_that_fails_like_a_sync_is_read_and_never_survives() {
    let bed = bed(1, 2);
    bed.written(0, 1, false);
    bed.disk.set_sync_failure_at(Some(0));
    bed.written(0, 2, false);
    let failed = bed.complete(vec![bed.write(1, 1, 3, true)]);
    assert!(failed[0].outcome.is_err());
    assert_eq!(contents(&bed.disk), [[2; BLOCK_BYTES], [3; BLOCK_BYTES]].concat());
    bed.file.sync().unwrap();
    for keep in [Keep::SyncedOnly, Keep::All] {
        assert_eq!(contents(&bed.disk.crash_image(keep)), [0; 2 * BLOCK_BYTES], "{keep:?}");
    }
    bed.written(1, 4, true);
    let image = contents(&bed.disk.crash_image(Keep::SyncedOnly));
    assert_eq!(image, [[0; BLOCK_BYTES], [4; BLOCK_BYTES]].concat(), "and one after it does");
}

#[test]
fn the_same_seed_and_the_same_calls_leave_the_same() {
    let play = |seed| {
        let bed = bed(seed, 8);
        let mut done = Vec::new();
        for round in 0..20 {
            bed.queue.submit(vec![bed.write(round, round % 8, round as u8, round % 3 == 0)]);
            if round % 4 == 3 {
                while done.len() as u64 <= round {
                    bed.queue.reap(&mut done);
                }
            }
        }
        bed.queue.submit((0..8).map(|n| bed.write(n, n, 99, false)).collect());
        bed.queue.reap(&mut done);
        let tokens: Vec<u64> = done.iter().map(|completed| completed.token).collect();
        (tokens, bed.disk.fingerprint(), contents(&bed.disk.kill_image()))
    };
    assert_eq!(play(5), play(5));
    assert_ne!(play(5).0, play(6).0);
}
