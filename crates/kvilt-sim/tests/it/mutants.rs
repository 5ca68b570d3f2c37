//! Bugs planted in the engine: each must be caught within 10,000 crash cases; the sound engine passes (see
//! `crash.rs`). They are the ones that a simulation of the published protocol found.

use std::time::Duration;

use kvilt_even::{Durability, options::Mutant};
use kvilt_io::NativeClock;
use kvilt_sim::{
    actor::Cast,
    crash::{Plan, Tally, explore},
    threads::act_through_power_cuts,
    workload::Shape,
    world::Even,
};

const CASES_MAX: u64 = 10_000;

/// The case, of those tried in order of their seeds, that first shows the planted bug.
fn cases_until_caught(mutant: Mutant) -> (u64, String) {
    let mut tally = Tally::default();
    for seed in 0.. {
        let script = Shape::crash().script(seed);
        let even = Even::tiny().with_mutant(mutant);
        let plan = Plan { cases_max: CASES_MAX, ..Plan::default() };
        if let Err(failure) = explore(&even, &script, seed, &plan, &mut tally) {
            return (tally.cases, format!("seed {seed}, {failure}"));
        }
        assert!(tally.cases < CASES_MAX, "{mutant:?} was not caught in {} cases", tally.cases);
    }
    unreachable!("seeds do not end")
}

fn check(mutant: Mutant) {
    let (cases, failure) = cases_until_caught(mutant);
    println!("{mutant:?} caught at case {cases}: {failure}");
    assert!(cases <= CASES_MAX);
}

/// Breaks E-9.
#[test]
fn the_papers_garbage_collection_rule_is_caught() {
    check(Mutant::PaperGarbageCollection);
}

/// A checkpoint is one step where one thread does all, so nothing can be written behind its cut and yet be synced
/// with it. Real threads do that all the time.
#[test]
fn a_checkpoint_not_tied_to_its_epoch_is_caught() {
    let mut even = Even::tiny().with_mutant(Mutant::CheckpointWithoutEpoch);
    even.options.durability = Durability::Async { interval: Duration::from_millis(1) };
    let mut cases = 0;
    for seed in 0.. {
        let cast = Cast {
            threads: 3,
            keys: 200,
            value_bytes_max: 120,
            operations: 20_000,
            time: Duration::from_secs(1),
            seed,
            may_be_refused: true,
        };
        let cuts = 20;
        match act_through_power_cuts(&even, &cast, &NativeClock::new(), cuts) {
            Ok(_) => cases += cuts,
            Err(complaint) => {
                println!("caught within {} cases: {complaint}", cases + cuts);
                return;
            }
        }
        assert!(cases < CASES_MAX, "not caught in {cases} cases");
    }
}

/// Breaks E-5.
#[test]
fn an_append_behind_a_torn_tail_is_caught() {
    check(Mutant::AppendBehindTornTail);
}

#[test]
fn a_table_not_synced_before_the_manifest_is_caught() {
    check(Mutant::TableNotSynced);
}
