//! `Mapped`: the bytes of a file in memory while somebody has it mapped.
//!
//! They lie in a file of the system that has no name, since a mapping must be of one, and since its bytes can
//! then be read without unsafe code. What is always true: what was stored through a mapping is in `bytes`.
//! Which of it is durable is the inode's to know.

use std::{io, ops::Range, os::unix::fs::FileExt as _, sync::Arc};

use kvilt_base::Mapping;
use rustix::fs::{MemfdFlags, memfd_create};

/// What the kernel knows to be changed, or not, as a whole.
pub(super) const PAGE_BYTES: usize = 4096;

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

    /// Makes `bytes` all that is there.
    pub(super) fn replace(&self, bytes: &[u8]) {
        self.resize(bytes.len());
        self.write(0, bytes);
    }
}

/// Each run of pages that differ, as the bytes that are there now.
pub(super) fn changed_runs(before: &[u8], now: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let pages = before.chunks(PAGE_BYTES).zip(now.chunks(PAGE_BYTES)).enumerate();
    for (number, (_, page)) in pages.filter(|(_, (before, now))| before != now) {
        let start = number * PAGE_BYTES;
        match runs.last_mut() {
            Some(run) if run.end == start => run.end += page.len(),
            _ => runs.push(start..start + page.len()),
        }
    }
    runs
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
