//! A logical file: a name in a directory, the inode it stands for, and perhaps a descriptor.
//!
//! What is always true: all handles on one file of one disk are the same node. A node opens again only what
//! it opened before, by device and inode number.

use std::{
    fmt, io,
    os::fd::{AsRawFd, OwnedFd},
    ptr,
    sync::{Arc, OnceLock, atomic::Ordering},
};

use kvilt_base::{File, FileName, Mapping, queue::check_blocks};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs;

use super::{
    Directory, advice, allocation,
    descriptors::{Held, Slot},
};

/// Device and inode number.
type Identity = (u64, u64);

/// A logical file. Shared freely.
pub(super) struct Node {
    directory: Arc<Directory>,
    /// Held while the name is renamed, and while it is opened: an open never looks for the old name.
    name: Mutex<FileName>,
    /// Set by the first open.
    identity: OnceLock<Identity>,
    slot: Arc<Slot>,
}

impl Node {
    /// A node that opens its file when first used.
    pub(super) fn closed(directory: Arc<Directory>, name: FileName) -> Self {
        let slot = Slot::closed(directory.owner);
        Node { directory, name: Mutex::new(name), identity: OnceLock::new(), slot }
    }

    /// A node for the file that `fd` has open.
    pub(super) fn with_fd(directory: Arc<Directory>, name: FileName, fd: OwnedFd) -> io::Result<Self> {
        let identity = OnceLock::from(identity_of(&fd)?);
        let slot = Slot::with_fd(directory.owner, fd);
        Ok(Node { directory, name: Mutex::new(name), identity, slot })
    }

    /// Opens the file if it is not open.
    pub(super) fn ensure_open(&self) -> io::Result<()> {
        self.slot.with(|| self.reopen(), |_| Ok(()))
    }

    /// Opens the file, and keeps it open until the last handle is gone: its name is about to go.
    pub(super) fn pin(&self) -> io::Result<()> {
        // In this order: from the mark on nobody closes it, so what the second line finds open stays open.
        self.slot.pin();
        self.ensure_open().inspect_err(|_| self.slot.unpin())
    }

    /// Takes [`Node::pin`] back: the name did not go.
    pub(super) fn unpin(&self) {
        self.slot.unpin();
    }

    /// The name, which nobody opens or changes while this is held.
    pub(super) fn lock_name(&self) -> MutexGuard<'_, FileName> {
        self.name.lock()
    }

    /// Opens the file, and keeps it open while the returned value is there, see [`Slot::hold`].
    pub(super) fn hold(&self, may_exceed: bool) -> io::Result<Held> {
        self.slot.hold(may_exceed, || self.reopen())
    }

    /// Whether it is a file of this directory.
    pub(super) fn is_of(&self, directory: &Arc<Directory>) -> bool {
        Arc::ptr_eq(&self.directory, directory)
    }

    /// Whether it was opened past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.directory.opens_direct(self.name())
    }

    /// Counts bytes that were read, or written.
    pub(super) fn count(&self, is_write: bool, bytes: usize) {
        let counter = if is_write { &self.directory.bytes_written } else { &self.directory.bytes_read };
        // Relaxed: a statistic.
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn reopen(&self) -> io::Result<OwnedFd> {
        let name = self.name.lock();
        let fd = self.directory.open_existing(*name)?;
        let found = identity_of(&fd)?;
        if *self.identity.get_or_init(|| found) != found {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} was replaced by another file behind our back", *name),
            ));
        }
        Ok(fd)
    }
}

fn identity_of(fd: &OwnedFd) -> io::Result<Identity> {
    let stat = fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

impl File for Node {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        check_blocks(self.name(), offset, buffer)?;
        let read = self.slot.with(|| self.reopen(), |fd| Ok(rustix::io::pread(fd, buffer, offset)?))?;
        self.count(false, read);
        Ok(read)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        check_blocks(self.name(), offset, bytes)?;
        let write = |fd: std::os::fd::BorrowedFd<'_>| {
            let written = rustix::io::pwrite(fd, bytes, offset);
            self.slot.mark_dirty();
            Ok(written?)
        };
        let written = self.slot.with(|| self.reopen(), write)?;
        self.count(true, written);
        Ok(written)
    }

    fn sync(&self) -> io::Result<()> {
        self.slot.with(|| self.reopen(), |fd| self.slot.sync(fd))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.slot.with(|| self.reopen(), |fd| allocation::allocate(fd, len))
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Arc<Mapping>> {
        self.slot.with(|| self.reopen(), |fd| Mapping::of(fd.as_raw_fd(), offset, len).map(Arc::new))
    }

    fn will_read(&self, offset: u64, len: usize) {
        let ask = |fd: std::os::fd::BorrowedFd<'_>| advice::fetch_ahead(fd, offset, len);
        // Whatever is wrong with the file says so when it is read.
        let _ = self.slot.with(|| self.reopen(), ask);
    }

    fn will_sync(&self, offset: u64, len: u64) {
        let begin = |fd: std::os::fd::BorrowedFd<'_>| advice::begin_write_back(fd, offset, len);
        // As above: when it is synced.
        let _ = self.slot.with(|| self.reopen(), begin);
    }

    fn will_not_read(&self, offset: u64, len: u64) {
        let let_go = |fd: std::os::fd::BorrowedFd<'_>| advice::let_go(fd, offset, len);
        // As above.
        let _ = self.slot.with(|| self.reopen(), let_go);
    }

    fn changed_ns(&self) -> io::Result<u64> {
        let stat = self.slot.with(|| self.reopen(), |fd| Ok(fs::fstat(fd)?))?;
        Ok((stat.st_ctime as u64).saturating_mul(1_000_000_000).saturating_add(stat.st_ctime_nsec))
    }

    fn len(&self) -> io::Result<u64> {
        let stat = self.slot.with(|| self.reopen(), |fd| Ok(fs::fstat(fd)?))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn name(&self) -> FileName {
        *self.name.lock()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NativeFile({}/{})", self.directory.path.display(), self.name())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let name = *self.name.get_mut();
        let mut nodes = self.directory.nodes.lock();
        // Under our name there may be another node by now.
        if nodes.get(&name).is_some_and(|node| ptr::eq(node.as_ptr(), self)) {
            nodes.remove(&name);
        }
        drop(nodes);
        self.slot.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NativeDisk;

    #[test]
    fn a_file_that_was_replaced_behind_our_back_is_not_opened_again() {
        let place = tempfile::tempdir().unwrap();
        let disk = NativeDisk::open(place.path(), &[], true).unwrap();
        let name = FileName::Of(kvilt_base::disk::FileKind::new("log"), 1);
        let node = Node::closed(Arc::clone(&disk.directory), name);
        let path = place.path().join(name.to_string());
        std::fs::write(&path, "first").unwrap();
        node.reopen().unwrap();
        node.reopen().unwrap();
        // Both at once, or the second may get the number of the first.
        let other = place.path().join("other");
        std::fs::write(&other, "second").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let error = node.reopen().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(&name.to_string()), "{error}");
    }
}
