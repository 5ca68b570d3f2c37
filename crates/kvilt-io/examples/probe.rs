//! The drive's own figures, by both ways of a queue: `probe DIRECTORY [MIB] [SECONDS]`.
//!
//! Makes a file of MIB mebibytes (1024) in DIRECTORY, works on it past the page cache for SECONDS (3) by each
//! way and work, prints a line of JSON for each, and removes the file.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on has failed")]

use std::{env, io, path::Path, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use kvilt_base::{
    Clock, Completed, Disk, File, FileName, Queue, Rng, Transfer, Work,
    disk::FileKind,
    queue::{BLOCK_BYTES, aligned},
};
use kvilt_io::{NativeClock, NativeDisk, QueueBy, SeededRng};

const PROBE: FileKind = FileKind::direct("probe");
/// Bytes of a transfer where a file is read or filled in order.
const PIECE_BYTES: usize = 1 << 20;

/// A kind of work.
struct Plan {
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

const PLANS: &[Plan] = &[
    plan("random reads", 1, 0),
    plan("random reads", 64, 0),
    plan("reads and writes", 64, 50),
    plan("random writes", 64, 100),
    Plan { is_durable: true, ..plan("durable writes", 1, 100) },
    Plan { is_durable: true, ..plan("durable writes", 64, 100) },
    Plan { is_in_order: true, ..plan("reads in order", 8, 0) },
];

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let Some(directory) = args.first() else {
        eprintln!("usage: probe DIRECTORY [MIB] [SECONDS]");
        std::process::exit(2);
    };
    let number = |at: usize, default: u64| args.get(at).map_or(default, |text| text.parse().unwrap());
    let (pieces, seconds) = (number(1, 1024).max(1), number(2, 3));
    let disk = NativeDisk::open(Path::new(directory), &[PROBE], true)?;
    let name = FileName::Of(PROBE, 1);
    let file = disk.create(name)?;
    let measured = fill(&file, pieces).and_then(|()| {
        for plan in PLANS {
            for by in [QueueBy::Best, QueueBy::Threads] {
                let queue = disk.queue_by(plan.depth, by);
                println!("{}", Probe::new(plan, &file, pieces).run(&*queue, Duration::from_secs(seconds))?);
            }
        }
        Ok(())
    });
    disk.remove(name)?;
    measured
}

fn fill(file: &Arc<dyn File>, pieces: u64) -> io::Result<()> {
    let mut piece = aligned(PIECE_BYTES);
    let rng = SeededRng::new(1);
    piece.chunks_mut(8).for_each(|bytes| bytes.copy_from_slice(&rng.next_u64().to_le_bytes()));
    for number in 0..pieces {
        file.write_all_at(number * PIECE_BYTES as u64, &piece)?;
    }
    file.sync()
}

/// One work under way.
struct Probe<'p> {
    plan: &'p Plan,
    file: &'p Arc<dyn File>,
    /// Which block or piece comes next, and how many there are.
    next: u64,
    places: u64,
    bytes: usize,
    rng: SeededRng,
    written: Bytes,
}

impl<'p> Probe<'p> {
    fn new(plan: &'p Plan, file: &'p Arc<dyn File>, pieces: u64) -> Self {
        let bytes = if plan.is_in_order { PIECE_BYTES } else { BLOCK_BYTES };
        let places = pieces * (PIECE_BYTES / bytes) as u64;
        let written = aligned(bytes).freeze();
        Probe { plan, file, next: 0, places, bytes, rng: SeededRng::new(7), written }
    }

    /// The next transfer: of `slot`, which takes turns with the others, so that no two overlap.
    fn transfer(&mut self, slot: u64, buffer: Option<BytesMut>) -> Transfer {
        let depth = self.plan.depth as u64;
        let place = if self.plan.is_in_order {
            self.next += 1;
            (self.next - 1) % self.places
        } else {
            self.rng.below(self.places / depth) * depth + slot
        };
        let work = if self.rng.below(100) < self.plan.writes {
            Work::Write { bytes: self.written.clone(), is_durable: self.plan.is_durable }
        } else {
            Work::Read(buffer.unwrap_or_else(|| aligned(self.bytes)))
        };
        Transfer { token: slot, file: self.file.clone(), offset: place * self.bytes as u64, work }
    }

    fn run(mut self, queue: &dyn Queue, time: Duration) -> io::Result<String> {
        let clock = NativeClock::new();
        let (begun, cpu_begun) = (clock.now(), cpu_time());
        let mut sent = vec![begun; self.plan.depth];
        queue.submit((0..self.plan.depth as u64).map(|slot| self.transfer(slot, None)).collect());
        let (mut done, mut waits) = (Vec::<Completed>::new(), Vec::new());
        let mut in_flight = self.plan.depth;
        while in_flight > 0 {
            queue.reap(&mut done);
            let now = clock.now();
            let is_over = now.saturating_sub(begun) >= time;
            let mut batch = Vec::with_capacity(done.len());
            for completed in done.drain(..) {
                completed.outcome?;
                let slot = completed.token;
                waits.push(now.saturating_sub(sent[slot as usize]));
                in_flight -= 1;
                if !is_over {
                    let buffer = match completed.work {
                        Work::Read(buffer) => Some(buffer),
                        Work::Write { .. } => None,
                    };
                    batch.push(self.transfer(slot, buffer));
                    sent[slot as usize] = now;
                }
            }
            in_flight += batch.len();
            queue.submit(batch);
        }
        let took = clock.now().saturating_sub(begun);
        Ok(self.line(queue, &mut waits, took, cpu_time().saturating_sub(cpu_begun)))
    }

    fn line(&self, queue: &dyn Queue, waits: &mut [Duration], took: Duration, cpu: Duration) -> String {
        waits.sort_unstable();
        let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].as_micros();
        let each_second = waits.len() as f64 / took.as_secs_f64();
        let means = queue.means();
        format!(
            "{{\"work\": \"{}\", \"depth\": {}, \"by\": \"{}\", \"is_direct\": {}, \"each_second\": {:.0}, \
             \"mib_each_second\": {:.1}, \"p50_us\": {}, \"p99_us\": {}, \"p999_us\": {}, \"longest_us\": {}, \"cpu_us_each\": {:.1}}}",
            self.plan.name,
            self.plan.depth,
            means.kind,
            means.is_direct,
            each_second,
            each_second * self.bytes as f64 / PIECE_BYTES as f64,
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
            cpu.as_secs_f64() * 1e6 / waits.len() as f64,
        )
    }
}

/// Processor time of this process and the kernel's workers for it, in steps of 10 ms; zero where the system
/// does not say.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
