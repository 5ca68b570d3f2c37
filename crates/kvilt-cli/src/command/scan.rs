//! `kvilt scan`: prints rows in the order of their keys.

use std::path::PathBuf;

use clap::Args;

use crate::{
    failure::Failure, globals::Globals, interrupt, output::Output, selection::Selection, stopwatch::counted,
};

/// Print rows in order: key, tab, value. With --json, an object {"key":…,"value":…} a line.
#[derive(Debug, Args)]
pub(crate) struct Scan {
    /// The store's directory.
    dir: PathBuf,
    #[command(flatten)]
    selection: Selection,
    /// At most so many rows.
    #[arg(long, value_name = "ROWS")]
    limit: Option<usize>,
    /// From the last key to the first; with --limit, the last rows.
    #[arg(long)]
    reverse: bool,
    /// Keys without values.
    #[arg(long)]
    keys_only: bool,
}

impl Scan {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        interrupt::listen();
        let range = self.selection.range(globals)?;
        let db = globals.open_to_read(&self.dir)?;
        let rows = globals.keyspace_to_read(&db)?.range(range).limit(self.limit.unwrap_or(usize::MAX));
        let mut output = Output::new(globals);
        let mut printed = 0u64;
        if self.keys_only {
            let mut keys = rows.keys();
            while let Some(key) = if self.reverse { keys.next_back() } else { keys.next() } {
                output.row(&key?, None)?;
                printed += 1;
                if interrupt::is_pressed() {
                    break;
                }
            }
        } else {
            let mut rows = rows;
            while let Some(row) = if self.reverse { rows.next_back() } else { rows.next() } {
                let (key, value) = row?;
                output.row(&key, Some(&value))?;
                printed += 1;
                if interrupt::is_pressed() {
                    break;
                }
            }
        }
        // The last line is whole, however it ends.
        output.end()?;
        db.close()?;
        if interrupt::is_pressed() {
            return Err(Failure::Cancelled(format!("cancelled behind {}", counted(printed, "row"))));
        }
        Ok(())
    }
}
