//! Nodes and records in one reserved mapping; all unsafe code of the table is here or rests on what this
//! file says.
//!
//! ```text
//!   node    newest record u32 | state u32 | link back u32 | key length 24 bits, height 8 bits
//!           | link of each level u32 … | key | to 8
//!   record  version u64 | older record u32 | value length 28 bits, kind 3 bits, has batch 1 bit
//!           | (batch u64)? | value | to 8
//! ```
//!
//! A place, of which links are made, is 32 bits: an offset in units of 8 bytes. 0 is none, for the first unit
//! is nobody's; in links of the list it is the end, or the list's beginning.
//!
//! What is always true:
//! - A [`Node`] or [`Record`] is made from a place that its own arena gave out for one, and was written
//!   before the link that led to it (T-1). So a value of these types is the proof that reading is sound.
//! - A [`Span`] is memory that one owner has; it is made by the arena, cut in two, or made of a record that
//!   went, and used in the table whose arena it came from.
//! - Of a node and a record that others see only the words change that are read by [`Arena::word`].
#![expect(unsafe_code, reason = "objects of variable length in raw memory")]

use std::{io, ptr};

use kvilt_base::{Kind, Version};

use crate::{
    ahead::{CACHE_LINE_BYTES, fetch_line},
    memory::{ALIGNMENT, Memory},
    pile::Found,
    shim::{AtomicU32, AtomicU64, Ordering},
};

/// Bytes of a unit.
pub(super) const UNIT_BYTES: usize = ALIGNMENT;
/// A arena of less has small pages: those that it has begun are a small part of it then, too.
const LARGE_PAGES_FROM_BYTES: usize = 64 << 20;
/// Lines of a node in which a search looks at most, if its key is short.
const SEARCHED_LINES: usize = 2;
/// Lines of a row that are fetched ahead; its length is not known before.
const FETCHED_LINES: usize = 3;
/// Most bytes of an arena: what 32 bits of units reach.
pub(super) const ARENA_BYTES_MAX: usize = (u32::MAX as usize) * UNIT_BYTES;

/// Words of a node, from its beginning on.
const NEWEST_WORD: usize = 0;
const STATE_WORD: usize = 1;
const BACK_WORD: usize = 2;
const LEVELS_WORD: usize = 4;
const NODE_SHAPE_AT: usize = 12;
const KEY_LEN_BITS: u32 = 24;
const WORD_BYTES: usize = size_of::<u32>();

/// Of a record.
const RECORD_BYTES: usize = 16;
const OLDER_WORD: usize = 2;
const RECORD_SHAPE_AT: usize = 12;
const BATCH_AT: usize = 16;
const BATCH_BYTES: usize = 8;
const VALUE_LEN_BITS: u32 = 28;
const KIND_BITS: u32 = 3;
const HAS_BATCH: u32 = 1 << 31;
/// Lengths of records between one power of two and the next, at most.
const CLASSES_A_DOUBLING: u32 = 32;

/// Set in a node's state while a writer of its key is at work.
const BUSY: u32 = 1;
/// Set in a node's state once the node is in the list.
const LINKED: u32 = 2;

/// A link of a node that is not in the list: no place, for an arena has fewer units.
pub(super) const UNSET: u32 = u32::MAX;
/// What free memory is filled with in builds with debug assertions: neither a kind nor a place.
const POISON: u8 = 0xdb;

const _: () = assert!(kvilt_base::limits::ENGINE_KEY_BYTES_MAX < 1 << KEY_LEN_BITS);
const _: () = assert!(kvilt_base::limits::VALUE_BYTES_MAX < 1 << VALUE_LEN_BITS);

pub(super) struct Arena {
    memory: Memory,
    units: u32,
    /// The first unit that was not given out.
    next: AtomicU64,
    /// Under an explorer the words that change lie here, where it sees them.
    #[cfg(any(loom, shuttle))]
    words: Box<[AtomicU32]>,
}

