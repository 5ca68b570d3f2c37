//! `kvilt repair`: what is left of a damaged store, in a new one.

use std::path::PathBuf;

use clap::Args;
use kvilt::RepairReport;
use serde_json::{Value, json};

use super::check::{damage_to_json, describe, progress_bar};
use crate::{engine::EngineOption, failure::Failure, globals::Globals, output::Output, stopwatch::counted};

/// Copy everything provably intact of a damaged store into a new one. Exit code 3 if anything may be lost.
#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// The damaged store's directory. Nothing in it is changed.
    dir: PathBuf,
    /// The new store's directory, which must not exist, or be empty.
    #[arg(long, value_name = "NEW")]
    to: PathBuf,
    #[command(flatten)]
    engine: EngineOption,
}

impl Repair {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        let bar = progress_bar();
        let into = self.engine.apply(globals.builder(&self.to));
        let report = kvilt::repair_with(&self.dir, into, |progress| {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        });
        bar.finish_and_clear();
        let report = report?;
        // What was lost is the graver, also where nobody can read it.
        let printed = Output::new(globals).report(&lines(&report), &json(&report));
        match report.losses.len() {
            0 => Ok(printed?),
            1 => Err(Failure::Damaged("rows may be lost to damage in 1 place".to_string())),
            count => Err(Failure::Damaged(format!("rows may be lost to damage in {count} places"))),
        }
    }
}

fn lines(report: &RepairReport) -> Vec<String> {
    let verdict = match (report.losses.is_empty(), report.is_proven) {
        (true, _) => "whole",
        (false, true) => "proven, but for what is listed",
        (false, false) => "not proven",
    };
    let summary = format!(
        "{verdict}: {} with {} copied, {} withheld",
        counted(report.rows, "row"),
        counted(report.bytes, "byte"),
        counted(report.rows_withheld, "older row")
    );
    let named = report.keyspaces_recovered.iter();
    let named = named.map(|name| format!("a keyspace whose name is lost is `{name}` in the new store"));
    report.losses.iter().map(describe).chain(named).chain([summary]).collect()
}

fn json(report: &RepairReport) -> Value {
    json!({
        "proven": report.is_proven,
        "rows": report.rows,
        "bytes": report.bytes,
        "rows_withheld": report.rows_withheld,
        "keyspaces_recovered": report.keyspaces_recovered,
        "losses": report.losses.iter().map(damage_to_json).collect::<Vec<_>>(),
    })
}
