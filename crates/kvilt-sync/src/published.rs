//! `Published`: a pointer that readers follow without a lock and without writing a shared cache line.
//!
//! The chunk index and every chunk's state are published values: a change builds a new value and replaces the
//! pointer; readers go on with the one they loaded for as long as they hold a [`Pin`].
//!
//! What is always true:
//! - S-1: a value loaded under a pin is neither changed nor destroyed while that pin lives, even if the
//!   `Published` itself is dropped.
//! - S-2: who loads a value sees everything its builder wrote before publishing it (Release/Acquire).
//! - A pin never blocks anybody, and keeps what was there when it last loaded something; what is published
//!   later comes and goes beside it, however long it stays ([`Eras`](crate::eras)). A user's code runs
//!   [apart](Pin::apart) from the pin under which it is called, or what it looks at would be kept as well.
//!   Snapshots own no pin.
//! - A child made by `fork` has eras of its own, or what it replaced would wait for pins of threads that it
//!   does not have.
#![expect(unsafe_code, reason = "follows and reclaims shared pointers")]

#[cfg(any(loom, shuttle))]
pub use counted::{Birth, Pin, Published, drop_later, pin, settle, waiting};
#[cfg(any(loom, shuttle))]
pub(crate) use counted::{begin_process, flush};
#[cfg(not(any(loom, shuttle)))]
pub use real::{Birth, Pin, Published, drop_later, pin, settle, waiting};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use real::{begin_process, flush};

#[cfg(not(any(loom, shuttle)))]
mod real {
    use std::{
        cell::Cell,
        fmt,
        marker::PhantomData,
        ptr,
        sync::atomic::{AtomicPtr, Ordering},
    };

    use crate::{
        eras::{Eras, Reach, Reservation, Waiting},
        shim::thread_number,
    };

    /// A thread that retires so many values without a collection makes one.
    const UNCOLLECTED_MAX: u32 = 64;
    /// A collection frees what owned values of its own, and then those, so many deep.
    const ROUNDS_MAX: usize = 16;

    /// While it lives, what was loaded under it stays. Belongs to one thread.
    pub struct Pin {
        seat: Seat,
        _of_one_thread: PhantomData<*const ()>,
    }

    /// A reservation of this thread's, and the eras that it is one of.
    #[derive(Clone, Copy)]
    struct Seat {
        eras: &'static Eras,
        at: &'static Reservation,
    }

    /// When something was made: see [`drop_later`].
    #[derive(Clone, Copy, Debug)]
    pub struct Birth(u64);

    /// The eras of this process; null before they are used. They are never given back.
    static ERAS: AtomicPtr<Eras> = AtomicPtr::new(ptr::null_mut());

    /// What this thread has. Without a destructor, so that it can be used while the thread is torn down.
    struct Local {
        /// What pins that it takes share.
        seat: Cell<Option<Seat>>,
        /// How many values it has retired since it collected last.
        uncollected: Cell<u32>,
        is_collecting: Cell<bool>,
        /// How often it has collected.
        turn: Cell<usize>,
    }

    thread_local! {
        static LOCAL: Local = const {
            Local {
                seat: Cell::new(None),
                uncollected: Cell::new(0),
                is_collecting: Cell::new(false),
                turn: Cell::new(0),
            }
        };
        /// Gives this thread's seat back when it ends.
        static AT_EXIT: AtExit = const { AtExit };
    }

    struct AtExit;

    impl Drop for AtExit {
        fn drop(&mut self) {
            change_seat(None);
        }
    }

