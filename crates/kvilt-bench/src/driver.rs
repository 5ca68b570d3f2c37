//! Threads that work on a store for some time, each with its own chance and its own histograms, so that
//! measuring adds no meeting point.

use std::{
    hint::black_box,
    ops::RangeInclusive,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use rand::{Rng, RngExt, SeedableRng, rngs::SmallRng};
use serde_json::{Map, Value, json};

use crate::{
    events,
    keys::{Chooser, key_of},
    meter::disk_bytes,
    store::Store,
    work::{Latest, Mix, Work},
};

/// The longest latency told apart, in nanoseconds.
const LATENCY_NANOS_MAX: u64 = 600_000_000_000;

/// Random bytes that the values of a thread are cut out of: no two alike soon, and nothing to compress. Of
/// more than two threads, each has its part of what two have.
const NOISE_BYTES: usize = 1 << 20;

/// What all phases on one store share.
pub struct Stage<'a> {
    /// The store.
    pub store: &'a dyn Store,
    /// Where it lies.
    pub directory: &'a Path,
    /// Records that were loaded.
    pub records: u64,
    /// Records that there are by now, inserts included, those under way, too.
    pub newest: AtomicU64,
    /// For each thread, a number not above that of the record it is inserting; the largest if it is inserting
    /// none.
    pub inserting: Vec<AtomicU64>,
    /// Events written by now.
    pub events: AtomicU64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Threads.
    pub threads: usize,
    /// Decides all chance.
    pub seed: u64,
    /// Whether space is looked at each second of every phase, and not of ingest alone.
    pub is_space_watched: bool,
}

impl Stage<'_> {
    /// Numbers below this are there: an insert takes its number before its row is, so readers stay behind all
    /// that are under way.
    fn inserted(&self) -> u64 {
        let newest = self.newest.load(Ordering::SeqCst);
        let under_way = self.inserting.iter().map(|number| number.load(Ordering::SeqCst));
        under_way.fold(newest, u64::min)
    }
}

/// When a phase ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After some time.
    Elapsed(Duration),
    /// After so many operations of all threads.
    Operations(u64),
    /// When all threads together have put this many bytes of keys and values; only for work that puts.
    PutBytes(u64),
}

/// What a phase did.
pub struct Played {
    /// Operations that were completed.
    pub operations: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// Operations of each whole second, in order.
    pub seconds: Vec<u64>,
    /// Bytes on the device at the end of each of them; looked at while events are written, when space
    /// grows, and where the stage says so.
    pub disk_bytes: Vec<u64>,
    /// Of these, bytes of files that were not replaced, at the same times, if the store knows.
    pub kept_bytes: Vec<u64>,
    /// Bytes of keys and values put.
    pub put_bytes: u64,
    /// Rows shown by scans.
    pub rows: u64,
    /// Gets of records that must be there, and were not.
    pub missing: u64,
    latencies: Latencies,
}

