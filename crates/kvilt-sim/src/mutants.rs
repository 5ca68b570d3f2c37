//! Would the tests notice? Each bug of [`kvilt_base::Mutant`] is brought to life, and the layer that should
//! find it looks.
//!
//! What a layer runs is what a campaign runs, on the same 36 configurations in turn, only thinner: of about
//! each sixteenth crash one image, of each sixteenth disk call the faults, of each damage a thousandth, so
//! that a few thousand cases see many scripts. Before any bug is planted, the healthy engine must pass the
//! very same cases.
//!
//! What is always true here: one bug at a time in the whole process, and none when a hunt has ended; the seed
//! decides everything, so a bug is found in the same case each time.

use std::{fmt, thread};

use kvilt_base::{
    Mutant,
    mutant::{plant, uproot},
};

use crate::{
    canonical::Canonical,
    crash::{Images, Plan, Tally, explore, nested},
    damage::{DamageTally, blow::Blow, reference, reference::Reference, run_blows},
    faults::{Case, Coverage},
    report::catching_panics,
    run::run,
    work::keep_to_steps,
    workload::Shape,
    world::{Even, World},
};

/// No bug may need more cases than this.
pub const CASES_MAX: u64 = 10_000;

/// One disk call in so many of each kind fails.
const FAULTS_STRIDE: u64 = 16;
/// One damage in so many is done by one seed.
const DAMAGE_SHARDS: u64 = 1_024;

/// Who looks for bugs, and what one case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// A script of some 2,400 operations against the model.
    Model,
    /// An image that a crash left, opened and held to the promise.
    Crash,
    /// The same at every disk call, for a bug that few crashes show. The scripts begin with one whose crashes
    /// do: stores at rest take no checkpoints, so few crashes fall between a recovery and the first
    /// checkpoint behind it.
    EveryCrash,
    /// A script with a disk call that fails.
    Faults,
    /// A reference store with one damage.
    Damage,
    /// A state that crashes of a canonical script, and of its recoveries, left.
    Nested,
}

impl Layer {
    /// All of them.
    pub const ALL: [Layer; 6] =
        [Layer::Model, Layer::Crash, Layer::EveryCrash, Layer::Faults, Layer::Damage, Layer::Nested];

    /// So many cases the healthy engine passes before a hunt, and so many a hunt has at most: no more than
    /// needed, for they cost a minute in all.
    pub fn cases_max(self) -> u64 {
        match self {
            Layer::Model => 200,
            Layer::Crash | Layer::EveryCrash | Layer::Nested => CASES_MAX,
            Layer::Faults => 6_000,
            Layer::Damage => 1_000,
        }
    }

    /// Runs the cases of one seed and counts them, up to the first that goes wrong.
    fn run_seed(self, seed: u64, cases: &mut u64) -> Result<(), String> {
        let even = Even::of_seed(seed);
        match self {
            Layer::Model => {
                *cases += 1;
                run(&even, &World::fresh(seed), &Shape::long().script(seed)).map_err(told)?;
                keep_to_steps(seed).map_err(told)
            }
            Layer::Crash | Layer::EveryCrash => {
                let plan = Plan { is_sampled: self == Layer::Crash, ..Plan::default() };
                let mut tally = Tally::default();
                let outcome = explore(&even, &Shape::crash().script(seed), seed, &plan, &mut tally);
                // A store that goes wrong before its first crash is a case, too.
                *cases += tally.cases.max(1);
                outcome.map_err(told)
            }
            Layer::Faults => {
                let mut coverage = Coverage::default();
                let script = Shape::crash().script(seed);
                let outcome = Case::new(&even, &script, seed).explore(FAULTS_STRIDE, &mut coverage);
                *cases += coverage.runs;
                outcome.map_err(|(_, failure)| told(failure))
            }
            Layer::Damage => run_damage(seed, cases),
            Layer::Nested => run_nested(seed, NESTED_DEPTH, cases),
        }
    }
}

fn told(failure: impl fmt::Display) -> String {
    failure.to_string()
}

/// The first seed of [`Layer::EveryCrash`].
const EVERY_CRASH_SEED: u64 = 24;
/// Crashes in a row.
const NESTED_DEPTH: u32 = 2;
/// A script is crashed at one in so many of its changing calls.
const NESTED_STRIDE: u64 = 7;

/// Crashes a canonical script, and its recoveries to this depth.
fn run_nested(seed: u64, depth: u32, cases: &mut u64) -> Result<(), String> {
    let scripts = Canonical::all();
    let canonical = &scripts[seed as usize % scripts.len()];
    let plan = nested::Plan { depth, images: Images::Drawn { random: 1 }, stride: NESTED_STRIDE, seed };
    let mut tally = nested::Tally::default();
    let outcome = nested::explore(canonical, &plan, &mut tally);
    *cases += tally.states.max(1);
    outcome.map_err(told)
}

