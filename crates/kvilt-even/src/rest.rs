//! `Rest`: when the workers of a store rest without end, and who wakes them.
//!
//! A process may have a thousand stores open of which few are used, so a store in which nothing changes must
//! cost nothing. What is always true (E-16): a worker rests without end only if there is nothing that it
//! would do at any later time, and whoever changes that wakes it.
//!
//! | worker | rests without end when | is woken by |
//! | --- | --- | --- |
//! | rebalancer | several looks at all chunks, the last of them [`IDLE_LONGEST`] behind the last operation, found nothing to do | operations; a chunk that is wanted; others with the same budget that are short of memory |
//! | checkpointer | no log is dirty, no chunk has changed, the witness is synced, no file waits to be removed | the first change behind a checkpoint |
//!
//! A put makes no call to wake anybody: it loads what the workers say of themselves ([`kvilt_sync::Doze`]),
//! which hardly ever changes. What ends by time, a view's age or the rest of a chunk whose job failed, ends a
//! rest by time. Between the last operation and the rest without end, rests get longer and longer: [`Calm`].

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kvilt_base::{budget::Sleeper, mutant};

use kvilt_sync::{Doze, published::pin};

use crate::{
    chunk::Chunk,
    journal, mutants,
    store::{Store, Structure},
};

/// The rebalancer rests so long at least when it has found nothing to do.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// The longest rest of the rebalancer, in ticks, before that without end: as a power of two.
const TICKS_MAX_LOG2: u32 = 8;
/// All chunks are looked at once more when nothing was read or written for so long: what is left for then is
/// done before the rest without end.
const IDLE_LONGEST: Duration = Duration::from_secs(10);
/// So many stores are asked for memory at a time, once a tick: to wake all of a thousand would take longer
/// than to wait for some.
const SLEEPERS_ASKED: usize = 16;
/// A checkpoint that failed, or has left files that somebody still reads, is made again after an interval,
/// and the next after twice as long, up to this, or the interval if that is longer.
const AGAIN_LONGEST: Duration = Duration::from_secs(4);

/// What the workers of a store say of themselves.
#[derive(Default)]
pub(crate) struct Rest {
    /// The rebalancer rests for longer than a tick.
    pub(crate) rebalancer: Doze,
    /// The checkpointer rests until something changes.
    pub(crate) checkpointer: Doze,
    /// Whether the store is among those that the budget may ask for memory.
    is_listed: AtomicBool,
}

impl Store {
    /// Something was read or written, or will be: told behind a SeqCst read-modify-write, or a locked
    /// section, that the last look of a worker would see. Not to be told by who is announced.
    #[inline]
    pub(crate) fn stir(&self) {
        if self.rest.rebalancer.must_wake() {
            self.wake_rebalancer();
        }
    }

    /// A put has come by. As [`Store::stir`].
    #[inline]
    pub(crate) fn changed(&self) {
        self.stir();
        self.want_checkpoint();
    }

    /// Marks a chunk whose files have changed, or may soon.
    pub(crate) fn mark_changed(&self, structure: &mut Structure, chunk: &Chunk) {
        structure.changed.insert(chunk.range.start.clone());
        if self.files.pool.is_some() && !mutant(&mutants::ChangeNotNoted) {
            let first_key = &chunk.range.start;
            let edit = journal::chunk_has(&self.files, first_key, &chunk.state(&pin()).funk);
            structure.journals.note(&self.files, &edit);
        }
        // The worker's last look waits for the lock.
        self.want_checkpoint();
    }

    /// Something changed that a checkpoint makes durable. As [`Store::stir`].
    #[inline]
    pub(crate) fn want_checkpoint(&self) {
        if self.rest.checkpointer.must_wake() {
            self.wake_checkpointer();
        }
    }

    /// Whether a checkpoint has anything to do, now or when somebody has let go of a file.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        !self.checkpoint.is_settled()
            || !self.dirty.lock().is_empty()
            || !self.structure.lock().changed.is_empty()
    }

    /// Operations so far, about: who compares two of these knows whether there were any.
    fn operations(&self) -> u64 {
        let counters = &self.counters;
        let gets = [
            &counters.gets_from_munk,
            &counters.gets_from_row_cache,
            &counters.gets_from_log,
            &counters.gets_from_table,
            &counters.gets_absent,
        ];
        let reads: u64 = gets.iter().map(|counter| counter.sum()).sum();
        reads + counters.views.sum() + counters.puts.sum()
    }

    /// What readers and writers have left in the chunks, and how much of it is of puts. Only operations add
    /// to it.
    fn heat(&self) -> (u64, u64) {
        let pin = pin();
        let chunks = self.index.load(&pin).chunks().iter();
        // SeqCst: pairs with the additions of those who stir (S-80).
        chunks.fold((0, 0), |(all, puts), chunk| {
            let heat = &chunk.heat;
            let of = |count: &std::sync::atomic::AtomicU32| u64::from(count.load(Ordering::SeqCst));
            let puts_here = of(&heat.puts);
            (all + of(&heat.gets) + of(&heat.scans) + puts_here, puts + puts_here)
        })
    }

    /// When the first chunk may be tried again whose background job failed.
    fn first_retry(&self, now: Duration) -> Option<Duration> {
        let pin = pin();
        let chunks = self.index.load(&pin).chunks().iter();
        chunks.filter_map(|chunk| chunk.retry_at(now)).min()
    }

    /// When the oldest view expires.
    fn first_expiry(&self) -> Option<Duration> {
        self.versions.oldest_view_opened()?.checked_add(self.config.view_age_max)
    }

    /// Has others that rest, and use the same budget, look what they can do without. True if it is of any
    /// use.
    pub(crate) fn ask_for_memory(&self) {
        self.files.budget.ask(SLEEPERS_ASKED);
    }

    /// Lets the budget ask this store for memory while it rests.
    fn list_for_memory(self: &Arc<Self>) {
        if !self.rest.is_listed.swap(true, Ordering::AcqRel) {
            let this: Weak<Self> = Arc::downgrade(self);
            self.files.budget.list(this);
        }
    }
}

