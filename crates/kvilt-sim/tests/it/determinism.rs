//! The same seed takes the same path: else no printed seed would be worth anything.

use std::process::Command;

use kvilt_sim::engines;

/// What the command says about some seeds, but for the time that it took. It runs in a process of its own:
/// what other threads of this one hold back from the collector of garbage would change what a store counts as
/// used.
fn told(engine: &str, what: &str, seeds: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kvilt-sim"))
        .args([what, "--engine", engine, "--seeds", seeds, "--json", "--figures"])
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let line = String::from_utf8(output.stdout).unwrap();
    let figures = String::from_utf8(output.stderr).unwrap();
    let without_time = line.split(',').filter(|part| !part.contains("seconds")).collect::<Vec<_>>().join(",");
    format!("{without_time}\n{figures}")
}

#[test]
fn the_same_seeds_make_the_same_disk_operations_states_and_figures() {
    for engine in engines::ALL.iter().map(|engine| engine.name()) {
        for (what, seeds) in [("model", "0..4"), ("model", "13..15"), ("crash", "0..1")] {
            let first = told(engine, what, seeds);
            assert!(first.contains("disk_operations"), "{first}");
            assert_eq!(first, told(engine, what, seeds), "{engine}: {what} {seeds}");
        }
    }
}

#[test]
fn a_seed_goes_the_same_way_whatever_ran_before_it() {
    engines::ALL.iter().for_each(|engine| goes_the_same_way(engine.name()));
}

fn goes_the_same_way(engine: &str) {
    let alone = |seed: u64| told(engine, "model", &format!("{seed}..{}", seed + 1));
    let operations = |text: &str| {
        let (_, rest) = text.split_once("\"disk_operations\":").unwrap();
        rest.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let separately: u64 = (2..5).map(|seed| operations(&alone(seed))).sum();
    assert_eq!(separately, operations(&told(engine, "model", "2..5")), "{engine}");
}
