//! Micro-benchmarks: single steps of the engine, each alone on a thread. `cargo bench -p kvilt-even --bench
//! paths`.
//!
//! What lies below the engine is measured directly, and what only the engine has through a store that does
//! nothing else: a munk is a store whose budget is plenty, an index lookup a get of a key that is not there
//! among many chunks.
#![expect(clippy::unwrap_used, reason = "a benchmark ends when something fails")]

use std::{hint::black_box, ops::ControlFlow, sync::Arc, time::Duration};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kvilt_base::{
    Budget, Direction, Disk, Durability, Engine, EntryRef, FileName, KeyRange, Kind, Rows, Source, Value,
    Version, World,
};
use kvilt_even::{KINDS, Options};
use kvilt_format::{
    FileIdentity,
    log::encode_record,
    names::TABLE,
    table::{Table, TableOptions, TableWriter},
};
use kvilt_io::{MemoryDisk, NativeClock, NativeDisk, NativeRng, NativeSpawn};
use kvilt_sync::{AppendBuffer, Pile, RowCache};

/// Bytes of a value, as in the benchmark's workloads.
const VALUE: [u8; 800] = [7; 800];
/// Rows of a munk or table: about as many as a chunk has.
const ROWS: usize = 8_000;
const ORDERS: [&str; 3] = ["ascending", "descending", "random"];

criterion_group!(paths, tail, munk, index, log, table, row_cache, checkpoint);
criterion_main!(paths);

/// Keys of 14 bytes, in an order by its name.
fn keys(order: &str, count: usize) -> Vec<Vec<u8>> {
    let number = |i: usize| match order {
        "ascending" => i,
        "descending" => count - i,
        _ => scattered(i),
    };
    (0..count).map(|i| format!("k{:013}", number(i)).into_bytes()).collect()
}

/// A permutation of small numbers that looks random.
fn scattered(i: usize) -> usize {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20) as usize % 10_000_000_000_000
}

/// What of a munk takes new rows.
fn tail(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tail");
    group.throughput(Throughput::Elements(ROWS as u64));
    for order in ORDERS {
        let keys = keys(order, ROWS);
        let hashes: Vec<u32> = (0..ROWS).map(|i| (scattered(i) as u32).wrapping_mul(0x9e37_79b9)).collect();
        let fill = |pile: Pile| {
            for (key, hash) in keys.iter().zip(&hashes) {
                pile.insert(key, *hash, Version::new(1, 0), Kind::Put, 0, &VALUE).unwrap();
            }
            pile
        };
        let empty = || Pile::with_capacity(ROWS * 1000);
        group.bench_function(BenchmarkId::new("insert", order), |bencher| {
            bencher.iter_batched(empty, fill, BatchSize::PerIteration);
        });
        let full = fill(empty());
        group.bench_function(BenchmarkId::new("find", order), |bencher| {
            let is_found = |(key, hash): &(&Vec<u8>, &u32)| full.find(key, **hash, |_| true).is_some();
            bencher.iter(|| keys.iter().zip(&hashes).filter(is_found).count());
        });
    }
    group.finish();
}

/// A store of its own in a directory of its own.
struct Bed {
    engine: Arc<dyn Engine>,
    _directory: tempfile::TempDir,
}

impl Bed {
    fn new(budget_bytes: u64, chunk_bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let disk = NativeDisk::open(&directory.path().join("store"), KINDS, true).unwrap();
        let world = World {
            clock: Arc::new(NativeClock::new()),
            rng: Arc::new(NativeRng::new().unwrap()),
            spawn: Arc::new(NativeSpawn::new()),
            budget: Budget::new(budget_bytes),
        };
        let mut options = Options::default();
        options.chunk_bytes_max = chunk_bytes;
        options.chunk_bytes_rebalance = chunk_bytes / 10 * 7;
        options.chunk_bytes_min = chunk_bytes / 10;
        // Nothing is made durable but when a benchmark asks for it.
        options.settings.durability = Durability::Async { interval: Duration::from_secs(3600) };
        Bed { engine: kvilt_even::open(disk, world, options).unwrap(), _directory: directory }
    }

    /// Shows all rows.
    fn scan(&self, rows: &mut dyn Rows) {
        let view = self.engine.view().unwrap();
        let mut left = Some(KeyRange::all());
        while let Some(range) = left {
            left = self.engine.scan(&view, &range, Direction::Forward, rows).unwrap().left();
        }
    }
}

/// Rows in memory, through the whole engine.
fn munk(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("munk");
    for order in ORDERS {
        let keys = keys(order, ROWS);
        group.throughput(Throughput::Elements(ROWS as u64));
        group.bench_function(BenchmarkId::new("insert", order), |bencher| {
            bencher.iter_batched(
                || Bed::new(256 << 20, 10 << 20),
                |bed| {
                    keys.iter().for_each(|key| bed.engine.put(key, &VALUE).unwrap());
                    bed
                },
                BatchSize::PerIteration,
            );
        });
        let bed = Bed::new(256 << 20, 10 << 20);
        keys.iter().for_each(|key| bed.engine.put(key, &VALUE).unwrap());
        group.bench_function(BenchmarkId::new("get", order), |bencher| {
            bencher.iter(|| {
                let mut sum = 0;
                let mut found = |value: &[u8]| sum += u64::from(value[0]);
                keys.iter().for_each(|key| assert!(bed.engine.get_with(key, None, &mut found).unwrap()));
                sum
            });
        });
        group.bench_function(BenchmarkId::new("scan", order), |bencher| {
            bencher.iter(|| {
                let mut bytes = 0;
                bed.scan(&mut |_: &[u8], value: &[u8]| {
                    bytes += value.len();
                    ControlFlow::Continue(())
                });
                assert_eq!(bytes, ROWS * VALUE.len());
            });
        });
        assert_eq!(bed.engine.stats().gets, bed.engine.stats()["gets_from_munk"], "all of it is in memory");
    }
    group.finish();
}

