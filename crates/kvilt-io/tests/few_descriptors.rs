//! The descriptor cache where the process may have 64: a binary of its own, since the limit is the process's.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use kvilt_base::disk::FileKind;
use std::{
    fs,
    sync::{Arc, Mutex},
    thread,
};

use kvilt_base::{Disk, File, FileName, Transfer, Work, queue::aligned};
use kvilt_io::{NativeDisk, QueueBy, SeededRng, open_descriptors};
use rustix::process::{Resource, getrlimit, setrlimit};

const LOG: FileKind = FileKind::read_at_random("log");
const TABLE: FileKind = FileKind::read_at_random("table");
const KINDS: &[FileKind] = &[LOG, TABLE];

const LIMIT: u64 = 64;

fn descriptors_of_the_process() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

fn lower_the_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(LIMIT);
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Holds what the file should hold: its lock keeps a check and the state it checks together.
type Expected = Mutex<Vec<u8>>;

fn use_some(files: &[(Arc<dyn File>, Expected)], seed: u64) {
    let rng = SeededRng::new(seed);
    for round in 0..3_000 {
        let (file, expected) = &files[rng.below(files.len() as u64) as usize];
        let mut expected = expected.lock().unwrap();
        let mut bytes = vec![0; expected.len() + 1];
        let read = file.read_full_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes[..read], &**expected, "{file:?}, round {round}");
        if rng.below(3) == 0 {
            let text = format!("{seed}:{round};");
            file.write_all_at(expected.len() as u64, text.as_bytes()).unwrap();
            expected.extend_from_slice(text.as_bytes());
        }
        if rng.below(40) == 0 {
            file.sync().unwrap();
        }
        assert!(open_descriptors() as u64 <= LIMIT / 2 + 4, "half, and one for each thread in between");
    }
}

/// One test, for all of them share the limit and the cache.
#[test]
fn five_hundred_files_in_use_at_a_limit_of_64() {
    let place = tempfile::tempdir().unwrap();
    let before = descriptors_of_the_process();
    lower_the_limit();
    let disks = [1, 2].map(|n| NativeDisk::open(&place.path().join(n.to_string()), KINDS, true).unwrap());
    let file = |n: u64| (disks[(n % 2) as usize].create(FileName::Of(LOG, n)).unwrap(), Expected::default());
    let files: Vec<_> = (0..500).map(file).collect();
    thread::scope(|scope| {
        for seed in 0..4 {
            let files = &files;
            scope.spawn(move || use_some(files, seed));
        }
    });
    assert!(descriptors_of_the_process() as u64 <= LIMIT);

    more_files_in_flight_than_there_are_descriptors(&disks);
    renamed_and_removed_files_stay_in_use(&disks[0], &files);
    a_stranger_takes_the_descriptors(&files, &disks[0]);
    handles_come_and_go_from_all_threads(&disks[1]);

    drop(files);
    assert_eq!(open_descriptors(), 0, "who drops a file gives its descriptor back");
    drop(disks);
    assert_eq!(descriptors_of_the_process(), before);
}

/// Transfers keep descriptors open; those that find none wait for others to complete.
fn more_files_in_flight_than_there_are_descriptors(disks: &[Arc<NativeDisk>; 2]) {
    const FILES: u64 = 200;
    for by in [QueueBy::Best, QueueBy::Threads] {
        let disk = &disks[0];
        let queue = disk.queue_by(128, by);
        let files: Vec<_> = (0..FILES).map(|n| disk.create(FileName::Of(TABLE, n)).unwrap()).collect();
        let bytes = |n: u64| format!("file {n};").into_bytes();
        for is_write in [true, false] {
            let work = |n: u64| match is_write {
                true => Work::Write { bytes: bytes(n).into(), is_durable: n.is_multiple_of(8) },
                false => Work::Read(aligned(bytes(n).len())),
            };
            let transfer = |(token, file): (u64, &Arc<dyn File>)| Transfer {
                token,
                file: file.clone(),
                offset: 0,
                work: work(token),
            };
            queue.submit((0..).zip(&files).map(transfer).collect());
            let mut done = Vec::new();
            while (done.len() as u64) < FILES {
                queue.reap(&mut done);
                assert!(descriptors_of_the_process() as u64 <= LIMIT);
            }
            for completed in done {
                completed.outcome.unwrap();
                assert_eq!(completed.work.bytes(), bytes(completed.token));
            }
        }
        drop((files, queue));
        (0..FILES).for_each(|n| disk.remove(FileName::Of(TABLE, n)).unwrap());
    }
}

/// Their descriptors may be closed at any time; a new name must be found, a removed file must stay open.
fn renamed_and_removed_files_stay_in_use(disk: &NativeDisk, files: &[(Arc<dyn File>, Expected)]) {
    disk.rename(FileName::Of(LOG, 0), FileName::Of(LOG, 9_000)).unwrap();
    disk.rename(FileName::Of(LOG, 2), FileName::Of(LOG, 4)).unwrap();
    disk.remove(FileName::Of(LOG, 6)).unwrap();
    for _ in 0..2 {
        for (file, expected) in files {
            let mut bytes = vec![0; expected.lock().unwrap().len()];
            file.read_exact_at(0, &mut bytes).unwrap();
            assert_eq!(bytes, *expected.lock().unwrap());
        }
    }
    assert_eq!(files[0].0.name(), FileName::Of(LOG, 9_000));
    assert_eq!(files[2].0.name(), FileName::Of(LOG, 4));
}

/// Others in the process may use up what is left: ours make room by closing one of their own.
fn a_stranger_takes_the_descriptors(files: &[(Arc<dyn File>, Expected)], disk: &NativeDisk) {
    let mut strangers = Vec::new();
    while let Ok(file) = fs::File::open("/dev/null") {
        strangers.push(file);
    }
    for (file, expected) in files {
        assert_eq!(file.len().unwrap(), expected.lock().unwrap().len() as u64);
    }
    assert!(disk.list().unwrap().len() >= 248);
    drop(disk.lock().unwrap());
    drop(strangers);
}

/// Opening, dropping and renaming the same few files at once: who has a handle reads that file and no other.
fn handles_come_and_go_from_all_threads(disk: &NativeDisk) {
    for n in 0..4 {
        disk.create(FileName::Of(TABLE, n)).unwrap().write_all_at(0, &[n as u8; 100]).unwrap();
    }
    thread::scope(|scope| {
        for seed in 0..3 {
            scope.spawn(move || {
                let rng = SeededRng::new(seed);
                for _ in 0..4_000 {
                    // A table that is being renamed is missing for a moment under one of its names.
                    let Ok(file) = disk.open(FileName::Of(TABLE, rng.below(5))) else {
                        continue;
                    };
                    let mut bytes = [0; 100];
                    file.read_exact_at(0, &mut bytes).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "bytes of one file");
                    assert!(matches!(file.name(), FileName::Of(TABLE, _)));
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..1_000 {
                disk.rename(FileName::Of(TABLE, 3), FileName::Of(TABLE, 4)).unwrap();
                disk.rename(FileName::Of(TABLE, 4), FileName::Of(TABLE, 3)).unwrap();
            }
        });
    });
    for n in 0..4 {
        let mut bytes = [0; 100];
        disk.open(FileName::Of(TABLE, n)).unwrap().read_exact_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [n as u8; 100]);
    }
}
