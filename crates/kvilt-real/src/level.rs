//! `Level`: the durability levels under test, how a store is opened at each, and what each has promised.

use std::{path::Path, time::Duration};

use clap::ValueEnum;
use kvilt::{Db, Durability};

use crate::engines::tiny_store;

/// Memory of a store under test, in bytes: the least that there is.
const BUDGET_BYTES: u64 = 1 << 20;

/// Checkpoints come often, so that kills meet them.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(4);

/// What a store promises about writes that were acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Nothing acknowledged is lost with the process; a power cut leaves a consistent prefix, at least up to
    /// the last `sync`.
    Async,
    /// Nothing acknowledged is lost, whatever happens.
    Sync,
}

/// How the writing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The process was killed; the kernel lived on.
    Killed,
    /// The file system lost what was not synced.
    PowerCut,
}

impl Level {
    /// Its name on the command line and in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Async => "async",
            Level::Sync => "sync",
        }
    }

    /// Whether every acknowledged write must survive this end.
    pub(crate) fn keeps_all(self, end: End) -> bool {
        match (self, end) {
            (Level::Async, End::PowerCut) => false,
            (Level::Async, End::Killed) | (Level::Sync, _) => true,
        }
    }

    /// Opens the tiny store in `dir`, or makes it.
    pub(crate) fn open(self, dir: &Path) -> kvilt::Result<Db> {
        let durability = match self {
            Level::Async => Durability::Async { interval: CHECKPOINT_INTERVAL },
            Level::Sync => Durability::Sync,
        };
        tiny_store(dir).durability(durability).memory_budget(BUDGET_BYTES).open()
    }
}
