//! Real threads on one store, and their history checked (B-2, B-3, B-4).

use std::time::Duration;

use kvilt_sim::{
    campaign::{Campaign, Kind, run_campaign},
    engines,
};

#[test]
fn what_threads_saw_was_possible() {
    let seconds = if cfg!(debug_assertions) { 8 } else { 30 };
    let campaign =
        Campaign { time: Duration::from_secs(seconds), ..Campaign::new(Kind::History, 0..u64::MAX) };
    for engine in engines::ALL {
        let outcome = run_campaign(&campaign, *engine);
        assert!(outcome.reports.is_empty(), "{}", outcome.reports[0]);
        println!(
            "{} operations in {:.1} s, {} histories",
            outcome.operations, outcome.seconds, outcome.seeds
        );
        assert!(outcome.operations > 50_000, "{outcome:?}");
    }
}
