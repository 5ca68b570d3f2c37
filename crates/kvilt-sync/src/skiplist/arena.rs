//! Nodes and records in one piece of memory; all unsafe code of the skiplist is here.
//!
//! ```text
//!   node    key head u64 | newest record u32 | height u8, key len u24 | height × next u32 | key | to 8
//!   record  version u64 | older record u32 | value len u28, kind 3 bits, has batch 1 bit
//!           | (batch u64 | lower record u32 | zero u32)? | value | to 8
//! ```
//!
//! Links are offsets in bytes from the beginning of the memory; 0 is none. Nodes are taken from the front, records, which
//! have the values, from the back: a search touches nodes only, and those of a list lie in a few pages.
//!
//! The key head is eight bytes of the key as a big-endian number, zeros where the key is shorter: those behind a prefix
//! that most keys of the list are thought to share. A key that does not begin with it has the least head or the
//! greatest, as it comes before or behind those that do. So different heads order as their keys do, whatever the prefix,
//! and mostly save looking at the key.
//!
//! What is always true:
//! - A [`Node`] or [`Record`] is made from an offset that its own arena gave out for one, and everything it points
//!   at was written before the link it was found by (S-10). So the values of these two types are the proof that
//!   reading is sound; nobody outside this file makes one.
//! - Front and back only approach each other, under the list's writer lock; bytes outside of them that are not links
//!   never change.
#![expect(unsafe_code, reason = "objects of variable length in raw memory")]

use std::{
    cmp::Ordering as Order,
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use kvilt_base::{Kind, Version};

use crate::memory::{ALIGNMENT, Memory};

/// Levels of the highest tower: with one node in four a level up, enough for 4^12 = 16 million keys.
pub(super) const HEIGHT_MAX: usize = 12;

/// Bytes of a node before its tower.
const NODE_BYTES: usize = 16;
/// Offsets inside a node.
const NEWEST_AT: usize = 8;
const KEY_LEN_AT: usize = 12;
const TOWER_AT: usize = 16;
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
/// So much of a record is fetched ahead; its length is not known before.
const FETCHED_AHEAD_BYTES: usize = 512;
const HAS_BATCH: u32 = 1 << 31;

/// The head node stands at the first offset that is not "none".
const HEAD_AT: u32 = ALIGNMENT as u32;
/// Bytes taken before the first insert.
const RESERVED_BYTES: usize = HEAD_AT as usize + NODE_BYTES + 4 * HEIGHT_MAX;

/// An arena is full with at most this part of it free.
const FREE_PART: usize = 16;

/// Offsets are 32 bits wide.
const CAPACITY_MAX: usize = (u32::MAX as usize & !(ALIGNMENT - 1)) - RESERVED_BYTES;

const _: () = assert!(kvilt_base::limits::ENGINE_KEY_BYTES_MAX < 1 << KEY_LEN_BITS);
const _: () = assert!(kvilt_base::limits::VALUE_BYTES_MAX < 1 << VALUE_LEN_BITS);
const _: () = assert!(RESERVED_BYTES.is_multiple_of(ALIGNMENT) && HEIGHT_MAX < 256);

pub(super) struct Arena {
    memory: Memory,
    /// No two arenas of this process ever share a number.
    number: u64,
    /// What keys are thought to begin with.
    prefix: Box<[u8]>,
    /// Where the bytes that nobody has taken begin, and in the upper half where they end; multiples of 8. Written under
    /// the list's writer lock only.
    free: AtomicU64,
    /// Levels that any tower reaches; readers begin at the top one.
    levels: AtomicUsize,
    records: AtomicUsize,
}

/// One version of a key's value, borrowed from the list.
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

impl NewRecord<'_> {
    /// What it takes, or more than there can be.
    pub(super) fn bytes(&self) -> usize {
        record_bytes(self.batch != 0, self.value.len())
    }
}

/// See [`super::Skiplist::room_for`].
pub(super) fn room_for(key_len: usize, value_len: usize) -> usize {
    node_bytes(HEIGHT_MAX, key_len).saturating_add(record_bytes(true, value_len))
}

