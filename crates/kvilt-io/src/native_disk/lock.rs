//! `HeldLock`: who has a directory, to write or to read, by advisory locks that the system gives back however
//! a process ends.
//!
//! | who | on the directory | on the file `LOCK` |
//! | --- | --- | --- |
//! | one who writes | exclusive | exclusive; made if it is missing, but not before it is [signed](HeldLock::sign) |
//! | one who reads | shared | shared, if it is there and may be read; it is never made |
//!
//! Two, because each alone leaves a gap: a copy of a store may have no `LOCK`, and a reader may not make one;
//! and a directory that is on another machine may not be lockable. Where a lock is not to be had for other
//! reasons than that somebody has it, the other one must do. Of a file system that is read-only for
//! everybody, nobody can be a writer.
//!
//! What is always true: taking and giving back changes no file, but for a holder who has signed.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::OnceLock,
};

use kvilt_base::{FileName, disk::LockFailure};
use rustix::{
    fs::{self, Access, AtFlags, FlockOperation, Mode, OFlags},
    io::{Errno, retry_on_intr},
};

use super::{Directory, descriptors};

/// The locks of one holder, as long as this lives.
pub(super) struct HeldLock {
    /// Never the descriptor that the directory's files are opened by: a forked process has a copy of that one
    /// for good.
    directory: Option<OwnedFd>,
    file: OnceLock<OwnedFd>,
    /// Whether the file names this process.
    is_signed: OnceLock<()>,
    /// Who took it. A process forked from that one has a copy of this, but not the lock.
    process: u32,
}

impl HeldLock {
    /// For one who writes, and shares with nobody.
    pub(super) fn alone(directory: &Directory) -> Result<Self, LockFailure> {
        allow_writing(directory).map_err(LockFailure::Io)?;
        let place = directory.open_again().map_err(LockFailure::Io)?;
        let place = match flock(&place, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Some(place),
            Err(Errno::WOULDBLOCK) => return Err(held(directory, &place)),
            Err(_) => None,
        };
        let held = HeldLock::of(place);
        let file = match directory.open_lock() {
            Ok(file) => file,
            // With nothing locked yet, this must be.
            Err(error) if error.kind() == io::ErrorKind::NotFound && held.directory.is_none() => {
                directory.open_or_make_lock().map_err(LockFailure::Io)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(held),
            Err(error) => return Err(LockFailure::Io(error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => drop(held.file.set(file)),
            Err(Errno::WOULDBLOCK) => return Err(self::held(directory, &file)),
            Err(error) => return Err(LockFailure::Io(error.into())),
        }
        Ok(held)
    }

    /// For one who reads, beside others who do.
    pub(super) fn shared(directory: &Directory) -> Result<Self, LockFailure> {
        let place = directory.open_again().map_err(LockFailure::Io)?;
        let place = match flock(&place, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Some(place),
            Err(Errno::WOULDBLOCK) => return Err(LockFailure::Held(holder(directory))),
            Err(_) => None,
        };
        let held = HeldLock::of(place);
        match directory.open_lock_to_read() {
            Ok(file) => match flock(&file, FlockOperation::NonBlockingLockShared) {
                Ok(()) => drop(held.file.set(file)),
                Err(Errno::WOULDBLOCK) => return Err(LockFailure::Held(holder(directory))),
                Err(_) => {}
            },
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
            Err(error) => return Err(LockFailure::Io(error)),
        }
        Ok(held)
    }

    fn of(directory: Option<OwnedFd>) -> Self {
        HeldLock { directory, file: OnceLock::new(), is_signed: OnceLock::new(), process: std::process::id() }
    }

    /// Writes into the file who has it, for those who come in vain.
    pub(super) fn sign(&self, directory: &Directory) -> io::Result<()> {
        if self.file.get().is_none() {
            let file = directory.open_or_make_lock()?;
            retry_on_intr(|| fs::flock(&file, FlockOperation::NonBlockingLockExclusive))?;
            let _ = self.file.set(file);
        }
        let _ = self.is_signed.set(());
        let file = self.file.get().expect("set above");
        let text = format!("{}\n", std::process::id());
        let written = retry_on_intr(|| fs::ftruncate(file, 0))
            .and_then(|()| retry_on_intr(|| rustix::io::pwrite(file, text.as_bytes(), 0)));
        match written {
            // A full disk must not keep anybody from the store: rivals learn that there is a holder, not
            // which.
            Ok(_) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let file = self.file.get();
        if let (Some(file), Some(())) = (file, self.is_signed.get()) {
            // So that the next holder's rival cannot read our id. Only a message depends on it.
            let _ = fs::ftruncate(file, 0);
        }
        // Closing alone does not do: while another thread starts a process, that one shares the lock until it
        // runs its program, and a store that was closed would be busy for a moment. If this fails, closing
        // remains.
        for fd in file.into_iter().chain(&self.directory) {
            let _ = fs::flock(fd, FlockOperation::NonBlockingUnlock);
        }
    }
}

fn flock(fd: &OwnedFd, operation: FlockOperation) -> rustix::io::Result<()> {
    retry_on_intr(|| fs::flock(fd, operation))
}

/// Whether files may be made and removed here: without, a store could be opened, and then not be closed.
fn allow_writing(directory: &Directory) -> io::Result<()> {
    let fd = directory.fd()?;
    match fs::accessat(&fd, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        Err(error @ (Errno::ACCESS | Errno::ROFS | Errno::PERM)) => Err(error.into()),
        // Or a kernel that does not know the question.
        _ => Ok(()),
    }
}

/// Who keeps this lock from one who wants it alone: if it can be shared, those who read.
fn held(directory: &Directory, fd: &OwnedFd) -> LockFailure {
    match flock(fd, FlockOperation::NonBlockingLockShared) {
        Ok(()) => LockFailure::HeldByReaders,
        Err(_) => LockFailure::Held(holder(directory)),
    }
}

/// The process id in the lock file.
fn holder(directory: &Directory) -> Option<u32> {
    let file = directory.open_lock_to_read().ok()?;
    let mut text = [0; 16];
    let read = rustix::io::pread(&file, &mut text, 0).ok()?;
    std::str::from_utf8(&text[..read]).ok()?.trim().parse().ok()
}

impl Directory {
    /// The lock file, if there is one.
    fn open_lock(&self) -> io::Result<OwnedFd> {
        descriptors::open_within_limit(|| self.open_with(FileName::LOCK, OFlags::RDWR))
    }

    fn open_lock_to_read(&self) -> io::Result<OwnedFd> {
        descriptors::open_within_limit(|| self.open_with(FileName::LOCK, OFlags::RDONLY))
    }

    fn open_or_make_lock(&self) -> io::Result<OwnedFd> {
        descriptors::open_within_limit(|| match self.open_new(FileName::LOCK) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.open_with(FileName::LOCK, OFlags::RDWR)
            }
            made => made,
        })
    }

    /// The directory itself once more.
    fn open_again(&self) -> io::Result<OwnedFd> {
        let fd = self.fd()?;
        descriptors::open_within_limit(|| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(retry_on_intr(|| fs::openat(fd.as_fd(), ".", flags, Mode::empty()))?)
        })
    }
}

#[cfg(test)]
mod tests {
    use kvilt_base::Disk;

