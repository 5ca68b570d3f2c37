//! `Skiplist`: a munk's tail; ordered, insert-only, O(log n) in any insertion order (design 3.2(6)).
//!
//! One node a key, in one mapping; each node holds a chain of records, newest first. Readers follow links without
//! a lock and never wait; writers take turns by an internal lock that the chunk's gate keeps uncontended.
//! The memory is one piece of fixed size: a tail that is full is frozen and a new one begun.
//!
//! ```text
//!   head ──────────────► "cat" ─────────────────────► "dog" ──► end      level 1
//!   head ──► "ant" ────► "cat" ────► "cow" ─────────► "dog" ──► end      level 0
//!              │           │
//!              ▼           ▼
//!           record 7     record 9 ──► record 4 ──► record 2              versions of a key
//! ```
//!
//! What is always true:
//! - S-10: nodes and records are written whole before a Release store links them in, and nothing in them but
//!   links changes afterwards; readers follow links with Acquire. So slices handed out stay true as long as the
//!   list.
//! - S-11: level 0 holds every key, ascending, each once; a node on a level is on every level below.
//! - S-12: records of one key have descending versions; of equal versions the later insert comes first. A single
//!   put takes the place of a record of its own version (nobody can tell them apart), a batch's record never
//!   does: as long as the batch is in flight, readers pass it by and need what lies below. A second link passes
//!   all records of one version at once, so that a key that batches overwrite a thousand times costs a scan one
//!   step, not a thousand.
//! - S-13: if `has_room(room_for(k, v))` holds and nobody else inserts, the insert succeeds.

mod arena;
mod source;

use std::{cmp::Ordering, fmt};

use kvilt_base::{Direction, KeyRange, Kind, Version};
use parking_lot::Mutex;

pub use arena::Found;
use arena::{Arena, HEIGHT_MAX, NewRecord, Node, Splice};
pub use source::SkiplistSource;

/// So much of where an entry will be written is fetched ahead, at most: processors look ahead themselves once they see where it goes.
const FETCHED_FREE_BYTES_MAX: usize = 1 << 10;

/// The list has no room for the record; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the skiplist has no room for the record")
    }
}

impl std::error::Error for Full {}

/// An ordered, insert-only map from key to versions of its value. Any thread may read at any time without
/// waiting; inserting threads take turns.
///
/// ```
/// use kvilt_base::{Kind, Version};
/// use kvilt_sync::Skiplist;
/// let list = Skiplist::with_capacity(4096, 1);
/// let v = Version::from_u64;
/// list.insert(b"k", v(3), Kind::Put, 0, b"old").unwrap();
/// list.insert(b"k", v(5), Kind::Put, 0, b"new").unwrap();
/// let found = list.find(b"k", |record| record.version <= v(4)).unwrap();
/// assert_eq!(found.value, b"old");
/// ```
pub struct Skiplist {
    arena: Arena,
    writer: Mutex<Writer>,
}

/// What only the one who inserts touches.
struct Writer {
    /// State of the xorshift generator behind tower heights; never zero.
    random: u64,
    /// On every level, the last node at or before the key inserted last. Keys that come in order, as those of
    /// time-ordered feeds do, belong right behind it, and need no search.
    last: Option<Splice>,
}

impl Skiplist {
    /// An empty list with room for `bytes` bytes of records, as [`room_for`](Skiplist::room_for) counts them;
    /// memory is touched as it is written. Tower heights follow from `seed`. Panics above 4 GiB less a page.
    pub fn with_capacity(bytes: usize, seed: u64) -> Self {
        Self::for_prefix(bytes, seed, b"")
    }

    /// Like [`Skiplist::with_capacity`], fastest if most keys begin with `prefix`, and right if none does.
    pub fn for_prefix(bytes: usize, seed: u64, prefix: &[u8]) -> Self {
        // Any odd constant: spreads small seeds over all bits; `| 1` because xorshift cannot leave zero.
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Skiplist {
            arena: Arena::with_capacity(bytes, prefix),
            writer: Mutex::new(Writer { random, last: None }),
        }
    }

    /// Bytes that one insert takes at most; `usize::MAX` if no list can hold it.
    pub fn room_for(key_len: usize, value_len: usize) -> usize {
        arena::room_for(key_len, value_len)
    }

