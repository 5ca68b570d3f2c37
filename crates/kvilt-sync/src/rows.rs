//! `Rows`: the sorted rows of a munk, in one region of memory; found by position or by hash, and replaced one
//! by one.
//!
//! Which keys there are, and in which order, never changes; where the row of a key lies does. A put of a key
//! that is there writes its row into memory that a replaced row had, exchanges the key's place, and the row
//! that lay there waits until nobody can be reading it (docs/design/0050-rows-replaced-one-by-one.md).
//!
//! ```text
//!   places    by position   ─┐
//!                            ├─►  row   key length u32 | value length u31, is a tombstone 1 bit | version u64 | position u32 | key | value
//!   by hash   newest of key ─┘
//!
//!
//!   replaced ──pin, which is dropped when no other from before is left──► free ──next row of that length──► replaced …
//! ```
//!
//! What is always true:
//! - S-15: a row that a place leads to is whole and does not change. Places are stored (Release) behind the
//!   row, and loaded (Acquire).
//! - S-16: a row is read under a [`Pin`] that covers the birth of the rows' memory, or a [`Hold`], each
//!   before its place was loaded; its memory is written to again only when every such pin is gone that was
//!   there when its place was exchanged, and nothing is exchanged while there is a hold. A pin that has stood
//!   still since before that birth keeps none of it.
//! - S-17: only who alone has the memory replaces: rows that are woven of others, or are their first ones,
//!   share it, and then none of them replaces any. So memory that is free is that of no row of anybody.
//! - S-18: the place by hash is exchanged first. Who finds a row by its position finds it, or a newer one, by
//!   its hash.
#![expect(unsafe_code, reason = "rows are read from raw memory")]

mod builder;
mod by_hash;
mod memory;
mod room;

use std::{fmt, sync::Arc};

use kvilt_base::EntryRef;

pub use self::builder::{RowsBuilder, RowsWeaver};
use self::{by_hash::ByHash, memory::RowMemory, room::Span};
use crate::{
    ahead::{CACHE_LINE_BYTES, fetch_ahead},
    published::{Pin, drop_later},
    shim::{AtomicU32, AtomicUsize, Ordering},
};

/// Bytes of a row besides key and value.
pub const ROW_HEAD_BYTES: usize = memory::HEAD_BYTES;

/// So much of a row is fetched ahead to know its key by.
const FETCHED_HEAD_BYTES: usize = 64;
/// Places in a line of the processor's cache.
const PLACES_A_LINE: usize = CACHE_LINE_BYTES / size_of::<u32>();

/// Bytes of a row with this key and value.
pub fn row_bytes(entry: EntryRef<'_>) -> usize {
    ROW_HEAD_BYTES + entry.key.len() + entry.value.len()
}

/// Sorted rows: by key ascending, of a key the newest version first. Any thread reads under a [`Pin`],
/// without waiting; threads that replace take turns. Keys come with a hash, which must be the same each time.
///
/// ```
/// use kvilt_base::{EntryRef, Kind, Version};
/// use kvilt_sync::{pin, rows::{Replaced, RowsBuilder}};
/// let row = |key, version, value| EntryRef { key, version: Version::from_u64(version), kind: Kind::Put, value };
/// let mut builder = RowsBuilder::new(100)?;
/// builder.push(row(b"ant", 1, b"old"), Some(7))?;
/// let rows = builder.finish();
/// let pin = pin();
/// let old = rows.under(&pin).entry_at(0);
/// assert_eq!(rows.replace(7, row(b"ant", 2, b"new"), &pin, |_| true, || 0), Replaced::Done);
/// assert_eq!((old.value, rows.under(&pin).find(b"ant", 7).unwrap().value), (&b"old"[..], &b"new"[..]));
/// # Ok::<(), kvilt_base::Error>(())
/// ```
pub struct Rows {
    memory: Arc<RowMemory>,
    /// Where the row of each position lies.
    places: Box<[AtomicU32]>,
    /// Where the newest row of each key lies.
    by_hash: ByHash,
    /// Bytes of its rows. Changed by who replaces only.
    bytes: AtomicUsize,
    /// Whether they do not lie one behind the other from the beginning of the memory any more: 0 or 1.
    is_scattered: AtomicUsize,
}

/// The right to read rows: they stay as long as it. Made by [`Rows::under`] or [`Rows::held`].
#[derive(Clone, Copy)]
pub struct Reading<'r> {
    rows: &'r Rows,
}

/// What came of a row that was to take another's place. If it did not, nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Replaced {
    /// It did.
    Done,
    /// There is no room, perhaps because nobody knows yet whether rows that were replaced are still read: who
    /// may wait may [settle](crate::published::settle) and try again.
    NoRoom,
    /// There is no row of the key, or it has to stay; or somebody holds the rows, or has others in the same
    /// memory; or no row was replaced that left so much room.
    No,
}