    fn eras() -> &'static Eras {
        // Acquire: pairs with the stores in `begin_process` and below.
        // SAFETY: null, or what was leaked there.
        unsafe { ERAS.load(Ordering::Acquire).as_ref() }.unwrap_or_else(first_eras)
    }

    #[cold]
    fn first_eras() -> &'static Eras {
        let mine = Box::into_raw(Box::new(Eras::beginning_at(1)));
        match ERAS.compare_exchange(ptr::null_mut(), mine, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just made, and leaked from here on.
            Ok(_) => unsafe { &*mine },
            Err(others) => {
                // SAFETY: made above, and nobody else has it.
                drop(unsafe { Box::from_raw(mine) });
                // SAFETY: what another thread has leaked.
                unsafe { &*others }
            }
        }
    }

    /// This process was forked from one that has used pins, and nothing that it has inherited is read or
    /// replaced in it. Called once, before anything is that it makes itself.
    pub(crate) fn begin_process() {
        let own = Eras::beginning_at(eras().now());
        // Release: pairs with the loads of who pins.
        ERAS.store(Box::into_raw(Box::new(own)), Ordering::Release);
    }

    /// Takes a pin: a store to this thread's own cache line that comes before what is loaded, a few
    /// nanoseconds. Pins nest.
    #[inline]
    pub fn pin() -> Pin {
        let seat = LOCAL.with(|local| local.seat.get());
        let own = seat.filter(|seat| ptr::eq(seat.eras, ERAS.load(Ordering::Acquire)));
        let seat = own.unwrap_or_else(take_seat);
        seat.at.enter(seat.eras);
        Pin { seat, _of_one_thread: PhantomData }
    }

    /// A seat of its own for this thread: for all pins that it takes from here on, if it does not end just
    /// now.
    #[cold]
    fn take_seat() -> Seat {
        let eras = eras();
        let seat = Seat { eras, at: eras.take() };
        if AT_EXIT.try_with(|_| ()).is_ok() {
            change_seat(Some(seat));
        }
        seat
    }

    /// Where this thread takes pins from here on. What it had before is given back, now or when the last pin
    /// there is gone.
    fn change_seat(seat: Option<Seat>) {
        let before = LOCAL.with(|local| local.seat.replace(seat));
        if let Some(before) = before.filter(|before| before.at.is_idle()) {
            before.eras.give_back(before.at);
        }
    }

    impl Pin {
        /// Runs what may take long, or replaces much: a user's code. Pins that it takes are apart from this
        /// one, so what they see is kept as long as they live, not as long as this one does.
        #[inline]
        pub fn apart<R>(&self, run: impl FnOnce() -> R) -> R {
            struct Back(Option<Seat>);
            impl Drop for Back {
                #[inline]
                fn drop(&mut self) {
                    if let Some(outer) = self.0 {
                        outer.at.set_aside(false);
                    }
                    let inner = LOCAL.with(|local| local.seat.replace(self.0));
                    if let Some(inner) = inner.filter(|inner| inner.at.is_idle()) {
                        inner.eras.give_back(inner.at);
                    }
                }
            }
            let outer = LOCAL.with(|local| local.seat.take());
            // Its last pin may end while this runs, if `self` is not of it; but this thread goes back to it.
            if let Some(outer) = outer {
                outer.at.set_aside(true);
            }
            let _back = Back(outer);
            run()
        }

        /// Frees of what was replaced some that no pin sees. For those who replace large values; readers need
        /// not care.
        pub fn flush(&self) {
            flush();
        }

        #[cfg(test)]
        pub(super) fn reservation(&self) -> &'static Reservation {
            self.seat.at
        }

        /// What was made then stays as long as this pin; nothing that was retired before is seen.
        #[inline]
        pub(crate) fn cover(&self, birth: Birth) {
            self.seat.at.cover(self.seat.eras, birth.0);
        }
    }

    impl Drop for Pin {
        #[inline]
        fn drop(&mut self) {
            let Seat { at, .. } = self.seat;
            if at.leave() {
                let (is_kept, uncollected) = LOCAL.with(|local| {
                    (local.seat.get().is_some_and(|seat| ptr::eq(seat.at, at)), local.uncollected.get())
                });
                if !is_kept || uncollected >= UNCOLLECTED_MAX || at.has_waiting() {
                    self.seat.end(is_kept);
                }
            }
        }
    }

    impl Seat {
        /// Its last pin is gone, and there is something to do about it.
        #[cold]
        fn end(self, is_kept: bool) {
            // What waited for it is found wherever one looks.
            flush();
            if !is_kept && !self.at.is_aside() {
                self.eras.give_back(self.at);
            }
        }
    }

    impl Birth {
        /// Now.
        pub fn now() -> Self {
            Birth(eras().now())
        }
    }

    /// Drops `value`, on whichever thread comes by then, when no pin is left that was there before and
    /// [covers](Birth) its birth. It must not wait when it is dropped.
    pub fn drop_later<T: Send + 'static>(birth: Birth, value: T) {
        retire_at(birth, size_of::<T>(), Box::new(value));
    }

    /// It keeps `bytes` alone besides its own.
    fn retire<T: Send + 'static>(value: Unlinked<T>, bytes: usize) {
        retire_at(value.birth(), size_of::<T>() + bytes, Box::new(value));
    }

    fn retire_at(birth: Birth, bytes: usize, value: Box<dyn Send>) {
        eras().retire(thread_number(), birth.0, bytes, value);
        LOCAL.with(|local| local.uncollected.set(local.uncollected.get() + 1));
    }

    /// Frees of what was replaced some that no pin sees, one of the caller's own included: a pin that it has
    /// keeps what nobody has looked at before.
    pub(crate) fn flush() {
        collect(|thread, turn| Reach::Some { thread, turn });
    }

    /// Frees all that was replaced or dropped and no pin sees. What is left is freed when the pin ends that
    /// sees it.
    pub fn settle() {
        collect(|_, _| Reach::All);
    }

    /// What was freed may have owned values that were retired then: these are collected here, not there, so
    /// that a long chain of values does not use up the stack.
    fn collect(reach: impl Fn(usize, usize) -> Reach) {
        struct Collecting<'l>(&'l Local);
        impl Drop for Collecting<'_> {
            fn drop(&mut self) {
                self.0.is_collecting.set(false);
            }
        }
        LOCAL.with(|local| {
            if local.is_collecting.replace(true) {
                return;
            }
            let _collecting = Collecting(local);
            for round in 0..ROUNDS_MAX {
                local.uncollected.set(0);
                local.turn.set(local.turn.get().wrapping_add(1));
                let reach = reach(thread_number(), local.turn.get());
                let freed = eras().collect(reach);
                let is_any = !freed.is_empty();
                drop(freed);
                // Who was handed something may have ended a moment before: that is looked at once more.
                let is_over =
                    if reach == Reach::All { !is_any && round > 0 } else { local.uncollected.get() == 0 };
                if is_over {
                    break;
                }
            }
        });
    }

    /// What waits for pins, in this process.
    pub fn waiting() -> Waiting {
        eras().waiting()
    }

    impl fmt::Debug for Pin {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Pin")
        }
    }

    /// A value, and when it was made.
    struct Born<T> {
        birth: Birth,
        value: T,
    }

    impl<T> Born<T> {
        fn now(value: T) -> *mut Self {
            Box::into_raw(Box::new(Born { birth: Birth::now(), value }))
        }
    }

    /// A value that is linked nowhere any more. No box: readers that are still there read what a box would
    /// say is its alone.
    struct Unlinked<T>(*mut Born<T>);

    // SAFETY: it is the value's owner, and any thread may drop the value.
    unsafe impl<T: Send> Send for Unlinked<T> {}

    impl<T> Unlinked<T> {
        fn birth(&self) -> Birth {
            // SAFETY: made by `Born::now`, and freed with `self`.
            unsafe { (*self.0).birth }
        }
    }

    impl<T> Drop for Unlinked<T> {
        fn drop(&mut self) {
            // SAFETY: made by `Born::now`, and given to `self` by who unlinked it; no reader is left when
            // `self` is dropped.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }

    /// A value that is replaced whole. Any thread loads or replaces; replacing threads that do not agree on
    /// an order lose each other's values, but nothing worse.
    ///
    /// ```
    /// use kvilt_sync::{Published, pin};
    /// let p = Published::new(vec![1]);
    /// let pin = pin();
    /// let old = p.load(&pin);
    /// p.replace(vec![2]);
    /// assert_eq!((old, p.load(&pin)), (&vec![1], &vec![2]));
    /// ```
    pub struct Published<T: Send + Sync + 'static> {
        /// Never null.
        present: AtomicPtr<Born<T>>,
        _owned: PhantomData<Box<Born<T>>>,
    }

    impl<T: Send + Sync + 'static> Published<T> {
        /// Publishes the first value.
        pub fn new(value: T) -> Self {
            Published { present: AtomicPtr::new(Born::now(value)), _owned: PhantomData }
        }

        /// The value at this moment; it stays for as long as the pin.
        #[inline]
        pub fn load<'p>(&self, pin: &'p Pin) -> &'p T {
            let Seat { eras, at } = pin.seat;
            // Acquire: pairs with the swap in `replace`, so that the value's contents are seen with it.
            let present = at.follow(eras, || self.present.load(Ordering::Acquire));
            // SAFETY: it came from `Born::now`, and is freed only by a collection of these eras (this
            // process's) behind its being swapped out: not before `pin`, whose eras meet the value's since it
            // was loaded, has ended (S-19).
            let born = unsafe { &*present };
            &born.value
        }

        /// Publishes `value` in place of the present one, which is destroyed when no pin can see it any more.
        pub fn replace(&self, value: T) {
            self.replace_counting(value, 0);
        }

        /// The same, for a value that alone keeps about so many `bytes` more, as soon as it is replaced: they
        /// are counted as [waiting].
        pub fn replace_counting(&self, value: T, bytes: usize) {
            // AcqRel: Release for the contents of `value`, Acquire to destroy the old one, whose contents
            // another thread may have written.
            let old = self.present.swap(Born::now(value), Ordering::AcqRel);
            // It came out of the only place it could be loaded from, and a swap gives each value out once.
            retire(Unlinked(old), bytes);
            // Not collected: that would run other values' destructors here, in the middle of a put. Who
            // replaces what owns files or much memory flushes a pin.
        }
    }

    impl<T: Send + Sync + 'static> Drop for Published<T> {
        fn drop(&mut self) {
            // `&mut self` says that nobody else can take it; but a reader's pin may have outlived its borrow
            // of `self`.
            retire(Unlinked(*self.present.get_mut()), 0);
            // It may own files, and this thread may never come by again.
            flush();
        }
    }

    impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Published<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.load(&pin()).fmt(f)
        }
    }
}

