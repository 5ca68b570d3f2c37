//! Real threads on one store, and their history checked (B-2, B-3, B-4).

use kvilt_sim::{
    campaign::{Campaign, Kind, run_campaign},
    engines,
};

/// Operations of threads on all engines: as many as a run of the check promises.
const OPERATIONS: u64 = if cfg!(debug_assertions) { 1_000_000 } else { 10_000_000 };

#[test]
fn what_threads_saw_was_possible() {
    let each = OPERATIONS.div_ceil(engines::ALL.len() as u64);
    let campaign =
        Campaign { cases_max: each, actors: Some(8), ..Campaign::new(Kind::History, 100..u64::MAX) };
    for engine in engines::ALL {
        let outcome = run_campaign(&campaign, *engine);
        assert!(outcome.reports.is_empty(), "{}", outcome.reports[0]);
        println!(
            "{} operations in {:.1} s, {} histories",
            outcome.operations, outcome.seconds, outcome.seeds
        );
        assert!(outcome.operations >= each, "{outcome:?}");
    }
}
