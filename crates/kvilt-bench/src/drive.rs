//! What the drive does by itself: a file of its own, worked on past the page cache through the queue that the
//! engines use, without any store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use hdrhistogram::Histogram;
use kvilt_base::{
    Clock, Completed, Disk, File, FileName, Queue, Transfer, Work,
    disk::FileKind,
    queue::{BLOCK_BYTES, aligned},
};
use kvilt_io::{NativeClock, NativeDisk, QueueBy};
use rand::{Rng, RngExt, SeedableRng, rngs::SmallRng};
use serde_json::{Map, Value, json};

use crate::meter::Meter;

const PROBE: FileKind = FileKind::direct("probe");
const NAME: FileName = FileName::Of(PROBE, 1);
/// Bytes of a transfer where the file is read or filled in order.
const PIECE_BYTES: usize = 1 << 20;
/// Most pieces of the file: 1 GiB, beyond what a drive's own memory holds.
const PIECES_MAX: u64 = 1 << 10;
/// How long a plan is measured at most.
const TIME_MAX: Duration = Duration::from_secs(2);
/// The longest latency told apart, in nanoseconds.
const LATENCY_NANOS_MAX: u64 = 60_000_000_000;

/// A kind of work.
pub struct Plan {
    name: &'static str,
    depth: usize,
    /// Of a hundred transfers, how many are writes.
    writes: u64,
    is_durable: bool,
    is_in_order: bool,
}

const fn plan(name: &'static str, depth: usize, writes: u64) -> Plan {
    Plan { name, depth, writes, is_durable: false, is_in_order: false }
}

/// All that is measured once.
pub const PLANS: &[Plan] = &[
    plan("random reads, depth 1", 1, 0),
    plan("random reads, depth 64", 64, 0),
    plan("reads and writes, depth 64", 64, 50),
    plan("random writes, depth 64", 64, 100),
    Plan { is_durable: true, ..plan("durable writes, depth 1", 1, 100) },
    Plan { is_durable: true, ..plan("durable writes, depth 64", 64, 100) },
    Plan { is_in_order: true, ..plan("reads in order", 8, 0) },
];

/// What is measured before each phase, because drives that others use, too, change from minute to minute.
pub const BESIDE: &[Plan] =
    &[plan("random reads, depth 64", 64, 0), plan("reads and writes, depth 64", 64, 50)];

/// A file to measure with, removed when this is dropped.
pub struct Drive {
    directory: PathBuf,
    disk: Arc<NativeDisk>,
    file: Arc<dyn File>,
    pieces: u64,
    time: Duration,
}

impl Drive {
    /// Makes the file, in a directory beside a store's: as long as the store's data, and each plan measured
    /// as long as a phase, both up to a limit.
    pub fn beside(store: &Path, data_bytes: u64, phase: Duration) -> Result<Drive> {
        let directory = store.with_extension("probe");
        let disk = NativeDisk::open(&directory, &[PROBE], true)
            .with_context(|| format!("a file to measure the drive with, in {}", directory.display()))?;
        let pieces = (data_bytes / PIECE_BYTES as u64).clamp(1, PIECES_MAX);
        let drive = Drive { file: disk.create(NAME)?, disk, directory, pieces, time: phase.min(TIME_MAX) };
        let mut piece = aligned(PIECE_BYTES);
        SmallRng::seed_from_u64(1).fill_bytes(&mut piece);
        for number in 0..pieces {
            drive.file.write_all_at(number * PIECE_BYTES as u64, &piece)?;
        }
        drive.file.sync()?;
        Ok(drive)
    }

