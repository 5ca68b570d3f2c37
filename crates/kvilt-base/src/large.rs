//! `Large`: bytes of which there may be many, and whose memory then goes back to the system when they are
//! dropped.
//!
//! Most allocators map what is large by itself and unmap it when it is freed. The GNU C library's takes the
//! largest that was freed so for what programs usually need: from then on it takes everything up to that size
//! from its heap, where the memory of large and short-lived bytes lies between small ones and stays. Of a
//! store with keys of 60 KiB and a budget of 16 MiB, 38 MiB were in use and 112 MiB in the heap. It looks at
//! the size at the end, so what is large is made small first, which costs one system call and moves nothing.
//!
//! What is always true: bytes of less than `LARGE_BYTES` are freed as any vector's are.

use std::ops::{Deref, DerefMut};

/// The least bytes of a vector that gives its memory back when freed. Shorter ones are too many, and stay in
/// the heap.
const LARGE_BYTES: usize = 384 << 10;

/// What is left of a large one when it is freed, in bytes: less than any allocator takes for large.
const SMALL_BYTES: usize = 64 << 10;

/// A vector of bytes. See the module.
///
/// ```
/// let mut bytes = kvilt_base::Large::default();
/// bytes.extend_from_slice(b"abc");
/// assert_eq!(&bytes[1..], b"bc");
/// ```
#[derive(Debug, Default)]
pub struct Large(Vec<u8>);

impl Large {
    /// Empty, with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Large(Vec::with_capacity(bytes))
    }

    /// A vector of `bytes` zeros.
    pub fn zeroed(bytes: usize) -> Self {
        Large(vec![0; bytes])
    }
}

impl From<Vec<u8>> for Large {
    fn from(bytes: Vec<u8>) -> Self {
        Large(bytes)
    }
}

impl Deref for Large {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Large {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        make_small(&mut self.0);
    }
}

fn make_small(bytes: &mut Vec<u8>) {
    if bytes.capacity() >= LARGE_BYTES {
        bytes.clear();
        bytes.shrink_to(SMALL_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_is_small_when_it_is_freed() {
        let after = |capacity: usize| {
            let mut bytes = vec![7; capacity];
            make_small(&mut bytes);
            (bytes.len(), bytes.capacity())
        };
        assert_eq!(after(LARGE_BYTES), (0, SMALL_BYTES));
        assert_eq!(after(20 * LARGE_BYTES), (0, SMALL_BYTES));
        assert_eq!(after(LARGE_BYTES - 1), (LARGE_BYTES - 1, LARGE_BYTES - 1));
    }
}
