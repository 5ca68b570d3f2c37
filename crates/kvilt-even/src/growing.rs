//! `Growing`: bytes that are appended to, in a mapping of their own that doubles when it is full.
//!
//! For what is large and short-lived: its memory is passed on or goes back to the system when it is dropped,
//! where a vector's might stay with the allocator.

use std::io;

use kvilt_base::{Error, Result};
use kvilt_sync::region::Region;

/// An appendable region.
#[derive(Debug)]
pub(crate) struct Growing(Region);

impl Growing {
    /// Empty, with room for so many bytes of which there may be far fewer: pages that are not written to take
    /// no memory.
    pub(crate) fn with_capacity_at_most(bytes: usize) -> Result<Self> {
        Region::with_capacity_at_most(bytes.max(1024)).map_err(no_memory).map(Growing)
    }

    /// Appends; says where the bytes begin.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<usize> {
        let needed = self.0.len() + bytes.len();
        if needed > self.0.capacity() {
            let mut larger = reserve((self.0.capacity() * 2).max(needed))?;
            larger.push(self.0.as_slice());
            self.0 = larger;
        }
        Ok(self.0.push(bytes))
    }

    /// What was appended.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }
}

fn reserve(bytes: usize) -> Result<Region> {
    Region::with_capacity(bytes).map_err(no_memory)
}

fn no_memory(error: io::Error) -> Error {
    Error::io("reserve memory", error)
}
