//! Several threads on a store whose memory tables are so small that they are rotated, flushed and merged all
//! the time: no get goes back to an older value, or finds none, and no check finds damage.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use kvilt_base::{
    Budget, Direction, Disk, Durability, Engine as _, KeyRange, Scanned, Settings, Version, World, WriteBatch,
};
use kvilt_io::{MemoryDisk, NativeClock, NativeSpawn, SeededRng};

use crate::{Options, engine::Teks, recovery, store::Store};

const KEYS: usize = 4000;
const WRITERS: usize = 2;
const ROUNDS: u64 = 100;

/// A writer that has ended, or has panicked.
struct Ended<'w>(&'w AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn key(number: usize) -> Vec<u8> {
    (number as u64).to_be_bytes().to_vec()
}

fn value_at(store: &Store, number: usize) -> Option<u64> {
    let mut found = None;
    store
        .find(&key(number), Version::NEWEST, &mut |value| {
            found = Some(u64::from_le_bytes(value[..8].try_into().unwrap()));
        })
        .unwrap();
    found
}

/// A store with memory tables of few rows.
fn open(disk: &Arc<MemoryDisk>) -> (Arc<Store>, Teks) {
    let mut settings = Settings::default();
    settings.durability = Durability::Async { interval: Duration::from_millis(50) };
    let world = World {
        clock: Arc::new(NativeClock::new()),
        rng: Arc::new(SeededRng::new(7)),
        spawn: Arc::new(NativeSpawn),
        budget: Budget::new(1 << 20),
    };
    let options = Options { row_bytes: 4096, ..Options::default() };
    let disk: Arc<dyn Disk> = Arc::clone(disk) as _;
    let (store, lock) = recovery::open(disk, &world, &options, &settings).unwrap();
    let db = Teks::new((Arc::clone(&store), lock));
    (store, db)
}

/// A range delete that comes while a merge is under way is named by the catalogue that the merge writes, or
/// its record is in the log: a flush may have ended meanwhile.
#[test]
fn a_range_delete_between_a_merge_and_a_flush_outlives_a_close() {
    const DELETED: usize = 40;
    let disk = MemoryDisk::new(1);
    for life in 0..60u64 {
        let (store, db) = open(&disk);
        let is_over = AtomicUsize::new(0);
        let wait_for_more = |counter: &AtomicU64, count: u64| {
            let before = counter.load(Ordering::Relaxed);
            while counter.load(Ordering::Relaxed) < before + count {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in (1000..3000).cycle().take_while(|_| is_over.load(Ordering::Relaxed) == 0) {
                    store.put(&key(number), Some(&[7; 1500])).unwrap();
                }
            });
            (0..DELETED).for_each(|number| store.put(&key(number), Some(&life.to_le_bytes())).unwrap());
            wait_for_more(&store.counters.flushes, 4 + life % 7);
            store.delete_range(&KeyRange { start: key(0), end: Some(key(DELETED)) }).unwrap();
            wait_for_more(&store.counters.flushes, 2);
            wait_for_more(&store.counters.merges, 1);
            is_over.store(1, Ordering::Relaxed);
        });
        db.close().unwrap();
        drop((store, db));
        let (store, db) = open(&disk);
        let left: Vec<_> = (0..DELETED).filter(|number| value_at(&store, *number).is_some()).collect();
        assert!(left.is_empty(), "life {life}: {left:?} were deleted");
        db.close().unwrap();
    }
}

/// What a scan shows of the first keys.
fn scanned(db: &Teks, keys: usize) -> Vec<Option<u64>> {
    let mut found = vec![None; keys];
    let view = db.view().unwrap();
    let range = KeyRange { start: key(0), end: Some(key(keys)) };
    let rows = &mut |key: &[u8], value: &[u8]| {
        let number = u64::from_be_bytes(key.try_into().unwrap()) as usize;
        found[number] = Some(u64::from_le_bytes(value[..8].try_into().unwrap()));
        ControlFlow::Continue(())
    };
    assert_eq!(db.scan(&view, &range, Direction::Forward, rows).unwrap(), Scanned::Ended);
    found
}

