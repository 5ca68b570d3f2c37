//! Economy, in a process of its own: what a store has charged depends on what the readers of others keep, so
//! only a world that is alone is held to its budget (E-19, S-19).

use kvilt_sim::{
    campaign::{Campaign, Kind, run_campaign},
    engines,
};

/// On each configuration, with readers that stay while steps are played.
#[test]
fn no_store_has_more_memory_charged_than_its_engine_allows() {
    for engine in engines::ALL {
        let configurations = engine.configurations();
        let outcome = run_campaign(&Campaign::new(Kind::Model, 0..configurations), *engine);
        assert!(outcome.reports.is_empty(), "{}", outcome.reports[0]);
        assert_eq!(outcome.seeds, configurations);
        for path in engine.paths() {
            assert!(outcome.figures[path] > 0, "{path}: {outcome:?}");
        }
    }
}
