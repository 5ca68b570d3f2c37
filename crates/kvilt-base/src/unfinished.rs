//! `Unfinished`: a directory in which a job, a copy or a repair, makes a store that is not whole before the
//! job ends.
//!
//! From its first step to its last the directory bears the file `UNFINISHED`. While it does, no open takes
//! what is there for a store, and the next job of the kind may replace it (**E-18**). A job that fails
//! removes what it made, the mark last, and the directory if it made that too; one that is killed leaves the
//! mark. See `docs/design/0062-unfinished-directories.md`.

use std::{io, sync::Arc};

use crate::{
    Disk, Error, FileName, Listed, Result,
    directory::{self, DirectoryLock},
};

/// A directory that a job is filling. Dropped before the job is done, it is emptied.
pub struct Unfinished {
    disk: Arc<dyn Disk>,
    /// So that two jobs do not fill one directory; given up where an engine takes it.
    lock: Option<DirectoryLock>,
    is_done: bool,
}

impl Unfinished {
    /// Marks a directory that is empty, or that has what an unfinished job left, which is removed.
    ///
    /// Errors: `InvalidArgument` if it holds anything else; `Busy` if another job is filling it; `Io`,
    /// `NoSpace`.
    pub fn begin(disk: Arc<dyn Disk>) -> Result<Self> {
        let begun = Unfinished::marked(&disk);
        if begun.is_err() {
            disk.remove_if_made();
        }
        begun
    }

    fn marked(disk: &Arc<dyn Disk>) -> Result<Self> {
        let listed = directory::list(&**disk)?;
        let is_marked = listed.contains(&Listed::Ours(FileName::UNFINISHED));
        let is_free = |listed: &Listed| match listed {
            Listed::Ours(FileName::LOCK) => true,
            Listed::Ours(_) => is_marked,
            Listed::Foreign(_) => false,
        };
        if !listed.iter().all(is_free) {
            return Err(not_empty(&disk.place()));
        }
        let lock = Some(directory::lock(&**disk)?);
        // From here on it is emptied if something fails.
        let begun = Unfinished { disk: Arc::clone(disk), lock, is_done: false };
        if is_marked {
            begun.remove_all_but_mark();
        } else {
            let doing = |e| Error::io("mark a directory as unfinished", e).in_file(FileName::UNFINISHED);
            disk.create(FileName::UNFINISHED).map_err(doing)?;
            disk.sync_dir().map_err(doing)?;
        }
        if !is_cleared(&directory::list(&**disk)?) {
            let denied = io::Error::from(io::ErrorKind::PermissionDenied);
            return Err(Error::io("remove what an unfinished job left", denied).in_file(disk.place()));
        }
        Ok(begun)
    }

    /// Lets an engine lock the directory.
    pub fn give_up_lock(&mut self) {
        self.lock = None;
    }

    /// Takes the mark away: what is there is a store from now on, durably.
    pub fn finish(mut self) -> Result<()> {
        let removed = self.disk.remove(FileName::UNFINISHED).and_then(|()| self.disk.sync_dir());
        removed.map_err(|e| {
            Error::io("take the mark of the unfinished away", e).in_file(FileName::UNFINISHED)
        })?;
        self.is_done = true;
        Ok(())
    }

    /// What cannot be removed stays, and the mark with it.
    fn remove_all_but_mark(&self) {
        for listed in self.disk.list().unwrap_or_default() {
            match listed {
                Listed::Ours(FileName::UNFINISHED | FileName::LOCK) | Listed::Foreign(_) => {}
                Listed::Ours(name) => drop(self.disk.remove(name)),
            }
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        self.remove_all_but_mark();
        let is_empty = self.disk.list().is_ok_and(|left| is_cleared(&left));
        // The mark goes last, also in what a power cut leaves: without it nothing may be there that could be
        // taken for a store.
        if is_empty && self.disk.sync_dir().is_ok() {
            let _ = self.disk.remove(FileName::LOCK);
            let _ = self.disk.remove(FileName::UNFINISHED);
            self.disk.remove_if_made();
        }
    }
}

/// Whether nothing is left but the mark and the lock.
fn is_cleared(listed: &[Listed]) -> bool {
    listed.iter().all(|item| matches!(item, Listed::Ours(FileName::LOCK | FileName::UNFINISHED)))
}

/// Refuses a directory with the mark, whatever else is there.
///
/// Errors: `InvalidArgument`.
pub fn refuse_unfinished(listed: &[Listed], place: &str) -> Result<()> {
    if !listed.contains(&Listed::Ours(FileName::UNFINISHED)) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{place} holds a copy, or a repaired or converted store, that was not finished (file {}): make it again, which replaces it, or \
         remove the directory",
        FileName::UNFINISHED
    )))
}

/// Why [`Disk::new_directory`] made no directory for a copy, of the same kind as where an open finds that.
pub fn no_directory(error: io::Error, place: &str) -> Error {
    match error.kind() {
        io::ErrorKind::DirectoryNotEmpty => not_empty(place),
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => Error::invalid(format!(
            "{place} is not a directory; name one that does not exist, or is empty, in a directory that is there"
        )),
        io::ErrorKind::InvalidFilename => Error::invalid(format!(
            "a name in {place} is longer than the file system allows; name a shorter one"
        )),
        io::ErrorKind::InvalidInput => {
            Error::invalid(format!("cannot make a store in {place}: {error}; name a directory outside of it"))
        }
        _ => Error::io("make a directory for the copy", error).in_file(place),
    }
}

/// The error of every job that wants a directory of its own, whoever finds that it has something in it.
pub fn not_empty(place: &str) -> Error {
    Error::invalid(format!("{place} is not empty; name a directory that does not exist, or is empty"))
}
