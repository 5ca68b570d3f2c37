//! `Shard`: the keys that hash to one number, with all that belongs to them, behind one lock (KVell, SOSP
//! '19, section 4: shared nothing).
//!
//! A caller does the shard's I/O itself. It changes the state under the lock, lets the lock go to submit what
//! the change left in the outbox, and then waits for its tickets. Of all callers that wait, one reaps for
//! all; when its own ticket is done it wakes another one, which reaps from then on, as with the leader of a
//! group commit. So a get of a cached block meets no other thread, and no thread is switched to for one that
//! is not. A transfer that is alone in the outbox, and need not be durable, is done by the caller itself:
//! many threads with a transfer each reach twice as much so as through a queue.
//!
//! What is always true:
//! - K-7: the lock is never held while a transfer is submitted or waited for.
//! - K-8: of the writes of one key, the next begins when the one before has been applied or has failed. A
//!   range delete waits for the writes of its keys, and they for it. A write that needs keys of several
//!   shards takes them in the order of the shards' numbers, and all keys of a shard at once.

use std::{io, sync::Arc};

use bytes::Bytes;
use kvilt_base::{
    KeyRange, Result,
    queue::{Completed, Queue, Transfer, Work},
};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    blocks::{Found, Ticket},
    state::State,
};

/// A shard.
pub(crate) struct Shard {
    state: Mutex<State>,
    queue: Arc<dyn Queue>,
    /// Notified when keys are released.
    released: Condvar,
}

/// The shard's state, locked.
pub(crate) type Locked<'s> = MutexGuard<'s, State>;

impl Shard {
    pub(crate) fn new(state: State, queue: Arc<dyn Queue>) -> Self {
        Shard { state: Mutex::new(state), queue, released: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.state.lock()
    }

    pub(crate) fn queue(&self) -> &dyn Queue {
        &*self.queue
    }

    /// Waits until nobody else writes any of these keys, and makes them the caller's.
    pub(crate) fn reserve<'k>(&self, state: &mut Locked<'_>, keys: impl Iterator<Item = &'k [u8]> + Clone) {
        while !state.reserve(keys.clone()) {
            self.released.wait(state);
        }
    }

    /// Waits until nobody writes a key of the range, and lets nobody begin.
    pub(crate) fn reserve_range(&self, state: &mut Locked<'_>, range: &KeyRange) {
        while !state.close_range(range) {
            self.released.wait(state);
        }
        while state.has_busy_in(range) {
            self.released.wait(state);
        }
    }

    /// Lets others write the keys.
    pub(crate) fn release<'k>(&self, state: &mut Locked<'_>, keys: impl Iterator<Item = &'k [u8]>) {
        if state.release(keys) {
            self.released.notify_all();
        }
    }

    /// Lets others write keys of the range.
    pub(crate) fn release_range(&self, state: &mut Locked<'_>) {
        state.open_range();
        self.released.notify_all();
    }

    /// The image of a block that was asked for.
    pub(crate) fn wait_for(&self, state: &mut Locked<'_>, found: Found) -> Result<Bytes> {
        match found {
            Found::Now(block) => Ok(block),
            Found::Later(ticket) => self.wait(state, ticket),
        }
    }

    /// Waits for the transfer of a ticket, and does for others meanwhile what nobody does: their transfers in
    /// the outbox, and the reaping.
    pub(crate) fn wait(&self, state: &mut Locked<'_>, ticket: Ticket) -> Result<Bytes> {
        loop {
            if let Some(outcome) = state.blocks.claim(ticket) {
                self.hand_over(state);
                return outcome;
            }
            if let Some(transfer) = state.blocks.take_lone() {
                // The caller's own call to the system costs less than a queue's and being woken.
                self.transfer_alone(state, transfer);
            } else if state.blocks.has_outbox() {
                self.submit(state);
            } else if state.queued > 0 && !state.is_reaping {
                self.reap(state);
            } else {
                let condvar = state.blocks.sleep(ticket);
                condvar.wait(state);
            }
        }
    }

    /// Wakes somebody who sleeps if there is something that nobody does.
    fn hand_over(&self, state: &Locked<'_>) {
        let is_left = state.blocks.has_outbox() || state.queued > 0 && !state.is_reaping;
        if is_left && let Some(sleeper) = state.blocks.sleeper() {
            sleeper.notify_one();
        }
    }

    /// Lets transfers end that nobody waits for, such as reads that a scan began and did not need.
    pub(crate) fn settle(&self, state: &mut Locked<'_>) {
        loop {
            self.submit(state);
            if state.queued == 0 || state.is_reaping {
                return;
            }
            self.reap(state);
        }
    }

    /// Submits what is in the outbox.
    pub(crate) fn submit(&self, state: &mut Locked<'_>) {
        let transfers = state.blocks.take_outbox();
        if !transfers.is_empty() {
            state.queued += transfers.len();
            MutexGuard::unlocked(state, || self.queue.submit(transfers));
        }
    }

    /// Does a transfer without the queue.
    fn transfer_alone(&self, state: &mut Locked<'_>, transfer: Transfer) {
        let Transfer { token, file, offset, work } = transfer;
        let outcome = Err(io::Error::other("a panic ended it"));
        let mut alone = Alone { state, done: Some(Completed { token, work, outcome }) };
        let Alone { state, done: Some(Completed { work, outcome, .. }) } = &mut alone else { return };
        MutexGuard::unlocked(state, || {
            *outcome = match work {
                Work::Read(buffer) => file.read_exact_at(offset, buffer),
                Work::Write { bytes, .. } => file.write_all_at(offset, bytes),
            };
        });
    }

    fn reap(&self, state: &mut Locked<'_>) {
        state.is_reaping = true;
        let mut reaping = Reaping { state, done: Vec::new() };
        let Reaping { state, done } = &mut reaping;
        MutexGuard::unlocked_fair(state, || self.queue.reap(done));
    }
}

/// A transfer that a caller does itself, until this is dropped: it completes with an error if a panic ends
/// it.
struct Alone<'r, 's> {
    state: &'r mut Locked<'s>,
    done: Option<Completed>,
}

impl Drop for Alone<'_, '_> {
    fn drop(&mut self) {
        self.state.blocks.complete(self.done.take().expect("it is given back"));
        if std::thread::panicking()
            && let Some(sleeper) = self.state.blocks.sleeper()
        {
            sleeper.notify_one();
        }
    }
}

/// Somebody reaps, until this is dropped: also if the queue panics, so that the others do not wait for a
/// reaper that is gone.
struct Reaping<'r, 's> {
    state: &'r mut Locked<'s>,
    done: Vec<Completed>,
}

impl Drop for Reaping<'_, '_> {
    fn drop(&mut self) {
        self.state.is_reaping = false;
        self.state.queued -= self.done.len();
        for completed in self.done.drain(..) {
            self.state.blocks.complete(completed);
        }
        if std::thread::panicking()
            && let Some(sleeper) = self.state.blocks.sleeper()
        {
            sleeper.notify_one();
        }
    }
}
