//! `kvilt convert`: a copy of a store that another engine keeps.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use kvilt::{ConvertReport, ErrorKind};
use serde_json::{Value, json};

use super::check::progress_bar;
use crate::{
    engine::EngineChoice,
    failure::Failure,
    globals::Globals,
    interrupt,
    output::Output,
    stopwatch::{Stopwatch, counted},
};

/// Copy a store into a new one that another engine keeps, and compare both.
///
/// All keyspaces are copied. The new store is read again at the end: it must have as many rows, and the same
/// checksum over all keys and values. Ctrl-C removes what was copied.
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// The store's directory. Nothing in it is changed.
    dir: PathBuf,
    /// The new store's directory, which must not exist, or be empty.
    to: PathBuf,
    /// The new store's engine.
    #[arg(long, value_enum)]
    engine: EngineChoice,
}

impl Convert {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        interrupt::listen();
        let [from, into] = globals.builders([&self.dir, &self.to])?;
        let db = from.read_only(true).open().map_err(Failure::of_open)?;
        let made_by = db.engine_name();
        let stopwatch = Stopwatch::start();
        let bar = progress_bar();
        let converted = db.convert_to_with(into.engine(self.engine.engine()), |progress| {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
            !interrupt::is_pressed()
        });
        bar.finish_and_clear();
        let report = converted.map_err(|error| match error.kind() {
            ErrorKind::Corrupted => Failure::StoreAfter(error, "no store was made".to_string()),
            _ => Failure::Store(error),
        })?;
        db.close()?;
        if report.is_cancelled {
            return Err(Failure::Cancelled("cancelled; no store was made".to_string()));
        }
        let names = [made_by, self.engine.name()];
        let lines = lines(&report, names, stopwatch.elapsed());
        Ok(Output::new(globals).report(&lines, &json(&report, names))?)
    }
}

fn lines(report: &ConvertReport, [from, to]: [&str; 2], elapsed: Duration) -> Vec<String> {
    vec![format!(
        "the same in both: {} with {} in {}, checksum {:08x}; copied from {from} to {to} in {:.1} s",
        counted(report.rows, "row"),
        counted(report.bytes, "byte"),
        counted(report.keyspaces + 1, "keyspace"),
        report.checksum,
        elapsed.as_secs_f64()
    )]
}

fn json(report: &ConvertReport, [from, to]: [&str; 2]) -> Value {
    json!({
        "same": true,
        "from": from,
        "to": to,
        "rows": report.rows,
        "bytes": report.bytes,
        "keyspaces": report.keyspaces + 1,
        "checksum": format!("{:08x}", report.checksum),
    })
}
