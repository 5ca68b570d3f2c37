//! Rows in blocks of memory; all unsafe code of the pile is here.
//!
//! ```text
//!   row     node, and behind it its first record; further records of the key lie wherever there is room
//!   node    newest record u32 | key len u32 | key | to 8
//!   record  version u64 | older record u32 | value len u28, kind 3 bits, has batch 1 bit
//!           | (batch u64 | lower record u32 | zero u32)? | value | to 8
//! ```
//!
//! A place, which is what links are made of, is 32 bits: the number of a block, and 16 bits of where in it; 0
//! is none. Blocks are filled one after the other, so what is put lies side by side. The first are small, for
//! many a pile has a few rows only; a row that is longer than a block has memory of its own, and numbers for
//! each block's length of it.
//!
//! What is always true:
//! - A [`Node`] or [`Record`] is made from a place that its own arena gave out for one, and everything it
//!   points at was written before the link it was found by (S-10). So the values of these two types are the
//!   proof that reading is sound; nobody outside this directory makes one.
//! - Bytes are given out once, to who has the arena's [`Writer`]; once a link leads to them, none but links
//!   change.
#![expect(unsafe_code, reason = "objects of variable length in raw memory")]

use std::{
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering},
};

use kvilt_base::{Kind, Version};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    ahead::{CACHE_LINE_BYTES, fetch_line},
    blocks::BLOCK_BYTES,
    memory::{ALIGNMENT, Memory},
};

/// Bytes of a node before its key.
const NODE_BYTES: usize = 8;
const KEY_LEN_AT: usize = 4;
const KEY_LEN_BITS: u32 = 24;

/// Bytes of a record before batch and value.
const RECORD_BYTES: usize = 16;
/// Offsets inside a record.
const OLDER_AT: usize = 8;
const VALUE_LEN_AT: usize = 12;
const BATCH_AT: usize = 16;
const LOWER_AT: usize = 24;
/// What a record of a batch takes more than another.
const BATCH_BYTES: usize = 16;
const VALUE_LEN_BITS: u32 = 28;
/// So much of a row is fetched ahead; its length is not known before.
const FETCHED_AHEAD_BYTES: usize = 512;
const HAS_BATCH: u32 = 1 << 31;

/// The first block; the second has four times as much, and so on up to [`BLOCK_BYTES`].
const FIRST_BLOCK_BYTES: usize = 4 << 10;
/// No row begins at place 0.
const RESERVED_BYTES: usize = ALIGNMENT;
/// Block numbers are 16 bits wide.
const BLOCKS_MAX: usize = 1 << 16;
/// More numbers than twice as many as full blocks would need: the first blocks are small.
const BLOCKS_BESIDES: usize = 6;
const CAPACITY_MAX: usize = (BLOCKS_MAX - BLOCKS_BESIDES) / 2 * BLOCK_BYTES;

const _: () = assert!(kvilt_base::limits::ENGINE_KEY_BYTES_MAX < 1 << KEY_LEN_BITS);
const _: () = assert!(kvilt_base::limits::VALUE_BYTES_MAX < 1 << VALUE_LEN_BITS);
const _: () = assert!(BLOCK_BYTES == 1 << 16 && FIRST_BLOCK_BYTES.is_multiple_of(ALIGNMENT));

pub(super) struct Arena {
    /// Where blocks begin, by their numbers. Written before any place in them is given out, and never again.
    blocks: Box<[AtomicPtr<u8>]>,
    capacity: usize,
    /// Bytes given out.
    used: AtomicUsize,
    /// Bytes of blocks.
    taken: AtomicUsize,
    /// Where the next row will lie, if it has room there. For fetching ahead only.
    next: AtomicPtr<u8>,
    filling: Mutex<Filling>,
}

/// What only who writes looks at.
struct Filling {
    /// Place of the first byte not given out, in the block that is being filled.
    next: usize,
    /// Where that block ends.
    end: usize,
    /// The number of the next block.
    block: usize,
    /// The blocks.
    memory: Vec<Memory>,
}

/// One version of a key's value, borrowed from the pile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// When it was written.
    pub version: Version,
    /// What was done.
    pub kind: Kind,
    /// The value; empty for a tombstone.
    pub value: &'a [u8],
    /// The batch it was written in, or 0.
    pub batch: u64,
}

/// What a record is made from.
pub(super) struct NewRecord<'r> {
    pub(super) version: Version,
    pub(super) kind: Kind,
    pub(super) batch: u64,
    pub(super) value: &'r [u8],
}

/// See [`super::Pile::room_for`].
pub(super) fn room_for(key_len: usize, value_len: usize) -> usize {
    node_bytes(key_len).saturating_add(record_bytes(true, value_len))
}

