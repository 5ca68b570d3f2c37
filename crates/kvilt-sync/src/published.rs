//! `Published`: a pointer that readers follow without a lock and without writing a shared cache line.
//!
//! The chunk index and every chunk's state are published values: a change builds a new value and replaces the
//! pointer; readers go on with the one they loaded for as long as they hold a [`Pin`].
//!
//! What is always true:
//! - S-1: a value loaded under a pin is neither changed nor destroyed while that pin lives, even if the
//!   `Published` itself is dropped.
//! - S-2: who loads a value sees everything its builder wrote before publishing it (Release/Acquire).
//! - A pin never blocks anybody; but nothing replaced after it was taken is destroyed before it ends, so a pin
//!   is not kept across a user's code or a wait. Snapshots own no pin.
//! - A child made by `fork` has a collector of its own, or what it replaced would wait for pins of threads that it does not have.
#![expect(unsafe_code, reason = "follows and reclaims shared pointers")]

#[cfg(any(loom, shuttle))]
pub(crate) use counted::begin_process;
#[cfg(any(loom, shuttle))]
pub use counted::{Pin, Published, pin, settle};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use epoch::begin_process;
#[cfg(not(any(loom, shuttle)))]
pub use epoch::{Pin, Published, pin, settle};

#[cfg(not(any(loom, shuttle)))]
mod epoch {
    use std::{
        cell::{Cell, RefCell},
        fmt, ptr,
        sync::atomic::{AtomicPtr, Ordering},
    };

    use crossbeam_epoch::{Atomic, Collector, Guard, LocalHandle, Owned};
    use parking_lot::Mutex;

    /// While it lives, what was loaded under it stays. Belongs to one thread.
    pub struct Pin(Guard);

    /// The collector of a process whose ancestors have used one; null before. It is never given back.
    static COLLECTOR: AtomicPtr<Collector> = AtomicPtr::new(ptr::null_mut());

    thread_local! {
        /// This thread's part in a collector, and which that is.
        static LOCAL: RefCell<(*mut Collector, LocalHandle)> = RefCell::new(register());
    }

    fn register() -> (*mut Collector, LocalHandle) {
        // Acquire: pairs with the store in `begin_process`.
        let own = COLLECTOR.load(Ordering::Acquire);
        // SAFETY: null, or what `begin_process` leaked.
        let collector = unsafe { own.as_ref() }.unwrap_or_else(crossbeam_epoch::default_collector);
        (own, collector.register())
    }

    /// This process was forked from one that has used pins, and nothing that it has inherited is read or replaced in it. Called once,
    /// before anything is that it makes itself.
    pub(crate) fn begin_process() {
        // Release: pairs with the loads of who pins.
        COLLECTOR.store(Box::into_raw(Box::new(Collector::new())), Ordering::Release);
    }

    /// Takes a pin: a store to this thread's own cache line and a fence, a few nanoseconds. Pins nest.
    #[inline]
    pub fn pin() -> Pin {
        Pin(guard())
    }

    #[inline]
    fn guard() -> Guard {
        let guard = LOCAL.try_with(|local| {
            if local.borrow().0 != COLLECTOR.load(Ordering::Acquire) {
                change_collector(local);
            }
            local.borrow().1.pin()
        });
        // Without, the thread is being torn down.
        guard.unwrap_or_else(|_| register().1.pin())
    }

    #[cold]
    fn change_collector(local: &RefCell<(*mut Collector, LocalHandle)>) {
        // Refused to a destructor that runs while this thread takes a pin of its parent's.
        if let Ok(mut local) = local.try_borrow_mut() {
            let inherited = std::mem::replace(&mut *local, register());
            // Its drop would have a part in what nobody collects.
            std::mem::forget(inherited);
        }
    }

    impl Pin {
        /// Pushes what this thread replaced to where any thread destroys it, and tries to destroy some. For
        /// those who replace large values; readers need not care.
        pub fn flush(&self) {
            self.0.flush();
        }

        /// Drops `value` when every pin is gone that is there now, on whichever thread comes by then. It must neither pin nor
        /// wait when it is dropped.
        pub fn drop_later(&self, value: impl Send + 'static) {
            self.0.defer(move || drop(value));
        }
    }

    /// Destroys what was replaced or dropped, as far as no pin sees it and no other thread still keeps it to itself.
    /// For who has dropped something large, files above all, made of about so many `values`.
    pub fn settle(values: usize) {
        // Three flushes let go of what was dropped, and that may own values of its own, four deep; a flush destroys
        // some five hundred at most.
        for _ in 0..16 + values / 256 {
            pin().flush();
        }
    }

