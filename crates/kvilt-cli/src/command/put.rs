//! `kvilt put`: gives a key a value.

use std::{
    ffi::OsString,
    io::Read,
    path::{Path, PathBuf},
};

use clap::Args;
use kvilt::VALUE_BYTES_MAX;

use crate::{
    engine::EngineOption,
    failure::Failure,
    globals::{Globals, within},
    output::Output,
};

/// Give a key a value. Makes the store if there is none.
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The store's directory.
    dir: PathBuf,
    /// The key.
    #[arg(allow_hyphen_values = true)]
    key: OsString,
    /// The value. Without one, standard input is the value, byte for byte.
    #[arg(allow_hyphen_values = true)]
    value: Option<OsString>,
    #[command(flatten)]
    engine: EngineOption,
}

impl Put {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        // Whatever is wrong with the command line is told before a store is made.
        let key = globals.key(&self.key)?;
        let value = match &self.value {
            Some(value) => globals.value(value)?,
            None => read_value()?,
        };
        let db = globals.open_or_create(&self.dir, self.engine)?;
        globals.keyspace_to_write(&db)?.put(key, value)?;
        db.close()?;
        let mut output = Output::new(globals);
        output.done()?;
        Ok(output.end()?)
    }
}

/// Whether this process was started without a standard input. The runtime opens `/dev/null` in its place, for
/// reading and writing both, which a redirection from there does not. Where the system does not tell, it was
/// not.
fn is_stdin_closed() -> bool {
    const ACCESS_MODE: u32 = 0o3;
    const READ_AND_WRITE: u32 = 0o2;
    let links_to_null = std::fs::read_link("/proc/self/fd/0").is_ok_and(|to| to == Path::new("/dev/null"));
    let flags = std::fs::read_to_string("/proc/self/fdinfo/0").unwrap_or_default();
    let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"));
    let mode = flags.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
    links_to_null && mode.is_some_and(|mode| mode & ACCESS_MODE == READ_AND_WRITE)
}

/// All of standard input, but no more than shows that it is too long.
fn read_value() -> Result<Vec<u8>, Failure> {
    if is_stdin_closed() {
        let message = "there is no value, and standard input is closed; an empty value is written ''";
        return Err(Failure::Usage(message.to_string()));
    }
    let mut value = Vec::new();
    std::io::stdin()
        .take(VALUE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut value)
        .map_err(|error| Failure::Input(format!("cannot read the value from standard input: {error}")))?;
    within(value, "value", VALUE_BYTES_MAX)
}
