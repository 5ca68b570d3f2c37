//! `Frames`: the memory of a shard's pages, which comes back when the last reader drops it.
//!
//! A page is read into the very memory in which it is cached, and written from it. Memory from the heap would
//! be another's each time: freed in the heap of one thread and taken from that of the next, so that a process
//! grew by a third over its budget. What is always true: pages are aligned for direct I/O, belong to one
//! owner, and are never more than the most that were in use at once, in whole chunks.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kvilt_base::queue::{BLOCK_BYTES, aligned};
use parking_lot::Mutex;

/// Pages of a chunk: as many are taken from the system at once.
const CHUNK_PAGES: usize = 64;

/// Pages that are free.
type Spare = Mutex<Vec<BytesMut>>;

/// See the module.
#[derive(Default)]
pub(crate) struct Frames {
    spare: Arc<Spare>,
}

impl Frames {
    /// A page with anything in it.
    pub(crate) fn take(&self) -> BytesMut {
        let mut spare = self.spare.lock();
        if spare.is_empty() {
            let mut chunk = aligned(CHUNK_PAGES * BLOCK_BYTES);
            while !chunk.is_empty() {
                spare.push(chunk.split_to(BLOCK_BYTES));
            }
        }
        spare.pop().expect("a chunk has pages")
    }

    /// Gives a page back that nobody reads.
    pub(crate) fn give_back(&self, page: BytesMut) {
        self.spare.lock().push(page);
    }

    /// The page, to be read by many; it comes back from the last of them.
    pub(crate) fn seal(&self, page: BytesMut) -> Bytes {
        Bytes::from_owner(Sealed { page, spare: Arc::clone(&self.spare) })
    }

    /// Bytes of pages that are free.
    pub(crate) fn spare_bytes(&self) -> u64 {
        (self.spare.lock().len() * BLOCK_BYTES) as u64
    }
}

struct Sealed {
    page: BytesMut,
    spare: Arc<Spare>,
}

impl AsRef<[u8]> for Sealed {
    fn as_ref(&self) -> &[u8] {
        &self.page
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        self.spare.lock().push(std::mem::take(&mut self.page));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_back_from_its_last_reader_and_is_used_again() {
        let frames = Frames::default();
        let mut page = frames.take();
        assert_eq!((page.len(), page.as_ptr() as usize % BLOCK_BYTES), (BLOCK_BYTES, 0));
        let left = frames.spare_bytes();
        page.fill(7);
        let sealed = frames.seal(page);
        let reader = sealed.slice(5..9);
        drop(sealed);
        assert_eq!((&reader[..], frames.spare_bytes()), (&[7; 4][..], left));
        drop(reader);
        assert_eq!(frames.spare_bytes(), left + BLOCK_BYTES as u64);
        let pages: Vec<_> = (0..CHUNK_PAGES).map(|_| frames.take()).collect();
        assert_eq!(frames.spare_bytes(), 0);
        pages.into_iter().for_each(|page| frames.give_back(page));
        assert_eq!(frames.spare_bytes(), (CHUNK_PAGES * BLOCK_BYTES) as u64);
    }
}
