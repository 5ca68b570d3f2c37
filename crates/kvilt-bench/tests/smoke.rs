//! Whether the benchmark works: the real program on a tiny store, every kind of work, nothing about speed.
#![expect(clippy::unwrap_used, reason = "a benchmark that does not run is what this looks for")]

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

/// Every mix and pattern once; ingest has a scenario of its own.
const WORKS: &str = "P@uniform,A@zipf,B,C,D,E10,E100,E1000@zipf,F,readseq,readrandom,seekrandom";

fn bench(arguments: &[&str], directory: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_kvilt-bench"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// All phases are told, each did something, found every row, and the store opened again after a kill.
fn check(scenario: &[&str], phases: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let arguments = [&["one", "--dir", "store", "--seconds", "0.1", "--budget-mb", "32"], scenario].concat();
    let told = lines(&bench(&arguments, directory.path()));
    assert_eq!(told[0]["kind"], "start");
    let measured: Vec<&Value> = told.iter().filter(|line| line["kind"] == "phase").collect();
    let names: Vec<&str> = measured.iter().map(|phase| phase["phase"].as_str().unwrap()).collect();
    assert_eq!(names, phases);
    for phase in measured {
        assert!(phase["operations"].as_u64().unwrap() > 0, "{phase}");
        assert_eq!(phase["missing"], 0, "{phase}");
    }
    let open = told.last().unwrap();
    assert_eq!(open["kind"], "open");
    assert!(open["open_killed_ms"].as_f64().unwrap() > 0.0, "{open}");
}

#[test]
fn every_work_is_done() {
    let phases: Vec<&str> = ["load", "warm"].into_iter().chain(WORKS.split(',')).collect();
    check(&["--scenario", "small", "--data-mb", "4", "--works", WORKS], &phases);
}

#[test]
fn events_are_written_and_looked_at() {
    check(
        &["--scenario", "ingest", "--data-mb", "4", "--limit-mb", "0"],
        &["ingest", "analytics", "popular"],
    );
}

#[test]
fn a_random_load_is_called_so() {
    let arguments =
        ["--scenario", "rows", "--data-mb", "4", "--works", "readrandom", "--warm-seconds", "0.1"];
    check(&arguments, &["fillrandom", "warm", "readrandom"]);
}

#[test]
fn the_drive_is_measured_beside_each_phase() {
    for store in ["kvilt", "kvilt-kvell", "kvilt-teks"] {
        let directory = tempfile::tempdir().unwrap();
        let works = "C@uniform*3,C64@uniform*2,A@uniform";
        let arguments =
            "one --dir store --scenario drive --data-mb 4 --budget-mb 32 --seconds 0.1 --limit-mb 0";
        let arguments =
            arguments.split(' ').chain(["--warm-seconds", "0.1", "--works", works, "--store", store]);
        let told = lines(&bench(&arguments.collect::<Vec<_>>(), directory.path()));
        let reads = |figures: &Value| figures["random reads, depth 64"]["each_second"].as_f64().unwrap();
        let drive = told.iter().find(|line| line["kind"] == "drive").unwrap();
        assert!(reads(&drive["plans"]) > 0.0, "{drive}");
        for (work, threads) in works.split(',').zip([3, 2, 2]) {
            let phase = told.iter().find(|line| line["phase"] == work).unwrap();
            assert!(reads(&phase["drive"]) > 0.0 && phase["threads"] == threads, "{phase}");
            assert!(phase["operations"].as_u64().unwrap() >= 64 || work != "C64@uniform*2", "{phase}");
        }
        assert!(told.iter().all(|line| line["kind"] != "failed"));
        assert!(!directory.path().join("store.probe").exists(), "the drive's file is removed");
    }
}

/// Once through the data and a tenth of a second: the figures are there and add up, however small the run.
#[test]
fn space_and_bytes_written_are_told_in_steady_state() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = "one --dir store --scenario steady --data-mb 4 --budget-mb 32 --seconds 0.1 --put-over 1.5 \
                     --rest-seconds 0.1 --works P@uniform,A@zipf,C";
    let told = lines(&bench(&arguments.split_whitespace().collect::<Vec<_>>(), directory.path()));
    let phase = |name: &str| told.iter().find(|line| line["phase"] == name).unwrap();
    let records = told[0]["scenario"]["records"].as_u64().unwrap();
    for name in ["P@uniform", "A@zipf"] {
        let steady = &phase(name)["steady"];
        let figure = |name: &str| steady[name].as_f64().unwrap_or_else(|| panic!("{name} of {steady}"));
        assert_eq!(steady["live_bytes"], records * 814, "{steady}");
        assert!(figure("reached_put_bytes") >= 1.5 * figure("live_bytes"), "{steady}");
        // No row can be left out, and every byte put is in a file once the phase has settled.
        assert!(figure("space_max") >= figure("space_median") && figure("space_median") >= 1.0, "{steady}");
        assert!(figure("kept_space_max") >= 1.0, "{steady}");
        assert!(figure("space_at_rest") >= 1.0, "{steady}");
        let written = figure("store_write_amplification");
        assert!((1.0..=figure("store_write_amplification_with_rest")).contains(&written), "{steady}");
        assert!(steady["write_amplification_with_rest"].is_number(), "{steady}");
    }
    assert!(phase("C")["steady"].is_null(), "nothing is put over by gets");
}

#[test]
fn an_unknown_engine_is_refused_with_the_names_there_are() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_kvilt-bench"))
        .args("one --dir store --engine nobody".split(' '))
        .current_dir(directory.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("nobody") && told.contains("even"), "{told}");
}

#[test]
fn cache_policies_are_simulated_told_and_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = "caches --rows 10000 --patterns zipf --data-to-memory 4,2 --only rows,known --plots .";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let table = String::from_utf8(bench(&arguments, directory.path()).stdout).unwrap();
    assert!(table.contains("| policy | 1/4 | 1/2 |") && table.contains("| rows by LRU |"), "{table}");
    let plot = std::fs::read_to_string(directory.path().join("caches-zipf.svg")).unwrap();
    assert!(plot.contains("rows by W-TinyLFU") && !plot.contains("pages in key order"), "{plot}");
    let told = lines(&bench(&[&arguments[..], &["--json"]].concat(), directory.path()));
    let missed = |policy: &str, part: u64| {
        let line =
            told.iter().find(|line| line["policy"] == policy && line["data_to_memory"] == part).unwrap();
        line["missed_of_100"].as_f64().unwrap()
    };
    assert!(missed("rows by LRU", 4) > missed("rows by LRU", 2));
    assert!(missed("rows by LRU", 4) > missed("known rows", 4));
}

#[test]
fn stores_are_compared_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = "compare --stores kvilt,kvilt-sync --engine even --runs 1 --scenario sync --data-mb 1 --seconds 0.1 --out all";
    let output = bench(&arguments.split(' ').collect::<Vec<_>>(), directory.path());
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("| phase | figure | kvilt | kvilt-sync |"), "{table}");
    assert!(table.contains("| P@uniform | ops/s |"), "{table}");
    let kept = std::fs::read_to_string(directory.path().join("all")).unwrap();
    assert!(kept.lines().any(|line| line.contains("\"store\":\"kvilt-sync\"")), "{kept}");
}