/// Under an explorer: the same face; values live as long as their `Published`, and longer for who has a pin.
/// Reclamation itself is that of [`Eras`](crate::eras::Eras), which has a model of its own.
#[cfg(any(loom, shuttle))]
mod counted {
    use std::{any::Any, cell::RefCell, fmt, sync::Arc};

    use crate::{
        eras::Waiting,
        shim::{AtomicUsize, Ordering},
    };

    /// When something was made: nobody asks.
    #[derive(Clone, Copy, Debug)]
    pub struct Birth;

    impl Birth {
        /// Now.
        pub fn now() -> Self {
            Birth
        }
    }

    /// It is never dropped: no explorer waits that long.
    pub fn drop_later(_birth: Birth, value: impl Send + 'static) {
        std::mem::forget(value);
    }

    /// Nothing waits.
    pub fn waiting() -> Waiting {
        Waiting::default()
    }

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
    pub fn settle() {}

    /// Nothing to free.
    pub(crate) fn flush() {}

    impl Pin {
        /// Nothing to free.
        pub fn flush(&self) {}

        /// Runs what may take long.
        pub fn apart<R>(&self, run: impl FnOnce() -> R) -> R {
            run()
        }

        pub(crate) fn cover(&self, _birth: Birth) {}
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

        /// The same: nothing is counted.
        pub fn replace_counting(&self, value: T, _bytes: usize) {
            self.replace(value);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
