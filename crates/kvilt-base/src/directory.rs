//! The directory of a store, as every engine treats it: listed, locked, signed, measured; errors in words.

use std::{any::Any, io};

use crate::{
    Disk, Error, ErrorKind, FileName, Listed, Result,
    disk::{FileKind, LockFailure},
};

/// Held while a store is open; given up when dropped.
pub type DirectoryLock = Box<dyn Any + Send + Sync>;

/// What is in the directory.
///
/// Errors: `Io`.
pub fn list(disk: &dyn Disk) -> Result<Vec<Listed>> {
    disk.list().map_err(|e| Error::io("list the directory", e).in_file(disk.place()))
}

/// Refuses what bears the name of a file of these kinds and is none: a link, a pipe, a directory.
///
/// Errors: `Corrupted`.
pub fn refuse_strange(listed: &[Listed], kinds: &[FileKind]) -> Result<()> {
    let strange = listed.iter().find_map(|item| match item {
        Listed::Ours(_) => None,
        Listed::Foreign(text) => FileName::parse(text, kinds),
    });
    strange.map_or(Ok(()), |name| Err(Error::corrupted(name, 0, "it is not a regular file")))
}

/// Locks the directory for a writer, or says which process has it.
///
/// Errors: `Busy` with the process id; `Corrupted` if the lock is no file; `Io`.
pub fn lock(disk: &dyn Disk) -> Result<DirectoryLock> {
    disk.lock().map_err(|failure| not_locked(disk, failure))
}

/// Locks the directory for a reader, beside other readers: a writer would remove files that they read.
///
/// Errors: as [`lock`].
pub fn lock_to_read(disk: &dyn Disk) -> Result<DirectoryLock> {
    disk.lock_shared().map_err(|failure| not_locked(disk, failure))
}

fn not_locked(disk: &dyn Disk, failure: LockFailure) -> Error {
    let busy =
        |user: String| Error::new(ErrorKind::Busy, format!("the store in {} is open {user}", disk.place()));
    match failure {
        LockFailure::Held(Some(pid)) => busy(format!("in process {pid}")),
        LockFailure::Held(None) => busy("in another process".to_string()),
        LockFailure::HeldByReaders => busy("to be read, by another handle or process".to_string()),
        // A link, or a directory.
        LockFailure::Io(e) if e.kind() == io::ErrorKind::InvalidData => {
            Error::corrupted(FileName::LOCK, 0, e.to_string())
        }
        LockFailure::Io(e) => Error::io("lock the store", e).in_file(disk.place()),
    }
}

/// Writes down which process has the directory.
///
/// Errors: `Io`.
pub fn sign(disk: &dyn Disk, lock: &DirectoryLock) -> Result<()> {
    disk.sign(&**lock).map_err(|e| Error::io("write who has the store", e).in_file(FileName::LOCK))
}

/// The length of a file, in bytes.
///
/// Errors: `Io`.
pub fn len_of(disk: &dyn Disk, name: FileName) -> Result<u64> {
    disk.len(name).map_err(|e| Error::io("ask for the length of a file", e).in_file(name))
}

/// The numbers of the files of a kind.
pub fn numbers(listed: &[Listed], kind: FileKind) -> impl Iterator<Item = u64> {
    listed.iter().filter_map(move |item| match item {
        Listed::Ours(FileName::Of(found, number)) if *found == kind => Some(*number),
        Listed::Ours(_) | Listed::Foreign(_) => None,
    })
}
