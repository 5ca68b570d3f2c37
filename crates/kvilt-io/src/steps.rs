//! `StepSpawn`: background workers that move only when a test says so.
//!
//! What is always true: at most one step runs at a time, on the thread that asked for it; which one is
//! decided by the seed, the choices and the clock alone.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kvilt_base::{Clock, Hand, Next, Rng, Spawn, Worker};
use parking_lot::Mutex;

use crate::{ManualClock, SeededRng, threads::message_of};

/// Steps after which something that should come to an end is taken for endless.
const STEPS_MAX: u64 = 10_000_000;

/// Keeps workers and steps them by hand. For one thread at a time: a second that asks for a step while one
/// runs gets none.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
/// use kvilt_base::{Next, Spawn, Worker};
/// use kvilt_io::{ManualClock, StepSpawn};
///
/// struct Count(Arc<AtomicU32>);
/// impl Worker for Count {
///     fn step(&mut self) -> Next {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         Next::Rest(None)
///     }
///     fn panicked(&mut self, _: &str) {}
/// }
/// let spawn = StepSpawn::new(ManualClock::new(), 1);
/// let count = Arc::new(AtomicU32::new(0));
/// let hand = spawn.spawn("count", Box::new(Count(count.clone())));
/// assert!(spawn.step(0));
/// assert!(!spawn.step(0), "it rests");
/// hand.wake();
/// assert!(spawn.step(0));
/// assert_eq!(count.load(Ordering::Relaxed), 2);
/// ```
pub struct StepSpawn {
    /// Itself, for the hands.
    this: Weak<StepSpawn>,
    clock: Arc<ManualClock>,
    rng: SeededRng,
    seats: Mutex<Vec<Seat>>,
    /// A step is running.
    is_stepping: AtomicBool,
}

/// A worker's place; it is never given to another.
struct Seat {
    name: String,
    /// None while it steps, and when it is done.
    worker: Option<Box<dyn Worker>>,
    rest: Rest,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Wants to step.
    Ready,
    /// Rests until woken, or until the clock shows this.
    Until(Option<Duration>),
    Done,
}

impl Seat {
    fn is_ready(&self, now: Duration) -> bool {
        match self.rest {
            Rest::Ready => true,
            Rest::Until(end) => end.is_some_and(|end| end <= now),
            Rest::Done => false,
        }
    }
}

impl StepSpawn {
    /// No workers yet; rests end by this clock; the seed decides where no choice is given.
    pub fn new(clock: Arc<ManualClock>, seed: u64) -> Arc<Self> {
        Arc::new_cyclic(|this| StepSpawn {
            this: this.clone(),
            clock,
            rng: SeededRng::new(seed),
            seats: Mutex::default(),
            is_stepping: AtomicBool::new(false),
        })
    }

    /// Runs one step of one ready worker, the one that `choice` picks; false if none is ready, or a step is
    /// running already.
    pub fn step(&self, choice: u64) -> bool {
        let now = self.clock.now();
        self.step_one(|seat| seat.is_ready(now), choice)
    }

    /// Steps ready workers, picked by the seed, until none is ready; says how many steps it took. The clock
    /// stands still.
    ///
    /// Panics if there is no end to it.
    pub fn step_all_until_idle(&self) -> u64 {
        for steps in 0..STEPS_MAX {
            if !self.step(self.rng.next_u64()) {
                return steps;
            }
        }
        panic!("workers are still ready after {STEPS_MAX} steps: {:?}", self.ready());
    }

    /// The names of the workers that would step now, in the order they were spawned.
    pub fn ready(&self) -> Vec<String> {
        let now = self.clock.now();
        self.seats.lock().iter().filter(|seat| seat.is_ready(now)).map(|seat| seat.name.clone()).collect()
    }

    /// The earliest time at which a resting worker gets ready by itself.
    pub fn next_deadline(&self) -> Option<Duration> {
        let seats = self.seats.lock();
        let ends = seats.iter().filter_map(|seat| match seat.rest {
            Rest::Until(end) => end,
            Rest::Ready | Rest::Done => None,
        });
        ends.min()
    }