    impl fmt::Debug for Pin {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Pin")
        }
    }

    /// A value that is replaced whole. Any thread loads or replaces; replacing threads that do not agree on an
    /// order lose each other's values, but nothing worse.
    ///
    /// ```
    /// use kvilt_sync::{Published, pin};
    /// let p = Published::new(vec![1]);
    /// let pin = pin();
    /// let old = p.load(&pin);
    /// p.replace(vec![2]);
    /// assert_eq!((old, p.load(&pin)), (&vec![1], &vec![2]));
    /// ```
    pub struct Published<T: Send + Sync + 'static>(Atomic<T>);

    impl<T: Send + Sync + 'static> Published<T> {
        /// Publishes the first value.
        pub fn new(value: T) -> Self {
            Published(Atomic::new(value))
        }

        /// The value at this moment; it stays for as long as the pin.
        pub fn load<'p>(&self, pin: &'p Pin) -> &'p T {
            // Acquire: pairs with the swap in `replace`, so that the value's contents are seen with it.
            let shared = self.0.load(Ordering::Acquire, &pin.0);
            // SAFETY: the pointer is never null (set in `new` and `replace`), and what it points to is
            // destroyed only by `defer_destroy` after it was swapped out, hence not before `pin`, taken before
            // this load from the same collector (this process's), has ended.
            unsafe { shared.deref() }
        }

        /// Publishes `value` in place of the present one, which is destroyed when no pin can see it any more.
        pub fn replace(&self, value: T) {
            let guard = guard();
            // AcqRel: Release for the contents of `value`, Acquire to destroy the old one, whose contents
            // another thread may have written.
            let old = self.0.swap(Owned::new(value), Ordering::AcqRel, &guard);
            // SAFETY: `old` came out of the only place it could be loaded from, and a swap gives each value out
            // once; `T: Send + 'static` allows any thread to destroy it later.
            unsafe { guard.defer_destroy(old) };
            // Not flushed: that would run other values' destructors here, in the middle of a put. Who replaces
            // what owns files or much memory flushes a pin.
        }
    }

    impl<T: Send + Sync + 'static> Drop for Published<T> {
        fn drop(&mut self) {
            let last = std::mem::replace(&mut self.0, Atomic::null());
            // SAFETY: the pointer is never null, and `&mut self` says that nobody else can take it; a reader's pin
            // may have outlived its borrow of `self`, so the box is only moved here, and dropped when no pin is left.
            let last = unsafe { last.into_owned() };
            retire(last.into_box());
        }
    }

    thread_local! {
        /// Whether this thread is retiring a value. Without a destructor, so that it can be used while the thread
        /// is torn down.
        static IS_RETIRING: Cell<bool> = const { Cell::new(false) };
    }

    /// Values that came up for retirement while their thread was retiring another.
    static WAITING: Mutex<Vec<Box<dyn Send>>> = Mutex::new(Vec::new());

    /// Drops `value` when no pin can see it. Pinning may run the destructors of other values, which may own values
    /// that retire in their turn: these wait for the outermost call, so that a long chain of values, or a thread
    /// that exits among much garbage, does not use up the stack.
    ///
    /// It is flushed, for it may own files, and this thread need not be the one that has replaced it: one that only reads comes by
    /// when something is to be destroyed, and may never replace enough itself for others to see what it keeps.
    fn retire(value: Box<dyn Send>) {
        if IS_RETIRING.replace(true) {
            WAITING.lock().push(value);
            return;
        }
        let mut values = vec![value];
        while !values.is_empty() {
            let guard = guard();
            for value in values {
                guard.defer(move || drop(value));
            }
            guard.flush();
            drop(guard);
            values = std::mem::take(&mut *WAITING.lock());
        }
        IS_RETIRING.set(false);
    }

    impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Published<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.load(&pin()).fmt(f)
        }
    }
}

/// Under an explorer: the same face; values live as long as their `Published`, and longer for who has a pin.
/// Reclamation itself is crossbeam's, and modelled there.
#[cfg(any(loom, shuttle))]
mod counted {
    use std::{any::Any, cell::RefCell, fmt, sync::Arc};

    use crate::shim::{AtomicUsize, Ordering};

    /// While it lives, what was loaded under it stays.
    pub struct Pin {
        loaded: RefCell<Vec<Arc<dyn Any + Send + Sync>>>,
    }

    /// Takes a pin.
    pub fn pin() -> Pin {
        Pin { loaded: RefCell::default() }
    }

