//! `kvilt check`: reads and verifies a whole store.

use std::{io::IsTerminal, path::PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use kvilt::{CheckReport, Damage, KeyRange};
use serde_json::{Value, json};

use crate::{
    failure::Failure,
    globals::Globals,
    interrupt,
    notation::{escape, to_json},
    output::Output,
    stopwatch::{counted, grouped},
};

/// Read and verify every byte of a store. Exit code 3 if something is damaged.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The store's directory.
    dir: PathBuf,
}

impl Check {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        interrupt::listen();
        let db = match globals.open_to_read(&self.dir) {
            Err(Failure::NotOpened(error)) => {
                return refused(globals, &error);
            }
            opened => opened?,
        };
        let bar = progress_bar();
        let report = db.check_with(|progress| {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
            !interrupt::is_pressed()
        });
        bar.finish_and_clear();
        let report = report?;
        db.close()?;
        // What was found is the graver, also where nobody can read it.
        let printed = Output::new(globals).report(&lines(&report), &json(&report));
        match report.damages.len() {
            0 if report.is_cancelled => Err(Failure::Cancelled("cancelled before the end".to_string())),
            0 => Ok(printed?),
            1 => Err(Failure::Damaged("the store is damaged in 1 place".to_string())),
            count => Err(Failure::Damaged(format!("the store is damaged in {count} places"))),
        }
    }
}

pub(super) fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
    ProgressBar::new(0).with_style(style.expect("the template is sound"))
}

fn lines(report: &CheckReport) -> Vec<String> {
    let verdict = match (report.damages.is_empty(), report.is_cancelled) {
        (false, _) => "damaged",
        (true, true) => "sound so far",
        (true, false) => "sound",
    };
    let summary = format!(
        "{verdict}: {}, {}, {} {} verified",
        counted(report.files, "file"),
        counted(report.bytes, "byte"),
        grouped(report.entries),
        if report.entries == 1 { "entry" } else { "entries" }
    );
    report.damages.iter().map(describe).chain([summary]).collect()
}

pub(super) fn describe(damage: &Damage) -> String {
    let mut text = format!("{}: {}", damage.what, damage.message);
    if let Some(file) = &damage.file {
        text.push_str(&format!("; file {file}"));
    }
    if let Some(offset) = damage.offset {
        text.push_str(&format!("; offset {offset}"));
    }
    if let Some(range) = &damage.range {
        let end = range.end.as_deref().map_or("the end".to_string(), |end| format!("`{}`", escape(end)));
        text.push_str(&format!("; keys from `{}` to {end}", escape(&range.start)));
    }
    text
}

/// A store whose root is damaged cannot be opened; that is a finding like others.
fn refused(globals: &Globals, error: &kvilt::Error) -> Result<(), Failure> {
    let report = CheckReport {
        damages: vec![Damage {
            what: if error.file() == Some("ENGINE") { "B-8" } else { "F-8" }.to_string(),
            file: error.file().map(str::to_string),
            offset: error.offset(),
            range: None,
            message: error.message().to_string(),
        }],
        ..CheckReport::default()
    };
    // What was found is the graver, also where nobody can read it.
    let _ = Output::new(globals).report(&lines(&report), &json(&report));
    Err(Failure::Damaged("the store cannot be opened; `kvilt repair` copies what is left of it".to_string()))
}

/// A finding as an object.
pub(super) fn damage_to_json(damage: &Damage) -> Value {
    let range = |range: &KeyRange| {
        json!({
            "from": to_json(&range.start, false),
            "to": range.end.as_deref().map(|end| to_json(end, false)),
        })
    };
    json!({
        "what": damage.what,
        "message": damage.message,
        "file": damage.file,
        "offset": damage.offset,
        "keys": damage.range.as_ref().map(range),
    })
}

fn json(report: &CheckReport) -> Value {
    let damages: Vec<Value> = report.damages.iter().map(damage_to_json).collect();
    json!({
        "sound": damages.is_empty() && !report.is_cancelled,
        "files": report.files,
        "bytes": report.bytes,
        "entries": report.entries,
        "cancelled": report.is_cancelled,
        "damages": damages,
    })
}
