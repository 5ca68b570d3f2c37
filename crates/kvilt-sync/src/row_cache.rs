//! `RowCache`: rows of munk-less chunks that were read lately; never a stale one
//! (docs/design/0011-row-cache.md).
//!
//! The danger: a get reads an old row from disk, a put comes, finds nothing cached to update, and then the
//! get caches the old row for ever. So every key belongs to a *bucket* that counts writes, and a row is only
//! let in if its bucket did not move since before it was read.
//!
//! ```text
//!      get (a miss)                          put, under the chunk's gate
//!   1  ticket := the bucket's count       1  writing(key): the bucket is being written; the row is taken out
//!   2  load the chunk's state, read row   2  make the entry readable
//!   3  fill: refused if the bucket was    3  written(value): count + 1; the row is put back with its new value,
//!      written or is being written           if it was cached
//! ```
//!
//! What is always true:
//! - S-50: a cached row is the newest readable one of its key. Between `writing` and `written` it is not
//!   cached at all, so no get can meet the old row here after another read the new one below.
//! - S-51: a ticket is taken before the chunk's state is loaded and the row is read; `fill` refuses the row
//!   if any write to its bucket began or ended since, or is on its way.
//! - S-53: the bytes of cached rows stay at or below the limit, except inside a call.
//! - A shard's lock is held for map work only, never across a read of the store or a user's code.
//!
//! Put-only callers may skip `writing` and call [`written`](RowCache::written) alone once the entry is
//! readable. The cache is then as right as soon as that returns, but before it, a get may still return the
//! old row although another already found the new one: rows are not stale *after* the put, yet gets are not
//! linearizable *during* it. The engine uses both halves.

mod shard;
mod sketch;

use std::{fmt, sync::OnceLock};

use crossbeam_utils::CachePadded;
use kvilt_base::{Value, planted};

use crate::shim::{AtomicU64, AtomicUsize, IS_EXPLORED, Mutex, Ordering};
use shard::{List, Shard};

/// Rows above this many bytes (key and value) are not cached: one would push out hundreds.
pub const ROW_BYTES_MAX: usize = 64 << 10;

/// Parts with a lock each: more than cores, so that two threads seldom meet.
const SHARDS: usize = if IS_EXPLORED { 2 } else { 16 };

/// Write counters of each shard. A put refuses fills of its whole bucket, so many; eight bytes each, so not
/// more.
const BUCKETS_PER_SHARD: usize = if IS_EXPLORED { 2 } else { 256 };

/// Rows that a lower limit lets go of before it gives gets and puts a turn.
const ROWS_A_TURN: usize = 256;

/// A bucket's counter: low bits count writes on their way, the rest writes begun or ended.
const ON_THEIR_WAY_BITS: u32 = 16;
const ON_THEIR_WAY: u64 = (1 << ON_THEIR_WAY_BITS) - 1;
const MOVED: u64 = 1 << ON_THEIR_WAY_BITS;

/// Rows by key, with a limit in bytes; those that are read most often stay. Any thread may use it.
///
/// ```
/// use kvilt_base::Value;
/// use kvilt_sync::RowCache;
/// let cache = RowCache::new(1 << 20);
/// let ticket = cache.ticket(b"k");
/// // … read the row …
/// assert!(cache.fill(ticket, b"k", Some(Value::copied(b"old"))));
/// let writing = cache.writing(b"k");
/// // … make the new entry readable …
/// writing.written(Some(b"new"));
/// assert_eq!(cache.get(b"k"), Some(Some(Value::copied(b"new"))));
/// ```
pub struct RowCache {
    /// Made when somebody first asks: who never does, for all rows are elsewhere, has no 36 KiB of it.
    tables: OnceLock<Tables>,
    /// Limit of one shard, in bytes.
    shard_bytes_max: AtomicUsize,
    /// Bytes of all rows.
    bytes: AtomicUsize,
}

struct Tables {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    /// `SHARDS × BUCKETS_PER_SHARD` counters; written under the lock of their shard only.
    buckets: Box<[AtomicU64]>,
}

