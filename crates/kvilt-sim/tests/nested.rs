//! Crashes within recoveries, and single writes lost, of the canonical scripts; in a process of their own:
//! what a store decides by its memory depends on what else the process frees, and here equal images must go
//! the same way.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use kvilt_sim::{
    crash::{
        Images,
        nested::{Plan, Tally, explore},
    },
    engines,
};

/// Crashes the scripts of all engines, one after the other.
fn explored(plan: &Plan) -> Tally {
    let mut all = Tally::default();
    for canonical in engines::ALL.iter().flat_map(|engine| engine.canonical()) {
        let mut tally = Tally::default();
        explore(&canonical, plan, &mut tally)
            .unwrap_or_else(|failure| panic!("{}: {failure}", canonical.name));
        all.add(&tally);
    }
    println!("{plan:?}: {all:?}");
    all
}

#[test]
fn crashes_of_recoveries_and_single_writes_lost_leave_what_was_promised() {
    recoveries_are_crashed_at_every_call_to_depth_four();
    everything_unsynced_is_lost_alone_and_kept_alone_at_every_call();
}

/// Rows 2 and 3 of the fault table: every 64th disk call of the scripts, but all calls of the recoveries.
fn recoveries_are_crashed_at_every_call_to_depth_four() {
    let plan = Plan { depth: 3, images: Images::Drawn { random: 1 }, stride: 64, seed: 0 };
    let tally = explored(&plan);
    assert!(tally.cases.iter().all(|cases| *cases >= 100), "{tally:?}");
    assert!(tally.equal_in_all() > tally.states, "most recoveries lead to where others were: {tally:?}");
    // The fourth has hundreds of times as many: of fewer calls.
    let tally = explored(&Plan { depth: 4, stride: 256, ..plan });
    assert!(tally.cases[1..].iter().all(|cases| *cases >= 100), "{tally:?}");
    assert!(tally.equal_in_all() > tally.states, "most recoveries lead to where others were: {tally:?}");
}

/// Row 2: all disk calls of all scripts. Nothing here is left to chance.
fn everything_unsynced_is_lost_alone_and_kept_alone_at_every_call() {
    let plan = Plan { depth: 1, images: Images::Singles, stride: 1, seed: 0 };
    let tally = explored(&plan);
    assert_eq!(tally.cases_in_all(), tally.states + tally.equal_in_all());
    // Besides killed, only synced, and everything.
    assert!(tally.cases_in_all() > 10 * tally.calls, "{tally:?}");
    let plan = Plan { depth: 2, stride: 32, ..plan };
    assert_eq!(explored(&plan), explored(&plan), "equal images go the same way");
}
