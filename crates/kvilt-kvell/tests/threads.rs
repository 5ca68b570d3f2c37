//! Several threads on a store: who waits for whom (K-1, K-7, K-8).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use std::{
    any::Any,
    io,
    sync::{Arc, Condvar, Mutex},
    thread,
};

use bed::{ASYNC, SYNC, key, open_with, rows, rows_of};
use kvilt_base::{
    Disk, Engine, File, FileName, KeyRange, Listed, Mapping, Queue,
    disk::{Habitat, LockFailure},
};
use kvilt_format::names::SLAB;
use kvilt_io::MemoryDisk;

/// Whether reads of slabs are held back, and how many are.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, is_shut: bool) {
        self.state.lock().unwrap().0 = is_shut;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.0).unwrap();
        state.1 -= 1;
    }

    fn wait_for_one(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |state| state.1 == 0).unwrap());
    }
}

/// A disk with a gate before the reads of its slabs.
#[derive(Debug)]
struct Gated {
    inside: Arc<MemoryDisk>,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct GatedFile {
    inside: Arc<dyn File>,
    gate: Arc<Gate>,
}

impl Gated {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(GatedFile { inside: file, gate: Arc::clone(&self.gate) })
    }
}

impl Disk for Gated {
    fn create(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        Ok(self.file(self.inside.create(name)?))
    }
    fn open(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        Ok(self.file(self.inside.open(name)?))
    }
    fn rename(&self, from: FileName, to: FileName) -> io::Result<()> {
        self.inside.rename(from, to)
    }
    fn remove(&self, name: FileName) -> io::Result<()> {
        self.inside.remove(name)
    }
    fn list(&self) -> io::Result<Vec<Listed>> {
        self.inside.list()
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.inside.sync_dir()
    }
    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        self.inside.lock()
    }
    fn new_directory(&self, path: &std::path::Path) -> io::Result<Arc<dyn Disk>> {
        self.inside.new_directory(path)
    }
    fn link(&self, name: FileName, into: &dyn Disk) -> io::Result<()> {
        self.inside.link(name, into)
    }
    fn queue(&self, depth: usize) -> io::Result<Arc<dyn Queue>> {
        self.inside.queue(depth)
    }
    fn habitat(&self) -> io::Result<Habitat> {
        self.inside.habitat()
    }
    fn now_ns(&self) -> u64 {
        self.inside.now_ns()
    }
    fn place(&self) -> String {
        self.inside.place()
    }
}

impl File for GatedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if self.name().kind() == SLAB {
            self.gate.pass();
        }
        self.inside.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.inside.write_at(offset, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.inside.sync()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.inside.allocate(len)
    }
    fn map(&self, offset: u64, len: usize) -> io::Result<Arc<Mapping>> {
        self.inside.map(offset, len)
    }
    fn changed_ns(&self) -> io::Result<u64> {
        self.inside.changed_ns()
    }
    fn len(&self) -> io::Result<u64> {
        self.inside.len()
    }
    fn name(&self) -> FileName {
        self.inside.name()
    }
    fn behind(&self) -> Option<&Arc<dyn File>> {
        Some(&self.inside)
    }
}

/// K-7: one thread's read hangs in the drive. Of the same shard, cached rows are read, others are put, keys
/// without a row are looked up, and a snapshot is taken.
#[test]
fn a_read_that_hangs_stops_nobody_else() {
    let disk = MemoryDisk::new(3);
    let large = vec![7; 100 << 10];
    {
        let db = open_with(disk.clone(), 1, ASYNC).unwrap();
        db.put(b"large", &large).unwrap();
        db.put(b"small", b"1").unwrap();
        db.close().unwrap();
    }
    let gate = Arc::new(Gate::default());
    let db = open_with(Arc::new(Gated { inside: disk, gate: Arc::clone(&gate) }), 1, ASYNC).unwrap();
    let get = |key: &[u8]| {
        let mut found = None;
        db.get_with(key, None, &mut |value| found = Some(value.to_vec())).unwrap();
        found
    };
    assert_eq!(get(b"small").unwrap(), b"1");
    gate.set(true);
    thread::scope(|scope| {
        let hanging = scope.spawn(|| get(b"large"));
        gate.wait_for_one();
        assert_eq!(get(b"small").unwrap(), b"1");
        assert_eq!(get(b"none"), None);
        db.put(b"small", b"2").unwrap();
        assert_eq!(get(b"small").unwrap(), b"2");
        drop(db.view().unwrap());
        db.sync().unwrap();
        assert!(!hanging.is_finished());
        gate.set(false);
        assert_eq!(hanging.join().unwrap().unwrap(), large);
    });
}

