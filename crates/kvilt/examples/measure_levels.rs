//! Measures what each level of durability costs, on real files.
//!
//! `cargo run --release -p kvilt --example measure_levels -- DIR [SECONDS] [VALUE_BYTES]`
//!
//! For each level and one and two threads: puts rows with 14-byte keys in random order for so many seconds
//! into a fresh store below DIR, and prints puts a second; bytes that this process made dirty and that were
//! not dropped again before the kernel wrote them (`write_bytes` less `cancelled_write_bytes` of
//! `/proc/self/io`), after a close, for each byte put; and the bytes handed to the commit log. First, what
//! one `write` of such a row costs.

#![expect(clippy::disallowed_methods, reason = "a measurement reads /proc and the clock itself")]
#![expect(clippy::disallowed_types, reason = "a measurement writes a file of its own")]

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use kvilt::{Db, Durability};

const KEY_BYTES: usize = 14;
const BUDGET: u64 = 256 << 20;

fn io_figure(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn device_bytes() -> u64 {
    io_figure("write_bytes:").saturating_sub(io_figure("cancelled_write_bytes:"))
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Puts until the time is up; says how many.
fn put(db: &Db, seed: u64, value_bytes: usize, time: Duration) -> Result<u64, kvilt::Error> {
    let mut state = seed;
    let mut value = vec![0u8; value_bytes];
    let begun = Instant::now();
    let mut puts = 0;
    while begun.elapsed() < time {
        for _ in 0..16 {
            for eight in value.chunks_mut(8) {
                eight.copy_from_slice(&next(&mut state).to_le_bytes()[..eight.len()]);
            }
            db.put(format!("{:014}", next(&mut state) % 100_000_000_000_000), &value)?;
            puts += 1;
        }
    }
    Ok(puts)
}

fn measure_write(directory: &Path, bytes: usize) -> std::io::Result<()> {
    const COUNT: u64 = 50_000;
    let path = directory.join("measure-write");
    let file = File::create(&path)?;
    let row = vec![7u8; bytes];
    let begun = Instant::now();
    for i in 0..COUNT {
        file.write_all_at(&row, i * bytes as u64)?;
    }
    let nanos = begun.elapsed().as_nanos() / u128::from(COUNT);
    std::fs::remove_file(path)?;
    println!("one write of {bytes} bytes: {nanos} ns");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |i: usize, default: u64| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let directory = Path::new(arguments.get(1).ok_or("which directory?")?);
    let (time, value_bytes) = (Duration::from_secs(number(2, 4)), number(3, 800) as usize);
    std::fs::create_dir_all(directory)?;
    measure_write(directory, value_bytes + 30)?;

    let interval = Duration::from_millis(500);
    let levels = [("async", Durability::Async { interval }), ("sync", Durability::Sync)];
    println!("level    threads   puts/s   device bytes/byte put   commit log bytes/byte put");
    for (name, level) in levels {
        for threads in [1, 2] {
            let path = directory.join(format!("{name}-{threads}"));
            let db = Db::builder(&path).memory_budget(BUDGET).durability(level).open()?;
            let device_before = device_bytes();
            let puts = std::thread::scope(|scope| {
                let writers: Vec<_> = (1..=threads)
                    .map(|seed| {
                        let db = &db;
                        scope.spawn(move || put(db, seed * 0x9e37_79b9_7f4a_7c15, value_bytes, time))
                    })
                    .collect();
                writers.into_iter().map(|w| w.join().expect("no panic")).sum::<Result<u64, _>>()
            })?;
            let stats = db.stats();
            db.close()?;
            drop(db);
            let bytes = (puts * (KEY_BYTES + value_bytes) as u64) as f64;
            println!(
                "{name:<8} {threads:>7} {:>8.0} {:>23.2} {:>27.2}",
                puts as f64 / time.as_secs_f64(),
                (device_bytes() - device_before) as f64 / bytes,
                stats["commit_bytes_written"] as f64 / bytes
            );
            std::fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}
