//! `Versions`: the version counter, puts on their way, and open read views (EvenDB §3.2: GV and PO).
//!
//! Versions are advanced by readers, never by puts. A scan takes the counter's value as its view and moves
//! the counter on, so that later puts get a higher version and leave alone what the view may read. One race
//! remains: a put that took its version before the scan moved the counter, but whose entry is not readable
//! yet. So puts *announce* themselves before they take a version, and a scan waits for those that may still
//! bring an entry at or below its view.
//!
//! ```text
//!      put                                   scan
//!   1  slot := announced                  1  intent := announced
//!   2  fence ------------------.          2  view := counter, counter += 1
//!   3  v := counter             \ at least  fence -------------------------
//!   4  slot := v                / one of     3  intent := view
//!   5  make the entry readable /  them sees  4  wait while any slot is announced or ≤ view
//!   6  slot := free               the other  5  read everything at view
//! ```
//!
//! Both fences are `SeqCst`: of two such fences one comes first, and what was written before it is seen
//! behind the other. So either the put's step 3 sees the counter moved (its version is above the view), or
//! the scan's step 4 sees the slot taken. Plain `SeqCst` accesses would do on paper; loom honours fences
//! only.
//!
//! What is always true:
//! - S-3: when [`Versions::open_view`] returns `v`, or [`Versions::wait_for_pending`] is done with it, every
//!   entry with a version ≤ `v` that will ever be written is readable, and visible to the caller (the slot's
//!   release is acquired).
//! - S-4: a put waits for no view. Between announcing and retiring it does no I/O and waits for nothing but
//!   S-8: every scan waits with it. It holds its gates and has room *before* it announces.
//! - S-5: a batch is in flight until its [`Pending`] is dropped; then all of its entries count at once:
//!   readers who see it retired see all of its entries, because retiring is one store behind them all.
//! - S-6: versions never go back; the count of an announced put is at least that of every put which completed
//!   before it announced itself.
//! - S-7: for who compacts: read [`Versions::current`] first, then [`Versions::open_views`]. A view that this
//!   list lacks was opened later, at that current version or above. So of each key keep the newest entry, and
//!   the newest at or below each listed view, and nothing at or below the current version is missed.
//!
//! - S-8: puts become readable in the order of their versions: one that took a version goes on only when no
//!   put is pending at a lower one. The paper lacks this. Without it: a put P takes version 7 and is delayed;
//!   a scan takes 7 and moves the counter to 8; a put Q takes 8 and completes; a get sees Q, another get
//!   still misses P; and the scan, which waits for P, shows P without Q. No order of these five explains what
//!   was seen. The wait is short (P does no I/O), comes only after the counter moved, and has no cycle,
//!   because it is always for a lower version.
//!
//! - S-9: a view that has expired is said to have before anything that only it needs may be dropped. Who
//!   reads at a view looks first and asks [`Versions::is_expired`] afterwards: if it says no, what was read
//!   is whole. So a handle that was forgotten keeps old entries for a time, not for ever.
//!
//! Batch ids are unique within one `Versions`, and between those that began in different epochs. An entry
//! from a log of an earlier run belongs to no batch in flight, whatever its id: readers of such a log pass 0.

mod pending;
mod views;

use std::{fmt, sync::Arc, time::Duration};

use crossbeam_utils::CachePadded;
use kvilt_base::{Version, planted};

use crate::shim::{AtomicU64, Ordering, fence};
use pending::Slots;
use views::Registry;

pub use pending::Pending;

