//! `kvilt delete`: takes a key's value away.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

use crate::{failure::Failure, globals::Globals, output::Output};

/// Take a key's value away. No error if it has none.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The store's directory.
    dir: PathBuf,
    /// The key.
    #[arg(allow_hyphen_values = true)]
    key: OsString,
}

impl Delete {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        let key = globals.key(&self.key)?;
        let db = globals.open(&self.dir)?;
        globals.keyspace_to_read(&db)?.delete(key)?;
        db.close()?;
        let mut output = Output::new(globals);
        output.done()?;
        Ok(output.end()?)
    }
}
