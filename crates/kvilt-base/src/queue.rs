//! The `Queue` seam: reads and writes in flight, begun in batches and completed in any order.
//!
//! Promises that an implementation makes (numbers as in `docs/invariants.md`), beside D-1 to D-5 of
//! [`crate::disk`]:
//!
//! * **D-6** A completed write is seen by every later read, through a queue or a [`File`], and survives the
//!   death of the process. A [`File::sync`] that begins after it makes it durable (D-1).
//! * **D-7** A completed write that is durable survives a power cut without a sync, if the file's name does.
//!   One that fails is a failed sync of its file (D-5), unless the disk was full before anything was written.
//! * **D-8** Of a write in flight a power cut, or the death of the process, leaves all, nothing or any
//!   sectors of 512 bytes.
//! * **D-9** Each transfer completes once, and brings its buffer back. Until then the queue keeps the buffer
//!   and the file. A queue that is dropped waits for what is in flight.
//!
//! What a caller promises: a write overlaps nothing else that is in flight, and no call on its [`File`].
//!
//! A file of a direct kind (see [`FileKind::direct`](crate::disk::FileKind::direct)) is read and written in
//! whole blocks of [`BLOCK_BYTES`], at multiples of it, from and to addresses that are multiples of it, also
//! through [`File`]. Anything else is `InvalidInput`, wherever the file lies.

use std::{any::Any, fmt, io, sync::Arc};

use bytes::{Buf as _, Bytes, BytesMut};

use crate::{File, FileName};

/// What files of direct kinds are read and written by, in bytes: no drive in use has larger sectors, and it
/// is a page of memory.
pub const BLOCK_BYTES: usize = 4096;

/// Reads and writes in flight. Every method may be called from several threads.
pub trait Queue: Send + Sync + fmt::Debug {
    /// Begins transfers, and does not wait for any of them. More than the queue is deep wait in it, and are
    /// begun by [`Queue::reap`]. One that cannot be begun completes with the error.
    fn submit(&self, transfers: Vec<Transfer>);
    /// Waits until at least one transfer has completed, and moves all that have to the end of `done`. Returns
    /// at once if nothing is in flight. A thread that reaps while another does may get nothing.
    fn reap(&self, done: &mut Vec<Completed>);
    /// How it works, for statistics.
    fn means(&self) -> Means;
}

/// A read or a write to be done.
#[derive(Debug)]
pub struct Transfer {
    /// The caller's number for it.
    pub token: u64,
    /// An open file of the disk that the queue is of.
    pub file: Arc<dyn File>,
    /// Where in the file it begins.
    pub offset: u64,
    /// What is to be done there.
    pub work: Work,
}

/// What is done, with the buffer that it is done with.
#[derive(Debug)]
pub enum Work {
    /// Fills the buffer, all of its length. `UnexpectedEof` if the file ends before; what the buffer holds
    /// after an error is not said.
    Read(BytesMut),
    /// Writes all bytes, growing the file.
    Write {
        /// What is written.
        bytes: Bytes,
        /// Whether it completes only when the bytes survive a power cut (D-7).
        is_durable: bool,
    },
}

impl Work {
    /// What is read or written, in bytes.
    pub fn len(&self) -> usize {
        match self {
            Work::Read(buffer) => buffer.len(),
            Work::Write { bytes, .. } => bytes.len(),
        }
    }

    /// Whether that is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is a write.
    pub fn is_write(&self) -> bool {
        matches!(self, Work::Write { .. })
    }

    /// The buffer's bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Work::Read(buffer) => buffer,
            Work::Write { bytes, .. } => bytes,
        }
    }
}

/// A read or a write that is over.
#[derive(Debug)]
pub struct Completed {
    /// The number that it was submitted with.
    pub token: u64,
    /// What was to be done, and the buffer.
    pub work: Work,
    /// Whether all of it was. A write that failed may have been done in part.
    pub outcome: io::Result<()>,
}

impl Transfer {
    /// It is over.
    pub fn complete(self, outcome: io::Result<()>) -> Completed {
        Completed { token: self.token, work: self.work, outcome }
    }

