//! `kvilt-sim mutants`: the healthy engine passes, each planted bug is found; a table, and one summary line.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use kvilt_base::{Clock, mutant::plant};
use kvilt_io::NativeClock;
use kvilt_sim::mutants::{CASES_MAX, Hunt, Layer, Planted, hunt, hunt_for};
use serde_json::json;

use crate::{Arguments, What};

/// Hunts for the bugs asked for; fails if one is not found, or if something is where nothing was planted.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let clock = NativeClock::new();
    let cases_max = arguments.cases.unwrap_or(CASES_MAX);
    let (engine, all) = (arguments.engine, arguments.engine.planted());
    let is_wanted =
        |planted: &&Planted| arguments.only.as_ref().is_none_or(|name| name == planted.mutant.name());
    let wanted: Vec<&Planted> = all.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        bail!("there is no planted bug of that name; they are {:?}", names(all));
    }
    let is_needed = |layer: &Layer| wanted.iter().any(|planted| planted.layer == *layer);
    for layer in Layer::ALL.into_iter().filter(is_needed) {
        let healthy = hunt(engine, layer, cases_max.min(layer.cases_max()));
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
    let hunts: Vec<(&Planted, Hunt)> = wanted
        .into_iter()
        .map(|planted| (planted, told(planted, hunt_for(engine, planted, cases_max))))
        .collect();
    let missed: Vec<&str> = hunts
        .iter()
        .filter(|(_, hunt)| hunt.found.is_none())
        .map(|(planted, _)| planted.mutant.name())
        .collect();
    let worst = hunts.iter().map(|(_, hunt)| hunt.cases).max().unwrap_or(0);
    let seconds = clock.now().as_secs_f64();
    if arguments.json {
        let bugs: Vec<_> = hunts.iter().map(|(planted, hunt)| json_of(planted, hunt)).collect();
        println!(
            "{}",
            json!({ "engine": engine.name(), "bugs": bugs, "missed": missed, "worst_cases": worst, "seconds": seconds })
        );
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
        let found = arguments.engine.planted().iter().find(|planted| planted.mutant.name() == name);
        plant(found.with_context(|| format!("there is no planted bug of the name {name}"))?.mutant);
    }
    Ok(())
}

fn names(planted: &[Planted]) -> Vec<&str> {
    planted.iter().map(|planted| planted.mutant.name()).collect()
}

fn told(planted: &Planted, hunt: Hunt) -> Hunt {
    let Planted { mutant, layer, rule } = planted;
    let layer = format!("{layer:?}");
    let seen = hunt.found.as_ref().map_or("NOT FOUND".into(), |(seed, seen)| {
        let line = seen.lines().next().unwrap_or_default();
        format!("seed {seed}, {}", line.chars().take(100).collect::<String>())
    });
    eprintln!("{:<24} {rule:<5} {layer:<8} {:>6} cases: {seen}", mutant.name(), hunt.cases);
    hunt
}

fn json_of(planted: &Planted, hunt: &Hunt) -> serde_json::Value {
    json!({
        "bug": planted.mutant.name(),
        "rule": planted.rule,
        "layer": format!("{:?}", planted.layer),
        "cases": hunt.cases,
        "seed": hunt.found.as_ref().map(|(seed, _)| seed),
        "seen": hunt.found.as_ref().map(|(_, seen)| seen),
    })
}