    /// Whether inserts that take `bytes` in sum have room now.
    pub fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.arena.remaining()
    }

    /// Has the processor fetch where an entry of so many bytes will be written. Changes no result.
    pub fn fetch_free(&self, bytes: usize) {
        self.arena.fetch_free(bytes.min(FETCHED_FREE_BYTES_MAX));
    }

    /// Bytes of the capacity that are taken.
    pub fn used_bytes(&self) -> usize {
        self.arena.used()
    }

    /// Records inserted, also those that took another's place.
    pub fn len(&self) -> usize {
        self.arena.records()
    }

    /// Whether nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inserts a record, newest of its key; see S-12 for records of equal version. `batch` is 0 for a single put.
    /// Readers see it when this returns. Panics if the key has a record of a higher version already: inserts of
    /// one key come in order.
    pub fn insert(
        &self,
        key: &[u8],
        version: Version,
        kind: Kind,
        batch: u64,
        value: &[u8],
    ) -> Result<(), Full> {
        let mut writer = self.writer.lock();
        let record = NewRecord { version, kind, batch, value };
        let mut before = match self.behind_last(&writer, key) {
            Some(before) => before,
            None => {
                let mut before = [self.arena.head(); HEIGHT_MAX];
                if let Some(node) = self.seek(key, Some(&mut before)) {
                    return self.insert_into(node, &record);
                }
                before
            }
        };
        let height = writer.height();
        if self.arena.remaining() < arena::node_bytes(height, key.len()).saturating_add(record.bytes()) {
            return Err(Full);
        }
        let record = self.arena.new_record(&record, None);
        let node = self.arena.new_node(key, height, record);
        // Bottom up (S-11): who meets the node on a level finds it on those below.
        for (level, before) in before.iter_mut().enumerate().take(height) {
            before.link(level, node);
            *before = node;
        }
        writer.last = Some(Splice::new(&before));
        self.arena.count_record();
        Ok(())
    }

    /// If `key` belongs between the node inserted last and the one that follows it: the last nodes below `key`
    /// on every level. Above that node's tower they are what they were for it, because nothing was linked in
    /// since.
    fn behind_last(&self, writer: &Writer, key: &[u8]) -> Option<[Node<'_>; HEIGHT_MAX]> {
        let before = writer.last.as_ref()?.nodes(&self.arena);
        let head = self.arena.key_head(key);
        let is_behind = before[0].compare(key, head) == Ordering::Less
            && before[0].next(0).is_none_or(|next| next.compare(key, head) == Ordering::Greater);
        is_behind.then_some(before)
    }

    fn insert_into(&self, node: Node<'_>, record: &NewRecord<'_>) -> Result<(), Full> {
        if self.arena.remaining() < record.bytes() {
            return Err(Full);
        }
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
        node.set_newest(self.arena.new_record(record, older));
        self.arena.count_record();
        Ok(())
    }

    /// Walks the key's records, newest first, and returns the first that `accept` takes.
    pub fn find<'a>(&'a self, key: &[u8], mut accept: impl FnMut(&Found<'a>) -> bool) -> Option<Found<'a>> {
        let mut record = Some(self.seek(key, None)?.newest());
        while let Some(present) = record {
            let found = present.found();
            if accept(&found) {
                return Some(found);
            }
            record = present.older();
        }
        None
    }

    /// The newest record of `key` with a version up to `view` whose batch is not in flight. As [`Skiplist::find`],
    /// but it steps over all records of a version that is too new at once.
    pub fn find_at<'a>(
        &'a self,
        key: &[u8],
        view: Version,
        is_in_flight: impl Fn(u64) -> bool,
    ) -> Option<Found<'a>> {
        let mut record = Some(self.seek(key, None)?.newest());
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

    /// All versions of the keys in `range` in `direction`; of several records of one version, which only batches
    /// leave, the newest. It holds what was inserted before this call, and may
    /// hold what is inserted later.
    pub fn source<'a>(&'a self, range: &KeyRange, direction: Direction) -> SkiplistSource<'a> {
        SkiplistSource::new(self, range, direction)
    }

    /// The node of `key`. With `before`, it also leaves there the last node below `key` of every level, unless
    /// the key is found.
    fn seek<'a>(&'a self, key: &[u8], mut before: Option<&mut [Node<'a>; HEIGHT_MAX]>) -> Option<Node<'a>> {
        let head = self.arena.key_head(key);
        let mut node = self.arena.head();
        let mut met = None;
        for level in (0..self.arena.levels()).rev() {
            let mut next = node.next(level);
            // A node that was too high one level up is too high here.
            while let Some(candidate) = next.filter(|candidate| met != Some(*candidate)) {
                // Where it goes on if the candidate is too high; if not, the candidate's own links lie beside what is compared.
                if level > 0 {
                    node.next(level - 1).inspect(|below| below.fetch_ahead());
                }
                match candidate.compare(key, head) {
                    Ordering::Less => node = candidate,
                    Ordering::Equal => return Some(candidate),
                    Ordering::Greater => {
                        met = next;
                        break;
                    }
                }
                next = node.next(level);
            }
            if let Some(before) = before.as_deref_mut() {
                before[level] = node;
            }
        }
        None
    }

    /// The first node at or above `key`.
    fn first_at_or_above(&self, key: &[u8]) -> Option<Node<'_>> {
        let node = self.last_below(Some(key));
        node.unwrap_or(self.arena.head()).next(0).and_then(|mut node| {
            // A node may have been linked in between since; it is small work to pass it by.
            let head = self.arena.key_head(key);
            while node.compare(key, head) == Ordering::Less {
                node = node.next(0)?;
            }
            Some(node)
        })
    }

    /// The last node below `key`, or the last of all.
    fn last_below(&self, key: Option<&[u8]>) -> Option<Node<'_>> {
        let head = key.map_or(0, |key| self.arena.key_head(key));
        let mut node = self.arena.head();
        let mut met = None;
        for level in (0..self.arena.levels()).rev() {
            while let Some(next) = node.next(level).filter(|next| met != Some(*next)) {
                if key.is_some_and(|key| next.compare(key, head) != Ordering::Less) {
                    met = Some(next);
                    break;
                }
                node = next;
            }
        }
        (node != self.arena.head()).then_some(node)
    }
}

impl Writer {
    /// 1 with probability 3/4, 2 with 3/16, and so on.
    fn height(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // Two zero bits have probability 1/4. The high half is the better half.
        let zeros = (self.random >> 32 | 1 << 31).trailing_zeros() as usize;
        (1 + zeros / 2).min(HEIGHT_MAX)
    }
}

impl fmt::Debug for Skiplist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Skiplist {{ {} records, {} bytes }}", self.len(), self.used_bytes())
    }
}

#[cfg(test)]
mod tests;
