//! Cache policies by simulation: which gets would read from the drive, whatever the engine, the drive and the
//! processor do. Seconds, and no disk.
//!
//! | file | what |
//! | --- | --- |
//! | `shape` | rows, chunks, pages, and what each weighs |
//! | `lists` | lists that things come into and go out of |
//! | `pages` | the page cache |
//! | `rows`, `tiny_lfu` | caches of rows |
//! | `today` | munks, rows and pages as the engine uses them now |
//! | `mix` | for each chunk the better of a munk and rows |
//! | `best` | the offline optimum |
//! | `policy` | the policies by name |
//! | `experiment` | warm up, measure, scan |
//!
//! What it shows stands in `docs/notebook/caches.md`.

mod best;
mod experiment;
mod lists;
mod mix;
mod pages;
mod policy;
mod rows;
mod shape;
mod tiny_lfu;
mod today;

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use self::experiment::{Entry, Experiment, Outcome, entries};
use crate::{
    plot::{Drawing, Line},
    work::pattern_named,
};

/// The patterns there are, as works have them behind their at sign.
const PATTERNS: [&str; 4] = ["zipf", "composite", "latest", "uniform"];
/// A simulation of fewer rows says nothing: a chunk would have a handful.
const ROWS_MIN: u32 = 10_000;

/// The command's arguments.
#[derive(Args)]
pub struct Caches {
    /// Rows of 814 bytes; the scenario `limited` has 5.28 million.
    #[arg(long, default_value_t = 500_000)]
    rows: u32,
    /// Of zipf, composite, latest and uniform; all without it.
    #[arg(long, value_delimiter = ',')]
    patterns: Vec<String>,
    /// Memory as a part of the data, as in 4 for a quarter; scans are tried at a quarter.
    #[arg(long, value_delimiter = ',', default_value = "16,8,4,2,1")]
    data_to_memory: Vec<u64>,
    /// Policies to simulate, by the beginnings of their names; all without it.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Draws a plot for each pattern here, as `caches-zipf.svg`.
    #[arg(long)]
    plots: Option<PathBuf>,
    /// JSON lines instead of tables.
    #[arg(long)]
    json: bool,
    /// Decides all chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Caches {
    /// Simulates, prints, and draws.
    pub fn run(&self) -> Result<()> {
        ensure!(self.rows >= ROWS_MIN, "--rows must be at least {ROWS_MIN}");
        let is_part = |part: &u64| (1..=64).contains(part);
        ensure!(self.data_to_memory.iter().all(is_part), "--data-to-memory takes numbers from 1 to 64");
        let entries = self.entries()?;
        for pattern in self.patterns()? {
            let experiment = Experiment::new(pattern, pattern_named(pattern)?, self.rows, self.seed);
            let outcomes = experiment.run(&entries, &self.data_to_memory);
            let mut out = io::stdout().lock();
            if self.json {
                outcomes.iter().try_for_each(|outcome| writeln!(out, "{}", outcome.to_json(self.rows)))?;
            } else {
                writeln!(out, "{}", table(pattern, &outcomes, &entries, &self.data_to_memory))?;
            }
            if let Some(directory) = &self.plots {
                draw(pattern, &outcomes, &entries, directory)?;
            }
        }
        Ok(())
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let is_wanted = |entry: &Entry| {
            self.only.is_empty() || self.only.iter().any(|only| entry.name.starts_with(only.as_str()))
        };
        let wanted: Vec<Entry> = entries().into_iter().filter(is_wanted).collect();
        let names: Vec<&str> = entries().iter().map(|entry| entry.name).collect();
        ensure!(!wanted.is_empty(), "no policy begins with {:?}; there are: {}", self.only, names.join("; "));
        Ok(wanted)
    }

    fn patterns(&self) -> Result<Vec<&'static str>> {
        if self.patterns.is_empty() {
            return Ok(PATTERNS.to_vec());
        }
        let known = |name: &String| {
            let found = PATTERNS.into_iter().find(|pattern| pattern == name);
            found.with_context(|| format!("no pattern is called {name}; there are: {}", PATTERNS.join(", ")))
        };
        self.patterns.iter().map(known).collect()
    }
}

/// Gets missed of a hundred, and what scans cost.
fn table(pattern: &str, outcomes: &[Outcome], entries: &[Entry], parts: &[u64]) -> String {
    let mut text = format!("gets missed of 100, {pattern}; memory as a part of the data\n\n| policy |");
    parts.iter().for_each(|part| write!(text, " 1/{part} |").expect("a string takes all"));
    text += "\n| --- |";
    text += &" ---: |".repeat(parts.len());
    let mut scanned = String::new();
    for entry in entries {
        write!(text, "\n| {} |", entry.name).expect("a string takes all");
        for outcome in outcomes.iter().filter(|outcome| outcome.name == entry.name) {
            write!(text, " {:.1} |", 100.0 * outcome.missed).expect("a string takes all");
            let Some(scans) = outcome.scans else { continue };
            let [before, at_first, later, at_first_by_gets, later_by_gets] =
                [outcome.missed, scans.scan.0, scans.scan.1, scans.gets.0, scans.gets.1]
                    .map(|missed| 100.0 * missed);
            let beside_puts = match outcome.beside_puts {
                None => "– | –".to_owned(),
                Some((put_back, in_place)) => format!("{:.1} | {:.1}", 100.0 * put_back, 100.0 * in_place),
            };
            writeln!(
                scanned,
                "| {} | {before:.1} | {at_first:.1} | {later:.1} | {at_first_by_gets:.1} | {later_by_gets:.1} | \
                 {beside_puts} | {} | {} |",
                entry.name, outcome.munks, outcome.loads
            )
            .expect("a string takes all");
        }
    }
    text += "\n";
    if !scanned.is_empty() {
        text += "\nat 1/4\n\n| policy | before | first second behind a scan | a minute later | behind gets of \
                 all | a minute later | beside puts, put back | in place | munks | loads |\n\
                 | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
        text += &scanned;
    }
    text
}

/// A line for each policy, dashed for those that know what nobody can.
fn draw(pattern: &str, outcomes: &[Outcome], entries: &[Entry], directory: &Path) -> Result<()> {
    let line = |(place, entry): (usize, &Entry)| {
        let own = outcomes.iter().filter(|outcome| outcome.name == entry.name);
        let points = own.map(|outcome| (1.0 / outcome.part as f64, 100.0 * outcome.missed)).collect();
        Line { name: entry.name.to_owned(), colour: place, is_dashed: entry.is_offline(), points }
    };
    let lines = entries.iter().filter(|entry| entry.is_drawn()).enumerate().map(line).collect();
    let drawing = Drawing::Lines {
        across: "memory as a part of the data",
        unit: "gets missed of 100",
        doubles: true,
        lines,
    };
    drawing.draw(
        &format!("Cache policies, {pattern}: gets missed of 100 by memory (simulated)"),
        &directory.join(format!("caches-{pattern}.svg")),
    )
}
