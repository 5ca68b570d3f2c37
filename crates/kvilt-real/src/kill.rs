//! `kill`: SIGKILL, again and again, at chosen places in the life of a process, its opening and closing
//! included; and the other deaths that a process can have, while it writes.
//!
//! A cycle is one life that ends so (and now and then further ones that end while they recover from
//! it), and one look. Several stores are worked on at once; each is begun anew after some lives. Where a
//! child is killed depends on the machine; what it does depends on the seed alone.

use std::{
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Args;
use kvilt_sim::dice::Dice;
use serde_json::json;

use crate::{
    child::{CLOSING, OPENING, SYNCING, WRITING},
    death::Death,
    engines, group,
    hunt::{Aim, hunt},
    level::{End, Level},
    subject::{Found, Subject},
    tale::Style,
    tools,
};

/// Lives of one store before a new one is begun.
pub(crate) const LIVES: u64 = 20;

/// Steps that a writer takes if nobody kills it: so few that some lives reach their close.
const STEPS: usize = 400;

/// What a directory may hold for each byte of rows, beside `UnderTest::spare_bytes`: what is dead, and what
/// is about to be replaced.
const BYTES_PER_ROW_BYTE: u64 = 12;

/// Kill processes and look at what they leave.
#[derive(Clone, Debug, Args)]
pub(crate) struct Kill {
    /// Kills to make; rounded up to whole stores of 20.
    #[arg(long, default_value_t = 500)]
    pub(crate) cycles: u64,
    /// Seed of the first store; the next has the next number. The summary says where to go on.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Stores at a time.
    #[arg(long, default_value_t = 4)]
    pub(crate) jobs: usize,
    /// One level only.
    #[arg(long, value_enum)]
    pub(crate) level: Option<Level>,
    /// One way to die only; else one in four is not a kill.
    #[arg(long, value_enum)]
    pub(crate) death: Option<Death>,
    /// Where the stores are made, instead of the system's place for temporary files.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// The summary as one object of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What all kills of one level have shown.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    cycles: u64,
    killed_opening: u64,
    killed_writing: u64,
    killed_syncing: u64,
    killed_closing: u64,
    /// Other deaths, in the order of [`Death::FROM_WITHIN`].
    died: [u64; Death::FROM_WITHIN.len()],
    closed: u64,
    killed_recovering: u64,
    writes: u64,
    acknowledged: u64,
    lost: u64,
    open_max: Duration,
    open_sum: Duration,
    bytes_max: u64,
}

impl Kill {
    /// Runs the cycles; fails with the first broken promise.
    pub(crate) fn run(&self) -> Result<()> {
        let begun = Instant::now();
        let means = Means::found(self.death)?;
        let stores = self.cycles.div_ceil(LIVES);
        let levels: Vec<Level> =
            self.level.map_or_else(|| engines::chosen().levels.to_vec(), |level| vec![level]);
        let tallies = Mutex::new(vec![Tally::default(); levels.len()]);
        let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let outcome = std::thread::scope(|scope| {
            let work = || -> Result<()> {
                loop {
                    let store = next.fetch_add(1, Ordering::Relaxed);
                    if store >= stores || is_over.load(Ordering::Relaxed) || tools::is_interrupted() {
                        return Ok(());
                    }
                    let position = (store % levels.len() as u64) as usize;
                    let tally = self.one_store(self.seed + store, levels[position], &means);
                    is_over.fetch_or(tally.is_err(), Ordering::Relaxed);
                    tallies.lock().expect("nobody panics with it")[position].add(&tally?);
                }
            };
            let threads: Vec<_> = (0..self.jobs.max(1)).map(|_| scope.spawn(work)).collect();
            let ends = threads.into_iter().map(|thread| thread.join().expect("a worker does not panic"));
            ends.collect::<Result<Vec<()>>>()
        });
        let tallies = tallies.into_inner().expect("nobody panics with it");
        let done = next.load(Ordering::Relaxed).min(stores);
        self.tell(&levels, &tallies, begun.elapsed(), self.seed + done, outcome.is_ok());
        outcome.map(drop)
    }

    /// All lives of one store.
    fn one_store(&self, seed: u64, level: Level, means: &Means) -> Result<Tally> {
        let place = match &self.dir {
            Some(dir) => tempfile::tempdir_in(dir),
            None => tempfile::tempdir(),
        }
        .context("make a directory for a store")?;
        let mut subject = Subject::new(place.path(), seed, Style::Mixed);
        let mut dice = Dice::new(seed);
        let mut tally = Tally::default();
        for _ in 0..LIVES {
            if tools::is_interrupted() {
                break;
            }
            if let Err(error) = one_cycle(&mut subject, level, &mut dice, means, &mut tally) {
                let life = subject.life;
                let kept = place.keep();
                return Err(error.context(format!(
                    "seed {seed}, life {life}, {}; its files are kept in {}",
                    level.name(),
                    kept.display()
                )));
            }
        }
        Ok(tally)
    }

    fn tell(&self, levels: &[Level], tallies: &[Tally], took: Duration, next_seed: u64, is_good: bool) {
        let cycles: u64 = tallies.iter().map(|tally| tally.cycles).sum();
        let rate = cycles as f64 / took.as_secs_f64();
        let verdict = if is_good { "0 violations" } else { "1 VIOLATION" };
        if self.json {
            let levels = levels.iter().zip(tallies).map(|(level, tally)| tally.json(*level));
            let summary = json!({
                "what": "kill", "engine": engines::chosen().name,
                "seed": self.seed, "next_seed": next_seed, "cycles": cycles,
                "seconds": took.as_secs_f64(), "violations": u8::from(!is_good),
                "levels": levels.collect::<Vec<_>>(),
            });
            println!("{summary}");
            return;
        }
        for (level, tally) in levels.iter().zip(tallies) {
            println!("{}", tally.line(*level));
        }
        println!(
            "kill: {cycles} cycles in {:.1} s ({rate:.0}/s), seeds {}..{next_seed}, {verdict}",
            took.as_secs_f64(),
            self.seed
        );
    }
}

/// The ways to die that this machine offers.
struct Means {
    deaths: Vec<Death>,
    has_strace: bool,
}

impl Means {
    /// Says what is skipped; fails if that is all that was asked for.
    fn found(only: Option<Death>) -> Result<Means> {
        let has_strace = tools::find("strace").is_some();
        if !has_strace && only.is_none_or(|death| death == Death::Kill) {
            println!("SKIP kills at the n-th system call: there is no strace");
        }
        let mut deaths = match only {
            Some(death) => vec![death],
            None => [&[Death::Kill; 3 * Death::FROM_WITHIN.len()][..], &Death::FROM_WITHIN].concat(),
        };
        if deaths.contains(&Death::OutOfMemory)
            && let Some(reason) = group::obstacle()
        {
            println!("SKIP deaths for want of memory: {reason}");
            deaths.retain(|death| *death != Death::OutOfMemory);
        }
        anyhow::ensure!(!deaths.is_empty(), "nothing else was asked for");
        Ok(Means { deaths, has_strace })
    }
}

/// One life that ends before its time, perhaps some that are killed recovering from it, and a look.
fn one_cycle(
    subject: &mut Subject,
    level: Level,
    dice: &mut Dice,
    means: &Means,
    tally: &mut Tally,
) -> Result<()> {
    let writers = *dice.pick(&[1, 1, 2, 4]);
    let child = subject.next_life(level, writers, STEPS / writers)?;
    let death = *dice.pick(&means.deaths);
    let catch = hunt(&child, &Aim::throw(dice, death, means.has_strace))?;
    tally.cycles += 1;
    let within = Death::FROM_WITHIN.iter().position(|other| *other == death);
    *match (within, catch.said) {
        _ if catch.is_closed => &mut tally.closed,
        (Some(kind), _) => &mut tally.died[kind],
        (None, Some(CLOSING)) => &mut tally.killed_closing,
        (None, Some(SYNCING)) => &mut tally.killed_syncing,
        (None, Some(WRITING)) => &mut tally.killed_writing,
        (None, _) => &mut tally.killed_opening,
    } += 1;
    while dice.chance(1, 5) {
        // Not a life of its own: it writes nothing, and most often does not live to see the store open.
        hunt(
            &child.that_only_opens()?,
            &Aim::After(OPENING, Duration::from_micros(dice.below(3_000) as u64)),
        )?;
        tally.killed_recovering += 1;
    }
    tally.writes += subject.steps_begun(writers)?;
    let found = subject.look(writers, End::Killed, catch.is_closed)?;
    tally.found(&found);
    let allowed = engines::chosen().spare_bytes + BYTES_PER_ROW_BYTE * found.row_bytes;
    anyhow::ensure!(
        found.directory_bytes <= allowed,
        "{} bytes of rows take {} bytes of disk, {allowed} allowed",
        found.row_bytes,
        found.directory_bytes
    );
    Ok(())
}

impl Tally {
    fn found(&mut self, found: &Found) {
        self.acknowledged += found.verdict.acknowledged as u64;
        self.lost += found.verdict.lost as u64;
        self.open_max = self.open_max.max(found.open);
        self.open_sum += found.open;
        self.bytes_max = self.bytes_max.max(found.directory_bytes);
    }

    fn add(&mut self, other: &Tally) {
        self.cycles += other.cycles;
        self.killed_opening += other.killed_opening;
        self.killed_writing += other.killed_writing;
        self.killed_syncing += other.killed_syncing;
        self.died.iter_mut().zip(other.died).for_each(|(died, others)| *died += others);
        self.killed_closing += other.killed_closing;
        self.closed += other.closed;
        self.killed_recovering += other.killed_recovering;
        self.writes += other.writes;
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.open_max = self.open_max.max(other.open_max);
        self.open_sum += other.open_sum;
        self.bytes_max = self.bytes_max.max(other.bytes_max);
    }

    fn open_mean_ms(&self) -> f64 {
        self.open_sum.as_secs_f64() * 1e3 / self.cycles.max(1) as f64
    }

    fn line(&self, level: Level) -> String {
        let died = Death::FROM_WITHIN.iter().zip(self.died);
        let died: Vec<String> = died.map(|(death, count)| format!("{} {count}", death.name())).collect();
        let died = died.join(", ");
        format!(
            "  {:<8} {} cycles: killed opening {}, writing {}, syncing {}, closing {}, recovering {}; {died}; closed {}; \
             {} writes, {} steps acknowledged, {} lost{}; open mean {:.1} ms, max {:.1} ms; directory max {} KiB",
            level.name(),
            self.cycles,
            self.killed_opening,
            self.killed_writing,
            self.killed_syncing,
            self.killed_closing,
            self.killed_recovering,
            self.closed,
            self.writes,
            self.acknowledged,
            self.lost,
            if level.keeps_all(End::Killed) { "" } else { " (allowed)" },
            self.open_mean_ms(),
            self.open_max.as_secs_f64() * 1e3,
            self.bytes_max >> 10
        )
    }

    fn json(&self, level: Level) -> serde_json::Value {
        let died: serde_json::Map<_, _> = Death::FROM_WITHIN
            .iter()
            .zip(self.died)
            .map(|(death, count)| (death.name().into(), count.into()))
            .collect();
        json!({
            "level": level.name(), "cycles": self.cycles, "killed_opening": self.killed_opening,
            "killed_writing": self.killed_writing, "killed_syncing": self.killed_syncing,
            "killed_closing": self.killed_closing, "killed_recovering": self.killed_recovering,
            "died": died, "closed": self.closed, "writes": self.writes, "acknowledged": self.acknowledged, "lost": self.lost, "open_mean_ms": self.open_mean_ms(),
            "open_max_ms": self.open_max.as_secs_f64() * 1e3, "directory_bytes_max": self.bytes_max,
        })
    }
}
