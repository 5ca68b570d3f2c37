//! One shard of the row cache: a map from hash to row, and lists of rows that say what goes.
//!
//! The policy is W-TinyLFU (Einziger, Friedman and Manes, 2017). A new row comes into the *window*. What
//! leaves that by age comes to *probation* if the sketch has counted it more often than all rows together
//! that would go for it; else it goes. A row of probation that is read is *protected*; the oldest of those
//! come back to probation. So rows that are read once push out none that are read often.
//!
//! What is always true: `bytes` is the sum over the lists; the map leads from a row's hash to its slot, and a
//! slot not in the map is in `free`. Two keys of one hash cannot both be cached: the later one takes the
//! place.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use kvilt_base::Value;

use super::sketch::Sketch;

/// What a row costs beside its key and value: slot, map entry, two allocations, eight bytes of the sketch.
pub(super) const ROW_OVERHEAD_BYTES: usize = 144;

/// The window has this part of the bytes.
const WINDOW_PART: usize = 100;
/// Protected rows have at most four fifths of the others.
const PROTECTED_FIFTHS: usize = 4;
/// The sketch is made anew when this many times as many rows fit as it was made for, or as small a part.
const SKETCH_FACTOR: usize = 2;

/// Slots are given back when there are more than this many for each row.
const SLOTS_A_ROW_MAX: usize = 4;

/// A call moves or lets go this many rows at most, but one that changes the limit, which comes again and
/// again: when the limit falls far, no reader is to let go all that is too much. The largest row takes the
/// place of fewer.
const ROWS_AT_ONCE: usize = 1024;

/// A list of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Window,
    Probation,
    Protected,
}

/// No slot.
const NONE: u32 = u32::MAX;

struct Row {
    hash: u64,
    key: Box<[u8]>,
    value: Option<Value>,
    list: List,
    /// The slots of the row that came into the list behind it, and before it.
    newer: u32,
    older: u32,
}

impl Row {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, |value| value.len()) + ROW_OVERHEAD_BYTES
    }
}

/// The ends of a list, and the bytes of its rows.
#[derive(Clone, Copy)]
struct Ends {
    newest: u32,
    oldest: u32,
    bytes: usize,
}

impl Default for Ends {
    fn default() -> Self {
        Ends { newest: NONE, oldest: NONE, bytes: 0 }
    }
}

#[derive(Default)]
pub(super) struct Shard {
    slots: Vec<Option<Row>>,
    free: Vec<u32>,
    by_hash: HashMap<u64, u32, BuildHasherDefault<AlreadyHashed>>,
    /// By [`List`].
    lists: [Ends; 3],
    sketch: Sketch,
}

impl Shard {
    pub(super) fn get(&mut self, hash: u64, key: &[u8], bytes_max: usize) -> Option<Option<Value>> {
        self.sketch.count(hash);
        let slot = *self.by_hash.get(&hash)?;
        let row = self.slots[slot as usize].as_ref().filter(|row| *row.key == *key)?;
        let (value, list) = (row.value.clone(), row.list);
        self.unlink(slot);
        self.link(slot, if list == List::Window { list } else { List::Protected });
        self.demote(bytes_max);
        Some(value)
    }

    /// How many rows there is memory for.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Whether the row is there. Does not count as a read.
    pub(super) fn contains(&self, hash: u64, key: &[u8]) -> bool {
        self.by_hash.get(&hash).is_some_and(|slot| *self.row(*slot).key == *key)
    }

