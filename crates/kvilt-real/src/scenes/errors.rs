//! System calls that strace makes fail, one after the other, under the real command.
//!
//! strace counts the calls of each thread for itself, so the n-th call may be several: worse, if anything.

use anyhow::{Context as _, Result, ensure};

use super::{Outcome, Reply, Stage, ensure_whole, text};
use crate::{hunt::strace, tools};

/// Rows that are there before; none may be lost, whatever fails.
const ROWS: usize = 50;

/// After so many runs in a row in which nothing failed, the calls have come to an end.
const RUNS_GOOD: usize = 3;
const RUNS_MAX: usize = 120;

/// A failed sync is told, poisons, and is never made good by another.
pub(super) fn syncs(stage: &Stage) -> Result<Outcome> {
    fail_each(stage, "fdatasync,fsync", |n| format!("error=EIO:when={n}"), &["poisoned", "io"])
}

/// A write without space is told, and nothing of it is there afterwards.
pub(super) fn full_writes(stage: &Stage) -> Result<Outcome> {
    const CALLS: &str = "pwrite64,pwritev,pwritev2";
    let kinds = &["no-space", "poisoned"];
    let for_good = fail_each(stage, CALLS, |n| format!("error=ENOSPC:when={n}+"), kinds)?;
    let Outcome::Good(for_good) = for_good else { return Ok(for_good) };
    // An engine may do it once more with room that it kept, so none of these need be refused.
    let once = try_each(stage, CALLS, |n| format!("error=ENOSPC:when={n}"), kinds)?;
    Ok(Outcome::Good(format!("{for_good}; once {once}")))
}

/// Two halves of one scene.
fn both(first: Outcome, second: Outcome) -> Outcome {
    match (first, second) {
        (Outcome::Good(first), Outcome::Good(second)) => Outcome::Good(format!("{first}; then {second}")),
        (skipped @ Outcome::Skipped(_), _) | (_, skipped) => skipped,
    }
}

/// An interrupted call is nobody's business but ours.
pub(super) fn interruptions(stage: &Stage) -> Result<Outcome> {
    let interrupted = |n| format!("error=EINTR:when={n}");
    let written = fail_each(stage, "pwrite64,pwritev,fdatasync,fsync,flock", interrupted, &[])?;
    let opened = fail_each(stage, "openat", interrupted, &[])?;
    Ok(both(written, opened))
}

/// Without a descriptor one is taken from elsewhere, or the call fails; nothing is poisoned.
pub(super) fn descriptors(stage: &Stage) -> Result<Outcome> {
    fail_each(stage, "openat", |n| format!("error=EMFILE:when={n}"), &["io", "limit-reached"])
}

/// Puts a row, time after time, with another call failing each time, until no call is left to fail. The
/// command must do it, or fail with one of these kinds; in both cases nothing else may have changed.
fn fail_each(stage: &Stage, calls: &str, error: fn(usize) -> String, kinds: &[&str]) -> Result<Outcome> {
    if tools::find("strace").is_none() {
        return Ok(Outcome::Skipped("there is no strace".to_string()));
    }
    let tried = try_each(stage, calls, error, kinds)?;
    ensure!(tried.refused > 0 || kinds.is_empty(), "no call was ever made to fail");
    Ok(Outcome::Good(tried.to_string()))
}

/// Puts among calls that fail.
struct Tried {
    puts: usize,
    refused: usize,
}

impl std::fmt::Display for Tried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} puts, {} refused", self.puts, self.refused)
    }
}

/// The same; whether any was refused is for the caller to judge.
fn try_each(stage: &Stage, calls: &str, error: fn(usize) -> String, kinds: &[&str]) -> Result<Tried> {
    let store = stage.furnish(ROWS)?;
    let (mut refused, mut good_in_a_row, mut n) = (0, 0, 0);
    while good_in_a_row < RUNS_GOOD || kinds.is_empty() && n < 20 {
        n += 1;
        ensure!(n <= RUNS_MAX, "there is no end of the calls");
        let story = || format!("{calls}: {}", error(n));
        for durability in ["sync", "async"] {
            let reply = put(stage, text(&store)?, calls, &error(n), durability, n).with_context(story)?;
            if reply.code == Some(0) {
                good_in_a_row += 1;
            } else {
                good_in_a_row = 0;
                refused += 1;
                reply.ensure_refused(kinds).with_context(story)?;
            }
            // One thing can be there besides: the row itself, whole.
            let value = format!("{n:0200}");
            ensure_whole(&store, ROWS, Some(("extra", &value))).with_context(story)?;
            let reply = stage.kvilt(&[], &["delete", text(&store)?, "extra"])?;
            ensure!(matches!(reply.code, Some(0 | 1)), "delete after {}: {}", story(), reply.told);
        }
    }
    Ok(Tried { puts: 2 * n, refused })
}

fn put(stage: &Stage, store: &str, calls: &str, error: &str, durability: &str, n: usize) -> Result<Reply> {
    let mut before = strace(calls, &format!("{calls}:{error}"));
    if calls == "openat" {
        // Only in the store's directory: a program that cannot load its libraries shows nothing.
        before.extend(["-P".to_string(), store.to_string()]);
    }
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let reply =
        stage.kvilt(&before, &["put", store, "extra", &format!("{n:0200}"), "--durability", durability])?;
    // An acknowledged row is there.
    if reply.code == Some(0) {
        let found = stage.kvilt(&[], &["get", store, "extra"])?;
        ensure!(found.out.contains(&format!("{n:0200}")), "the row was acknowledged and is not there");
    }
    Ok(reply)
}
