//! What is asked of each policy: which gets it misses once it is warm, and what a scan of everything costs
//! it.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rand::{SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};

use super::{
    best::{belady, best_rows, best_rows_and_pages},
    policy::{Cache, MIX_IN_ALL, MIX_IN_BUDGET, Policy, ROWS_IN_BUDGET, RowsBy},
    shape::{Order, ROW_BYTES, Shape},
};
use crate::keys::{Chooser, Pattern, scattered};

/// Gets for each row before anything is measured, after each row was got once in a random order.
const WARM_GETS_A_ROW: usize = 4;
/// Gets for each row that are measured.
const MEASURED_GETS_A_ROW: usize = 1;
/// Seconds that are looked at behind a scan, and the first of those that come "a minute later".
const SECONDS_BEHIND: usize = 70;
const A_MINUTE: usize = 60;
/// Scans are tried where memory is this part of the data.
const SCANNED_AT: u64 = 4;

/// What decides which gets miss.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Online(Policy),
    /// Belady's optimum for rows.
    Belady,
    /// The most popular rows that fit.
    BestRows,
    /// The most popular rows in half of memory, the best pages beside them in the other.
    BestHalves,
}

/// A subject, and where rows lie while it is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    subject: Subject,
    order: Order,
}

impl Entry {
    /// Whether a plot has room for it.
    pub(super) fn is_drawn(&self) -> bool {
        !["rows by LRU", "rows by quick_cache"].contains(&self.name)
            && !["rows in budget", "mix in all"].iter().any(|begin| self.name.starts_with(begin))
    }

    /// Whether it knows what nobody can.
    pub(super) fn is_offline(&self) -> bool {
        !matches!(self.subject, Subject::Online(_))
    }
}

/// All policies, in the order of the table that is printed.
pub(super) fn entries() -> Vec<Entry> {
    let online = |name, policy, order| Entry { name, subject: Subject::Online(policy), order };
    let rows = |name, by| online(name, Policy::Rows(by), Order::Keys);
    let offline = |name, subject, order| Entry { name, subject, order };
    vec![
        online("pages in key order", Policy::Pages, Order::Keys),
        online("pages in put order", Policy::Pages, Order::Puts),
        rows("rows by the ring of today", RowsBy::Clock),
        rows("rows by LRU", RowsBy::Lru),
        rows("rows by S3-FIFO", RowsBy::S3Fifo),
        rows("rows by W-TinyLFU", RowsBy::TinyLfu),
        rows("rows by quick_cache", RowsBy::Quick),
        online("even today: key order", Policy::Today, Order::Keys),
        online("even today: put order", Policy::Today, Order::Puts),
        online("rows in budget: key order", ROWS_IN_BUDGET, Order::Keys),
        online("rows in budget: put order", ROWS_IN_BUDGET, Order::Puts),
        online("mix in budget: key order", MIX_IN_BUDGET, Order::Keys),
        online("mix in budget: put order", MIX_IN_BUDGET, Order::Puts),
        online("mix in all: key order", MIX_IN_ALL, Order::Keys),
        online("mix in all: put order", MIX_IN_ALL, Order::Puts),
        offline("known halves: key order", Subject::BestHalves, Order::Keys),
        offline("known halves: put order", Subject::BestHalves, Order::Puts),
        offline("known rows", Subject::BestRows, Order::Keys),
        offline("known future (Belady)", Subject::Belady, Order::Keys),
    ]
}

/// What one subject came to, with one pattern and so much memory.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) pattern: &'static str,
    pub(super) name: &'static str,
    /// The part of the data that memory is, as in 1/4.
    pub(super) part: u64,
    /// The part of the gets that read from the drive.
    pub(super) missed: f64,
    pub(super) munks: usize,
    pub(super) loads: u64,
    pub(super) scans: Option<Scans>,
    /// The part of the gets that miss if every second operation is a put: a cached row is taken out and put
    /// back as S-50 is kept today, or keeps its place meanwhile.
    pub(super) beside_puts: Option<(f64, f64)>,
}

