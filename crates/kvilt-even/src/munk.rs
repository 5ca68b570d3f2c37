//! `Munk`: a chunk's memory form (EvenDB §2.2, §3.1): everything the chunk holds, ready to be read.
//!
//! ```text
//!   puts ──▶ tail (pile) ──full──▶ frozen tails ──background──▶ run (sorted)
//!     └─────────────── a newer row of a key that is there ───────▶
//! ```
//!
//! A reader looks at the tails, newest first, then at the run; the first entry it may see is the answer. A
//! munk value is immutable except for what its newest tail takes in, and for rows of its run that are
//! replaced by newer ones: freezing, compacting and splitting make a new munk that shares the parts that
//! stayed. So nothing that a reader stands on ever changes under it, and no put waits while the background
//! sorts.
//!
//! A put goes to the tail, or, if the run has its key, no tail has, and no view sees the row that is there,
//! takes that row's place (docs/design/0050-rows-replaced-one-by-one.md). While the background reads the run
//! it holds it, and all puts go to the tail.
//!
//! * **E-3** A munk holds, for its chunk's range, every entry that a reader can see: reads of a chunk with a
//!   munk never look at its funk.

pub(crate) mod run;
pub(crate) mod tail;

use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use kvilt_base::{
    Budget, Direction, EntryRef, Hiding as _, KeyRange, Kind, Merge, RangeTombstone, Source, Version,
    steps::steps,
};
use kvilt_sync::{
    published::Pin,
    rows::{Hold, Replaced},
    versions::Versions,
};

use self::{
    run::{Run, RunReader},
    tail::Tail,
};
use crate::{key_hash::key_hash, parts};
use kvilt_sync::tombstones::{Hidden, Over, Tombstones};

/// Frozen tails that may wait for the background; a put that would make one more waits itself.
pub(crate) const FROZEN_TAILS_MAX: usize = 4;

/// So many entries are looked at to find out that a range delete deletes nothing.
const ENTRIES_LOOKED_AT_MAX: usize = 32;

/// While rows are replaced, a run's memory is charged in steps of this part of it, so that a put seldom
/// touches the shared gauge …
const CHARGE_STEP_PART: u64 = 32;
/// … within these bounds, in bytes.
const CHARGE_STEP_BYTES: RangeInclusive<u64> = 1 << 10..=16 << 10;

/// A run with the budget it is charged to.
pub(crate) struct ChargedRun {
    /// The entries.
    pub(crate) run: Run,
    budget: Arc<Budget>,
    charged: AtomicU64,
    /// For the range tombstones that lie over it; changed under the chunk's gate only.
    charged_tombstones: AtomicU64,
}

impl ChargedRun {
    /// A run, charged.
    pub(crate) fn new(run: Run, budget: &Arc<Budget>) -> Arc<Self> {
        let bytes = run.memory_bytes() as u64;
        budget.add(parts::MUNKS, bytes);
        Arc::new(ChargedRun {
            run,
            budget: Arc::clone(budget),
            charged: AtomicU64::new(bytes),
            charged_tombstones: AtomicU64::new(0),
        })
    }

    /// Charges so many bytes of range tombstones that lie over it, for as long as it is there: they mostly
    /// end together. The caller has the gate.
    pub(crate) fn charge_tombstones(&self, bytes: u64) {
        // Relaxed: a number, which only who has the gate changes.
        let before = self.charged_tombstones.fetch_max(bytes, Ordering::Relaxed);
        self.budget.add(parts::MUNKS, bytes.saturating_sub(before));
    }

    /// What it is charged, in bytes, range tombstones included.
    fn charged_bytes(&self) -> u64 {
        // Relaxed, both: numbers.
        self.charged.load(Ordering::Relaxed) + self.charged_tombstones.load(Ordering::Relaxed)
    }