/// While it lives, none of the rows is replaced that it was made for. For who reads longer than a pin may
/// last, and for who makes other rows of these.
pub struct Hold {
    memory: Arc<RowMemory>,
}

impl Rows {
    /// No rows.
    pub fn empty() -> Self {
        let nothing = RowMemory::new(0).expect("an empty memory is taken from the heap");
        Rows::of(Arc::new(nothing), Vec::new(), ByHash::default(), 0, false)
    }

    fn of(
        memory: Arc<RowMemory>,
        places: Vec<AtomicU32>,
        by_hash: ByHash,
        bytes: usize,
        is_scattered: bool,
    ) -> Self {
        Rows {
            memory,
            places: places.into(),
            by_hash,
            bytes: AtomicUsize::new(bytes),
            is_scattered: AtomicUsize::new(usize::from(is_scattered)),
        }
    }

    /// Reads them under a pin.
    #[inline]
    pub fn under<'r>(&'r self, pin: &'r Pin) -> Reading<'r> {
        pin.cover(self.memory.birth());
        Reading { rows: self }
    }

    /// Reads them while they are held. Panics if the hold is one of other rows.
    pub fn held<'r>(&'r self, hold: &'r Hold) -> Reading<'r> {
        assert!(Arc::ptr_eq(&self.memory, &hold.memory), "the hold is one of other rows");
        Reading { rows: self }
    }

    /// From here on none is replaced, until what this returns is dropped.
    pub fn hold(&self) -> Hold {
        // Who is replacing a row has this lock.
        let _room = self.memory.room();
        Hold { memory: Arc::clone(&self.memory) }
    }

    /// Its first `count` rows, as rows that share all of its memory. They lie one behind the other, and
    /// `hash_of` is what they were built with. Panics if the hold is one of other rows, or if these are
    /// scattered.
    pub fn first(&self, count: usize, hold: &Hold, hash_of: impl Fn(&[u8]) -> u32) -> Rows {
        assert!(!self.is_scattered(), "rows are one behind the other");
        let by_hash = self.hashed(count, hold, hash_of);
        let places = (0..count).map(|at| AtomicU32::new(self.place(at))).collect();
        Rows::of(Arc::clone(&self.memory), places, by_hash, self.bytes_before(count), false)
    }

    /// What finds the newest row of each key among the first `count` rows.
    fn hashed(&self, count: usize, hold: &Hold, hash_of: impl Fn(&[u8]) -> u32) -> ByHash {
        let all = self.held(hold);
        let newest = (0..count).filter(|&at| at == 0 || all.entry_at(at).key != all.entry_at(at - 1).key);
        ByHash::new(count, newest.map(|at| (hash_of(all.entry_at(at).key), self.place(at))))
    }

