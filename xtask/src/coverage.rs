//! `cargo xtask coverage`: which lines the tests run, of the code that damage and crashes depend on.
//!
//! Compiled and counted by rustc itself; reading the counts needs the component llvm-tools, which is
//! installed if need be. Where it cannot be had, this skips and says so. A line is covered if any test ran
//! it: that says what was never tried, not that what was tried is right.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    arguments::Arguments,
    nightly::{host, skip},
    workspace::Workspace,
};

/// Crates whose tests are run.
const TESTED: [&str; 4] = ["kvilt-format", "kvilt-io", "kvilt-even", "kvilt"];
/// And those of simulated stores, which take longer.
const SIMULATED: &str = "kvilt-sim";

/// What is looked at: beginnings of paths below `crates`.
const PARTS: [(&str, &[&str]); 3] = [
    ("formats", &["kvilt-format/src/"]),
    (
        "recovery",
        &[
            "kvilt-even/src/recovery",
            "kvilt-even/src/checkpoint",
            "kvilt-even/src/commit",
            "kvilt-even/src/files",
        ],
    ),
    (
        "errors",
        &[
            "kvilt-even/src/salvage",
            "kvilt-even/src/check.rs",
            "kvilt-even/src/poison",
            "kvilt-even/src/reserve",
            "kvilt-io/src/native_disk",
        ],
    ),
];

/// Files that only tests have.
const TEST_FILES: [&str; 3] = ["tests.rs", "kvilt-format/src/examples.rs", "kvilt-format/src/memory.rs"];

/// `coverage [--min PERCENT] [--simulated] [--missed] [--json]`; 90 if not told. `--simulated` adds the tests
/// of kvilt-sim, `--missed` names the lines.
pub(crate) fn run(workspace: &Workspace, words: &[&str]) -> Result<()> {
    let arguments = Arguments::of(words, &["--min"], &["--simulated", "--missed", "--json"])?;
    let min = arguments.number("--min", 90)? as f64;
    let tools = match Tools::of(workspace) {
        Ok(tools) => tools,
        Err(reason) => {
            skip("coverage", &reason);
            return Ok(());
        }
    };
    let mut tested = TESTED.to_vec();
    tested.extend(arguments.has("--simulated").then_some(SIMULATED));
    let counts = counts_of(&measure(workspace, &tools, &tested)?);
    let mut low = Vec::new();
    for (part, beginnings) in PARTS {
        let sum = Sum::of(&counts, beginnings);
        ensure!(sum.lines > 0, "no file of the part {part} was measured");
        sum.tell(part, arguments.has("--missed"), arguments.has("--json"));
        if sum.percent() < min {
            low.push(part);
        }
    }
    if low.is_empty() { Ok(()) } else { bail!("less than {min} % covered: {}", low.join(", ")) }
}

/// The directory of llvm-profdata and llvm-cov.
struct Tools(PathBuf);

impl Tools {
    /// Those of the toolchain that builds us, installed if need be; or why they are not to be had.
    fn of(workspace: &Workspace) -> Result<Self, String> {
        let root = Command::new("rustc").args(["--print", "sysroot"]).current_dir(&workspace.root).output();
        let root = root.map_err(|e| format!("rustc does not say where it is: {e}"))?;
        let root = PathBuf::from(String::from_utf8_lossy(&root.stdout).trim());
        let tools = Tools(root.join("lib/rustlib").join(host()).join("bin"));
        if !tools.are_there() {
            let mut install = Command::new("rustup");
            install.args(["component", "add", "llvm-tools"]).current_dir(&workspace.root);
            let is_installed = install.status().is_ok_and(|status| status.success());
            if !is_installed || !tools.are_there() {
                return Err("there are no llvm-tools, and rustup could not install them".into());
            }
        }
        Ok(tools)
    }

    fn are_there(&self) -> bool {
        ["llvm-profdata", "llvm-cov"].iter().all(|name| self.0.join(name).is_file())
    }

    /// Runs one; gives what it prints.
    fn run(&self, name: &str, build: impl FnOnce(&mut Command)) -> Result<Vec<u8>> {
        let mut command = Command::new(self.0.join(name));
        build(&mut command);
        let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("start {name}"))?;
        ensure!(output.status.success(), "{name}: {}", output.status);
        Ok(output.stdout)
    }
}