    use super::*;
    use crate::NativeDisk;

    #[test]
    fn a_lock_given_back_is_free_though_a_process_being_started_still_has_its_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let disk = NativeDisk::open(dir.path(), &[], true).unwrap();
        let held = HeldLock::alone(&disk.directory).unwrap();
        held.sign(&disk.directory).unwrap();
        // What a fork by another thread leaves, until the new process runs its program.
        let fds = [held.file.get().unwrap(), held.directory.as_ref().unwrap()];
        let shared = fds.map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 0).unwrap());
        drop(held);
        let next = disk.lock().unwrap();
        disk.sign(&*next).unwrap();
        drop(shared);
        let own_id = std::process::id();
        assert!(
            matches!(disk.lock(), Err(LockFailure::Held(Some(id))) if id == own_id),
            "and is held by who opened it"
        );
    }

    #[test]
    fn a_forked_process_that_drops_its_copy_gives_nothing_back() {
        let dir = tempfile::tempdir().unwrap();
        let disk = NativeDisk::open(dir.path(), &[], true).unwrap();
        let held = HeldLock::alone(&disk.directory).unwrap();
        held.sign(&disk.directory).unwrap();
        // The copy in a child: the same open files, another process.
        drop(HeldLock {
            directory: held.directory.as_ref().map(|fd| fd.try_clone().unwrap()),
            file: OnceLock::from(held.file.get().unwrap().try_clone().unwrap()),
            is_signed: OnceLock::from(()),
            process: std::process::id() + 1,
        });
        assert!(matches!(disk.lock(), Err(LockFailure::Held(Some(id))) if id == std::process::id()));
    }

    /// A checkpoint's copy has no lock file, and who only reads does not make one.
    #[test]
    fn who_reads_where_there_is_no_lock_file_keeps_a_writer_out_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let disk = NativeDisk::open(dir.path(), &[], true).unwrap();
        let readers = [disk.lock_shared().unwrap(), disk.lock_shared().unwrap()];
        assert!(matches!(disk.lock(), Err(LockFailure::HeldByReaders)));
        assert!(disk.list().unwrap().is_empty(), "nobody has made a file");
        drop(readers);
        let writer = disk.lock().unwrap();
        assert!(disk.list().unwrap().is_empty(), "it has not signed");
        assert!(matches!(disk.lock_shared(), Err(LockFailure::Held(None))));
        disk.sign(&*writer).unwrap();
        let own_id = std::process::id();
        assert!(matches!(disk.lock_shared(), Err(LockFailure::Held(Some(id))) if id == own_id));
    }

    /// The id of a writer that was killed is still in the file.
    #[test]
    fn a_writer_that_readers_keep_out_is_not_told_of_the_writer_before() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("LOCK"), "4711\n").unwrap();
        let disk = NativeDisk::open(dir.path(), &[], true).unwrap();
        let reader = disk.lock_shared().unwrap();
        assert!(matches!(disk.lock(), Err(LockFailure::HeldByReaders)));
        drop(reader);
        // Not opened for good, so not written to.
        drop(disk.lock().unwrap());
        assert_eq!(std::fs::read(dir.path().join("LOCK")).unwrap(), b"4711\n");
    }
}
