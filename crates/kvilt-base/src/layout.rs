//! `Layout`: which files a store has, and which keys lie in how many bytes of them, without a look at any
//! row.

use std::{collections::BTreeMap, io};

use crate::{Disk, FileName, KeyRange, Listed, Result, directory};

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

/// The files in a directory, by the word for each one's kind.
///
/// Errors: `Io`.
pub fn files_by_kind(
    disk: &dyn Disk,
    word_for: fn(FileName) -> &'static str,
) -> Result<BTreeMap<&'static str, FilesOfKind>> {
    let mut kinds = BTreeMap::<_, FilesOfKind>::new();
    for listed in directory::list(disk)? {
        let Listed::Ours(name) = listed else { continue };
        let Some(bytes) = len_if_there(disk, name)? else { continue };
        let kind = kinds.entry(word_for(name)).or_default();
        kind.files += 1;
        kind.bytes += bytes;
    }
    Ok(kinds)
}

/// None for a file that was removed since the directory was listed.
fn len_if_there(disk: &dyn Disk, name: FileName) -> Result<Option<u64>> {
    directory::len_of(disk, name).map(Some).or_else(|error| {
        let source = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<io::Error>());
        match source {
            Some(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => Err(error),
        }
    })
}
