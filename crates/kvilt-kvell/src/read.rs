//! Reads: gets, many gets at once, and scans.
//!
//! A get looks into the index and reads one block. What it finds there is checked against the key: between
//! the look and the block's arrival the slot may have been freed and used again, and then it looks again.

use std::{ops::Range, sync::atomic::Ordering};

use kvilt_base::{Direction, Error, KeyRange, Result, Rows, Scanned, key::successor};
use kvilt_format::slab::{Content, Decoded, Item};

use crate::{
    blocks::Found,
    index::Entries,
    place::Place,
    shard::{Locked, Shard},
    state::State,
    store::Store,
    window::{Located, WINDOW_ROWS, Window},
};

/// A block that does not have what the index says, this often in a row for the same place, is damaged.
const LOOKS_MAX: usize = 3;
/// Entries that a scan copies out of a shard's index at a time.
const WALK_ENTRIES_FIRST: usize = 16;
const WALK_ENTRIES_MAX: usize = 256;

impl Store {
    pub(crate) fn get(&self, key: &[u8], view: Option<u64>, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        kvilt_base::limits::check_key(key, kvilt_base::limits::ENGINE_KEY_BYTES_MAX)?;
        self.ensure_open()?;
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        let shard = self.shard_of(key);
        let value = {
            let mut state = shard.lock();
            self.value_of(shard, &mut state, key, view, None)?
        };
        if let Some(view) = view {
            self.ensure_view(view)?;
        }
        if let Some((block, range)) = &value {
            found(&block[range.clone()]);
        }
        Ok(value.is_some())
    }

    /// A key's value: a block, and where in it. The lock is let go while the block is read. `begun`: a read
    /// that was begun before, for this place.
    pub(crate) fn value_of(
        &self,
        shard: &Shard,
        state: &mut Locked<'_>,
        key: &[u8],
        view: Option<u64>,
        mut begun: Option<(Place, Found)>,
    ) -> Result<Option<Located>> {
        let mut looks = 0;
        loop {
            let (place, found) = match begun.take() {
                Some(begun) => begun,
                None => match state.find(key, view) {
                    Some(place) => (place, state.begin_read(place)),
                    None => return Ok(None),
                },
            };
            let block = shard.wait_for(state, found)?;
            match value_in(state, &block, place, key) {
                Ok(range) => return Ok(Some((block, range))),
                Err(damage) => {
                    looks += 1;
                    if looks == LOOKS_MAX && state.find(key, view) == Some(place) {
                        return Err(damage);
                    }
                    looks %= LOOKS_MAX;
                }
            }
        }
    }

    pub(crate) fn get_many(
        &self,
        keys: &[&[u8]],
        view: Option<u64>,
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.ensure_open()?;
        for key in keys {
            kvilt_base::limits::check_key(key, kvilt_base::limits::ENGINE_KEY_BYTES_MAX)?;
        }
        self.counters.gets.fetch_add(keys.len() as u64, Ordering::Relaxed);
        let mut window = Window::new(self, view);
        let mut left = keys.iter();
        for number in 0..keys.len() {
            if window.is_low(WINDOW_ROWS) {
                while window.has_room(WINDOW_ROWS)
                    && let Some(key) = left.next()
                {
                    window.push(self.shard_number(key), *key, None);
                }
                window.submit();
            }
            let (_, value) = window.pop().expect("the window has the keys that are left")?;
            found(number, value.as_ref().map(|(block, range)| &block[range.clone()]));
        }
        Ok(())
    }

    pub(crate) fn scan(
        &self,
        view: u64,
        range: &KeyRange,
        direction: Direction,
        rows: &mut dyn Rows,
    ) -> Result<Scanned> {
        self.ensure_open()?;
        self.ensure_view(view)?;
        let mut scan = Scan::new(self, view, range, direction, rows.wanted());
        let outcome = scan.run(rows);
        self.counters.scanned_rows.fetch_add(scan.given, Ordering::Relaxed);
        outcome
    }
}

/// Where in a block the value of a key is, whose item has this place; `Corrupted` if it is not there.
fn value_in(state: &State, block: &[u8], place: Place, key: &[u8]) -> Result<Range<usize>> {
    let class = place.size_class();
    let begin = class.offset_in_block(place.slot());
    let slot = &block[begin..begin + class.slot_bytes()];
    let id = state.identity_of(class);
    let offset = class.slot_offset(place.slot());
    let damaged = |what: &str| {
        let file = kvilt_format::slab::slab_name(state.ground.shard, class);
        Error::corrupted(file, offset, format!("{what}, where key \"{}\" is", key.escape_ascii()))
    };
    match Item::decode(slot, id, offset) {
        Decoded::Item(Item { content: Content::Value { key: found, value }, .. }) if found == key => {
            let value_begin = begin + kvilt_format::slab::ITEM_HEADER_BYTES + found.len();
            Ok(value_begin..value_begin + value.len())
        }
        Decoded::Item(_) => Err(damaged("there is another item")),
        Decoded::Empty => Err(damaged("there is no item")),
        Decoded::Bad(why) => Err(damaged(why)),
    }
}

/// A scan: the shards' indexes merged, with the blocks of the next rows in flight.
struct Scan<'s> {
    store: &'s Store,
    view: u64,
    direction: Direction,
    cursors: Vec<Cursor>,
    window: Window<'s, Vec<u8>>,
    /// How many rows are wanted at most, less those given.
    wanted: u64,
    given: u64,
    /// What is left of the range behind the rows that were given.
    left: KeyRange,
}

