//! Limits that a process is under: descriptors, sizes of files, memory.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use super::{Outcome, Stage, ensure_whole, key, text, value};
use crate::{
    child::CLOSING,
    engines::{self, usual_store},
    group::Group,
    hunt::{Aim, strike},
    level::End,
    memory,
    subject::Subject,
    tale::Style,
    tools,
};

/// The cgroup's limit, and how much is written in it.
const CGROUP_BYTES: u64 = 256 << 20;
const CGROUP_ROWS: usize = 800_000;

/// Lives of a store before it has to do with few descriptors: enough for hundreds of files.
const DESCRIPTOR_LIVES: u64 = 10;

/// A store of hundreds of files lives and is right with 64 descriptors.
pub(super) fn few_descriptors(stage: &Stage) -> Result<Outcome> {
    if tools::find("prlimit").is_none() {
        return Ok(Outcome::Skipped("there is no prlimit".to_string()));
    }
    let mut files_max = 0;
    for level in engines::chosen().levels {
        let place = stage.place.join(level.name());
        fs::create_dir(&place)?;
        let mut subject = Subject::new(&place, 64, Style::Steady);
        subject.furnish(DESCRIPTOR_LIVES)?;
        for _ in 0..2 {
            let child = subject.next_life(*level, 1, 300)?;
            let command = child.command(&["prlimit", "--nofile=64:64", "--"].map(String::from))?;
            let catch = strike(command, &Aim::Never, || Ok(()))?;
            ensure!(catch.is_closed && catch.said == Some(CLOSING), "the child failed: {catch:?}");
            subject.look(1, End::Killed, true)?;
            files_max = files_max.max(fs::read_dir(&subject.store)?.count());
        }
    }
    let is_seen = files_max > 64 || !engines::chosen().has_many_files;
    ensure!(is_seen, "with {files_max} files there is nothing to see");
    Ok(Outcome::Good(format!("{files_max} files")))
}

/// Beyond RLIMIT_FSIZE a write is cut short, then refused; like a full disk. Where the signal that goes with
/// it is not ignored it kills the process, which is a kill like any other.
pub(super) fn file_size(stage: &Stage) -> Result<Outcome> {
    if tools::find("prlimit").is_none() {
        return Ok(Outcome::Skipped("there is no prlimit".to_string()));
    }
    let store = stage.furnish(100)?;
    let mut rows = String::from("key,value\n");
    for row in 0..20_000 {
        // More than an engine may have allocated ahead.
        writeln!(rows, "{},{}", key(row), value(row).repeat(10))?;
    }
    let csv = stage.place.join("rows.csv");
    fs::write(&csv, rows)?;
    let load = ["load", text(&store)?, "--csv", text(&csv)?, "--key", "key", "--keyspace", "loaded"];
    let limit = ["prlimit", "--fsize=100000:100000", "--"];
    let ignoring = [&limit[..], &["env", "--ignore-signal=XFSZ"]].concat();
    let reply = stage.kvilt(&ignoring, &load)?;
    reply.ensure_refused(&["no-space"])?;
    ensure_default_rows(&store)?;
    let reply = stage.kvilt(&limit, &load)?;
    ensure!(reply.code.is_none(), "the signal kills: {:?} {}", reply.code, reply.told);
    ensure_default_rows(&store)?;
    let reply = stage.kvilt(&[], &load)?;
    ensure!(reply.code == Some(0), "without the limit it loads: {}", reply.told);
    Ok(Outcome::Good("refused with the signal ignored, killed without".to_string()))
}

/// The rows outside the keyspace that was loaded are as they were, and nothing is damaged.
fn ensure_default_rows(store: &Path) -> Result<()> {
    let db = usual_store(store).open()?;
    let keyspace = db.keyspace("loaded")?;
    keyspace.delete_range(..)?;
    drop(keyspace);
    db.drop_keyspace("loaded")?;
    db.close()?;
    drop(db);
    ensure_whole(store, 100, None)
}

/// In a control group with a limit the default budget fits the limit, and resident memory the budget.
pub(super) fn memory_cgroup(stage: &Stage) -> Result<Outcome> {
    let group = match Group::new(CGROUP_BYTES) {
        Ok(group) => group,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let store = stage.store();
    let [shell, words @ ..] = &group.wrapper()[..] else { unreachable!("a wrapper has a first word") };
    let output = std::process::Command::new(shell)
        .args(words)
        .arg(std::env::current_exe()?)
        .args(["--engine", engines::chosen().name, "glutton", text(&store)?, &CGROUP_ROWS.to_string()])
        .output()?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).context("what the glutton told")?;
    let (budget, resident) =
        (told["budget"].as_u64().unwrap_or(0), told["resident_max"].as_u64().unwrap_or(0));
    ensure!(budget == CGROUP_BYTES / 4, "the budget is {budget}, not a quarter of the limit");
    let allowed = budget * 115 / 100 + (64 << 20);
    ensure!(
        resident > 0 && resident <= allowed,
        "{} MiB resident, {} allowed",
        resident >> 20,
        allowed >> 20
    );
    Ok(Outcome::Good(format!(
        "limit {} MiB, budget {} MiB, resident at most {} MiB of {} allowed",
        CGROUP_BYTES >> 20,
        budget >> 20,
        resident >> 20,
        allowed >> 20
    )))
}

/// Fills a store with default settings and tells, as JSON, its budget and the most memory that was resident.
pub(crate) fn gorge(store: &Path, rows: usize) -> Result<()> {
    let db = usual_store(store).open()?;
    let budget = kvilt::Env::process()?.memory_budget_bytes();
    for row in 0..rows {
        // Spread over the key space, so that every chunk grows at once.
        let key = (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        db.put(key, value(row))?;
    }
    db.close()?;
    println!("{}", serde_json::json!({ "budget": budget, "resident_max": memory::resident_max()? }));
    Ok(())
}
