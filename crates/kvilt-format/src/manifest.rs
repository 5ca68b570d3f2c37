//! The manifest: the durable root of a store, as a list of edits.
//!
//! Where it stands: a checkpoint ends with one [`ManifestWriter::append`]; an open begins with
//! [`read_root`]. Nothing else says which files and chunks there are. Formats: `docs/format/manifest.md`, and
//! `docs/format/witness.md` for what says that a manifest is whole.
//!
//! Always true: a manifest is complete before it has its name; each append is synced before the next begins;
//! and after each synced record a mark is written, unsynced. So a bad record with anything good behind it was
//! once whole: that is corruption. A bad record at the very end is an append that never returned, and is
//! ignored, unless the [`Witness`] has seen it synced.

mod edit;
mod reader;
mod root;
mod witness;
mod writer;

pub use edit::{Edit, FileRecord, PartKind};
pub use reader::{read_manifest, read_prefix, read_root};
pub use root::Root;
pub use witness::{Claim, Witness};
pub use writer::ManifestWriter;

use crate::record;

#[cfg(test)]
mod tests;
