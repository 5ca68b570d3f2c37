//! Measures what the store promises about memory, writes and open time, on real files.
//!
//! `cargo run --release -p kvilt --example measure_limits -- DIR [MEGABYTES] [BUDGET_MEGABYTES] [VALUE_BYTES] [uniform|ascending|descending]`
//!
//! Puts rows with 14-byte keys until so many megabytes of keys and values are written, watching the process's
//! resident memory; then syncs, closes, and opens again; then once more after a writer was killed. Prints one
//! figure a line. The directory must not exist; it is left behind.

#![expect(clippy::disallowed_methods, reason = "a measurement reads /proc and the clock itself")]

use std::time::Instant;

use kvilt::Db;

fn proc_figure(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |i: usize, default: u64| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let directory = arguments.get(1).ok_or("which directory?")?;
    let (megabytes, budget, value_bytes) = (number(2, 1024), number(3, 256) << 20, number(4, 800) as usize);
    let order = arguments.get(5).map_or("uniform", String::as_str);
    let open = || Db::builder(directory).memory_budget(budget).open();

    let db = open()?;
    let rows = (megabytes << 20) / (14 + value_bytes as u64);
    let mut value = vec![0u8; value_bytes];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let begun = Instant::now();
    let (mut rss_max, mut worst_us) = (0, 0);
    for n in 0..rows {
        for eight in value.chunks_mut(8) {
            eight.copy_from_slice(&next().to_le_bytes()[..eight.len()]);
        }
        let key = match order {
            "ascending" => n,
            "descending" => rows - n,
            _ => next() % 100_000_000_000_000,
        };
        let put_begun = Instant::now();
        db.put(format!("{key:014}"), &value)?;
        worst_us = worst_us.max(put_begun.elapsed().as_micros());
        if n % 4096 == 0 {
            rss_max = rss_max.max(proc_figure("status", "VmRSS:") >> 10);
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    db.sync()?;
    let user_bytes = rows * (14 + value_bytes as u64);
    let device = proc_figure("io", "write_bytes:") - proc_figure("io", "cancelled_write_bytes:");
    println!("puts a second            {:>12.0}", rows as f64 / seconds);
    println!("longest put, us          {worst_us:>12}");
    println!("user bytes               {user_bytes:>12}");
    println!(
        "device bytes written     {device:>12}  ({:.3} of user bytes)",
        device as f64 / user_bytes as f64
    );
    println!("resident memory max, MiB {rss_max:>12}  (allowed {})", (budget >> 20) * 115 / 100 + 64);
    for (name, figure) in db.stats().figures() {
        println!("  {name:<24} {figure:>12}");
    }
    let closing = Instant::now();
    db.close()?;
    println!("close, ms                {:>12.1}", closing.elapsed().as_secs_f64() * 1e3);
    drop(db);
    let opening = Instant::now();
    let db = open()?;
    println!("open after close, ms     {:>12.2}", opening.elapsed().as_secs_f64() * 1e3);
    let getting = Instant::now();
    let mut found = 0;
    for n in 0..1000u64 {
        let key = if order == "uniform" { next() % 100_000_000_000_000 } else { n * (rows / 1000).max(1) };
        found += u64::from(db.get(format!("{key:014}"))?.is_some());
    }
    println!("1000 first gets, ms      {:>12.2}  ({found} found)", getting.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