/// What a node takes; `usize::MAX` for a key that no node can hold.
fn node_bytes(key_len: usize) -> usize {
    if key_len >= 1 << KEY_LEN_BITS {
        return usize::MAX;
    }
    (NODE_BYTES + key_len).next_multiple_of(ALIGNMENT)
}

/// What a record takes; `usize::MAX` for a value that no record can hold.
fn record_bytes(has_batch: bool, value_len: usize) -> usize {
    if value_len >= 1 << VALUE_LEN_BITS {
        return usize::MAX;
    }
    (RECORD_BYTES + if has_batch { BATCH_BYTES } else { 0 } + value_len).next_multiple_of(ALIGNMENT)
}

impl Arena {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        assert!(bytes <= CAPACITY_MAX, "a pile holds less than two gibibytes, not {bytes} bytes");
        // Two blocks that follow each other have more in them than one could hold, so this is enough for what
        // has room.
        let count = 2 * bytes.div_ceil(BLOCK_BYTES) + BLOCKS_BESIDES;
        Arena {
            blocks: (0..count).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            capacity: bytes,
            used: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            filling: Mutex::new(Filling { next: 0, end: 0, block: 0, memory: Vec::new() }),
        }
    }

    /// Takes turns with others who write.
    pub(super) fn writer(&self) -> Writer<'_> {
        Writer { arena: self, filling: self.filling.lock() }
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Memory of blocks, in bytes.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        // Relaxed: exact for the writer; for others a moment's number anyway.
        bytes <= self.capacity.saturating_sub(self.used())
    }

    /// Has the processor fetch where the next row, of so many bytes, will be written.
    #[inline]
    pub(super) fn fetch_free(&self, bytes: usize) {
        // Relaxed: a hint.
        let next = self.next.load(Ordering::Relaxed);
        for at in (0..bytes).step_by(CACHE_LINE_BYTES) {
            fetch_line(next.wrapping_add(at));
        }
    }

    /// The node at a place.
    ///
    /// # Safety
    /// It was the [`Node::place`] of a node of this arena, and whoever wrote it down did so behind the node
    /// (S-10).
    pub(super) unsafe fn node(&self, place: u32) -> Node<'_> {
        Node { arena: self, at: place }
    }

    #[inline]
    fn address(&self, at: u32) -> *mut u8 {
        // Acquire: pairs with the store in `begin_block`. Who has the place has seen that store anyway, by
        // way of a link.
        let base = self.blocks[at as usize / BLOCK_BYTES].load(Ordering::Acquire);
        base.wrapping_add(at as usize % BLOCK_BYTES)
    }

    /// # Safety
    /// An initialised `T` lies at `at + offset` in one object, a multiple of its alignment, and is not
    /// written any more.
    #[inline]
    unsafe fn read<T: Copy>(&self, at: u32, offset: usize) -> T {
        let from = self.address(at).wrapping_add(offset).cast::<T>();
        // SAFETY: aligned and initialised, says the caller.
        unsafe { from.read() }
    }

    /// # Safety
    /// `len` bytes from `at + offset` on are inside one object, initialised, and not written any more.
    #[inline]
    unsafe fn slice(&self, at: u32, offset: usize, len: usize) -> &[u8] {
        let from = self.address(at).wrapping_add(offset);
        // SAFETY: initialised and no longer written, says the caller, and alive as long as `self`.
        unsafe { std::slice::from_raw_parts(from, len) }
    }
}

/// The right to write to an arena.
pub(super) struct Writer<'a> {
    arena: &'a Arena,
    filling: MutexGuard<'a, Filling>,
}

impl<'a> Writer<'a> {
    /// A node with its first record, which nobody sees yet. None if there is no room for it.
    pub(super) fn new_row(&mut self, key: &[u8], record: &NewRecord<'_>) -> Option<Node<'a>> {
        let node_bytes = node_bytes(key.len());
        let (at, to) =
            self.take(node_bytes.checked_add(record_bytes(record.batch != 0, record.value.len()))?)?;
        // SAFETY: behind the node's bytes; a row that has a number of its own has all of its memory there.
        let record_to = unsafe { to.add(node_bytes) };
        let newest = self.write_record((at + node_bytes as u32, record_to), record, None);
        // SAFETY: the row's memory begins here, aligned, and nobody else has it.
        unsafe { to.cast::<u32>().write(newest.at) };
        // SAFETY: inside the node.
        let key_len_to = unsafe { to.add(KEY_LEN_AT) };
        // SAFETY: as above.
        unsafe { key_len_to.cast::<u32>().write(key.len() as u32) };
        // SAFETY: inside the node, or at its end.
        let key_to = unsafe { to.add(NODE_BYTES) };
        // SAFETY: `node_bytes` counts the key, and nobody else has this memory.
        unsafe { ptr::copy_nonoverlapping(key.as_ptr(), key_to, key.len()) };
        Some(Node { arena: self.arena, at })
    }

    /// A record that nobody sees yet. None if there is no room for it.
    pub(super) fn new_record(
        &mut self,
        record: &NewRecord<'_>,
        older: Option<Record<'a>>,
    ) -> Option<Record<'a>> {
        let taken = self.take(record_bytes(record.batch != 0, record.value.len()))?;
        Some(self.write_record(taken, record, older))
    }

