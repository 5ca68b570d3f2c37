//! Workers on shared threads: all are stepped, wakes are not lost, rests end, panics are told, threads are few.

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
    assert!(most <= 20, "{most} threads for 200 workers");
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
