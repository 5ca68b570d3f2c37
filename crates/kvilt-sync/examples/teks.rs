//! The table of engine `teks` beside its hash alone and beside crossbeam's skip list: a million rows of 16
//! and 256 bytes, in random order. Medians of some rounds; the contestants take turns.
//! `cargo run -p kvilt-sync --release --example teks [rows [rounds [name]]]`.
//!
//! A put announces itself and a scan opens a view, as an engine does it. Of the hash alone the list is never
//! woven. Crossbeam's list replaces values in place and knows no versions.
#![expect(clippy::disallowed_methods, reason = "measures time, with threads")]
#![expect(clippy::unwrap_used, reason = "an example")]

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_skiplist::SkipMap;
use kvilt_base::{Direction, EntryRef, KeyRange, Kind, Source, Version};
use kvilt_sync::{
    Versions, pin,
    teks::{TeksOptions, TeksSteps, TeksTable},
};

type Key = [u8; 16];
const VALUE: [u8; 256] = [7; 256];
/// Rows that a seek reads.
const NEXT: usize = 10;
const VERSIONS: usize = 4;
/// Keys that the weaver takes before it looks whether the round is over.
const WOVEN_AT_ONCE: usize = 64;
const WEAVER_RESTS: Duration = Duration::from_micros(50);

/// Something to be measured.
trait Contestant: Sync {
    fn put(&self, key: &Key);
    fn get(&self, key: &Key);
    /// Reads some rows from a key on; returns their number.
    fn seek(&self, key: &[u8], rows: usize) -> usize;
    /// For a thread of the background; whether there was anything to do.
    fn work(&self) -> bool {
        false
    }
    fn bytes(&self) -> usize {
        0
    }
}

struct Teks {
    table: TeksTable,
    versions: Arc<Versions>,
    has_list: bool,
}

impl Teks {
    fn make(rows: usize, steps: TeksSteps, has_list: bool, versions: usize) -> Box<dyn Contestant> {
        let arena_bytes = rows * versions * 350 + (1 << 20);
        let options = TeksOptions { arena_bytes, slots: rows * 4 / 3, hash_key: [3; 16], steps };
        let versions = Versions::new(Version::new(1, 0));
        Box::new(Teks { table: TeksTable::new(&options).unwrap(), versions, has_list })
    }
}

impl Contestant for Teks {
    fn put(&self, key: &Key) {
        let pending = self.versions.announce();
        let entry = EntryRef { key, version: pending.version(), kind: Kind::Put, value: &VALUE };
        self.table.put(entry, 0, &*self.versions).unwrap();
        drop(pending);
        self.table.relieve();
    }

    fn get(&self, key: &Key) {
        let pin = pin();
        let found = self.table.under(&pin).get(key, Version::NEWEST, &*self.versions);
        black_box(found.unwrap().value[255]);
    }

    fn seek(&self, key: &[u8], rows: usize) -> usize {
        let view = self.versions.open_view();
        let pin = pin();
        let range = KeyRange { start: key.to_vec(), end: None };
        let versions = &*self.versions;
        let mut source = self.table.under(&pin).rows(&range, Direction::Forward, view.version(), versions);
        let mut read = 0;
        while let Some(entry) = source.entry() {
            black_box(entry.value[255]);
            read += 1;
            if read == rows {
                break;
            }
            source.advance().unwrap();
        }
        read
    }

    fn work(&self) -> bool {
        self.has_list && self.table.weave(WOVEN_AT_ONCE) > 0
    }

    fn bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

impl Contestant for SkipMap<Key, Box<[u8; 256]>> {
    fn put(&self, key: &Key) {
        self.insert(*key, Box::new(VALUE));
    }

    fn get(&self, key: &Key) {
        // A put of a key takes the old entry out first, so beside a writer there may be none.
        black_box(SkipMap::get(self, key).map(|row| row.value()[255]));
    }