/// Where a scan is in a shard.
struct Cursor {
    /// What is not yet copied.
    left: Option<KeyRange>,
    entries: Vec<(Vec<u8>, Place)>,
    /// The next of them.
    at: usize,
    walk_entries: usize,
}

impl<'s> Scan<'s> {
    fn new(store: &'s Store, view: u64, range: &KeyRange, direction: Direction, wanted: Option<u64>) -> Self {
        let cursor = || Cursor {
            left: Some(range.clone()),
            entries: Vec::new(),
            at: 0,
            walk_entries: WALK_ENTRIES_FIRST,
        };
        Scan {
            store,
            view,
            direction,
            cursors: store.shards.iter().map(|_| cursor()).collect(),
            window: Window::new(store, Some(view)),
            wanted: wanted.unwrap_or(u64::MAX),
            given: 0,
            left: range.clone(),
        }
    }

    fn run(&mut self, rows: &mut dyn Rows) -> Result<Scanned> {
        loop {
            self.fill_window();
            let Some(row) = self.window.pop() else {
                // Of a view that has expired, rows behind the last may be gone.
                self.store.ensure_view(self.view)?;
                return Ok(Scanned::Ended);
            };
            let (key, Some((block, range))) = row? else { continue };
            self.given += 1;
            self.wanted = self.wanted.saturating_sub(1);
            let flow = rows.take(&key, &block[range]);
            match self.direction {
                Direction::Forward => self.left.start = successor(&key),
                Direction::Backward => self.left.end = Some(key),
            }
            if flow.is_break() {
                return Ok(match rows.wanted() {
                    Some(0) => Scanned::Enough,
                    _ => Scanned::Left(self.left.clone()),
                });
            }
        }
    }

    /// Begins to read the blocks of the next rows, as many as are wanted and may be in flight.
    fn fill_window(&mut self) {
        let rows_max = (WINDOW_ROWS as u64).min(self.wanted.max(1)) as usize;
        if !self.window.is_low(rows_max) {
            return;
        }
        while self.window.has_room(rows_max)
            && let Some((shard, key, place)) = self.next_entry()
        {
            self.window.push(shard, key, Some(place));
        }
        self.window.submit();
    }

    /// The next key of all shards.
    fn next_entry(&mut self) -> Option<(usize, Vec<u8>, Place)> {
        for shard in 0..self.cursors.len() {
            self.copy_entries(shard);
        }
        let direction = self.direction;
        let heads = self
            .cursors
            .iter()
            .enumerate()
            .filter_map(|(shard, cursor)| cursor.entries.get(cursor.at).map(|(key, _)| (shard, key)));
        let (shard, _) = heads.reduce(|best, other| {
            let is_before = match direction {
                Direction::Forward => other.1 < best.1,
                Direction::Backward => other.1 > best.1,
            };
            if is_before { other } else { best }
        })?;
        let cursor = &mut self.cursors[shard];
        let (key, place) = std::mem::take(&mut cursor.entries[cursor.at]);
        cursor.at += 1;
        Some((shard, key, place))
    }

    /// Copies entries out of a shard's index if those copied before are used up.
    fn copy_entries(&mut self, shard: usize) {
        let cursor = &mut self.cursors[shard];
        while cursor.at == cursor.entries.len()
            && let Some(left) = &cursor.left
        {
            let max = cursor.walk_entries.min(usize::try_from(self.wanted).unwrap_or(usize::MAX)).max(1);
            let state = self.store.shards[shard].lock();
            let (entries, left) = state.walk(left, self.direction, self.view, max);
            drop(state);
            cursor.walk_entries = (cursor.walk_entries * 2).min(WALK_ENTRIES_MAX);
            (cursor.entries, cursor.left, cursor.at) = (entries, left, 0);
        }
    }
}

impl State {
    /// Begins to read the block in which an item lies.
    pub(crate) fn begin_read(&mut self, place: Place) -> Found {
        let location = self.slab(place.class()).expect("a place is in a slab").location(place.slot());
        self.blocks.read(&location)
    }

    /// Entries of a range at a view, in order, from about `max` of the index; and what is left behind them.
    fn walk(
        &self,
        range: &KeyRange,
        direction: Direction,
        view: u64,
        max: usize,
    ) -> (Vec<(Vec<u8>, Place)>, Option<KeyRange>) {
        let mut entries = Entries::default();
        self.index.walk(range, direction, max, &mut entries);
        // What the walk covered, and what is left.
        let (mut covered, mut left) = (range.clone(), None);
        if entries.len() == max
            && let Some((last, _)) = entries.iter().last()
        {
            let (mut behind, last) = (range.clone(), last.to_vec());
            match direction {
                Direction::Forward => {
                    behind.start = successor(&last);
                    covered.end = Some(behind.start.clone());
                }
                Direction::Backward => {
                    covered.start.clone_from(&last);
                    behind.end = Some(last);
                }
            }
            left = Some(behind).filter(|left| !left.is_empty());
        }
        let mut found: Vec<(Vec<u8>, Place)> =
            entries.iter().map(|(key, place)| (key.to_vec(), place)).collect();
        if !self.history.is_empty() {
            let mut noted = Vec::new();
            self.history.keys_in(&covered, view, &mut noted);
            found.retain(|(key, _)| noted.binary_search(key).is_err());
            for key in noted {
                if let Some(place) = self.find(&key, Some(view)) {
                    found.push((key, place));
                }
            }
            found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            if direction == Direction::Backward {
                found.reverse();
            }
        }
        (found, left)
    }
}
