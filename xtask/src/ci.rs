//! `cargo xtask ci`: every check in order, cheapest first, each with its time.
//!
//! A step that fails does not hide the next: all run, and the table at the end says which failed. Third-party
//! crates are built three times: for checking (clippy, docs), for tests, and for release, once, by the
//! README's demo. Models have flags of their own, and so target directories of their own, `loom` and
//! `shuttle` below the other. Miri and the fuzz targets need a nightly toolchain; without it they skip, and
//! say why; so do the tests of Java without a JDK and Maven.
//!
//! Whatever has a target directory of its own runs *beside* the other steps, in a second process: no cargo
//! waits for the other, and two cores have something to do while a step of one thread runs.

use std::{
    collections::VecDeque,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{explorers, floors, fuzz, java, readme, real, tidy, workspace::Workspace};

/// How much to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything.
    Full,
    /// Of everything, what runs beside the rest.
    Beside,
    /// What answers within a minute or two on a warm build.
    Quick,
}

/// One step of the check.
struct Step {
    name: &'static str,
    place: Place,
    work: Work,
}

/// Which runs of the check a step belongs to.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// The full and the quick one.
    Both,
    Full,
    Quick,
    /// The full one, beside its other steps.
    Beside,
}

enum Work {
    Cargo { arguments: &'static str, environment: Vec<(&'static str, PathBuf)> },
    Check(fn(&Workspace) -> Result<()>),
    Readme,
}

fn steps(workspace: &Workspace) -> Vec<Step> {
    let cargo = |arguments| Work::Cargo { arguments, environment: Vec::new() };
    let docs =
        Work::Cargo { arguments: DOCS, environment: vec![("RUSTDOCFLAGS", PathBuf::from("-Dwarnings"))] };
    let loom = Work::Cargo {
        arguments: LOOM,
        environment: vec![
            ("RUSTFLAGS", PathBuf::from("--cfg loom")),
            ("CARGO_TARGET_DIR", workspace.target_directory().join("loom")),
        ],
    };
    let step = |name, place, work| Step { name, place, work };
    vec![
        step("fmt", Place::Both, cargo("fmt --all -- --check")),
        step("fmt compare", Place::Both, cargo(FMT_BENCH_COMPARE)),
        step("floors", Place::Both, Work::Check(floors::run)),
        step("tidy", Place::Both, Work::Check(tidy::run)),
        step("clippy", Place::Both, cargo(CLIPPY)),
        step("docs", Place::Full, docs),
        step("tests", Place::Full, cargo(TESTS)),
        step("unit tests", Place::Quick, cargo(UNIT_TESTS)),
        step("bench", Place::Full, cargo(BENCH)),
        step("planted bugs", Place::Full, cargo(PLANTED_BUGS)),
        step("loom", Place::Beside, loom),
        step("shuttle", Place::Beside, Work::Check(|workspace| explorers::shuttle(workspace, &[]))),
        step("miri", Place::Beside, Work::Check(|workspace| explorers::miri(workspace, MIRI))),
        step("java", Place::Beside, Work::Check(java::run_if_there)),
        step("fuzz", Place::Beside, Work::Check(|workspace| fuzz::run(workspace, &["--seconds", "5"]))),
        step("real", Place::Full, Work::Check(|workspace| real::run(workspace, &["round"]))),
        step("readme", Place::Full, Work::Readme),
    ]
}

/// Of the crate that no other step looks at, since it builds stores in C and C++.
const FMT_BENCH_COMPARE: &str = "fmt --manifest-path crates/kvilt-bench-compare/Cargo.toml -- --check";
/// Of every crate, the native side of Java included.
const CLIPPY: &str = "clippy --workspace --all-targets -- -D warnings";
/// All tests, by the command that the README names.
const TESTS: &str = "test";
const UNIT_TESTS: &str = "test --lib --bins";
/// Libraries only: the command bears the name of the public crate, and their pages would collide.
const DOCS: &str = "doc --no-deps --lib";
const LOOM: &str = "test --package kvilt-sync --test models";

/// Tests of whole tables of `teks` take ten minutes under miri; the models of its parts are run.
const MIRI: &[&str] = &["--seeds", "1", "--skip", "teks::tests"];