    fn seek(&self, key: &[u8], rows: usize) -> usize {
        let mut start = [0; 16];
        start[..key.len()].copy_from_slice(key);
        let read = self.range(start..).take(rows).map(|row| black_box(usize::from(row.value()[255] > 0)));
        read.sum()
    }
}

/// Millions of operations a second, by the name of the work, each with one number a round.
type Figures = Vec<(&'static str, Vec<f64>)>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |nth: usize, usual| arguments.get(nth).map_or(usual, |text| text.parse().expect("a number"));
    let (rows, rounds) = (number(0, 1_000_000), number(1, 3));
    let [synchronous, serial, unlinked, appending, all] = [0, 1, 2, 3, 4].map(TeksSteps::first);
    type Make = Box<dyn Fn(usize) -> Box<dyn Contestant>>;
    let teks = |steps: TeksSteps, has_list: bool| -> Make {
        // Where records go, their room is used again.
        Box::new(move |versions| {
            Teks::make(rows, steps, has_list, if steps.is_in_place { 1 } else { versions })
        })
    };
    let mut contestants: Vec<(&str, Make, bool)> = vec![
        ("teks", teks(all, true), true),
        ("hash alone", teks(all, false), false),
        ("crossbeam skip list", Box::new(|_| Box::new(SkipMap::new())), true),
        ("acsp (append only)", teks(appending, true), true),
        ("ac (no shortcut)", teks(unlinked, true), true),
        ("a (one put at a time)", teks(serial, true), true),
        ("s (synchronous)", teks(synchronous, true), true),
    ];
    contestants.retain(|(name, ..)| arguments.get(2).is_none_or(|wanted| name.starts_with(wanted)));
    let mut figures: Vec<Figures> = contestants.iter().map(|_| Vec::new()).collect();
    // Not measured: memory that a process writes to for the first time is slow, and later tables get what
    // earlier ones had.
    fill(&*contestants[0].1(VERSIONS), rows, 1, 0);
    for _ in 0..rounds {
        for ((_, make, has_order), figures) in contestants.iter().zip(&mut figures) {
            round(rows, make, *has_order, figures);
        }
    }
    println!("{rows} rows, medians of {rounds} rounds; thousands a second unless it says otherwise");
    for ((name, ..), figures) in contestants.iter().zip(&mut figures) {
        println!("{name}");
        for (work, numbers) in figures {
            numbers.sort_by(f64::total_cmp);
            println!("  {:>9.0}  {work}", numbers[numbers.len() / 2]);
        }
    }
}

fn round(rows: usize, make: &dyn Fn(usize) -> Box<dyn Contestant>, has_order: bool, figures: &mut Figures) {
    let mut note = |work: &'static str, number: f64| match figures.iter_mut().find(|(name, _)| *name == work)
    {
        Some((_, numbers)) => numbers.push(number),
        None => figures.push((work, vec![number])),
    };
    for threads in [2, 1] {
        let contestant = make(VERSIONS);
        let (filled, woven) = fill(&*contestant, rows, threads, 0);
        let works =
            [("fill, 1 thread", "… until it is woven"), ("fill, 2 threads", "… until it is woven, 2")];
        note(works[threads - 1].0, rows as f64 / filled / 1e3);
        if has_order {
            note(works[threads - 1].1, rows as f64 / woven / 1e3);
        }
        if threads == 2 {
            continue;
        }
        note("bytes an item beside key and value", contestant.bytes() as f64 / rows as f64 - 272.0);
        read(&*contestant, rows, has_order, ["get", "seek and 10 next", "whole scan"], &mut note);
        let overwritten: f64 = (1..VERSIONS).map(|round| fill(&*contestant, rows, 1, round).0).sum();
        note("overwrite", (rows * (VERSIONS - 1)) as f64 / overwritten / 1e3);
        let works = ["get, 4 versions put", "seek and 10 next, 4 versions put", "whole scan, 4 versions put"];
        read(&*contestant, rows, has_order, works, &mut note);
        beside_a_writer(&*contestant, rows, has_order, &mut note);
        if has_order {
            beside_new_keys(&*make(1), rows, &mut note);
        }
    }
}

/// Puts each key once, with some threads, and a weaver beside them. Seconds until the last put returned,
/// and until nothing was left to weave.
fn fill(contestant: &dyn Contestant, rows: usize, threads: usize, round: usize) -> (f64, f64) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let start = Instant::now();
        let weaver = scope.spawn(|| weave_until(contestant, &is_over));
        let part = rows / threads;
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    (thread * part..(thread + 1) * part).for_each(|nth| {
                        contestant.put(&key(shuffled(nth + 77 * round, rows)));
                    });
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let filled = start.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        weaver.join().unwrap();
        (filled, start.elapsed().as_secs_f64())
    })
}