impl Sleeper for Store {
    fn wake(&self) {
        self.rest.is_listed.store(false, Ordering::Release);
        self.wake_rebalancer();
    }
}

/// How long the rebalancer has found nothing to do, and how long it may rest because of that.
pub(crate) struct Calm {
    /// Operations when it was looked last.
    operations: u64,
    /// When there was one, or something was done, last.
    changed_at: Duration,
    /// Looks at all chunks since then that came to nothing.
    rounds: u32,
    /// When the look that is under way began, and how many chunks it has come by.
    round_began: Duration,
    walked: usize,
    /// When others may be asked for memory again.
    ask_at: Duration,
}

/// How long to rest.
pub(crate) enum Pause {
    /// The next tick may bring something.
    Tick,
    /// Nobody is about: so long, unless woken.
    Long(Option<Duration>),
}

impl Calm {
    pub(crate) fn new(now: Duration) -> Self {
        Calm { operations: 0, changed_at: now, rounds: 0, round_began: now, walked: 0, ask_at: now }
    }

    /// Whether there were operations since this was asked last.
    pub(crate) fn is_disturbed(&mut self, store: &Store, now: Duration) -> bool {
        let operations = store.operations();
        let is_disturbed = operations != self.operations;
        if is_disturbed {
            self.operations = operations;
            self.begin(now);
        }
        is_disturbed
    }

    /// Something was done.
    pub(crate) fn begin(&mut self, now: Duration) {
        (self.changed_at, self.round_began) = (now, now);
        (self.rounds, self.walked) = (0, 0);
    }

    /// So many chunks were looked at, of so many, and nothing was done since.
    pub(crate) fn walked(&mut self, count: usize, of: usize) {
        self.walked += count;
        if self.walked >= of {
            self.rounds += 1;
            self.walked = 0;
        }
    }

    /// Has others asked for memory, if that is short and it is time to.
    pub(crate) fn ask_for_memory(&mut self, store: &Store, now: Duration) {
        if now >= self.ask_at && store.is_short_of_memory() {
            self.ask_at = now + TICK;
            store.ask_for_memory();
        }
    }

    /// How long to rest, after a step that did nothing; not beyond the next look at space, if one is due. If
    /// long, the rebalancer has lain down.
    pub(crate) fn pause(&mut self, store: &Arc<Store>, now: Duration, space_look: Option<Duration>) -> Pause {
        if self.rounds == 0 || self.walked > 0 || store.munk_room.is_waiting() {
            return Pause::Tick;
        }
        let before = store.heat();
        store.rest.rebalancer.lie_down();
        let (all, puts) = store.heat();
        if (all, puts) != before || !store.attention.is_empty() || store.operations() != self.operations {
            store.rest.rebalancer.rise();
            return Pause::Tick;
        }
        let began_idle = self.round_began.saturating_sub(self.changed_at) >= IDLE_LONGEST;
        let longest = (puts > 0 || !began_idle).then(|| TICK * (1 << self.rounds.min(TICKS_MAX_LOG2)));
        let end = longest.map(|longest| now + longest);
        let ends = [end, store.first_retry(now), store.first_expiry(), space_look];
        let end = ends.into_iter().flatten().min();
        // Of what is not due before the end of the rest, a whole look.
        self.round_began = end.unwrap_or(now).max(now);
        store.list_for_memory();
        Pause::Long(end.map(|end| end.saturating_sub(now).max(TICK)))
    }
}

/// How long after the beginning of a checkpoint the next is due, if so many in a row were not the last for
/// good.
pub(crate) fn checkpoint_interval(interval: Duration, again: u32) -> Duration {
    let longer = interval.saturating_mul(1 << again.min(16));
    longer.min(interval.max(AGAIN_LONGEST))
}

#[cfg(test)]
mod tests;
