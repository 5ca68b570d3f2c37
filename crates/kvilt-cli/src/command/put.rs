//! `kvilt put`: gives a key a value.

use std::{io::Read, path::PathBuf};

use clap::Args;

use crate::{failure::Failure, globals::Globals, output::Output};

/// Give a key a value. Makes the store if there is none.
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The store's directory.
    dir: PathBuf,
    /// The key.
    #[arg(allow_hyphen_values = true)]
    key: String,
    /// The value. Without one, standard input is the value, byte for byte.
    #[arg(allow_hyphen_values = true)]
    value: Option<String>,
}

impl Put {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        let key = globals.input().parse(&self.key).map_err(Failure::Usage)?;
        let value = match &self.value {
            Some(value) => globals.input().parse(value).map_err(Failure::Usage)?,
            None => read_value()?,
        };
        let db = globals.open_or_create(&self.dir)?;
        globals.keyspace_to_write(&db)?.put(key, value)?;
        db.close()?;
        let mut output = Output::new(globals);
        output.done()?;
        Ok(output.end()?)
    }
}

/// All of standard input, but no more than shows that it is too long.
fn read_value() -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    std::io::stdin()
        .take(kvilt::VALUE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut value)
        .map_err(|error| Failure::Input(format!("cannot read the value from standard input: {error}")))?;
    Ok(value)
}
