//! A fault at every disk call of some scripts (B-6).

use kvilt_sim::{
    campaign::{Campaign, Kind, run_campaign},
    engines,
};

/// Scripts with a fault at every call, in every way; the first twelve include seed 11, which once found
/// something.
const SCRIPTS: u64 = if cfg!(debug_assertions) { 12 } else { 48 };

#[test]
fn a_fault_at_any_disk_call_is_an_error_or_nothing() {
    let campaign = Campaign { threads: 2, ..Campaign::new(Kind::Faults, 0..SCRIPTS) };
    for engine in engines::ALL {
        let outcome = run_campaign(&campaign, *engine);
        assert!(outcome.reports.is_empty(), "{}", outcome.reports[0]);
        println!("{} runs with a fault in {:.1} s", outcome.fault_runs, outcome.seconds);
        assert!(outcome.fault_runs > 500 * SCRIPTS, "{outcome:?}");
    }
}
