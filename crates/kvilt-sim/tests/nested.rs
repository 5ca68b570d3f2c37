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
    subject::Tested,
};

/// Crashes the scripts of an engine, one after the other.
fn explored(engine: &dyn Tested, plan: &Plan) -> Tally {
    let mut all = Tally::default();
    for canonical in engine.canonical() {
        let mut tally = Tally::default();
        explore(&canonical, plan, &mut tally)
            .unwrap_or_else(|failure| panic!("{}: {failure}", canonical.name));
        all.add(&tally);
    }
    println!("{} {plan:?}: {all:?}", engine.name());
    all
}

#[test]
fn crashes_of_recoveries_and_single_writes_lost_leave_what_was_promised() {
    for &engine in engines::ALL {
        recoveries_are_crashed_at_every_call(engine);
        everything_unsynced_is_lost_alone_and_kept_alone_at_every_call(engine);
    }
}

/// Rows 2 and 3 of the fault table: every 64th disk call of the scripts, but all calls of the recoveries.
fn recoveries_are_crashed_at_every_call(engine: &dyn Tested) {
    let plan = Plan { depth: 3, images: Images::Drawn { random: 1 }, stride: 64, seed: 0 };
    let tally = explored(engine, &plan);
    assert!(tally.cases.iter().all(|cases| *cases >= 40), "{tally:?}");
    assert!(tally.equal_in_all() > tally.states, "most recoveries lead to where others were: {tally:?}");
    if engine.recoveries_in_a_row() > plan.depth {
        // The fourth has hundreds of times as many: of fewer calls.
        let tally = explored(engine, &Plan { depth: 4, stride: 512, ..plan });
        assert!(tally.cases[1..].iter().all(|cases| *cases >= 100), "{tally:?}");
        assert!(tally.equal_in_all() > tally.states, "most recoveries lead to where others were: {tally:?}");
    }
}

/// Row 2: all disk calls of all scripts. Nothing here is left to chance.
fn everything_unsynced_is_lost_alone_and_kept_alone_at_every_call(engine: &dyn Tested) {
    let plan = Plan { depth: 1, images: Images::Singles, stride: 1, seed: 0 };
    let tally = explored(engine, &plan);
    assert_eq!(tally.cases_in_all(), tally.states + tally.equal_in_all());
    // Besides killed, only synced, and everything.
    assert!(tally.cases_in_all() > 10 * tally.calls, "{tally:?}");
    let plan = Plan { depth: 2, stride: 256, ..plan };
    assert_eq!(explored(engine, &plan), explored(engine, &plan), "equal images go the same way");
}
