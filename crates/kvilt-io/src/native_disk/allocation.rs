//! Room on the disk for a file that others write into later.
//!
//! What is always true: after Ok every block of the file is there, whoever else fills the disk; after an
//! error the file is as long as it was before, and holds no blocks beyond. What was in the file stays. Where
//! the file system cannot allocate, only the blocks beyond the file's length before are promised.
//! Unless the file becomes shorter, direct reads and writes that are under way end first: ext4 and XFS wait
//! for them in `fallocate`.

use std::{io, os::fd::BorrowedFd};

use rustix::{
    fs::{self, FallocateFlags},
    io::{Errno, retry_on_intr},
};

/// Bytes of zeros written at a time where the file system cannot allocate by itself.
const PIECE_BYTES: u64 = 64 << 10;
/// Bytes of a block as `stat` counts them.
const STAT_BLOCK_BYTES: u64 = 512;

/// Makes the file `len` bytes long, with all its blocks.
pub(super) fn allocate(fd: BorrowedFd<'_>, len: u64) -> io::Result<()> {
    let stat = fs::fstat(fd)?;
    let before = u64::try_from(stat.st_size).unwrap_or(0);
    // A file that was copied may have its length and not its blocks.
    let has_all = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(STAT_BLOCK_BYTES) >= before;
    if len < before || len == 0 {
        return Ok(retry_on_intr(|| fs::ftruncate(fd, len))?);
    }
    if len == before && has_all {
        return wait_for_direct(fd, len);
    }
    // Not from the beginning if that is there: XFS asks for free blocks for all of the range.
    let begin = if has_all { before } else { 0 };
    let allocated = match retry_on_intr(|| fs::fallocate(fd, FallocateFlags::empty(), begin, len - begin)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(fd, before, len),
        outcome => outcome.map_err(io::Error::from),
    };
    // What a failed call took is room that others lack. The error before is the one to tell.
    allocated.inspect_err(|_| {
        let _ = retry_on_intr(|| fs::ftruncate(fd, before));
    })
}

/// Waits for direct reads and writes of a file whose blocks are all there: taking its last block again does.
fn wait_for_direct(fd: BorrowedFd<'_>, len: u64) -> io::Result<()> {
    let begin = (len - 1) / STAT_BLOCK_BYTES * STAT_BLOCK_BYTES;
    match retry_on_intr(|| fs::fallocate(fd, FallocateFlags::KEEP_SIZE, begin, len - begin)) {
        // The block is there; a file system that cannot allocate has no such call to wait in.
        Err(Errno::NOSPC | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// The same by writing, behind what is in the file. Synced, since a file system may promise blocks that it
/// then does not find; a failure says only that the room is not there.
fn write_zeros(fd: BorrowedFd<'_>, before: u64, len: u64) -> io::Result<()> {
    let zeros = vec![0; PIECE_BYTES as usize];
    let mut at = before;
    while at < len {
        let piece = &zeros[..PIECE_BYTES.min(len - at) as usize];
        at += retry_on_intr(|| rustix::io::pwrite(fd, piece, at))? as u64;
    }
    Ok(retry_on_intr(|| fs::fdatasync(fd))?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const LEN: u64 = 3 * PIECE_BYTES + 5;

    /// Length and blocks of a file, in bytes.
    fn room(file: &std::fs::File) -> (u64, u64) {
        let stat = fs::fstat(file).unwrap();
        (stat.st_size as u64, stat.st_blocks as u64 * 512)
    }

    /// What a file system gets that cannot allocate. Those of test machines can, so it is called by itself.
    #[test]
    fn zeros_that_are_written_are_as_much_room_as_what_is_allocated() {
        let file = tempfile::tempfile().unwrap();
        write_zeros(file.as_fd(), 0, LEN).unwrap();
        let (len, blocks) = room(&file);
        assert_eq!(len, LEN);
        assert!(blocks >= LEN, "{blocks} bytes of blocks");
    }

    /// Slabs grow while rows are in them.
    #[test]
    fn room_that_is_written_leaves_what_is_in_the_file() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"rows", 0).unwrap();
        write_zeros(file.as_fd(), 4, LEN).unwrap();
        let mut found = [7; 6];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!((&found, room(&file).0), (b"rows\0\0", LEN));
        write_zeros(file.as_fd(), LEN, LEN).unwrap();
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"rows\0\0");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error_and_not_room() {
        let place = tempfile::NamedTempFile::new().unwrap();
        let fd = fs::open(place.path(), fs::OFlags::RDONLY, fs::Mode::empty()).unwrap();
        assert!(write_zeros(fd.as_fd(), 0, LEN).is_err());
        assert_eq!(room(place.as_file()), (0, 0));
    }

    #[test]
    fn a_file_that_was_refused_room_is_as_long_as_before() {
        let file = tempfile::tempfile().unwrap();
        allocate(file.as_fd(), LEN).unwrap();
        let before = room(&file);
        // More than any disk or file system has.
        assert!(allocate(file.as_fd(), i64::MAX as u64).is_err());
        assert_eq!(room(&file), before);
    }
}
