//! `History`: what keys had before, as far as an open view needs it.
//!
//! The index knows the newest place of each key and no version. A view is a number; when a key's place is
//! replaced while a view is open that may need the old one, the old one is noted here, with the number of the
//! newest view that it is for. So a reader at a view looks here first, and in the index if nothing is noted.
//!
//! What is always true:
//! - K-5: for an open view `v` and a key, the first note of the key whose `until` is at least `v` is what the
//!   view sees; if there is none, the index is.
//! - A range delete takes the index's leaves over as they are, so its notes are an index of their own until
//!   they are dealt with one by one.

use std::collections::{BTreeMap, VecDeque};

use kvilt_base::{Direction, KeyRange};

use crate::{
    index::{Entries, Index},
    place::Place,
};

/// What a key had, and for which views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    /// The newest view that this is for.
    until: u64,
    /// None if the key had nothing.
    place: Option<Place>,
}

/// Entries that a range delete took out of the index, and that are not yet dealt with.
pub(crate) struct Removed {
    /// The newest view that they are for.
    until: u64,
    index: Index,
}

/// What became of the entries that a step dealt with.
#[derive(Default)]
pub(crate) struct Dealt {
    /// All of their slots: none counts any more.
    pub(crate) places: Vec<Place>,
    /// Of these, the ones that no view needs.
    pub(crate) unneeded: Vec<Place>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct History {
    /// Open views, ascending.
    views: Vec<u64>,
    notes: BTreeMap<Box<[u8]>, Vec<Note>>,
    notes_bytes: u64,
    removed: VecDeque<Removed>,
    /// Whether a view was closed since the notes were looked through.
    has_closed: bool,
}

/// Bytes of a note beside its key, about: its part of a vector, of a node, and of the heap's overhead.
const NOTE_BYTES: u64 = 96;

impl History {
    pub(crate) fn open(&mut self, view: u64) {
        debug_assert!(self.views.last().is_none_or(|last| *last < view));
        self.views.push(view);
    }

    pub(crate) fn close(&mut self, view: u64) {
        if let Ok(at) = self.views.binary_search(&view) {
            self.views.remove(at);
            self.has_closed = true;
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.notes_bytes + self.removed.iter().map(|removed| removed.index.bytes()).sum::<u64>()
    }

    /// A key's place was replaced, when `clock` was the newest view's number. True if the old place is kept
    /// for a view; if not, it is nobody's.
    pub(crate) fn note(&mut self, key: &[u8], place: Option<Place>, clock: u64) -> bool {
        if self.views.is_empty() {
            return false;
        }
        let notes = self.notes.get(key);
        // Older views have the key's last note, or that of a range delete.
        let removed = self.removed.iter().rev().find(|removed| removed.index.get(key).is_some());
        let last = notes.and_then(|notes| notes.last()).map(|note| note.until);
        let before = last.max(removed.map(|removed| removed.until)).unwrap_or(0);
        if !self.is_viewed(before, clock) {
            return false;
        }
        self.add(key, Note { until: clock, place });
        true
    }

    fn add(&mut self, key: &[u8], note: Note) {
        self.notes_bytes += NOTE_BYTES + key.len() as u64;
        match self.notes.get_mut(key) {
            Some(notes) => {
                let at = notes.partition_point(|other| other.until <= note.until);
                notes.insert(at, note);
            }
            None => {
                self.notes.insert(key.into(), vec![note]);
            }
        }
    }

    /// Whether a view above `after` and up to `until` is open.
    fn is_viewed(&self, after: u64, until: u64) -> bool {
        let first = self.views.partition_point(|view| *view <= after);
        self.views.get(first).is_some_and(|view| *view <= until)
    }

    /// Entries were taken out of the index by a range delete, when `clock` was the newest view's number.
    pub(crate) fn remove(&mut self, index: Index, clock: u64) {
        self.removed.push_back(Removed { until: clock, index });
    }

    /// What a view sees of a key beside the index: none if that is what the index says.
    pub(crate) fn get(&self, key: &[u8], view: u64) -> Option<Option<Place>> {
        let noted = self
            .notes
            .get(key)
            .and_then(|notes| notes.iter().find(|note| note.until >= view))
            .map(|note| (note.until, note.place));
        let removed = self
            .removed
            .iter()
            .filter(|removed| removed.until >= view)
            .find_map(|removed| removed.index.get(key).map(|place| (removed.until, Some(place))));
        match (noted, removed) {
            (Some(noted), Some(removed)) if noted.0 <= removed.0 => Some(noted.1),
            (_, Some(removed)) => Some(removed.1),
            (noted, None) => noted.map(|(_, place)| place),
        }
    }

    /// The keys of a range of which a view may see something else than the index says.
    pub(crate) fn keys_in(&self, range: &KeyRange, view: u64, keys: &mut Vec<Vec<u8>>) {
        let bounds = (
            std::ops::Bound::Included(range.start.as_slice()),
            range.end.as_deref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded),
        );
        if !range.is_empty() {
            let notes = self.notes.range::<[u8], _>(bounds);
            keys.extend(notes.map(|(key, _)| key.to_vec()));
        }
        for removed in self.removed.iter().filter(|removed| removed.until >= view) {
            let mut left = range.clone();
            let mut entries = Entries::default();
            loop {
                entries.clear();
                removed.index.walk(&left, Direction::Forward, REMOVED_WALK_ENTRIES, &mut entries);
                keys.extend(entries.iter().map(|(key, _)| key.to_vec()));
                match entries.iter().last() {
                    Some((last, _)) if entries.len() == REMOVED_WALK_ENTRIES => {
                        left.start = kvilt_base::key::successor(last);
                    }
                    _ => break,
                }
            }
        }
        keys.sort_unstable();
        keys.dedup();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.notes.is_empty() && self.removed.is_empty()
    }