/// Whether the benchmark works, not how fast anything is: the program that the tests have built, on a tiny
/// store.
const BENCH: &str = "test --test smoke";
/// With a feature that nothing else is built with, so that no other step ever sees a planted bug.
const PLANTED_BUGS: &str = "run --package kvilt-sim --features mutants -- mutants";

/// Begins the line that tells of a step that failed.
const STEP_FAILED: &str = "xtask: step ";

/// Runs the steps; fails if one failed.
pub(crate) fn run(workspace: &Workspace, extent: Extent) -> Result<()> {
    let beside = (extent == Extent::Full).then(Beside::start).transpose()?;
    let chosen: Vec<Step> = steps(workspace).into_iter().filter(|step| belongs(step, extent)).collect();
    let begun = Instant::now();
    let mut commands_done = Vec::new();
    let (mut outcomes, mut reasons) = (Vec::new(), Vec::new());
    for step in &chosen {
        let started = Instant::now();
        println!("\n== {} == {:.0} s after the begin", step.name, (started - begun).as_secs_f64());
        let result = step.work.run(workspace, &mut commands_done);
        outcomes.push((step.name, started.elapsed(), result.is_ok()));
        if let Err(error) = result {
            let reason = format!("{} failed: {error:#}", step.name);
            println!("{STEP_FAILED}{reason}");
            reasons.push(reason);
        }
    }
    if let Some(beside) = beside {
        let started = Instant::now();
        let result = beside.wait();
        // With what had to be waited for it at the end.
        outcomes.push(("beside", started.elapsed(), result.is_ok()));
        reasons.extend(result.err().map(|error| format!("{error:#}")));
    }
    print!("\n{}", table(&outcomes));
    if reasons.is_empty() { Ok(()) } else { bail!("{}", reasons.join("\n")) }
}

fn belongs(step: &Step, extent: Extent) -> bool {
    match extent {
        // It runs every test once, so it leaves the quick selection of them out.
        Extent::Full => matches!(step.place, Place::Both | Place::Full),
        Extent::Beside => step.place == Place::Beside,
        Extent::Quick => matches!(step.place, Place::Both | Place::Quick),
    }
}

/// The steps that run beside the others: a process of this program, whose lines come between theirs, with a
/// mark.
struct Beside {
    process: Child,
    /// Ends with the process, and gives the lines in which steps failed.
    lines: JoinHandle<Vec<String>>,
}

impl Beside {
    /// Now, before a step builds this program anew.
    fn start() -> Result<Self> {
        let (output, input) = std::io::pipe().context("make a pipe")?;
        let program = std::env::current_exe().context("find this program")?;
        // With it go the ends of the pipe that are written to, so that reading ends when the process has.
        let process = Command::new(program)
            .args(["ci", "--beside"])
            .stdout(input.try_clone().context("share a pipe")?)
            .stderr(input)
            .spawn()
            .context("start the steps beside the others")?;
        let lines = thread::spawn(move || {
            let mut failures = Failures::default();
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                println!("beside | {line}");
                failures.note(&line);
            }
            failures.lines
        });
        Ok(Beside { process, lines })
    }

    fn wait(mut self) -> Result<()> {
        let status = self.process.wait().context("wait for the steps beside the others")?;
        let Ok(failures) = self.lines.join() else { bail!("what the steps beside the others told is lost") };
        ensure!(status.success(), "what ran beside the others failed ({status}):\n{}", failures.join("\n"));
        Ok(())
    }
}

/// Of the lines of many steps, those before and at each failure: a record of a long check may keep only its
/// end.
#[derive(Default)]
struct Failures {
    latest: VecDeque<String>,
    lines: Vec<String>,
}

impl Failures {
    /// Limits how many lines are kept for a step that fails, the one that tells of the failure included.
    const LINES_MAX: usize = 40;

    fn note(&mut self, line: &str) {
        if self.latest.len() == Self::LINES_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(line.to_owned());
        if line.starts_with(STEP_FAILED) {
            self.lines.extend(self.latest.drain(..));
        }
    }
}