/// The part of the gets that miss after everything was read once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scans {
    /// In the first second after a scan, and a minute later.
    pub(super) scan: (f64, f64),
    /// After a get of each row in the order of keys.
    pub(super) gets: (f64, f64),
}

impl Outcome {
    pub(super) fn to_json(&self, rows: u32) -> Value {
        let mut told = json!({
            "kind": "caches", "pattern": self.pattern, "policy": self.name, "rows": rows,
            "data_to_memory": self.part, "missed_of_100": 100.0 * self.missed, "munks": self.munks,
            "munk_loads": self.loads,
        });
        if let Some((put_back, in_place)) = self.beside_puts {
            told["missed_of_100_beside_puts"] =
                json!({"put_back": 100.0 * put_back, "in_place": 100.0 * in_place});
        }
        if let Some(scans) = self.scans {
            told["missed_of_100_behind_a_scan"] =
                json!({"first_second": 100.0 * scans.scan.0, "a_minute_later": 100.0 * scans.scan.1});
            told["missed_of_100_behind_gets_of_all"] =
                json!({"first_second": 100.0 * scans.gets.0, "a_minute_later": 100.0 * scans.gets.1});
        }
        told
    }
}

/// All subjects under one pattern.
pub(super) struct Experiment {
    pattern: &'static str,
    by_keys: Shape,
    by_puts: Shape,
    popularity: Vec<f64>,
    trace: Vec<u32>,
}

impl Experiment {
    /// Draws the gets by the pattern.
    pub(super) fn new(name: &'static str, pattern: Pattern, rows: u32, seed: u64) -> Self {
        let chooser = Chooser::new(pattern, u64::from(rows));
        let by_keys = Shape::new(rows, Order::Keys);
        let mut chance = SmallRng::seed_from_u64(seed);
        let behind_scans = 2 * SECONDS_BEHIND * by_keys.gets_a_second() as usize;
        let drawn = (WARM_GETS_A_ROW + MEASURED_GETS_A_ROW) * rows as usize + behind_scans;
        let first = (0..rows).map(|row| scattered(u64::from(row), u64::from(rows)) as u32);
        let gets = (0..drawn).map(|_| chooser.draw(&mut chance, u64::from(rows)) as u32);
        let trace = first.chain(gets).collect();
        let by_puts = Shape::new(rows, Order::Puts);
        Experiment { pattern: name, by_keys, by_puts, popularity: chooser.popularity(), trace }
    }

    fn rows(&self) -> usize {
        self.by_keys.rows as usize
    }

    /// Where the gets that are measured begin and end.
    fn measured(&self) -> (usize, usize) {
        let begin = (1 + WARM_GETS_A_ROW) * self.rows();
        (begin, begin + MEASURED_GETS_A_ROW * self.rows())
    }

