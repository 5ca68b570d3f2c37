//! Nanoseconds of each primitive on its hot path, alone on a thread. A sanity check, not a benchmark:
//! `cargo run -p kvilt-sync --release --example speed`.
#![expect(clippy::disallowed_methods, reason = "measures time")]

use std::{hint::black_box, time::Instant};

use kvilt_base::{Direction, KeyRange, Kind, Source, Value, Version};
use kvilt_sync::{AppendBuffer, Pile, Published, RowCache, Versions, pin};

fn main() {
    read_paths();
    write_paths();
    pile("14-byte keys, random", 10_000, |i| format!("key{:011}", scatter(i)));
    pile("14-byte keys, ascending", 10_000, |i| format!("key{i:011}"));
    pile("24-byte keys, random", 200_000, |i| format!("app{:04}/{:016}", scatter(i) % 1000, scatter(i)));
    pile("24-byte keys, ascending", 200_000, |i| format!("app{:04}/{i:016}", 7));
}

fn read_paths() {
    let published = Published::new(7u64);
    measure("pin and load", 10_000_000, |_| {
        let pin = pin();
        black_box(*published.load(&pin));
    });
    let cache = RowCache::new(64 << 20);
    let keys: Vec<String> = (0..10_000).map(|i| format!("key{:011}", scatter(i))).collect();
    for key in &keys {
        assert!(cache.fill(cache.ticket(key.as_bytes()), key.as_bytes(), Some(Value::copied(&[7; 100]))));
    }
    measure("row cache hit", 1_000_000, |i| {
        black_box(cache.get(keys[i % keys.len()].as_bytes()));
    });
    measure("row cache write, cached", 1_000_000, |i| {
        cache.writing(keys[i % keys.len()].as_bytes()).written(Some(&[8; 100]));
    });
    measure("row cache write, not cached", 1_000_000, |i| {
        cache.writing(&i.to_be_bytes()).written(Some(&[8; 100]));
    });
}

fn write_paths() {
    let versions = Versions::new(Version::new(1, 0));
    measure("announce and retire", 10_000_000, |_| drop(black_box(versions.announce())));
    measure("announce and retire a batch", 10_000_000, |_| drop(black_box(versions.announce_batch())));
    measure("open and close a view", 10_000_000, |_| drop(black_box(versions.open_view())));
    let mut buffer = AppendBuffer::new(64 << 20);
    let record = [7u8; 100];
    for pass in ["append 100 bytes, fresh pages", "append 100 bytes"] {
        buffer.clear();
        measure(pass, buffer.capacity() / 100, |_| {
            black_box(buffer.append(black_box(&record)));
        });
    }
}

fn pile(name: &str, keys: usize, key: impl Fn(usize) -> String) {
    let keys: Vec<String> = (0..keys).map(key).collect();
    let hashes: Vec<u32> =
        (0..keys.len()).map(|i| (scatter(i) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as u32).collect();
    let pile = Pile::with_capacity(keys.len() * 300);
    measure(&format!("insert, {} {name}", keys.len()), keys.len(), |i| {
        let done = pile.insert(keys[i].as_bytes(), hashes[i], Version::new(1, 0), Kind::Put, 0, &[7; 100]);
        assert!(done.is_ok());
    });
    measure(&format!("find, {} {name}", keys.len()), 1_000_000, |i| {
        let at = scatter(i) % keys.len();
        black_box(pile.find(keys[at].as_bytes(), hashes[at], |_| true));
    });
    for direction in [Direction::Forward, Direction::Backward] {
        let mut source = pile.source(&KeyRange::all(), direction);
        measure(&format!("step {direction:?}, {} {name}", keys.len()), pile.len(), |_| {
            black_box(source.entry());
            source.advance().expect("memory does not fail");
        });
    }
}

fn measure(name: &str, times: usize, mut step: impl FnMut(usize)) {
    let start = Instant::now();
    for i in 0..times {
        step(i);
    }
    println!("{:8.1} ns  {name}", start.elapsed().as_nanos() as f64 / times as f64);
}

/// A permutation of small numbers that looks random.
fn scatter(i: usize) -> usize {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20) as usize % 100_000_000_000
}
