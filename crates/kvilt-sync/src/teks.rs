//! `TeksTable`: the memory table of engine `teks`; rows that are found by hash, and in order, and are there
//! once (TeksDB, POMACS 2019; docs/design/0068-teks.md).
//!
//! A node a key, a record a version. Hash and list both lead to the node, and the node to its newest record;
//! so an update changes one link, and the two indexes cannot tell different values. A put enters a new key
//! into the hash, queues it for the list and returns; the list is *woven* behind it, by a worker, and by
//! scans, which bring in what was put before them.
//!
//! ```text
//!   hash    bucket ─► slot ──────────────┐
//!                                        ▼
//!   list    … ─► node "ant" ─────────► node "cat" ─────────► node "cow" ─► …
//!                 └► record 7           └► record 9 ─► record 4 (a view sees it)
//! ```
//!
//! | | waits for |
//! | --- | --- |
//! | get | nothing |
//! | put | a put of the same key; a lane, if more threads put than there are lanes; a move in the hash, if its choices are full |
//! | scan, when it begins | a weaver between two statements, see `hands`; it weaves what was put before it |
//! | seal | puts under way |
//!
//! What is always true:
//! - T-1, T-5 and T-7 about records and their room: `records.rs`, `lane.rs`, `arena.rs`.
//! - T-2: a get that begins behind a put finds the key, whatever moves in the hash (`buckets.rs`).
//! - T-3: a scan has each key that was put before it began (`hands.rs`).
//! - T-4: a scan begins at a node that the hash leads to only if this has the key and is in the list.
//! - T-6: behind a seal nothing in the table changes but the list, into which nodes still come.
//!
//! Callers see to it that puts of one key come in the order of their versions, and that no put of a key comes
//! while a batch with that key is in flight: an engine's lock of the key does. The table is sound without.

mod arena;
mod buckets;
mod hands;
mod lane;
mod list;
mod options;
mod put;
mod records;
mod source;

use std::{fmt, io, ops::Range};

use crossbeam_utils::CachePadded;
use kvilt_base::{Direction, KeyRange, Version};
use siphasher::sip::SipHasher13;

use crate::{
    pile::Found,
    published::{Birth, Pin, flush},
    shim::{AtomicU32, IS_EXPLORED, Mutex, Ordering},
    versions::Versions,
};
use arena::{Arena, Node, UNIT_BYTES};
use buckets::Buckets;
use hands::Weaving;
use lane::{Counts, Lane};
use list::List;
pub use options::{TeksOptions, TeksSteps};
pub use put::{KEYS_AHEAD, Refused};
pub use source::TeksSource;

/// Puts that go on at once; one more waits for a lane.
const LANES: usize = if IS_EXPLORED { 2 } else { 16 };
/// Keys that a scan may find queued, as long as scans come: half a millisecond's work.
const QUEUED_UNDER_SCANS_MAX: usize = 256;
/// Keys that a put weaves then: one more than it may have queued.
const WOVEN_A_PUT: usize = 2;

/// States of a table.
const OPEN: u32 = 0;
const SEALED: u32 = 1;
/// Sealed, and no put is under way.
const AT_REST: u32 = 2;

/// What a put must know of those who read.
pub trait Readers {
    /// Whether a view is open at one of these versions, or may be. S-7 holds for it.
    fn is_viewed(&self, versions: Range<Version>) -> bool;
    /// Whether the batch is not visible yet. False for 0.
    fn is_in_flight(&self, batch: u64) -> bool;
}

impl Readers for Versions {
    fn is_viewed(&self, versions: Range<Version>) -> bool {
        Versions::is_viewed(self, versions)
    }

    #[inline]
    fn is_in_flight(&self, batch: u64) -> bool {
        Versions::is_in_flight(self, batch)
    }
}

impl<R: Readers + ?Sized> Readers for &R {
    fn is_viewed(&self, versions: Range<Version>) -> bool {
        (**self).is_viewed(versions)
    }

    #[inline]
    fn is_in_flight(&self, batch: u64) -> bool {
        (**self).is_in_flight(batch)
    }
}

/// How full a table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TeksFill {
    /// Keys that it has, and so slots that are taken.
    pub keys: usize,
    /// Slots.
    pub slots: usize,
    /// Puts that it took.
    pub records: usize,
    /// Records that a later put of their key took the place of.
    pub went: usize,
    /// Bytes of nodes, and of records that have not gone.
    pub live_bytes: usize,
    /// Bytes of the arena that rows have or have had.
    pub used_bytes: usize,
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// Keys that are not in the list yet.
    pub queued: usize,
}