/// The way to a chunk, and the answer that it has no such key.
fn index(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("index");
    for chunks in [1, 10_000] {
        let bed = many_chunks(chunks);
        let absent: Vec<Vec<u8>> = keys("random", 1000);
        group.throughput(Throughput::Elements(1000));
        group.bench_function(BenchmarkId::new("lookup", bed.engine.stats()["chunks_now"]), |bencher| {
            bencher.iter(|| {
                absent.iter().filter(|key| bed.engine.get_with(key, None, &mut |_| {}).unwrap()).count()
            });
        });
    }
    group.finish();
}

/// A store of at least this many chunks.
fn many_chunks(chunks: u64) -> Bed {
    let bed = Bed::new(1 << 30, 4 << 10);
    let mut i = 0;
    while bed.engine.stats()["chunks_now"] < chunks {
        for _ in 0..1000 {
            bed.engine.put(format!("k{i:013}").as_bytes(), &[7; 300]).unwrap();
            i += 1;
        }
    }
    bed
}

/// Encoding a record and appending it to a buffer.
fn log(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("log");
    group.throughput(Throughput::Elements(ROWS as u64));
    let keys = keys("random", ROWS);
    let id = FileIdentity { store_id: 1, number: 2 };
    group.bench_function("append", |bencher| {
        let mut buffer = AppendBuffer::new(ROWS * 1000);
        let mut record = Vec::new();
        bencher.iter(|| {
            buffer.clear();
            for key in &keys {
                record.clear();
                let version = Version::new(1, 0);
                let entry = EntryRef { key, version, kind: Kind::Put, value: &VALUE };
                encode_record(&mut record, id, buffer.len() as u64, version, entry, 0);
                buffer.append(black_box(&record)).unwrap();
            }
        });
    });
    group.finish();
}

/// A get and a short scan of a table whose file is in memory.
fn table(criterion: &mut Criterion) {
    let keys = keys("ascending", ROWS);
    let file = MemoryDisk::new(1).create(FileName::Of(TABLE, 2)).unwrap();
    let id = FileIdentity { store_id: 1, number: 2 };
    let mut writer = TableWriter::new(Arc::clone(&file), id, TableOptions::default());
    for key in &keys {
        writer.add(EntryRef { key, version: Version::new(1, 0), kind: Kind::Put, value: &VALUE }).unwrap();
    }
    let len = writer.finish().unwrap().len;
    let table = Arc::new(Table::open(file, id, len).unwrap());
    let mut group = criterion.benchmark_group("table");
    group.throughput(Throughput::Elements(1000));
    let wanted = || (0..1000).map(|i| &keys[scattered(i) % ROWS]);
    group.bench_function("get", |bencher| {
        bencher
            .iter(|| wanted().filter(|key| table.get(key, Version::NEWEST, |_, _, _| {}).unwrap()).count());
    });
    group.bench_function("seek", |bencher| {
        bencher.iter(|| {
            for key in wanted() {
                let range = KeyRange { start: key.clone(), end: None };
                let source = table.source(&range, Direction::Forward).unwrap();
                assert!(black_box(source.entry()).is_some());
            }
        });
    });
    group.finish();
}

fn row_cache(criterion: &mut Criterion) {
    let cache = RowCache::new(64 << 20);
    let keys = keys("random", ROWS);
    for key in &keys {
        assert!(cache.fill(cache.ticket(key), key, Some(Value::copied(&VALUE))));
    }
    let mut group = criterion.benchmark_group("row cache");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("hit", |bencher| {
        bencher.iter(|| keys.iter().filter(|key| cache.get(key).is_some()).count());
    });
    group.bench_function("write", |bencher| {
        bencher.iter(|| keys.iter().for_each(|key| cache.writing(key).written(Some(&VALUE))));
    });
    group.finish();
}

/// A checkpoint after a put to each of ten thousand chunks.
fn checkpoint(criterion: &mut Criterion) {
    let bed = many_chunks(10_000);
    bed.engine.sync().unwrap();
    let mut rows = Vec::new();
    bed.scan(&mut |key: &[u8], _: &[u8]| {
        rows.push(key.to_vec());
        ControlFlow::Continue(())
    });
    let apart = (rows.len() / 10_000).max(1);
    let mut group = criterion.benchmark_group("checkpoint");
    group.sample_size(10);
    group.bench_function("10000 dirty logs", |bencher| {
        bencher.iter_batched(
            || rows.iter().step_by(apart).for_each(|key| bed.engine.put(key, &[8; 300]).unwrap()),
            |()| bed.engine.sync().unwrap(),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}
