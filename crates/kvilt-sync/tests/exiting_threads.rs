//! S-1 at the end of a thread: many short-lived threads that retire long chains of values and exit in the
//! middle of it.
//!
//! The story: a value that is destroyed may own another published value, which retires in its turn; a thread
//! that exits destroys what waited in its bag. When retirement recursed, a chain of some thousand values, or
//! an exit among much garbage, used up the stack, and the process died of it once in many runs. The threads
//! here have small stacks, so that any recursion along the chain would show at once; under miri and
//! AddressSanitizer, so would a value used after it was destroyed, or destroyed twice.
#![cfg(not(any(loom, shuttle)))]
#![expect(clippy::disallowed_types, reason = "the test is about the ends of the system's threads")]

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use kvilt_sync::{Published, pin};

/// Links of a chain: far more than a recursion could take on `STACK_BYTES`.
const CHAIN: usize = if cfg!(miri) { 20 } else { 5_000 };
/// Threads, some at the same time.
const THREADS: usize = if cfg!(miri) { 4 } else { 400 };
/// How many of them live at the same time.
const AT_ONCE: usize = if cfg!(miri) { 2 } else { 8 };
const STACK_BYTES: usize = 128 << 10;

/// A value that owns the next one.
struct Link {
    next: Option<Published<Link>>,
    destroyed: Arc<AtomicUsize>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.destroyed.fetch_add(1, Ordering::Relaxed);
    }
}

fn chain(destroyed: &Arc<AtomicUsize>) -> Link {
    let link = |next| Link { next, destroyed: Arc::clone(destroyed) };
    (1..CHAIN).fold(link(None), |next, _| link(Some(Published::new(next))))
}

thread_local! {
    /// Dropped while the thread is torn down, when its own part of the collector may be gone already.
    static KEPT: RefCell<Vec<Published<Link>>> = const { RefCell::new(Vec::new()) };
}

/// Replaces a chain, drops one, and leaves one to be dropped by the end of the thread, which follows at once.
fn retire_and_exit(shared: &Published<Link>, destroyed: &Arc<AtomicUsize>) {
    KEPT.with_borrow_mut(|kept| kept.push(Published::new(chain(destroyed))));
    let own = Published::new(chain(destroyed));
    {
        let pin = pin();
        assert!(shared.load(&pin).next.is_some(), "a chain that was published whole");
        shared.replace(chain(destroyed));
        assert!(own.load(&pin).next.is_some());
    }
    drop(own);
}

#[test]
fn threads_that_exit_while_they_retire_destroy_everything_once_and_need_no_deep_stack() {
    let destroyed = Arc::new(AtomicUsize::new(0));
    let shared = Arc::new(Published::new(chain(&destroyed)));
    let spawn = || {
        let (shared, destroyed) = (Arc::clone(&shared), Arc::clone(&destroyed));
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        thread.spawn(move || retire_and_exit(&shared, &destroyed)).expect("a thread")
    };
    for _ in 0..THREADS / AT_ONCE {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| spawn()).collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
    }
    drop(shared);
    let expected = (3 * (THREADS / AT_ONCE * AT_ONCE) + 1) * CHAIN;
    // Nobody holds a pin any more, so collection comes to its end; each round advances it by at most one
    // link.
    for _ in 0..20 * CHAIN + 1_000 {
        pin().flush();
        if destroyed.load(Ordering::Relaxed) == expected {
            break;
        }
    }
    assert_eq!(destroyed.load(Ordering::Relaxed), expected, "each value is destroyed once");
}
