//! `series`: one store, killed and recovered so many times in a row; it must not grow by it.
//!
//! Each life writes values of one size over others of that size, so whatever the store gains over the lives
//! is what crashes leave behind: epochs, dead records, files that nobody needs. The size of its directory
//! goes up and down as logs are filled and rewritten, by more than all that. So its *settled* size is looked
//! at ([`kvilt_sim::settle`]), which knows no such rounds, some twenty times; and the mean over the last
//! third of the looks is held against that over the first. What a settled size cannot show, a store that
//! never gives back what it wrote, the directory's own does: its means over thirds of the lives are compared,
//! too, with a bound that is beyond what rounds make of it.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use kvilt_sim::dice::Dice;
use serde_json::json;

use crate::{
    child::{OPENING, WRITING},
    engines,
    hunt::{Aim, hunt},
    level::{End, Level},
    subject::{PEACEFUL_LIVES, Subject},
    tale::Style,
    tools,
};

/// Writes of a life, at most.
const STEPS: usize = 300;

/// Lives before anything is measured, behind those in peace that the store begins with.
const WARM_LIVES: u64 = 10;

/// How often the settled size is looked at.
const LOOKS: u64 = 24;

/// An open after a crash may take so long, and so long for each part.
const OPEN_MAX: Duration = Duration::from_millis(50);
const OPEN_MAX_PER_PART: Duration = Duration::from_micros(20);

/// Kill and recover one store many times in a row.
#[derive(Clone, Debug, Args)]
pub(crate) struct Series {
    /// Crash recoveries that are measured; some come before them.
    #[arg(long, default_value_t = 100)]
    pub(crate) cycles: u64,
    /// Seed of the store.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Growth of the settled size that is too much, in percent.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) growth_max: f64,
    /// Growth of the directory's own size that is too much, in percent.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) directory_growth_max: f64,
    /// Opens that may take too long, in percent. The machine may be busy with something else.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) late_max: f64,
    /// The summary as one object of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Series {
    /// Runs the lives; fails if data is wrong, or the store has grown, or more opens take too long than may.
    pub(crate) fn run(&self) -> Result<()> {
        let begun = Instant::now();
        let place = tempfile::tempdir().context("make a directory for the store")?;
        let mut subject = Subject::new(place.path(), self.seed, Style::Steady);
        subject.furnish(PEACEFUL_LIVES)?;
        let mut dice = Dice::new(self.seed);
        let mut seen = Seen::default();
        let stride = (self.cycles / LOOKS).max(1);
        for life in 0..WARM_LIVES + self.cycles {
            if tools::is_interrupted() {
                break;
            }
            let child = subject.next_life(Level::Async, 1, STEPS)?;
            let aim = match dice.below(4) {
                0 => Aim::After(OPENING, Duration::from_micros(dice.below(4_000) as u64)),
                _ => Aim::After(WRITING, Duration::from_micros(dice.below(12_000) as u64)),
            };
            let story = || format!("seed {}, life {life}", self.seed);
            let catch = hunt(&child, &aim).with_context(story)?;
            let found = subject.look(1, End::Killed, catch.is_closed).with_context(story)?;
            if life >= WARM_LIVES {
                seen.sizes.push(found.directory_bytes);
                seen.opens.push(found.open);
                seen.parts = found.parts;
                let allowed = OPEN_MAX + OPEN_MAX_PER_PART * u32::try_from(found.parts)?;
                seen.late += u64::from(found.open > allowed);
                if (life - WARM_LIVES).is_multiple_of(stride) {
                    seen.settled.push(subject.settled_bytes().with_context(story)?);
                }
            }
        }
        self.tell(seen, begun.elapsed())
    }

    fn tell(&self, mut seen: Seen, took: Duration) -> Result<()> {
        ensure!(!seen.sizes.is_empty(), "interrupted before anything was measured");
        let (settled, directory) = (Thirds::of(&seen.settled), Thirds::of(&seen.sizes));
        seen.opens.sort_unstable();
        let at = |percent: usize| seen.opens[(seen.opens.len() - 1) * percent / 100].as_secs_f64() * 1e3;
        let Seen { sizes, parts, late, .. } = &seen;
        if self.json {
            let tenth = (sizes.len() / 10).max(1);
            let by_tenth: Vec<u64> = sizes.chunks(tenth).map(|sizes| mean(sizes) as u64).collect();
            let summary = json!({
                "what": "series", "engine": engines::chosen().name,
                "seed": self.seed, "cycles": sizes.len(), "seconds": took.as_secs_f64(),
                "settled_growth_percent": settled.growth(), "settled_bytes": seen.settled,
                "directory_growth_percent": directory.growth(), "directory_bytes_by_tenth": by_tenth,
                "parts": parts, "open_median_ms": at(50), "open_p99_ms": at(99), "open_max_ms": at(100),
                "opens_late": late,
            });
            println!("{summary}");
        } else {
            println!(
                "series: {} crash recoveries of one store of {parts} parts in {:.1} s; settled {settled}; directory \
                 {directory}; open median {:.1} ms, 99 % {:.1} ms, max {:.1} ms, {late} late; all data right",
                sizes.len(),
                took.as_secs_f64(),
                at(50),
                at(99),
                at(100),
            );
        }
        ensure!(settled.growth() <= self.growth_max, "the store has grown, settled: {settled}");
        ensure!(directory.growth() <= self.directory_growth_max, "the directory has grown: {directory}");
        ensure!(
            *late as f64 <= self.late_max / 100.0 * sizes.len() as f64,
            "{late} of {} opens took too long",
            sizes.len()
        );
        Ok(())
    }
}

/// What the lives have shown.
#[derive(Debug, Default)]
struct Seen {
    /// Bytes of the directory after each life.
    sizes: Vec<u64>,
    /// Settled bytes after some of them.
    settled: Vec<u64>,
    opens: Vec<Duration>,
    /// Opens that took too long.
    late: u64,
    parts: u64,
}

/// Means over the first and the last third of a row of sizes.
struct Thirds {
    first: f64,
    last: f64,
}

impl Thirds {
    fn of(sizes: &[u64]) -> Self {
        let third = (sizes.len() / 3).max(1);
        Thirds { first: mean(&sizes[..third]), last: mean(&sizes[sizes.len() - third..]) }
    }

    /// In percent.
    fn growth(&self) -> f64 {
        100.0 * (self.last / self.first - 1.0)
    }
}

impl fmt::Display for Thirds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Thirds { first, last } = self;
        write!(
            f,
            "{:.0} KiB at first, {:.0} KiB at last: {:+.2} %",
            first / 1024.0,
            last / 1024.0,
            self.growth()
        )
    }
}

fn mean(sizes: &[u64]) -> f64 {
    sizes.iter().sum::<u64>() as f64 / sizes.len() as f64
}
