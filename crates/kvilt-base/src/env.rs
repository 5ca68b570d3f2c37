//! Time, chance and threads as arguments, so that a test with the same seed takes the same path.

use std::{sync::Arc, time::Duration};

/// Monotonic time, for scheduling and statistics only: no result depends on it.
pub trait Clock: Send + Sync {
    /// Time since some fixed moment; never goes back.
    fn now(&self) -> Duration;
}

/// Chance, for identities and for spreading work; no result depends on it.
pub trait Rng: Send + Sync {
    /// The next random number.
    fn next_u64(&self) -> u64;
}

/// What a worker wants after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is more to do: step again.
    Again,
    /// Nothing to do: step again when woken, or after this time.
    Rest(Option<Duration>),
    /// Never step again.
    Done,
}

/// A background job, cut into steps. A step may do I/O and take long; between steps it holds no lock.
pub trait Worker: Send {
    /// Does one piece of work.
    fn step(&mut self) -> Next;
    /// A step panicked with this message; the worker will not be stepped again.
    fn panicked(&mut self, message: &str);
}

/// A hold on a spawned worker. Dropping it neither wakes nor stops the worker.
pub trait Hand: Send + Sync {
    /// There is something to do: step soon.
    fn wake(&self);
    /// Waits until the worker has returned [`Next::Done`] (or panicked). The worker must have been told by
    /// other means to finish. Called from inside a step of any worker it returns at once.
    fn join(&self);
}

/// Starts workers: threads in production, a seeded single-threaded scheduler in simulation.
pub trait Spawn: Send + Sync {
    /// Starts a worker under a short name.
    fn spawn(&self, name: &str, worker: Box<dyn Worker>) -> Arc<dyn Hand>;

    /// The caller cannot go on before a worker has moved. A simulation runs one step and returns true;
    /// threads return false, and the caller waits on its own condition.
    fn help(&self) -> bool {
        false
    }

    /// The caller is between two pieces of a step, and holds no lock that a write could need. A simulation
    /// may let a write come in between; threads go on.
    fn pause(&self) {}

    /// The caller is between two steps of a write: it has made room, and will take its version next. It holds
    /// the gates of its chunks, so another write might wait for ever; a simulation may let a read or a
    /// checkpoint come in between, threads go on.
    fn between(&self) {}
}