/// K-8: threads put, delete and swap the same few keys and delete ranges of them. What there is at the end is
/// what a recovery finds, which goes by the numbers of the writes. K-1: the disk refuses transfers that
/// overlap, and all keys share a few pages.
#[test]
fn a_recovery_applies_the_writes_of_a_key_in_the_order_that_readers_saw() {
    const THREADS: u32 = 4;
    const KEYS: u32 = 6;
    for (seed, durability) in [(1, ASYNC), (2, SYNC), (3, ASYNC), (4, SYNC)] {
        let disk = MemoryDisk::new(seed);
        let db = open_with(disk.clone(), 2, durability).unwrap();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let db = &*db;
                scope.spawn(move || work(db, thread, KEYS));
            }
        });
        let before = rows(&*db);
        assert_eq!(rows_of(disk.kill_image()), before, "seed {seed}");
        db.sync().unwrap();
        assert_eq!(rows_of(disk.crash_image(kvilt_io::Keep::SyncedOnly)), before, "seed {seed}");
    }
}

/// A store is closed among writers: what returned is there when it is opened, whatever the snapshots say.
#[test]
fn a_close_among_writers_loses_nothing_that_returned() {
    for seed in 0..24 {
        let disk = MemoryDisk::new(seed);
        let db = open_with(disk.clone(), 2, ASYNC).unwrap();
        let written: Vec<u32> = thread::scope(|scope| {
            let writer = |thread: u32| {
                let db = &db;
                scope.spawn(move || {
                    let mut last = 0;
                    for i in 1_u32.. {
                        let mut batch = kvilt_base::WriteBatch::new();
                        for j in 0..6 {
                            batch.put(key(thread * 10 + j), i.to_be_bytes());
                        }
                        match db.write(batch) {
                            Ok(()) => last = i,
                            Err(_) => break,
                        }
                    }
                    last
                })
            };
            let writers: Vec<_> = (0..3).map(writer).collect();
            (0..seed * 20).for_each(|_| thread::yield_now());
            db.close().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let found = rows_of(disk);
        for (thread, last) in written.into_iter().enumerate().filter(|(_, last)| *last > 0) {
            for j in 0..6 {
                let key = key(thread as u32 * 10 + j);
                assert_eq!(found[&key], last.to_be_bytes(), "seed {seed}, key {key:?}");
            }
        }
    }
}

fn work(db: &dyn Engine, thread: u32, keys: u32) {
    for i in 0..250_u32 {
        let number = i.wrapping_mul(2_654_435_761).wrapping_add(thread * 40_503) >> 7;
        let key_of = key(number % keys);
        match number % 16 {
            0 => db.delete(&key_of).unwrap(),
            1 => {
                let range = KeyRange { start: key_of, end: Some(key(number % keys + 2)) };
                db.delete_range(&range).unwrap();
            }
            2 => db.sync().unwrap(),
            3 => {
                let mut batch = kvilt_base::WriteBatch::new();
                for j in 0..3 {
                    batch.put(key((number + j) % keys), [thread as u8, i as u8, 9]);
                }
                db.write(batch).unwrap();
            }
            4 => {
                db.compare_and_swap(&key_of, None, Some(b"was nothing")).unwrap();
            }
            _ => db.put(&key_of, &[thread as u8, i as u8]).unwrap(),
        }
    }
}
