//! Measures what the store promises about memory, writes and open time, on real files.
//!
//! `cargo run --release -p kvilt --example measure_limits -- DIR [MEGABYTES] [BUDGET_MEGABYTES] [VALUE_BYTES]
//! [uniform|ascending|descending] [THREADS]`
//!
//! Puts rows with 14-byte keys until so many megabytes of keys and values are written, watching the process's
//! resident memory and, at its highest, what the budget says of it; then syncs, closes, and opens again.
//! Prints one figure a line. The directory must not exist; it is left behind.

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement reads /proc and the clock, and starts threads, itself"
)]

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use kvilt::{Db, Stats};

/// How often resident memory is looked at. The kernel's own highest value is exact; this is to know what it
/// was made of.
const LOOK_EVERY: Duration = Duration::from_millis(1);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What is put, and by how many.
#[derive(Clone, Copy)]
struct Plan {
    rows: u64,
    value_bytes: usize,
    order: Order,
    threads: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Uniform,
    Ascending,
    Descending,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |i: usize, default: u64| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let directory = arguments.get(1).ok_or("which directory?")?;
    let (megabytes, budget, value_bytes) = (number(2, 1024), number(3, 256) << 20, number(4, 800) as usize);
    let order = match arguments.get(5).map(String::as_str) {
        None | Some("uniform") => Order::Uniform,
        Some("ascending") => Order::Ascending,
        Some("descending") => Order::Descending,
        Some(other) => return Err(format!("{other} is no order: uniform, ascending or descending").into()),
    };
    let rows = (megabytes << 20) / (14 + value_bytes as u64);
    let plan = Plan { rows, value_bytes, order, threads: number(6, 1).max(1) };
    let open = || Db::builder(directory).memory_budget(budget).open();

    let db = open()?;
    let begun = Instant::now();
    let (longest_put, peak) = put_all(&db, plan)?;
    let seconds = begun.elapsed().as_secs_f64();
    let resident_max = proc_figure("status", "VmHWM:") >> 10;
    db.sync()?;
    print_writes(plan, seconds, longest_put);
    println!("resident memory max, MiB {resident_max:>12}  (allowed {})", (budget >> 20) * 115 / 100 + 64);
    print_peak(&peak);
    for kvilt::Figure { name, value: figure, .. } in db.stats().figures() {
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
    let found = look_some_up(&db, plan)?;
    println!("1000 first gets, ms      {:>12.2}  ({found} found)", getting.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// Puts all rows, each thread every so many of them; the longest put, and the figures when most was resident.
fn put_all(db: &Db, plan: Plan) -> Result<(Duration, Peak), Failure> {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(db, &is_done));
        let putters: Vec<_> =
            (0..plan.threads).map(|first| scope.spawn(move || put_some(db, plan, first))).collect();
        let outcomes: Vec<_> =
            putters.into_iter().map(|putter| putter.join().expect("a putter panicked")).collect();
        is_done.store(true, Ordering::Relaxed);
        let peak = watcher.join().expect("the watcher panicked");
        let longest =
            outcomes.into_iter().try_fold(Duration::ZERO, |longest, put| put.map(|put| longest.max(put)));
        Ok((longest?, peak))
    })
}

fn put_some(db: &Db, plan: Plan, first: u64) -> Result<Duration, kvilt::Error> {
    let mut value = vec![0u8; plan.value_bytes];
    let mut chance = Chance::new(first);
    let mut longest = Duration::ZERO;
    for n in (first..plan.rows).step_by(plan.threads as usize) {
        for eight in value.chunks_mut(8) {
            eight.copy_from_slice(&chance.next().to_le_bytes()[..eight.len()]);
        }
        let key = match plan.order {
            Order::Ascending => n,
            Order::Descending => plan.rows - n,
            Order::Uniform => chance.key(),
        };
        let begun = Instant::now();
        db.put(format!("{key:014}"), &value)?;
        longest = longest.max(begun.elapsed());
    }
    Ok(longest)
}

/// What was seen when most memory was resident.
#[derive(Default)]
struct Peak {
    resident_bytes: u64,
    stats: Stats,
}

fn watch(db: &Db, is_done: &AtomicBool) -> Peak {
    let mut peak = Peak::default();
    while !is_done.load(Ordering::Relaxed) {
        let resident_bytes = proc_figure("status", "VmRSS:") << 10;
        if resident_bytes > peak.resident_bytes {
            peak = Peak { resident_bytes, stats: db.stats() };
        }
        thread::sleep(LOOK_EVERY);
    }
    peak
}

fn print_writes(plan: Plan, seconds: f64, longest_put: Duration) {
    let user_bytes = plan.rows * (14 + plan.value_bytes as u64);
    let device = proc_figure("io", "write_bytes:") - proc_figure("io", "cancelled_write_bytes:");
    println!("puts a second            {:>12.0}", plan.rows as f64 / seconds);
    println!("longest put, us          {:>12}", longest_put.as_micros());
    println!("user bytes               {user_bytes:>12}");
    println!(
        "device bytes written     {device:>12}  ({:.3} of user bytes)",
        device as f64 / user_bytes as f64
    );
}

fn print_peak(peak: &Peak) {
    let parts = [
        ("munks", peak.stats["munk_bytes_now"]),
        ("row cache", peak.stats["row_cache_bytes_now"]),
        ("log indexes", peak.stats["log_index_bytes_now"]),
        ("tables", peak.stats["table_bytes_now"]),
        ("log buffers", peak.stats["log_buffer_bytes_now"]),
    ];
    let counted: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    println!("at the highest seen, MiB {:>12}", peak.resident_bytes >> 20);
    for (name, bytes) in parts {
        println!("  {name:<24} {:>12}", bytes >> 20);
    }
    println!("  {:<24} {:>12}", "not counted", peak.resident_bytes.saturating_sub(counted) >> 20);
}

/// Looks a thousand rows up; how many there were.
fn look_some_up(db: &Db, plan: Plan) -> Result<u64, kvilt::Error> {
    let mut chance = Chance::new(plan.threads);
    let mut found = 0;
    for n in 0..1000u64 {
        let key = match plan.order {
            Order::Uniform => chance.key(),
            Order::Ascending | Order::Descending => n * (plan.rows / 1000).max(1),
        };
        found += u64::from(db.get(format!("{key:014}"))?.is_some());
    }
    Ok(found)
}

/// Random numbers, the same in every run.
struct Chance(u64);

impl Chance {
    fn new(seed: u64) -> Self {
        Chance(0x9e37_79b9_7f4a_7c15 ^ seed << 32)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn key(&mut self) -> u64 {
        self.next() % 100_000_000_000_000
    }
}

fn proc_figure(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}
