//! `FaultyQueue`: a queue whose transfers fail where a test says.
//!
//! A plan counts a transfer when it is submitted, in the order of the batch: which of them completes first is
//! the disk's to choose, and must not change which one fails. What fails is not passed on, and completes with
//! its error when somebody reaps.

use std::{fmt, mem, sync::Arc};

use kvilt_base::{
    Completed, Disk, Means, Queue, Transfer, Work,
    queue::{foreign, found},
};
use parking_lot::Mutex;

use super::{Call, Fault, FaultyFile, Orders, PLANNED_PANIC, memory};

/// See the module.
pub(super) struct FaultyQueue {
    inside: Arc<dyn Queue>,
    disk: Arc<dyn Disk>,
    orders: Arc<Mutex<Orders>>,
    held: Mutex<Held>,
}

/// What was not passed on.
#[derive(Default)]
struct Held {
    failed: Vec<Completed>,
    /// Passed on by the call of [`Queue::reap`] that panics.
    panicking: Vec<Transfer>,
}

impl FaultyQueue {
    pub(super) fn new(inside: Arc<dyn Queue>, disk: Arc<dyn Disk>, orders: Arc<Mutex<Orders>>) -> Self {
        FaultyQueue { inside, disk, orders, held: Mutex::default() }
    }

    /// The transfer as the queue inside knows it; where it fails, it is held.
    fn admit(&self, held: &mut Held, mut transfer: Transfer) -> Option<Transfer> {
        let Some(file) = found::<FaultyFile>(&*transfer.file) else {
            let error = foreign(transfer.file.name());
            held.failed.push(transfer.complete(Err(error)));
            return None;
        };
        transfer.file = file.inside.clone();
        let call = match transfer.work {
            Work::Read(_) => Call::QueueRead,
            Work::Write { .. } => Call::QueueWrite,
        };
        match self.orders.lock().meet(call) {
            // The queue itself goes on where a call was interrupted or short.
            None | Some(Fault::Short | Fault::Interrupted) => Some(transfer),
            Some(Fault::LostSync)
                if matches!(transfer.work, Work::Write { is_durable: true, .. })
                    && let Some(memory) = memory(&*self.disk) =>
            {
                memory.set_sync_failure_at(Some(0));
                Some(transfer)
            }
            Some(Fault::Panic) => {
                held.panicking.push(transfer);
                None
            }
            Some(fault) => {
                let outcome = fault.error().map_or(Ok(()), Err);
                held.failed.push(transfer.complete(outcome));
                None
            }
        }
    }
}

impl Queue for FaultyQueue {
    fn submit(&self, transfers: Vec<Transfer>) {
        let mut held = self.held.lock();
        let passed: Vec<_> =
            transfers.into_iter().filter_map(|transfer| self.admit(&mut held, transfer)).collect();
        drop(held);
        if !passed.is_empty() {
            self.inside.submit(passed);
        }
    }

    fn reap(&self, done: &mut Vec<Completed>) {
        let Held { failed, panicking } = mem::take(&mut *self.held.lock());
        if !panicking.is_empty() {
            self.held.lock().failed = failed;
            self.inside.submit(panicking);
            panic!("{PLANNED_PANIC}");
        }
        let has_failed = !failed.is_empty();
        done.extend(failed);
        // The queue inside waits for one to complete; here one has.
        if !has_failed {
            self.inside.reap(done);
        }
    }

    fn means(&self) -> Means {
        self.inside.means()
    }
}

impl fmt::Debug for FaultyQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyQueue({:?})", self.inside)
    }
}
