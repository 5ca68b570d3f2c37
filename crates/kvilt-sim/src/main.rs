//! `kvilt-sim`: campaigns against an engine from the command line; one summary line at the end.
#![forbid(unsafe_code)]

mod nested;
#[cfg(feature = "mutants")]
mod planted;

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use kvilt_sim::{
    campaign::{Campaign, Kind, Outcome, run_campaign},
    crash::Images,
    engines,
    subject::Tested,
};
use serde_json::{Value, json};

/// Tests an engine by seed: scripts against a model, crashes at every disk operation, histories of threads.
#[derive(Parser)]
#[command(name = "kvilt-sim", version, about)]
struct Arguments {
    /// What to test.
    #[arg(value_enum)]
    what: What,
    /// The engine that is tested.
    #[arg(long, value_parser = engines::named, default_value = engines::ALL[0].name())]
    engine: &'static dyn Tested,
    /// The seeds, as `A..B` or as one number; by default 0..100, and for `nested` and `singles` 0.
    #[arg(long, value_parser = parse_seeds)]
    seeds: Option<std::ops::Range<u64>>,
    /// `nested` and `singles`: which of the canonical scripts, as `A..B` or as one number; by default all.
    #[arg(long, value_parser = parse_seeds)]
    scripts: Option<std::ops::Range<u64>>,
    /// `nested` and `singles`: so many crashes in a row, of which all but the first are in recoveries; by
    /// default 4 for `nested` and 1 for `singles`.
    #[arg(long)]
    depth: Option<u32>,
    /// Go on until there have been so many: crashes, runs with a fault, damaged stores, or else operations;
    /// each bug may take so many to be found.
    #[arg(long)]
    cases: Option<u64>,
    /// Begin no seed after this many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Seeds run at the same time.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// `history`: threads that act on each store; by default four to eight, by the seed.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=64))]
    actors: Option<u8>,
    /// Stop after this many failing seeds.
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Runs spent on reducing a failing script.
    #[arg(long, default_value_t = 300)]
    reduce: u32,
    /// `mutants`: only the bug of this name; elsewhere: with this bug alive.
    #[cfg(feature = "mutants")]
    #[arg(long)]
    only: Option<String>,
    /// The summary as one JSON object.
    #[arg(long)]
    json: bool,
    /// With the figures of all stores, summed.
    #[arg(long)]
    figures: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Long scripts against an ordered map.
    Model,
    /// Short scripts, crashed at every disk operation.
    Crash,
    /// Short scripts, with a fault at every disk call.
    Faults,
    /// Every way to damage the files of a reference store; 64 seeds are all of one.
    Damage,
    /// Threads on one store, and whether what they saw was possible.
    History,
    /// Canonical scripts, crashed at every disk operation, and their recoveries too, again and again.
    Nested,
    /// Canonical scripts, crashed at every disk operation with everything unsynced lost alone, and kept
    /// alone.
    Singles,
    /// Bugs planted in the engine, each looked for by the layer that should find it.
    #[cfg(feature = "mutants")]
    Mutants,
}

impl Arguments {
    /// Nothing is begun after this.
    fn time(&self) -> Result<Duration> {
        self.minutes.map_or(Ok(Duration::MAX), |minutes| {
            Duration::try_from_secs_f64(minutes * 60.0).context("--minutes must be a length of time")
        })
    }
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    #[cfg(feature = "mutants")]
    planted::plant_for(&arguments)?;
    let kind = match arguments.what {
        What::Model => Kind::Model,
        What::Crash => Kind::Crash,
        What::Faults => Kind::Faults,
        What::Damage => Kind::Damage,
        What::History => Kind::History,
        What::Nested => return nested::run(&arguments, Images::Drawn { random: 1 }, 4),
        What::Singles => return nested::run(&arguments, Images::Singles, 1),
        #[cfg(feature = "mutants")]
        What::Mutants => return planted::run(&arguments),
    };
    // Else a campaign for a number of cases would never end.
    let (engine, has_references) = (arguments.engine.name(), !arguments.engine.references().is_empty());
    ensure!(kind != Kind::Damage || has_references, "engine {engine} has no store to be damaged");
    let time = arguments.time()?;
    let seeds = arguments.seeds.clone().unwrap_or(0..100);
    let seeds = match arguments.cases {
        // As many as it takes.
        Some(_) => seeds.start..u64::MAX,
        None => seeds,
    };
    let campaign = Campaign {
        time,
        cases_max: arguments.cases.unwrap_or(u64::MAX),
        threads: arguments.threads.max(1),
        actors: arguments.actors.map(usize::from),
        reduce_tries_max: arguments.reduce,
        failures_max: arguments.failures.max(1),
        ..Campaign::new(kind, seeds)
    };
    let outcome = run_campaign(&campaign, arguments.engine);
    for report in &outcome.reports {
        eprintln!("{report}");
    }
    if arguments.figures {
        for (name, figure) in &outcome.figures {
            eprintln!("{figure:>14}  {name}");
        }
    }
    let line =
        if arguments.json { json_line(arguments.engine, &outcome).to_string() } else { text_line(&outcome) };
    println!("{line}");
    Ok(if outcome.reports.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse_seeds(text: &str) -> Result<std::ops::Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    match text.split_once("..") {
        Some((start, end)) => Ok(number(start)?..number(end)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}

fn failed_seeds(outcome: &Outcome) -> Vec<u64> {
    outcome.reports.iter().map(|report| report.seed).collect()
}

fn text_line(outcome: &Outcome) -> String {
    format!(
        "{} seeds, {} operations, {} crash cases ({} nested, {} in recovery) at {} disk operations, \
         {} runs with a fault, {} damaged stores ({} flips; {} refused, {} contained, {} found, {} harmless; {:.0}/s), \
         {:.1} s, failed seeds: {:?}",
        outcome.seeds,
        outcome.operations,
        outcome.tally.cases,
        outcome.tally.nested_cases,
        outcome.tally.crashes_in_recovery,
        outcome.tally.ops,
        outcome.fault_runs,
        outcome.damage.cases,
        outcome.damage.flips,
        outcome.damage.refused,
        outcome.damage.contained,
        outcome.damage.found,
        outcome.damage.harmless,
        outcome.damage.cases as f64 / outcome.seconds.max(0.001),
        outcome.seconds,
        failed_seeds(outcome)
    )
}

fn json_line(engine: &dyn Tested, outcome: &Outcome) -> Value {
    json!({
        "engine": engine.name(),
        "seeds": outcome.seeds,
        "operations": outcome.operations,
        "crash_cases": outcome.tally.cases,
        "nested_cases": outcome.tally.nested_cases,
        "crashes_in_recovery": outcome.tally.crashes_in_recovery,
        "disk_operations": outcome.tally.ops,
        "fault_runs": outcome.fault_runs,
        "damaged_stores": outcome.damage.cases,
        "bits_flipped": outcome.damage.flips,
        "fingerprint": format!("{:016x}", outcome.fingerprint),
        "seconds": outcome.seconds,
        "failed_seeds": failed_seeds(outcome),
    })
}
