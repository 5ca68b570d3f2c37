//! The canonical scripts, in processes of their own: what the store decides by its memory depends on what
//! else the process frees, and here every disk call counts. Two share the calls of each script, as most
//! machines have two processors at least.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

use kvilt_io::Call;
use kvilt_sim::{canonical::Canonical, engines, faults::Coverage, run::run, world::World};

/// The scripts of all engines.
fn canonical() -> Vec<Canonical> {
    engines::ALL.iter().flat_map(|engine| engine.canonical()).collect()
}

const PROCESSES: u64 = 2;
/// Tells a process which of them it is.
const NUMBER: &str = "KVILT_CANONICAL_PROCESS";

#[test]
fn the_canonical_scripts_go_their_paths_and_every_disk_call_of_them_is_a_fault_point() {
    if let Ok(number) = std::env::var(NUMBER) {
        return every_disk_call_of_the_canonical_scripts_is_a_fault_point(number.parse().unwrap());
    }
    each_canonical_script_goes_the_path_that_it_is_named_after();
    let start = |number: u64| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--nocapture").env(NUMBER, number.to_string()).spawn().unwrap()
    };
    let processes: Vec<_> = (0..PROCESSES).map(start).collect();
    let ends: Vec<_> = processes.into_iter().map(|mut process| process.wait().unwrap()).collect();
    assert!(ends.iter().all(|end| end.success()), "{ends:?}");
}

/// L4: all disk calls of twenty scripts, and for each every kind of fault; of those calls that this process
/// has.
fn every_disk_call_of_the_canonical_scripts_is_a_fault_point(process: u64) {
    let scripts = canonical();
    assert!(scripts.len() >= 20);
    let mut all = Coverage::default();
    for canonical in &scripts {
        let case = canonical.case().unwrap_or_else(|complaint| panic!("{}: {complaint}", canonical.name));
        let mut coverage = Coverage::default();
        let outcome = case.explore_from(process, PROCESSES, &mut coverage);
        outcome.unwrap_or_else(|(_, failure)| panic!("{}: {failure}", canonical.name));
        println!("{:<32} {:>4} of {:>4} disk calls", canonical.name, coverage.points, coverage.calls);
        assert_eq!(coverage.points, coverage.chosen, "{}", canonical.name);
        // With an odd number of calls of a kind the first process has one more.
        assert!(coverage.chosen * PROCESSES + Call::ALL.len() as u64 >= coverage.calls, "{}", canonical.name);
        all.add(coverage);
    }
    println!("{} of {} disk calls were fault points, in {} runs", all.points, all.calls, all.runs);
}

/// A canonical script that misses its path tests another one's.
fn each_canonical_script_goes_the_path_that_it_is_named_after() {
    for canonical in canonical().iter().filter(|canonical| canonical.before.is_empty()) {
        let summary = run(&*canonical.subject, &World::fresh(1), &canonical.script)
            .unwrap_or_else(|failure| panic!("{}: {failure}", canonical.name));
        for figure in canonical.reaches {
            let reached = summary.figures.iter().any(|(name, count)| name == figure && *count > 0);
            assert!(reached, "{} has no {figure}: {:?}", canonical.name, summary.figures);
        }
    }
}
