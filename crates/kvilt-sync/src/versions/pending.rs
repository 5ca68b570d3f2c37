//! Slots of announced puts: who is on its way, at which version, in which batch.
//!
//! A slot moves free → announced (claimed, no version yet) → a version → free. Only its claimer moves it on
//! from `announced`; everybody else reads. What is always true: a slot at index `i` was never claimed before
//! `looked_at > i` was stored, so who waits need not look further.

use std::fmt;

use crossbeam_utils::CachePadded;
use kvilt_base::Version;

use crate::shim::{AtomicU64, AtomicUsize, IS_EXPLORED, Ordering, Patience, fence, thread_number};

/// Slots are found by the low bits of a batch id.
const SLOT_BITS: u32 = if IS_EXPLORED { 1 } else { 7 };

/// Most puts on their way at once; one each for more threads than any machine here has cores.
const SLOTS: usize = 1 << SLOT_BITS;

/// Bits of a batch id below the epoch: the slot, and a count of that slot's batches in this epoch. If a count
/// outgrows its bits it runs on into a later epoch's ids, of which nobody is in flight by then.
const BATCH_BITS_BELOW_EPOCH: u32 = 40;

/// Nobody is here. Above every version (see `Versions::new`), so that one comparison tells a waiter to go on.
const FREE: u64 = u64::MAX;
/// Claimed; the version is not known yet. Below every version that can be waited for.
const ANNOUNCED: u64 = u64::MAX - 1;

struct Slot {
    /// `FREE`, `ANNOUNCED` or the put's version.
    version: AtomicU64,
    /// The id of the batch in flight here, or 0.
    batch: AtomicU64,
    /// Id of the last batch announced here. Read and written by the claimer only.
    last_batch: AtomicU64,
}

pub(super) struct Slots {
    slots: Box<[CachePadded<Slot>]>,
    /// Slots below this index have been used at least once. Grows only, to about the number of threads.
    looked_at: CachePadded<AtomicUsize>,
}

impl Slots {
    pub(super) fn new(epoch: u32) -> Self {
        let first_batch = u64::from(epoch) << BATCH_BITS_BELOW_EPOCH;
        let slot = |index: usize| Slot {
            version: AtomicU64::new(FREE),
            batch: AtomicU64::new(0),
            last_batch: AtomicU64::new(first_batch | index as u64),
        };
        Slots {
            slots: (0..SLOTS).map(|index| CachePadded::new(slot(index))).collect(),
            looked_at: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    pub(super) fn announce(&self, counter: &AtomicU64, is_batch: bool) -> Pending<'_> {
        let slot = self.claim();
        // From here on the slot is given back whatever happens.
        let mut pending = Pending { slot, version: Version::NEWEST, batch: 0 };
        if is_batch {
            // Relaxed: only claimers touch `last_batch`; claiming (Acquire) orders them.
            let id = slot.last_batch.load(Ordering::Relaxed) + SLOTS as u64;
            slot.last_batch.store(id, Ordering::Relaxed);
            // Relaxed: whoever learns this id reads it from an entry that is published (Release) later.
            slot.batch.store(id, Ordering::Relaxed);
            pending.batch = id;
        }
        // Pairs with the fence in `Versions::advance`: if the load below misses the moved counter, then the
        // scan that moved it sees our claim.
        fence(Ordering::SeqCst);
        let version = counter.load(Ordering::Acquire);
        // Release: a waiter that sees this version, above its view, also sees what the slot's earlier users
        // wrote, one of which it may have been waiting for.
        slot.version.store(version, Ordering::Release);
        pending.version = Version::from_u64(version);
        pending
    }

    fn claim(&self) -> &Slot {
        let first = thread_number() % SLOTS;
        let mut patience = Patience::new();
        loop {
            for probe in 0..SLOTS {
                let index = (first + probe) % SLOTS;
                let slot = &self.slots[index];
                // Relaxed: a wrong guess costs a try; the exchange decides.
                if slot.version.load(Ordering::Relaxed) != FREE {
                    continue;
                }
                // Before the claim, hence before the fence behind it: a waiter that must see the claim looks
                // at this slot. Relaxed: the fence orders it.
                if self.looked_at.load(Ordering::Relaxed) <= index {
                    self.looked_at.fetch_max(index + 1, Ordering::Relaxed);
                }
                // Acquire: pairs with the Release that freed it, for `last_batch`. Release: the chain that
                // `announce` speaks of.
                let claimed =
                    slot.version.compare_exchange(FREE, ANNOUNCED, Ordering::AcqRel, Ordering::Relaxed);
                if claimed.is_ok() {
                    return slot;
                }
            }
            patience.wait();
        }
    }

    /// The caller has moved the counter above `upto` and fenced.
    pub(super) fn wait_for_pending(&self, upto: Version) {
        // Relaxed: the caller's fence makes every claim that counts visible, this number included.
        let looked_at = self.looked_at.load(Ordering::Relaxed);
        for slot in &self.slots[..looked_at] {
            let mut patience = Patience::new();
            // Acquire: pairs with `Pending::drop`, so that the entries waited for are seen (S-3).
            while is_waited_for(slot.version.load(Ordering::Acquire), upto) {
                patience.wait();
            }
        }
    }

    pub(super) fn is_in_flight(&self, batch: u64) -> bool {
        let slot = &self.slots[batch as usize % SLOTS];
        // Acquire: pairs with the store in `Pending::drop`; who sees the batch gone sees all its entries
        // (S-5).
        slot.batch.load(Ordering::Acquire) == batch
    }
}

fn is_waited_for(slot_version: u64, upto: Version) -> bool {
    slot_version == ANNOUNCED || slot_version <= upto.to_u64()
}

/// A put on its way. Scans wait for it; dropping it, also by a panic, retires it.
#[must_use = "dropping it retires the put at once"]
pub struct Pending<'v> {
    slot: &'v Slot,
    version: Version,
    batch: u64,
}

impl Pending<'_> {
    /// The version to write into every entry.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The batch id to write into every entry; 0 for a single put.
    pub fn batch(&self) -> u64 {
        self.batch
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.batch != 0 {
            // The batch becomes visible here, whole (S-5). Release: behind all of its entries. Before the
            // slot is freed: a scan that stops waiting must not find the batch still in flight.
            self.slot.batch.store(0, Ordering::Release);
        }
        // Release: pairs with the loads of waiters and of the next claimer.
        self.slot.version.store(FREE, Ordering::Release);
    }
}

impl fmt::Debug for Pending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending {{ version: {}, batch: {} }}", self.version, self.batch)
    }
}
