//! The process that the demo kills: it counts, writes each number down, and says so when it has.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;

use super::KEYSPACE;
use crate::{failure::Failure, globals::Globals};

/// It ends by itself here, in case nobody kills it.
const NUMBERS_MAX: u64 = 50_000_000;

/// The number written last, beside the row of each number. It is written after the row, so it may lag by one,
/// and never runs ahead.
pub(super) const LAST_KEY: &str = "last";

/// The row of a number.
pub(super) fn number_key(number: u64) -> String {
    format!("number/{number:012}")
}

/// Counts into a store until killed. For `kvilt demo` only.
#[derive(Debug, Args)]
pub(crate) struct Child {
    dir: PathBuf,
}

impl Child {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        let db = globals.open(&self.dir)?;
        let keyspace = db.keyspace(KEYSPACE)?;
        let mut out = io::stdout().lock();
        for number in 0..NUMBERS_MAX {
            keyspace.put(number_key(number), format!("{number:0100}"))?;
            keyspace.put(LAST_KEY, number.to_string())?;
            // If the parent is gone this fails, and ends the child.
            writeln!(out, "{number}")?;
            out.flush()?;
        }
        Ok(db.close()?)
    }
}
