//! Workers on shared threads: all are stepped, wakes are not lost, rests end, panics are told, threads are
//! few.

use std::sync::{
    atomic::{AtomicBool, AtomicUsize, Ordering},
    mpsc,
};

use kvilt_io::{NativeClock, NativeSpawn};

use super::*;

/// Counts the threads that are alive.
#[derive(Clone, Default)]
struct CountedThreads {
    alive: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    is_refusing: Arc<AtomicBool>,
}

struct Counted(Box<dyn Worker>, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Worker for Counted {
    fn step(&mut self) -> Next {
        self.0.step()
    }
    fn panicked(&mut self, message: &str) {
        self.0.panicked(message);
    }
}

impl Spawn for CountedThreads {
    fn spawn(&self, name: &str, mut worker: Box<dyn Worker>) -> Arc<dyn Hand> {
        if self.is_refusing.load(Ordering::SeqCst) {
            worker.panicked("no thread");
        }
        let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(alive, Ordering::SeqCst);
        let refused: Box<dyn Worker> = Box::new(Steps(|| Next::Done, mpsc::channel().0));
        let worker = if self.is_refusing.load(Ordering::SeqCst) { refused } else { worker };
        NativeSpawn::new().spawn(name, Box::new(Counted(worker, Arc::clone(&self.alive))))
    }
}

/// A worker made of a closure; tells of a panic.
struct Steps<F>(F, mpsc::Sender<String>);

impl<F: FnMut() -> Next + Send> Worker for Steps<F> {
    fn step(&mut self) -> Next {
        (self.0)()
    }
    fn panicked(&mut self, message: &str) {
        self.1.send(message.to_string()).unwrap();
    }
}

fn pool() -> (Pool, CountedThreads) {
    let threads = CountedThreads::default();
    (Pool::new(Arc::new(threads.clone()), Arc::new(NativeClock::new())), threads)
}

fn spawn(
    pool: &Pool,
    step: impl FnMut() -> Next + Send + 'static,
) -> (Arc<dyn Hand>, mpsc::Receiver<String>) {
    let (told, panics) = mpsc::channel();
    (pool.spawn("test", Box::new(Steps(step, told))), panics)
}

#[test]
fn many_workers_are_stepped_on_few_threads() {
    let (pool, threads) = pool();
    let steps = Arc::new(AtomicUsize::new(0));
    let hands: Vec<_> = (0..200)
        .map(|_| {
            let (steps, mut left) = (Arc::clone(&steps), 50);
            spawn(&pool, move || {
                steps.fetch_add(1, Ordering::SeqCst);
                left -= 1;
                match left {
                    0 => Next::Done,
                    left if left % 10 == 0 => Next::Rest(Some(Duration::from_millis(1))),
                    _ => Next::Again,
                }
            })
            .0
        })
        .collect();
    hands.iter().for_each(|hand| hand.join());
    assert_eq!(steps.load(Ordering::SeqCst), 200 * 50);
    let most = threads.most.load(Ordering::SeqCst);
    // A thread for each worker would be 200. How many there are depends on the schedule: a thread that is
    // about to be idle counts as none, and another one is started for it.
    assert!(most <= 100, "{most} threads for 200 workers");
}

#[test]
fn workers_that_wait_for_one_another_are_all_stepped() {
    let (pool, _) = pool();
    // Each waits, inside its step, for the next one's step: as many steps at once as there are workers.
    let mut next: Option<mpsc::Receiver<()>> = None;
    let hands: Vec<_> = (0..3 * BUSY_WANTED_MAX)
        .map(|_| {
            let (done, is_done) = mpsc::channel();
            let waits_for = next.replace(is_done);
            spawn(&pool, move || {
                // The first to be spawned is stepped last; the others wait for it.
                if let Some(before) = &waits_for {
                    before.recv().unwrap();
                }
                done.send(()).unwrap();
                Next::Done
            })
            .0
        })
        .rev()
        .collect();
    hands.iter().for_each(|hand| hand.join());
}

#[test]
fn a_wake_is_never_lost() {
    let (pool, _) = pool();
    let (done, is_done) = mpsc::channel();
    let wanted = Arc::new(AtomicUsize::new(0));
    let (hand, _panics) = spawn(&pool, {
        let wanted = Arc::clone(&wanted);
        let mut seen = 0;
        move || {
            let now = wanted.load(Ordering::SeqCst);
            if now != seen {
                seen = now;
                done.send(now).unwrap();
            }
            if now == 1000 { Next::Done } else { Next::Rest(None) }
        }
    });
    for i in 1..=1000 {
        wanted.store(i, Ordering::SeqCst);
        hand.wake();
        assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(i));
    }
    hand.join();
    hand.wake();
}