    /// The memory was just taken, for this record.
    fn write_record(
        &self,
        (at, to): (u32, *mut u8),
        record: &NewRecord<'_>,
        older: Option<Record<'a>>,
    ) -> Record<'a> {
        assert!(older.is_none_or(|older| ptr::eq(older.arena, self.arena)), "links stay in one arena");
        let has_batch = record.batch != 0;
        let flags = if has_batch { HAS_BATCH } else { 0 } | (record.kind as u32) << VALUE_LEN_BITS;
        // All that is written lies in what was taken, aligned, and nobody else has it.
        let write_word = |offset: usize, word: u32| {
            // SAFETY: as said.
            let to = unsafe { to.add(offset) };
            // SAFETY: as said.
            unsafe { to.cast::<u32>().write(word) };
        };
        // SAFETY: as said.
        unsafe { to.cast::<u64>().write(record.version.to_u64()) };
        write_word(OLDER_AT, older.map_or(0, |older| older.at));
        write_word(VALUE_LEN_AT, record.value.len() as u32 | flags);
        if has_batch {
            // A record with a batch has `BATCH_BYTES` more.
            // SAFETY: as said.
            let batch_to = unsafe { to.add(BATCH_AT) };
            // SAFETY: as said.
            unsafe { batch_to.cast::<u64>().write(record.batch) };
            let is_same_version = |older: &Record<'_>| older.version() == record.version;
            let lower =
                older.and_then(|older| if is_same_version(&older) { older.lower() } else { Some(older) });
            write_word(LOWER_AT, lower.map_or(0, |lower| lower.at));
        }
        // SAFETY: as said.
        let value_to = unsafe { to.add(RECORD_BYTES + if has_batch { BATCH_BYTES } else { 0 }) };
        // SAFETY: as said; `record_bytes` counts the value.
        unsafe { ptr::copy_nonoverlapping(record.value.as_ptr(), value_to, record.value.len()) };
        Record { arena: self.arena, at }
    }

    /// Gives out `bytes` (a multiple of 8), and says at which place and address they lie.
    fn take(&mut self, bytes: usize) -> Option<(u32, *mut u8)> {
        if bytes > self.filling.end - self.filling.next {
            if bytes > BLOCK_BYTES - RESERVED_BYTES {
                return self.take_alone(bytes);
            }
            self.begin_block(bytes)?;
        }
        let at = self.filling.next as u32;
        self.filling.next += bytes;
        self.count(bytes);
        let to = self.arena.address(at);
        self.arena.next.store(to.wrapping_add(bytes), Ordering::Relaxed);
        Some((at, to))
    }

    /// Memory for a row that is longer than a block.
    fn take_alone(&mut self, bytes: usize) -> Option<(u32, *mut u8)> {
        let needed = RESERVED_BYTES + bytes;
        let number = self.numbers(needed.div_ceil(BLOCK_BYTES))?;
        let mut memory = Memory::passed_on_or_abort(needed);
        // The row fills it.
        memory.give_up(needed);
        let base = self.add(number, memory);
        self.count(bytes);
        Some(((number * BLOCK_BYTES + RESERVED_BYTES) as u32, base.wrapping_add(RESERVED_BYTES)))
    }

    /// Goes on in another block, which has room for `bytes`.
    fn begin_block(&mut self, bytes: usize) -> Option<()> {
        let number = self.numbers(1)?;
        let wanted = FIRST_BLOCK_BYTES << (2 * number).min(usize::BITS as usize / 2);
        let memory = match wanted.max(bytes + RESERVED_BYTES) {
            small if small < BLOCK_BYTES => Memory::passed_on_or_abort(small),
            _ => Memory::block(),
        };
        self.filling.next = number * BLOCK_BYTES + RESERVED_BYTES;
        self.filling.end = number * BLOCK_BYTES + memory.capacity();
        self.add(number, memory);
        Some(())
    }

    /// The first of so many numbers for blocks.
    fn numbers(&mut self, count: usize) -> Option<usize> {
        let number = self.filling.block;
        if number + count > self.arena.blocks.len() {
            return None;
        }
        self.filling.block += count;
        Some(number)
    }

    fn add(&mut self, number: usize, memory: Memory) -> *mut u8 {
        let base = memory.base();
        self.arena.taken.fetch_add(memory.capacity(), Ordering::Relaxed);
        for (nth, block) in
            self.arena.blocks[number..].iter().take(memory.capacity().div_ceil(BLOCK_BYTES)).enumerate()
        {
            // Release: pairs with `address`.
            block.store(base.wrapping_add(nth * BLOCK_BYTES), Ordering::Release);
        }
        self.filling.memory.push(memory);
        base
    }

    fn count(&self, bytes: usize) {
        // Relaxed, one writer: a plain store loses nothing.
        self.arena.used.store(self.arena.used() + bytes, Ordering::Relaxed);
    }
}

