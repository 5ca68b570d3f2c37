//! Random operations against an ordered map, on many configurations (B-1 to B-4).

use kvilt_sim::{
    campaign::{Campaign, Kind, run_campaign},
    engines,
};

/// Scripts: some 2,400 operations each. The whole million runs in release builds.
const SCRIPTS: u64 = if cfg!(debug_assertions) { 72 } else { 480 };

/// E-7 in part: limits are so small that buffers and tails are full all the time, and a put that announced
/// itself without having made room panics.
#[test]
fn random_operations_on_many_configurations_agree_with_an_ordered_map() {
    for engine in engines::ALL {
        assert!(engine.configurations() >= 20, "{}", engine.name());
        let campaign = Campaign { threads: 2, ..Campaign::new(Kind::Model, 0..SCRIPTS) };
        let outcome = run_campaign(&campaign, *engine);
        assert!(outcome.reports.is_empty(), "{}", outcome.reports[0]);
        assert_eq!(outcome.seeds, SCRIPTS);
        println!("{} operations in {:.1} s: {:?}", outcome.operations, outcome.seconds, outcome.figures);
        if !cfg!(debug_assertions) {
            assert!(outcome.operations >= 1_000_000, "{}", outcome.operations);
        }
        // Every path ran, or the scripts test less than they say.
        for path in engine.paths() {
            assert!(outcome.figures[path] > 20, "{path}: {}", outcome.figures[path]);
        }
    }
}
