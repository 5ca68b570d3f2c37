//! `kvilt get`: prints a key's value.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

use crate::{failure::Failure, globals::Globals, notation::escape, output::Output};

/// Print a key's value. Exit code 1 if it has none.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The store's directory.
    dir: PathBuf,
    /// The key.
    #[arg(allow_hyphen_values = true)]
    key: OsString,
    /// Print the value's bytes as they are, and nothing else.
    #[arg(long, conflicts_with_all = ["json", "hex"])]
    raw: bool,
}

impl Get {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        let key = globals.key(&self.key)?;
        let db = globals.open_to_read(&self.dir)?;
        let value = globals.keyspace_to_read(&db)?.get(&key)?;
        db.close()?;
        let Some(value) = value else {
            return Err(Failure::NotFound(format!("there is no key `{}`", escape(&key))));
        };
        let mut output = Output::new(globals);
        if self.raw {
            output.raw(&value)?;
        } else {
            output.value(&value)?;
        }
        Ok(output.end()?)
    }
}