/// A key's place in the pile. A handle: copying it copies no key.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    arena: &'a Arena,
    at: u32,
}

impl<'a> Node<'a> {
    /// What it is found by.
    pub(super) fn place(self) -> u32 {
        self.at
    }

    /// The key.
    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        // SAFETY: a node has this word, and is complete (S-10).
        let len: u32 = unsafe { self.arena.read(self.at, KEY_LEN_AT) };
        // SAFETY: the key lies there and is complete (S-10).
        unsafe { self.arena.slice(self.at, NODE_BYTES, len as usize) }
    }

    fn newest_link(self) -> &'a AtomicU32 {
        let link = self.arena.address(self.at);
        // SAFETY: every node begins with this link, at a multiple of 4, accessed only through here once it is
        // shared; alive as long as the arena.
        unsafe { AtomicU32::from_ptr(link.cast()) }
    }

    /// Has the processor fetch the node, and its first record, which mostly is the newest, as far as it is
    /// likely to reach.
    #[inline]
    pub(super) fn fetch_ahead(self) {
        let begin = self.arena.address(self.at);
        for at in (0..FETCHED_AHEAD_BYTES).step_by(CACHE_LINE_BYTES) {
            fetch_line(begin.wrapping_add(at));
        }
    }

    /// The key's newest record.
    #[inline]
    pub(super) fn newest(self) -> Record<'a> {
        // Acquire: pairs with `set_newest`.
        let at = self.newest_link().load(Ordering::Acquire);
        Record { arena: self.arena, at }
    }

    /// Puts `record` in front of the chain. The caller is the arena's writer.
    pub(super) fn set_newest(self, record: Record<'_>) {
        assert!(ptr::eq(record.arena, self.arena), "links stay in one arena");
        // Release: pairs with `newest`.
        self.newest_link().store(record.at, Ordering::Release);
    }
}

/// One version of a key. A handle, like [`Node`].
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    arena: &'a Arena,
    at: u32,
}

impl<'a> Record<'a> {
    pub(super) fn version(self) -> Version {
        // SAFETY: a record begins with its version and is complete (S-10).
        Version::from_u64(unsafe { self.arena.read(self.at, 0) })
    }

    /// The next record of the chain, of an older or the same version.
    pub(super) fn older(self) -> Option<Record<'a>> {
        // SAFETY: a record has this word, and is complete (S-10).
        let at: u32 = unsafe { self.arena.read(self.at, OLDER_AT) };
        (at != 0).then_some(Record { arena: self.arena, at })
    }

    /// The newest record of the chain with a lower version. For a batch's record, which may stand on others
    /// of its own version, one link passes all of these; a single put's record stands on a lower version
    /// only.
    pub(super) fn lower(self) -> Option<Record<'a>> {
        // SAFETY: a record has this word, and is complete (S-10).
        let word: u32 = unsafe { self.arena.read(self.at, VALUE_LEN_AT) };
        if word & HAS_BATCH == 0 {
            return self.older();
        }
        // SAFETY: a record with the flag has this word.
        let at: u32 = unsafe { self.arena.read(self.at, LOWER_AT) };
        (at != 0).then_some(Record { arena: self.arena, at })
    }

    pub(super) fn found(self) -> Found<'a> {
        // SAFETY: a record has this word, and is complete (S-10).
        let word: u32 = unsafe { self.arena.read(self.at, VALUE_LEN_AT) };
        let has_batch = word & HAS_BATCH != 0;
        let value_len = (word & ((1 << VALUE_LEN_BITS) - 1)) as usize;
        let kind = ((word & !HAS_BATCH) >> VALUE_LEN_BITS) as u8;
        let batch = if has_batch {
            // SAFETY: a record with the flag has its batch here, at a multiple of 8.
            unsafe { self.arena.read(self.at, BATCH_AT) }
        } else {
            0
        };
        let value_at = RECORD_BYTES + if has_batch { BATCH_BYTES } else { 0 };
        // SAFETY: the value lies here and is complete (S-10).
        let value = unsafe { self.arena.slice(self.at, value_at, value_len) };
        let kind = Kind::from_u8(kind).expect("written from a kind");
        Found { version: self.version(), kind, value, batch }
    }
}
