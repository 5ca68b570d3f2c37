//! `kvilt stats`: prints the figures of a store.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, json};

use crate::{failure::Failure, globals::Globals, output::Output};

/// Print figures about every part of a store. Those that count begin at zero with each open.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    /// The store's directory.
    dir: PathBuf,
}

impl Stats {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        let db = globals.open_to_read(&self.dir)?;
        let stats = db.stats();
        db.close()?;
        let mut output = Output::new(globals);
        let amplification = stats.write_amplification();
        if output.is_json() {
            let mut figures: Map<_, _> =
                stats.figures().into_iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
            figures.insert("write_amplification".to_string(), json!(amplification));
            output.json(&figures.into())?;
        } else {
            for (name, value) in stats.figures() {
                output.line(&format!("{name:<26}{value:>16}"))?;
            }
            output.line(&format!("{:<26}{amplification:>16.2}", "write_amplification"))?;
        }
        Ok(output.end()?)
    }
}
