//! `Selection`: which rows a command means.

use std::{ffi::OsString, ops::Bound};

use clap::Args;
use kvilt::{KeyBounds, KeyRange};

use crate::{failure::Failure, globals::Globals};

/// Which rows a command means: all of them if nothing is said.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Only keys from this one on.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,

    /// Only keys before this one.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,

    /// Only keys that begin with this.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    prefix: Option<OsString>,
}

impl Selection {
    /// Whether anything was said.
    pub(crate) fn is_given(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.prefix.is_some()
    }

    /// The keys meant.
    pub(crate) fn range(&self, globals: &Globals) -> Result<KeyRange, Failure> {
        let parse = |text: &Option<OsString>| text.as_deref().map(|text| globals.parse(text)).transpose();
        let start = parse(&self.from)?.map_or(Bound::Unbounded, Bound::Included);
        let end = parse(&self.to)?.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (start, end).key_range();
        Ok(match parse(&self.prefix)? {
            Some(prefix) => range.intersection(&KeyRange::prefix(&prefix)),
            None => range,
        })
    }
}
