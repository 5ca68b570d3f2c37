//! `Tombstones`: the range tombstones over the keys of a store, a chunk or a log; usually none.
//!
//! To lay one over a range, and to ask what lies over a key, costs a few steps down a tree, however many
//! there are (`fragments.rs`, `docs/design/0057-range-tombstones.md`). A value is immutable and replaced as a
//! whole; it shares most of its memory with the one before.
//!
//! * **E-17** A range tombstone is forgotten for a newer one over the same keys only if that one is settled
//!   and nobody reads at a version from the older one's up to the newer one's.
//! * **E-20** (in part) Neither takes more steps than a few times the logarithm of how many there are.

mod bound;
mod fragments;

use std::{borrow::Cow, sync::Arc};

use kvilt_base::{Hiding, KeyRange, RangeTombstone, Version, key::successor, planted};

use crate::versions::Versions;

use self::fragments::{Fragment, IsNeeded, Tree};

/// Range tombstones by the keys that they lie over.
#[derive(Clone, Debug, Default)]
pub struct Tombstones {
    tree: Tree,
    /// The highest version of any.
    newest: Version,
    /// The batch that wrote it, which alone may be in flight: who lays one over a chunk's keys has the gate
    /// until it is settled.
    batch: u64,
}

/// Whether an entry is hidden from a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// It shows.
    No,
    /// It shows as long as a batch is in flight.
    Soon,
    /// It is deleted.
    Yes,
}

impl Tombstones {
    /// The shared empty list's equal.
    pub fn none() -> Arc<Self> {
        Arc::default()
    }

    /// These and one more, the newest, of a batch that may be in flight. The caller has the gate.
    pub fn with(&self, tombstone: &RangeTombstone, batch: u64, versions: &Versions) -> Arc<Self> {
        let mut more = self.clone();
        more.push(tombstone, batch, versions);
        Arc::new(more)
    }

    /// Adds one, the newest, of a batch that may be in flight; what nobody needs below it goes (E-17).
    pub fn push(&mut self, tombstone: &RangeTombstone, batch: u64, versions: &Versions) {
        debug_assert!(!versions.is_in_flight(self.batch), "one range delete at a time in a chunk");
        let version = tombstone.version;
        self.lay(tombstone, batch, &|older, newer| {
            let is_settled = newer != version || !versions.is_in_flight(batch);
            let is_seen = versions.is_viewed(older..newer);
            let is_seen = planted!(TombstoneUnderView, is_seen => false);
            planted!(TombstonesPiledUp => return true);
            !is_settled || is_seen
        });
    }

    /// Adds one of an earlier run: it is settled, and nobody reads at a version so old.
    pub fn push_old(&mut self, tombstone: &RangeTombstone) {
        self.lay(tombstone, 0, &|_, _| false);
    }

    fn lay(&mut self, tombstone: &RangeTombstone, batch: u64, is_needed: IsNeeded<'_>) {
        let RangeTombstone { range, version } = tombstone;
        if range.is_empty() {
            return;
        }
        planted!(RangeEndIncluded => {
            let range = KeyRange { start: range.start.clone(), end: range.end.as_deref().map(successor) };
            return self.lay_over(&range, *version, batch, is_needed);
        });
        self.lay_over(range, *version, batch, is_needed);
    }

    fn lay_over(&mut self, range: &KeyRange, version: Version, batch: u64, is_needed: IsNeeded<'_>) {
        self.tree = fragments::push(self.tree.take(), range, version, is_needed);
        if version > self.newest {
            (self.newest, self.batch) = (version, batch);
        }
    }

    /// Adds all of `other`. Nothing is in flight.
    pub fn extend(&mut self, other: &Tombstones) {
        other.for_each_since(Version::ZERO, |range, version| {
            self.lay(&RangeTombstone { range, version }, 0, &|_, _| true);
        });
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tree.is_none()
    }

    /// The highest version of any.
    pub fn newest(&self) -> Version {
        self.newest
    }

    /// Memory, in bytes.
    pub fn bytes(&self) -> u64 {
        fragments::bytes(&self.tree)
    }

    /// Whether a reader at `view` finds an entry of `key` written at `written` deleted.
    pub fn hide(&self, key: &[u8], written: Version, view: Version, versions: &Versions) -> Hidden {
        let mut hidden = Hidden::No;
        let (_, is_settled) = fragments::find_at(&self.tree, key, |marks| {
            let mut over = marks.iter().filter(|mark| **mark <= view).take_while(|mark| written < **mark);
            over.find_map(|mark| {
                if *mark != self.newest || !versions.is_in_flight(self.batch) {
                    return Some(());
                }
                hidden = Hidden::Soon;
                None
            })
        });
        if is_settled.is_some() { Hidden::Yes } else { hidden }
    }