/// Counts versions, knows the puts on their way and the views that are open. Any thread may use it; only
/// [`open_view`](Versions::open_view), [`wait_for_pending`](Versions::wait_for_pending) and,
/// after the version has moved, the announcements wait, and only for announced puts.
///
/// ```
/// use kvilt_base::Version;
/// use kvilt_sync::Versions;
/// let versions = Versions::new(Version::new(1, 0));
/// let put = versions.announce();
/// assert_eq!(put.version(), Version::new(1, 0));
/// drop(put); // the entry is readable: retire
/// let view = versions.open_view();
/// assert_eq!(view.version(), Version::new(1, 0));
/// assert_eq!(versions.announce().version(), Version::new(1, 1));
/// assert_eq!(versions.open_views(), [view.version()]);
/// ```
pub struct Versions {
    /// The version that the next put takes. Every put reads it, every view changes it.
    counter: CachePadded<AtomicU64>,
    slots: Slots,
    views: Registry,
    /// No put below this version is pending any more, nor will one be: written once for each version that
    /// puts take, read by every put.
    settled: CachePadded<AtomicU64>,
    /// Views below this version have expired.
    expired_below: AtomicU64,
}

impl Versions {
    /// A counter that stands at `current`, with nothing pending and no view open. Panics if `current` is
    /// within 2^32 of the end of all versions.
    pub fn new(current: Version) -> Arc<Self> {
        assert!(current.to_u64() < u64::MAX - (1 << 32), "versions are used up: {current}");
        Arc::new(Versions {
            counter: CachePadded::new(AtomicU64::new(current.to_u64())),
            slots: Slots::new(current.epoch()),
            views: Registry::new(),
            settled: CachePadded::new(AtomicU64::new(current.to_u64())),
            expired_below: AtomicU64::new(0),
        })
    }

    /// The version that a put gets at this moment.
    pub fn current(&self) -> Version {
        // Acquire: pairs with the Release in `advance`.
        Version::from_u64(self.counter.load(Ordering::Acquire))
    }