/// A map from key to versions of its value; found by hash, and in order. Any thread puts, reads and weaves.
///
/// ```
/// use std::sync::Arc;
/// use kvilt_base::{EntryRef, Kind, Version};
/// use kvilt_sync::{Versions, pin, teks::{TeksOptions, TeksTable}};
/// let versions = Versions::new(Version::new(1, 0));
/// let table = TeksTable::new(&TeksOptions::for_rows(1 << 20, 100, [7; 16]))?;
/// let put = |value: &[u8]| {
///     let pending = versions.announce();
///     let entry = EntryRef { key: b"k", version: pending.version(), kind: Kind::Put, value };
///     table.put(entry, pending.batch(), &*versions)
/// };
/// put(b"old").unwrap();
/// let view = versions.open_view();
/// put(b"new").unwrap();
/// let pin = pin();
/// let get = |at| table.under(&pin).get(b"k", at, &*versions).unwrap().value;
/// assert_eq!((get(view.version()), get(Version::NEWEST)), (&b"old"[..], &b"new"[..]));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TeksTable {
    arena: Arena,
    buckets: Buckets,
    list: List,
    weaving: Weaving,
    lanes: Box<[CachePadded<Lane>]>,
    hash: fn(&[u8; 16], &[u8]) -> u64,
    hash_key: [u8; 16],
    steps: TeksSteps,
    /// When the first of its rows could be read at the earliest.
    birth: Birth,
    /// `OPEN`, `SEALED` or `AT_REST`.
    state: AtomicU32,
    /// Each 0 or 1.
    is_full: AtomicU32,
    is_due: AtomicU32,
    is_woven: AtomicU32,
    is_scanned: AtomicU32,
    /// For puts that are not concurrent.
    turn: Mutex<()>,
}

/// The right to read a table's rows: they stay as long as it. Made by [`TeksTable::under`] or
/// [`TeksTable::sealed`].
#[derive(Clone, Copy)]
pub struct TeksReading<'r> {
    table: &'r TeksTable,
}

impl TeksTable {
    /// An empty table. Errors: those of the system, when it has no memory to reserve.
    pub fn new(options: &TeksOptions) -> io::Result<Self> {
        Self::hashed_by(options, |key, bytes| SipHasher13::new_with_key(key).hash(bytes))
    }

    /// With another hash, for models and tests in which keys meet.
    #[doc(hidden)]
    pub fn hashed_by(options: &TeksOptions, hash: fn(&[u8; 16], &[u8]) -> u64) -> io::Result<Self> {
        Ok(TeksTable {
            arena: Arena::new(options.arena_bytes)?,
            buckets: Buckets::new(options.slots),
            list: List::new(),
            weaving: Weaving::new(),
            lanes: (0..LANES).map(|_| CachePadded::new(Lane::new())).collect(),
            hash,
            hash_key: options.hash_key,
            steps: options.steps,
            birth: Birth::now(),
            state: AtomicU32::new(OPEN),
            is_full: AtomicU32::new(0),
            is_due: AtomicU32::new(0),
            is_woven: AtomicU32::new(0),
            is_scanned: AtomicU32::new(0),
            turn: Mutex::new(()),
        })
    }

    /// Bytes of the arena that the first record of a key takes with its node, on average over keys.
    pub fn row_bytes(key_len: usize, value_len: usize) -> usize {
        let node = arena::node_units(key_len, 1).zip(arena::record_units(false, value_len));
        node.map_or(usize::MAX, |(node, record)| (node + record) as usize * UNIT_BYTES)
    }

