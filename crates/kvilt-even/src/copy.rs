//! `checkpoint_to`: a copy of the store as of now, by hard links where the system can.
//!
//! A checkpoint makes the manifest's root the present; then every file that the root names is linked into the
//! new directory and a manifest with the same root is written there. Tables never change. A log may go on
//! growing through the original, but the copy's manifest knows how long it was, and a log is never appended
//! to by another run, so the copy never reads more than it should, and writes to neither.
//!
//! The copy bears a mark until it is whole (`unfinished.rs`), and one that fails removes what it made.

use std::{path::Path, sync::Arc};

use kvilt_base::{
    Disk, Error, Result, Unfinished, copying::of_the_copy, engine_name, planted, unfinished::no_directory,
};
use kvilt_format::manifest::{ManifestWriter, Witness};

use crate::{NAME, store::Store};

/// Copies the store into `directory`.
pub(crate) fn checkpoint_to(store: &Store, directory: &Path) -> Result<()> {
    let place = directory.display().to_string();
    let disk = store.files.disk.new_directory(directory).map_err(|e| no_directory(e, &place))?;
    let unfinished = Unfinished::begin(Arc::clone(&disk))?;
    planted!(CopyOutdated => return copy_root(store, &*disk).and_then(|()| unfinished.finish()));
    store.checkpoint_now(false)?;
    if let Err(error) = copy_root(store, &*disk) {
        drop(unfinished);
        // Each link that went again was a change, too.
        store.checkpoint.with_durable(|root| {
            for (number, record) in &root.files {
                drop(store.files.change(record.kind.name(*number), record.len));
            }
        });
        return Err(error);
    }
    unfinished.finish()
}

/// Links the files that the root names into the directory of the copy, and writes the root there.
fn copy_root(store: &Store, disk: &dyn Disk) -> Result<()> {
    // No checkpoint runs, so nothing that the root names is removed meanwhile.
    store.checkpoint.with_durable(|root| {
        for (number, record) in &root.files {
            let name = record.kind.name(*number);
            // A link is a change of the file.
            let _change = store.files.change(name, record.len);
            store
                .files
                .disk
                .link(name, disk)
                .map_err(|e| Error::io("link a file into the copy", e).in_file(name))?;
        }
        let mut root = root.clone();
        // The copy has no commit log: the checkpoint covers what it held.
        root.is_clean = false;
        root.commit_is_begun = false;
        let made = engine_name::write(disk, NAME).and_then(|()| {
            let mut witness = Witness::create(disk, root.store_id)?;
            let manifest = ManifestWriter::create(disk, &root)?;
            witness.write(manifest.claim())?;
            witness.sync()
        });
        made.map_err(of_the_copy)
    })
}
