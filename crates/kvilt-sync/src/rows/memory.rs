//! `RowMemory`: the bytes of rows, and who may write where.
//!
//! What is always true: bytes below `len` belong to rows, or are spans of the room's; those behind it are
//! nobody's. Who writes has the room's lock, or the memory to itself, and writes only into spans that were
//! free or behind `len`.
#![expect(unsafe_code, reason = "rows in raw memory")]

use kvilt_base::{EntryRef, Error, ErrorKind, Kind, Result, Version};

use super::room::Room;
use crate::{
    memory::Memory,
    published::Birth,
    shim::{AtomicU32, AtomicUsize, Mutex, MutexGuard, Ordering},
};

/// Bytes of a row before its key: key length 4, value length and kind 4, version 8, position 4.
pub(super) const HEAD_BYTES: usize = 20;
const POSITION_AT: usize = 16;
/// Set in the length word for tombstones.
const TOMBSTONE_BIT: u32 = 1 << 31;
/// Rows that replace others take so much fresh memory at most, this part of what was built, or as many of the
/// longest rows, whichever is most, until replaced ones are free.
const GROWTH_BYTES: usize = 64 << 10;
const GROWTH_PART: usize = 16;
const GROWTH_ROWS: usize = 2;
/// Of where a row will be written, so much is fetched ahead at most.
const FETCHED_FREE_BYTES_MAX: usize = 1 << 10;

pub(super) struct RowMemory {
    memory: Memory,
    /// When the first of its rows could be read at the earliest.
    birth: Birth,
    /// Bytes that were given out. Written under the room's lock.
    len: AtomicUsize,
    /// Bytes of the longest row that was built.
    longest: usize,
    /// Where the next row will probably be written that replaces another; 0 as long as none did. For fetching
    /// ahead only.
    next: AtomicU32,
    /// Whether it will have no room, as far as the last one knew: 0 or 1. For asking in time only.
    is_short: AtomicU32,
    room: Mutex<Room>,
}