impl Tables {
    fn new() -> Self {
        Tables {
            shards: (0..SHARDS).map(|_| CachePadded::new(Mutex::new(Shard::default()))).collect(),
            buckets: (0..SHARDS * BUCKETS_PER_SHARD).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

/// Where a key belongs: all three from one hash, from different bits of it.
#[derive(Clone, Copy)]
struct Place {
    hash: u64,
    shard: usize,
    bucket: usize,
}

/// The state of a key's bucket before its row was read; see [`RowCache::fill`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a ticket is for `fill`"]
pub struct Ticket {
    count: u64,
}

impl RowCache {
    /// An empty cache for rows of `bytes_max` bytes in sum, overhead included.
    pub fn new(bytes_max: usize) -> Self {
        RowCache {
            // An explorer does not see who made them.
            tables: if IS_EXPLORED { OnceLock::from(Tables::new()) } else { OnceLock::new() },
            shard_bytes_max: AtomicUsize::new(bytes_max / SHARDS),
            bytes: AtomicUsize::new(0),
        }
    }

    fn tables(&self) -> &Tables {
        self.tables.get_or_init(Tables::new)
    }

    /// Changes the limit; rows too many go at once.
    pub fn resize(&self, bytes_max: usize) {
        // Relaxed, and wherever it is read: a fill that still sees the old limit is trimmed below or by the
        // next fill.
        self.shard_bytes_max.store(bytes_max / SHARDS, Ordering::Relaxed);
        for shard in self.tables.get().iter().flat_map(|tables| &tables.shards) {
            loop {
                let freed = shard.lock().let_go(bytes_max / SHARDS, ROWS_A_TURN);
                self.count(0, freed);
                if freed == 0 {
                    break;
                }
            }
            let mut shard = shard.lock();
            let freed = shard.trim(bytes_max / SHARDS);
            shard.give_back();
            self.count(0, freed);
        }
    }

    /// Whether the row of `key` is cached. Unlike [`get`](RowCache::get) it is no sign that the row is
    /// popular.
    pub fn contains(&self, key: &[u8]) -> bool {
        let place = place_of(key);
        self.tables().shards[place.shard].lock().contains(place.hash, key)
    }

    /// The row of `key`: its value, or "absent" as an inner none; an outer none says that it is not cached.
    pub fn get(&self, key: &[u8]) -> Option<Option<Value>> {
        let place = place_of(key);
        let shard_bytes_max = self.shard_bytes_max.load(Ordering::Relaxed);
        self.tables().shards[place.shard].lock().get(place.hash, key, shard_bytes_max)
    }

    /// Whether a row whose key and value have this many bytes is not too large.
    pub fn takes(&self, row_bytes: usize) -> bool {
        is_taken(row_bytes, self.shard_bytes_max.load(Ordering::Relaxed))
    }

    /// To be taken before the chunk's state is loaded and the row is read (S-51).
    pub fn ticket(&self, key: &[u8]) -> Ticket {
        // Acquire: pairs with the end of a write, so that a row read under this ticket includes that write.
        Ticket { count: self.tables().buckets[place_of(key).bucket].load(Ordering::Acquire) }
    }

    /// Caches a row read under `ticket`, a ticket for this key; none says that the key is absent. Refused
    /// (false) if the bucket was written since, or the row is too large. The value should own its bytes: they
    /// are kept, not copied.
    pub fn fill(&self, ticket: Ticket, key: &[u8], row: Option<Value>) -> bool {
        let shard_bytes_max = self.shard_bytes_max.load(Ordering::Relaxed);
        let row_bytes = key.len() + row.as_ref().map_or(0, |value| value.len());
        if !is_taken(row_bytes, shard_bytes_max) {
            return false;
        }
        // Allocated before the lock.
        let owned_key: Box<[u8]> = key.into();
        let place = place_of(key);
        let mut shard = self.tables().shards[place.shard].lock();
        // Relaxed: counters move under this lock only.
        let count = self.tables().buckets[place.bucket].load(Ordering::Relaxed);
        let is_outdated = count != ticket.count || count & ON_THEIR_WAY != 0;
        let is_outdated = planted!(TicketIgnored, is_outdated => false);
        if is_outdated {
            return false;
        }
        let (added, replaced) = shard.insert(place.hash, owned_key, row, List::Window);
        let trimmed = shard.trim(shard_bytes_max);
        self.count(added, replaced + trimmed);
        true
    }

    /// Announces a write of `key`, before its entry becomes readable: takes the row out and refuses fills
    /// until the result is finished with [`Writing::written`], or dropped.
    pub fn writing<'w>(&'w self, key: &'w [u8]) -> Writing<'w> {
        let place = place_of(key);
        let mut shard = self.tables().shards[place.shard].lock();
        let begun = self.begin(place.bucket);
        let removed = shard.remove(place.hash, key);
        self.count(0, removed.map_or(0, |(freed, _)| freed));
        let is_alone = begun & ON_THEIR_WAY == 1;
        let list = removed.filter(|_| is_alone).map(|(_, list)| list);
        Writing { cache: self, key, place, restores_at: list.map(|list| (begun, list)) }
    }

    /// Says that `key` was written and its new entry is readable: refuses fills that began before, and
    /// updates the row if it is cached. Calls for one key come in the order of its writes (the chunk's gate
    /// sees to that). See the module's head for what [`writing`](RowCache::writing) promises more.
    pub fn written(&self, key: &[u8], value: Option<&[u8]>) {
        let place = place_of(key);
        let mut shard = self.tables().shards[place.shard].lock();
        self.tables().buckets[place.bucket].fetch_add(MOVED, Ordering::Release);
        let removed = shard.remove(place.hash, key);
        // With somebody else's write to the bucket on its way, this may not be the newest row any more.
        let is_quiet = self.tables().buckets[place.bucket].load(Ordering::Relaxed) & ON_THEIR_WAY == 0;
        if let Some((_, list)) = removed.filter(|_| is_quiet) {
            self.put_back(&mut shard, place, (key, value), list);
        }
        self.count(0, removed.map_or(0, |(freed, _)| freed));
    }

    /// Bytes of all cached rows, overhead included.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn count(&self, added: usize, freed: usize) {
        // Relaxed: a gauge. Added first, so that it never goes below zero.
        self.bytes.fetch_add(added, Ordering::Relaxed);
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Under the shard's lock. Returns the counter as it leaves it.
    fn begin(&self, bucket: usize) -> u64 {
        let before = self.tables().buckets[bucket].fetch_add(MOVED + 1, Ordering::Relaxed);
        assert!(before & ON_THEIR_WAY < ON_THEIR_WAY, "no more than 65535 writes on their way");
        before.wrapping_add(MOVED + 1)
    }

    /// Under the shard's lock. Returns the counter as it found it.
    fn end(&self, bucket: usize) -> u64 {
        // Release: pairs with `ticket`; who gets a ticket behind us reads the entry that we made readable.
        self.tables().buckets[bucket].fetch_add(MOVED - 1, Ordering::Release)
    }

    /// Caches a row that was cached before, with its new value, in the list that it was in, unless it has
    /// become too large: it was not read less often for being written.
    fn put_back(&self, shard: &mut Shard, place: Place, (key, value): (&[u8], Option<&[u8]>), list: List) {
        let row_bytes = key.len() + value.map_or(0, <[u8]>::len);
        let shard_bytes_max = self.shard_bytes_max.load(Ordering::Relaxed);
        if !is_taken(row_bytes, shard_bytes_max) {
            return;
        }
        let (added, replaced) = shard.insert(place.hash, key.into(), value.map(Value::copied), list);
        self.count(added, replaced + shard.trim(shard_bytes_max));
    }
}

/// Whether a shard that may have `shard_bytes_max` takes a row of this many bytes.
fn is_taken(row_bytes: usize, shard_bytes_max: usize) -> bool {
    row_bytes <= ROW_BYTES_MAX && row_bytes + shard::ROW_OVERHEAD_BYTES <= shard_bytes_max
}

/// A write of one key on its way; see [`RowCache::writing`].
#[must_use = "dropping it ends the write"]
pub struct Writing<'w> {
    cache: &'w RowCache,
    key: &'w [u8],
    place: Place,
    /// The bucket's counter as our beginning left it, if the row was cached then and no other write to the
    /// bucket was on its way; and the list that the row was in. If it is still so at the end, our value is
    /// the newest.
    restores_at: Option<(u64, List)>,
}

impl Writing<'_> {
    /// The new entry is readable: the row is cached with its new value if it was cached before, and gets may
    /// fill again. None says that the key was deleted.
    pub fn written(self, value: Option<&[u8]>) {
        // Its drop would end the write a second time.
        let writing = std::mem::ManuallyDrop::new(self);
        let mut shard = writing.cache.tables().shards[writing.place.shard].lock();
        let count = writing.cache.end(writing.place.bucket);
        // Had another write, possibly of the same key, begun or ended meanwhile, ours might not be the
        // newest.
        if let Some((_, list)) = writing.restores_at.filter(|(begun, _)| *begun == count) {
            writing.cache.put_back(&mut shard, writing.place, (writing.key, value), list);
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let _shard = self.cache.tables().shards[self.place.shard].lock();
        self.cache.end(self.place.bucket);
    }
}

impl fmt::Debug for Writing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writing {{ {} }}", self.key.escape_ascii())
    }
}

impl fmt::Debug for RowCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowCache {{ {} bytes }}", self.bytes())
    }
}

fn place_of(key: &[u8]) -> Place {
    let hash = shard::hash(key);
    // Bits 40 and up: the map inside a shard uses the low bits and the top seven.
    let shard = (hash >> 40) as usize % SHARDS;
    let bucket = shard * BUCKETS_PER_SHARD + (hash >> 44) as usize % BUCKETS_PER_SHARD;
    Place { hash, shard, bucket }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
