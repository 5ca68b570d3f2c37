//! `Settings`: settings common to all engines; `Durability` and its `Level`.

use std::time::Duration;

use crate::{Error, Result, limits};

/// A level of durability: which writes that returned survive what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Each write survives the death of the process; a power cut once a checkpoint has covered it.
    Async,
    /// Each write survives a power cut, too.
    Sync,
}

/// What survives a crash: a level, and how often checkpoints are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Puts return once they are in memory that outlives the process: its death loses nothing. A power cut
    /// loses at most what was written since the last checkpoint began, and what is left is a consistent
    /// prefix. Checkpoints begin this long after each other.
    Async {
        /// Time between checkpoints; bounds what a power cut loses.
        interval: Duration,
    },
    /// Puts return once they are in the shared commit log and that is synced; concurrent puts share a sync.
    Sync {
        /// Time between checkpoints; bounds the commit log that open must replay.
        interval: Duration,
    },
}

impl Durability {
    /// The level without its interval.
    pub fn level(self) -> Level {
        match self {
            Durability::Async { .. } => Level::Async,
            Durability::Sync { .. } => Level::Sync,
        }
    }

    /// With an interval that can be added to any time: a year is as good as never.
    #[must_use]
    pub fn bounded(self) -> Self {
        const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        match self {
            Durability::Async { interval } => Durability::Async { interval: interval.min(YEAR) },
            Durability::Sync { interval } => Durability::Sync { interval: interval.min(YEAR) },
        }
    }

    /// Time between checkpoints.
    pub fn interval(self) -> Duration {
        match self {
            Durability::Async { interval } | Durability::Sync { interval } => interval,
        }
    }
}

/// Settings common to all engines, given when a store is opened. An engine's own are in its descriptor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// What survives a crash.
    pub durability: Durability,
    /// Make a store if the directory is missing or empty.
    pub create: bool,
    /// Only read: no file is made, changed or removed, and nothing runs in the background. `create` is then
    /// ignored.
    pub read_only: bool,
    /// Whether the directory bears the mark of the unfinished, and the caller has set it.
    pub is_unfinished: bool,
    /// A snapshot or scan older than this expires.
    pub view_age_max: Duration,
    /// Operations of a write batch, at most.
    pub batch_operations_max: usize,
    /// Bytes of keys and values of a write batch, at most.
    pub batch_bytes_max: usize,
}

impl Settings {
    /// Refuses values that make no sense to any engine.
    ///
    /// Errors: `InvalidArgument`, by the setting's name in the façade's builder.
    pub fn validate(&self) -> Result<()> {
        let batch_limits = [
            ("batch_operations_max", self.batch_operations_max, limits::BATCH_OPERATIONS_MAX),
            ("batch_bytes_max", self.batch_bytes_max, limits::BATCH_BYTES_MAX),
        ];
        for (name, value, most) in batch_limits {
            if !(1..=most).contains(&value) {
                let message = format!("{name} is {value}, but must be from 1 to {most}");
                return Err(Error::invalid(message).by_setting(name));
            }
        }
        if self.view_age_max.is_zero() {
            let message = "snapshot_age_max must be longer than zero";
            return Err(Error::invalid(message).by_setting("snapshot_age_max"));
        }
        if self.durability.interval().is_zero() {
            let message = "the checkpoint interval must be longer than zero";
            return Err(Error::invalid(message).by_setting("durability"));
        }
        Ok(())
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            durability: Durability::Async { interval: Duration::from_millis(500) },
            create: true,
            read_only: false,
            is_unfinished: false,
            view_age_max: Duration::from_secs(24 * 60 * 60),
            batch_operations_max: limits::BATCH_OPERATIONS_USUAL,
            batch_bytes_max: limits::BATCH_BYTES_USUAL,
        }
    }
}
