//! `cargo xtask fuzz`: every fuzz target for some seconds each, one summary line a target.
//!
//! What the targets do stands in `fuzzing` of each engine in `kvilt_sim`; a plain test replays the inputs
//! that are kept. Here they are run by libFuzzer, which needs a nightly toolchain and cargo-fuzz; without
//! these, this skips and says so. New inputs go below the target directory, findings to `fuzz/artifacts`; a
//! finding that was understood moves to `fuzz/pinned/TARGET` under a name that says what it found.
//!
//! `--executions N` goes on until N were made in all. They are made in slices, and what was done is written
//! down behind each, so that it may be ended at any moment and the same command goes on.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    arguments::Arguments,
    nightly::{Nightly, host, skip},
    workspace::Workspace,
};

/// Target and longest input, as the engines in `kvilt_sim` list them.
const TARGETS: &[(&str, u32)] = &[
    ("log", 2048),
    ("commit", 2048),
    ("table", 4096),
    ("manifest", 2048),
    ("directory", 32 << 10),
    ("script", 1024),
    ("slab", 2048),
    ("map", 512),
    ("root", 2048),
    ("snapshot", 2048),
    ("levels", 1024),
    ("redo", 2048),
];

/// Most memory of one target, in megabytes.
const RSS_MB_MAX: u32 = 256;
/// Longest time of one input, in seconds, by the clock on the wall: a decoder needs microseconds, but others
/// may leave it without a processor for a second, and a loop without end is found all the same.
const INPUT_SECONDS_MAX: u32 = 10;

/// Executions between two times that a campaign is written down: some seconds of a decoder's, minutes of a
/// store's.
const SLICE: u64 = 2_000_000;

/// What one target did, in all of its slices.
struct Outcome {
    target: &'static str,
    done: Done,
    findings: Vec<PathBuf>,
    is_good: bool,
}

/// Executions, the time they took, and the most memory that they had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    executions: u64,
    milliseconds: u64,
    rss_mb: u64,
}

/// How far to go with each target.
#[derive(Clone, Copy)]
enum Extent {
    Seconds(u64),
    /// So many in all, with those of earlier runs.
    Executions(u64),
}

/// `fuzz [--seconds N | --executions N] [--target T] [--no-sanitizer] [--json]`; 20 seconds a target if not
/// told.
pub(crate) fn run(workspace: &Workspace, words: &[&str]) -> Result<()> {
    let arguments =
        Arguments::of(words, &["--seconds", "--executions", "--target"], &["--no-sanitizer", "--json"])?;
    let wanted = arguments.text("--target");
    let targets: Vec<_> =
        TARGETS.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name)).collect();
    if targets.is_empty() {
        bail!("no such target; there are {:?}", TARGETS.iter().map(|(name, _)| name).collect::<Vec<_>>());
    }
    let sanitizer = if arguments.has("--no-sanitizer") { "none" } else { "address" };
    let extent = match arguments.text("--executions") {
        Some(_) => Extent::Executions(arguments.number("--executions", 0)?),
        None => Extent::Seconds(arguments.number("--seconds", 20)?),
    };
    let build = match build(workspace, sanitizer, extent)? {
        Built::In(directory) => directory,
        Built::Skipped(reason) => {
            skip("fuzz", &reason);
            return Ok(());
        }
    };
    let mut failed = Vec::new();
    for (target, bytes_max) in targets {
        let run = Run { workspace, build: &build, target, bytes_max: *bytes_max, sanitizer };
        let outcome = run.to(extent)?;
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

fn build(workspace: &Workspace, sanitizer: &str, extent: Extent) -> Result<Built> {
    let nightly = match Nightly::with(workspace, &[]) {
        Ok(nightly) => nightly,
        Err(reason) => return Ok(Built::Skipped(reason)),
    };
    let is_short = matches!(extent, Extent::Seconds(_));
    let name = format!("fuzz-{sanitizer}{}", if is_short { "-plain" } else { "" });
    let directory = workspace.target_directory().join(name);
    let has_fuzz =
        || nightly.cargo(&directory).args(["fuzz", "--version"]).output().is_ok_and(|o| o.status.success());
    if !has_fuzz() {
        // It only starts a build: to optimise it takes longer than it ever runs.
        let installed = workspace.cargo().args(["install", "cargo-fuzz", "--locked", "--debug"]).status();
        if !installed.is_ok_and(|status| status.success()) || !has_fuzz() {
            return Ok(Built::Skipped("there is no cargo-fuzz, and cargo could not install it".into()));
        }
    }
    let mut command = nightly.cargo(&directory);
    command.args(["fuzz", "build", "--sanitizer", sanitizer, "--target-dir"]).arg(&directory);
    if is_short {
        // To optimise more takes longer than it saves in seconds of running.
        command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    }
    if sanitizer == "none" {
        // Who leaves the sanitizer out wants speed, and watching compares costs more than half of it. They
        // lead to magic numbers and checksums, which are mended anyway; the runs with the sanitizer watch
        // them.
        command.arg("--no-trace-compares");
    }
    let status = command.status().context("start cargo-fuzz")?;
    ensure!(status.success(), "the fuzz targets do not build: {status}");
    Ok(Built::In(directory.join(host()).join("release")))
}

/// One target on its way.
struct Run<'a> {
    workspace: &'a Workspace,
    build: &'a Path,
    target: &'static str,
    bytes_max: u32,
    sanitizer: &'static str,
}

