//! Writes: puts, deletes, batches, swaps and range deletes.
//!
//! Each goes the same way: reserve the keys, write items to free slots, wait, apply. What is applied under
//! the locks of all shards concerned is one moment for every reader and for a cut.

use std::{
    collections::{BTreeMap, VecDeque},
    iter::once,
    sync::atomic::Ordering,
};

use kvilt_base::{Direction, KeyRange, Result, Swap, Value, Version, WriteBatch, limits, planted};
use kvilt_format::slab::Content;

use crate::{
    index::{Entries, Index},
    place::Place,
    shard::{Locked, Shard},
    state::Written,
    store::{PanicGuard, Store},
};

/// Items of a batch that are in flight in a shard at once: a batch of random keys has a block for each.
const BATCH_ITEMS_IN_FLIGHT: usize = 64;

/// A change whose item was written: shard, key, value and place.
type Done<'b> = (usize, &'b [u8], Option<&'b [u8]>, Place);

/// What a batch does to a key of a shard.
struct Change<'b> {
    key: &'b [u8],
    value: Option<&'b [u8]>,
}

impl Store {
    pub(crate) fn put(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        limits::check_key(key, limits::ENGINE_KEY_BYTES_MAX)?;
        limits::check_value(value.unwrap_or_default())?;
        self.allow_writes()?;
        self.with_key(key, value, |shard, state| self.change(shard, state, key, value))
    }