    /// How many workers are not done.
    pub fn living(&self) -> usize {
        self.seats.lock().iter().filter(|seat| seat.rest != Rest::Done).count()
    }

    fn step_one(&self, may_step: impl Fn(&Seat) -> bool, choice: u64) -> bool {
        // Acquire and Release: a step sees all that the one before it did, on whatever thread.
        if self.is_stepping.swap(true, Ordering::Acquire) {
            return false;
        }
        let chosen = {
            let mut seats = self.seats.lock();
            let candidates: Vec<usize> = (0..seats.len()).filter(|at| may_step(&seats[*at])).collect();
            candidates.get((choice % candidates.len().max(1) as u64) as usize).map(|at| {
                // A wake during the step counts: it is a reason to step again.
                seats[*at].rest = Rest::Until(None);
                (*at, seats[*at].worker.take().expect("a worker that is not done sits here between steps"))
            })
        };
        let has_stepped = chosen.is_some();
        if let Some((at, worker)) = chosen {
            self.run(at, worker);
        }
        self.is_stepping.store(false, Ordering::Release);
        has_stepped
    }

    fn run(&self, at: usize, mut worker: Box<dyn Worker>) {
        let next = catch_unwind(AssertUnwindSafe(|| worker.step())).unwrap_or_else(|panic| {
            // A panic in there too is the worker's affair alone.
            let _ = catch_unwind(AssertUnwindSafe(|| worker.panicked(message_of(&*panic))));
            Next::Done
        });
        let mut seats = self.seats.lock();
        let seat = &mut seats[at];
        let is_woken = seat.rest == Rest::Ready;
        seat.rest = match next {
            Next::Done => Rest::Done,
            Next::Again => Rest::Ready,
            Next::Rest(_) if is_woken => Rest::Ready,
            // A time too far to name is never.
            Next::Rest(longest) => {
                Rest::Until(longest.and_then(|longest| self.clock.now().checked_add(longest)))
            }
        };
        if next == Next::Done {
            // Its drop may call us: not under the lock.
            drop(seats);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(worker)));
        } else {
            seat.worker = Some(worker);
        }
    }

    fn is_done(&self, at: usize) -> bool {
        self.seats.lock()[at].rest == Rest::Done
    }
}

impl Spawn for StepSpawn {
    fn spawn(&self, name: &str, worker: Box<dyn Worker>) -> Arc<dyn Hand> {
        let mut seats = self.seats.lock();
        seats.push(Seat { name: name.to_owned(), worker: Some(worker), rest: Rest::Ready });
        Arc::new(StepHand { spawn: self.this.clone(), at: seats.len() - 1 })
    }

    /// Steps a ready worker, or, if there is none, a resting one; false if a step is running already or all
    /// are done.
    fn help(&self) -> bool {
        let choice = self.rng.next_u64();
        self.step(choice) || self.step_one(|seat| seat.rest != Rest::Done, choice)
    }
}

struct StepHand {
    spawn: Weak<StepSpawn>,
    at: usize,
}

impl Hand for StepHand {
    fn wake(&self) {
        if let Some(spawn) = self.spawn.upgrade() {
            let mut seats = spawn.seats.lock();
            let seat = &mut seats[self.at];
            if seat.rest != Rest::Done {
                seat.rest = Rest::Ready;
            }
        }
    }

    /// Steps workers, this one and those that are ready, until this one is done.
    fn join(&self) {
        let Some(spawn) = self.spawn.upgrade() else {
            return;
        };
        for _ in 0..STEPS_MAX {
            if spawn.is_done(self.at) || spawn.is_stepping.load(Ordering::Relaxed) {
                return;
            }
            self.wake();
            spawn.step(spawn.rng.next_u64());
        }
        panic!("a worker was not done after {STEPS_MAX} steps: was it told to finish?");
    }
}