impl RowMemory {
    /// For about so many bytes of rows, and as much again for what will be woven in or replace others: pages
    /// that are not written to take no memory.
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let capacity = if bytes == 0 { 0 } else { (2 * bytes + GROWTH_BYTES).min(u32::MAX as usize) };
        let memory = Memory::passed_on(capacity, bytes).map_err(|e| Error::io("reserve memory", e))?;
        Ok(RowMemory {
            memory,
            birth: Birth::now(),
            len: AtomicUsize::new(0),
            longest: 0,
            next: AtomicU32::new(0),
            is_short: AtomicU32::new(0),
            room: Mutex::new(Room::default()),
        })
    }

    pub(super) fn birth(&self) -> Birth {
        self.birth
    }

    pub(super) fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock()
    }

    /// Bytes given out.
    pub(super) fn len(&self) -> usize {
        // Relaxed: who reads rows has come by their places.
        self.len.load(Ordering::Relaxed)
    }

    /// Appends a row while it is built. It grows when it must.
    pub(super) fn push(&mut self, entry: EntryRef<'_>, position: usize) -> Result<u32> {
        let (len, bytes) = (self.len(), bytes_of(entry).ok_or_else(too_long)?);
        self.grow_for(len + bytes)?;
        self.len = AtomicUsize::new(len + bytes);
        self.longest = self.longest.max(bytes);
        // SAFETY: these bytes are inside the memory, were nobody's, and nobody else has it (`&mut self`).
        unsafe { self.write(len as u32, entry, position) };
        Ok(len as u32)
    }

    /// Appends what lies from `start` on in another one that is being built.
    pub(super) fn push_from(&mut self, other: &mut RowMemory, start: usize) -> Result<()> {
        let (len, end) = (self.len(), other.len());
        assert!(start <= end, "bytes that were given out");
        self.grow_for(len + end - start)?;
        let from = other.memory.base().wrapping_add(start);
        let to = self.memory.base().wrapping_add(len);
        // SAFETY: both lie inside their memories (asserted, and grown for), which are two; `other` has them
        // written, and nobody else has either (`&mut`).
        unsafe { std::ptr::copy_nonoverlapping(from, to, end - start) };
        self.len = AtomicUsize::new(len + end - start);
        self.longest = self.longest.max(other.longest);
        Ok(())
    }

    fn grow_for(&mut self, needed: usize) -> Result<()> {
        if needed > u32::MAX as usize {
            return Err(too_long());
        }
        // Some is left in any case.
        if needed + GROWTH_BYTES > self.memory.capacity() {
            let mut larger = RowMemory::new(needed.max(2 * self.len()))?;
            larger.push_from(self, 0)?;
            *self = larger;
        }
        Ok(())
    }

    /// The rows from `len` on, which is where one begins, are no more, while it is built.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = AtomicUsize::new(len.min(self.len()));
    }

    /// Nothing more will be written soon: what is spare behind what was written goes back.
    pub(super) fn end(&mut self) {
        let len = self.len();
        self.memory.end_at(len);
        let longest = GROWTH_ROWS * self.longest;
        self.room().grows_at_most(GROWTH_BYTES.max(len / GROWTH_PART).max(longest));
    }

    /// Writes a row where there is room for it, beside those that were built.
    pub(super) fn write_more(&self, room: &mut Room, entry: EntryRef<'_>, position: usize) -> Option<u32> {
        let bytes = bytes_of(entry)?;
        let place = room.take(bytes).or_else(|| self.give_out(bytes))?;
        // SAFETY: just taken, from what is free or from behind `len`; who has the room's lock has it alone.
        unsafe { self.write(place, entry, position) };
        Some(place)
    }

    /// The same for a row that replaces another: it takes no more fresh memory than it may.
    pub(super) fn write_replacing(
        &self,
        room: &mut Room,
        entry: EntryRef<'_>,
        position: usize,
    ) -> Option<u32> {
        let bytes = bytes_of(entry)?;
        let can_grow = |room: &Room| self.has_fresh(bytes) && room.can_grow(bytes);
        let mut place = room.take(bytes);
        if place.is_none() && can_grow(room) {
            room.grows(bytes);
            place = self.give_out(bytes);
        }
        let next = place.and_then(|_| room.next(bytes));
        let is_short = next.is_none() && !can_grow(room);
        // Relaxed, both: hints.
        self.is_short.store(u32::from(is_short), Ordering::Relaxed);
        let place = place?;
        self.next.store(next.unwrap_or(self.len() as u32), Ordering::Relaxed);
        // SAFETY: as in `write_more`.
        unsafe { self.write(place, entry, position) };
        Some(place)
    }

    /// Fresh bytes. The caller has the room's lock.
    fn give_out(&self, bytes: usize) -> Option<u32> {
        let len = self.len();
        self.has_fresh(bytes).then(|| {
            self.len.store(len + bytes, Ordering::Relaxed);
            len as u32
        })
    }

    fn has_fresh(&self, bytes: usize) -> bool {
        bytes <= self.memory.capacity() - self.len()
    }

    /// # Safety
    /// As many bytes as the row has, from `place` on, are inside the memory, and nobody else reads or writes
    /// them.
    unsafe fn write(&self, place: u32, entry: EntryRef<'_>, position: usize) {
        let to = self.memory.base().wrapping_add(place as usize);
        let head = head_of(entry, position);
        for (at, part) in
            [(0, &head[..]), (HEAD_BYTES, entry.key), (HEAD_BYTES + entry.key.len(), entry.value)]
        {
            // SAFETY: inside the row, says the caller.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to.wrapping_add(at), part.len()) };
        }
    }

    /// The row at a place.
    ///
    /// # Safety
    /// A row was written there, and is not written over as long as `self` is borrowed.
    #[inline]
    pub(super) unsafe fn entry(&self, place: u32) -> EntryRef<'_> {
        let from = self.memory.base().wrapping_add(place as usize).cast_const();
        // SAFETY: each row begins with a head.
        let head = unsafe { from.cast::<[u8; HEAD_BYTES]>().read() };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let version = u64::from(word(8)) | u64::from(word(12)) << 32;
        let (key_len, value_word) = (word(0) as usize, word(4));
        let value_from = from.wrapping_add(HEAD_BYTES + key_len);
        EntryRef {
            // SAFETY: the head says how long the key is that was written behind it.
            key: unsafe { std::slice::from_raw_parts(from.wrapping_add(HEAD_BYTES), key_len) },
            version: Version::from_u64(version),
            kind: if value_word & TOMBSTONE_BIT == 0 { Kind::Put } else { Kind::Tombstone },
            // SAFETY: and the value behind that.
            value: unsafe { std::slice::from_raw_parts(value_from, (value_word & !TOMBSTONE_BIT) as usize) },
        }
    }

    /// At which position the row at a place was when it was written.
    ///
    /// # Safety
    /// As of [`RowMemory::entry`].
    #[inline]
    pub(super) unsafe fn position(&self, place: u32) -> usize {
        let from = self.memory.base().wrapping_add(place as usize + POSITION_AT).cast_const();
        // SAFETY: a part of the row's head.
        let position = unsafe { from.cast::<[u8; 4]>().read() };
        u32::from_le_bytes(position) as usize
    }

    /// The row at a place, while nobody else has the memory.
    pub(super) fn entry_built(&mut self, place: u32) -> EntryRef<'_> {
        assert!((place as usize) < self.len(), "a place of a row");
        // SAFETY: the builder, who has all of it, has this place from `push`.
        unsafe { self.entry(place) }
    }

    /// Has the processor fetch so many bytes from a place on.
    #[inline]
    pub(super) fn fetch_ahead(&self, place: u32, bytes: usize) {
        self.memory.fetch_ahead(place as usize, place as usize + bytes);
    }

    /// Whether the next row that replaces another will probably have no room.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed) != 0
    }

    /// The same, told once.
    pub(super) fn take_shortage(&self) -> bool {
        // Two that both see it ask once too often. Only who sees it writes to the line.
        let is_short = self.is_short();
        if is_short {
            self.is_short.store(0, Ordering::Relaxed);
        }
        is_short
    }

    /// The same with where a row of so many bytes will probably be written that replaces another; false if
    /// none was yet.
    pub(super) fn fetch_free(&self, bytes: usize) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        if next > 0 {
            self.fetch_ahead(next, bytes.min(FETCHED_FREE_BYTES_MAX));
        }
        next > 0
    }
}

