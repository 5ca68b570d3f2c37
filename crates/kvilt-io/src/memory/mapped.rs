//! `Mapped`: the bytes of a file in memory while somebody has it mapped.
//!
//! They lie in a file of the system that has no name, since a mapping must be of one, and since its bytes can
//! then be read without unsafe code. What is always true: what was written to the mapping is in `bytes`; a
//! power cut leaves each page as it was when the file was mapped or synced, or as it is.

use std::{io, os::unix::fs::FileExt as _, sync::Arc};

use kvilt_base::Mapping;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::SeededRng;

/// What the system writes as a whole or not at all.
const PAGE_BYTES: usize = 4096;

/// See the module.
pub(super) struct Mapped {
    file: std::fs::File,
}

impl Mapped {
    pub(super) fn new(bytes: &[u8]) -> io::Result<Self> {
        let file = std::fs::File::from(memfd_create("kvilt-memory-disk", MemfdFlags::CLOEXEC)?);
        file.write_all_at(bytes, 0)?;
        Ok(Mapped { file })
    }

    pub(super) fn map(&self, offset: u64, len: usize) -> io::Result<Arc<Mapping>> {
        Mapping::of(&self.file, offset, len).map(Arc::new)
    }

    pub(super) fn resize(&self, len: usize) {
        self.file.set_len(len as u64).expect("a file in memory can become longer");
    }

    pub(super) fn len(&self) -> usize {
        self.file.metadata().expect("a file in memory has a length").len() as usize
    }

    /// What is there now.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.file.read_exact_at(&mut bytes, 0).expect("a file in memory can be read");
        bytes
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        self.file.read_at(buffer, offset).expect("a file in memory can be read")
    }

    pub(super) fn write(&self, offset: usize, data: &[u8]) {
        self.file.write_all_at(data, offset as u64).expect("a file in memory can be written");
    }

    /// What a power cut leaves, where `before` is what was there when the file was mapped.
    pub(super) fn any_pages(&self, before: &[u8], rng: &SeededRng) -> Vec<u8> {
        let mut bytes = self.bytes();
        for (page, before) in bytes.chunks_mut(PAGE_BYTES).zip(before.chunks(PAGE_BYTES)) {
            if rng.below(2) == 0 {
                page[..before.len()].copy_from_slice(before);
            }
        }
        bytes
    }
}