    /// Puts an entry in the place of the newest of its key: see [`Run::replace`]. Tails, which are looked at
    /// first, must have nothing of the key but what is as new.
    pub(crate) fn replace(
        &self,
        entry: EntryRef<'_>,
        hash: u32,
        pin: &Pin,
        may_replace: impl FnOnce(EntryRef<'_>) -> bool,
    ) -> Replaced {
        let replaced = self.run.replace(entry, hash, pin, may_replace);
        let used = self.run.memory_bytes() as u64;
        // Relaxed, both: a number. Who makes it greater adds what it is more by.
        if used > self.charged.load(Ordering::Relaxed) {
            let step = (used / CHARGE_STEP_PART).clamp(*CHARGE_STEP_BYTES.start(), *CHARGE_STEP_BYTES.end());
            let wanted = used.next_multiple_of(step);
            let before = self.charged.fetch_max(wanted, Ordering::Relaxed);
            self.budget.add(parts::MUNKS, wanted.saturating_sub(before));
        }
        replaced
    }
}

impl Drop for ChargedRun {
    fn drop(&mut self) {
        self.budget.sub(parts::MUNKS, *self.charged.get_mut() + *self.charged_tombstones.get_mut());
    }
}

/// A chunk's memory form. Cheap to clone: its parts are shared.
#[derive(Clone)]
pub(crate) struct Munk {
    pub(crate) run: Arc<ChargedRun>,
    /// Newest first; the first takes new entries, the others are frozen.
    pub(crate) tails: Vec<Arc<Tail>>,
    pub(crate) tombstones: Arc<Tombstones>,
    /// Of the run's entries, so many bytes at most are under range tombstones.
    pub(crate) covered_bytes: usize,
}

/// What a lookup found.
pub(crate) enum Found<'a> {
    /// The key has this value.
    Value(&'a [u8]),
    /// The key is known to have none.
    Deleted,
    /// Nothing is known of the key here.
    Nothing,
}

impl Munk {
    /// The tail that takes new entries.
    pub(crate) fn tail(&self) -> &Arc<Tail> {
        &self.tails[0]
    }

    /// The newest value of `key` at `view`, passing over batches in flight.
    pub(crate) fn find<'a>(
        &'a self,
        key: &[u8],
        view: Version,
        versions: &Versions,
        pin: &'a Pin,
    ) -> Found<'a> {
        let hash = key_hash(key);
        for tail in &self.tails {
            if let Some(found) = tail.find(key, hash, view, versions) {
                let entry = EntryRef { key, version: found.version, kind: found.kind, value: found.value };
                return self.answer(entry, found.value, view, versions);
            }
        }
        match self.run.run.under(pin).find(key, hash, view) {
            Some(entry) => self.answer(entry, entry.value, view, versions),
            None => Found::Nothing,
        }
    }

    /// Whether no row of `range` shows to who reads now. False as well if that takes a longer look. Nothing
    /// is in flight.
    pub(crate) fn shows_none_of(&self, range: &KeyRange, pin: &Pin) -> bool {
        let mut entries = self.entries(range, Direction::Forward, pin);
        let mut over = Over::new(self.over());
        let mut key: Option<Vec<u8>> = None;
        for _ in 0..ENTRIES_LOOKED_AT_MAX {
            steps(1);
            let Some(entry) = entries.entry() else { return true };
            if key.as_deref() != Some(entry.key) {
                if entry.kind == Kind::Put && !over.hides(entry.key, entry.version, Version::NEWEST) {
                    return false;
                }
                entry.key.clone_into(key.get_or_insert_default());
            }
            entries.advance().expect("memory can be read");
        }
        false
    }

    /// The same with one more range tombstone over it, of a batch that is in flight. The caller has the gate.
    pub(crate) fn under(
        &self,
        tombstone: &RangeTombstone,
        batch: u64,
        versions: &Versions,
        pin: &Pin,
    ) -> Munk {
        let run = self.run.run.under(pin);
        let RangeTombstone { range, .. } = tombstone;
        let first = run.lower_bound(&range.start);
        let end = range.end.as_deref().map_or(run.run().len(), |end| run.lower_bound(end));
        let covered_bytes = end.saturating_sub(first) * run.run().mean_entry_bytes();
        let tombstones = self.tombstones.with(tombstone, batch, versions);
        self.run.charge_tombstones(tombstones.bytes());
        Munk { tombstones, covered_bytes: self.covered_bytes + covered_bytes, ..self.clone() }
    }

    /// Whether a get of `key` has to search a tail.
    pub(crate) fn searches_tails(&self, key: &[u8]) -> bool {
        let hash = key_hash(key);
        self.tails.iter().any(|tail| tail.may_have(hash))
    }

    /// Whether a scan has tails to look into.
    pub(crate) fn has_tails(&self) -> bool {
        self.tails.iter().any(|tail| !tail.is_empty())
    }

    fn answer<'a>(
        &self,
        entry: EntryRef<'_>,
        value: &'a [u8],
        view: Version,
        versions: &Versions,
    ) -> Found<'a> {
        let is_deleted = entry.kind != Kind::Put
            || (!self.tombstones.is_empty()
                && self.tombstones.hide(entry.key, entry.version, view, versions) == Hidden::Yes);
        if is_deleted { Found::Deleted } else { Found::Value(value) }
    }

    /// All entries of `range`, merged, in `direction`.
    pub(crate) fn entries<'a>(&'a self, range: &KeyRange, direction: Direction, pin: &'a Pin) -> Merge<'a> {
        entries_of(self.run.run.under(pin), &self.tails, range, direction)
    }

    /// The same, for who holds the run.
    pub(crate) fn entries_held<'a>(
        &'a self,
        range: &KeyRange,
        direction: Direction,
        hold: &'a Hold,
    ) -> Merge<'a> {
        entries_of(self.run.run.held(hold), &self.tails, range, direction)
    }

    /// The same parts behind a fresh tail; what was the tail is frozen.
    pub(crate) fn behind(&self, tail: Arc<Tail>) -> Munk {
        let mut tails = Vec::with_capacity(self.tails.len() + 1);
        tails.push(tail);
        tails.extend(self.tails.iter().filter(|t| !t.is_empty()).cloned());
        Munk { tails, ..self.clone() }
    }

    /// Whether the background has something to sort.
    pub(crate) fn has_frozen_tails(&self) -> bool {
        self.tails.len() > 1
    }

    /// Memory of run, tails and range tombstones, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let tails: usize = self.tails.iter().map(|t| t.memory_bytes()).sum();
        (self.run.run.memory_bytes() + tails) as u64 + self.tombstones.bytes()
    }

    /// What it is charged, in bytes: its memory, and what steps of charging are ahead of it.
    pub(crate) fn charged_bytes(&self) -> u64 {
        self.run.charged_bytes() + self.tails.iter().map(|tail| tail.charged_bytes()).sum::<u64>()
    }

    /// Memory of its parts that the munk which takes its place has not.
    pub(crate) fn bytes_beside(&self, next: Option<&Munk>) -> usize {
        let has_run = next.is_some_and(|next| Arc::ptr_eq(&next.run, &self.run));
        let has_tail = |tail: &Arc<Tail>| {
            next.is_some_and(|next| next.tails.iter().any(|other| Arc::ptr_eq(other, tail)))
        };
        let tails = self.tails.iter().filter(|tail| !has_tail(tail)).map(|tail| tail.memory_bytes());
        tails.sum::<usize>() + if has_run { 0 } else { self.run.run.memory_bytes() }
    }

    /// Bytes of entries, counting what has been overwritten but not compacted.
    pub(crate) fn entry_bytes(&self) -> u64 {
        let tails: usize = self.tails.iter().map(|t| t.used_bytes()).sum();
        (self.run.run.entry_bytes() + tails) as u64
    }

    /// The range tombstones, for a scan: none or one value of them.
    pub(crate) fn over(&self) -> &[Arc<Tombstones>] {
        if self.tombstones.is_empty() { &[] } else { std::slice::from_ref(&self.tombstones) }
    }
}

