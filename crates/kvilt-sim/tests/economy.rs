//! Economy, in a process of its own: what a store has charged depends on what the readers of others keep, so
//! only a world that is alone is held to its budget (E-19, S-19).

use kvilt_sim::{
    campaign::{Campaign, Kind, run_campaign},
    world::{CONFIGURATIONS, Even},
};

/// On each configuration, with readers that stay while steps are played.
#[test]
fn munks_have_what_all_else_leaves_of_the_budget() {
    let outcome = run_campaign(&Campaign::new(Kind::Model, 0..CONFIGURATIONS), Even::of_seed);
    assert!(outcome.reports.is_empty(), "{}", outcome.reports[0]);
    assert_eq!(outcome.seeds, CONFIGURATIONS);
    assert!(outcome.figures["munk_evictions"] > 0 && outcome.figures["stalls_memory"] > 0, "{outcome:?}");
}