/// What a node takes; `usize::MAX` for a key that no node can hold.
pub(super) fn node_bytes(height: usize, key_len: usize) -> usize {
    if key_len >= 1 << KEY_LEN_BITS {
        return usize::MAX;
    }
    (NODE_BYTES + 4 * height + key_len).next_multiple_of(ALIGNMENT)
}

/// What a record takes; `usize::MAX` for a value that no record can hold.
fn record_bytes(has_batch: bool, value_len: usize) -> usize {
    if value_len >= 1 << VALUE_LEN_BITS {
        return usize::MAX;
    }
    (RECORD_BYTES + if has_batch { BATCH_BYTES } else { 0 } + value_len).next_multiple_of(ALIGNMENT)
}

/// The first eight bytes as a number that orders like them.
fn head_of(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    head[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(head)
}

/// Where what is free begins and ends.
fn ends(free: u64) -> (usize, usize) {
    (free as u32 as usize, (free >> 32) as usize)
}

impl Arena {
    pub(super) fn with_capacity(bytes: usize, prefix: &[u8]) -> Self {
        assert!(bytes <= CAPACITY_MAX, "a skiplist holds less than 4 GiB, not {bytes} bytes");
        let capacity = (bytes + RESERVED_BYTES).next_multiple_of(ALIGNMENT);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let arena = Arena {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            memory: Memory::zeroed_or_abort(capacity),
            prefix: prefix.into(),
            free: AtomicU64::new(RESERVED_BYTES as u64 | (capacity as u64) << 32),
            levels: AtomicUsize::new(1),
            records: AtomicUsize::new(0),
        };
        // The rest of the head node (no links, no key) is zero as it is.
        let height = (HEIGHT_MAX as u32) << KEY_LEN_BITS;
        // SAFETY: the head node lies in the reserved bytes, and nobody else has the arena yet.
        unsafe { arena.write(HEAD_AT as usize + KEY_LEN_AT, height) };
        arena
    }

    pub(super) fn head(&self) -> Node<'_> {
        Node { arena: self, at: HEAD_AT }
    }

    pub(super) fn levels(&self) -> usize {
        // Relaxed: a reader that begins too low only walks longer; one that begins too high finds no links.
        self.levels.load(Ordering::Relaxed)
    }

    /// The head of `key` in this list.
    #[inline]
    pub(super) fn key_head(&self, key: &[u8]) -> u64 {
        match key.strip_prefix(&*self.prefix) {
            Some(rest) => head_of(rest),
            None if *key < *self.prefix => 0,
            None => u64::MAX,
        }
    }

    pub(super) fn used(&self) -> usize {
        self.memory.capacity() - self.remaining() - RESERVED_BYTES
    }

    pub(super) fn remaining(&self) -> usize {
        // Relaxed: exact for the writer; for others a moment's number anyway.
        let (front, back) = ends(self.free.load(Ordering::Relaxed));
        back - front
    }

    /// Has the processor fetch where the next node and a record of so many bytes will be written.
    #[inline]
    pub(super) fn fetch_free(&self, record_bytes: usize) {
        // Relaxed: a hint.
        let (front, back) = ends(self.free.load(Ordering::Relaxed));
        self.memory.fetch_ahead(front, front + 1);
        self.memory.fetch_ahead(back.saturating_sub(record_bytes), back);
    }

    pub(super) fn records(&self) -> usize {
        self.records.load(Ordering::Relaxed)
    }

    /// Under the writer lock.
    pub(super) fn count_record(&self) {
        self.records.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes `bytes` (a multiple of 8) from the front.
    fn take_front(&self, bytes: usize) -> u32 {
        let free = self.take(bytes, bytes as u64);
        ends(free).0 as u32
    }

    /// Takes `bytes` (a multiple of 8) from the back.
    fn take_back(&self, bytes: usize) -> u32 {
        // Nothing is borrowed from the lower half: there are so many bytes left.
        let free = self.take(bytes, ((bytes as u64) << 32).wrapping_neg());
        (ends(free).1 - bytes) as u32
    }

    /// Adds to what is free, and says what that was. The exchange gives every caller bytes of its own, even without the
    /// writer lock.
    fn take(&self, bytes: usize, change: u64) -> u64 {
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
            let (front, back) = ends(free);
            (bytes <= back - front).then(|| free.wrapping_add(change))
        });
        taken.expect("the caller has asked for room")
    }

    /// A record that nobody sees yet. The caller holds the writer lock and has checked the room.
    pub(super) fn new_record<'a>(&'a self, record: &NewRecord<'_>, older: Option<Record<'a>>) -> Record<'a> {
        assert!(older.is_none_or(|older| std::ptr::eq(older.arena, self)), "links stay in one arena");
        let taken = self.take_back(record.bytes());
        let at = taken as usize;
        let has_batch = record.batch != 0;
        let flags = if has_batch { HAS_BATCH } else { 0 } | (record.kind as u32) << VALUE_LEN_BITS;
        // All writes below lie in the bytes just taken, which nobody else has.
        // SAFETY: as said.
        unsafe { self.write(at, record.version.to_u64()) };
        // SAFETY: as said.
        unsafe { self.write(at + OLDER_AT, older.map_or(0, |older| older.at)) };
        // SAFETY: as said.
        unsafe { self.write(at + VALUE_LEN_AT, record.value.len() as u32 | flags) };
        if has_batch {
            // SAFETY: as said; a record with a batch has `BATCH_BYTES` more.
            unsafe { self.write(at + BATCH_AT, record.batch) };
            let is_same_version = |older: &Record<'_>| older.version() == record.version;
            let lower =
                older.and_then(|older| if is_same_version(&older) { older.lower() } else { Some(older) });
            // SAFETY: as said.
            unsafe { self.write(at + LOWER_AT, lower.map_or(0, |lower| lower.at)) };
        }
        let value_at = at + RECORD_BYTES + if has_batch { BATCH_BYTES } else { 0 };
        // SAFETY: as said; `record.bytes()` counts the value.
        unsafe { self.write_bytes(value_at, record.value) };
        Record { arena: self, at: taken }
    }

    /// A node that nobody sees yet. The caller holds the writer lock and has checked the room.
    pub(super) fn new_node(&self, key: &[u8], height: usize, newest: Record<'_>) -> Node<'_> {
        assert!(std::ptr::eq(newest.arena, self), "links stay in one arena");
        assert!((1..=HEIGHT_MAX).contains(&height), "a tower of height {height}");
        let taken = self.take_front(node_bytes(height, key.len()));
        let at = taken as usize;
        // All writes below lie in the bytes just taken, which nobody else has. The tower is zero as it is.
        // SAFETY: as said.
        unsafe { self.write(at, self.key_head(key)) };
        // SAFETY: as said.
        unsafe { self.write(at + NEWEST_AT, newest.at) };
        // SAFETY: as said.
        unsafe { self.write(at + KEY_LEN_AT, key.len() as u32 | (height as u32) << KEY_LEN_BITS) };
        // SAFETY: as said; `node_bytes` counts tower and key.
        unsafe { self.write_bytes(at + TOWER_AT + 4 * height, key) };
        self.levels.fetch_max(height, Ordering::Relaxed);
        Node { arena: self, at: taken }
    }

    /// # Safety
    /// `at` is a multiple of `T`'s alignment, `at + size_of::<T>()` is inside the memory, and nobody else reads or
    /// writes these bytes.
    unsafe fn write<T: Copy>(&self, at: usize, value: T) {
        // SAFETY: inside the memory, says the caller.
        let to = unsafe { self.memory.base().add(at) };
        // SAFETY: aligned, because the base is aligned to 8 and `at` to `T`; ours alone, says the caller.
        unsafe { to.cast::<T>().write(value) };
    }

    /// # Safety
    /// `at + bytes.len()` is inside the memory, and nobody else reads or writes these bytes.
    unsafe fn write_bytes(&self, at: usize, bytes: &[u8]) {
        // SAFETY: inside the memory, says the caller.
        let to = unsafe { self.memory.base().add(at) };
        // SAFETY: as the caller says; `bytes` cannot overlap what nobody else has.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// # Safety
    /// An initialised `T` lies at `at`, a multiple of its alignment, and is not written any more.
    unsafe fn read<T: Copy>(&self, at: usize) -> T {
        // SAFETY: inside the memory, says the caller.
        let from = unsafe { self.memory.base().add(at) };
        // SAFETY: aligned and initialised, says the caller.
        unsafe { from.cast::<T>().read() }
    }

    /// # Safety
    /// `len` bytes from `at` on are inside the memory and are not written any more.
    unsafe fn slice(&self, at: usize, len: usize) -> &[u8] {
        // SAFETY: inside the memory, says the caller.
        let from = unsafe { self.memory.base().add(at) };
        // SAFETY: initialised (the memory begins zeroed), no longer written, and alive as long as `self`.
        unsafe { std::slice::from_raw_parts(from, len) }
    }

    /// # Safety
    /// `at` is a multiple of 4 and the place of a link, which nobody accesses otherwise once it is shared.
    unsafe fn link(&self, at: usize) -> &AtomicU32 {
        // SAFETY: inside the memory, says the caller.
        let link = unsafe { self.memory.base().add(at) };
        // SAFETY: aligned, alive as long as `self`, and only accessed as an atomic.
        unsafe { AtomicU32::from_ptr(link.cast()) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let capacity = self.memory.capacity();
        // In the middle may be pages that were not touched: too few to matter, if it is nearly full.
        let is_full = self.remaining() <= capacity / FREE_PART;
        self.memory.give_up(if is_full { capacity } else { 0 });
    }
}

/// The last node before some place, on every level, kept between inserts. It means nothing to another arena.
pub(super) struct Splice {
    /// The arena that the offsets belong to.
    arena: u64,
    before: [u32; HEIGHT_MAX],
}

impl Splice {
    pub(super) fn new(before: &[Node<'_>; HEIGHT_MAX]) -> Self {
        let arena = before[0].arena;
        assert!(before.iter().all(|node| std::ptr::eq(node.arena, arena)), "nodes of one arena");
        Splice { arena: arena.number, before: before.map(|node| node.at) }
    }

    pub(super) fn nodes<'a>(&self, arena: &'a Arena) -> [Node<'a>; HEIGHT_MAX] {
        // The offsets were those of nodes, and nodes of an arena stay as long as its memory.
        assert!(self.arena == arena.number, "a splice of this arena");
        self.before.map(|at| Node { arena, at })
    }
}

/// A key's place in the list. A handle: copying it copies no key.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    arena: &'a Arena,
    at: u32,
}

impl PartialEq for Node<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at && std::ptr::eq(self.arena, other.arena)
    }
}

