//! Measures what many stores in one `Env` cost that nobody uses: processor time, threads, memory, and to open
//! and close one more.
//!
//! `cargo run --release -p kvilt --example measure_idle -- DIR [STORES] [ROWS] [BUDGET_MEGABYTES] [VIEWS]`
//!
//! Opens so many stores, puts so many rows of 1,000 bytes to each, waits until they are at rest, and watches
//! them for ten seconds. Then closes them and opens them again, one by one. With VIEWS, each keeps a snapshot
//! meanwhile. Prints one figure a line. The directory must not exist; it is left behind.

#![expect(clippy::disallowed_methods, reason = "a measurement reads /proc and the clock itself")]

use std::{
    thread,
    time::{Duration, Instant},
};

use kvilt::{Db, Env};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// When all that was to be done behind the last write is done: looks at chunks go on for some 13 s.
const SETTLING: Duration = Duration::from_secs(16);
const WATCHED: Duration = Duration::from_secs(10);

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |i: usize, default: u64| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let directory = arguments.get(1).ok_or("which directory?")?;
    let (count, rows) = (number(2, 1000) as usize, number(3, 20));
    let env = Env::new(number(4, 64) << 20)?;
    let has_views = arguments.get(5).is_some();

    let resident_before = resident_bytes();
    let stores = open_all(directory, count, &env, "make")?;
    print_memory(&env, resident_before, "made");
    let begun = processor_seconds();
    for row in 0..rows {
        for db in &stores {
            db.put(row.to_be_bytes(), [1; 1000])?;
        }
    }
    println!("puts, processor s              {:>10.2}", processor_seconds() - begun);
    let views: Vec<_> = stores.iter().filter(|_| has_views).map(Db::snapshot).collect();
    let mut threads_most = 0;
    let settling = Instant::now();
    while settling.elapsed() < SETTLING {
        threads_most = threads_most.max(threads());
        thread::sleep(Duration::from_millis(20));
    }
    println!("while they settle, processor s {:>10.2}", processor_seconds() - begun);
    println!("while they settle, threads max {threads_most:>10}");
    print_memory(&env, resident_before, "at rest");
    watch(&stores);
    drop(views);
    close_all(stores)?;
    let stores = open_all(directory, count, &env, "open")?;
    thread::sleep(SETTLING);
    print_memory(&env, resident_before, "opened, at rest");
    watch(&stores);
    close_all(stores)
}

fn open_all(directory: &str, count: usize, env: &Env, what: &str) -> Result<Vec<Db>, Failure> {
    let mut stores = Vec::with_capacity(count);
    let mut last = Vec::new();
    let begun = Instant::now();
    for i in 0..count {
        let begun = Instant::now();
        stores.push(Db::builder(format!("{directory}/store-{i}")).env(env).open()?);
        last.push(begun.elapsed());
    }
    let mut last = last.split_off(count.saturating_sub(100));
    last.sort_unstable();
    println!(
        "to {what} one, ms on average       {:>10.2}",
        begun.elapsed().as_secs_f64() * 1e3 / count as f64
    );
    println!("to {what} one of the last 100, ms  {:>10.2}", last[last.len() / 2].as_secs_f64() * 1e3);
    Ok(stores)
}

fn close_all(stores: Vec<Db>) -> Result<(), Failure> {
    let (begun, count) = (Instant::now(), stores.len());
    for db in stores {
        db.close()?;
    }
    println!("to close one, ms on average    {:>10.2}", begun.elapsed().as_secs_f64() * 1e3 / count as f64);
    Ok(())
}

fn watch(stores: &[Db]) {
    let steps = || stores.iter().map(|db| db.stats().background_steps).sum::<u64>();
    let steps_before = steps();
    let before = processor_seconds();
    thread::sleep(WATCHED);
    println!(
        "at rest, cores                 {:>10.4}",
        (processor_seconds() - before) / WATCHED.as_secs_f64()
    );
    println!("at rest, steps of workers      {:>10}", steps() - steps_before);
    println!("at rest, threads               {:>10}", threads());
}

fn print_memory(env: &Env, resident_before: u64, when: &str) {
    let used = env.memory_used_bytes() >> 10;
    println!("{when}, KiB of the budget's {} {used:>10}", env.memory_budget_bytes() >> 10);
    println!("{when}, KiB resident more {:>10}", resident_bytes().saturating_sub(resident_before) >> 10);
}

fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    // The kernel counts hundredths, whatever its own clock does.
    (ticks(11) + ticks(12)) / 100.0
}

fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|figure| figure.parse().ok()).unwrap_or(0)
}

fn resident_bytes() -> u64 {
    status("VmRSS:") << 10
}

fn threads() -> u64 {
    status("Threads:")
}