    pub(crate) fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        limits::check_key(key, limits::ENGINE_KEY_BYTES_MAX)?;
        limits::check_value(new.unwrap_or_default())?;
        self.allow_writes()?;
        self.with_key(key, new, |shard, state| self.swap(shard, state, key, expected, new))
    }

    /// Reserves a key for a write, which may give it this value, and counts it.
    fn with_key<T>(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        write: impl FnOnce(&Shard, &mut Locked<'_>) -> Result<T>,
    ) -> Result<T> {
        let shard = self.shard_of(key);
        // Made before the shard is locked: see there.
        let mut reserved = Reserved { store: self, held: Held::Nothing };
        let mut state = shard.lock();
        shard.reserve(&mut state, once(key));
        reserved.held = Held::Key(shard, key);
        let outcome = write(shard, &mut state);
        reserved.release_with(&mut state);
        drop(state);
        self.has_made_work();
        self.counters.count_put(key, value);
        outcome
    }

    fn swap(
        &self,
        shard: &Shard,
        state: &mut Locked<'_>,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        let found = self.value_of(shard, state, key, None, None)?;
        let there = found.map(|(block, range)| Value::copied(&block[range]));
        if there.as_deref() != expected {
            return Ok(Swap::Differs(there));
        }
        self.change(shard, state, key, new)?;
        Ok(Swap::Done)
    }

    /// Changes a key that is reserved, alone.
    fn change(&self, shard: &Shard, state: &mut Locked<'_>, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let Some(content) = content_of(state, key, value)? else { return Ok(()) };
        // Again, for what has happened while the key was waited for.
        self.allow_writes()?;
        let version = self.begin(state);
        let written = self.write_item(state, version, 1, content);
        let outcome = written.and_then(|written| {
            let is_early = planted!(AppliedAtSubmission, false => true);
            let outcome = if is_early { Ok(()) } else { self.wait(shard, state, &written) };
            outcome.map(|()| written.place)
        });
        state.in_flight.remove(&version);
        apply(state, key, value, outcome?);
        Ok(())
    }

    /// Waits for an item; a slot whose write failed is given back.
    fn wait(&self, shard: &Shard, state: &mut Locked<'_>, written: &Written) -> Result<()> {
        let outcome = shard.wait(state, written.ticket).map(drop);
        if outcome.is_err() {
            if let Some(spoilt) = state.blocks.spoilt() {
                self.poison(spoilt);
            } else {
                state.give_back(written.place);
            }
        }
        outcome
    }

    fn write_item(
        &self,
        state: &mut Locked<'_>,
        version: Version,
        items: u32,
        content: Content<'_>,
    ) -> Result<Written> {
        let written = state.write(version, items, content);
        if let (Err(_), Some(spoilt)) = (&written, state.blocks.spoilt()) {
            self.poison(spoilt);
        }
        written
    }

    /// A write begins: it has its version, and is known to every cut until it is applied or given up.
    fn begin(&self, state: &mut Locked<'_>) -> Version {
        // Relaxed: drawn under the lock of a shard, which a cut holds too.
        let version = Version::from_u64(self.version.fetch_add(1, Ordering::Relaxed) + 1);
        state.in_flight.insert(version);
        version
    }

    pub(crate) fn write(&self, batch: &WriteBatch) -> Result<()> {
        let settings = &self.settings;
        let (operations_max, bytes_max) = (settings.batch_operations_max, settings.batch_bytes_max);
        limits::check_batch(batch, operations_max, bytes_max, limits::ENGINE_KEY_BYTES_MAX)?;
        self.allow_writes()?;
        // The last operation of a key counts.
        let by_key: BTreeMap<&[u8], Option<&[u8]>> =
            batch.operations().map(|operation| (operation.key, operation.value)).collect();
        let mut by_shard: BTreeMap<usize, Vec<Change<'_>>> = BTreeMap::new();
        for (key, value) in by_key {
            by_shard.entry(self.shard_number(key)).or_default().push(Change { key, value });
        }
        let mut reserved = Reserved { store: self, held: Held::Keys(Vec::new()) };
        for (shard, changes) in &by_shard {
            let shard = &self.shards[*shard];
            shard.reserve(&mut shard.lock(), changes.iter().map(|change| change.key));
            reserved.also(shard, changes.iter().map(|change| change.key).collect());
        }
        let outcome = self.write_reserved(&by_shard);
        self.has_made_work();
        self.counters.count_batch(batch);
        outcome
    }

    fn write_reserved(&self, by_shard: &BTreeMap<usize, Vec<Change<'_>>>) -> Result<()> {
        let Some(first) = by_shard.keys().next() else { return Ok(()) };
        self.allow_writes()?;
        // The keys are reserved, so which of them have a value does not change.
        let mut items = 0;
        for (shard, changes) in by_shard {
            let state = self.shards[*shard].lock();
            for change in changes {
                items += u32::from(content_of(&state, change.key, change.value)?.is_some());
            }
        }
        if items == 0 {
            return Ok(());
        }
        let version = self.begin(&mut self.shards[*first].lock());
        let mut written = Vec::new();
        let mut outcome = Ok(());
        for (shard, changes) in by_shard {
            outcome = self.write_items(*shard, changes, version, items, &mut written);
            if outcome.is_err() {
                break;
            }
        }
        let mut states: BTreeMap<usize, Locked<'_>> =
            by_shard.keys().map(|shard| (*shard, self.shards[*shard].lock())).collect();
        for (shard, key, value, place) in written {
            let state = states.get_mut(&shard).expect("the shards of a batch are locked");
            match outcome {
                Ok(()) => apply(state, key, value, place),
                // Of a batch that is not whole, no item counts.
                Err(_) => state.is_spent(place),
            }
        }
        states.get_mut(first).expect("the first shard is one of them").in_flight.remove(&version);
        outcome
    }

    /// Writes the items of a batch that a shard has. What was written is in `written`, also after an error.
    fn write_items<'b>(
        &self,
        number: usize,
        changes: &[Change<'b>],
        version: Version,
        items: u32,
        written: &mut Vec<Done<'b>>,
    ) -> Result<()> {
        let shard = &self.shards[number];
        let mut state = shard.lock();
        let mut in_flight: VecDeque<(&Change<'b>, Written)> = VecDeque::new();
        let mut outcome = Ok(());
        let mut changes = changes.iter();
        loop {
            let next = if outcome.is_ok() { changes.next() } else { None };
            if let Some(change) = next {
                let begun = content_of(&state, change.key, change.value).and_then(|content| {
                    content.map(|content| self.write_item(&mut state, version, items, content)).transpose()
                });
                match begun {
                    Ok(item) => in_flight.extend(item.map(|item| (change, item))),
                    Err(error) => outcome = Err(error),
                }
            }
            if next.is_some() && in_flight.len() < BATCH_ITEMS_IN_FLIGHT {
                continue;
            }
            match in_flight.pop_front() {
                Some((change, item)) => match self.wait(shard, &mut state, &item) {
                    Ok(()) => written.push((number, change.key, change.value, item.place)),
                    Err(error) => outcome = outcome.and(Err(error)),
                },
                None if next.is_none() => return outcome,
                None => {}
            }
        }
    }

    pub(crate) fn delete_range(&self, range: &KeyRange) -> Result<()> {
        limits::check_key(&range.start, limits::ENGINE_KEY_BYTES_MAX)?;
        limits::check_key(range.end.as_deref().unwrap_or_default(), limits::ENGINE_KEY_BYTES_MAX)?;
        self.allow_writes()?;
        if range.is_empty() {
            return Ok(());
        }
        let mut reserved = Reserved { store: self, held: Held::Ranges(Vec::new()) };
        for shard in &self.shards {
            shard.reserve_range(&mut shard.lock(), range);
            reserved.also(shard, Vec::new());
        }
        let outcome = self.delete_reserved(range);
        self.has_made_work();
        outcome
    }

    fn delete_reserved(&self, range: &KeyRange) -> Result<()> {
        self.allow_writes()?;
        if !self.shards.iter().any(|shard| has_in(&shard.lock().index, range)) {
            return Ok(());
        }
        const RECORDS_IN: usize = 0;
        let shard = &self.shards[RECORDS_IN];
        let (version, place) = {
            let mut state = shard.lock();
            let version = self.begin(&mut state);
            let content = Content::RangeDelete { start: &range.start, end: range.end.as_deref() };
            let written = self.write_item(&mut state, version, 1, content);
            let outcome =
                written.and_then(|written| self.wait(shard, &mut state, &written).map(|()| written.place));
            if outcome.is_err() {
                state.in_flight.remove(&version);
            }
            (version, outcome?)
        };
        let mut states = self.lock_all();
        for state in &mut states {
            let clock = state.clock;
            let removed = state.index.take_range(range);
            if !removed.is_empty() {
                state.history.remove(removed, clock);
            }
            state.charge();
        }
        // Like a tombstone: the next cut has the map without the entries.
        states[RECORDS_IN].is_spent(place);
        states[RECORDS_IN].in_flight.remove(&version);
        Ok(())
    }
}

/// Keys, or a range of them, that nobody else writes until this is dropped. To be made before a shard is
/// locked: it locks them when it goes, also if a panic ends the write.
struct Reserved<'s, 'k> {
    store: &'s Store,
    held: Held<'s, 'k>,
}

enum Held<'s, 'k> {
    Nothing,
    Key(&'s Shard, &'k [u8]),
    Keys(Vec<(&'s Shard, Vec<&'k [u8]>)>),
    /// The range that each of these shards has closed.
    Ranges(Vec<&'s Shard>),
}

impl<'s, 'k> Reserved<'s, 'k> {
    fn also(&mut self, shard: &'s Shard, keys: Vec<&'k [u8]>) {
        match &mut self.held {
            Held::Keys(held) => held.push((shard, keys)),
            Held::Ranges(held) => held.push(shard),
            Held::Nothing | Held::Key(..) => unreachable!("a key alone has one shard"),
        }
    }

    /// Gives a key back under the lock of its shard.
    fn release_with(&mut self, state: &mut Locked<'_>) {
        if let Held::Key(shard, key) = std::mem::replace(&mut self.held, Held::Nothing) {
            shard.release(state, once(key));
        }
    }
}

impl Drop for Reserved<'_, '_> {
    fn drop(&mut self) {
        drop(PanicGuard(self.store));
        match &self.held {
            Held::Nothing => {}
            Held::Key(shard, key) => shard.release(&mut shard.lock(), once(*key)),
            Held::Keys(held) => {
                for (shard, keys) in held {
                    shard.release(&mut shard.lock(), keys.iter().copied());
                }
            }
            Held::Ranges(held) => held.iter().for_each(|shard| shard.release_range(&mut shard.lock())),
        }
    }
}

/// What is to be written for a change; nothing if it changes nothing.
///
/// Errors: `LimitReached` if the index has no room for a new key.
fn content_of<'c>(state: &Locked<'_>, key: &'c [u8], value: Option<&'c [u8]>) -> Result<Option<Content<'c>>> {
    match (value, state.index.get(key)) {
        (Some(value), before) => {
            if before.is_none() {
                state.allow_new(key)?;
            }
            Ok(Some(Content::Value { key, value }))
        }
        (None, Some(place)) => Ok(Some(Content::Tombstone { place: place.to_u64() })),
        (None, None) => Ok(None),
    }
}

fn has_in(index: &Index, range: &KeyRange) -> bool {
    let mut entries = Entries::default();
    index.walk(range, Direction::Forward, 1, &mut entries);
    !entries.is_empty()
}

/// What was written counts from now on.
fn apply(state: &mut Locked<'_>, key: &[u8], value: Option<&[u8]>, place: Place) {
    match value {
        Some(_) => state.apply(key, Some(place)),
        None => {
            state.apply(key, None);
            // A tombstone counts by its number until the next cut, which has the map without the item.
            state.is_spent(place);
        }
    }
}
