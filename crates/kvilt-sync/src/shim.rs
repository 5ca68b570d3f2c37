//! `shim`: std and `parking_lot`, or loom, or shuttle; one switch for the whole crate.
//!
//! Under `--cfg loom` or `--cfg shuttle` the protocols of this crate run on that explorer's atomics and
//! locks, so that a model visits every interleaving (loom), or many thousands at random (shuttle).
//! What is always true: a module that a model exercises takes its atomics and locks from here and from
//! nowhere else.

/// Whether an explorer looks on: limits are then so small that models reach them.
pub(crate) const IS_EXPLORED: bool = cfg!(any(loom, shuttle));

#[cfg(not(any(loom, shuttle)))]
mod real {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

    /// A condition to wait for under a [`Mutex`].
    #[derive(Default)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn wait<'m, T>(&self, mut guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
            self.0.wait(&mut guard);
            guard
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// First in, first out, for any number of threads, without a lock.
    pub(crate) struct Queue<T>(crossbeam_queue::SegQueue<T>);

    impl<T> Queue<T> {
        pub(crate) fn new() -> Self {
            Queue(crossbeam_queue::SegQueue::new())
        }

        pub(crate) fn push(&self, value: T) {
            self.0.push(value);
        }

        pub(crate) fn pop(&self) -> Option<T> {
            self.0.pop()
        }

        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }
    }

    /// One round of waiting for another thread that is about to move: spins first, then gives up the core.
    pub(crate) struct Patience(u32);

    impl Patience {
        pub(crate) fn new() -> Self {
            Patience(0)
        }

        pub(crate) fn wait(&mut self) {
            // The other side has a handful of instructions to go; only if it lost its core is yielding
            // better.
            const SPINS_BEFORE_YIELD: u32 = 64;
            if self.0 < SPINS_BEFORE_YIELD {
                self.0 += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// A small number that differs between threads as long as there are few of them: where to begin to look
    /// for a free slot, so that threads do not meet.
    pub(crate) fn thread_number() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        std::thread_local! {
            // Relaxed: the numbers need only be different.
            static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        // A thread that is being torn down shares number 0: slower, never wrong.
        NUMBER.try_with(|number| *number).unwrap_or(0)
    }
}

#[cfg(any(loom, shuttle))]
mod real {
    #[cfg(loom)]
    use loom as explorer;
    #[cfg(shuttle)]
    use shuttle as explorer;

    pub(crate) use explorer::sync::{
        MutexGuard,
        atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    };

    /// The explorer's mutex with the face of `parking_lot`'s.
    pub(crate) struct Mutex<T>(explorer::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(explorer::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model ends at its first panic under a lock")
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// First in, first out. The queue itself is not explored: a step of it is one step here.
    pub(crate) struct Queue<T>(Mutex<std::collections::VecDeque<T>>);

    impl<T> Queue<T> {
        pub(crate) fn new() -> Self {
            Queue(Mutex::new(std::collections::VecDeque::new()))
        }

        pub(crate) fn push(&self, value: T) {
            self.0.lock().push_back(value);
        }

        pub(crate) fn pop(&self) -> Option<T> {
            self.0.lock().pop_front()
        }

        pub(crate) fn len(&self) -> usize {
            self.0.lock().len()
        }
    }

    /// A condition to wait for under a [`Mutex`].
    pub(crate) struct Condvar(explorer::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Condvar(explorer::sync::Condvar::new())
        }

        pub(crate) fn wait<'m, T>(&self, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
            self.0.wait(guard).expect("a model ends at its first panic under a lock")
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// Waiting, to an explorer, is a yield: it then runs somebody else first.
    pub(crate) struct Patience;

    impl Patience {
        pub(crate) fn new() -> Self {
            Patience
        }

        pub(crate) fn wait(&mut self) {
            explorer::thread::yield_now();
        }
    }

    /// Every thread begins at the same slot, so that models meet the race for it.
    pub(crate) fn thread_number() -> usize {
        0
    }
}

pub(crate) use real::*;
