//! `Memory`: zeroed bytes with a stable address, 8-byte aligned, that go back to the system when dropped.
//!
//! Below [`Region`](crate::Region), [`AppendBuffer`](crate::AppendBuffer) and [`Skiplist`](crate::Skiplist).
//! What is always true: `base` is valid for reads and writes of `capacity` bytes as long as the value lives,
//! all of them initialised. Who may read or write which of them is up to the owner; this type hands out a raw
//! pointer and no reference.
#![expect(unsafe_code, reason = "owns raw memory")]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    io,
    ptr::NonNull,
};

use memmap2::MmapMut;

/// Below this many bytes memory is taken from the heap, which has it at hand: a page of a fresh mapping costs 2 µs on the
/// machine that was measured, twenty times what filling it costs. A write buffer, 64 KiB that live for milliseconds,
/// is below; a munk's tail or run, which must give its memory back when it is dropped, is above.
const MAPPED_BYTES_MIN: usize = 128 << 10;

/// Every base address is a multiple of this.
pub(crate) const ALIGNMENT: usize = 8;
/// What processors fetch at once.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE_BYTES: usize = 64;

pub(crate) struct Memory {
    base: NonNull<u8>,
    capacity: usize,
    owner: Owner,
}

enum Owner {
    Heap(Layout),
    /// Unmaps when dropped; never looked at again, `base` is the way in.
    Mapped(#[expect(dead_code, reason = "owned for its drop")] MmapMut),
}

// SAFETY: the bytes are owned by this value alone and plain; nothing in it knows a thread.
unsafe impl Send for Memory {}
// SAFETY: `&Memory` gives out an address and a length; using the address is unsafe and argued where it is done.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed bytes, as a mapping of their own unless they are few. Untouched pages take no memory.
    pub(crate) fn zeroed(capacity: usize) -> io::Result<Self> {
        if capacity < MAPPED_BYTES_MIN || cfg!(miri) {
            return Ok(Self::on_heap(capacity));
        }
        let mut mapping = MmapMut::map_anon(capacity)?;
        let base = NonNull::new(mapping.as_mut_ptr()).expect("a mapping is never at address zero");
        Ok(Memory { base, capacity, owner: Owner::Mapped(mapping) })
    }

    /// Like [`Memory::zeroed`], but a mapping that the system refuses is taken from the heap, which aborts when
    /// it has nothing left either, as any allocation does.
    pub(crate) fn zeroed_or_abort(capacity: usize) -> Self {
        Self::zeroed(capacity).unwrap_or_else(|_| Self::on_heap(capacity))
    }

    fn on_heap(capacity: usize) -> Self {
        let layout = Layout::from_size_align(capacity.max(1), ALIGNMENT).expect("capacity fits in memory");
        // SAFETY: the layout's size is at least 1.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Memory { base, capacity, owner: Owner::Heap(layout) }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Has the processor fetch what lies from `start` up to `end`, which will be read soon. Changes no result.
    #[inline]
    pub(crate) fn fetch_ahead(&self, start: usize, end: usize) {
        #[cfg(target_arch = "x86_64")]
        for at in (start..end.min(self.capacity)).step_by(CACHE_LINE_BYTES) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: `at < capacity`, so the address lies inside the memory.
            let line = unsafe { self.base().add(at) };
            // SAFETY: a hint, allowed for every address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (start, end);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.owner {
            // SAFETY: allocated in `on_heap` with this layout, freed only here.
            Owner::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), layout) },
            Owner::Mapped(_) => {}
        }
    }
}
