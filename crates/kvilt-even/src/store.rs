//! `Store`: what all operations and all background jobs of one open database share.
//!
//! Lock order: whoever holds one of these may take those further down, never one further up.
//!
//! | | lock | note |
//! | --- | --- | --- |
//! | 1 | checkpoint | at level sync its thread may lead a commit group, which applies puts |
//! | 2 | chunk gates, in the order of keys | |
//! | 3 | structure | |
//! | 4 | dirty list, attention queue | |
//! | 5 | a log: its orders; its flusher, in it its writer, in both what its next summary tells | no writer lock across a disk call |
//! | 6 | the locks of `kvilt-sync` | its `lib.rs` orders them |

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kvilt_base::{Hand, Version, World};
use kvilt_sync::{published::Published, row_cache::RowCache, versions::Versions};
use parking_lot::{Condvar, Mutex};

use crate::{
    checkpoint::Checkpoint,
    chunk::Chunk,
    commit::CommitLog,
    files::Files,
    funk::{log::ChunkLog, unsynced::UnsyncedTables},
    index::ChunkIndex,
    journal::Journals,
    munk::{Munk, run::Run, tail::Tail},
    options::Config,
    poison::Poison,
    rebalance::{MunkRoom, RowRoom, Space},
    rest::Rest,
    stats::{Counters, Stall},
};

/// Chunks whose files or existence changed since the last checkpoint collected them.
#[derive(Default)]
pub(crate) struct Structure {
    /// Their first keys; a key may by now belong to no chunk.
    pub(crate) changed: BTreeSet<Vec<u8>>,
    /// How they changed, for the next process.
    pub(crate) journals: Journals,
}

/// Everything that is shared.
pub(crate) struct Store {
    pub(crate) config: Config,
    pub(crate) world: World,
    pub(crate) files: Files,
    pub(crate) versions: Arc<Versions>,
    pub(crate) index: Published<ChunkIndex>,
    pub(crate) structure: Mutex<Structure>,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) commit: Option<CommitLog>,
    pub(crate) munk_room: MunkRoom,
    pub(crate) space: Space,
    pub(crate) row_cache: RowCache,
    pub(crate) row_room: Mutex<RowRoom>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) poison: Poison,
    /// Logs with bytes that no checkpoint has synced yet.
    pub(crate) dirty: Mutex<Vec<Arc<ChunkLog>>>,
    pub(crate) unsynced_tables: UnsyncedTables,
    pub(crate) attention: Attention,
    pub(crate) progress: ProgressSignal,
    pub(crate) rest: Rest,
    /// None before there is a background, and none any more once the store is being closed.
    pub(crate) hands: Mutex<Option<Hands>>,
    /// Where this run's versions begin.
    pub(crate) epoch_base: Version,
    pub(crate) open_us: AtomicU64,
    pub(crate) next_id: AtomicU64,
}

impl Store {
    /// A number that no chunk, cold time or tail of this run has had.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// An empty tail that can take at least `bytes`, for entries that are mostly like those of `run`.
    pub(crate) fn new_tail(&self, bytes: usize, run: &Run) -> Arc<Tail> {
        Tail::new(self.config.tail_bytes.max(bytes), run, &self.files.budget)
    }

    /// A munk's parts behind a fresh tail with room for so many bytes; what was the tail is frozen.
    pub(crate) fn with_fresh_tail(&self, munk: &Munk, bytes: usize) -> Arc<Munk> {
        Arc::new(munk.behind(self.new_tail(bytes, &munk.run.run)))
    }

    /// Asks the background to look at a chunk.
    pub(crate) fn want(&self, chunk: &Arc<Chunk>) {
        if !chunk.is_queued.swap(true, Ordering::AcqRel) {
            self.attention.push(chunk);
            self.wake_rebalancer();
        }
    }

    /// Whether there is a background: not yet while the store is being opened.
    pub(crate) fn has_workers(&self) -> bool {
        self.hands.lock().is_some()
    }

    /// Wakes who makes room and does what chunks want.
    pub(crate) fn wake_rebalancer(&self) {
        if let Some(hands) = &*self.hands.lock() {
            hands.rebalancer.wake();
        }
    }

    /// Wakes the checkpointer: if it rests until something is to be made durable, or if a checkpoint is to
    /// come before its time. Otherwise checkpoints come by the clock, and nobody waits for one.
    pub(crate) fn wake_checkpointer(&self) {
        if let Some(hands) = &*self.hands.lock() {
            hands.checkpointer.wake();
        }
    }

    /// Waits until the background has moved, for a reason that is counted.
    pub(crate) fn stall(&self, reason: &Stall) {
        let seen = self.progress.now();
        let begun = self.world.clock.now();
        self.wake_rebalancer();
        if !self.world.spawn.help() {
            self.progress.wait_past(seen);
        }
        reason.times.add(1);
        reason.us.add((self.world.clock.now() - begun).as_micros() as u64);
    }
}

/// The background: the workers of a store.
pub(crate) struct Hands {
    pub(crate) rebalancer: Arc<dyn Hand>,
    pub(crate) checkpointer: Arc<dyn Hand>,
}

/// Chunks that want the background's attention, first come first served. It keeps none of them: one that was
/// split while it waited would keep its munk for as long as the queue is long.
#[derive(Default)]
pub(crate) struct Attention(Mutex<VecDeque<Weak<Chunk>>>);

impl Attention {
    fn push(&self, chunk: &Arc<Chunk>) {
        self.0.lock().push_back(Arc::downgrade(chunk));
    }

    /// Whether no chunk waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The next one that is still there; its flag is cleared, so that it can be wanted again meanwhile.
    pub(crate) fn pop(&self) -> Option<Arc<Chunk>> {
        loop {
            let chunk = self.0.lock().pop_front()?;
            if let Some(chunk) = chunk.upgrade() {
                chunk.is_queued.store(false, Ordering::Release);
                return Some(chunk);
            }
        }
    }
}

/// Counts what the background finished, so that a put can wait for it.
#[derive(Default)]
pub(crate) struct ProgressSignal {
    finished: Mutex<u64>,
    changed: Condvar,
}

/// A put that waits looks again after this time in any case: a bound, should what it waits for never come.
const STALL_WAIT_MAX: Duration = Duration::from_millis(5);

impl ProgressSignal {
    fn now(&self) -> u64 {
        *self.finished.lock()
    }

    /// Something was finished.
    pub(crate) fn signal(&self) {
        *self.finished.lock() += 1;
        self.changed.notify_all();
    }

    fn wait_past(&self, seen: u64) {
        let mut finished = self.finished.lock();
        if *finished == seen {
            self.changed.wait_for(&mut finished, STALL_WAIT_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use kvilt_base::KeyRange;

    use super::*;
    use crate::chunk::{ChunkState, Heat, ledger::Ledger};

    fn chunk(id: u64) -> Arc<Chunk> {
        let state = ChunkState { munk: None, funk: Arc::default(), cold_id: 0 };
        Chunk::new(id, KeyRange::all(), state, Heat::default(), Ledger::new(None))
    }

    /// Chunks that were split waited here with their munks, behind all others, and memory went over the
    /// budget.
    #[test]
    fn a_chunk_that_is_gone_is_not_kept_by_those_that_wait_for_attention() {
        let attention = Attention::default();
        let (split, live) = (chunk(1), chunk(2));
        attention.push(&split);
        attention.push(&live);
        assert_eq!(Arc::strong_count(&split), 1);
        drop(split);
        assert!(attention.pop().is_some_and(|next| Arc::ptr_eq(&next, &live)));
        assert!(attention.pop().is_none());
    }
}
