//! `Pool`: a few threads that step the background workers of all stores of an [`crate::Env`].
//!
//! A worker mostly rests, so a thousand stores need no thousand threads. Threads are *runners*: one takes a
//! ready worker, steps it once, and looks for the next. What is always true while there are workers:
//!
//! - At least one runner is idle, or about to be. So there is one thread more than there are workers being
//!   stepped.
//! - If the rest of some worker ends by time, an idle runner waits no longer than that, or one is about to
//!   look. If none ends by time, the last idle runner waits until it is woken: where all rest, nothing runs.
//!
//! More than [`BUSY_WANTED_MAX`] steps at once are avoided: only a worker that was ready for
//! [`READY_LONGEST`] is stepped beside so many. More than [`BUSY_MAX`] are begun only while all of them stand
//! still: a step may wait for what another worker does, and a fixed number of threads could then wait for
//! ever. So with a thousand stores that all have a checkpoint to take, there are few threads and a queue.

use std::{
    any::Any,
    cell::Cell,
    collections::{BTreeSet, HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kvilt_base::{Clock, Hand, Next, Spawn, Worker};

/// So many steps at once are started without hesitation: background work should leave processors to the user.
const BUSY_WANTED_MAX: usize = 4;

/// Longest time that a ready worker waits because others are busy.
const READY_LONGEST: Duration = Duration::from_millis(20);

/// So many steps at once are not exceeded as long as any of them ends now and then.
const BUSY_MAX: usize = 12;

/// If no step has ended for so long, those that run may be waiting for one that is ready.
const STILL_LONGEST: Duration = Duration::from_millis(100);

/// A runner that found nothing to do for so long ends, if another one watches.
const IDLE_LONGEST: Duration = Duration::from_secs(2);

thread_local! {
    /// Whether this thread is inside a worker's code.
    static IS_STEPPING: Cell<bool> = const { Cell::new(false) };
}

/// Steps workers on shared threads. Shared freely.
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Told when a worker became ready, and when the last one ended. Idle runners wait here.
    ready: Condvar,
    /// Told when a worker ended. Those who join wait here.
    ended: Condvar,
    clock: Arc<dyn Clock>,
    threads: Arc<dyn Spawn>,
}

#[derive(Default)]
struct State {
    seats: HashMap<u64, Seat>,
    next_id: u64,
    /// Ready workers, and since when, first come first served.
    ready: VecDeque<(u64, Duration)>,
    /// Resting workers by the end of their rest; those that rest until woken are not here.
    resting: BTreeSet<(Duration, u64)>,
    /// Runners that look for work.
    idle: usize,
    /// When idle runners look again if they are not woken before: one entry for each whose wait ends by time.
    looks: Vec<Duration>,
    /// Runners that were started and have not looked yet.
    starting: usize,
    /// Runners inside a step.
    busy: usize,
    /// When a step ended last, or one was begun although [`BUSY_MAX`] others run.
    moved_at: Duration,
}

/// A worker that has not ended.
struct Seat {
    status: Status,
    /// None while it is stepped.
    worker: Option<Box<dyn Worker>>,
}

/// Ready → Running → Ready or Resting; Resting → Ready by time or by a wake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Ready,
    Running { is_woken: bool },
    Resting { until: Option<Duration> },
}

/// What a runner should do.
enum Choice {
    Step(u64),
    /// Look again when told, or after this time, if there is one.
    Wait(Option<Duration>),
    /// It is not needed any more.
    End,
}

impl Pool {
    /// A pool that takes its threads from `threads`.
    pub(crate) fn new(threads: Arc<dyn Spawn>, clock: Arc<dyn Clock>) -> Self {
        Pool(Arc::new(Shared {
            state: Mutex::default(),
            ready: Condvar::new(),
            ended: Condvar::new(),
            clock,
            threads,
        }))
    }
}

