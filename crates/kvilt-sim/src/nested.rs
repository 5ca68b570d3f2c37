//! `kvilt-sim nested` and `kvilt-sim singles`: the canonical scripts, crashed in every way; a line for each,
//! one summary.

use std::{
    ops::Range,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use kvilt_base::Clock;
use kvilt_io::NativeClock;
use kvilt_sim::{
    Failure,
    crash::{
        Images,
        nested::{Plan, Tally, explore},
    },
    subject::Tested,
};
use serde_json::{Value, json};

use crate::Arguments;

/// One script under one seed, and what came of it.
struct Deed {
    seed: u64,
    script: u64,
    tally: Tally,
    failure: Option<Failure>,
    took: Duration,
}

/// Crashes the scripts asked for, seed by seed; stops at the first failure.
pub(crate) fn run(arguments: &Arguments, images: Images, depth: u32) -> Result<ExitCode> {
    let time = arguments.time()?;
    let engine = arguments.engine;
    let count = engine.canonical().len() as u64;
    let scripts = arguments.scripts.clone().unwrap_or(0..count);
    ensure!(count > 0, "engine {} has no canonical scripts", engine.name());
    ensure!(!scripts.is_empty() && scripts.end <= count, "--scripts must lie within 0..{count}");
    let seeds = arguments.seeds.clone().unwrap_or(0..1);
    let depth = arguments.depth.unwrap_or(depth);
    ensure!(depth > 0, "--depth must be at least 1");
    let clock = NativeClock::new();
    let (next, deeds) = (AtomicU64::new(0), Mutex::new(Vec::<Deed>::new()));
    let turns = (seeds.end.saturating_sub(seeds.start)).saturating_mul(scripts.end - scripts.start);
    thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let has_failed = lock(&deeds).iter().any(|deed| deed.failure.is_some());
                    if has_failed || clock.now() >= time {
                        break;
                    }
                    let turn = next.fetch_add(1, Relaxed);
                    if turn >= turns {
                        break;
                    }
                    let (seed, script) = place(turn, &seeds, &scripts);
                    let plan = Plan { depth, images, stride: 1, seed };
                    // A thread of its own: see `run_campaign`.
                    let deed = thread::scope(|scope| {
                        let run = scope.spawn(|| one(engine, script, &plan, &clock));
                        run.join().expect("panics of a run are caught within it")
                    });
                    eprintln!("{}", line(engine, &deed));
                    lock(&deeds).push(deed);
                }
            });
        }
    });
    let mut deeds = deeds.into_inner().expect("no thread panicked");
    deeds.sort_unstable_by_key(|deed| (deed.seed, deed.script));
    let done = next.into_inner().min(turns);
    let (next_seed, next_script) = place(done, &seeds, &scripts);
    let mut all = Tally::default();
    deeds.iter().for_each(|deed| all.add(&deed.tally));
    let seconds = clock.now().as_secs_f64();
    let failed: Vec<&Deed> = deeds.iter().filter(|deed| deed.failure.is_some()).collect();
    if arguments.json {
        let scripts: Vec<Value> = deeds.iter().map(|deed| json_of(engine, deed)).collect();
        let summary = json!({
            "engine": engine.name(),
            "calls": all.calls, "cases": all.cases_in_all(), "cases_by_depth": all.cases, "states": all.states,
            "equal": all.equal_in_all(), "equal_by_depth": all.equal, "depth": depth, "seconds": seconds,
            "seeds": next_seed - seeds.start, "next_seed": next_seed, "next_script": next_script,
            "failed_seeds": failed.iter().map(|deed| deed.seed).collect::<Vec<_>>(), "scripts": scripts,
        });
        println!("{summary}");
    } else {
        println!(
            "{} scripts, {} disk operations, {} cases to depth {depth} ({:?}), {} states, {} cases equal to one of them \
             ({:?}), {seconds:.1} s; goes on with --seeds {next_seed} --scripts {next_script}; {} failed",
            deeds.len(),
            all.calls,
            all.cases_in_all(),
            all.cases,
            all.states,
            all.equal_in_all(),
            all.equal,
            failed.len()
        );
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The seed and the script of a turn; scripts change first.
fn place(turn: u64, seeds: &Range<u64>, scripts: &Range<u64>) -> (u64, u64) {
    let width = scripts.end - scripts.start;
    (seeds.start + turn / width, scripts.start + turn % width)
}

fn one(engine: &dyn Tested, script: u64, plan: &Plan, clock: &dyn Clock) -> Deed {
    let begun = clock.now();
    let canonical = engine.canonical().swap_remove(script as usize);
    let mut tally = Tally::default();
    let failure = explore(&canonical, plan, &mut tally).err();
    Deed { seed: plan.seed, script, tally, failure, took: clock.now() - begun }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics while holding it")
}

fn name_of(engine: &dyn Tested, deed: &Deed) -> &'static str {
    engine.canonical()[deed.script as usize].name
}

fn line(engine: &dyn Tested, deed: &Deed) -> String {
    let Deed { seed, script, tally, failure, took } = deed;
    let outcome = failure.as_ref().map_or(String::new(), |failure| format!("\nFAILED: {failure}"));
    format!(
        "seed {seed} script {script:>2} {:<30} {:>4} disk operations, {:>9} cases, {:>8} states, {:>6.1} s{outcome}",
        name_of(engine, deed),
        tally.calls,
        tally.cases_in_all(),
        tally.states,
        took.as_secs_f64()
    )
}

fn json_of(engine: &dyn Tested, deed: &Deed) -> Value {
    json!({
        "seed": deed.seed, "script": deed.script, "name": name_of(engine, deed), "calls": deed.tally.calls,
        "cases_by_depth": deed.tally.cases, "equal_by_depth": deed.tally.equal, "states": deed.tally.states,
        "seconds": deed.took.as_secs_f64(), "failure": deed.failure.as_ref().map(ToString::to_string),
    })
}