/// Memory of one owner.
#[derive(Debug)]
pub(super) struct Span {
    at: u32,
    units: u32,
}

/// What a record is made from.
#[derive(Clone, Copy)]
pub(super) struct NewRecord<'r> {
    pub(super) version: Version,
    pub(super) kind: Kind,
    pub(super) batch: u64,
    pub(super) value: &'r [u8],
}

/// Units of a node; none if no node has such a key.
pub(super) fn node_units(key_len: usize, height: usize) -> Option<u32> {
    let is_short = key_len < 1 << KEY_LEN_BITS;
    is_short.then(|| (key_at(height) + key_len).div_ceil(UNIT_BYTES) as u32)
}

/// Units of a record; none if no record has such a value. Long ones come in classes of length, a 32nd apart
/// or less, so that the room of one is that of another.
pub(super) fn record_units(has_batch: bool, value_len: usize) -> Option<u32> {
    let is_short = value_len < 1 << VALUE_LEN_BITS;
    is_short.then(|| {
        let units = (value_at(has_batch) + value_len).div_ceil(UNIT_BYTES) as u32;
        units.next_multiple_of((units.next_power_of_two() / CLASSES_A_DOUBLING).max(1))
    })
}

fn key_at(height: usize) -> usize {
    (LEVELS_WORD + height) * WORD_BYTES
}

fn value_at(has_batch: bool) -> usize {
    RECORD_BYTES + if has_batch { BATCH_BYTES } else { 0 }
}

impl Span {
    pub(super) fn units(&self) -> u32 {
        self.units
    }

    /// Its first units; what is behind them, if anything, is a span of its own.
    pub(super) fn cut(self, units: u32) -> (Span, Option<Span>) {
        assert!(units <= self.units, "a span of {} units has no {units}", self.units);
        let rest = Span { at: self.at + units, units: self.units - units };
        (Span { at: self.at, units }, (rest.units > 0).then_some(rest))
    }
}

impl Span {
    /// As few spans as the same memory can be.
    pub(super) fn join(mut spans: Vec<Span>) -> Vec<Span> {
        spans.sort_unstable_by_key(|span| span.at);
        let mut joined: Vec<Span> = Vec::new();
        for span in spans {
            match joined.last_mut() {
                Some(last) if last.at + last.units == span.at => last.units += span.units,
                _ => joined.push(span),
            }
        }
        joined
    }
}