    /// Whether a range delete took this entry out, and it is not yet dealt with.
    pub(crate) fn has_removed_entry(&self, key: &[u8], place: Place) -> bool {
        self.removed.iter().any(|removed| removed.index.get(key) == Some(place))
    }

    /// Whether entries of a range delete are left to be dealt with.
    pub(crate) fn has_removed(&self) -> bool {
        !self.removed.is_empty()
    }

    /// Deals with up to `max` entries of the oldest range delete.
    pub(crate) fn deal_with_removed(&mut self, max: usize) -> Dealt {
        let mut dealt = Dealt::default();
        let Some(removed) = self.removed.front_mut() else { return dealt };
        let until = removed.until;
        let mut entries = Entries::default();
        removed.index.take_first(max, &mut entries);
        let is_done = removed.index.is_empty();
        for (key, place) in entries.iter() {
            dealt.places.push(place);
            let notes = self.notes.get(key);
            let before = notes.and_then(|notes| notes.iter().rev().find(|note| note.until <= until));
            let is_viewed = self.is_viewed(before.map_or(0, |note| note.until), until);
            if kvilt_base::planted!(RemovedNotNoted, is_viewed => false) {
                self.add(key, Note { until, place: Some(place) });
            } else {
                dealt.unneeded.push(place);
            }
        }
        if is_done {
            self.removed.pop_front();
        }
        dealt
    }

    /// Takes out what no view needs any more.
    pub(crate) fn prune(&mut self, unused: &mut Vec<Place>) {
        if !std::mem::take(&mut self.has_closed) {
            return;
        }
        let (views, notes_bytes) = (&self.views, &mut self.notes_bytes);
        self.notes.retain(|key, notes| {
            let mut before = 0;
            notes.retain(|note| {
                let first = views.partition_point(|view| *view <= before);
                let is_needed = !kvilt_base::planted!(NoteLost, false => true)
                    && views.get(first).is_some_and(|view| *view <= note.until);
                before = note.until;
                if !is_needed {
                    *notes_bytes -= NOTE_BYTES + key.len() as u64;
                    unused.extend(note.place);
                }
                is_needed
            });
            !notes.is_empty()
        });
    }
}

/// Entries of a range delete that are copied at a time while a scan looks through them.
const REMOVED_WALK_ENTRIES: usize = 256;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const KEYS: u8 = 5;