fn run_damage(seed: u64, cases: &mut u64) -> Result<(), String> {
    let mut tally = DamageTally::default();
    let outcome = catching_panics(|| {
        let reference = Reference::new(seed % reference::REFERENCES).map_err(told)?;
        let shard = (seed / reference::REFERENCES % DAMAGE_SHARDS, DAMAGE_SHARDS);
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
pub fn hunt(layer: Layer, cases_max: u64) -> Hunt {
    let mut cases = 0;
    let mut seed = if layer == Layer::EveryCrash { EVERY_CRASH_SEED } else { 0 };
    while cases < cases_max {
        // A thread of its own: see `run_campaign`.
        let outcome = thread::scope(|scope| {
            let run = scope.spawn(|| layer.run_seed(seed, &mut cases));
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
pub fn hunt_for(mutant: Mutant, cases_max: u64) -> Hunt {
    let (layer, _) = finder_of(mutant);
    plant(mutant);
    let hunt = hunt(layer, cases_max.min(layer.cases_max()));
    uproot();
    hunt
}

/// The layer that should find a bug, and the rule that the bug breaks: R and D of the rules learned from the
/// papers, else an invariant.
pub fn finder_of(mutant: Mutant) -> (Layer, &'static str) {
    use Layer::{Crash, Damage, EveryCrash, Faults, Model, Nested};
    match mutant {
        Mutant::NamesNotSynced => (Crash, "R5"),
        Mutant::LogNotSynced => (Crash, "R5"),
        Mutant::LogLeftOut => (Crash, "D2"),
        Mutant::LengthNotSynced => (Crash, "R4"),
        Mutant::SummaryNotSynced => (Crash, "E-14"),
        Mutant::TableNotSynced => (Crash, "E-21"),
        Mutant::EditNotSynced => (Crash, "R5"),
        Mutant::ManifestNotSynced => (Crash, "R5"),
        Mutant::ManifestNameNotSynced => (Crash, "R5"),
        Mutant::EditKeptAfterFailure => (Faults, "R5"),
        Mutant::WitnessNotTold => (Damage, "F-8"),
        Mutant::RemovedEarly => (Crash, "R5"),
        Mutant::DirtyTakenEarly => (Crash, "D2"),
        Mutant::EmptyLogForgotten => (Crash, "D2"),
        Mutant::NotTakenBack => (Faults, "D2"),
        Mutant::PaperGarbageCollection => (Crash, "R1"),
        Mutant::CheckpointWithoutEpoch => (EveryCrash, "R2"),
        Mutant::DeadForgotten => (Crash, "R2"),
        Mutant::DeadTooMany => (Crash, "R2"),
        Mutant::DeadSummedUp => (Crash, "R2"),
        // E-5, too.
        Mutant::AppendBehindTornTail => (Crash, "R3"),
        Mutant::LiveOrphan => (Crash, "E-8"),
        Mutant::NumberReused => (Crash, "R5"),
        Mutant::VisibleNotDurable => (Crash, "R7"),
        Mutant::ReplayNotSynced => (Crash, "R7"),
        Mutant::OrphansRemovedEarly => (Nested, "R7"),
        Mutant::AcknowledgedEarly => (Crash, "D6"),
        Mutant::AppliedEarly => (Faults, "D1"),
        Mutant::ChainIgnored => (Crash, "E-11"),
        Mutant::ChainForgotten => (Crash, "E-11"),
        Mutant::BatchHalfReplayed => (Crash, "B-4"),
        Mutant::CommitNotShown => (Crash, "B-7"),
        Mutant::BatchInPieces => (Crash, "B-4"),
        Mutant::CommitRemovedEarly => (Crash, "R5"),
        Mutant::BorderDropped => (Model, "E-3"),
        Mutant::TombstoneDropped => (Model, "R1"),
        Mutant::ViewIgnored => (Model, "R1"),
        Mutant::PutDuringSort => (Model, "E-3"),
        Mutant::PartsExchanged => (Model, "E-4"),
        Mutant::EvictedHalfIndexed => (Model, "E-4"),
        Mutant::DeletesNotInSpan => (Model, "E-4"),
        Mutant::LastNotNoted => (Model, "E-4"),
        Mutant::DeletesNotNoted => (Model, "E-4"),
        Mutant::LoadNotCaughtUp => (Model, "E-3"),
        Mutant::RowCacheNotTold => (Model, "D3"),
        Mutant::TicketIgnored => (Model, "D3"),
        Mutant::MunksKept => (Model, "E-19"),
        Mutant::KeptForReaders => (Model, "S-19"),
        Mutant::TombstonesInAList => (Model, "E-20"),
        Mutant::TombstonesPiledUp => (Model, "E-20"),
        Mutant::RangeEndIncluded => (Model, "B-1"),
        Mutant::TombstoneNotInSpan => (Model, "E-4"),
        Mutant::RangeDeleteNotTold => (Model, "D3"),
        Mutant::TombstoneUnderView => (Model, "E-17"),
        Mutant::TailNotFrozen => (Model, "E-3"),
        Mutant::ReplacedUnderView => (Model, "E-13"),
        Mutant::ReplacedBelowTail => (Model, "E-13"),
        Mutant::ViewsNotListed => (Model, "S-7"),
        Mutant::OldestFirst => (Model, "E-4"),
        Mutant::SyncRetried => (Faults, "B-6"),
        Mutant::NotPoisoned => (Faults, "B-6"),
        Mutant::BufferDropped => (Faults, "B-5"),
        Mutant::CarriedNotWritten => (Model, "E-15"),
        Mutant::DamageIsTornTail => (Damage, "R4"),
        Mutant::ChecksumIgnored => (Damage, "D8"),
        Mutant::FilterBelieved => (Damage, "F-5"),
        Mutant::CopyOutdated => (Model, "B-3"),
    }
}