/// Latencies by operation.
struct Latencies([(&'static str, Histogram<u64>); 4]);

const PUT: usize = 0;
const GET: usize = 1;
const SCAN: usize = 2;
const GET_MANY: usize = 3;

impl Latencies {
    fn new() -> Result<Self> {
        // A histogram grows with its samples: those of operations that a thread does not do stay small.
        let histogram = || Histogram::new(3).context("a histogram");
        let [put, get, scan, get_many] = [histogram()?, histogram()?, histogram()?, histogram()?];
        Ok(Latencies([("put", put), ("get", get), ("scan", scan), ("get_many", get_many)]))
    }

    fn note(&mut self, kind: usize, begun: Instant) {
        let nanos = (begun.elapsed().as_nanos() as u64).min(LATENCY_NANOS_MAX);
        self.0[kind].1.record(nanos).expect("a histogram grows");
    }

    fn add(&mut self, other: &Latencies) -> Result<()> {
        for ((_, all), (_, one)) in self.0.iter_mut().zip(&other.0) {
            all.add(one).context("histograms of one kind")?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let mut by_kind = Map::new();
        for (name, histogram) in self.0.iter().filter(|(_, histogram)| !histogram.is_empty()) {
            let micros = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
            let figures = json!({
                "count": histogram.len(), "p50": micros(0.5), "p95": micros(0.95), "p99": micros(0.99),
                "p99.9": micros(0.999), "p99.99": micros(0.9999), "max": histogram.max() as f64 / 1e3,
            });
            by_kind.insert((*name).to_owned(), figures);
        }
        Value::Object(by_kind)
    }
}

impl Played {
    /// What a load did, which is measured as a whole.
    pub fn of_load(operations: u64, elapsed: Duration, put_bytes: u64) -> Result<Played> {
        Ok(Played { operations, elapsed, put_bytes, ..Played::nothing()? })
    }

    fn nothing() -> Result<Played> {
        let latencies = Latencies::new()?;
        let elapsed = Duration::ZERO;
        Ok(Played {
            operations: 0,
            elapsed,
            seconds: Vec::new(),
            disk_bytes: Vec::new(),
            kept_bytes: Vec::new(),
            put_bytes: 0,
            rows: 0,
            missing: 0,
            latencies,
        })
    }

    /// Operations a second over the whole phase.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }

    /// The worst whole second's operations as a part of the median's; 1 if there were fewer than three.
    pub fn worst_second(&self) -> f64 {
        let mut seconds = self.seconds.clone();
        seconds.sort_unstable();
        match seconds[..] {
            [worst, .., _] if seconds.len() > 2 => worst as f64 / seconds[seconds.len() / 2].max(1) as f64,
            _ => 1.0,
        }
    }

    /// As JSON; latencies in microseconds.
    pub fn to_json(&self) -> Value {
        json!({
            "operations": self.operations,
            "elapsed_seconds": self.elapsed.as_secs_f64(),
            "operations_a_second": self.rate(),
            "worst_second": self.worst_second(),
            "seconds": self.seconds,
            "disk_bytes": self.disk_bytes,
            "kept_bytes": self.kept_bytes,
            "put_bytes": self.put_bytes,
            "rows": self.rows,
            "missing": self.missing,
            "latency_micros": self.latencies.to_json(),
        })
    }
}

/// Counters that the threads of a phase share; each thread adds to them once in a while.
struct Tally {
    is_over: AtomicBool,
    operations: AtomicU64,
    put_bytes: AtomicU64,
}

impl Tally {
    /// Adds what a thread has done beyond what it told before.
    fn add(&self, played: &Played, told: &mut (u64, u64)) {
        self.operations.fetch_add(played.operations - told.0, Ordering::Relaxed);
        self.put_bytes.fetch_add(played.put_bytes - told.1, Ordering::Relaxed);
        *told = (played.operations, played.put_bytes);
    }
}

/// After so many operations a thread tells what it did: often enough for a second's figure.
const TOLD_EACH: u64 = 64;

/// Lets the threads do some work.
///
/// # Errors
///
/// The first error of the store, or records that should be there and are not.
pub fn play(stage: &Stage, work: &Work, until: Until, progress: &ProgressBar) -> Result<Played> {
    let tally = Tally {
        is_over: AtomicBool::new(false),
        operations: AtomicU64::new(0),
        put_bytes: AtomicU64::new(0),
    };
    let begun = Instant::now();
    let (played, watched) = thread::scope(|scope| {
        let hands: Vec<_> = (0..stage.threads)
            .map(|thread| {
                let tally = &tally;
                scope.spawn(move || {
                    let outcome =
                        Player::new(stage, *work, thread).and_then(|player| player.play(tally, until));
                    // One that fails ends the others; one that is through with its part does not.
                    tally.is_over.fetch_or(outcome.is_err(), Ordering::Relaxed);
                    outcome
                })
            })
            .collect();
        let is_space_watched = stage.is_space_watched || matches!(work, Work::Ingest);
        let space = || is_space_watched.then(|| (disk_bytes(stage.directory), stage.store.kept_bytes()));
        let is_done = || hands.iter().all(|hand| hand.is_finished());
        let watched = watch(&tally, begun, until, progress, is_done, space);
        let played: Result<Vec<Played>> =
            hands.into_iter().map(|hand| hand.join().expect("no thread of a benchmark panics")).collect();
        (played, watched)
    });
    let mut all = Played { elapsed: begun.elapsed(), ..watched? };
    for one in played? {
        all.operations += one.operations;
        all.put_bytes += one.put_bytes;
        all.rows += one.rows;
        all.missing += one.missing;
        all.latencies.add(&one.latencies)?;
    }
    if all.missing > 0 {
        bail!("{} of {} operations found no row where one must be", all.missing, all.operations);
    }
    Ok(all)
}

/// Counts the operations of each second until the phase is over, and looks at the space taken then.
fn watch(
    tally: &Tally,
    begun: Instant,
    until: Until,
    progress: &ProgressBar,
    is_done: impl Fn() -> bool,
    space: impl Fn() -> Option<(u64, Option<u64>)>,
) -> Result<Played> {
    const GLANCE: Duration = Duration::from_millis(5);

    let (mut seen, mut counted) = (Played::nothing()?, 0);
    while !is_done() {
        thread::sleep(GLANCE);
        let (elapsed, operations) = (begun.elapsed(), tally.operations.load(Ordering::Relaxed));
        if elapsed.as_secs() as usize > seen.seconds.len() {
            seen.seconds.push(operations - counted);
            if let Some((disk_bytes, kept_bytes)) = space() {
                seen.disk_bytes.push(disk_bytes);
                seen.kept_bytes.extend(kept_bytes);
            }
            counted = operations;
        }
        let position = match until {
            Until::Elapsed(_) => elapsed.as_millis() as u64,
            Until::Operations(_) => operations,
            Until::PutBytes(_) => tally.put_bytes.load(Ordering::Relaxed),
        };
        progress.set_position(position);
        if matches!(until, Until::Elapsed(time) if elapsed >= time) {
            tally.is_over.store(true, Ordering::Relaxed);
        }
    }
    Ok(seen)
}

/// One thread at work.
struct Player<'a> {
    stage: &'a Stage<'a>,
    work: Work,
    /// Its place among the threads.
    thread: usize,
    chooser: Option<Chooser>,
    chance: SmallRng,
    noise: Vec<u8>,
    played: Played,
}

impl<'a> Player<'a> {
    fn new(stage: &'a Stage<'a>, work: Work, thread: usize) -> Result<Self> {
        let mut chance = SmallRng::seed_from_u64(stage.seed ^ (thread as u64 + 1) << 40);
        let noise_bytes = (2 * NOISE_BYTES / stage.threads).min(NOISE_BYTES);
        let mut noise = vec![0; noise_bytes + stage.value_bytes];
        chance.fill_bytes(&mut noise);
        let chooser = match work {
            Work::Keys { pattern, .. } => Some(Chooser::new(pattern, stage.records)),
            _ => None,
        };
        Ok(Player { stage, work, thread, chooser, chance, noise, played: Played::nothing()? })
    }

    fn play(mut self, tally: &Tally, until: Until) -> Result<Played> {
        let share = |all: u64| all.div_ceil(self.stage.threads as u64);
        let (operations_max, put_bytes_max) = match until {
            Until::Elapsed(_) => (u64::MAX, u64::MAX),
            Until::Operations(all) => (share(all), u64::MAX),
            Until::PutBytes(all) => (u64::MAX, share(all)),
        };
        let mut told = (0, 0);
        loop {
            // Once at least: a thread that got no processor in a short phase still says that the work works.
            self.step(tally)?;
            if self.played.operations - told.0 >= TOLD_EACH {
                tally.add(&self.played, &mut told);
            }
            let is_through =
                self.played.operations >= operations_max || self.played.put_bytes >= put_bytes_max;
            if is_through || tally.is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        tally.add(&self.played, &mut told);
        Ok(self.played)
    }

    fn step(&mut self, tally: &Tally) -> Result<()> {
        match self.work {
            Work::Keys { beside: Some(mix), rows_min, rows_max, .. } if self.thread == 0 => {
                return self.step_on_keys(mix, rows_min..=rows_max);
            }
            Work::Keys { mix, rows_min, rows_max, .. } => self.step_on_keys(mix, rows_min..=rows_max)?,
            Work::Ingest => self.put_event()?,
            Work::Analytics(_) if self.chance.random_range(0..100) < 5 => self.put_event()?,
            Work::Analytics(latest) => self.scan_latest(latest)?,
            Work::ReadSeq => return self.read_whole(tally),
        }
        self.played.operations += 1;
        Ok(())
    }

    fn step_on_keys(&mut self, mix: Mix, rows: RangeInclusive<u64>) -> Result<()> {
        let mut die = self.chance.random_range(0..100);
        let mut is = |share: u32| {
            let hit = die < share;
            die = die.wrapping_sub(share);
            hit
        };
        if is(mix.put) {
            let number = self.draw();
            self.put(&key_of(number))
        } else if is(mix.get) {
            let number = self.draw();
            self.get(&key_of(number))
        } else if is(mix.scan) {
            let number = self.draw();
            let rows = self.chance.random_range(rows);
            self.scan(&key_of(number), None, rows)
        } else if is(mix.get_many) {
            self.get_many(*rows.end())
        } else if is(mix.change) {
            let key = key_of(self.draw());
            self.get(&key)?;
            self.put(&key)
        } else {
            let stage = self.stage;
            let inserting = &stage.inserting[self.thread];
            // Before the number is taken: whoever sees `newest` beyond it also sees that it is under way.
            inserting.store(stage.newest.load(Ordering::SeqCst), Ordering::SeqCst);
            let number = stage.newest.fetch_add(1, Ordering::SeqCst);
            self.put(&key_of(number))?;
            inserting.store(u64::MAX, Ordering::SeqCst);
            Ok(())
        }
    }

    fn draw(&mut self) -> u64 {
        let chooser = self.chooser.as_ref().expect("work on keys has a chooser");
        chooser.draw(&mut self.chance, self.stage.inserted())
    }

    fn put_event(&mut self) -> Result<()> {
        let event = self.stage.events.fetch_add(1, Ordering::Relaxed);
        let app = events::app(&mut self.chance);
        let user = self.chance.random_range(0..1 << 20);
        self.put(&events::event_key(app, events::time_of(event), user))
    }

    fn scan_latest(&mut self, latest: Latest) -> Result<()> {
        let now = events::time_of(self.stage.events.load(Ordering::Relaxed));
        let (app, since) = match latest {
            Latest::Minute => (events::app(&mut self.chance), events::minute_before(now)),
            Latest::Popular => (events::popular_app(&mut self.chance), events::some_events_before(now)),
        };
        let from = events::event_key(app, since, 0);
        let end = events::event_key(app, now, u32::MAX);
        self.scan(&from, Some(&end), u64::MAX >> 1)
    }

    fn put(&mut self, key: &[u8]) -> Result<()> {
        let at = self.chance.random_range(0..self.noise.len() - self.stage.value_bytes);
        let value = &self.noise[at..at + self.stage.value_bytes];
        let begun = Instant::now();
        self.stage.store.put(key, value)?;
        self.played.latencies.note(PUT, begun);
        self.played.put_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    fn get(&mut self, key: &[u8]) -> Result<()> {
        let begun = Instant::now();
        // A benchmark that throws the value away unread would measure less than a user gets.
        let found = self.stage.store.get(key, &mut |value| {
            black_box(sum(value));
        })?;
        self.played.latencies.note(GET, begun);
        self.played.missing += u64::from(!found);
        Ok(())
    }

    /// Each key is an operation; the call's last is counted by who calls this.
    fn get_many(&mut self, count: u64) -> Result<()> {
        let keys: Vec<_> = (0..count).map(|_| key_of(self.draw())).collect();
        let begun = Instant::now();
        let found = self.stage.store.get_many(&keys, &mut |value| {
            black_box(sum(value));
        })?;
        self.played.latencies.note(GET_MANY, begun);
        self.played.operations += count - 1;
        self.played.missing += count - found;
        Ok(())
    }

    fn scan(&mut self, from: &[u8], end: Option<&[u8]>, rows_max: u64) -> Result<()> {
        let begun = Instant::now();
        let mut rows = 0;
        self.stage.store.scan(from, end, rows_max, &mut |key, value| {
            black_box(sum(key) ^ sum(value));
            rows += 1;
        })?;
        self.played.latencies.note(SCAN, begun);
        self.played.rows += rows;
        Ok(())
    }

    /// The whole store in order, by each thread; each row is an operation.
    fn read_whole(&mut self, tally: &Tally) -> Result<()> {
        self.scan(b"", None, u64::MAX >> 1)?;
        if self.played.rows == 0 {
            tally.is_over.store(true, Ordering::Relaxed);
            bail!("a scan of the whole store showed nothing");
        }
        self.played.operations = self.played.rows;
        Ok(())
    }
}

/// Reads a byte of every cache line.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().step_by(64).map(|byte| u64::from(*byte)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestants::contestants;

    #[test]
    fn readers_stay_behind_every_insert_that_is_under_way() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        let store = contestants()[0].open(&path, 32 << 20).unwrap();
        let stage = Stage {
            store: &*store,
            directory: &path,
            records: 10,
            newest: AtomicU64::new(17),
            inserting: [12, u64::MAX].map(AtomicU64::new).into(),
            events: AtomicU64::new(0),
            value_bytes: 8,
            threads: 2,
            seed: 1,
            is_space_watched: false,
        };
        assert_eq!(stage.inserted(), 12, "the first thread has not put record 12 or one behind it");
        stage.inserting[0].store(u64::MAX, Ordering::SeqCst);
        assert_eq!(stage.inserted(), 17);
        store.close().unwrap();
    }
}
