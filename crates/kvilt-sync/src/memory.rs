//! `Memory`: bytes with a stable address, 8-byte aligned, that are passed on or go back to the system when
//! dropped.
//!
//! Below [`Region`](crate::Region), [`AppendBuffer`](crate::AppendBuffer) and [`Pile`](crate::Pile). What is
//! always true: `base` is valid for reads and writes of `capacity` bytes as long as the value lives,
//! initialised if they were asked for as zeroed, and else as far as their owner has written. Who may read or
//! write which of them is up to the owner; this type hands out a raw pointer and no reference.
#![expect(unsafe_code, reason = "owns raw memory")]

use std::{
    alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error},
    io,
    ptr::NonNull,
};

use memmap2::{MmapMut, UncheckedAdvice};

use crate::{
    ahead::{CACHE_LINE_BYTES, fetch_line},
    blocks::{BLOCK_BYTES, Block},
    segment::Slot,
    spare,
};

/// Below this many bytes memory is taken from the heap, which has it at hand: a page of a fresh mapping costs
/// 2 µs on the machine that was measured, twenty times what filling it costs. A write buffer, 64 KiB that
/// live for milliseconds, is below; a munk's tail or run, which must give its memory back when it is dropped,
/// is above.
const MAPPED_BYTES_MIN: usize = 128 << 10;

/// Every base address is a multiple of this.
pub(crate) const ALIGNMENT: usize = 8;

/// In whole pages.
pub(crate) fn in_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(rustix::param::page_size())
}

pub(crate) struct Memory {
    base: NonNull<u8>,
    capacity: usize,
    /// So many of the first bytes lie in pages that somebody else had before, and are there, written or not.
    passed_on: usize,
    /// So many of the first bytes were written, as its owner says when it drops it.
    written: usize,
    owner: Owner,
}

enum Owner {
    Heap(Layout),
    /// Given up when dropped; not looked at before, `base` is the way in.
    Mapped(Option<MmapMut>),
    /// The same.
    Block(Option<Block>),
    /// The same; its pages are there.
    Slot(Slot),
}

