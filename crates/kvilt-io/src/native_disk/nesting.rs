//! Nesting: whether a path leads into the directory of a store.
//!
//! A store inside of a store's directory would be copied, moved and removed with the outer one, by people who
//! see one store there. So none is made there. What is asked is the file system itself, links followed; a
//! directory that may not be looked at counts as none.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kvilt_base::{FileName, disk::FileKind};

/// The directory of a store that `path` is in, the innermost. `path` need not be there, and is not looked at
/// itself.
pub(super) fn store_around(path: &Path, kinds: &[FileKind]) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let (there, known) =
        path.ancestors().find_map(|ancestor| Some((ancestor, fs::canonicalize(ancestor).ok()?)))?;
    let passed = usize::from(there == path);
    known.ancestors().skip(passed).find(|directory| is_store(directory, kinds)).map(Path::to_path_buf)
}

/// Whether there is one of the files that a store has once, and another. Only where one of the first is, the
/// directory is listed.
fn is_store(directory: &Path, kinds: &[FileKind]) -> bool {
    let signs: Vec<FileName> = FileName::once_of(kinds).chain([FileName::LOCK]).collect();
    let is_file = |name: &FileName| {
        fs::symlink_metadata(directory.join(name.to_string())).is_ok_and(|found| found.is_file())
    };
    signs.iter().any(is_file)
        && fs::read_dir(directory).is_ok_and(|mut entries| {
            entries.any(|entry| {
                let text = entry.map(|entry| entry.file_name().to_string_lossy().into_owned());
                let name = text.ok().and_then(|text| FileName::parse(&text, kinds));
                name.is_some_and(|name| !signs.contains(&name))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_found_around_a_path_through_links_and_missing_directories() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        let store = root.join("store");
        fs::create_dir_all(store.join("below/empty")).unwrap();
        fs::create_dir(root.join("other")).unwrap();
        std::os::unix::fs::symlink(store.join("below"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("other"), store.join("out")).unwrap();
        let inside =
            ["store/x", "store/x/y", "store/below", "store/below/empty", "link/x", "other/../store/x"];
        let outside = ["store", "other/x", "x", "store/out/x", "store/../x"];
        let found = |path: &str| store_around(&root.join(path), &[FileKind::new("manifest")]);
        fs::write(store.join("LOCK"), "").unwrap();
        fs::write(store.join("0001.manifest"), "").unwrap();
        assert!(inside.iter().all(|path| found(path).is_none()), "a lock alone, or a like name, is no store");
        fs::write(store.join("0000000000000001.manifest"), "").unwrap();
        for path in inside {
            assert_eq!(found(path), Some(store.clone()), "{path}");
        }
        for path in outside {
            assert_eq!(found(path), None, "{path}");
        }
    }
}
