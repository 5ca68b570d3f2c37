//! `kvilt count`: counts rows.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::{
    failure::Failure, globals::Globals, interrupt, output::Output, selection::Selection, stopwatch::counted,
};

/// Count rows, by reading their keys.
#[derive(Debug, Args)]
pub(crate) struct Count {
    /// The store's directory.
    dir: PathBuf,
    #[command(flatten)]
    selection: Selection,
}

impl Count {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        interrupt::listen();
        let range = self.selection.range(globals)?;
        let db = globals.open_to_read(&self.dir)?;
        let mut count = 0u64;
        for key in globals.keyspace_to_read(&db)?.range(range).keys() {
            key?;
            count += 1;
            if interrupt::is_pressed() {
                return Err(Failure::Cancelled(format!("cancelled after {}", counted(count, "row"))));
            }
        }
        db.close()?;
        let mut output = Output::new(globals);
        if output.is_json() {
            output.json(&json!({ "count": count }))?;
        } else {
            output.line(&count.to_string())?;
        }
        Ok(output.end()?)
    }
}