impl Work {
    fn run(&self, workspace: &Workspace, commands_done: &mut Vec<String>) -> Result<()> {
        match self {
            Work::Check(check) => check(workspace),
            Work::Readme => readme::run(workspace, commands_done),
            Work::Cargo { arguments, environment } => {
                println!("$ cargo {arguments}");
                commands_done.push(format!("cargo {arguments}"));
                let mut command = workspace.cargo();
                command.args(arguments.split_whitespace()).envs(environment.iter().cloned());
                run_well(&mut command, &format!("cargo {arguments}"))
            }
        }
    }
}

fn run_well(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().with_context(|| format!("start {what}"))?;
    ensure!(status.success(), "{what}: {status}");
    Ok(())
}

fn table(outcomes: &[(&str, Duration, bool)]) -> String {
    let mut text = String::new();
    for (name, took, is_good) in outcomes {
        let verdict = if *is_good { "ok" } else { "FAILED" };
        text.push_str(&format!("{name:<12} {:>7.1} s  {verdict}\n", took.as_secs_f64()));
    }
    let total: Duration = outcomes.iter().map(|outcome| outcome.1).sum();
    text.push_str(&format!("{:<12} {:>7.1} s\n", "all", total.as_secs_f64()));
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(extent: Extent) -> Vec<&'static str> {
        let steps = steps(&Workspace::here());
        steps.iter().filter(|step| belongs(step, extent)).map(|step| step.name).collect()
    }

    #[test]
    fn the_full_check_leaves_nothing_out_and_the_quick_one_builds_no_release() {
        let full = names(Extent::Full);
        assert_eq!(
            full,
            [
                "fmt",
                "fmt compare",
                "floors",
                "tidy",
                "clippy",
                "docs",
                "tests",
                "bench",
                "planted bugs",
                "real",
                "readme"
            ]
        );
        assert_eq!(names(Extent::Beside), ["loom", "shuttle", "miri", "java", "fuzz"]);
        assert_eq!(names(Extent::Quick), ["fmt", "fmt compare", "floors", "tidy", "clippy", "unit tests"]);
    }

    /// `kvilt-bench-compare` builds stores in C and C++, and `kvilt-jni` is a step of its own; all others are
    /// what a command without `--package` is about.
    #[test]
    fn the_workspace_is_all_crates_but_the_one_that_needs_a_c_compiler() {
        let metadata = Workspace::here().metadata("Cargo.toml").unwrap();
        let ids = |list: &str| -> BTreeSet<String> {
            let list = metadata[list].as_array().unwrap();
            list.iter().map(|id| id.as_str().unwrap().to_owned()).collect()
        };
        let (defaults, mut members) = (ids("workspace_default_members"), ids("workspace_members"));
        members.retain(|id| !id.contains("kvilt-jni"));
        assert_eq!(defaults, members);
        let is_member = |name| metadata["packages"].as_array().unwrap().iter().any(|p| p["name"] == name);
        assert!(is_member("kvilt-sim") && is_member("xtask") && !is_member("kvilt-bench-compare"));
    }

    #[test]
    fn what_a_failed_step_told_last_is_kept_and_nothing_of_others() {
        let mut failures = Failures::default();
        for i in 0..100 {
            failures.note(&format!("line {i}"));
        }
        failures.note("xtask: step loom failed: why");
        failures.note("the next step is well");
        assert_eq!(failures.lines.len(), Failures::LINES_MAX);
        assert_eq!(failures.lines[0], "line 61");
        assert_eq!(failures.lines.last().unwrap(), "xtask: step loom failed: why");
        failures.note("xtask: step fuzz failed: why");
        assert_eq!(
            failures.lines[Failures::LINES_MAX..],
            ["the next step is well", "xtask: step fuzz failed: why"]
        );
    }

    #[test]
    fn the_table_names_each_step_its_time_and_its_verdict() {
        let text = table(&[("fmt", Duration::from_millis(1300), true), ("tidy", Duration::ZERO, false)]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["fmt", "1.3", "s", "ok"]);
        assert_eq!(lines[1], ["tidy", "0.0", "s", "FAILED"]);
        assert_eq!(lines[2], ["all", "1.3", "s"]);
    }
}
