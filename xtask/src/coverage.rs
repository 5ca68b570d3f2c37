//! `cargo xtask coverage`: which lines the tests run, of the code that damage and crashes depend on.
//!
//! Measured by cargo-llvm-cov, which is not installed by itself; without it this fails and says what to run. A line is
//! covered if any test ran it: that says what was never tried, not that what was tried is right.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{arguments::Arguments, workspace::Workspace};

/// Crates whose tests are run.
const TESTED: [&str; 5] = ["kvilt-format", "kvilt-io", "kvilt-even", "kvilt-sim", "kvilt"];

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

/// `coverage [--min PERCENT] [--json]`; 90 if not told.
pub(crate) fn run(workspace: &Workspace, words: &[&str]) -> Result<()> {
    let arguments = Arguments::of(words, &["--min"], &["--json"])?;
    let min = arguments.number("--min", 90)? as f64;
    let crates: Vec<&str> = TESTED.iter().flat_map(|name| ["--package", name]).collect();
    llvm_cov(workspace, &[&["--no-report"], &crates[..]].concat())?;
    let report = llvm_cov(workspace, &["report", "--json", "--summary-only"])?;
    let report: Value = serde_json::from_slice(&report).context("read the report of cargo llvm-cov")?;
    let mut low = Vec::new();
    for (part, beginnings) in PARTS {
        let (count, covered) = lines(&report, beginnings);
        ensure!(count > 0, "no file of the part {part} was measured");
        let percent = 100.0 * covered as f64 / count as f64;
        if arguments.has("--json") {
            println!("{}", json!({ "part": part, "lines": count, "covered": covered, "percent": percent }));
        } else {
            println!("{part:<10} {covered:>6} of {count:>6} lines: {percent:.1} %");
        }
        if percent < min {
            low.push(part);
        }
    }
    if low.is_empty() { Ok(()) } else { bail!("less than {min} % covered: {}", low.join(", ")) }
}

/// Runs cargo-llvm-cov; gives what it prints.
fn llvm_cov(workspace: &Workspace, words: &[&str]) -> Result<Vec<u8>> {
    let output =
        workspace.cargo().arg("llvm-cov").args(words).stderr(std::process::Stdio::inherit()).output();
    let output = output.context("start cargo")?;
    ensure!(
        output.status.success(),
        "cargo llvm-cov: {}; it needs `cargo install cargo-llvm-cov` and `rustup component add llvm-tools`",
        output.status
    );
    Ok(output.stdout)
}

/// Lines that count and lines that were run, of files whose paths begin so.
fn lines(report: &Value, beginnings: &[&str]) -> (u64, u64) {
    let files = report["data"][0]["files"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut sums = (0, 0);
    for file in files {
        let path = file["filename"].as_str().unwrap_or_default();
        let Some((_, path)) = path.rsplit_once("/crates/") else { continue };
        let is_meant = beginnings.iter().any(|beginning| path.starts_with(beginning));
        if is_meant && !TEST_FILES.iter().any(|end| path.ends_with(end)) {
            let of = |what: &str| file["summary"]["lines"][what].as_u64().unwrap_or_default();
            sums.0 += of("count");
            sums.1 += of("covered");
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_part_are_summed_without_those_of_tests() {
        let file = |name: &str, count: u64, covered: u64| json!({ "filename": format!("/somewhere/crates/{name}"), "summary": { "lines": { "count": count, "covered": covered } } });
        let files = [
            file("kvilt-even/src/recovery.rs", 100, 90),
            file("kvilt-even/src/checkpoint/tests.rs", 50, 50),
            file("kvilt-even/src/commit/replay.rs", 10, 1),
            file("kvilt-even/src/munk.rs", 1000, 0),
        ];
        assert_eq!(lines(&json!({ "data": [{ "files": files }] }), PARTS[1].1), (110, 91));
    }
}