    /// Puts a row in the place of the newest of the same key, if `may_replace` says so of that one. A row
    /// knows the position at which it was written; if it has another by now (rows were woven in or left out
    /// before it, or cut off), `search` is asked. Panics if its answer is not the position of the key's
    /// newest row. Both are asked under a lock of these rows: they must neither replace nor hold any.
    pub fn replace(
        &self,
        hash: u32,
        entry: EntryRef<'_>,
        pin: &Pin,
        may_replace: impl FnOnce(EntryRef<'_>) -> bool,
        search: impl FnOnce() -> usize,
    ) -> Replaced {
        pin.cover(self.memory.birth());
        let mut room = self.memory.room();
        if !self.is_alone() {
            return Replaced::No;
        }
        let found = self.by_hash.find_slot(hash, |place| {
            // SAFETY: as in `Reading::entry_at`, with the pin, which covers them.
            let old = unsafe { self.memory.entry(place) };
            (old.key == entry.key).then_some((old, place))
        });
        let Some(((old, old_place), slot)) = found.filter(|((old, _), _)| may_replace(*old)) else {
            return Replaced::No;
        };
        // SAFETY: the place is that of a row that was found under the pin.
        let remembered = unsafe { self.memory.position(old_place) };
        let is_it = |position: &usize| *position < self.len() && self.place(*position) == old_place;
        let position = Some(remembered).filter(is_it).unwrap_or_else(search);
        assert!(is_it(&position), "position {position} is not that of the key's newest row");
        let place = self.memory.write_replacing(&mut room, entry, position);
        if let Some(place) = place {
            // In this order: S-18.
            self.by_hash.exchange(slot, place);
            // Release: pairs with the load in `place`.
            self.places[position].store(place, Ordering::Release);
            let old_bytes = row_bytes(old);
            // Relaxed: changed under the lock only.
            let bytes = self.bytes.load(Ordering::Relaxed) + row_bytes(entry) - old_bytes;
            self.bytes.store(bytes, Ordering::Relaxed);
            self.is_scattered.store(1, Ordering::Relaxed);
            room.replaced(Span { bytes: old_bytes as u32, place: old_place });
        }
        let may_wait = room.may_have_room_later(row_bytes(entry));
        let batch = room.batch(self.memory.is_short());
        drop(room);
        // S-16. Not under the lock: whatever else is dropped on the way may want it.
        if let Some(batch) = batch {
            drop_later(self.memory.birth(), batch);
        }
        match place {
            Some(_) => Replaced::Done,
            None if may_wait => Replaced::NoRoom,
            None => Replaced::No,
        }
    }

    /// Whether no other rows and no hold share the memory. The caller has the lock that a hold is made under.
    fn is_alone(&self) -> bool {
        let is_alone = Arc::strong_count(&self.memory) == 1;
        // Pairs with the Release of who dropped the last other: what it read, it has read before.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        is_alone
    }

    /// Has the processor fetch what finds a key with this hash, and where a row of so many bytes would be
    /// written that replaces another. Changes no result. False if none was replaced yet, so that nobody knows
    /// where that would be.
    pub fn fetch_ahead(&self, hash: u32, bytes: usize) -> bool {
        self.by_hash.fetch_ahead(hash);
        self.memory.fetch_free(bytes)
    }

    /// Whether the next row that replaces another will probably have no room, unless pins let go of such as
    /// were replaced before: who may [flush](Pin::flush) some should. It is told once each time that a row
    /// found so.
    pub fn take_shortage(&self) -> bool {
        self.memory.take_shortage()
    }

    /// Has the processor fetch what tells of a row with this hash whether it is the one, a moment after
    /// [`Rows::fetch_ahead`]. False if there is no key with this hash.
    pub fn fetch_row(&self, hash: u32) -> bool {
        self.by_hash.any_candidate(hash, |place| self.memory.fetch_ahead(place, FETCHED_HEAD_BYTES))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of the rows.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the first `count` rows, if they are not scattered.
    pub fn bytes_before(&self, count: usize) -> usize {
        if count < self.len() { self.place(count) as usize } else { self.bytes() }
    }

    /// Whether they do not lie one behind the other in order any more.
    pub fn is_scattered(&self) -> bool {
        self.is_scattered.load(Ordering::Relaxed) != 0
    }

    /// Bytes of the memory that are those of none of these rows, and will not be: what replaced rows had is
    /// for others.
    pub fn waste_bytes(&self) -> usize {
        let reusable = self.memory.room().reusable();
        self.region_bytes().saturating_sub(self.bytes() + reusable)
    }

    /// Bytes of its region, with what of it other rows share.
    pub fn region_bytes(&self) -> usize {
        self.memory.len()
    }

    /// Memory, all in all: with what of it other rows share.
    pub fn memory_bytes(&self) -> usize {
        self.region_bytes() + size_of_val(&*self.places) + self.by_hash.bytes()
    }

    fn place(&self, position: usize) -> u32 {
        // Acquire: pairs with the store in `replace`.
        self.places[position].load(Ordering::Acquire)
    }
}

impl<'r> Reading<'r> {
    /// The row at a position.
    #[inline]
    pub fn entry_at(&self, position: usize) -> EntryRef<'r> {
        // SAFETY: places have only those of rows in this memory, and whoever made this value has a pin that
        // covers them, or a hold (S-16).
        unsafe { self.rows.memory.entry(self.rows.place(position)) }
    }

    /// The newest row of `key`. The whole row is fetched ahead, as far as `fetched_bytes` go.
    #[inline]
    pub fn find_fetching(&self, key: &[u8], hash: u32, fetched_bytes: usize) -> Option<EntryRef<'r>> {
        self.rows.by_hash.find(hash, |place| {
            self.rows.memory.fetch_ahead(place, fetched_bytes);
            // SAFETY: as in `entry_at`; what is found by hash are places of rows as well.
            let entry = unsafe { self.rows.memory.entry(place) };
            (entry.key == key).then_some(entry)
        })
    }

    /// The newest row of `key`.
    pub fn find(&self, key: &[u8], hash: u32) -> Option<EntryRef<'r>> {
        self.find_fetching(key, hash, 0)
    }

    /// Has the processor fetch what tells where the `count` rows from a position on lie.
    #[inline]
    pub fn fetch_places_ahead(&self, start: usize, count: usize) {
        let end = (start + count).min(self.rows.len());
        self.rows.places[start.min(end)..end].iter().step_by(PLACES_A_LINE).for_each(fetch_ahead);
    }

    /// Has the processor fetch so many bytes of the row at a position, and says where in its memory that is:
    /// rows of a scan mostly lie one behind the other, but in other pages, where processors do not look ahead
    /// on their own.
    #[inline]
    pub fn fetch_ahead(&self, position: usize, bytes: usize) -> usize {
        let place = self.rows.place(position);
        self.rows.memory.fetch_ahead(place, bytes);
        place as usize
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows {{ {}, {} of {} bytes }}", self.len(), self.bytes(), self.region_bytes())
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
