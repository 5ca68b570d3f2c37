//! Workers on threads of their own.

use std::{
    any::Any,
    cell::Cell,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use kvilt_base::{Hand, Next, Spawn, Worker};
use parking_lot::{Condvar, Mutex};

thread_local! {
    /// Whether this thread is inside a step of some worker.
    static IS_STEPPING: Cell<bool> = const { Cell::new(false) };
}

/// Gives each worker a named thread. Shared freely.
///
/// A worker that panics is told so once ([`Worker::panicked`]) and never stepped again; nobody who joins it
/// hangs. If the system refuses a thread, the worker is told that in the same way.
#[derive(Clone, Debug, Default)]
pub struct NativeSpawn;

impl NativeSpawn {
    /// A spawner; it has no state.
    pub fn new() -> Self {
        NativeSpawn
    }
}

impl Spawn for NativeSpawn {
    fn spawn(&self, name: &str, worker: Box<dyn Worker>) -> Arc<dyn Hand> {
        let shared = Arc::new(Shared::default());
        // The worker waits here for its thread, so that it is still ours if there will be none.
        let seat = Arc::new(Mutex::new(Some(worker)));
        let started = thread::Builder::new().name(name.replace('\0', "")).spawn({
            let (shared, seat) = (shared.clone(), seat.clone());
            move || {
                let worker = seat.lock().take();
                if let Some(worker) = worker {
                    run(worker, &shared);
                }
                shared.finish();
            }
        });
        match started {
            Ok(thread) => Arc::new(ThreadHand { shared, thread: Mutex::new(Some(thread)) }),
            Err(error) => {
                refuse(seat.lock().take(), &error);
                shared.finish();
                Arc::new(ThreadHand { shared, thread: Mutex::new(None) })
            }
        }
    }
}

fn refuse(worker: Option<Box<dyn Worker>>, error: &io::Error) {
    if let Some(mut worker) = worker {
        worker.panicked(&format!("the system gave no thread: {error}"));
    }
}

/// What a worker's thread and those who hold its hand share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Told when `state` changes.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_woken: bool,
    is_done: bool,
}

impl Shared {
    fn finish(&self) {
        self.state.lock().is_done = true;
        self.changed.notify_all();
    }

    /// Waits until woken, or for `longest`.
    fn rest(&self, longest: Option<Duration>) {
        // A time too far to name is never.
        let end = longest.and_then(|longest| Instant::now().checked_add(longest));
        let mut state = self.state.lock();
        while !state.is_woken {
            match end {
                None => self.changed.wait(&mut state),
                Some(end) => {
                    if self.changed.wait_until(&mut state, end).timed_out() {
                        break;
                    }
                }
            }
        }
        state.is_woken = false;
    }
}

fn run(mut worker: Box<dyn Worker>, shared: &Shared) {
    IS_STEPPING.set(true);
    // The worker's own drop and its `panicked` are its code too: a panic there must not keep `finish` away.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        loop {
            match catch_unwind(AssertUnwindSafe(|| worker.step())) {
                Ok(Next::Again) => {}
                Ok(Next::Rest(longest)) => shared.rest(longest),
                Ok(Next::Done) => break,
                Err(panic) => {
                    worker.panicked(message_of(&*panic));
                    break;
                }
            }
        }
        drop(worker);
    }));
    IS_STEPPING.set(false);
}

/// The text that a panic carries.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "a panic without a message"
    }
}

struct ThreadHand {
    shared: Arc<Shared>,
    /// Taken by the first who joins.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Hand for ThreadHand {
    fn wake(&self) {
        self.shared.state.lock().is_woken = true;
        self.shared.changed.notify_all();
    }

    fn join(&self) {
        if IS_STEPPING.get() {
            return;
        }
        let mut state = self.shared.state.lock();
        while !state.is_done {
            self.shared.changed.wait(&mut state);
        }
        drop(state);
        // The thread has nothing left to do; waiting for its very end gives its stack back before we return.
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
