//! Directories of stores, as tests that damage them see them.
#![expect(clippy::disallowed_methods, reason = "these tests copy and damage files")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Files with this ending, the longest first.
pub(crate) fn files(path: &Path, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        all.filter(|file| file.extension().is_some_and(|extension| extension == ending)).collect();
    files.sort_by_key(|file| std::cmp::Reverse(fs::metadata(file).unwrap().len()));
    files
}

/// A copy of a directory, with the same bytes and other inodes, as `cp -r` makes it.
pub(crate) fn copied(path: &Path, to: &Path) -> PathBuf {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    to.to_path_buf()
}