    /// Whether any of them deletes an entry of `key` written at `written`; nothing is in flight.
    pub fn delete(&self, key: &[u8], written: Version) -> bool {
        let newest = |marks: &[Version]| marks.first().filter(|mark| written < **mark).map(|_| ());
        fragments::find_at(&self.tree, key, newest).1.is_some()
    }

    /// Those above `version`: what was added since that was the newest.
    pub fn since(&self, version: Version) -> Tombstones {
        let mut since = Tombstones::default();
        self.for_each_since(version, |range, version| {
            since.lay(&RangeTombstone { range, version }, 0, &|_, _| true);
        });
        since
    }

    /// What of them touches `range`.
    pub fn touching(&self, range: &KeyRange) -> Tombstones {
        let mut touching = Tombstones::default();
        self.for_each_since(Version::ZERO, |piece, version| {
            let range = piece.intersection(range);
            touching.lay(&RangeTombstone { range, version }, 0, &|_, _| true);
        });
        touching
    }

    /// Those of which `is_needed` says so, asked for each piece of the keys.
    pub fn retained(&self, mut is_needed: impl FnMut(&KeyRange, Version) -> bool) -> Tombstones {
        let mut retained = Tombstones::default();
        self.for_each_since(Version::ZERO, |range, version| {
            if is_needed(&range, version) {
                retained.lay(&RangeTombstone { range, version }, 0, &|_, _| true);
            }
        });
        retained
    }

    /// All of them, cut where others begin or end; those over the same keys oldest first.
    pub fn pieces(&self) -> Vec<RangeTombstone> {
        let mut pieces = Vec::new();
        self.for_each_since(Version::ZERO, |range, version| pieces.push(RangeTombstone { range, version }));
        pieces
    }

    /// Gives each piece of the keys that any of them lies over to `each`.
    pub fn for_each_piece(&self, mut each: impl FnMut(&KeyRange)) {
        fragments::for_each(&self.tree, Version::ZERO, &mut |range, _| each(&range));
    }

    /// Gives `each` all above `version`, cut where others begin or end; those over the same keys oldest
    /// first.
    fn for_each_since(&self, version: Version, mut each: impl FnMut(KeyRange, Version)) {
        fragments::for_each(&self.tree, version, &mut |range, marks| {
            marks.iter().rev().for_each(|mark| each(range.clone(), *mark));
        });
    }

    /// Whether one of them, or several side by side, leave nothing of a chunk that was written before. Not
    /// looked at closely if there are many pieces.
    pub fn cover(&self, range: &KeyRange) -> bool {
        let mut next = Cow::Borrowed(range.start.as_slice());
        for _ in 0..COVERING_PIECES_MAX {
            if !range.contains(&next) {
                return true;
            }
            let (fragment, has_any) = fragments::find_at(&self.tree, &next, |marks| marks.first());
            if has_any.is_none() {
                return false;
            }
            let Some(end) = fragment.end else { return true };
            next = Cow::Owned(end.to_vec());
        }
        false
    }
}

/// Pieces that are looked at to find out whether all of a chunk was deleted.
const COVERING_PIECES_MAX: usize = 4;

/// What lies over keys that are asked for in order, or nearly: looked up once for all that lie in one piece.
pub struct Over<'t> {
    all: &'t [Arc<Tombstones>],
    /// The piece that was looked up last.
    piece: Option<Fragment<'t>>,
    /// The versions over it, newest first.
    marks: Vec<Version>,
}

impl<'t> Over<'t> {
    /// Of all of these.
    pub fn new(all: &'t [Arc<Tombstones>]) -> Self {
        Over { all, piece: None, marks: Vec::new() }
    }

    /// The versions of all range tombstones over `key`, newest first, each once.
    #[inline]
    pub fn at(&mut self, key: &[u8]) -> &[Version] {
        if self.all.is_empty() {
            return &[];
        }
        let is_inside = self.piece.is_some_and(|piece| {
            piece.start.is_none_or(|start| start.cmp_key(key).is_le())
                && piece.end.is_none_or(|end| end.cmp_key(key).is_gt())
        });
        if !is_inside {
            self.look_up(key);
        }
        &self.marks
    }

    fn look_up(&mut self, key: &[u8]) {
        self.marks.clear();
        let mut piece = Fragment::default();
        for tombstones in self.all {
            let marks = &mut self.marks;
            let (fragment, _) = fragments::find_at(&tombstones.tree, key, |list| {
                marks.extend_from_slice(list);
                None::<()>
            });
            piece.start = piece.start.max(fragment.start);
            piece.end = match (piece.end, fragment.end) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        self.marks.sort_unstable_by(|a, b| b.cmp(a));
        self.marks.dedup();
        self.piece = Some(piece);
    }
}

/// Of a view, which no batch in flight is in.
impl Hiding for Over<'_> {
    #[inline]
    fn hides(&mut self, key: &[u8], written: Version, view: Version) -> bool {
        self.at(key).iter().find(|mark| **mark <= view).is_some_and(|mark| written < *mark)
    }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