    /// Announces a single put and gives it its version. The caller makes the entry readable and then drops
    /// the result. If all slots (128) are held, this waits for one; and it waits for puts that are pending at
    /// a lower version (S-8), so a thread must not hold one while it announces another.
    pub fn announce(&self) -> Pending<'_> {
        self.settled(self.slots.announce(&self.counter, false))
    }

    /// Waits until no put is pending at a lower version than this one's (S-8).
    fn settled<'v>(&'v self, pending: Pending<'v>) -> Pending<'v> {
        let version = pending.version();
        // Acquire: pairs with the Release below; who skips the wait sees what the waiter saw.
        if self.settled.load(Ordering::Acquire) < version.to_u64() {
            // Pairs with the fence in `Slots::announce`: a put that read a lower counter has claimed its slot
            // before that, and we read the higher one, so we see the claim.
            fence(Ordering::SeqCst);
            self.slots.wait_for_pending(Version::from_u64(version.to_u64() - 1));
            self.settled.fetch_max(version.to_u64(), Ordering::Release);
        }
        pending
    }

    /// Announces a batch: one version for all its entries, and an id to write into each of them. Until the
    /// result is dropped, [`is_in_flight`](Versions::is_in_flight) of that id is true and gets pass its
    /// entries by.
    pub fn announce_batch(&self) -> Pending<'_> {
        self.settled(self.slots.announce(&self.counter, true))
    }

    /// Whether the batch with this id is announced and not retired. False for 0, the id of single puts.
    pub fn is_in_flight(&self, batch: u64) -> bool {
        batch != 0 && self.slots.is_in_flight(batch)
    }

    /// Opens a read view on everything written so far: registers it, moves the counter on, and waits for the
    /// puts that may still bring an entry to it. It expires only with a later view that does.
    pub fn open_view(self: &Arc<Self>) -> View {
        self.open_view_at(Duration::MAX)
    }

    /// Like [`open_view`](Versions::open_view), of a view that expires `now` and a while later: when
    /// [`expire_views`](Versions::expire_views) says so.
    pub fn open_view_at(self: &Arc<Self>, now: Duration) -> View {
        let (version, place) = self.views.open(micros(now), || self.advance());
        // The view exists from here on: a panic while waiting must unregister it.
        let view = View { versions: Arc::clone(self), version, place };
        self.slots.wait_for_pending(version);
        view
    }

    /// Moves the counter on and returns the version it stood at. Waits for nobody. A checkpoint cuts so: it
    /// then [waits](Versions::wait_for_pending) until everything at or below that version is written.
    pub fn advance(&self) -> Version {
        // Release: who reads the new value sees the intent of the view that moved it (S-7).
        let before = self.counter.fetch_add(1, Ordering::AcqRel);
        // Pairs with the fence in `Slots::announce` (S-3).
        fence(Ordering::SeqCst);
        Version::from_u64(before)
    }

    /// Waits until no put is pending that has no version yet or one at or below `upto`, which must be below
    /// the current version, or the wait may last as long as puts come.
    pub fn wait_for_pending(&self, upto: Version) {
        fence(Ordering::SeqCst);
        self.slots.wait_for_pending(upto);
    }

    /// The versions of all open views that have not expired, ascending. Waits for views that are about to
    /// learn their version. See S-7 for how to use it.
    pub fn open_views(&self) -> Vec<Version> {
        // Acquire: who drops what an expired view needs has seen that it expired, and so has who sees it
        // dropped.
        let expired_below = self.expired_below.load(Ordering::Acquire);
        let mut views = self.views.versions();
        views.retain(|view| view.to_u64() >= expired_below);
        planted!(ViewsNotListed => views.clear());
        views
    }

    /// Whether a view is open, and has not expired, whose version is one of these, or may be. For who
    /// replaces an entry: S-7 holds for it as it does for [`open_views`](Versions::open_views), but it waits
    /// for no view (S-4): one that is about to learn its version may have any.
    pub fn is_viewed(&self, versions: std::ops::Range<Version>) -> bool {
        // Acquire: as in `open_views`.
        let expired_below = self.expired_below.load(Ordering::Acquire);
        let versions = versions.start.max(Version::from_u64(expired_below))..versions.end;
        planted!(ViewsNotListed => return false);
        !versions.is_empty() && self.views.any(versions)
    }

    /// Lets every view expire that was opened before this moment, with those that are older still by version;
    /// says how many. See S-9.
    pub fn expire_views(&self, opened_before: Duration) -> usize {
        let views = self.views.with_moments();
        let old = views.iter().filter(|(_, opened)| *opened < micros(opened_before));
        let Some(below) = old.map(|(version, _)| version.to_u64() + 1).max() else { return 0 };
        // Release: comes before whatever is dropped because of it (S-9).
        let before = self.expired_below.fetch_max(below, Ordering::AcqRel);
        views.iter().filter(|(version, _)| (before..below).contains(&version.to_u64())).count()
    }

    /// Whether the view of this version has expired. Asked after reading, and before what was read is
    /// believed (S-9).
    pub fn is_expired(&self, view: Version) -> bool {
        // Acquire: pairs with `expire_views`. Who read something that lacks what the view needs has
        // synchronised with who dropped it, and so sees the view expired.
        view.to_u64() < self.expired_below.load(Ordering::Acquire)
    }

    /// When the oldest view was opened that may expire and has not.
    pub fn oldest_view_opened(&self) -> Option<Duration> {
        let views = self.views.with_moments().into_iter();
        let open = views.filter(|(version, opened)| *opened != u64::MAX && !self.is_expired(*version));
        open.map(|(_, opened)| Duration::from_micros(opened)).min()
    }

    /// How many views are open.
    pub fn open_view_count(&self) -> usize {
        self.views.count()
    }
}

/// A moment as the registry keeps it; one too far to name is never.
fn micros(moment: Duration) -> u64 {
    u64::try_from(moment.as_micros()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Versions {{ current: {}, open views: {} }}", self.current(), self.open_view_count())
    }
}

/// A read view: while it lives, compaction keeps what a reader at its version may read. May be sent and
/// shared; dropping it unregisters it.
pub struct View {
    versions: Arc<Versions>,
    version: Version,
    place: views::Place,
}

impl View {
    /// Readers of this view see entries up to and including this version.
    pub fn version(&self) -> Version {
        self.version
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.versions.views.close(self.place, self.version);
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View {{ {} }}", self.version)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