impl<'a> Node<'a> {
    fn head(self) -> u64 {
        // SAFETY: a node begins with its key head and is complete (S-10).
        unsafe { self.arena.read(self.at as usize) }
    }

    fn height_and_key_len(self) -> (usize, usize) {
        // SAFETY: a node has this word, and is complete (S-10).
        let word: u32 = unsafe { self.arena.read(self.at as usize + KEY_LEN_AT) };
        ((word >> KEY_LEN_BITS) as usize, (word & ((1 << KEY_LEN_BITS) - 1)) as usize)
    }

    /// The key; empty for the head of the list, which has none.
    pub(super) fn key(self) -> &'a [u8] {
        let (height, len) = self.height_and_key_len();
        // SAFETY: the key lies behind the tower and is complete (S-10).
        unsafe { self.arena.slice(self.at as usize + TOWER_AT + 4 * height, len) }
    }

    /// How the node's key stands to `key`, whose head is `head`.
    #[inline]
    pub(super) fn compare(self, key: &[u8], head: u64) -> Order {
        self.head().cmp(&head).then_with(|| self.key().cmp(key))
    }

    fn tower(self, level: usize) -> &'a AtomicU32 {
        assert!(level < self.height_and_key_len().0, "no level {level} in this tower");
        // SAFETY: below the height there is a link, at a multiple of 4, accessed only through here.
        unsafe { self.arena.link(self.at as usize + TOWER_AT + 4 * level) }
    }

    fn newest_link(self) -> &'a AtomicU32 {
        // SAFETY: every node has this link, at a multiple of 4, accessed only through here once it is shared.
        unsafe { self.arena.link(self.at as usize + NEWEST_AT) }
    }

    /// The following node on `level`. Panics if the node does not reach that level.
    #[inline]
    pub(super) fn next(self, level: usize) -> Option<Node<'a>> {
        // Acquire: pairs with `link`, so that the node is complete for us (S-10).
        let at = self.tower(level).load(Ordering::Acquire);
        (at != 0).then_some(Node { arena: self.arena, at })
    }

    /// Has the processor fetch the beginning of the node.
    #[inline]
    pub(super) fn fetch_ahead(self) {
        self.arena.memory.fetch_ahead(self.at as usize, self.at as usize + 1);
    }

    /// Links `new` in behind this node on `level`. The caller holds the writer lock.
    pub(super) fn link(self, level: usize, new: Node<'_>) {
        assert!(std::ptr::eq(new.arena, self.arena), "links stay in one arena");
        let before = self.tower(level);
        // Relaxed: the link was stored by a writer, and the writer lock orders us behind it.
        let next = before.load(Ordering::Relaxed);
        // Relaxed: seen with the node, by the store below.
        new.tower(level).store(next, Ordering::Relaxed);
        // Release: pairs with `next`.
        before.store(new.at, Ordering::Release);
    }

    /// The key's newest record. The head of the list has none, and must not be asked.
    #[inline]
    pub(super) fn newest(self) -> Record<'a> {
        // Acquire: pairs with `set_newest`.
        let at = self.newest_link().load(Ordering::Acquire);
        assert!(at != 0, "every key has a record");
        Record { arena: self.arena, at }
    }

    /// Puts `record` in front of the chain. The caller holds the writer lock.
    pub(super) fn set_newest(self, record: Record<'_>) {
        assert!(std::ptr::eq(record.arena, self.arena), "links stay in one arena");
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
        Version::from_u64(unsafe { self.arena.read(self.at as usize) })
    }

    /// Has the processor fetch the record, as far as it is likely to reach.
    #[inline]
    pub(super) fn fetch_ahead(self) {
        self.arena.memory.fetch_ahead(self.at as usize, self.at as usize + FETCHED_AHEAD_BYTES);
    }

    /// The next record of the chain, of an older or the same version.
    pub(super) fn older(self) -> Option<Record<'a>> {
        // SAFETY: a record has this word, and is complete (S-10).
        let at: u32 = unsafe { self.arena.read(self.at as usize + OLDER_AT) };
        (at != 0).then_some(Record { arena: self.arena, at })
    }

    /// The newest record of the chain with a lower version. For a batch's record, which may stand on others of
    /// its own version, one link passes all of these; a single put's record stands on a lower version only.
    pub(super) fn lower(self) -> Option<Record<'a>> {
        // SAFETY: a record has this word, and is complete (S-10).
        let word: u32 = unsafe { self.arena.read(self.at as usize + VALUE_LEN_AT) };
        if word & HAS_BATCH == 0 {
            return self.older();
        }
        // SAFETY: a record with the flag has this word.
        let at: u32 = unsafe { self.arena.read(self.at as usize + LOWER_AT) };
        (at != 0).then_some(Record { arena: self.arena, at })
    }

    pub(super) fn found(self) -> Found<'a> {
        let at = self.at as usize;
        // SAFETY: a record has this word, and is complete (S-10).
        let word: u32 = unsafe { self.arena.read(at + VALUE_LEN_AT) };
        let has_batch = word & HAS_BATCH != 0;
        let value_len = (word & ((1 << VALUE_LEN_BITS) - 1)) as usize;
        let kind = ((word & !HAS_BATCH) >> VALUE_LEN_BITS) as u8;
        let batch = if has_batch {
            // SAFETY: a record with the flag has its batch here.
            unsafe { self.arena.read(at + BATCH_AT) }
        } else {
            0
        };
        let value_at = at + RECORD_BYTES + if has_batch { BATCH_BYTES } else { 0 };
        // SAFETY: the value lies here and is complete (S-10).
        let value = unsafe { self.arena.slice(value_at, value_len) };
        let kind = Kind::from_u8(kind).expect("written from a kind");
        Found { version: self.version(), kind, value, batch }
    }
}
