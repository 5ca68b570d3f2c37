//! The hunt for planted bugs.

use std::{fmt, thread};

use kvilt_base::mutant::{plant, uproot};

use super::{Layer, Planted};
use crate::{
    crash::{Images, Plan, Tally, explore, nested},
    damage::{DamageTally, blow::Blow, reference::Reference, run_blows},
    faults::{Case, Coverage},
    report::catching_panics,
    run::run,
    subject::Tested,
    work::keep_to_steps,
    workload::Shape,
    world::World,
};

/// Of the disk calls of each kind, one in this many fails.
const FAULTS_STRIDE: u64 = 16;
/// Of all damage, one seed does one in this many …
const DAMAGE_SHARDS: u64 = 1_024;
/// … and not many more than this.
const DAMAGES_A_SEED: u64 = 700;

impl Layer {
    /// Runs the cases of one seed and counts them, up to the first that goes wrong.
    fn run_seed(self, tested: &dyn Tested, seed: u64, cases: &mut u64) -> Result<(), String> {
        let subject = &*tested.of_seed(seed);
        match self {
            Layer::Model => {
                *cases += 1;
                run(subject, &World::fresh(seed), &Shape::long().on(subject).script(seed)).map_err(told)?;
                keep_to_steps(tested, seed).map_err(told)
            }
            Layer::Crash | Layer::EveryCrash => {
                let plan = Plan { is_sampled: self == Layer::Crash, ..Plan::default() };
                let mut tally = Tally::default();
                let outcome =
                    explore(subject, &Shape::crash().on(subject).script(seed), seed, &plan, &mut tally);
                // A store that goes wrong before its first crash is a case, too.
                *cases += tally.cases.max(1);
                outcome.map_err(told)
            }
            Layer::Faults => {
                let mut coverage = Coverage::default();
                let script = Shape::crash().on(subject).script(seed);
                let outcome = Case::new(subject, &script, seed).explore(FAULTS_STRIDE, &mut coverage);
                *cases += coverage.runs;
                outcome.map_err(|(_, failure)| told(failure))
            }
            Layer::Damage => run_damage(tested, seed, cases),
            Layer::Nested => run_nested(tested, seed, NESTED_DEPTH, cases),
        }
    }
}

fn told(failure: impl fmt::Display) -> String {
    failure.to_string()
}

/// Crashes in a row.
const NESTED_DEPTH: u32 = 2;
/// Of the changing calls of a script, one in this many is a crash.
const NESTED_STRIDE: u64 = 11;

/// Crashes a canonical script, and its recoveries to this depth.
fn run_nested(tested: &dyn Tested, seed: u64, depth: u32, cases: &mut u64) -> Result<(), String> {
    let scripts = tested.canonical();
    let canonical = &scripts[seed as usize % scripts.len()];
    let plan = nested::Plan { depth, images: Images::Drawn { random: 1 }, stride: NESTED_STRIDE, seed };
    let mut tally = nested::Tally::default();
    let outcome = nested::explore(canonical, &plan, &mut tally);
    *cases += tally.states.max(1);
    outcome.map_err(told)
}

fn run_damage(tested: &dyn Tested, seed: u64, cases: &mut u64) -> Result<(), String> {
    let mut tally = DamageTally::default();
    let outcome = catching_panics(|| {
        let recipes = tested.references();
        let count = recipes.len() as u64;
        let reference = Reference::new(recipes, seed % count).map_err(told)?;
        // What can happen to whole files comes first: it is little of all.
        let Some(turn) = (seed / count).checked_sub(1) else {
            return run_blows(&reference, Blow::whole_files(&reference), (0, 1), &mut tally).map_err(told);
        };
        let shards = DAMAGE_SHARDS.max(Blow::all(&reference).count() as u64 / DAMAGES_A_SEED);
        let shard = (turn % shards, shards);
        run_blows(&reference, Blow::all(&reference), shard, &mut tally).map_err(told)
    });
    // The one that went wrong is not in the tally.
    *cases += tally.cases + u64::from(outcome.is_err());
    outcome
}

/// What a hunt came to.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// How many cases it took, or how many there were.
    pub cases: u64,
    /// The seed that it showed in, and what was seen; none if nothing was.
    pub found: Option<(u64, String)>,
}

/// Looks for whatever is wrong with the engine as it is now, seed by seed.
pub fn hunt(tested: &dyn Tested, layer: Layer, cases_max: u64) -> Hunt {
    let mut cases = 0;
    let mut seed = 0;
    while cases < cases_max {
        // A thread of its own: see `run_campaign`.
        let outcome = thread::scope(|scope| {
            let run = scope.spawn(|| layer.run_seed(tested, seed, &mut cases));
            run.join().expect("panics of a run are caught within it")
        });
        if let Err(seen) = outcome {
            return Hunt { cases, found: Some((seed, seen)) };
        }
        seed += 1;
    }
    Hunt { cases, found: None }
}

/// Looks for a planted bug with the layer that should find it.
pub fn hunt_for(tested: &dyn Tested, planted: &Planted, cases_max: u64) -> Hunt {
    plant(planted.mutant);
    let hunt = hunt(tested, planted.layer, cases_max.min(planted.layer.cases_max()));
    uproot();
    hunt
}