/// Of puts and deletes of one key that come at the same time, gets, scans and the next open after a kill take
/// the same one for the last.
#[test]
fn puts_of_one_key_side_by_side_leave_hash_list_and_log_in_agreement() {
    const FEW: usize = 8;
    const WRITES: u64 = 3000;
    for life in 0..5 {
        let disk = MemoryDisk::new(life);
        let (store, db) = open(&disk);
        thread::scope(|scope| {
            for writer in 0..3 {
                let store = &store;
                scope.spawn(move || {
                    for number in 0..WRITES {
                        let value = (writer * WRITES + number).to_le_bytes();
                        let is_delete = number % 5 == writer;
                        store.put(&key(number as usize % FEW), (!is_delete).then_some(&value[..])).unwrap();
                    }
                });
            }
        });
        let got = |store: &Store| (0..FEW).map(|number| value_at(store, number)).collect::<Vec<_>>();
        let left = got(&store);
        assert_eq!(scanned(&db, FEW), left, "life {life}: hash and list");
        let (after, db_after) = open(&disk.kill_image());
        assert_eq!(got(&after), left, "life {life}: log");
        assert_eq!(scanned(&db_after, FEW), left, "life {life}: log, by a scan");
        db_after.close().unwrap();
        db.close().unwrap();
    }
}

/// The published code shows half a batch to a scan.
#[test]
fn a_scan_shows_all_eight_rows_of_a_batch_or_none_of_them() {
    // One scan gives all rows.
    const BATCHES: usize = 100;
    const ROWS: usize = 8;
    let (store, db) = open(&MemoryDisk::new(3));
    let writing = AtomicUsize::new(WRITERS);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, writing) = (&db, &writing);
            scope.spawn(move || {
                let _ended = Ended(writing);
                for round in 1..=300_u64 {
                    for number in (writer..BATCHES).step_by(WRITERS) {
                        let mut batch = WriteBatch::new();
                        // Rows of a batch lie far apart.
                        for row in 0..ROWS {
                            batch.put(key(row * BATCHES + number), [round.to_le_bytes(), [0; 8]].concat());
                        }
                        db.write(batch).unwrap();
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while writing.load(Ordering::Relaxed) > 0 {
                    let found = scanned(&db, ROWS * BATCHES);
                    for number in 0..BATCHES {
                        let rows: Vec<_> = (0..ROWS).map(|row| found[row * BATCHES + number]).collect();
                        assert!(rows.iter().all(|row| *row == rows[0]), "batch {number}: {rows:?}");
                    }
                }
            });
        }
    });
    assert!(store.counters.flushes.load(Ordering::Relaxed) > 10);
    db.close().unwrap();
}

#[test]
fn a_get_never_goes_back_while_tables_are_rotated_flushed_and_merged() {
    let (store, db) = open(&MemoryDisk::new(1));
    let acknowledged: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let writing = AtomicUsize::new(WRITERS);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, acknowledged, writing) = (&store, &acknowledged, &writing);
            scope.spawn(move || {
                let _ended = Ended(writing);
                for round in 1..=ROUNDS {
                    for number in (writer..KEYS).step_by(WRITERS) {
                        let value = [round.to_le_bytes(), [0; 8]].concat();
                        store.put(&key(number), Some(&value)).unwrap();
                        acknowledged[number].store(round, Ordering::SeqCst);
                    }
                }
            });
        }
        // Segments of the log are synced, freed and used again under the check.
        scope.spawn(|| {
            while writing.load(Ordering::Relaxed) > 0 {
                assert_eq!(db.check(&mut |_| true).unwrap().damages, []);
                db.sync().unwrap();
            }
        });
        for reader in 0..2 {
            let (store, acknowledged, writing) = (&store, &acknowledged, &writing);
            scope.spawn(move || {
                let mut number = reader * 7;
                while writing.load(Ordering::Relaxed) > 0 {
                    number = (number + 61) % KEYS;
                    let least = acknowledged[number].load(Ordering::SeqCst);
                    let found = value_at(store, number).unwrap_or(0);
                    assert!(found >= least, "key {number}: {found} after {least}");
                }
            });
        }
    });
    assert!(store.counters.rotations.load(Ordering::Relaxed) > 100);
    // Writers wait for merges only when some twenty tables do.
    assert!(store.counters.merges.load(Ordering::Relaxed) > 2);
    db.close().unwrap();
}