    /// Nothing is destroyed here.
    pub(crate) fn begin_process() {}

    /// Nothing is destroyed here.
    pub fn settle(_values: usize) {}

    impl Pin {
        /// Nothing to push.
        pub fn flush(&self) {}

        /// It is never dropped: no explorer waits that long.
        pub fn drop_later(&self, value: impl Send + 'static) {
            std::mem::forget(value);
        }
    }

    impl fmt::Debug for Pin {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Pin")
        }
    }

    /// A value that is replaced whole.
    pub struct Published<T: Send + Sync + 'static> {
        /// Which of `values` is the present one: this is the pointer whose orderings are explored.
        present: AtomicUsize,
        values: std::sync::Mutex<Vec<Arc<T>>>,
    }

    impl<T: Send + Sync + 'static> Published<T> {
        /// Publishes the first value.
        pub fn new(value: T) -> Self {
            Published { present: AtomicUsize::new(0), values: std::sync::Mutex::new(vec![Arc::new(value)]) }
        }

        /// The value at this moment; it stays for as long as the pin.
        pub fn load<'p>(&self, pin: &'p Pin) -> &'p T {
            let present = self.present.load(Ordering::Acquire);
            let value = Arc::clone(&self.values.lock().expect("no panic inside")[present]);
            let place = Arc::as_ptr(&value);
            pin.loaded.borrow_mut().push(value);
            // SAFETY: the pin keeps a count of the value, and gives none back before it is dropped itself.
            unsafe { &*place }
        }

        /// Publishes `value` in place of the present one.
        pub fn replace(&self, value: T) {
            let present = {
                let mut values = self.values.lock().expect("no panic inside");
                values.push(Arc::new(value));
                values.len() - 1
            };
            self.present.swap(present, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    struct Counted(u64, u64, Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0 = u64::MAX;
            self.2.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// S-1.
    #[test]
    fn a_value_outlives_its_published_under_a_pin() {
        let p = Published::new(String::from("kept"));
        let pin = pin();
        let value = p.load(&pin);
        drop(p);
        for _ in 0..1000 {
            pin.flush();
        }
        assert_eq!(value, "kept");
    }

    /// A thread that came by when something was to be destroyed does not keep to itself what that had owned.
    #[test]
    fn what_a_destroyed_value_owned_is_destroyed_though_its_thread_does_no_more() {
        let (owner, owned) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let inner = Published::new(Counted(0, 0, owned.clone()));
        let outer = Published::new((inner, Counted(0, 0, owner.clone())));
        let (has_destroyed, destroyed) = std::sync::mpsc::channel();
        let (may_end, end) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                drop(outer);
                while owner.load(Ordering::SeqCst) == 0 {
                    pin().flush();
                    std::thread::yield_now();
                }
                has_destroyed.send(()).unwrap();
                // It lives on: at its end a thread gives everything away.
                let _ = end.recv();
            });
            destroyed.recv().unwrap();
            for _ in 0..if cfg!(miri) { 1_000 } else { 100_000 } {
                pin().flush();
                // To whichever other test's thread was stopped under a pin.
                std::thread::yield_now();
            }
            let count = owned.load(Ordering::SeqCst);
            drop(may_end);
            assert_eq!(count, 1, "while the other thread rests");
        });
    }

    /// S-1 and S-2.
    #[test]
    fn readers_never_meet_a_destroyed_or_torn_value_and_all_are_destroyed() {
        const REPLACEMENTS: u64 = if cfg!(miri) { 20 } else { 5_000 };
        let destroyed = Arc::new(AtomicUsize::new(0));
        let p = Published::new(Counted(0, 0, destroyed.clone()));
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for i in 1..=REPLACEMENTS {
                        p.replace(Counted(i, i * 3, destroyed.clone()));
                    }
                });
                s.spawn(|| {
                    for _ in 0..REPLACEMENTS {
                        let pin = pin();
                        let value = p.load(&pin);
                        assert_eq!(value.1, value.0 * 3);
                    }
                });
            }
        });
        drop(p);
        let expected = 2 * REPLACEMENTS as usize + 1;
        for _ in 0..100_000 {
            pin().flush();
            if destroyed.load(Ordering::SeqCst) == expected {
                return;
            }
            // To whichever other test's thread was stopped under a pin.
            std::thread::yield_now();
        }
        // Another test's thread may hold a pin for long, so all we may ask for is that most are gone.
        assert!(cfg!(miri) || destroyed.load(Ordering::SeqCst) > expected / 2);
    }
}
