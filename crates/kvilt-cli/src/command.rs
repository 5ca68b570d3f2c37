//! The commands, one file each: its options, and what it does.

pub(crate) mod check;
pub(crate) mod convert;
pub(crate) mod count;
pub(crate) mod delete;
pub(crate) mod delete_range;
pub(crate) mod demo;
pub(crate) mod get;
pub(crate) mod load;
pub(crate) mod put;
pub(crate) mod repair;
pub(crate) mod scan;
pub(crate) mod stats;
