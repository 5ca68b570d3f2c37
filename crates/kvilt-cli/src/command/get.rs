//! `kvilt get`: prints a key's value.

use std::path::PathBuf;

use clap::Args;

use crate::{failure::Failure, globals::Globals, output::Output};

/// Print a key's value. Exit code 1 if it has none.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The store's directory.
    dir: PathBuf,
    /// The key.
    #[arg(allow_hyphen_values = true)]
    key: String,
    /// Print the value's bytes as they are, and nothing else.
    #[arg(long, conflicts_with_all = ["json", "hex"])]
    raw: bool,
}

impl Get {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        let key = globals.input().parse(&self.key).map_err(Failure::Usage)?;
        let db = globals.open(&self.dir)?;
        let value = globals.keyspace_to_read(&db)?.get(key)?;
        db.close()?;
        let Some(value) = value else {
            return Err(Failure::NotFound(format!("there is no key `{}`", self.key)));
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
