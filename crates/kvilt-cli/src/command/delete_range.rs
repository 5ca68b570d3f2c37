//! `kvilt delete-range`: deletes many keys in one step.

use std::path::PathBuf;

use clap::Args;
use kvilt::KeyRange;

use crate::{failure::Failure, globals::Globals, output::Output, selection::Selection};

/// Delete every key of a range, in one step.
#[derive(Debug, Args)]
pub(crate) struct DeleteRange {
    /// The store's directory.
    dir: PathBuf,
    #[command(flatten)]
    selection: Selection,
    /// Delete everything.
    #[arg(long, conflicts_with_all = ["from", "to", "prefix"])]
    all: bool,
}

impl DeleteRange {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        if !self.all && !self.selection.is_given() {
            let message = "say which keys, with --from, --to or --prefix; or --all";
            return Err(Failure::Usage(message.to_string()));
        }
        let range = self.selection.range(globals)?;
        // An empty variable of a script is no wish to delete everything.
        if !self.all && range == KeyRange::all() {
            let message = "an empty --from or --prefix means every key; say --all to delete everything";
            return Err(Failure::Usage(message.to_string()));
        }
        let db = globals.open(&self.dir)?;
        globals.keyspace_to_read(&db)?.delete_range(range)?;
        db.close()?;
        let mut output = Output::new(globals);
        output.done()?;
        Ok(output.end()?)
    }
}
