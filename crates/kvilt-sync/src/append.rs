//! `AppendBuffer`: a log's write buffer; one appends, everybody reads what was published.
//!
//! A put appends its record here (no system call); gets read it back from here until a flush has written it
//! to the file and a fresh buffer takes its place.
//!
//! What is always true:
//! - S-20: bytes below `len` never change. `len` only grows, and is stored (Release) after the bytes it
//!   covers were copied; a reader that loads it (Acquire) sees those bytes.
//! - Appends exclude each other by an internal lock, held for one copy.
#![expect(unsafe_code, reason = "bytes that are written beside bytes that are read")]

use std::fmt;

use kvilt_base::planted;

use crate::{
    memory::Memory,
    segment::Slot,
    shim::{AtomicUsize, Mutex, Ordering},
};

/// Bytes of fixed capacity, appended to through a shared reference. Appending threads take turns; readers
/// take no lock.
///
/// ```
/// let buffer = kvilt_sync::AppendBuffer::new(8);
/// assert_eq!(buffer.append(b"abc"), Some(0));
/// assert_eq!(buffer.append_parts(&[b"d", b"ef"]), Some(3));
/// assert_eq!(buffer.append(b"too long"), None);
/// assert_eq!(buffer.read(), b"abcdef");
/// ```
pub struct AppendBuffer {
    memory: Memory,
    /// Bytes published. Written under `writer` only.
    len: AtomicUsize,
    writer: Mutex<()>,
}

impl AppendBuffer {
    /// An empty buffer for `capacity` bytes, which are touched as they are written.
    pub fn new(capacity: usize) -> Self {
        Self::with(Memory::passed_on_or_abort(capacity))
    }

    /// An empty one for `capacity` bytes in memory that outlives the process: what is appended is published
    /// there, too.
    pub fn in_slot(slot: Slot, capacity: usize) -> Self {
        Self::with(Memory::in_slot(slot, capacity))
    }

    fn with(memory: Memory) -> Self {
        AppendBuffer { memory, len: AtomicUsize::new(0), writer: Mutex::new(()) }
    }

    /// The memory that outlives the process, if it is in such.
    pub fn slot(&self) -> Option<&Slot> {
        self.memory.slot()
    }

    /// Appends `bytes` whole and says at which offset, or changes nothing if they do not fit.
    pub fn append(&self, bytes: &[u8]) -> Option<usize> {
        self.append_parts(&[bytes])
    }

    /// Appends the parts one after the other as one piece: readers see all of it or nothing. Says at which
    /// offset, or changes nothing if they do not fit.
    pub fn append_parts(&self, parts: &[&[u8]]) -> Option<usize> {
        let bytes = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(part.len()))?;
        let _turn = self.writer.lock();
        // Relaxed: only written under the lock, which we hold.
        let offset = self.len.load(Ordering::Relaxed);
        if bytes > self.capacity() - offset {
            return None;
        }
        let mut at = offset;
        for part in parts {
            // SAFETY: `at + part.len() <= offset + bytes <= capacity`.
            let to = unsafe { self.memory.base().add(at) };
            // SAFETY: the target lies inside the memory and at or above `len`, where no reader has a slice,
            // and no other writer is here (lock).
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()) };
            at += part.len();
        }
        // First for the next process: what a reader sees must be there for it.
        if let Some(slot) = self.memory.slot() {
            let published = planted!(PublishedEarly, at => (at + 7).min(self.capacity()));
            slot.publish(planted!(PublishedLate, published => offset));
        }
        // Pairs with the load in `published_len`: who sees this length sees the bytes copied above.
        self.len.store(at, Ordering::Release);
        Some(offset)
    }

    /// What was appended so far.
    pub fn read(&self) -> &[u8] {
        let len = self.len();
        // SAFETY: bytes below a length loaded with Acquire are copied and never written again (S-20);
        // emptying takes `&mut self` and so ends this borrow first.
        unsafe { std::slice::from_raw_parts(self.memory.base(), len) }
    }

    /// Bytes appended so far.
    pub fn len(&self) -> usize {
        // Pairs with the store in `append_parts`.
        self.len.load(Ordering::Acquire)
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that still fit.
    pub fn remaining(&self) -> usize {
        self.capacity() - self.len()
    }

    /// Bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// Makes it empty again, for another log. Nobody can be reading: `&mut self`.
    pub fn clear(&mut self) {
        // Relaxed: whoever gets to share it again is given it in a way that orders this.
        self.len.store(0, Ordering::Relaxed);
    }
}

impl Drop for AppendBuffer {
    fn drop(&mut self) {
        self.memory.give_up(self.len());
    }
}

impl fmt::Debug for AppendBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AppendBuffer {{ {} of {} bytes }}", self.len(), self.capacity())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_does_not_fit_changes_nothing() {
        let mut buffer = AppendBuffer::new(10);
        assert_eq!(buffer.append(b"123456"), Some(0));
        assert_eq!(buffer.append_parts(&[b"789", b"01"]), None);
        assert_eq!((buffer.len(), buffer.remaining()), (6, 4));
        assert_eq!(buffer.append(b""), Some(6));
        assert_eq!(buffer.append(b"7890"), Some(6));
        assert_eq!(buffer.read(), b"1234567890");
        buffer.clear();
        assert!(buffer.is_empty());
    }

    /// S-20.
    #[test]
    fn readers_see_whole_pieces_while_writers_take_turns() {
        const PIECES: usize = if cfg!(miri) { 40 } else { 20_000 };
        let buffer = AppendBuffer::new(2 * PIECES * 8);
        std::thread::scope(|s| {
            for writer in [1u8, 2] {
                let buffer = &buffer;
                s.spawn(move || {
                    for _ in 0..PIECES {
                        assert!(buffer.append_parts(&[&[writer; 3], &[writer; 5]]).is_some());
                    }
                });
            }
            s.spawn(|| {
                let mut seen = 0;
                while seen < buffer.capacity() {
                    let bytes = buffer.read();
                    assert!(bytes.len() >= seen && bytes.len().is_multiple_of(8));
                    for piece in bytes[seen..].chunks(8) {
                        assert!(piece.iter().all(|b| *b == piece[0] && *b != 0));
                    }
                    seen = bytes.len();
                    std::thread::yield_now();
                }
            });
        });
        assert_eq!(buffer.remaining(), 0);
    }
}