impl Arena {
    /// Memory is taken as it is written.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.clamp(2 * UNIT_BYTES, ARENA_BYTES_MAX - UNIT_BYTES);
        let units = (bytes / UNIT_BYTES) as u32;
        let memory = Memory::passed_on(units as usize * UNIT_BYTES, bytes)?;
        if bytes >= LARGE_PAGES_FROM_BYTES {
            memory.wish_for_large_pages();
        }
        Ok(Arena {
            memory,
            units,
            next: AtomicU64::new(1),
            #[cfg(any(loom, shuttle))]
            words: (0..units as usize * (UNIT_BYTES / WORD_BYTES)).map(|_| AtomicU32::new(0)).collect(),
        })
    }

    pub(super) fn units(&self) -> u32 {
        self.units
    }

    /// Units that were given out.
    pub(super) fn given_out(&self) -> u32 {
        // Relaxed: a count.
        self.next.load(Ordering::Relaxed) as u32
    }

    /// Memory that nobody had, `least` units at least and `most` at most.
    pub(super) fn take(&self, least: u32, most: u32) -> Option<Span> {
        // Relaxed, all: the count says whose memory it is; nothing is read there that another wrote.
        let mut at = self.next.load(Ordering::Relaxed);
        loop {
            let left = u64::from(self.units) - at;
            if left < u64::from(least) {
                return None;
            }
            let units = left.min(u64::from(most.max(least)));
            match self.next.compare_exchange(at, at + units, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Span { at: at as u32, units: units as u32 }),
                Err(other) => at = other,
            }
        }
    }

    /// Has the processor fetch what a search looks at of a node.
    #[inline]
    pub(super) fn fetch_node(&self, at: u32) {
        self.fetch_lines(at, SEARCHED_LINES);
    }

    /// Has the processor fetch a node with what lies behind it, which mostly is its newest record.
    #[inline]
    pub(super) fn fetch_row(&self, at: u32) {
        self.fetch_lines(at, FETCHED_LINES);
    }

    /// Has the processor fetch the head of a node, or of a record.
    #[inline]
    pub(super) fn fetch_head(&self, at: u32) {
        self.fetch_lines(at, 1);
    }

    #[inline]
    fn fetch_lines(&self, at: u32, lines: usize) {
        let begin = self.address(at);
        (0..lines).for_each(|line| fetch_line(begin.wrapping_add(line * CACHE_LINE_BYTES)));
    }

    /// Fills free memory with what no reader takes for a row.
    pub(super) fn poison(&self, span: &Span) {
        // SAFETY: the span's owner has these bytes alone, and they are inside the memory.
        unsafe { self.address(span.at).write_bytes(POISON, span.units as usize * UNIT_BYTES) };
    }

    /// The node at a place.
    ///
    /// # Safety
    /// It was the [`Node::place`] of a node of this arena, and came here by a link that was stored (Release)
    /// behind the node and loaded (Acquire), or by a lock (T-1).
    #[inline]
    pub(super) unsafe fn node(&self, at: u32) -> Node<'_> {
        Node { arena: self, at }
    }

    /// Writes a node with its first record, as long as the span. A writer is at work at it: its maker.
    pub(super) fn new_row(&self, span: Span, key: &[u8], height: usize, record: NewRecord<'_>) -> Node<'_> {
        let node_units = node_units(key.len(), height).expect("a node with this key has room in the span");
        let (node_span, record_span) = span.cut(node_units);
        let record = self.new_record(record_span.expect("there is room for a record"), record);
        let at = node_span.at;
        self.begin_word(at, NEWEST_WORD, record.at);
        self.begin_word(at, STATE_WORD, BUSY);
        self.begin_word(at, BACK_WORD, 0);
        for level in 0..height {
            self.begin_word(at, LEVELS_WORD + level, UNSET);
        }
        self.write(at, NODE_SHAPE_AT, &((height as u32) << KEY_LEN_BITS | key.len() as u32).to_ne_bytes());
        self.write(at, key_at(height), key);
        Node { arena: self, at }
    }

    /// Writes a record that leads to none, as long as the span.
    pub(super) fn new_record(&self, span: Span, record: NewRecord<'_>) -> Record<'_> {
        let has_batch = record.batch != 0;
        let units = record_units(has_batch, record.value.len());
        assert_eq!(units, Some(span.units), "a span of {} units is for another record", span.units);
        let at = span.at;
        let mut shape = record.value.len() as u32 | (record.kind as u32) << VALUE_LEN_BITS;
        if has_batch {
            shape |= HAS_BATCH;
            self.write(at, BATCH_AT, &record.batch.to_ne_bytes());
        }
        self.write(at, 0, &record.version.to_u64().to_ne_bytes());
        self.begin_word(at, OLDER_WORD, 0);
        self.write(at, RECORD_SHAPE_AT, &shape.to_ne_bytes());
        self.write(at, value_at(has_batch), record.value);
        Record { arena: self, at }
    }

    #[inline]
    fn address(&self, at: u32) -> *mut u8 {
        self.memory.base().wrapping_add(at as usize * UNIT_BYTES)
    }

    /// Only for what the two functions above write, inside spans of theirs.
    fn write(&self, at: u32, offset: usize, bytes: &[u8]) {
        let to = self.address(at).wrapping_add(offset);
        // SAFETY: inside a span that the caller owns and whose length it has compared with the object's;
        // nobody else has these bytes, so `bytes` are others.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// The first value of a word that others will change.
    fn begin_word(&self, at: u32, word: usize, value: u32) {
        self.write(at, word * WORD_BYTES, &value.to_ne_bytes());
        #[cfg(any(loom, shuttle))]
        // Relaxed: as the write, it is published with the object.
        self.word(at, word).store(value, Ordering::Relaxed);
    }

    /// A word that changes while others see the object: one that was begun.
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    fn word(&self, at: u32, word: usize) -> &AtomicU32 {
        let address = self.address(at).wrapping_add(word * WORD_BYTES).cast();
        // SAFETY: inside an object, a multiple of 4, begun before the object was published, and accessed
        // through here only until the object's memory is a span again; alive as long as `self`.
        unsafe { AtomicU32::from_ptr(address) }
    }

    #[cfg(any(loom, shuttle))]
    fn word(&self, at: u32, word: usize) -> &AtomicU32 {
        &self.words[at as usize * (UNIT_BYTES / WORD_BYTES) + word]
    }

    /// # Safety
    /// A `T` lies at `offset` in an object at `at`, a multiple of its alignment, is initialised, and does not
    /// change.
    #[inline]
    unsafe fn read<T: Copy>(&self, at: u32, offset: usize) -> T {
        let from = self.address(at).wrapping_add(offset).cast::<T>();
        // SAFETY: aligned and initialised, says the caller.
        unsafe { from.read() }
    }

    /// # Safety
    /// `len` bytes from `offset` on lie in an object at `at`, are initialised, and do not change.
    #[inline]
    unsafe fn slice(&self, at: u32, offset: usize, len: usize) -> &[u8] {
        let from = self.address(at).wrapping_add(offset);
        // SAFETY: initialised and no longer written, says the caller, and alive as long as `self`.
        unsafe { std::slice::from_raw_parts(from, len) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let written = self.given_out() as usize * UNIT_BYTES;
        self.memory.give_up(written);
    }
}

/// A key's place in the table. A handle: copying it copies no key.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    arena: &'a Arena,
    at: u32,
}

impl<'a> Node<'a> {
    /// What links and slots say of it.
    #[inline]
    pub(super) fn place(self) -> u32 {
        self.at
    }

    fn shape(self) -> u32 {
        // SAFETY: a node has this word, and is whole (T-1).
        unsafe { self.arena.read(self.at, NODE_SHAPE_AT) }
    }

    /// The levels of the list that it is in.
    pub(super) fn height(self) -> usize {
        (self.shape() >> KEY_LEN_BITS) as usize
    }

    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        let shape = self.shape();
        let (len, height) = (shape & ((1 << KEY_LEN_BITS) - 1), shape >> KEY_LEN_BITS);
        // SAFETY: the key lies there and is whole (T-1).
        unsafe { self.arena.slice(self.at, key_at(height as usize), len as usize) }
    }

    /// The link of a level: a place, 0 at the end, or [`UNSET`].
    #[inline]
    pub(super) fn link(self, level: usize) -> &'a AtomicU32 {
        assert!(level < self.height(), "a node of height {} has no level {level}", self.height());
        self.arena.word(self.at, LEVELS_WORD + level)
    }

    /// Some node before it, or 0 for the beginning of the list.
    pub(super) fn back(self) -> &'a AtomicU32 {
        self.arena.word(self.at, BACK_WORD)
    }

    /// Whether it is in the list at level 0.
    pub(super) fn is_linked(self) -> bool {
        // Acquire: pairs with `set_linked`, so that its links are seen.
        self.arena.word(self.at, STATE_WORD).load(Ordering::Acquire) & LINKED != 0
    }

    pub(super) fn set_linked(self) {
        // Release: pairs with `is_linked`.
        self.arena.word(self.at, STATE_WORD).fetch_or(LINKED, Ordering::Release);
    }

    /// Its memory, with that of the record behind it: `units` in all.
    ///
    /// # Safety
    /// It was made with a span of as many units, no link leads to it, and this is called once.
    pub(super) unsafe fn into_span(self, units: u32) -> Span {
        Span { at: self.at, units }
    }

    /// Begins a write of its key, if nobody writes it.
    pub(super) fn begin_write(self) -> bool {
        // Acquire: pairs with `end_write`; what the writer before did to the records is seen.
        self.arena.word(self.at, STATE_WORD).fetch_or(BUSY, Ordering::Acquire) & BUSY == 0
    }

    pub(super) fn end_write(self) {
        // Release: pairs with `begin_write`.
        self.arena.word(self.at, STATE_WORD).fetch_and(!BUSY, Ordering::Release);
    }

    #[inline]
    pub(super) fn newest(self) -> Record<'a> {
        // Acquire: pairs with `set_newest`, or with the slot or link that led to the node.
        let at = self.arena.word(self.at, NEWEST_WORD).load(Ordering::Acquire);
        Record { arena: self.arena, at }
    }

    /// The caller writes this key.
    pub(super) fn set_newest(self, record: Record<'a>) {
        assert!(ptr::eq(record.arena, self.arena), "links stay in one arena");
        // Release: pairs with `newest`.
        self.arena.word(self.at, NEWEST_WORD).store(record.at, Ordering::Release);
    }
}