    /// Checks what is asked of every transfer before it is begun: whole blocks if the file's kind is direct,
    /// and an end that a file can have.
    pub fn check(&self) -> io::Result<()> {
        let name = self.file.name();
        check_blocks(name, self.offset, self.work.bytes())?;
        let end = self.offset.checked_add(self.work.len() as u64).filter(|end| i64::try_from(*end).is_ok());
        end.map(|_| ()).ok_or_else(|| {
            let message = format!("{name}: no file has bytes at {}", self.offset);
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })
    }
}

/// How a queue does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// By what.
    pub kind: MeansKind,
    /// Whether files of direct kinds are read and written past the page cache: false where the file system
    /// refuses that, and where no file is of such a kind.
    pub is_direct: bool,
}

/// By what a queue does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeansKind {
    /// The kernel's rings.
    IoUring,
    /// A pool of threads.
    Threads,
    /// A disk in memory, when it is asked for what has completed.
    Memory,
}

impl fmt::Display for MeansKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MeansKind::IoUring => "io_uring",
            MeansKind::Threads => "threads",
            MeansKind::Memory => "memory",
        })
    }
}

/// A buffer of zeros at an address that is a multiple of [`BLOCK_BYTES`]. It stays there when it is frozen.
pub fn aligned(len: usize) -> BytesMut {
    let mut buffer = BytesMut::zeroed(len + BLOCK_BYTES);
    let skipped = buffer.as_ptr().align_offset(BLOCK_BYTES);
    buffer.advance(skipped);
    buffer.truncate(len);
    buffer
}

/// Checks that bytes, in memory and at `offset` of the file, are whole blocks if its kind is direct.
///
/// Errors: `InvalidInput`, with the file and the offset.
pub fn check_blocks(name: FileName, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let is_whole = || {
        offset.is_multiple_of(BLOCK_BYTES as u64)
            && bytes.len().is_multiple_of(BLOCK_BYTES)
            && bytes.as_ptr().addr().is_multiple_of(BLOCK_BYTES)
    };
    if !name.kind().is_direct() || is_whole() {
        return Ok(());
    }
    let message = format!(
        "{name}: {} bytes at {offset}, from or to address {:#x}, are not whole blocks of {BLOCK_BYTES}",
        bytes.len(),
        bytes.as_ptr().addr(),
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// The file of this type that `file` is, or that lies behind it ([`File::behind`]).
pub fn found<F: File>(file: &dyn File) -> Option<&F> {
    let mut file = file;
    loop {
        let any: &dyn Any = file;
        if let Some(found) = any.downcast_ref() {
            return Some(found);
        }
        file = &**file.behind()?;
    }
}

/// That a file is none of the disk whose queue it was given to.
pub fn foreign(name: FileName) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is a file of another disk"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::FileKind;

    #[test]
    fn buffers_lie_on_blocks_and_stay_there() {
        for len in [0, 1, 4095, 4096, 8192, 100_000, 4 << 20] {
            let mut buffer = aligned(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            let address = buffer.as_ptr();
            let bytes = buffer.freeze();
            assert_eq!(address.align_offset(BLOCK_BYTES), 0, "{len}");
            assert_eq!(bytes.as_ptr(), address, "{len}");
            let whole = bytes.try_into_mut().unwrap();
            assert_eq!(whole.as_ptr(), address, "{len}");
        }
    }

    #[test]
    fn only_whole_blocks_pass_and_only_direct_kinds_ask_for_them() {
        let (direct, other) =
            (FileName::Of(FileKind::direct("slab"), 7), FileName::Of(FileKind::new("log"), 7));
        let buffer = aligned(2 * BLOCK_BYTES);
        for (offset, bytes, is_fine) in [
            (0, &buffer[..], true),
            (1 << 40, &buffer[BLOCK_BYTES..], true),
            (512, &buffer[..], false),
            (4096, &buffer[512..512 + BLOCK_BYTES], false),
            (4096, &buffer[..100], false),
        ] {
            let checked = check_blocks(direct, offset, bytes);
            assert_eq!(checked.is_ok(), is_fine, "{offset}, {}", bytes.len());
            if let Err(error) = checked {
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
                let text = error.to_string();
                assert!(text.contains(&direct.to_string()) && text.contains(&offset.to_string()), "{text}");
            }
            assert!(check_blocks(other, offset, bytes).is_ok());
        }
    }
}
