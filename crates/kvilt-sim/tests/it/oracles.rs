//! The oracles on a toy engine: nothing to blame in the right one, and each flaw found.

use std::time::Duration;

use kvilt_base::Level;
use kvilt_io::{MemoryDisk, NativeClock};
use kvilt_sim::{
    Script, Subject,
    actor::{Cast, perform},
    campaign::{Campaign, Kind, run_campaign},
    crash::{Plan, Tally, explore},
    faults::{Case, Coverage},
    run::run,
    shrink::reduce,
    threads::act_through_power_cuts,
    workload::Shape,
    world::World,
};

use crate::toy::{Flaw, ToyEngine, Toys};

fn toys(flaw: Flaw) -> Toys {
    Toys { flaw, level: Level::Async }
}

/// The seed of the first of a number of scripts that a toy fails, and how it fails.
fn first_model_failure(flaw: Flaw, seeds: u64) -> Option<(u64, Script, kvilt_sim::Failure)> {
    (0..seeds).find_map(|seed| {
        let script = Shape::long().script(seed);
        let failure = run(&toys(flaw), &World::fresh(seed), &script).err()?;
        Some((seed, script, failure))
    })
}

#[test]
fn the_model_agrees_with_a_right_toy_and_not_with_wrong_ones() {
    assert!(first_model_failure(Flaw::None, 6).is_none(), "{:?}", first_model_failure(Flaw::None, 6));
    let flaws =
        [Flaw::StaleGet, Flaw::LateView, Flaw::BackwardScanSkips, Flaw::RangeStartLeft, Flaw::OldLogsKept];
    for flaw in flaws {
        assert!(first_model_failure(flaw, 3).is_some(), "{flaw:?} was not seen");
    }
}

#[test]
fn a_failing_script_is_reduced_to_a_few_steps() {
    let (seed, script, failure) = first_model_failure(Flaw::RangeStartLeft, 3).expect("the toy is wrong");
    let (reduced, failure) = reduce(&script, failure, 2_000, |script| {
        run(&toys(Flaw::RangeStartLeft), &World::fresh(seed), script).err()
    });
    // A put, a delete of its range; the rest is looked at when the script has ended.
    assert!(reduced.steps.len() <= 3, "{failure}\n{reduced}");
}

/// Cases until the first failure over a number of scripts, and all cases if there is none.
fn crash_cases(subject: &dyn Subject, scripts: u64) -> (Tally, Option<String>) {
    let mut tally = Tally::default();
    for seed in 0..scripts {
        let script = Shape::crash().script(seed);
        if let Err(failure) = explore(subject, &script, seed, &Plan::default(), &mut tally) {
            return (tally, Some(format!("seed {seed}, {failure}")));
        }
    }
    (tally, None)
}

#[test]
fn a_right_toy_survives_every_crash_in_both_modes() {
    for level in [Level::Async, Level::Sync] {
        let (tally, failure) = crash_cases(&Toys { flaw: Flaw::None, level }, 8);
        assert_eq!(failure, None);
        assert!(tally.cases > 3_000, "{tally:?}");
        assert!(tally.crashes_in_recovery > 100 && tally.nested_cases > 500, "{tally:?}");
    }
}

#[test]
fn each_wrong_toy_is_caught_by_some_crash_within_10_000_cases() {
    let wrong = [
        (Flaw::SyncForgotten, Level::Async),
        (Flaw::SyncForgotten, Level::Sync),
        (Flaw::DirectorySyncForgotten, Level::Async),
        (Flaw::AppendBehindTornTail, Level::Async),
        (Flaw::BatchInPieces, Level::Async),
        (Flaw::ChecksumIgnored, Level::Async),
    ];
    for (flaw, level) in wrong {
        let (tally, failure) = crash_cases(&Toys { flaw, level }, 20);
        let failure = failure.unwrap_or_else(|| panic!("{flaw:?} {level:?} was not caught: {tally:?}"));
        assert!(tally.cases <= 10_000, "{flaw:?} {level:?} took {} cases: {failure}", tally.cases);
    }
}

