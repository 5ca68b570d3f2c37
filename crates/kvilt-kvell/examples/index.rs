//! What the index costs: bytes an item, and operations a second of one thread, with composite keys of 30
//! bytes.
//!
//! `cargo run --release -p kvilt-kvell --example index -- [KEYS]`; 10 million keys by default.

use std::{env, hint::black_box};

use kvilt_base::{Direction, KeyRange, key::successor};
use kvilt_kvell::{
    index::{Builder, Entries, Index},
    place::Place,
};

/// Threads of a user, and messages of a thread.
const FAN_OUT: (u64, u64) = (20, 50);

/// Entries of one walk.
const WALKED: usize = 100;

fn main() {
    let count = env::args().nth(1).map_or(10_000_000, |arg| arg.parse().expect("a number of keys"));
    let start_kib = resident_kib();
    println!("{count} keys of 30 bytes: user (8), thread (11), message (11)");

    let mut index = Index::new();
    rate("random inserts", count, || {
        (0..count).for_each(|i| assert_eq!(index.insert(&key(shuffle(i, count)), Place::new(1, i)), None));
    });
    tell(&index, start_kib);
    rate("random gets", count, || {
        for i in 0..count {
            assert!(black_box(index.get(&key(shuffle(i ^ 5, count)))).is_some() || i ^ 5 >= count);
        }
    });
    let mut out = Entries::new();
    for direction in [Direction::Forward, Direction::Backward] {
        rate(&format!("entries walked {direction:?}, {WALKED} at a time"), count, || {
            let mut range = KeyRange::all();
            loop {
                out.clear();
                index.walk(&range, direction, WALKED, &mut out);
                match (out.last_key(), direction) {
                    (None, _) => break,
                    (Some(last), Direction::Forward) => range.start = successor(last),
                    (Some(last), Direction::Backward) => range.end = Some(last.to_vec()),
                }
            }
        });
    }
    rate("random removes", count / 2, || {
        (0..count / 2).for_each(|i| assert!(index.remove(&key(shuffle(i, count))).is_some()));
    });
    tell(&index, start_kib);
    let mut taken = Index::new();
    rate("entries taken out as a range", index.len(), || taken = index.take_range(&KeyRange::all()));
    rate("entries drained, a thousand at a time", taken.len(), || {
        while !taken.is_empty() {
            out.clear();
            taken.take_first(1_000, &mut out);
        }
    });
    tell(&index, start_kib);

    rate("inserts in order", count, || {
        (0..count).for_each(|i| assert_eq!(index.insert(&key(i), Place::new(1, i)), None));
    });
    tell(&index, start_kib);
    drop(index);
    rate("keys made, without an index", count, || {
        (0..count).for_each(|i| assert!(black_box(key(shuffle(i, count)))[0] > 0));
    });
    let mut builder = Builder::new();
    rate("entries built in order", count, || {
        (0..count).for_each(|i| builder.push(&key(i), Place::new(1, i)))
    });
    tell(&builder.finish(), start_kib);
}

/// The key of number `i`: keys of neighbouring numbers are neighbours.
fn key(i: u64) -> [u8; 30] {
    let (threads, messages) = FAN_OUT;
    let mut key = *b"00000000|0000000000|0000000000";
    let (user, thread, message) = (i / messages / threads, i / messages * 7_919, i * 104_729);
    for (mut at, mut n) in [(8, user), (19, thread), (30, message)] {
        while n > 0 {
            key[at - 1] += (n % 10) as u8;
            (n, at) = (n / 10, at - 1);
        }
    }
    key
}

/// Number `i` of the numbers below `count` in an order that looks random.
fn shuffle(i: u64, count: u64) -> u64 {
    // A prime that divides no round count.
    (u128::from(i) * 6_180_339_887 % u128::from(count)) as u64
}

fn rate(what: &str, count: u64, work: impl FnOnce()) {
    let start = processor_seconds();
    work();
    println!("{:>8.2} M/s  {what}", count as f64 / (processor_seconds() - start) / 1e6);
}

/// Processor time of this thread, which others on the machine do not disturb as much as they do the clock.
fn processor_seconds() -> f64 {
    let times = proc_file("schedstat");
    let ns: f64 = times.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a Linux that counts time");
    ns / 1e9
}

fn tell(index: &Index, start_kib: u64) {
    let each = |bytes: u64| bytes as f64 / index.len().max(1) as f64;
    println!(
        "{:>8.1} bytes an item by its account, {:.1} resident ({} items, {} KiB resident)",
        each(index.bytes()),
        each((resident_kib() - start_kib) << 10),
        index.len(),
        resident_kib(),
    );
}

/// Resident memory of the process.
fn resident_kib() -> u64 {
    let status = proc_file("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .expect("a Linux that counts memory")
}

fn proc_file(name: &str) -> String {
    std::fs::read_to_string(format!("/proc/thread-self/{name}")).expect("only Linux has it")
}