impl Run<'_> {
    fn to(&self, extent: Extent) -> Result<Outcome> {
        let artifacts = self.workspace.root.join("fuzz/artifacts").join(self.target);
        let before = listed(&artifacts);
        let (done, is_good) = match extent {
            Extent::Seconds(seconds) => {
                let limits = [format!("-max_total_time={seconds}"), format!("-timeout={INPUT_SECONDS_MAX}")];
                self.slice(&artifacts, &limits)?
            }
            Extent::Executions(wanted) => self.campaign(&artifacts, wanted)?,
        };
        let findings = listed(&artifacts).into_iter().filter(|path| !before.contains(path)).collect();
        Ok(Outcome { target: self.target, done, findings, is_good })
    }

    /// Slices until so many executions were made, those of earlier runs with them.
    fn campaign(&self, artifacts: &Path, wanted: u64) -> Result<(Done, bool)> {
        let path = self.corpus().join(format!("{}-{}.json", self.target, self.sanitizer));
        let mut all = Done::read(&path)?;
        while all.executions < wanted {
            let runs = SLICE.min(wanted - all.executions);
            let limits = [format!("-runs={runs}"), format!("-timeout={INPUT_SECONDS_MAX}")];
            let (slice, is_good) = self.slice(artifacts, &limits)?;
            all.add(slice);
            all.save(&path)?;
            if !is_good {
                return Ok((all, false));
            }
            ensure!(slice.executions > 0, "{} ended well and says that it executed nothing", self.target);
        }
        Ok((all, true))
    }

    /// The target once, within these limits; what it did, and whether it ended well.
    fn slice(&self, artifacts: &Path, limits: &[String]) -> Result<(Done, bool)> {
        let found = self.corpus().join(self.target);
        for directory in [&found, artifacts] {
            fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
        }
        let mut command = Command::new(self.build.join(self.target));
        command.arg(&found);
        // Read only: what is kept by hand, and what was found before.
        command.args(
            ["corpus", "pinned"]
                .map(|kept| self.workspace.root.join("fuzz").join(kept).join(self.target))
                .iter()
                .filter(|kept| kept.is_dir()),
        );
        command.args(limits).args([
            format!("-max_len={}", self.bytes_max),
            format!("-rss_limit_mb={RSS_MB_MAX}"),
            format!("-artifact_prefix={}/", artifacts.display()),
            "-print_final_stats=1".to_owned(),
            "-verbosity=0".to_owned(),
        ]);
        // The quarantine of freed memory counts as ours; a smaller one leaves the limit to the target.
        command.env("ASAN_OPTIONS", "quarantine_size_mb=8:malloc_context_size=5").stdin(Stdio::null());
        let begun = Instant::now();
        let output = command.output().with_context(|| format!("start the target {}", self.target))?;
        let milliseconds = begun.elapsed().as_millis() as u64;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            eprintln!("{text}");
        }
        Ok((Done::told(&text, milliseconds), output.status.success()))
    }

    fn corpus(&self) -> PathBuf {
        self.workspace.target_directory().join("fuzz-corpus")
    }
}

impl Done {
    /// What libFuzzer says at its end.
    fn told(text: &str, milliseconds: u64) -> Self {
        let figure = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok()).unwrap_or(0)
        };
        Done {
            executions: figure("stat::number_of_executed_units"),
            milliseconds,
            rss_mb: figure("stat::peak_rss_mb"),
        }
    }

    fn add(&mut self, other: Done) {
        self.executions += other.executions;
        self.milliseconds += other.milliseconds;
        self.rss_mb = self.rss_mb.max(other.rss_mb);
    }

    fn a_second(self) -> u64 {
        self.executions.saturating_mul(1000) / self.milliseconds.max(1)
    }

    fn read(path: &Path) -> Result<Self> {
        if !path.is_file() {
            return Ok(Done::default());
        }
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let value: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged; remove it to begin anew", path.display()))?;
        Ok(Done::of(&value))
    }

    fn of(value: &Value) -> Self {
        let figure = |name: &str| value[name].as_u64().unwrap_or(0);
        Done {
            executions: figure("executions"),
            milliseconds: figure("milliseconds"),
            rss_mb: figure("peak_rss_mb"),
        }
    }

    fn json(self) -> Value {
        let Done { executions, milliseconds, rss_mb } = self;
        json!({ "executions": executions, "milliseconds": milliseconds, "peak_rss_mb": rss_mb })
    }

    /// Under another name first, so that an end at any moment leaves one or the other.
    fn save(self, path: &Path) -> Result<()> {
        let fresh = path.with_extension("new");
        fs::write(&fresh, format!("{}\n", self.json())).with_context(|| fresh.display().to_string())?;
        fs::rename(&fresh, path).with_context(|| path.display().to_string())
    }
}

fn listed(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

impl Outcome {
    fn tell(&self, sanitizer: &str, is_json: bool) {
        let Outcome { target, done, .. } = self;
        let (Done { executions, rss_mb, .. }, a_second) = (*done, done.a_second());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libfuzzer_says_is_added_up_and_comes_back_as_it_was_written_down() {
        let text = "Done 12 runs\nstat::number_of_executed_units: 12\nstat::peak_rss_mb:              31\n";
        let mut all = Done::told(text, 3000);
        assert_eq!(all, Done { executions: 12, milliseconds: 3000, rss_mb: 31 });
        all.add(Done { executions: 8, milliseconds: 1000, rss_mb: 30 });
        assert_eq!(all, Done { executions: 20, milliseconds: 4000, rss_mb: 31 });
        assert_eq!(all.a_second(), 5);
        assert_eq!(Done::of(&all.json()), all);
        assert_eq!(Done::told("killed", 5).executions, 0);
    }
}
