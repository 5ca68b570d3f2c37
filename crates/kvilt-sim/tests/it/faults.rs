//! A fault at every disk call of some scripts (B-6).

use std::ops::Range;

use kvilt_sim::{
    campaign::{Campaign, Kind, run_campaign},
    engines,
};

/// Seeds of scripts with a fault at every call, in every way. Seed 11 once found something.
const SEEDS: Range<u64> = if cfg!(debug_assertions) { 9..12 } else { 0..48 };

#[test]
fn a_fault_at_any_disk_call_is_an_error_or_nothing() {
    let campaign = Campaign { threads: 2, ..Campaign::new(Kind::Faults, SEEDS) };
    for engine in engines::ALL {
        let outcome = run_campaign(&campaign, *engine);
        assert!(outcome.reports.is_empty(), "{}", outcome.reports[0]);
        println!("{} runs with a fault in {:.1} s", outcome.fault_runs, outcome.seconds);
        assert!(outcome.fault_runs > 500 * (SEEDS.end - SEEDS.start), "{outcome:?}");
    }
}