    /// Whether there should be another table: nine tenths of the slots are taken, a key found no slot, or a
    /// row that is not long no room. Keys that are there can still be put, as far as there is room.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed) != 0
    }

    /// Does what a put leaves to be done in the table: frees what no pin sees, if enough room of records that
    /// went waits for pins; and weaves, if scans come and the weaver falls behind, so that a scan has little
    /// to bring in. To be called behind a put, when that has retired: other values may be dropped here, too,
    /// and may take long. A pin of the caller's own would keep the room.
    #[inline]
    pub fn relieve(&self) {
        // Relaxed, all: hints.
        if self.is_scanned.load(Ordering::Relaxed) != 0 && self.queued() > QUEUED_UNDER_SCANS_MAX {
            self.weave(WOVEN_A_PUT);
        }
        if self.is_due.load(Ordering::Relaxed) != 0 && self.is_due.swap(0, Ordering::Relaxed) != 0 {
            flush();
        }
    }

    /// From here on no put changes anything, and none is under way when this returns. Waits for those that
    /// are.
    pub fn seal(&self) {
        // Release: with what the caller did before; puts see it when they have a lane.
        let _already = self.state.compare_exchange(OPEN, SEALED, Ordering::AcqRel, Ordering::Relaxed);
        for lane in &self.lanes {
            drop(lane.desk.lock());
        }
        // Release: pairs with `sealed`; behind all puts, by the locks.
        self.state.store(AT_REST, Ordering::Release);
    }

    /// Brings up to `most` keys into the list; returns their number. For a worker, as long as there are any
    /// [queued](TeksTable::queued).
    pub fn weave(&self, most: usize) -> usize {
        let woven = self.weaving.weave(most, &self.list, &self.arena, |place| self.node_at(place));
        if woven < most && self.is_scanned.load(Ordering::Relaxed) != 0 {
            // The queue is at its end. Until the next scan, puts leave it alone.
            self.is_scanned.store(0, Ordering::Relaxed);
        }
        woven
    }

    /// Keys that are not in the list yet, and not in anybody's hand.
    pub fn queued(&self) -> usize {
        self.weaving.queued()
    }

    /// Keys that it has.
    pub fn len(&self) -> usize {
        self.sum(|counts| &counts.keys)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn sum(&self, count: impl Fn(&Counts) -> &std::sync::atomic::AtomicUsize) -> usize {
        // Relaxed: counts. Of two lanes one may be less than nothing, see `Counts::subtract`.
        let counts =
            self.lanes.iter().map(|lane| count(&lane.counts).load(std::sync::atomic::Ordering::Relaxed));
        counts.fold(0, usize::wrapping_add)
    }

    /// How full it is; a moment's numbers.
    pub fn fill(&self) -> TeksFill {
        TeksFill {
            keys: self.len(),
            slots: self.buckets.slots(),
            records: self.sum(|counts| &counts.records),
            went: self.sum(|counts| &counts.went),
            live_bytes: self.sum(|counts| &counts.live_units) * UNIT_BYTES,
            used_bytes: self.arena.given_out() as usize * UNIT_BYTES,
            arena_bytes: self.arena.units() as usize * UNIT_BYTES,
            queued: self.queued(),
        }
    }

    /// Memory, in bytes: what the arena has used, the hash, and the queue.
    pub fn memory_bytes(&self) -> usize {
        let slots = self.buckets.slots() * size_of::<u64>();
        self.arena.given_out() as usize * UNIT_BYTES + slots + self.queued() * 2 * size_of::<u64>()
    }

    /// Reads it under a pin.
    #[inline]
    pub fn under<'r>(&'r self, pin: &'r Pin) -> TeksReading<'r> {
        // Before any link to a record is loaded (T-7).
        pin.cover(self.birth);
        TeksReading { table: self }
    }

    /// Reads it without a pin, once it is sealed: nothing goes any more.
    pub fn sealed(&self) -> Option<TeksReading<'_>> {
        // Acquire: pairs with `seal`.
        (self.state.load(Ordering::Acquire) == AT_REST).then_some(TeksReading { table: self })
    }

    #[inline]
    fn hash_of(&self, key: &[u8]) -> u64 {
        (self.hash)(&self.hash_key, key)
    }

    #[inline]
    fn node_of(&self, key: &[u8], hash: u64) -> Option<Node<'_>> {
        let place = self.buckets.find(hash, |place| self.node_at(place).key() == key)?;
        Some(self.node_at(place))
    }

    #[expect(unsafe_code, reason = "slots and hands are turned into nodes here, links in `list.rs`")]
    #[inline]
    fn node_at(&self, place: u32) -> Node<'_> {
        // SAFETY: slots, the queue and hands have places that `put_row` took from nodes of this arena, stored
        // (Release) behind the node, and loaded with Acquire.
        unsafe { self.arena.node(place) }
    }

    /// Each key that was put before is in the list when this returns (T-3).
    fn catch_up(&self) {
        // Acquire: pairs with the store below.
        if self.is_woven.load(Ordering::Acquire) != 0 {
            return;
        }
        // Acquire: as in `sealed`.
        let is_at_rest = self.state.load(Ordering::Acquire) == AT_REST;
        self.weaving.catch_up(&self.list, &self.arena, |place| self.node_at(place));
        if self.is_scanned.load(Ordering::Relaxed) == 0 {
            // Relaxed: a hint, see `relieve`.
            self.is_scanned.store(1, Ordering::Relaxed);
        }
        if is_at_rest {
            // Release: behind the list's last link.
            self.is_woven.store(1, Ordering::Release);
        }
    }

    /// The node of a key, if a scan can begin there (T-4).
    fn shortcut(&self, key: &[u8]) -> Option<Node<'_>> {
        let node = if self.steps.has_shortcut { self.node_of(key, self.hash_of(key)) } else { None };
        node.filter(|node| node.is_linked())
    }
}

impl<'r> TeksReading<'r> {
    /// What a reader at `view` sees of the key, a tombstone included.
    #[inline]
    pub fn get(&self, key: &[u8], view: Version, readers: &impl Readers) -> Option<Found<'r>> {
        let node = self.table.node_of(key, self.table.hash_of(key))?;
        records::visible(node, view, readers).map(arena::Record::found)
    }

    /// Of each key in `range` what a reader at `view` sees, tombstones included, in `direction`. `view` is
    /// open; what was put before it was opened, and before this call, is there.
    pub fn rows<R: Readers>(
        &self,
        range: &KeyRange,
        direction: Direction,
        view: Version,
        readers: R,
    ) -> TeksSource<'r, R> {
        self.table.catch_up();
        TeksSource::new(self.table, range, direction, Some(view), readers)
    }

    /// All records in `range`, in `direction`: of a key the newest first, or last. For a flush: a batch that
    /// is in flight is there like others.
    pub fn versions<R: Readers>(
        &self,
        range: &KeyRange,
        direction: Direction,
        readers: R,
    ) -> TeksSource<'r, R> {
        self.table.catch_up();
        TeksSource::new(self.table, range, direction, None, readers)
    }
}

impl fmt::Debug for TeksTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TeksTable {{ {:?} }}", self.fill())
    }
}

impl fmt::Debug for TeksReading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TeksReading")
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
