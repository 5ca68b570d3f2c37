//! `cargo xtask shuttle`, `miri` and `sanitize`: the meeting of threads, looked at by tools that see more
//! than a test.
//!
//! The models of `kvilt-sync` are written once and run by each of them; loom, which tries every interleaving,
//! is a step of the check by itself. Each tool has flags of its own, and so a target directory below the
//! common one.

use std::{process::Command, time::Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    arguments::Arguments,
    nightly::{Nightly, host, skip},
    workspace::Workspace,
};

/// Schedules of each model when nobody says how many.
const SCHEDULES: u64 = 20_000;

/// Seeds of miri's scheduler when nobody says how many.
const MIRI_SEEDS: u64 = 8;

/// `shuttle [--schedules N] [--seed S] [--model NAME] [--release]`: every model and every twin, or those with
/// NAME in theirs. An optimized build pays for itself from some hundred thousand schedules on.
pub(crate) fn shuttle(workspace: &Workspace, words: &[&str]) -> Result<()> {
    let arguments = Arguments::of(words, &["--schedules", "--seed", "--model"], &["--release"])?;
    let schedules = arguments.number("--schedules", SCHEDULES)?;
    let seed = arguments.number("--seed", 0)?;
    let mut command = workspace.cargo();
    command.args(["test", "--package", "kvilt-sync", "--test", "models"]);
    if arguments.has("--release") {
        command.arg("--release");
    }
    command.args(arguments.text("--model").map(|model| ["--", model]).into_iter().flatten());
    command
        .env("RUSTFLAGS", "--cfg shuttle")
        .env("CARGO_TARGET_DIR", workspace.target_directory().join("shuttle"))
        .env("KVILT_SCHEDULES", schedules.to_string())
        .env("KVILT_SEED", seed.to_string());
    finish(&mut command, &format!("shuttle: {schedules} schedules a model from seed {seed}"))
}

/// `miri [--seeds N]`: the unit tests of `kvilt-sync` once, and its models, on threads, under N schedules
/// each.
pub(crate) fn miri(workspace: &Workspace, words: &[&str]) -> Result<()> {
    let arguments = Arguments::of(words, &["--seeds", "--skip"], &[])?;
    let seeds = arguments.number("--seeds", MIRI_SEEDS)?;
    let nightly = match Nightly::with(workspace, &["miri", "rust-src"]) {
        Ok(nightly) => nightly,
        Err(reason) => {
            skip("miri", &reason);
            return Ok(());
        }
    };
    let target = workspace.target_directory().join("miri");
    // Published values, eras and threads that exit pass under stacked borrows as well; the rest has been run
    // under tree borrows only. The eras of a process live as long as it.
    let once = "-Zmiri-tree-borrows -Zmiri-ignore-leaks".to_owned();
    let often = format!("{once} -Zmiri-many-seeds=0..{seeds}");
    for (what, flags) in [("--lib", &once), ("--test=exiting_threads", &once), ("--test=models", &often)] {
        let mut command = nightly.cargo(&target);
        command.args(["miri", "test", "--package", "kvilt-sync", what]);
        if let Some(skipped) = arguments.text("--skip").filter(|_| what == "--lib") {
            command.args(["--", "--skip", skipped]);
        }
        command.env("MIRIFLAGS", flags);
        finish(&mut command, &format!("miri: kvilt-sync {what} {flags}"))?;
    }
    Ok(())
}

/// `sanitize thread|address [--history SEEDS]`: the tests of `kvilt-sync` and `kvilt-even`, and histories of
/// threads.
pub(crate) fn sanitize(workspace: &Workspace, words: &[&str]) -> Result<()> {
    let Some((sanitizer @ ("thread" | "address"), words)) = words.split_first().map(|(s, rest)| (*s, rest))
    else {
        bail!("say `sanitize thread` or `sanitize address`");
    };
    let arguments = Arguments::of(words, &["--history"], &[])?;
    let seeds = arguments.number("--history", 1)?;
    let nightly = match Nightly::with(workspace, &["rust-src"]) {
        Ok(nightly) => nightly,
        Err(reason) => {
            skip(&format!("sanitize {sanitizer}"), &reason);
            return Ok(());
        }
    };
    let target = workspace.target_directory().join(format!("sanitize-{sanitizer}"));
    let seeds = format!("0..{seeds}");
    let runs: [&[&str]; 3] = [
        &["test", "--package", "kvilt-sync", "--lib", "--tests"],
        &["test", "--package", "kvilt-even", "--lib", "--tests"],
        &["run", "--package", "kvilt-sim", "--", "history", "--seeds", &seeds],
    ];
    for run in runs {
        let mut command = nightly.cargo(&target);
        let (ours, theirs) = run.split_at(run.iter().position(|word| *word == "--").unwrap_or(run.len()));
        command.args(ours).args(["--target", &host()]);
        if sanitizer == "thread" {
            // It must see the locks inside the standard library, too.
            command.arg("-Zbuild-std");
        }
        command.args(theirs);
        command.env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"));
        let suppressions =
            workspace.root.join("xtask").join(format!("{sanitizer}-sanitizer-suppressions.txt"));
        let suppressions = format!("suppressions={}", suppressions.display());
        // Leaks have a name of their own.
        command.env(if sanitizer == "thread" { "TSAN_OPTIONS" } else { "LSAN_OPTIONS" }, suppressions);
        finish(&mut command, &format!("sanitize {sanitizer}: {}", run.join(" ")))?;
    }
    Ok(())
}

/// Runs a command; one summary line, and an error if it failed.
fn finish(command: &mut Command, what: &str) -> Result<()> {
    let started = Instant::now();
    let status = command.status().with_context(|| format!("start {what}"))?;
    let verdict = if status.success() { "no findings" } else { "FAILED" };
    println!("{what}, {:.1} s: {verdict}", started.elapsed().as_secs_f64());
    ensure!(status.success(), "{what}: {status}");
    Ok(())
}