impl Drop for RowMemory {
    fn drop(&mut self) {
        let len = self.len();
        self.memory.give_up(len);
    }
}

/// Bytes of a row; none if no head can say how long its parts are.
fn bytes_of(entry: EntryRef<'_>) -> Option<usize> {
    let is_sayable = entry.key.len() <= u32::MAX as usize && entry.value.len() < TOMBSTONE_BIT as usize;
    is_sayable.then(|| super::row_bytes(entry))
}

fn too_long() -> Error {
    Error::new(ErrorKind::LimitReached, "a munk cannot hold 4 GiB")
}

/// What stands before a row's key.
fn head_of(entry: EntryRef<'_>, position: usize) -> [u8; HEAD_BYTES] {
    let kind_bit = match entry.kind {
        Kind::Put => 0,
        Kind::Tombstone => TOMBSTONE_BIT,
        Kind::RangeTombstone => unreachable!("range tombstones lie beside the rows, not among them"),
    };
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&(entry.key.len() as u32).to_le_bytes());
    head[4..8].copy_from_slice(&(entry.value.len() as u32 | kind_bit).to_le_bytes());
    head[8..POSITION_AT].copy_from_slice(&entry.version.to_u64().to_le_bytes());
    // There are fewer rows than bytes.
    head[POSITION_AT..].copy_from_slice(&(position as u32).to_le_bytes());
    head
}
