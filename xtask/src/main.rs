//! `cargo xtask …`: the chores of the house, and the checks that hold its rules.
//!
//! Workshop: it reads the tree and calls cargo; it imports no crate of ours and none imports it. A check
//! prints every finding as `file:line: sentence` and fails if there is one; none changes a file,
//! unless a flag says so.
#![forbid(unsafe_code)]

mod arguments;
mod ci;
mod coverage;
mod explorers;
mod floors;
mod fuzz;
mod java;
mod nightly;
mod readme;
mod real;
mod soak;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};
use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask <command>

  ci [--quick | --beside]
                 everything that must hold before a change lands, with the time of each step;
                 --quick leaves out whatever needs a full build: integration tests, docs, loom, README;
                 --beside is the part of it that runs beside the rest: models, miri, fuzz targets, Java
  floors         imports between our crates go down only (docs/design/0001-floors.md)
  tidy [--lower] file heads, file sizes, names, words, invariant numbers, documents, width and phrases of prose,
                 commits (STYLE.md); --lower first writes down that fewer banned phrases are left

  fuzz [--seconds N | --executions N] [--target T] [--no-sanitizer] [--json]
                 every fuzz target, 20 seconds each if not told (nightly, cargo-fuzz); --executions counts those
                 of earlier runs with it, so that a campaign may be ended and goes on
  shuttle [--schedules N] [--seed S] [--model NAME] [--release]
                 the models of kvilt-sync under random schedules; 20000 each if not told
  miri [--seeds N] [--skip TESTS]
                 unsafe code and the models under miri's scheduler (nightly)
  sanitize thread|address [--history SEEDS]
                 tests of kvilt-sync and kvilt-even, and histories, under a sanitizer (nightly)

  soak --minutes N [--seed S] [--only NAME] [--threads N]
                 all campaigns in turn, or one; goes on where the soak of that seed ended
  coverage [--min PERCENT] [--simulated] [--missed] [--json]
                 lines of formats, recovery and error paths that tests run; at least 90 % if not told; --simulated
                 adds the tests of kvilt-sim, --missed names what no test ran (llvm-tools)

  java [--jar | --cluster | --upgrade | --full-disk | --flink | --example [--serve]]
                 the native library for Java, the jars, and all tests of java/ (a JDK, Maven); --jar: no tests;
                 --cluster: brokers and instances of Kafka Streams that are killed; --upgrade: an application that
                 is moved from RocksDB's stores; --full-disk: one whose state has no room; --flink: a JobManager
                 and TaskManagers of Flink that are killed; --example: the one in examples/streams, with a broker
                 of its own

  real WHAT …    on the real operating system: round | kill | series | cut | scenes; WHAT --help says more";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<()> {
    let workspace = Workspace::here();
    match words {
        ["fuzz", words @ ..] => fuzz::run(&workspace, words),
        ["shuttle", words @ ..] => explorers::shuttle(&workspace, words),
        ["miri", words @ ..] => explorers::miri(&workspace, words),
        ["sanitize", words @ ..] => explorers::sanitize(&workspace, words),
        ["real", words @ ..] => real::run(&workspace, words),
        ["java", words @ ..] => java::run(&workspace, words),
        ["coverage", words @ ..] => coverage::run(&workspace, words),
        ["soak", words @ ..] => soak::run(&workspace, words),
        ["ci"] => ci::run(&workspace, ci::Extent::Full),
        ["ci", "--quick"] => ci::run(&workspace, ci::Extent::Quick),
        ["ci", "--beside"] => ci::run(&workspace, ci::Extent::Beside),
        ["floors"] => floors::run(&workspace),
        ["tidy"] => tidy::run(&workspace),
        ["tidy", "--lower"] => tidy::run_lowered(&workspace),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!("unknown command\n{USAGE}"),
    }
}