/// One version of a key. A handle, like [`Node`].
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    arena: &'a Arena,
    at: u32,
}

impl<'a> Record<'a> {
    /// What tells it from others of its arena.
    pub(super) fn place(self) -> u32 {
        self.at
    }

    #[inline]
    pub(super) fn version(self) -> Version {
        // SAFETY: a record begins with its version and is whole (T-1).
        Version::from_u64(unsafe { self.arena.read(self.at, 0) })
    }

    fn shape(self) -> u32 {
        // SAFETY: a record has this word, and is whole (T-1).
        unsafe { self.arena.read(self.at, RECORD_SHAPE_AT) }
    }

    #[inline]
    pub(super) fn batch(self) -> u64 {
        if self.shape() & HAS_BATCH == 0 {
            return 0;
        }
        // SAFETY: a record with the flag has its batch here, at a multiple of 8.
        unsafe { self.arena.read(self.at, BATCH_AT) }
    }

    /// The next older record of its key.
    #[inline]
    pub(super) fn older(self) -> Option<Record<'a>> {
        // Acquire: pairs with `set_older`.
        let at = self.arena.word(self.at, OLDER_WORD).load(Ordering::Acquire);
        (at != 0).then_some(Record { arena: self.arena, at })
    }

    /// The caller writes its key, or nobody sees it yet.
    pub(super) fn set_older(self, older: Option<Record<'a>>) {
        assert!(older.is_none_or(|older| ptr::eq(older.arena, self.arena)), "links stay in one arena");
        // Release: pairs with `older`.
        self.arena.word(self.at, OLDER_WORD).store(older.map_or(0, |older| older.at), Ordering::Release);
    }

    #[inline]
    pub(super) fn found(self) -> Found<'a> {
        let shape = self.shape();
        let value_at = value_at(shape & HAS_BATCH != 0);
        let value_len = (shape & ((1 << VALUE_LEN_BITS) - 1)) as usize;
        // SAFETY: the value lies here and is whole (T-1).
        let value = unsafe { self.arena.slice(self.at, value_at, value_len) };
        let kind = (shape >> VALUE_LEN_BITS) & ((1 << KIND_BITS) - 1);
        let kind = Kind::from_u8(kind as u8).expect("written from a kind");
        Found { version: self.version(), kind, value, batch: self.batch() }
    }

    /// Its memory.
    ///
    /// # Safety
    /// No link leads to it any more, and the span is written to only when no reader is left that came by it
    /// before (T-7). It is called once.
    pub(super) unsafe fn into_span(self) -> Span {
        let shape = self.shape();
        let value_len = (shape & ((1 << VALUE_LEN_BITS) - 1)) as usize;
        let units = record_units(shape & HAS_BATCH != 0, value_len).expect("it was written");
        Span { at: self.at, units }
    }
}
