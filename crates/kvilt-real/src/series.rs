//! `series`: one store, killed and recovered so many times in a row; it must not grow by it.
//!
//! Each life writes values of one size over others of that size, so whatever the directory gains over the lives is
//! what crashes leave behind: epochs, dead records, files that nobody needs. Its size goes up and down as logs are
//! filled and rewritten; so the mean over a tenth of the lives at the end is held against that of a tenth at the
//! beginning, once the store has come to its usual size.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use kvilt_sim::dice::Dice;
use serde_json::json;

use crate::{
    child::{OPENING, WRITING},
    hunt::{Aim, hunt},
    level::{End, Level},
    subject::Subject,
    tale::Style,
    tools,
};

/// Writes of a life, at most.
const STEPS: usize = 300;

/// Lives before anything is measured, behind those in peace that the store begins with.
const WARM_LIVES: u64 = 10;

/// An open after a crash may take so long, and so long for each chunk.
const OPEN_MAX: Duration = Duration::from_millis(50);
const OPEN_MAX_PER_CHUNK: Duration = Duration::from_micros(20);

/// Kill and recover one store many times in a row.
#[derive(Clone, Debug, Args)]
pub(crate) struct Series {
    /// Crash recoveries that are measured; some come before them.
    #[arg(long, default_value_t = 100)]
    pub(crate) cycles: u64,
    /// Seed of the store.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Growth that is too much, in percent.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) growth_max: f64,
    /// The summary as one object of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Series {
    /// Runs the lives; fails if data is wrong, or the store has grown, or opens take too long as a rule.
    pub(crate) fn run(&self) -> Result<()> {
        let begun = Instant::now();
        let place = tempfile::tempdir().context("make a directory for the store")?;
        let mut subject = Subject::new(place.path(), self.seed, Style::Steady);
        subject.furnish()?;
        let mut dice = Dice::new(self.seed);
        let (mut sizes, mut opens, mut late, mut chunks) = (Vec::new(), Vec::new(), 0u64, 0);
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
                sizes.push(found.directory_bytes);
                opens.push(found.open);
                chunks = found.chunks;
                let allowed = OPEN_MAX + OPEN_MAX_PER_CHUNK * u32::try_from(found.chunks)?;
                late += u64::from(found.open > allowed);
            }
        }
        self.tell(&sizes, opens, late, chunks, begun.elapsed())
    }

    fn tell(
        &self,
        sizes: &[u64],
        mut opens: Vec<Duration>,
        late: u64,
        chunks: u64,
        took: Duration,
    ) -> Result<()> {
        ensure!(!sizes.is_empty(), "interrupted before anything was measured");
        let tenth = (sizes.len() / 10).max(1);
        let mean = |sizes: &[u64]| sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
        let (first, last) = (mean(&sizes[..tenth]), mean(&sizes[sizes.len() - tenth..]));
        let by_tenth: Vec<u64> = sizes.chunks(tenth).map(|sizes| mean(sizes) as u64).collect();
        let growth = 100.0 * (last / first - 1.0);
        opens.sort_unstable();
        let at = |percent: usize| opens[(opens.len() - 1) * percent / 100].as_secs_f64() * 1e3;
        if self.json {
            let summary = json!({
                "what": "series", "seed": self.seed, "cycles": sizes.len(), "seconds": took.as_secs_f64(),
                "first_bytes": first, "last_bytes": last, "growth_percent": growth, "chunks": chunks,
                "mean_bytes_by_tenth": by_tenth,
                "open_median_ms": at(50), "open_p99_ms": at(99), "open_max_ms": at(100), "opens_late": late,
            });
            println!("{summary}");
        } else {
            println!(
                "series: {} crash recoveries of one store of {chunks} chunks in {:.1} s; {:.0} KiB at first, {:.0} KiB \
                 at last: growth {growth:.2} %; open median {:.1} ms, 99 % {:.1} ms, max {:.1} ms, {late} late; all \
                 data right",
                sizes.len(),
                took.as_secs_f64(),
                first / 1024.0,
                last / 1024.0,
                at(50),
                at(99),
                at(100),
            );
        }
        ensure!(growth <= self.growth_max, "the store has grown by {growth:.2} %");
        // The machine may be busy with something else; not every other time.
        ensure!(late * 2 <= sizes.len() as u64, "{late} of {} opens took too long", sizes.len());
        Ok(())
    }
}
