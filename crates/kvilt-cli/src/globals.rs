//! `Globals`: options that every command takes, and opening a store with them.

use std::{ffi::OsStr, path::Path, time::Duration};

use clap::{Args, ValueEnum};
use kvilt::{
    Builder, Db, Durability, Env, KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX, Keyspace, VALUE_BYTES_MAX,
};

use crate::{engine::EngineOption, failure::Failure, notation::Notation};

/// Options that every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Globals {
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Read and print keys and values as hexadecimal digits.
    #[arg(long, global = true, conflicts_with = "escaped")]
    pub(crate) hex: bool,

    /// Read keys and values on the command line in the notation of the output (\\, \n, \xNN).
    #[arg(long, global = true)]
    escaped: bool,

    /// A keyspace, instead of the one without a name.
    #[arg(long, global = true, value_name = "NAME")]
    keyspace: Option<String>,

    /// async: each write survives the death of the process, and a power cut after half a second or when the
    /// command ends. sync: each write is durable before the next.
    #[arg(long, global = true, value_enum, default_value = "async")]
    pub(crate) durability: DurabilityChoice,

    /// Memory budget, such as 64MiB or 1GiB; at least 1MiB. Default: a quarter of what there is.
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) memory: Option<u64>,
}

/// What `--durability` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityChoice {
    Async,
    Sync,
}

/// Time between checkpoints.
const INTERVAL: Duration = Duration::from_millis(500);

impl DurabilityChoice {
    /// As it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DurabilityChoice::Async => "async",
            DurabilityChoice::Sync => "sync",
        }
    }
}

impl Globals {
    /// Opens the store in `dir`, which must be there, to be read only.
    pub(crate) fn open_to_read(&self, dir: &Path) -> Result<Db, Failure> {
        self.builder(dir).read_only(true).open().map_err(Failure::of_open)
    }

    /// Opens the store in `dir`, which must be there.
    pub(crate) fn open(&self, dir: &Path) -> Result<Db, Failure> {
        self.builder(dir).create_if_missing(false).open().map_err(Failure::of_open)
    }

    /// Opens the store in `dir`, or makes one.
    pub(crate) fn open_or_create(&self, dir: &Path, engine: EngineOption) -> Result<Db, Failure> {
        engine.apply(self.builder(dir)).open().map_err(Failure::of_open)
    }

    /// Two stores with these options, yet to be opened, which share the memory budget.
    pub(crate) fn builders(&self, dirs: [&Path; 2]) -> Result<[Builder; 2], Failure> {
        let env = match self.memory {
            Some(bytes) => Env::new(bytes)?,
            None => Env::process()?,
        };
        Ok(dirs.map(|dir| Globals { memory: None, ..self.clone() }.builder(dir).env(&env)))
    }

    /// A store in `dir` with these options, yet to be opened.
    pub(crate) fn builder(&self, dir: &Path) -> Builder {
        let builder = Db::builder(dir).durability(match self.durability {
            DurabilityChoice::Async => Durability::Async { interval: INTERVAL },
            DurabilityChoice::Sync => Durability::Sync,
        });
        match self.memory {
            Some(bytes) => builder.memory_budget(bytes),
            None => builder,
        }
    }

    /// These options again, for a process that this one starts; with this durability.
    pub(crate) fn for_child(&self, durability: DurabilityChoice) -> Vec<String> {
        let mut options = vec!["--durability".to_string(), durability.name().to_string()];
        if let Some(bytes) = self.memory {
            options.extend(["--memory".to_string(), bytes.to_string()]);
        }
        options
    }

    /// The keyspace to read; one that is not there is not made.
    pub(crate) fn keyspace_to_read(&self, db: &Db) -> Result<Keyspace, Failure> {
        match &self.keyspace {
            Some(name) if !db.keyspaces()?.contains(name) => {
                Err(Failure::NotFound(format!("there is no keyspace `{name}`")))
            }
            _ => self.keyspace_to_write(db),
        }
    }

    /// The keyspace to write; made if it is not there.
    pub(crate) fn keyspace_to_write(&self, db: &Db) -> Result<Keyspace, Failure> {
        Ok(match &self.keyspace {
            Some(name) => db.keyspace(name)?,
            None => db.default_keyspace(),
        })
    }

    /// Refuses a name that no keyspace can have, and any name for a command that is about the whole store,
    /// before anything is made.
    pub(crate) fn check_keyspace(&self, whole_store: Option<&str>) -> Result<(), Failure> {
        match &self.keyspace {
            Some(_) if let Some(command) = whole_store => Err(Failure::Usage(format!(
                "`{command}` is about the whole store, all keyspaces together; leave --keyspace away"
            ))),
            Some(name) if name.is_empty() || name.len() > KEYSPACE_NAME_BYTES_MAX => {
                Err(Failure::Usage(format!(
                    "the name of a keyspace has 1 to {KEYSPACE_NAME_BYTES_MAX} bytes, this one has {}",
                    name.len()
                )))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The bytes that a key on the command line means, if there can be such a key.
    pub(crate) fn key(&self, text: &OsStr) -> Result<Vec<u8>, Failure> {
        let key = self.parse(text)?;
        within(key, "key", KEY_BYTES_MAX)
    }

    /// The bytes that a value on the command line means, if there can be such a value.
    pub(crate) fn value(&self, text: &OsStr) -> Result<Vec<u8>, Failure> {
        let value = self.parse(text)?;
        within(value, "value", VALUE_BYTES_MAX)
    }

    /// The bytes that a text on the command line means.
    pub(crate) fn parse(&self, text: &OsStr) -> Result<Vec<u8>, Failure> {
        self.input().parse(text).map_err(Failure::Usage)
    }

    /// How keys and values are written on the command line.
    fn input(&self) -> Notation {
        match (self.hex, self.escaped) {
            (true, _) => Notation::Hex,
            (false, true) => Notation::Escaped,
            (false, false) => Notation::Plain,
        }
    }
}

/// The bytes, if they are no more than the store takes.
pub(crate) fn within(bytes: Vec<u8>, what: &str, max: usize) -> Result<Vec<u8>, Failure> {
    if bytes.len() > max {
        let message = format!("the {what} has {} bytes; a {what} may have up to {max}", bytes.len());
        return Err(Failure::Usage(message));
    }
    Ok(bytes)
}

/// A number of bytes: digits, and a unit to the base of 1024 if one is given.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        fraction if fraction.starts_with(['.', ',']) => {
            return Err(format!("`{text}` is not a whole number; use a smaller unit"));
        }
        _ => return Err(format!("`{unit}` is not a unit; use KiB, MiB, GiB or TiB")),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` does not begin with a number"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is too much"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("4MiB"), Ok(4 << 20));
        assert_eq!(parse_size("1 g"), Ok(1 << 30));
        for bad in ["", "MiB", "1.5G", "4 parsecs", "99999999999T", "-1"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