    /// Measures these plans, one after the other, by this kind of queue.
    pub fn measure(&self, plans: &[Plan], by: QueueBy) -> Result<Value> {
        let mut measured = Map::new();
        for plan in plans {
            let queue = self.disk.queue_by(plan.depth, by);
            let figures = Probe::new(plan, self).run(&*queue).context(plan.name)?;
            measured.insert(plan.name.to_owned(), figures);
        }
        Ok(Value::Object(measured))
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        // What cannot be removed is found by whoever looks into the directory of the run.
        let _ = self.disk.remove(NAME);
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// One plan under way.
struct Probe<'p> {
    plan: &'p Plan,
    drive: &'p Drive,
    /// Which piece comes next.
    next: u64,
    places: u64,
    bytes: usize,
    chance: SmallRng,
    written: Bytes,
}

impl<'p> Probe<'p> {
    fn new(plan: &'p Plan, drive: &'p Drive) -> Self {
        let bytes = if plan.is_in_order { PIECE_BYTES } else { BLOCK_BYTES };
        let places = drive.pieces * (PIECE_BYTES / bytes) as u64;
        let chance = SmallRng::seed_from_u64(7);
        let written = aligned(bytes).freeze();
        Probe { plan, drive, next: 0, places, bytes, chance, written }
    }

    /// The next transfer: of `slot`, whose places are its own, so that no two overlap.
    fn transfer(&mut self, slot: u64, buffer: Option<BytesMut>) -> Transfer {
        let depth = self.plan.depth as u64;
        let place = if self.plan.is_in_order {
            self.next += 1;
            (self.next - 1) % self.places
        } else {
            self.chance.random_range(0..self.places / depth) * depth + slot
        };
        let work = if self.chance.random_range(0..100) < self.plan.writes {
            Work::Write { bytes: self.written.clone(), is_durable: self.plan.is_durable }
        } else {
            Work::Read(buffer.unwrap_or_else(|| aligned(self.bytes)))
        };
        Transfer { token: slot, file: self.drive.file.clone(), offset: place * self.bytes as u64, work }
    }

    fn run(mut self, queue: &dyn Queue) -> Result<Value> {
        let clock = NativeClock::new();
        let (begun, before) = (clock.now(), Meter::now());
        let mut waits = Histogram::<u64>::new_with_max(LATENCY_NANOS_MAX, 3).context("a histogram")?;
        let mut sent = vec![begun; self.plan.depth];
        let mut in_flight = self.plan.depth;
        let mut done = Vec::new();
        queue.submit((0..in_flight as u64).map(|slot| self.transfer(slot, None)).collect());
        while in_flight > 0 {
            queue.reap(&mut done);
            let now = clock.now();
            let mut batch = Vec::with_capacity(done.len());
            for Completed { token, work, outcome } in done.drain(..) {
                outcome?;
                waits.saturating_record(now.saturating_sub(sent[token as usize]).as_nanos() as u64);
                in_flight -= 1;
                if now.saturating_sub(begun) < self.drive.time {
                    let buffer = match work {
                        Work::Read(buffer) => Some(buffer),
                        Work::Write { .. } => None,
                    };
                    batch.push(self.transfer(token, buffer));
                    sent[token as usize] = now;
                }
            }
            in_flight += batch.len();
            queue.submit(batch);
        }
        let took = clock.now().saturating_sub(begun);
        Ok(self.figures(queue, &waits, took, Meter::now().since(&before)))
    }

    fn figures(&self, queue: &dyn Queue, waits: &Histogram<u64>, took: Duration, used: Meter) -> Value {
        let micros = |quantile| waits.value_at_quantile(quantile) as f64 / 1e3;
        let each_second = waits.len() as f64 / took.as_secs_f64();
        let means = queue.means();
        json!({
            "by": means.kind.to_string(),
            "is_direct": means.is_direct,
            "each_second": each_second.round(),
            "mib_each_second": (each_second * self.bytes as f64 / PIECE_BYTES as f64).round(),
            "latency_micros": {
                "p50": micros(0.5), "p99": micros(0.99), "p99.9": micros(0.999), "max": micros(1.0),
            },
            "processor_micros_each": used.processor.as_secs_f64() * 1e6 / waits.len() as f64,
        })
    }
}
