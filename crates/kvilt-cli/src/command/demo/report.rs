//! `Report`: what the demo did, line by line; a table for people, or one JSON object.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::{failure::Failure, globals::Globals, output::Output, stopwatch::grouped};

/// Lines are printed as they come, so that the demo is seen to move; JSON comes at the end.
pub(super) struct Report {
    output: Output,
    parts: Map<String, Value>,
}

/// A figure: how people read it, and how programs do.
pub(super) struct Figure {
    text: String,
    json: Value,
}

/// A count.
pub(super) fn count(count: u64) -> Figure {
    Figure { text: grouped(count), json: json!(count) }
}

/// A number with so many decimals.
pub(super) fn number(number: f64, decimals: usize) -> Figure {
    Figure { text: format!("{number:.decimals$}"), json: json!(number) }
}

/// A count that people read in other words.
pub(super) fn text(text: String, count: u64) -> Figure {
    Figure { text, json: json!(count) }
}

/// A count for each second.
pub(super) fn rate(rate: f64) -> Figure {
    Figure { text: grouped(rate as u64), json: json!(rate) }
}

impl Report {
    pub(super) fn new(globals: &Globals) -> Self {
        Report { output: Output::new(globals), parts: Map::new() }
    }

    /// One thing that was done: its name, and figures, each with its name in JSON and its unit in the table.
    pub(super) fn line(&mut self, what: &str, figures: &[(&str, Figure, &str)]) {
        if self.output.is_json() {
            let object: Map<String, Value> = figures
                .iter()
                .map(|(name, figure, _)| (name.replace(' ', "_"), figure.json.clone()))
                .collect();
            self.parts.insert(what.replace(' ', "_").replace('\'', ""), object.into());
            return;
        }
        let text: Vec<String> =
            figures.iter().map(|(_, figure, unit)| format!("{} {unit}", figure.text)).collect();
        // A closed standard output is noticed at the end.
        let _ = self.output.line(&format!("{what:<28} {}", text.join(", ")));
        let _ = self.output.show();
    }

    /// Says that all is well, and where the store is.
    pub(super) fn end(mut self, dir: &Path) -> Result<(), Failure> {
        if self.output.is_json() {
            self.parts.insert("ok".to_string(), json!(true));
            self.output.json(&Value::Object(self.parts))?;
        } else {
            self.output.line("everything was as promised")?;
            // As it was called: `cargo run` puts nothing on the PATH.
            let command = std::env::args_os().next().map_or_else(|| "kvilt".into(), PathBuf::from);
            let (command, dir) = (command.display(), dir.display());
            self.output
                .line(&format!("look around: {command} scan {dir} --prefix EWR/UA/2013-01-15 --limit 3"))?;
        }
        Ok(self.output.end()?)
    }
}
