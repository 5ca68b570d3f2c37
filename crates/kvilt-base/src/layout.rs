//! `Layout`: which files a store has, and which keys lie in how many bytes of them, without a look at any
//! row.

use std::collections::BTreeMap;

use crate::KeyRange;

/// Files of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesOfKind {
    /// How many there are.
    pub files: u64,
    /// Their length together.
    pub bytes: u64,
}

/// A range of keys, and what of the files is thought to be its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutRange {
    /// The keys.
    pub keys: KeyRange,
    /// Bytes of tables and logs. A file that several ranges share counts for each with its share.
    pub file_bytes: u64,
}

/// What a store consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The version of its file formats.
    pub format_version: u32,
    /// Every file in the directory, by a word of the engine for its kind, such as `log`; `other` for small
    /// ones.
    pub files: BTreeMap<&'static str, FilesOfKind>,
    /// Its ranges, in the order of keys, without gaps; as many as the engine keeps apart.
    pub ranges: Vec<LayoutRange>,
}