// SAFETY: the bytes are owned by this value alone and plain; nothing in it knows a thread.
unsafe impl Send for Memory {}
// SAFETY: `&Memory` gives out an address and a length; using the address is unsafe and argued where it is
// done.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed bytes, as a mapping of their own unless they are few. Untouched pages take no memory.
    pub(crate) fn zeroed(capacity: usize) -> io::Result<Self> {
        if capacity < MAPPED_BYTES_MIN || cfg!(miri) {
            return Ok(Self::on_heap(capacity, alloc_zeroed));
        }
        Ok(Self::mapped(MmapMut::map_anon(capacity)?, capacity, 0))
    }

    /// Bytes that may have anything in them, or be uninitialised, of which about the first `wanted` will be
    /// written soon. Pages that somebody gave up are taken for these, if there are any.
    pub(crate) fn passed_on(capacity: usize, wanted: usize) -> io::Result<Self> {
        if capacity < MAPPED_BYTES_MIN || cfg!(miri) {
            return Ok(Self::on_heap(capacity, alloc));
        }
        match spare::take(capacity, wanted) {
            Some((mapping, there)) => Ok(Self::mapped(mapping, capacity, there)),
            None => Self::zeroed(capacity),
        }
    }

    /// Like [`Memory::passed_on`], all of which will be written soon; but a mapping that the system refuses
    /// is taken from the heap, which aborts when it has nothing left either, as any allocation does.
    pub(crate) fn passed_on_or_abort(capacity: usize) -> Self {
        Self::passed_on(capacity, capacity).unwrap_or_else(|_| Self::on_heap(capacity, alloc))
    }

    /// [`BLOCK_BYTES`] bytes that may have anything in them, or be uninitialised.
    pub(crate) fn block() -> Self {
        let block = if cfg!(miri) { None } else { Block::take() };
        match block {
            Some(block) => Memory {
                base: block.base(),
                capacity: BLOCK_BYTES,
                passed_on: 0,
                written: 0,
                owner: Owner::Block(Some(block)),
            },
            None => Self::on_heap(BLOCK_BYTES, alloc),
        }
    }

    /// The first bytes of a slot, which may have anything in it.
    pub(crate) fn in_slot(slot: Slot, capacity: usize) -> Self {
        assert!(capacity <= slot.capacity(), "a slot of {} bytes has no {capacity}", slot.capacity());
        let base = NonNull::new(slot.base()).expect("a mapping is never at address zero");
        Memory { base, capacity, passed_on: 0, written: 0, owner: Owner::Slot(slot) }
    }

    /// The slot that it is in, if it is in one.
    pub(crate) fn slot(&self) -> Option<&Slot> {
        match &self.owner {
            Owner::Slot(slot) => Some(slot),
            Owner::Heap(_) | Owner::Mapped(_) | Owner::Block(_) => None,
        }
    }

    fn mapped(mut mapping: MmapMut, capacity: usize, passed_on: usize) -> Self {
        let base = NonNull::new(mapping.as_mut_ptr()).expect("a mapping is never at address zero");
        Memory { base, capacity, passed_on, written: 0, owner: Owner::Mapped(Some(mapping)) }
    }

    fn on_heap(capacity: usize, alloc: unsafe fn(Layout) -> *mut u8) -> Self {
        let layout = Layout::from_size_align(capacity.max(1), ALIGNMENT).expect("capacity fits in memory");
        // SAFETY: one of the allocator's two functions, and the layout's size is at least 1.
        let base = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Memory { base, capacity, passed_on: 0, written: 0, owner: Owner::Heap(layout) }
    }

    /// Nothing will be written soon behind the first `written` bytes, and what was is of no use any more:
    /// pages there that came from somebody else go back.
    pub(crate) fn end_at(&mut self, written: usize) {
        let end = in_pages(written);
        if let Owner::Mapped(Some(mapping)) = &self.owner
            && end < self.passed_on
        {
            let rest = self.passed_on - end;
            // SAFETY: these whole pages read as zeros afterwards; nobody reads any more what was written
            // there.
            let advised = unsafe { mapping.unchecked_advise_range(UncheckedAdvice::DontNeed, end, rest) };
            // Refused, they stay until all of it is dropped.
            drop(advised);
            self.passed_on = end;
        }
    }

    /// It will be read in no order: the system should map it by large pages, where it has such, so that less
    /// is looked up to find where a byte lies. It is only a wish, and changes no byte.
    pub(crate) fn wish_for_large_pages(&self) {
        #[cfg(target_os = "linux")]
        if let Owner::Mapped(Some(mapping)) = &self.owner {
            // Refused, its pages are small.
            let _refused = mapping.advise(memmap2::Advice::HugePage);
        }
    }

    /// When the owner drops it, it has written so many of the first bytes: their pages can be passed on.
    pub(crate) fn give_up(&mut self, written: usize) {
        self.written = written;
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Has the processor fetch what lies from `start` up to `end`, which will be read soon. Changes no
    /// result.
    #[inline]
    pub(crate) fn fetch_ahead(&self, start: usize, end: usize) {
        for at in (start..end.min(self.capacity)).step_by(CACHE_LINE_BYTES) {
            fetch_line(self.base().wrapping_add(at));
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match &mut self.owner {
            // SAFETY: allocated in `on_heap` with this layout, freed only here.
            Owner::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), *layout) },
            Owner::Mapped(mapping) => {
                let mapping = mapping.take().expect("given up once");
                spare::give(mapping, self.written);
            }
            // It gives its pages back when it is dropped.
            Owner::Slot(_) => {}
            Owner::Block(block) => spare::give_block(block.take().expect("given up once")),
        }
    }
}