#[test]
fn a_panic_is_told_once_and_hurts_no_other_worker() {
    let (pool, _) = pool();
    let (bad, panics) = spawn(&pool, || panic!("planted by the test"));
    bad.join();
    assert_eq!(panics.recv().unwrap(), "planted by the test");
    let (good, _) = spawn(&pool, || Next::Done);
    good.join();
    assert!(panics.recv().is_err(), "the worker is gone");
}

#[test]
fn a_join_from_inside_a_step_returns() {
    let (pool, _) = pool();
    let (resting, _panics) = spawn(&pool, || Next::Rest(None));
    let (joins, _) = spawn(&pool, move || {
        resting.join();
        Next::Done
    });
    joins.join();
}

#[test]
fn without_workers_there_are_no_threads() {
    let (pool, threads) = pool();
    for _ in 0..3 {
        let (hand, _) = spawn(&pool, || Next::Done);
        hand.join();
        while threads.alive.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_system_without_threads_is_told_to_the_workers() {
    let (pool, threads) = pool();
    threads.is_refusing.store(true, Ordering::SeqCst);
    let (hand, panics) = spawn(&pool, || Next::Again);
    hand.join();
    assert_eq!(panics.recv().unwrap(), "no thread");
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A worker that is never stepped.
fn idler() -> Box<dyn Worker> {
    Box::new(Steps(|| Next::Done, mpsc::channel().0))
}

impl State {
    fn with_ready(count: u64, since: Duration) -> State {
        let mut state = State::default();
        for id in 0..count {
            state.seats.insert(id, Seat { status: Status::Ready, worker: Some(idler()) });
            state.ready.push_back((id, since));
        }
        state
    }

    /// How long a runner would wait; none if it steps a worker.
    fn waits(&mut self, now: Duration) -> Option<Duration> {
        match self.choose(now) {
            Choice::Wait(longest) => Some(longest.unwrap_or(Duration::MAX)),
            Choice::Step(_) => None,
            Choice::End => unreachable!("only who looks ends"),
        }
    }
}

/// A thousand stores had each a checkpoint to take, and got a hundred threads and more.
#[test]
fn a_queue_of_workers_is_stepped_by_few_threads_as_long_as_steps_end() {
    let mut state = State::with_ready(1000, ms(0));
    for _ in 0..BUSY_WANTED_MAX {
        assert_eq!(state.waits(ms(0)), None);
        state.busy += 1;
    }
    assert_eq!(state.waits(ms(5)), Some(ms(15)));
    while state.busy < BUSY_MAX {
        assert_eq!(state.waits(ms(20)), None);
        state.busy += 1;
    }
    for now in (1000..2000).step_by(50) {
        state.moved_at = ms(now - 40);
        assert_eq!(state.waits(ms(now)), Some(ms(60)), "steps end, and the others wait for that");
    }
    // Now none ends: one more at a time, for it may be what they wait for.
    assert_eq!(state.waits(ms(2100)), None);
    assert_eq!(state.waits(ms(2100)), Some(STILL_LONGEST));
}

#[test]
fn who_watches_alone_while_all_rest_without_end_waits_without_end() {
    let mut state = State::with_ready(3, ms(0));
    for id in 0..3 {
        state.ready.clear();
        let worker = state.take(id).expect("it is seated");
        state.seat(id, worker, Next::Rest(None), ms(1));
    }
    state.idle = 1;
    assert!(matches!(state.look(ms(2), ms(2)), Choice::Wait(None)));
    assert!(matches!(state.look(ms(1 << 40), ms(2)), Choice::Wait(None)));
    // Another one would watch for nothing.
    state.idle = 2;
    assert!(matches!(state.look(ms(2), ms(2)), Choice::Wait(Some(IDLE_LONGEST))));
    assert!(matches!(state.look(ms(2002), ms(2)), Choice::End));
}

/// Runners and a clock of a test's own. What the condition does is done here: who is told is any of those
/// that wait.
struct Watch {
    state: State,
    now: Duration,
    /// Idle runners: since when, and until when they wait.
    idle: Vec<(Duration, Option<Duration>)>,
    /// Workers inside a step.
    stepping: Vec<u64>,
    random: u64,
}

impl Watch {
    fn below(&mut self, limit: usize) -> usize {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) as usize % limit.max(1)
    }

    /// A runner, idle since then, looks: it waits, takes a worker, or ends.
    fn look(&mut self, since: Duration) {
        match self.state.look(self.now, since) {
            Choice::Wait(longest) => {
                let until = longest.map(|longest| self.now + longest);
                until.into_iter().for_each(|until| self.state.watch(until));
                self.idle.push((since, until));
                return;
            }
            Choice::Step(id) => {
                self.state.take(id).expect("it is seated");
                self.state.busy += 1;
                self.stepping.push(id);
            }
            Choice::End => {}
        }
        self.state.idle -= 1;
        let is_told = self.state.needs_another_look();
        if self.state.reserve_watcher() {
            self.state.starting -= 1;
            self.arrive();
        } else if is_told || !self.state.ready.is_empty() {
            self.tell();
        }
    }

    fn arrive(&mut self) {
        self.state.idle += 1;
        self.look(self.now);
    }

    fn tell(&mut self) {
        if !self.idle.is_empty() {
            let which = self.below(self.idle.len());
            let (since, until) = self.idle.swap_remove(which);
            until.into_iter().for_each(|until| self.state.unwatch(until));
            self.look(since);
        }
    }

    fn end_a_step(&mut self) {
        if self.stepping.is_empty() {
            return;
        }
        let which = self.below(self.stepping.len());
        let id = self.stepping.swap_remove(which);
        let rest = [None, Some(ms(1)), Some(ms(30)), Some(ms(700)), Some(ms(9000))][self.below(5)];
        let next = if self.below(4) == 0 { Next::Again } else { Next::Rest(rest) };
        self.state.busy -= 1;
        self.state.moved_at = self.now;
        self.state.seat(id, idler(), next, self.now);
        self.arrive();
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(which) = (0..self.idle.len())
            .filter(|which| self.idle[*which].1.is_some_and(|until| until <= end))
            .min_by_key(|which| self.idle[*which].1)
        {
            let (since, until) = self.idle.swap_remove(which);
            let until = until.expect("filtered");
            self.state.unwatch(until);
            self.now = self.now.max(until);
            self.look(since);
        }
        self.now = end;
    }

    /// What the head of the file promises.
    fn check(&self) {
        assert_eq!(self.state.idle, self.idle.len());
        assert!(!self.idle.is_empty(), "nobody watches");
        let due = self.state.resting.first().map(|(until, _)| *until);
        let due = due.into_iter().chain(self.state.ready.front().map(|(_, since)| *since + STILL_LONGEST));
        for due in due {
            let first = self.idle.iter().filter_map(|(_, until)| *until).min();
            assert!(
                first
                    .is_some_and(|first| first <= due.max(self.state.moved_at + STILL_LONGEST).max(self.now))
            );
        }
    }
}

#[test]
fn the_end_of_each_rest_is_watched_whoever_looks_ends_or_is_told() {
    for seed in 0..200 {
        let mut watch = Watch {
            state: State::with_ready(6, ms(0)),
            now: ms(0),
            idle: Vec::new(),
            stepping: Vec::new(),
            random: seed,
        };
        watch.arrive();
        for _ in 0..400 {
            match watch.below(5) {
                0 | 1 => watch.end_a_step(),
                2 => {
                    let (id, now) = (watch.below(6) as u64, watch.now);
                    if watch.state.wake(id, now) {
                        watch.tell();
                    }
                }
                _ => {
                    let time = [1, 25, 400, 3000][watch.below(4)];
                    watch.pass(ms(time));
                }
            }
            watch.check();
        }
    }
}

#[test]
fn steps_of_a_busy_worker_wake_no_runner_that_waits_for_the_end_of_a_rest() {
    let mut state = State::with_ready(2, ms(0));
    // One rests; an idle runner waits for the end of that.
    let Choice::Step(resting) = state.look(ms(0), ms(0)) else { panic!("two are ready") };
    let worker = state.take(resting).expect("it is seated");
    state.seat(resting, worker, Next::Rest(Some(ms(700))), ms(0));
    state.idle = 1;
    state.watch(ms(700));
    for now in 0..500 {
        // The other runner stops being idle to step the busy worker.
        let Choice::Step(busy) = state.look(ms(now), ms(now)) else { panic!("one is ready") };
        assert!(!state.needs_another_look(), "at {now}");
        let worker = state.take(busy).expect("it is seated");
        state.seat(busy, worker, Next::Again, ms(now));
    }
    // A rest that ends earlier than that must be waited for.
    let Choice::Step(busy) = state.look(ms(500), ms(500)) else { panic!("one is ready") };
    let worker = state.take(busy).expect("it is seated");
    state.seat(busy, worker, Next::Rest(Some(ms(100))), ms(500));
    assert!(state.needs_another_look());
}

#[test]
fn a_thousand_workers_at_rest_leave_one_thread() {
    let (pool, threads) = pool();
    let steps = Arc::new(AtomicUsize::new(0));
    let hands: Vec<_> = (0..1000)
        .map(|_| {
            let steps = Arc::clone(&steps);
            let mut is_new = true;
            spawn(&pool, move || {
                steps.fetch_add(1, Ordering::SeqCst);
                if std::mem::take(&mut is_new) { Next::Rest(None) } else { Next::Done }
            })
        })
        .collect();
    while steps.load(Ordering::SeqCst) < 1000 || threads.alive.load(Ordering::SeqCst) > 1 {
        std::thread::yield_now();
    }
    assert_eq!(steps.load(Ordering::SeqCst), 1000, "nobody was woken");
    hands.iter().for_each(|(hand, _)| hand.wake());
    hands.iter().for_each(|(hand, _)| hand.join());
    assert_eq!(steps.load(Ordering::SeqCst), 2000);
}