    /// Measures all of these with each amount of memory, on as many threads as there are processors.
    pub(super) fn run(&self, entries: &[Entry], parts: &[u64]) -> Vec<Outcome> {
        let jobs: Vec<(Entry, u64)> =
            entries.iter().flat_map(|entry| parts.iter().map(|part| (*entry, *part))).collect();
        let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(vec![None; jobs.len()]));
        let work = || {
            loop {
                // Relaxed: a number that each thread gets another of.
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((entry, part)) = jobs.get(at) else { return };
                let outcome = self.outcome(*entry, *part);
                outcomes.lock().expect("no thread panics with it")[at] = Some(outcome);
            }
        };
        thread::scope(|scope| {
            let threads = thread::available_parallelism().map_or(1, usize::from);
            (0..threads).for_each(|_| drop(scope.spawn(work)));
        });
        outcomes.into_inner().expect("no thread panics with it").into_iter().flatten().collect()
    }

    fn outcome(&self, entry: Entry, part: u64) -> Outcome {
        let shape = match entry.order {
            Order::Keys => &self.by_keys,
            Order::Puts => &self.by_puts,
        };
        let bytes = shape.data_bytes() / part;
        let of = |missed| Outcome {
            pattern: self.pattern,
            name: entry.name,
            part,
            missed,
            munks: 0,
            loads: 0,
            scans: None,
            beside_puts: None,
        };
        let (begin, end) = self.measured();
        match entry.subject {
            Subject::Online(policy) => self.online(policy, shape, part, of(0.0)),
            Subject::BestRows => of(best_rows(&self.popularity, bytes)),
            Subject::BestHalves => of(best_rows_and_pages(&self.popularity, shape, bytes / 2, bytes / 2)),
            Subject::Belady => {
                let rows_max = (bytes / ROW_BYTES) as usize;
                let missed = belady(&self.trace, shape.rows, rows_max, begin..end);
                of(missed as f64 / (end - begin) as f64)
            }
        }
    }

    fn online(&self, policy: Policy, shape: &Shape, part: u64, outcome: Outcome) -> Outcome {
        let cache = policy.cache(shape, shape.data_bytes() / part);
        let mut player = Player { cache, a_second: shape.gets_a_second() as usize, played: 0 };
        let (begin, end) = self.measured();
        player.play(&self.trace[..begin]);
        let missed = player.play(&self.trace[begin..end]);
        let (munks, loads) = player.cache.munks();
        let scans = (part == SCANNED_AT).then(|| {
            let (first, second) = self.trace[end..].split_at(SECONDS_BEHIND * player.a_second);
            player.cache.scan();
            let scan = player.play_behind(first);
            for row in 0..shape.rows {
                player.cache.get(row);
            }
            Scans { scan, gets: player.play_behind(second) }
        });
        let beside_puts = |keeps_place| {
            let cache = policy.cache(shape, shape.data_bytes() / part);
            let mut player = Player { cache, a_second: shape.gets_a_second() as usize, played: 0 };
            player.play_with_puts(&self.trace[..begin], keeps_place);
            player.play_with_puts(&self.trace[begin..end], keeps_place)
        };
        let has_rows = part == SCANNED_AT && policy != Policy::Pages;
        let beside_puts = has_rows.then(|| (beside_puts(false), beside_puts(true)));
        Outcome { missed, munks, loads, scans, beside_puts, ..outcome }
    }
}

/// Gets one after the other, and the seconds that pass meanwhile.
struct Player<'s> {
    cache: Box<dyn Cache + 's>,
    a_second: usize,
    played: usize,
}

impl Player<'_> {
    /// The part of these gets that missed.
    fn play(&mut self, gets: &[u32]) -> f64 {
        let mut missed = 0_usize;
        for row in gets {
            missed += usize::from(!self.cache.get(*row));
            self.played += 1;
            if self.played.is_multiple_of(self.a_second) {
                self.cache.tick();
            }
        }
        missed as f64 / gets.len().max(1) as f64
    }

    /// The same if every second operation is a put.
    fn play_with_puts(&mut self, operations: &[u32], keeps_place: bool) -> f64 {
        let mut missed = 0.0;
        for pair in operations.chunks_exact(2) {
            missed += self.play(&pair[..1]);
            if !keeps_place {
                self.cache.put(pair[1]);
            }
        }
        missed / (operations.len() / 2).max(1) as f64
    }

    /// What is missed in the first second, and a minute later.
    fn play_behind(&mut self, gets: &[u32]) -> (f64, f64) {
        let (first, rest) = gets.split_at(self.a_second);
        let (meanwhile, later) = rest.split_at((A_MINUTE - 1) * self.a_second);
        let at_first = self.play(first);
        self.play(meanwhile);
        (at_first, self.play(later))
    }
}

#[cfg(test)]
mod tests;
