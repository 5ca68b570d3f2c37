//! `Region`: bytes written once from front to back, then only read; the rows of a log that were read at one
//! go lie in one.
//!
//! What is always true: the first `len` bytes are written and never change again, so a shared region is read
//! without any lock; the memory goes back to the system when the region is dropped, or is spare for a moment,
//! while a heap would promise neither.
#![expect(unsafe_code, reason = "slices of raw memory")]

use std::{fmt, io};

use crate::memory::Memory;

/// Append-only bytes of fixed capacity. One owner writes (`&mut`), then any number of threads read.
///
/// ```
/// let mut region = kvilt_sync::Region::with_capacity(1 << 20)?;
/// let at = region.push(b"abc");
/// assert_eq!(&region.as_slice()[at..], b"abc");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Region {
    memory: Memory,
    /// Bytes written so far.
    len: usize,
}

impl Region {
    /// An empty region for up to `bytes` bytes. Pages are touched as they are written, but for spare ones.
    /// Fails if the system refuses the address space.
    pub fn with_capacity(bytes: usize) -> io::Result<Self> {
        Ok(Region { memory: Memory::passed_on(bytes, bytes)?, len: 0 })
    }

    /// The same for who may write much less: spare memory is left to others.
    pub fn with_capacity_at_most(bytes: usize) -> io::Result<Self> {
        Ok(Region { memory: Memory::zeroed(bytes)?, len: 0 })
    }

    /// Bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// Bytes written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What was written.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are inside the memory and initialised; they change only through
        // `push`, which takes `&mut self` and so ends this borrow first.
        unsafe { std::slice::from_raw_parts(self.memory.base(), self.len) }
    }

    /// Appends `bytes` and says at which offset they begin. Panics if they do not fit.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let offset = self.len;
        assert!(bytes.len() <= self.capacity() - offset, "the region has no room for {} bytes", bytes.len());
        // SAFETY: `offset <= capacity`, so the result stays inside the memory or at its end.
        let to = unsafe { self.memory.base().add(offset) };
        // SAFETY: `bytes.len()` bytes from `to` on lie inside the memory (asserted above), and nobody else
        // sees them: `&mut self`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.len += bytes.len();
        offset
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.memory.give_up(self.len);
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region {{ {} of {} bytes }}", self.len, self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(capacity: usize) {
        let mut region = Region::with_capacity(capacity).unwrap();
        let mut expected = Vec::new();
        while expected.len() + 7 <= capacity {
            assert_eq!(region.push(&[expected.len() as u8; 7]), expected.len());
            expected.extend_from_slice(&[expected.len() as u8; 7]);
        }
        assert_eq!(region.as_slice(), expected);
        assert_eq!(region.capacity(), capacity);
    }

    #[test]
    fn what_is_pushed_is_read_on_the_heap_and_in_a_mapping() {
        // Under miri nothing is mapped.
        let mapped = (!cfg!(miri)).then_some(128 << 10);
        for capacity in [0, 1, 7, 4096].into_iter().chain(mapped) {
            check(capacity);
        }
    }

    #[test]
    #[should_panic(expected = "no room")]
    fn a_full_region_refuses() {
        Region::with_capacity(3).unwrap().push(b"abcd");
    }
}