impl Spawn for Pool {
    fn spawn(&self, _name: &str, worker: Box<dyn Worker>) -> Arc<dyn Hand> {
        let now = self.0.clock.now();
        let mut state = self.0.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.seats.insert(id, Seat { status: Status::Ready, worker: Some(worker) });
        state.ready.push_back((id, now));
        let needs_runner = state.reserve_watcher();
        drop(state);
        if needs_runner {
            Runner::start(&self.0);
        }
        self.0.ready.notify_one();
        Arc::new(PoolHand { shared: Arc::clone(&self.0), id })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of a worker runs under the lock, and no step of ours leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Steps a worker once, outside the lock, and puts it where it wants to be.
    fn step(&self, id: u64, mut worker: Box<dyn Worker>) {
        IS_STEPPING.set(true);
        let next = catch_unwind(AssertUnwindSafe(|| worker.step())).unwrap_or_else(|panic| {
            // A worker that panics again while it is told of its panic has nobody left to tell.
            let _ = catch_unwind(AssertUnwindSafe(|| worker.panicked(message_of(&*panic))));
            Next::Done
        });
        let worker = if next == Next::Done {
            // Its drop is its code too, and comes before those who join go on.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(worker)));
            None
        } else {
            Some(worker)
        };
        IS_STEPPING.set(false);
        let now = self.clock.now();
        let mut state = self.lock();
        state.busy -= 1;
        state.moved_at = now;
        match worker {
            Some(worker) => state.seat(id, worker, next, now),
            None => self.end(&mut state, id),
        }
    }

    /// Waits until woken; until the time `now + longest`, if that is limited.
    fn wait_until_ready<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        now: Duration,
        longest: Option<Duration>,
    ) -> MutexGuard<'s, State> {
        let Some(longest) = longest else {
            return self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        let until = now + longest;
        state.watch(until);
        let waited = self.ready.wait_timeout(state, longest);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.unwatch(until);
        state
    }

    fn end(&self, state: &mut State, id: u64) {
        state.seats.remove(&id);
        self.ended.notify_all();
        if state.seats.is_empty() {
            self.ready.notify_all();
        }
    }

    /// There is no thread, and there will be none: tells every worker.
    fn fail_all(&self, message: &str) {
        let seats = std::mem::take(&mut self.lock().seats);
        IS_STEPPING.set(true);
        for mut worker in seats.into_values().filter_map(|seat| seat.worker) {
            let _ = catch_unwind(AssertUnwindSafe(|| worker.panicked(message)));
        }
        IS_STEPPING.set(false);
        self.ended.notify_all();
    }
}

impl State {
    /// Whether a runner must be started so that one watches; if so, it is counted as starting.
    fn reserve_watcher(&mut self) -> bool {
        let is_needed = self.idle + self.starting == 0;
        self.starting += usize::from(is_needed);
        is_needed
    }

    /// What a runner does that has been idle since then.
    fn look(&mut self, now: Duration, idle_since: Duration) -> Choice {
        let longest = match self.choose(now) {
            Choice::Wait(_) if self.seats.is_empty() => return Choice::End,
            Choice::Wait(longest) => longest,
            chosen => return chosen,
        };
        if self.idle == 1 {
            return Choice::Wait(longest);
        }
        let left = IDLE_LONGEST.saturating_sub(now.saturating_sub(idle_since));
        if left.is_zero() {
            return Choice::End;
        }
        Choice::Wait(Some(longest.map_or(left, |longest| longest.min(left))))
    }

    fn choose(&mut self, now: Duration) -> Choice {
        while let Some(&(until, id)) = self.resting.first()
            && until <= now
        {
            self.resting.pop_first();
            self.make_ready(id, now);
        }
        let next_end_of_rest = self.resting.first().map(|(until, _)| *until - now);
        let Some(&(id, since)) = self.ready.front() else { return Choice::Wait(next_end_of_rest) };
        let hesitation = self.hesitation(since, now);
        if !hesitation.is_zero() {
            let longest = next_end_of_rest.map_or(hesitation, |end| end.min(hesitation));
            return Choice::Wait(Some(longest));
        }
        if self.busy >= BUSY_MAX {
            self.moved_at = now;
        }
        self.ready.pop_front();
        Choice::Step(id)
    }

    /// How much longer a worker that is ready since then should wait for those that are stepped.
    fn hesitation(&self, since: Duration, now: Duration) -> Duration {
        match self.busy {
            ..BUSY_WANTED_MAX => Duration::ZERO,
            BUSY_WANTED_MAX..BUSY_MAX => READY_LONGEST.saturating_sub(now.saturating_sub(since)),
            BUSY_MAX.. => STILL_LONGEST.saturating_sub(now.saturating_sub(self.moved_at.max(since))),
        }
    }

    /// An idle runner begins to wait, no longer than until then.
    fn watch(&mut self, until: Duration) {
        self.looks.push(until);
    }

    /// An idle runner that was to wait until then waits no longer.
    fn unwatch(&mut self, until: Duration) {
        if let Some(at) = self.looks.iter().position(|other| *other == until) {
            self.looks.swap_remove(at);
        }
    }

    /// Whether a runner that stops being idle must wake another one, because no idle runner waits for the
    /// next end of a rest. A wake costs two system calls and a switch of threads, so it is not made at each
    /// step.
    fn needs_another_look(&self) -> bool {
        let Some(&(end, _)) = self.resting.first() else { return false };
        self.idle > 0 && self.looks.iter().all(|until| *until > end)
    }