#[test]
fn a_right_toy_endures_every_fault_and_one_that_forgets_a_failed_sync_is_caught() {
    for level in [Level::Async, Level::Sync] {
        for seed in 0..2 {
            let script = Shape::crash().script(seed);
            let mut coverage = Coverage::default();
            let outcome =
                Case::new(&Toys { flaw: Flaw::None, level }, &script, seed).explore(3, &mut coverage);
            outcome.unwrap_or_else(|(trouble, failure)| panic!("{trouble:?}: {failure}"));
            assert!(coverage.runs > 80, "{coverage:?}");
        }
    }
    let forgetful = Toys { flaw: Flaw::SyncFailureForgotten, level: Level::Sync };
    let failure = (0..4).find_map(|seed| {
        let script = Shape::crash().script(seed);
        Case::new(&forgetful, &script, seed).explore(1, &mut Coverage::default()).err()
    });
    let (trouble, _) = failure.expect("a write refused by a failed sync came back behind later ones");
    assert_eq!(trouble.call, kvilt_io::Call::Sync);
}

/// What the history of some threads on a toy is blamed for.
fn blamed(flaw: Flaw, seeds: u64) -> Option<String> {
    (0..seeds).find_map(|seed| {
        let world = World::threaded(MemoryDisk::new(seed), seed);
        let engine = toys(flaw).open(&world).expect("a fresh toy opens");
        let cast = Cast {
            threads: 4,
            keys: 64,
            value_bytes_max: 40,
            operations: 8_000,
            time: Duration::from_secs(2),
            seed,
            may_be_refused: false,
        };
        match perform(&*engine, &cast, &NativeClock::new()) {
            Err(complaint) => Some(complaint.to_string()),
            Ok(history) => {
                assert!(history.len() > 1_000);
                history.check().first().map(ToString::to_string)
            }
        }
    })
}

#[test]
fn the_history_of_a_right_toy_is_not_blamed_and_wrong_ones_are() {
    assert_eq!(blamed(Flaw::None, 2), None);
    for flaw in [Flaw::TornBatch, Flaw::StaleGet, Flaw::LateView, Flaw::SwapInTwoSteps] {
        let message = blamed(flaw, 10).unwrap_or_else(|| panic!("{flaw:?} was not seen"));
        println!("{flaw:?}: {message}");
    }
}

#[test]
fn a_campaign_counts_what_it_did_and_names_the_seeds_that_failed() {
    let campaign = Campaign { threads: 2, failures_max: 100, ..Campaign::new(Kind::Crash, 0..6) };
    let right = run_campaign(&campaign, &ToyEngine { flaw_of: |_| Flaw::None });
    assert_eq!((right.seeds, right.reports.len()), (6, 0));
    assert!(right.tally.ops > 300 && right.tally.cases > 5 * right.tally.ops, "{:?}", right.tally);

    // Only odd seeds get a wrong toy.
    let flaw_of = |seed| if seed % 2 == 1 { Flaw::SyncForgotten } else { Flaw::None };
    let mixed = run_campaign(&campaign, &ToyEngine { flaw_of });
    let mut failed: Vec<u64> = mixed.reports.iter().map(|report| report.seed).collect();
    failed.sort_unstable();
    assert_eq!(failed, [1, 3, 5]);
    let text = mixed.reports[0].to_string();
    assert!(text.contains("SyncForgotten") && text.contains("power cut"), "{text}");
}

/// What threads on a toy are blamed for after some power cuts.
fn blamed_after_cuts(flaw: Flaw, level: Level, seeds: u64) -> Option<String> {
    (0..seeds).find_map(|seed| {
        let cast = Cast {
            threads: 4,
            keys: 64,
            value_bytes_max: 40,
            operations: 4_000,
            time: Duration::from_secs(2),
            seed,
            may_be_refused: true,
        };
        let outcome = act_through_power_cuts(&Toys { flaw, level }, &cast, &NativeClock::new(), 10);
        outcome.err().map(|complaint| complaint.to_string())
    })
}

#[test]
fn a_power_cut_under_threads_leaves_a_prefix_or_is_blamed() {
    for level in [Level::Async, Level::Sync] {
        assert_eq!(blamed_after_cuts(Flaw::None, level, 3), None);
        let message = blamed_after_cuts(Flaw::SyncForgotten, level, 20).expect("lost syncs are seen");
        println!("{level:?}: {message}");
    }
    blamed_after_cuts(Flaw::AppendBehindTornTail, Level::Async, 20).expect("a lost log is seen");
}
