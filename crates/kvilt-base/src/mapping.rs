//! `Mapping`: bytes of a file in memory, shared with the file, that outlive the process.
//!
//! A write to a mapping is in the file at once, without a system call: every reader of the file sees it.
//! The death of the process takes nothing of it; a power cut may leave of each page what the system wrote of
//! it at any time, since nothing here syncs.

use std::{fmt, io};

use memmap2::{MmapAsRawDesc, MmapOptions, MmapRaw};

/// Bytes that are mapped shared. Hands out an address and no reference: reading and writing them is unsafe,
/// and is argued in `kvilt-sync`, which does it.
pub struct Mapping(MmapRaw);

impl Mapping {
    /// `len` bytes of a file from `offset` on, a multiple of a page, which must be allocated: a page that is
    /// written for the first time has no way to say that the disk is full. If somebody cuts the file short,
    /// or the drive fails while a page is read back, the next touch kills the process (SIGBUS). An error
    /// instead would need a handler for the whole process, which a library must not install.
    ///
    /// Errors: those of the system, such as `Unsupported` where files cannot be mapped shared.
    pub fn of(file: impl MmapAsRawDesc, offset: u64, len: usize) -> io::Result<Mapping> {
        MmapOptions::new().offset(offset).len(len).map_raw(file).map(Mapping)
    }

    /// Where it begins: valid for reads and writes of [`Mapping::len`] bytes while this value lives.
    pub fn base(&self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.len())
    }
}