/// Runs the tests of these crates; gives the counts of all lines in the form that lcov made common.
fn measure(workspace: &Workspace, tools: &Tools, tested: &[&str]) -> Result<String> {
    let directory = workspace.target_directory().join("coverage");
    let profiles = directory.join("profiles");
    if profiles.exists() {
        // Counts of an earlier run are counts of other code.
        fs::remove_dir_all(&profiles).with_context(|| profiles.display().to_string())?;
    }
    fs::create_dir_all(&profiles).with_context(|| profiles.display().to_string())?;
    let test = |words: &[&str]| {
        let mut command = workspace.cargo();
        command.args(["test", "--lib", "--tests"]);
        command.args(tested.iter().flat_map(|name| ["--package", name])).args(words);
        command
            .env("RUSTFLAGS", "-Cinstrument-coverage")
            .env("CARGO_TARGET_DIR", &directory)
            // A file for each process, those that tests start among them.
            .env("LLVM_PROFILE_FILE", profiles.join("%p-%m.profraw"));
        command
    };
    let status = test(&[]).status().context("start cargo")?;
    ensure!(status.success(), "the tests fail: {status}");
    let built = test(&["--no-run", "--message-format", "json"]).output().context("start cargo")?;
    let built = executables(&String::from_utf8_lossy(&built.stdout));
    let (first, others) = built.split_first().context("cargo names no test that it built")?;
    let all = directory.join("all.profdata");
    tools.run("llvm-profdata", |command| {
        command.args(["merge", "--sparse", "--output"]).arg(&all).arg(&profiles);
    })?;
    let counts = tools.run("llvm-cov", |command| {
        command.args(["export", "--format", "lcov", "--instr-profile"]).arg(&all).arg(first);
        for other in others {
            command.arg("--object").arg(other);
        }
    })?;
    Ok(String::from_utf8_lossy(&counts).into_owned())
}

/// The tests that cargo says it has built.
fn executables(messages: &str) -> Vec<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let tests = messages.filter(|message| message["profile"]["test"] == true);
    tests.filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?))).collect()
}

/// How often each line was run, by file below `crates` and number.
type Counts = BTreeMap<String, BTreeMap<u32, u64>>;

fn counts_of(lcov: &str) -> Counts {
    let mut counts = Counts::new();
    let mut file = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            file = path.rsplit_once("/crates/").map(|(_, path)| path.to_owned());
        } else if let (Some(file), Some(line)) = (&file, line.strip_prefix("DA:"))
            && let Some((number, count)) = line.split_once(',')
            && let (Ok(number), Ok(count)) = (number.parse(), count.parse::<u64>())
        {
            *counts.entry(file.clone()).or_default().entry(number).or_default() += count;
        }
    }
    counts
}

/// Lines that count and lines that were run, and those that were not.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    lines: usize,
    missed: Vec<String>,
}

impl Sum {
    /// Of the files whose paths begin so.
    fn of(counts: &Counts, beginnings: &[&str]) -> Self {
        let mut sum = Sum::default();
        for (path, lines) in counts {
            let is_meant = beginnings.iter().any(|beginning| path.starts_with(beginning));
            if is_meant && !TEST_FILES.iter().any(|end| path.ends_with(end)) {
                sum.lines += lines.len();
                let missed = lines.iter().filter(|(_, count)| **count == 0);
                sum.missed.extend(missed.map(|(number, _)| format!("crates/{path}:{number}")));
            }
        }
        sum
    }

    fn covered(&self) -> usize {
        self.lines - self.missed.len()
    }

    fn percent(&self) -> f64 {
        100.0 * self.covered() as f64 / self.lines as f64
    }

    fn tell(&self, part: &str, with_missed: bool, is_json: bool) {
        let (lines, covered, percent) = (self.lines, self.covered(), self.percent());
        if is_json {
            let missed = with_missed.then_some(&self.missed);
            println!(
                "{}",
                json!({ "part": part, "lines": lines, "covered": covered, "percent": percent, "missed": missed })
            );
            return;
        }
        println!("{part:<10} {covered:>6} of {lines:>6} lines: {percent:.1} %");
        for line in self.missed.iter().filter(|_| with_missed) {
            println!("    {line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_part_are_summed_without_those_of_tests_and_of_other_parts() {
        let lcov = "SF:/somewhere/crates/kvilt-even/src/recovery.rs\nDA:7,0\nDA:8,3\nend_of_record\n\
                    SF:/somewhere/crates/kvilt-even/src/checkpoint/tests.rs\nDA:1,0\nend_of_record\n\
                    SF:/somewhere/crates/kvilt-even/src/commit/replay.rs\nDA:1,1\nend_of_record\n\
                    SF:/somewhere/crates/kvilt-even/src/munk.rs\nDA:9,0\nend_of_record\n\
                    SF:/registry/other.rs\nDA:9,0\nend_of_record\n";
        let sum = Sum::of(&counts_of(lcov), PARTS[1].1);
        assert_eq!(sum, Sum { lines: 3, missed: vec!["crates/kvilt-even/src/recovery.rs:7".to_owned()] });
        assert_eq!(sum.covered(), 2);
    }

    #[test]
    fn only_tests_are_taken_from_what_cargo_built() {
        let messages = "{\"profile\":{\"test\":true},\"executable\":\"/a/test\"}\n\
                        {\"profile\":{\"test\":false},\"executable\":\"/a/program\"}\n\
                        {\"reason\":\"build-finished\"}\n";
        assert_eq!(executables(messages), [PathBuf::from("/a/test")]);
    }
}
