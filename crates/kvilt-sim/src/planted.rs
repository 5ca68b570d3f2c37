//! `kvilt-sim mutants`: the healthy engine passes, each planted bug is found; a table, and one summary line.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use kvilt_base::{Clock, Mutant, mutant::plant};
use kvilt_io::NativeClock;
use kvilt_sim::mutants::{CASES_MAX, Hunt, Layer, finder_of, hunt, hunt_for};
use serde_json::json;

use crate::{Arguments, What};

/// Hunts for the bugs asked for; fails if one is not found, or if something is where nothing was planted.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let clock = NativeClock::new();
    let cases_max = arguments.cases.unwrap_or(CASES_MAX);
    let is_wanted = |mutant: &&Mutant| arguments.only.as_ref().is_none_or(|name| *name == name_of(**mutant));
    let mutants: Vec<Mutant> = Mutant::ALL.iter().filter(is_wanted).copied().collect();
    if mutants.is_empty() {
        bail!("there is no planted bug of that name; they are {:?}", Mutant::ALL);
    }
    let is_needed = |layer: &Layer| mutants.iter().any(|mutant| finder_of(*mutant).0 == *layer);
    for layer in Layer::ALL.into_iter().filter(is_needed) {
        let healthy = hunt(layer, cases_max.min(layer.cases_max()));
        if let Some((seed, seen)) = healthy.found {
            bail!("{layer:?}: the engine without a planted bug is not healthy: seed {seed}: {seen}");
        }
        eprintln!(
            "{:<24} {:<8} {:>6} cases, nothing wrong",
            "(healthy)",
            format!("{layer:?}"),
            healthy.cases
        );
    }
    let hunts: Vec<(Mutant, Hunt)> =
        mutants.into_iter().map(|mutant| (mutant, told(mutant, hunt_for(mutant, cases_max)))).collect();
    let missed: Vec<String> =
        hunts.iter().filter(|(_, hunt)| hunt.found.is_none()).map(|(mutant, _)| name_of(*mutant)).collect();
    let worst = hunts.iter().map(|(_, hunt)| hunt.cases).max().unwrap_or(0);
    let seconds = clock.now().as_secs_f64();
    if arguments.json {
        let bugs: Vec<_> = hunts.iter().map(|(mutant, hunt)| json_of(*mutant, hunt)).collect();
        println!("{}", json!({ "bugs": bugs, "missed": missed, "worst_cases": worst, "seconds": seconds }));
    } else {
        let found = hunts.len() - missed.len();
        println!(
            "{found} of {} planted bugs found, the last within {worst} cases, {seconds:.1} s, missed: {missed:?}",
            hunts.len()
        );
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Brings the bug asked for to life, for any command but `mutants`, which sees to it itself.
pub(crate) fn plant_for(arguments: &Arguments) -> Result<()> {
    if let (Some(name), false) = (&arguments.only, matches!(arguments.what, What::Mutants)) {
        let mutant = Mutant::ALL.iter().find(|mutant| name_of(**mutant) == *name);
        plant(*mutant.with_context(|| format!("there is no planted bug of the name {name}"))?);
    }
    Ok(())
}

fn name_of(mutant: Mutant) -> String {
    format!("{mutant:?}")
}

fn told(mutant: Mutant, hunt: Hunt) -> Hunt {
    let (layer, rule) = finder_of(mutant);
    let layer = format!("{layer:?}");
    let seen = hunt.found.as_ref().map_or("NOT FOUND".into(), |(seed, seen)| {
        let line = seen.lines().next().unwrap_or_default();
        format!("seed {seed}, {}", line.chars().take(100).collect::<String>())
    });
    eprintln!("{:<24} {rule:<5} {layer:<8} {:>6} cases: {seen}", name_of(mutant), hunt.cases);
    hunt
}

fn json_of(mutant: Mutant, hunt: &Hunt) -> serde_json::Value {
    let (layer, rule) = finder_of(mutant);
    json!({
        "bug": name_of(mutant),
        "rule": rule,
        "layer": format!("{layer:?}"),
        "cases": hunt.cases,
        "seed": hunt.found.as_ref().map(|(seed, _)| seed),
        "seen": hunt.found.as_ref().map(|(_, seen)| seen),
    })
}
