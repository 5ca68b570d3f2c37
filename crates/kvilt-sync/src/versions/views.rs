//! The registry of open views: a view lives long and belongs to no thread, so it has a place of its own.
//!
//! A place moves free → intended (a view is about to take its version) → a version → free. Beyond the places
//! there is a map under a lock, which costs an allocation and a lock a view, and has no limit.
//!
//! Beside each version stands when its view was opened, written first. Who reads a version and then its
//! moment may read that of a later view in the same place: the view looks younger than it is, and is taken
//! for old a look later.

use std::{collections::BTreeMap, ops::Range};

use kvilt_base::Version;

use crate::shim::{AtomicU64, AtomicUsize, IS_EXPLORED, Mutex, Ordering, Patience, thread_number};

/// Open views that need no lock. Who opens more pays for a map.
const PLACES: usize = if IS_EXPLORED { 2 } else { 256 };

/// Threads begin this many places apart: one cache line of eight-byte places.
const PLACES_A_LINE: usize = 8;

const FREE: u64 = u64::MAX;
const INTENDED: u64 = u64::MAX - 1;

/// Where a view is registered.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Slot(usize),
    Overflow,
}

pub(super) struct Registry {
    /// `FREE`, `INTENDED`, or the version of an open view.
    places: Box<[AtomicU64]>,
    /// When the view of each place was opened, in the caller's unit.
    opened: Box<[AtomicU64]>,
    /// Places below this index have been used at least once.
    looked_at: AtomicUsize,
    /// Version → when its view was opened. No two views have one version: each moves the counter.
    overflow: Mutex<BTreeMap<Version, u64>>,
    /// How many there are beyond the places, or are about to be: who only asks whether there is any view
    /// takes no lock if none is.
    overflowing: AtomicUsize,
}

impl Registry {
    pub(super) fn new() -> Self {
        Registry {
            places: (0..PLACES).map(|_| AtomicU64::new(FREE)).collect(),
            opened: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            looked_at: AtomicUsize::new(0),
            overflow: Mutex::new(BTreeMap::new()),
            overflowing: AtomicUsize::new(0),
        }
    }

    /// Announces the intent, lets `take` choose the version (by moving the counter), and registers it as
    /// opened at this moment.
    pub(super) fn open(&self, opened: u64, take: impl FnOnce() -> Version) -> (Version, Place) {
        let Some(index) = self.claim() else {
            // Whoever lists the views takes this lock too: before us, and then our version is the later one,
            // or after us, and then it finds us.
            let mut overflow = self.overflow.lock();
            // Relaxed: as the intent in `claim`.
            self.overflowing.fetch_add(1, Ordering::Relaxed);
            let version = take();
            overflow.insert(version, opened);
            return (version, Place::Overflow);
        };
        // Relaxed: the store of the version below publishes it.
        self.opened[index].store(opened, Ordering::Relaxed);
        let version = take();
        // Release: who lists the views reads what the taker knew.
        self.places[index].store(version.to_u64(), Ordering::Release);
        (version, Place::Slot(index))
    }

    fn claim(&self) -> Option<usize> {
        let first = thread_number() * PLACES_A_LINE % PLACES;
        for probe in 0..PLACES {
            let index = (first + probe) % PLACES;
            let place = &self.places[index];
            // Relaxed, twice: as in the slots of pending puts.
            if place.load(Ordering::Relaxed) != FREE {
                continue;
            }
            if self.looked_at.load(Ordering::Relaxed) <= index {
                self.looked_at.fetch_max(index + 1, Ordering::Relaxed);
            }
            if place.compare_exchange(FREE, INTENDED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // No fence: whoever lists has read the counter first (S-7). If it read our move of the
                // counter or a later one (Acquire, of our Release), it sees this intent; if not, our view is
                // at or above what it read.
                return Some(index);
            }
        }
        None
    }

    pub(super) fn close(&self, place: Place, version: Version) {
        match place {
            // Release: what the view's reader read, it has read before a compaction may destroy it.
            Place::Slot(index) => self.places[index].store(FREE, Ordering::Release),
            Place::Overflow => {
                self.overflow.lock().remove(&version);
                // Release: as above.
                self.overflowing.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Versions of all views, ascending.
    pub(super) fn versions(&self) -> Vec<Version> {
        let mut versions: Vec<Version> = self.used().iter().filter_map(version_in).collect();
        versions.extend(self.overflow.lock().keys());
        versions.sort_unstable();
        versions
    }

    /// Whether the version of some view is among these, which are not none, or there is one that is about to
    /// take its version. Waits for nobody, and beyond the places takes a few steps however many views there
    /// are.
    pub(super) fn any(&self, versions: Range<Version>) -> bool {
        // Acquire: as in `version_in`.
        let is_one_in = |place: &AtomicU64| match place.load(Ordering::Acquire) {
            FREE => false,
            INTENDED => true,
            version => versions.contains(&Version::from_u64(version)),
        };
        self.used().iter().any(is_one_in)
            // Acquire: pairs with the Release in `close`.
            || self.overflowing.load(Ordering::Acquire) > 0
                && self.overflow.lock().range(versions.clone()).next().is_some()
    }

    /// Version and moment of opening of the views that have a version, in no order. Waits for nobody.
    pub(super) fn with_moments(&self) -> Vec<(Version, u64)> {
        let mut views = Vec::new();
        for (place, opened) in self.used().iter().zip(&self.opened) {
            // Acquire: pairs with the store in `open`; the moment was written before.
            let version = place.load(Ordering::Acquire);
            if version != FREE && version != INTENDED {
                views.push((Version::from_u64(version), opened.load(Ordering::Relaxed)));
            }
        }
        views.extend(self.overflow.lock().iter().map(|(version, opened)| (*version, *opened)));
        views
    }

    pub(super) fn count(&self) -> usize {
        // Relaxed: a statistic.
        let placed = self.used().iter().filter(|place| place.load(Ordering::Relaxed) != FREE).count();
        placed + self.overflow.lock().len()
    }

    fn used(&self) -> &[AtomicU64] {
        // Relaxed: stored before the claim, and ordered with it.
        &self.places[..self.looked_at.load(Ordering::Relaxed)]
    }
}

/// The version of the view in a place, if there is one. Waits for one that is about to take its version.
fn version_in(place: &AtomicU64) -> Option<Version> {
    let mut patience = Patience::new();
    loop {
        // Acquire: pairs with `close` and with the store in `open`.
        match place.load(Ordering::Acquire) {
            FREE => return None,
            INTENDED => patience.wait(),
            version => return Some(Version::from_u64(version)),
        }
    }
}
