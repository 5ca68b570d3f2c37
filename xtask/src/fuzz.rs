//! `cargo xtask fuzz`: every fuzz target for some seconds each, one summary line a target.
//!
//! What the targets do stands in `kvilt_sim::fuzzing`; a plain test replays the inputs that are kept. Here they are run
//! by libFuzzer, which needs a nightly toolchain and cargo-fuzz; without these, this skips and says so. New inputs go
//! below the target directory, findings to `fuzz/artifacts`; a finding that was understood moves to `fuzz/pinned/TARGET`
//! under a name that says what it found.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    arguments::Arguments,
    nightly::{Nightly, host, skip},
    workspace::Workspace,
};

/// Target and longest input, as in `kvilt_sim::fuzzing::TARGETS`.
const TARGETS: &[(&str, u32)] = &[
    ("log", 4096),
    ("commit", 4096),
    ("table", 4096),
    ("manifest", 4096),
    ("directory", 32 << 10),
    ("script", 1024),
];

/// Most memory of one target, in megabytes; and longest time of one input, in seconds.
const RSS_MB_MAX: u32 = 256;
const INPUT_SECONDS_MAX: u32 = 1;

/// What one target did.
struct Outcome {
    target: &'static str,
    executions: u64,
    a_second: u64,
    rss_mb: u64,
    findings: Vec<PathBuf>,
    is_good: bool,
}

/// `fuzz [--seconds N] [--runs N] [--target T] [--no-sanitizer] [--json]`; 20 seconds a target if not told.
pub(crate) fn run(workspace: &Workspace, words: &[&str]) -> Result<()> {
    let arguments =
        Arguments::of(words, &["--seconds", "--runs", "--target"], &["--no-sanitizer", "--json"])?;
    let wanted = arguments.text("--target");
    let targets: Vec<_> =
        TARGETS.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name)).collect();
    if targets.is_empty() {
        bail!("no such target; there are {:?}", TARGETS.iter().map(|(name, _)| name).collect::<Vec<_>>());
    }
    let sanitizer = if arguments.has("--no-sanitizer") { "none" } else { "address" };
    let build = match build(workspace, sanitizer)? {
        Built::In(directory) => directory,
        Built::Skipped(reason) => {
            skip("fuzz", &reason);
            return Ok(());
        }
    };
    let mut limits = vec![format!("-max_total_time={}", arguments.number("--seconds", 20)?)];
    if arguments.text("--runs").is_some() {
        limits = vec![format!("-runs={}", arguments.number("--runs", 0)?)];
    }
    let mut failed = Vec::new();
    for (target, bytes_max) in targets {
        let outcome = run_target(workspace, &build, target, *bytes_max, &limits)?;
        outcome.tell(sanitizer, arguments.has("--json"));
        if !outcome.is_good {
            failed.push(outcome.target);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("findings in {}", failed.join(", ")) }
}

/// What building comes to; targets that do not build are a failure, not a reason to skip.
enum Built {
    In(PathBuf),
    /// A tool is missing and cannot be had.
    Skipped(String),
}

fn build(workspace: &Workspace, sanitizer: &str) -> Result<Built> {
    let nightly = match Nightly::with(workspace, &[]) {
        Ok(nightly) => nightly,
        Err(reason) => return Ok(Built::Skipped(reason)),
    };
    let directory = workspace.target_directory().join(format!("fuzz-{sanitizer}"));
    let has_fuzz =
        || nightly.cargo(&directory).args(["fuzz", "--version"]).output().is_ok_and(|o| o.status.success());
    if !has_fuzz() {
        let installed = workspace.cargo().args(["install", "cargo-fuzz", "--locked"]).status();
        if !installed.is_ok_and(|status| status.success()) || !has_fuzz() {
            return Ok(Built::Skipped("there is no cargo-fuzz, and cargo could not install it".into()));
        }
    }
    let mut command = nightly.cargo(&directory);
    command.args(["fuzz", "build", "--sanitizer", sanitizer, "--target-dir"]).arg(&directory);
    let status = command.status().context("start cargo-fuzz")?;
    ensure!(status.success(), "the fuzz targets do not build: {status}");
    Ok(Built::In(directory.join(host()).join("release")))
}

fn run_target(
    workspace: &Workspace,
    build: &Path,
    target: &'static str,
    bytes_max: u32,
    limits: &[String],
) -> Result<Outcome> {
    let found = workspace.target_directory().join("fuzz-corpus").join(target);
    let artifacts = workspace.root.join("fuzz/artifacts").join(target);
    for directory in [&found, &artifacts] {
        fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    }
    let before = listed(&artifacts);
    let mut command = Command::new(build.join(target));
    command.arg(&found);
    // Read only: what is kept by hand, and what was found before.
    command.args(
        ["corpus", "pinned"]
            .map(|kept| workspace.root.join("fuzz").join(kept).join(target))
            .iter()
            .filter(|kept| kept.is_dir()),
    );
    command.args(limits).args([
        format!("-max_len={bytes_max}"),
        format!("-rss_limit_mb={RSS_MB_MAX}"),
        format!("-timeout={INPUT_SECONDS_MAX}"),
        format!("-artifact_prefix={}/", artifacts.display()),
        "-print_final_stats=1".to_owned(),
        "-verbosity=0".to_owned(),
    ]);
    // The quarantine of freed memory counts as ours; a smaller one leaves the limit to the target.
    command.env("ASAN_OPTIONS", "quarantine_size_mb=8:malloc_context_size=5").stdin(Stdio::null());
    let output = command.output().with_context(|| format!("start the target {target}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        eprintln!("{text}");
    }
    let findings = listed(&artifacts).into_iter().filter(|path| !before.contains(path)).collect();
    let figure = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok()).unwrap_or(0)
    };
    Ok(Outcome {
        target,
        executions: figure("stat::number_of_executed_units"),
        a_second: figure("stat::average_exec_per_sec"),
        rss_mb: figure("stat::peak_rss_mb"),
        findings,
        is_good: output.status.success(),
    })
}

fn listed(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

impl Outcome {
    fn tell(&self, sanitizer: &str, is_json: bool) {
        let Outcome { target, executions, a_second, rss_mb, .. } = self;
        if is_json {
            let findings: Vec<String> = self.findings.iter().map(|path| path.display().to_string()).collect();
            let line: Value = json!({
                "target": target, "sanitizer": sanitizer, "executions": executions,
                "executions_a_second": a_second, "peak_rss_mb": rss_mb, "findings": findings,
            });
            println!("{line}");
            return;
        }
        let findings = self.findings.len();
        println!(
            "fuzz {target:<10} sanitizer {sanitizer}: {executions:>10} executions, {a_second:>7} a second, \
             peak {rss_mb} MB, {findings} findings{}",
            if self.is_good { "" } else { ", FAILED" }
        );
    }
}