    fn make_ready(&mut self, id: u64, now: Duration) {
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.status = Status::Ready;
            self.ready.push_back((id, now));
        }
    }

    /// Takes a worker out of its seat to be stepped; none if it has ended.
    fn take(&mut self, id: u64) -> Option<Box<dyn Worker>> {
        let seat = self.seats.get_mut(&id)?;
        seat.status = Status::Running { is_woken: false };
        seat.worker.take()
    }

    /// Puts a worker back after a step.
    fn seat(&mut self, id: u64, worker: Box<dyn Worker>, next: Next, now: Duration) {
        let Some(seat) = self.seats.get_mut(&id) else { return };
        seat.worker = Some(worker);
        let is_woken = seat.status == Status::Running { is_woken: true };
        match next {
            Next::Rest(longest) if !is_woken => {
                // A time too far to name is never.
                let until = longest.and_then(|longest| now.checked_add(longest));
                seat.status = Status::Resting { until };
                self.resting.extend(until.map(|until| (until, id)));
            }
            Next::Again | Next::Rest(_) | Next::Done => self.make_ready(id, now),
        }
    }

    /// Says whether the worker became ready by this.
    fn wake(&mut self, id: u64, now: Duration) -> bool {
        let Some(seat) = self.seats.get_mut(&id) else { return false };
        match seat.status {
            Status::Ready => false,
            Status::Running { .. } => {
                seat.status = Status::Running { is_woken: true };
                false
            }
            Status::Resting { until } => {
                if let Some(until) = until {
                    self.resting.remove(&(until, id));
                }
                self.make_ready(id, now);
                true
            }
        }
    }
}

/// What runs on a thread of the pool: each of its own steps steps one worker.
struct Runner {
    shared: Arc<Shared>,
    has_arrived: bool,
}

impl Runner {
    /// Starts one; it was counted as starting.
    fn start(shared: &Arc<Shared>) {
        let runner = Runner { shared: Arc::clone(shared), has_arrived: false };
        shared.threads.spawn("kvilt-pool", Box::new(runner));
    }

    /// Waits for a ready worker; none if this runner is needed no longer.
    fn wait<'s>(
        shared: &'s Shared,
        mut state: MutexGuard<'s, State>,
    ) -> (MutexGuard<'s, State>, Option<u64>) {
        let idle_since = shared.clock.now();
        state.idle += 1;
        let chosen = loop {
            let now = shared.clock.now();
            match state.look(now, idle_since) {
                Choice::Step(id) => break Some(id),
                Choice::Wait(longest) => state = shared.wait_until_ready(state, now, longest),
                Choice::End => break None,
            }
        };
        state.idle -= 1;
        if state.needs_another_look() {
            shared.ready.notify_one();
        }
        (state, chosen)
    }
}

impl Worker for Runner {
    fn step(&mut self) -> Next {
        let shared = &self.shared;
        let mut state = shared.lock();
        if !self.has_arrived {
            self.has_arrived = true;
            state.starting -= 1;
        }
        let (mut state, chosen) = Runner::wait(shared, state);
        let Some(id) = chosen else { return Next::Done };
        let Some(worker) = state.take(id) else { return Next::Again };
        state.busy += 1;
        let needs_watcher = state.reserve_watcher();
        let is_more_ready = !state.ready.is_empty();
        drop(state);
        if needs_watcher {
            Runner::start(shared);
        } else if is_more_ready {
            shared.ready.notify_one();
        }
        shared.step(id, worker);
        Next::Again
    }

    /// The system gave no thread for this runner. (A runner's own steps catch the panics of workers.)
    fn panicked(&mut self, message: &str) {
        let mut state = self.shared.lock();
        if !self.has_arrived {
            state.starting -= 1;
        }
        let is_last = state.idle + state.starting + state.busy == 0;
        drop(state);
        if is_last {
            self.shared.fail_all(message);
        }
    }
}

/// The text that a panic carries.
fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
}

struct PoolHand {
    shared: Arc<Shared>,
    id: u64,
}

impl Hand for PoolHand {
    fn wake(&self) {
        let now = self.shared.clock.now();
        if self.shared.lock().wake(self.id, now) {
            self.shared.ready.notify_one();
        }
    }

    fn join(&self) {
        if IS_STEPPING.get() {
            return;
        }
        let mut state = self.shared.lock();
        while state.seats.contains_key(&self.id) {
            state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests;