    fn index_of(places: &BTreeMap<u8, Place>) -> Index {
        let mut index = Index::new();
        for (key, place) in places {
            index.insert(&[*key], *place);
        }
        index
    }

    /// A history beside what each open view saw when it was opened.
    #[derive(Default)]
    struct Bench {
        history: History,
        now: BTreeMap<u8, Place>,
        views: BTreeMap<u64, BTreeMap<u8, Place>>,
        clock: u64,
        last_slot: u64,
        /// Places that are nobody's any more.
        freed: Vec<Place>,
    }

    impl Bench {
        fn replaces(&mut self, key: u8, has_value: bool) {
            let before = match has_value {
                true => {
                    self.last_slot += 1;
                    self.now.insert(key, Place::new(1, self.last_slot))
                }
                false => self.now.remove(&key),
            };
            if !self.history.note(&[key], before, self.clock) {
                self.freed.extend(before);
            }
        }

        fn deletes(&mut self, keys: std::ops::Range<u8>) {
            let removed: BTreeMap<u8, Place> =
                self.now.range(keys.clone()).map(|(key, place)| (*key, *place)).collect();
            self.now.retain(|key, _| !keys.contains(key));
            if !removed.is_empty() {
                self.history.remove(index_of(&removed), self.clock);
            }
        }

        fn step(&mut self, what: u8, key: u8, other: u8) {
            match what {
                0..5 => self.replaces(key, true),
                5 => self.replaces(key, false),
                6 => self.deletes(key..other.max(key + 1)),
                7 | 8 => {
                    self.clock += 1;
                    self.history.open(self.clock);
                    self.views.insert(self.clock, self.now.clone());
                }
                9 => {
                    let nth = usize::from(other) % self.views.len().max(1);
                    if let Some(view) = self.views.keys().nth(nth).copied() {
                        self.views.remove(&view);
                        self.history.close(view);
                    }
                }
                10 => self.freed.extend(self.history.deal_with_removed(usize::from(other) + 1).unneeded),
                _ => self.history.prune(&mut self.freed),
            }
        }

        fn check(&self) -> Result<(), TestCaseError> {
            let all = KeyRange::all();
            for (view, seen) in &self.views {
                let mut noted = Vec::new();
                self.history.keys_in(&all, *view, &mut noted);
                for key in 0..KEYS {
                    let beside = self.history.get(&[key], *view);
                    let found = beside.unwrap_or(self.now.get(&key).copied());
                    prop_assert_eq!(found, seen.get(&key).copied(), "K-5, view {}, key {}", view, key);
                    prop_assert!(beside.is_none() || noted.contains(&vec![key]));
                    prop_assert!(found.is_none_or(|place| !self.freed.contains(&place)));
                }
            }
            Ok(())
        }
    }

    proptest! {
        /// K-5, and no place that a view sees is nobody's.
        #[test]
        fn a_view_sees_what_there_was(
            steps in prop::collection::vec((0u8..12, 0..KEYS, 0..KEYS), 0..80),
        ) {
            let mut bench = Bench::default();
            for (what, key, other) in steps {
                bench.step(what, key, other);
                bench.check()?;
            }
            // When no view is left, nothing is kept, and each place is given back once.
            for view in std::mem::take(&mut bench.views).into_keys() {
                bench.history.close(view);
            }
            while bench.history.has_removed() {
                let dealt = bench.history.deal_with_removed(3);
                bench.freed.extend(dealt.unneeded);
            }
            bench.history.prune(&mut bench.freed);
            prop_assert!(bench.history.is_empty());
            prop_assert_eq!(bench.history.bytes(), 0);
            let places = bench.freed.len() + bench.now.len();
            bench.freed.extend(bench.now.values().copied());
            bench.freed.sort_unstable();
            bench.freed.dedup();
            prop_assert_eq!((bench.freed.len(), places as u64), (places, bench.last_slot));
        }
    }
}
