//! Advice to the system about what will be read and written: nothing depends on it.

use std::{
    io,
    num::NonZeroU64,
    os::fd::{BorrowedFd, OwnedFd},
};

use kvilt_base::FileName;
use rustix::fs;

/// Turns read-ahead off for a file that is read at random, or in pieces as large as they are wanted: what the
/// kernel reads ahead is mostly not wanted, and pushes out what is. It is advice, so nothing depends on it.
pub(super) fn advise(fd: &OwnedFd, name: FileName) {
    #[cfg(target_os = "linux")]
    if name.is_read_at_random() {
        let _ = fs::fadvise(fd, 0, None, fs::Advice::Random);
    }
}

/// Has the system begin to read a place of a file. It returns before the bytes are there, so that several
/// places are fetched at the same time.
pub(super) fn fetch_ahead(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if let Some(len) = NonZeroU64::new(len as u64) {
        fs::fadvise(fd, offset, Some(len), fs::Advice::WillNeed)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (fd, offset, len);
    Ok(())
}

/// Has the system begin to write a place of a file to the drive. No wrapper that we know of has
/// `sync_file_range`; this advice does it on its way to forget what is written already, of which there is
/// nothing yet.
pub(super) fn begin_write_back(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let_go(fd, offset, len)
}

/// Has the system forget whole pages of a place of a file that was synced.
pub(super) fn let_go(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if let Some(len) = NonZeroU64::new(len) {
        fs::fadvise(fd, offset, Some(len), fs::Advice::DontNeed)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (fd, offset, len);
    Ok(())
}
