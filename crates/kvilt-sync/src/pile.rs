//! `Pile`: a munk's tail; rows in the order in which they came, found by hash, and put in order when somebody
//! wants order (docs/design/0048-piles.md).
//!
//! One node a key, in blocks of memory; each node holds a chain of records, newest first. Readers look up and
//! walk without a lock and never wait; writers take turns by an internal lock that the chunk's gate keeps
//! uncontended. A pile that is full is frozen and a new one begun.
//!
//! ```text
//!   slots      hash ──► node                                  gets
//!   arrivals   dog, ant, cat, cow                             puts note their keys here
//!   order      ant, cat, dog | cow                            scans: sorted, but for the last few
//!
//!   blocks     node "dog", record 9 | node "ant", record 7 | … | record 4 | …
//!                              └──► record 4 ──► record 2     versions of a key
//! ```
//!
//! What is always true:
//! - S-10: nodes and records are written whole before a Release store leads to them, and nothing in them but
//!   links changes afterwards; readers follow with Acquire. So slices handed out stay true as long as the
//!   pile.
//! - S-12: records of one key have descending versions; of equal versions the later insert comes first. A
//!   single put takes the place of a record of its own version (nobody can tell them apart), a batch's record
//!   never does: as long as the batch is in flight, readers pass it by and need what lies below. A second
//!   link passes all records of one version at once, so that a key that batches overwrite a thousand times
//!   costs a scan one step, not a thousand.
//! - S-13: if `has_room(room_for(k, v))` holds and nobody else inserts, the insert succeeds; and so do
//!   several, if there is room for their sum.

mod arena;
mod arrivals;
mod order;
mod slots;
mod source;

use std::{cmp::Ordering, fmt, ops::Range, sync::atomic::AtomicUsize};

use kvilt_base::{Direction, EntryRef, KeyRange, Kind, Version};

pub use arena::Found;
use arena::{Arena, NewRecord, Node, Writer};
use arrivals::{Arrival, Arrivals};
use order::{Order, Sorted};
use slots::Slots;
pub use source::PileSource;

use crate::{
    published::{Published, pin},
    shim::{AtomicU64, Ordering as Memory},
};

/// So much of where an entry will be written is fetched ahead, at most: processors look ahead themselves once
/// they see where it goes.
const FETCHED_FREE_BYTES_MAX: usize = 1 << 10;
/// Of what a sample is taken from, so many keys are looked at for one that is wanted, at most.
const LOOKED_AT_A_SAMPLE: usize = 4;

/// The pile has no room for the record; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pile has no room for the record")
    }
}

impl std::error::Error for Full {}

/// An insert-only map from key to versions of its value; ordered for who wants it. Any thread may read at any
/// time without waiting; inserting threads take turns. Keys come with a hash, which must be the same each
/// time; good ones differ in their upper bits.
///
/// ```
/// use kvilt_base::{Kind, Version};
/// use kvilt_sync::Pile;
/// let pile = Pile::with_capacity(4096);
/// let v = Version::from_u64;
/// pile.insert(b"k", 7, v(3), Kind::Put, 0, b"old").unwrap();
/// pile.insert(b"k", 7, v(5), Kind::Put, 0, b"new").unwrap();
/// let found = pile.find(b"k", 7, |record| record.version <= v(4)).unwrap();
/// assert_eq!(found.value, b"old");
/// ```
pub struct Pile {
    arena: Arena,
    /// The bits that [`bits`] has of the hashes of all keys. As long as there are few, it answers without a
    /// look at the slots.
    seen: AtomicU64,
    records: AtomicUsize,
    slots: Published<Slots>,
    arrivals: Arrivals,
    order: Order,
    /// What keys are thought to begin with.
    prefix: Box<[u8]>,
}

impl Pile {
    /// An empty pile with room for `bytes` bytes of rows, as [`room_for`](Pile::room_for) counts them;
    /// memory is taken as it is written. Panics at two GiB.
    pub fn with_capacity(bytes: usize) -> Self {
        Self::for_prefix(bytes, b"")
    }

    /// Like [`Pile::with_capacity`], fastest to order if most keys begin with `prefix`, and right if none
    /// does.
    pub fn for_prefix(bytes: usize, prefix: &[u8]) -> Self {
        Pile {
            arena: Arena::with_capacity(bytes),
            seen: AtomicU64::new(0),
            records: AtomicUsize::new(0),
            slots: Published::new(Slots::new()),
            arrivals: Arrivals::new(),
            order: Order::new(),
            prefix: prefix.into(),
        }
    }

    /// Bytes that one insert takes at most; `usize::MAX` if no pile can hold it.
    pub fn room_for(key_len: usize, value_len: usize) -> usize {
        arena::room_for(key_len, value_len)
    }