/// About how many bytes of a run's entries and of tails' (newest first) in `range` nobody sees any more for
/// what newer tails have, if these views are open.
pub(crate) fn overwritten_bytes(
    run: RunReader<'_>,
    tails: &[Arc<Tail>],
    range: &KeyRange,
    views: &[Version],
) -> usize {
    let overwritten = tails.iter().enumerate().map(|(nth, tail)| {
        let (mut sampled, mut unseen) = (0, 0);
        tail.sample(range, |newer| {
            sampled += run::bytes_of(newer);
            let in_tails = tails[nth + 1..].iter().find_map(|older| older.newest(newer.key));
            let older = in_tails.or_else(|| run.newest(newer.key)).filter(|older| {
                let seen_by = older.version..newer.version;
                !views.iter().any(|view| seen_by.contains(view))
            });
            unseen += older.map_or(0, run::bytes_of);
        });
        (tail.entry_bytes() * unseen).checked_div(sampled).unwrap_or(0)
    });
    overwritten.sum()
}

/// All entries of a run and of tails (newest first), merged.
pub(crate) fn entries_of<'m>(
    run: RunReader<'m>,
    tails: &'m [Arc<Tail>],
    range: &KeyRange,
    direction: Direction,
) -> Merge<'m> {
    let mut sources: Vec<Box<dyn Source + 'm>> = Vec::with_capacity(tails.len() + 1);
    for tail in tails.iter().filter(|t| !t.is_empty()) {
        sources.push(Box::new(tail.source(range, direction)));
    }
    if run.run().len() > 0 {
        sources.push(Box::new(run.source(range, direction)));
    }
    Merge::new(sources, direction).expect("memory can be read")
}