fn read(
    contestant: &dyn Contestant,
    rows: usize,
    has_order: bool,
    [get, seek, scan]: [&'static str; 3],
    note: &mut impl FnMut(&'static str, f64),
) {
    note(get, rate(rows, |nth| contestant.get(&key(shuffled(nth * 5 + 3, rows)))));
    if has_order {
        let at = |nth| contestant.seek(&key(shuffled(nth * 3 + 1, rows)), NEXT);
        note(seek, rate(rows / 4, |nth| assert!(at(nth) > 0)));
        let start = Instant::now();
        let read = contestant.seek(&[], usize::MAX);
        assert_eq!(read, rows, "a scan has each key");
        note(scan, read as f64 / start.elapsed().as_secs_f64() / 1e3);
    }
}

/// Gets and seeks while another thread overwrites.
fn beside_a_writer(
    contestant: &dyn Contestant,
    rows: usize,
    has_order: bool,
    note: &mut impl FnMut(&'static str, f64),
) {
    let (is_over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            // As many as fit: an appending table has room for few more rows.
            while !is_over.load(Ordering::Relaxed) && written.load(Ordering::Relaxed) < rows / 8 {
                let nth = written.fetch_add(1, Ordering::Relaxed);
                contestant.put(&key(shuffled(nth * 7, rows)));
            }
        });
        note("get beside a writer", rate(rows / 8, |nth| contestant.get(&key(shuffled(nth * 5, rows)))));
        if has_order {
            let at = |nth| contestant.seek(&key(shuffled(nth * 3, rows)), NEXT);
            note("seek and 10 next beside a writer", rate(rows / 16, |nth| assert!(at(nth) > 0)));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Seeks while another thread puts new keys: how long they take, in microseconds.
fn beside_new_keys(contestant: &dyn Contestant, rows: usize, note: &mut impl FnMut(&'static str, f64)) {
    let is_over = AtomicBool::new(false);
    let mut times = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..rows).for_each(|nth| contestant.put(&key(shuffled(nth, rows))));
            is_over.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| weave_until(contestant, &is_over));
        while !is_over.load(Ordering::Relaxed) {
            let start = Instant::now();
            black_box(contestant.seek(&key(shuffled(times.len() * 3, rows)), NEXT));
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    });
    times.sort_by(f64::total_cmp);
    note("µs: median of seeks beside new keys", times[times.len() / 2]);
    note("µs: p99 of seeks beside new keys", times[times.len() * 99 / 100]);
}

fn weave_until(contestant: &dyn Contestant, is_over: &AtomicBool) {
    while contestant.work() || !is_over.load(Ordering::Relaxed) {
        if !contestant.work() {
            thread::park_timeout(WEAVER_RESTS);
        }
    }
}

fn rate(times: usize, mut step: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    (0..times).for_each(&mut step);
    times as f64 / start.elapsed().as_secs_f64() / 1e3
}

/// A number below `rows`, another one for each of them, in no order.
fn shuffled(nth: usize, rows: usize) -> u64 {
    // A prime that no number of rows here is a multiple of.
    (nth as u64 % rows as u64).wrapping_mul(2_654_435_761) % rows as u64
}

/// Sixteen bytes that are in another order than their numbers.
fn key(number: u64) -> Key {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}