    /// Whether inserts that take `bytes` in sum have room now.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.arena.has_room(bytes)
    }

    /// Has the processor fetch where an entry of so many bytes will be written, and what finds a key with
    /// this hash. Changes no result.
    pub fn fetch_ahead(&self, hash: u32, bytes: usize) {
        self.arena.fetch_free(bytes.min(FETCHED_FREE_BYTES_MAX));
        self.slots.load(&pin()).fetch_ahead(hash);
    }

    /// Bytes of the capacity that are taken.
    pub fn used_bytes(&self) -> usize {
        self.arena.used()
    }

    /// Memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let slots = self.slots.load(&pin()).len() * size_of::<u64>();
        // Counted before it is made: who is charged for it puts, and who makes it scans.
        let order = self.order.bytes().max(self.arrivals.len() * order::BYTES_A_KEY);
        self.arena.taken() + slots + self.arrivals.bytes() + order
    }

    /// Records inserted, also those that took another's place.
    pub fn len(&self) -> usize {
        self.records.load(Memory::Relaxed)
    }

    /// Whether nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inserts a record, newest of its key; see S-12 for records of equal version. `batch` is 0 for a single
    /// put. Readers see it when this returns. More than the capacity may be taken: it is a promise of room,
    /// not a limit. Panics if the key has a record of a higher version already: inserts of one key come in
    /// order.
    pub fn insert(
        &self,
        key: &[u8],
        hash: u32,
        version: Version,
        kind: Kind,
        batch: u64,
        value: &[u8],
    ) -> Result<(), Full> {
        let mut writer = self.arena.writer();
        let record = NewRecord { version, kind, batch, value };
        match self.node_of(key, hash) {
            Some(node) => insert_into(&mut writer, node, &record)?,
            None => {
                let node = writer.new_row(key, &record).ok_or(Full)?;
                self.enter(node, key, hash);
            }
        }
        // Relaxed: a count.
        self.records.fetch_add(1, Memory::Relaxed);
        Ok(())
    }

    /// Makes a node known. The caller is the writer.
    fn enter(&self, node: Node<'_>, key: &[u8], hash: u32) {
        let pin = pin();
        let mut slots = self.slots.load(&pin);
        if let Some(larger) = slots.grown_for(self.arrivals.len() + 1) {
            self.slots.replace(larger);
            slots = self.slots.load(&pin);
        }
        slots.insert(hash, node.place());
        // Release: pairs with `may_have`.
        if self.seen.load(Memory::Relaxed) & bits(hash) != bits(hash) {
            self.seen.fetch_or(bits(hash), Memory::Release);
        }
        // Last, so that who finds the entry by a scan finds it by its key, too.
        self.arrivals.push(Arrival { head: self.head_of(key), place: node.place() });
    }

    /// Whether it may have a key with this hash.
    pub fn may_have(&self, hash: u32) -> bool {
        self.may_have_bits(hash) && self.slots.load(&pin()).find(hash, |_| true).is_some()
    }

    fn may_have_bits(&self, hash: u32) -> bool {
        // Acquire: pairs with the update in `enter`.
        self.seen.load(Memory::Acquire) & bits(hash) == bits(hash)
    }

    /// Walks the key's records, newest first, and returns the first that `accept` takes.
    pub fn find<'a>(
        &'a self,
        key: &[u8],
        hash: u32,
        mut accept: impl FnMut(&Found<'a>) -> bool,
    ) -> Option<Found<'a>> {
        let mut record = Some(self.node_of(key, hash)?.newest());
        while let Some(present) = record {
            let found = present.found();
            if accept(&found) {
                return Some(found);
            }
            record = present.older();
        }
        None
    }

    /// The newest record of `key` with a version up to `view` whose batch is not in flight. As
    /// [`Pile::find`], but it steps over all records of a version that is too new at once.
    pub fn find_at<'a>(
        &'a self,
        key: &[u8],
        hash: u32,
        view: Version,
        is_in_flight: impl Fn(u64) -> bool,
    ) -> Option<Found<'a>> {
        let mut record = Some(self.node_of(key, hash)?.newest());
        while let Some(present) = record {
            let found = present.found();
            if found.version > view {
                record = present.lower();
            } else if is_in_flight(found.batch) {
                record = present.older();
            } else {
                return Some(found);
            }
        }
        None
    }

    fn node_of(&self, key: &[u8], hash: u32) -> Option<Node<'_>> {
        if !self.may_have_bits(hash) {
            return None;
        }
        let place = self.slots.load(&pin()).find(hash, |place| self.node_at(place).key() == key)?;
        Some(self.node_at(place))
    }

    /// All versions of the keys in `range` in `direction`; of several records of one version, which only
    /// batches leave, the newest. It holds what was inserted before this call, and may hold newer versions
    /// that are inserted later.
    pub fn source<'a>(&'a self, range: &KeyRange, direction: Direction) -> PileSource<'a> {
        PileSource::new(self, range, direction)
    }

    /// Gives each key to `each`, in the order in which they came.
    pub fn for_each_key(&self, mut each: impl FnMut(&[u8])) {
        let arrivals = self.arrivals.between(0, self.arrivals.len());
        arrivals.for_each(|arrival| each(self.node(arrival).key()));
    }

    /// Gives the newest record of each key to `each`, in the order in which the keys came, until it says no;
    /// whether it never did.
    pub fn each_newest(&self, each: &mut dyn FnMut(EntryRef<'_>) -> bool) -> bool {
        let mut arrivals = self.arrivals.between(0, self.arrivals.len());
        arrivals.all(|arrival| each(self.newest_of(arrival)))
    }

    fn newest_of(&self, arrival: Arrival) -> EntryRef<'_> {
        let node = self.node(arrival);
        let newest = node.newest().found();
        EntryRef { key: node.key(), version: newest.version, kind: newest.kind, value: newest.value }
    }

    /// Whether it has a key of `range`.
    pub fn touches(&self, range: &KeyRange) -> bool {
        let (sorted, len) = (self.order.sorted(), self.arrivals.len());
        let positions = self.positions(&sorted, range);
        !positions.is_empty() || self.inside(self.arrivals.between(sorted.len(), len), range).next().is_some()
    }

    /// Gives `each` the newest entries of some keys in `range`, of such that came early and late: so many, if
    /// enough of those that are looked at lie in it.
    pub fn sample(&self, range: &KeyRange, count: usize, mut each: impl FnMut(EntryRef<'_>)) {
        let len = self.arrivals.len();
        let step = len.div_ceil(LOOKED_AT_A_SAMPLE * count.max(1)).max(1);
        let looked_at = (0..len).step_by(step).flat_map(|at| self.arrivals.between(at, at + 1));
        let inside: Vec<Arrival> = self.inside(looked_at, range).collect();
        let count = count.min(inside.len());
        for nth in 0..count {
            each(self.newest_of(inside[nth * inside.len() / count]));
        }
    }

    /// Those in `range`.
    fn inside<'a>(
        &'a self,
        arrivals: impl Iterator<Item = Arrival> + 'a,
        range: &KeyRange,
    ) -> impl Iterator<Item = Arrival> + 'a {
        let bound = |key: &[u8]| (self.head_of(key), key.to_vec());
        let (start, end) = (bound(&range.start), range.end.as_deref().map(bound));
        let is_below = move |arrival: Arrival, (head, key): &(u64, Vec<u8>)| {
            arrival.head < *head || (arrival.head == *head && self.node(arrival).key() < key.as_slice())
        };
        arrivals.filter(move |&arrival| {
            !is_below(arrival, &start) && end.as_ref().is_none_or(|end| is_below(arrival, end))
        })
    }

    /// Where the keys of `range` lie.
    fn positions(&self, sorted: &Sorted, range: &KeyRange) -> Range<usize> {
        let start = self.position(sorted, &range.start);
        start..range.end.as_deref().map_or(sorted.len(), |end| self.position(sorted, end)).max(start)
    }

    /// The position of the first key that is at or above `key`.
    fn position(&self, sorted: &Sorted, key: &[u8]) -> usize {
        sorted.lower_bound(self.head_of(key), |place| self.node_at(place).key() < key)
    }

    /// How two keys with one head stand.
    fn compare(&self, a: Arrival, b: Arrival) -> Ordering {
        self.node(a).key().cmp(self.node(b).key())
    }

    fn node(&self, arrival: Arrival) -> Node<'_> {
        self.node_at(arrival.place)
    }

    #[expect(unsafe_code, reason = "places are turned into nodes here and nowhere else")]
    #[inline]
    fn node_at(&self, place: u32) -> Node<'_> {
        // SAFETY: slots, arrivals and what is sorted of them belong to this pile alone, and have places that
        // `enter` took from nodes of its arena.
        unsafe { self.arena.node(place) }
    }

    /// Eight bytes of a key as a big-endian number, zeros where the key is shorter: those behind the prefix.
    /// A key that does not begin with it has the least head or the greatest, as it comes before or behind
    /// those that do. So different heads order as their keys do, whatever the prefix, and mostly save looking
    /// at the key.
    #[inline]
    fn head_of(&self, key: &[u8]) -> u64 {
        match key.strip_prefix(&*self.prefix) {
            Some(rest) => first_bytes(rest),
            None if *key < *self.prefix => 0,
            None => u64::MAX,
        }
    }
}

fn insert_into<'a>(writer: &mut Writer<'a>, node: Node<'a>, record: &NewRecord<'_>) -> Result<(), Full> {
    let newest = node.newest();
    kvilt_base::invariant!(
        "S-12",
        newest.version() <= record.version,
        "a record at {} behind one at {}",
        record.version,
        newest.version()
    );
    let is_replaced = newest.version() == record.version && record.batch == 0;
    let older = if is_replaced { newest.lower() } else { Some(newest) };
    node.set_newest(writer.new_record(record, older).ok_or(Full)?);
    Ok(())
}

/// Two bits for a hash.
#[inline]
fn bits(hash: u32) -> u64 {
    1 << (hash & 63) | 1 << (hash >> 6 & 63)
}

/// The first eight bytes as a number that orders like them.
fn first_bytes(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    head[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(head)
}

impl fmt::Debug for Pile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pile {{ {} records, {} bytes }}", self.len(), self.used_bytes())
    }
}

#[cfg(test)]
mod tests;
