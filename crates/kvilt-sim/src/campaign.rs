//! A campaign: many seeds, one summary. Each seed stands for one script (or cast) and one configuration of
//! the store, so a failing seed can be run alone.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use kvilt_base::Clock;
use kvilt_io::{MemoryDisk, NativeClock};

use crate::{
    actor::Cast,
    crash::{Plan, Tally, explore},
    damage::{DamageTally, blow::Blow, reference::Reference, run_blows},
    dice::mix,
    faults::{Case, Coverage},
    report::{Complaint, Failure, Report, catching_panics},
    run::run,
    shrink::reduce,
    subject::{Subject, Tested},
    threads::{act_in_peace, act_through_power_cuts},
    work::keep_to_steps,
    workload::Shape,
    world::World,
};

/// What each seed is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A long script against the model.
    Model,
    /// A short script, crashed at every disk operation.
    Crash,
    /// A short script, with a fault at every disk call.
    Faults,
    /// A part of all the damage that can be done to a reference store.
    Damage,
    /// Threads on one store, and their history checked.
    History,
}

/// What to do, and for how long.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// What each seed is used for.
    pub kind: Kind,
    /// The seeds.
    pub seeds: Range<u64>,
    /// No seed is begun when there have been so many cases, see [`Outcome::cases`].
    pub cases_max: u64,
    /// No seed is begun after this time.
    pub time: Duration,
    /// Seeds run at the same time; a history uses threads of its own besides.
    pub threads: usize,
    /// Threads that act on the store of each history; if none are named, four to eight, by the seed.
    pub actors: Option<usize>,
    /// Runs spent on reducing each failing script.
    pub reduce_tries_max: u32,
    /// Stop when this many seeds have failed.
    pub failures_max: usize,
}

impl Campaign {
    /// These seeds, to the end, on one thread; stops at the first failure.
    pub fn new(kind: Kind, seeds: Range<u64>) -> Self {
        Campaign {
            kind,
            seeds,
            cases_max: u64::MAX,
            time: Duration::MAX,
            threads: 1,
            actors: None,
            reduce_tries_max: 300,
            failures_max: 1,
        }
    }
}

/// What came of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Seeds run.
    pub seeds: u64,
    /// Operations compared with the model, or recorded in histories.
    pub operations: u64,
    /// Crashes, and the calls that changed a disk in recorded runs and in those against the model.
    pub tally: Tally,
    /// Runs with a fault.
    pub fault_runs: u64,
    /// Damaged stores.
    pub damage: DamageTally,
    /// The last states of all scripts against the model, as one number.
    pub fingerprint: u64,
    /// Figures of the stores, summed.
    pub figures: BTreeMap<&'static str, u64>,
    /// Seconds it took.
    pub seconds: f64,
    /// Seeds that failed.
    pub reports: Vec<Report>,
}

impl Outcome {
    /// What a campaign of this kind is counted in: operations, crashes, runs with a fault, or damaged stores.
    pub fn cases(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Model | Kind::History => self.operations,
            Kind::Crash => self.tally.cases,
            Kind::Faults => self.fault_runs,
            Kind::Damage => self.damage.cases,
        }
    }
}

/// A seed that runs longer than this is named on the error output: it may hang.
const SLOW_SEED: Duration = Duration::from_secs(60);

/// Runs a campaign on an engine.
pub fn run_campaign(campaign: &Campaign, tested: &dyn Tested) -> Outcome {
    let clock = NativeClock::new();
    let next = AtomicU64::new(campaign.seeds.start);
    let outcome = Mutex::new(Outcome::default());
    let begun: Mutex<BTreeMap<u64, Duration>> = Mutex::default();
    let (end, ended) = channel::<()>();
    thread::scope(|scope| {
        for _ in 0..campaign.threads {
            let end = end.clone();
            let (next, outcome, begun, clock) = (&next, &outcome, &begun, &clock);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    let is_enough = {
                        let outcome = lock(outcome);
                        outcome.reports.len() >= campaign.failures_max
                            || outcome.cases(campaign.kind) >= campaign.cases_max
                    };
                    if seed >= campaign.seeds.end || clock.now() >= campaign.time || is_enough {
                        break;
                    }
                    lock(begun).insert(seed, clock.now());
                    // A thread of its own: what a collector of garbage remembers of a thread starts anew, so
                    // that a seed goes the same way whatever ran before it.
                    thread::scope(|scope| {
                        let run = scope.spawn(|| run_seed(campaign, seed, tested, clock, outcome));
                        // Joined, not just awaited: so it has also put away what it held for itself.
                        run.join().expect("panics of a run are caught within it");
                    });
                    lock(begun).remove(&seed);
                }
                // Nobody receives it: that the senders are gone is the message.
                drop(end);
            });
        }
        drop(end);
        while ended.recv_timeout(SLOW_SEED) == Err(RecvTimeoutError::Timeout) {
            for (seed, since) in lock(&begun).iter() {
                if clock.now().saturating_sub(*since) > SLOW_SEED {
                    eprintln!("seed {seed} has been running for {:?}", clock.now().saturating_sub(*since));
                }
            }
        }
    });
    let mut outcome = outcome.into_inner().expect("no thread panicked");
    outcome.seconds = clock.now().as_secs_f64();
    outcome
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics while holding it")
}