    /// Returns the bytes added and the bytes of a row whose place it took.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        key: Box<[u8]>,
        value: Option<Value>,
        list: List,
    ) -> (usize, usize) {
        let replaced = self.by_hash.get(&hash).copied().map_or(0, |slot| self.vacate(slot));
        let row = Row { hash, key, value, list, newer: NONE, older: NONE };
        let added = row.bytes();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(row);
        self.by_hash.insert(hash, slot);
        self.link(slot, list);
        (added, replaced)
    }

    /// Takes a row out. Returns the bytes freed, and the list that it was in; none if it was not cached.
    pub(super) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<(usize, List)> {
        let slot = *self.by_hash.get(&hash)?;
        let list = self.slots[slot as usize].as_ref().filter(|row| *row.key == *key)?.list;
        Some((self.vacate(slot), list))
    }

    /// Lets rows go until `bytes_max` is kept, or a bound on rows is reached; returns the bytes freed.
    pub(super) fn trim(&mut self, bytes_max: usize) -> usize {
        self.demote(bytes_max);
        // Rows that are counted before the first has to go are known by then.
        if self.bytes() > bytes_max / 2 {
            self.fit_sketch(bytes_max);
        }
        let mut freed = 0;
        for _ in 0..ROWS_AT_ONCE {
            if self.ends(List::Window).bytes <= bytes_max / WINDOW_PART {
                break;
            }
            freed += self.contest(bytes_max - bytes_max / WINDOW_PART);
        }
        freed + self.let_go(bytes_max, ROWS_AT_ONCE)
    }

    /// Lets the next rows go, at most this many, while there are more than `bytes_max` bytes; returns the
    /// bytes freed. For a limit that falls far: the lock is not to be held for all of them.
    pub(super) fn let_go(&mut self, bytes_max: usize, rows_max: usize) -> usize {
        let mut freed = 0;
        for _ in 0..rows_max {
            if self.bytes() <= bytes_max {
                break;
            }
            let victim = self.victims().next().unwrap_or(self.ends(List::Window).oldest);
            freed += self.vacate(victim);
        }
        freed
    }

    /// Gives back what slots and map have for rows that are gone, if that is most of them.
    pub(super) fn give_back(&mut self) {
        if self.by_hash.len() * SLOTS_A_ROW_MAX >= self.slots.len() {
            return;
        }
        let mut rows = Vec::with_capacity(self.by_hash.len());
        for list in [List::Window, List::Probation, List::Protected] {
            let mut at = self.ends(list).oldest;
            while at != NONE {
                let row = self.slots[at as usize].take().expect("a slot in a list has a row");
                at = row.newer;
                rows.push(row);
            }
        }
        *self = Shard { sketch: std::mem::take(&mut self.sketch), ..Shard::default() };
        for row in rows {
            self.insert(row.hash, row.key, row.value, row.list);
        }
    }

    /// The oldest row of the window comes to probation, for rows that were counted less often together; or
    /// goes. Returns the bytes freed.
    fn contest(&mut self, main_max: usize) -> usize {
        let candidate = self.ends(List::Window).oldest;
        let (bytes, count) = (self.row(candidate).bytes(), self.sketch.estimate(self.row(candidate).hash));
        let main = self.ends(List::Probation).bytes + self.ends(List::Protected).bytes;
        // Not for more than itself: what is too much besides goes whatever this one is worth.
        let mut short = (main + bytes).saturating_sub(main_max).min(bytes);
        let (mut others, mut losers) = (0, Vec::new());
        for victim in self.victims() {
            if short == 0 || others >= count {
                break;
            }
            others += self.sketch.estimate(self.row(victim).hash);
            short = short.saturating_sub(self.row(victim).bytes());
            losers.push(victim);
        }
        if short > 0 || !losers.is_empty() && others >= count {
            return self.vacate(candidate);
        }
        self.unlink(candidate);
        self.link(candidate, List::Probation);
        losers.into_iter().map(|loser| self.vacate(loser)).sum()
    }

    /// Rows of the main part, in the order in which they would go.
    fn victims(&self) -> impl Iterator<Item = u32> {
        [List::Probation, List::Protected].into_iter().flat_map(move |list| {
            let slot = |slot: u32| (slot != NONE).then_some(slot);
            std::iter::successors(slot(self.ends(list).oldest), move |at| slot(self.row(*at).newer))
        })
    }

    /// Protected rows beyond their part come back to probation, the oldest first.
    fn demote(&mut self, bytes_max: usize) {
        let protected_max = (bytes_max - bytes_max / WINDOW_PART) / 5 * PROTECTED_FIFTHS;
        for _ in 0..ROWS_AT_ONCE {
            if self.ends(List::Protected).bytes <= protected_max {
                break;
            }
            let oldest = self.ends(List::Protected).oldest;
            self.unlink(oldest);
            self.link(oldest, List::Probation);
        }
    }

    /// A sketch for about as many rows as fit.
    fn fit_sketch(&mut self, bytes_max: usize) {
        let row_bytes = self.bytes() / self.by_hash.len().max(1);
        let (rows, known) = (bytes_max / row_bytes.max(1), self.sketch.rows_max());
        if rows > known * SKETCH_FACTOR || rows * SKETCH_FACTOR < known {
            self.sketch = Sketch::new(rows);
        }
    }

    fn vacate(&mut self, slot: u32) -> usize {
        self.unlink(slot);
        let Some(row) = self.slots[slot as usize].take() else { return 0 };
        self.by_hash.remove(&row.hash);
        self.free.push(slot);
        row.bytes()
    }

    /// Makes a row that is in no list the newest of one.
    fn link(&mut self, slot: u32, list: List) {
        let newest = self.ends(list).newest;
        let row = self.row_mut(slot);
        (row.list, row.older, row.newer) = (list, newest, NONE);
        let bytes = row.bytes();
        let ends = &mut self.lists[list as usize];
        (ends.newest, ends.bytes) = (slot, ends.bytes + bytes);
        if newest == NONE {
            ends.oldest = slot;
        } else {
            self.row_mut(newest).newer = slot;
        }
    }

    /// Takes a row out of its list.
    fn unlink(&mut self, slot: u32) {
        let row = self.row(slot);
        let (list, older, newer, bytes) = (row.list, row.older, row.newer, row.bytes());
        if older != NONE {
            self.row_mut(older).newer = newer;
        }
        if newer != NONE {
            self.row_mut(newer).older = older;
        }
        let ends = &mut self.lists[list as usize];
        ends.bytes -= bytes;
        if ends.newest == slot {
            ends.newest = older;
        }
        if ends.oldest == slot {
            ends.oldest = newer;
        }
    }

    fn bytes(&self) -> usize {
        self.lists.iter().map(|ends| ends.bytes).sum()
    }

    fn ends(&self, list: List) -> Ends {
        self.lists[list as usize]
    }

    fn row(&self, slot: u32) -> &Row {
        self.slots[slot as usize].as_ref().expect("a slot in a list has a row")
    }

    fn row_mut(&mut self, slot: u32) -> &mut Row {
        self.slots[slot as usize].as_mut().expect("a slot in a list has a row")
    }
}

/// The keys of the map are hashes: hashing them again would be work for nothing.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("the map is keyed by u64");
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Mixes a key into 64 bits: eight bytes at a time are multiplied to 128 bits and folded. Fast, good enough
/// to spread rows; keys made to collide only push each other out of the cache.
pub(super) fn hash(key: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    const SECOND: u64 = 0xd1b5_4a32_d192_ed03;
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let mut hash = SECOND ^ key.len() as u64;
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), MULTIPLIER);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    hash = fold(hash ^ u64::from_le_bytes(last), MULTIPLIER);
    fold(hash ^ SECOND, MULTIPLIER)
}