fn run_seed(
    campaign: &Campaign,
    seed: u64,
    tested: &dyn Tested,
    clock: &dyn Clock,
    outcome: &Mutex<Outcome>,
) {
    let subject = &*tested.of_seed(seed);
    let mut own = Outcome { seeds: 1, ..Outcome::default() };
    let failed = match campaign.kind {
        Kind::Model => run_model(campaign, seed, (tested, subject), &mut own),
        Kind::Crash => run_crash(campaign, seed, subject, &mut own),
        Kind::Faults => run_faults(campaign, seed, subject, &mut own),
        Kind::Damage => run_damage(tested, seed, &mut own),
        Kind::History => run_history(campaign, seed, subject, clock, &mut own),
    };
    let report = failed.map(|(failure, reduced)| Report { subject: subject.name(), seed, failure, reduced });
    let mut outcome = lock(outcome);
    outcome.seeds += own.seeds;
    outcome.operations += own.operations;
    outcome.tally.add(own.tally);
    outcome.fault_runs += own.fault_runs;
    outcome.damage.add(own.damage);
    outcome.fingerprint = outcome.fingerprint.wrapping_add(own.fingerprint);
    for (name, figure) in own.figures {
        *outcome.figures.entry(name).or_default() += figure;
    }
    outcome.reports.extend(report);
}

type Failed = Option<(Failure, Option<(crate::Script, Failure)>)>;

fn run_model(
    campaign: &Campaign,
    seed: u64,
    (tested, subject): (&dyn Tested, &dyn Subject),
    own: &mut Outcome,
) -> Failed {
    let script = Shape::long().on(subject).script(seed);
    let play = |script: &crate::Script| run(subject, &World::fresh(seed), script);
    if let Err(complaint) = keep_to_steps(tested, seed) {
        return Some((Failure::at_step(0, complaint.to_string()), None));
    }
    match play(&script) {
        Ok(summary) => {
            own.operations += summary.operations;
            own.fingerprint = mix(summary.fingerprint ^ seed);
            own.tally.ops += summary.disk_operations;
            own.figures.extend(summary.figures);
            None
        }
        Err(failure) => {
            let reduced =
                reduce(&script, failure.clone(), campaign.reduce_tries_max, |script| play(script).err());
            Some((failure, Some(reduced)))
        }
    }
}

fn run_crash(campaign: &Campaign, seed: u64, subject: &dyn Subject, own: &mut Outcome) -> Failed {
    let script = Shape::crash().on(subject).script(seed);
    let plan = Plan::default();
    let failure = explore(subject, &script, seed, &plan, &mut own.tally).err()?;
    let reduced = reduce(&script, failure.clone(), campaign.reduce_tries_max, |script| {
        explore(subject, script, seed, &plan, &mut Tally::default()).err()
    });
    Some((failure, Some(reduced)))
}

fn run_faults(campaign: &Campaign, seed: u64, subject: &dyn Subject, own: &mut Outcome) -> Failed {
    let script = Shape::crash().on(subject).script(seed);
    let mut coverage = Coverage::default();
    let outcome = Case::new(subject, &script, seed).explore(1, &mut coverage);
    own.fault_runs += coverage.runs;
    match outcome {
        Ok(()) => None,
        Err((trouble, failure)) => {
            let fails = |script: &crate::Script| Case::new(subject, script, seed).find_alike(trouble);
            let reduced = reduce(&script, failure.clone(), campaign.reduce_tries_max, fails);
            Some((failure, Some(reduced)))
        }
    }
}

/// So many seeds in a row do all the damage there is to one reference.
pub const DAMAGE_SEEDS: u64 = 64;

fn run_damage(tested: &dyn Tested, seed: u64, own: &mut Outcome) -> Failed {
    let recipes = tested.references();
    // An engine without references has nothing to be damaged: no case is counted.
    let number = (seed / DAMAGE_SEEDS).checked_rem(recipes.len() as u64)?;
    let run = || {
        let reference =
            Reference::new(recipes, number).map_err(|error| Failure::at_step(0, error.to_string()))?;
        run_blows(&reference, Blow::all(&reference), (seed % DAMAGE_SEEDS, DAMAGE_SEEDS), &mut own.damage)
    };
    run().err().map(|failure| (failure, None))
}

/// Threads on one store: first without accidents, then through some power cuts.
fn run_history(
    campaign: &Campaign,
    seed: u64,
    subject: &dyn Subject,
    clock: &dyn Clock,
    own: &mut Outcome,
) -> Failed {
    let cast = Cast {
        threads: campaign.actors.unwrap_or(4 + (seed % 5) as usize),
        keys: [48, 200, 1_000][(seed % 3) as usize],
        value_bytes_max: [24, 120, 600][(seed / 3 % 3) as usize],
        operations: 20_000,
        time: campaign.time.saturating_sub(clock.now()).min(Duration::from_secs(20)),
        seed,
        may_be_refused: false,
    };
    let act = || {
        let history = act_in_peace(subject, &cast, clock, MemoryDisk::new(seed))?;
        let cuts = act_through_power_cuts(subject, &cast, clock, POWER_CUTS)?;
        Ok((history, cuts))
    };
    match catching_panics::<_, Complaint>(act) {
        Ok((peaceful, cuts)) => {
            own.operations += peaceful.operations + cuts.operations;
            own.tally.cases += cuts.power_cuts;
            own.figures.extend(peaceful.figures);
            None
        }
        Err(complaint) => Some((Failure::at_step(0, complaint.to_string()), None)),
    }
}

/// Power cuts in the history of one seed.
const POWER_CUTS: u64 = 12;
