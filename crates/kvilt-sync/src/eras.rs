//! `Eras`: what was replaced is freed when no reader can see it, and a reader that stands still stops nothing
//! else.
//!
//! Below [`Published`](crate::Published) and [`Rows`](crate::Rows), which own what is read; here are only the
//! times (interval-based reclamation, Wen et al., PPoPP 2018, with two eras a reader;
//! docs/design/0058-a-reader-keeps-what-it-found.md).
//!
//! ```text
//!   era     1 ─ 2 ─ 3 ─ 4 ─ 5 ─ 6 ─ 7 ─►              goes on with each collection that finds something
//!   reader      [lower ──── upper]                    reads what was born up to `upper`; raises it before it reads what is younger
//!   value a         [birth ──────── retired]          waits: the two meet
//!   value b                     [birth, retired]      is freed at once, however long the reader stays
//! ```
//!
//! What is always true:
//! - S-19: a value is freed only if, for each reader, it was retired before the reader's `lower`, or born
//!   after its `upper`; and a reader follows no link before its `upper` is as great as the era that it saw
//!   behind the link.
//! - What waits for a reader that stays is handed over to that reader, and looked at again when that one has
//!   ended, not before.
//! - Who retires a value has unlinked it; nobody can come by it who was not reading then.
//!
//! Any thread may retire and collect; a reservation is used by one thread at a time. No lock is held while a
//! value is freed.
#![expect(unsafe_code, reason = "reservations are in a list that only grows")]

use std::{fmt, ptr};

use crossbeam_utils::CachePadded;
use kvilt_base::planted;

use crate::shim::{AtomicPtr, AtomicU32, AtomicU64, Mutex, Ordering, fence};

/// The lower era of who reads nothing.
const IDLE: u64 = u64::MAX;
/// When a value was retired at which no collection has looked yet.
const NOT_YET: u64 = u64::MAX;
/// Threads that retire much do not meet in one bag.
const BAGS: usize = if crate::shim::IS_EXPLORED { 1 } else { 8 };
/// What has waited for so many eras is handed over to the reader that it waits for: short readers are gone
/// before that, and it is cheaper to look again than to hand over.
const HANDED_OVER_AGE: u64 = 64;

/// The eras of a process, its readers, and what waits for them.
pub struct Eras {
    era: CachePadded<AtomicU64>,
    /// All reservations that were ever made; one that nobody has is taken again.
    reservations: AtomicPtr<Reservation>,
    bags: [CachePadded<Mutex<Vec<Retired>>>; BAGS],
}

/// What one reader says of itself. Alone in its lines of memory: others look at it only when they collect.
#[repr(align(128))]
pub struct Reservation {
    lower: AtomicU64,
    upper: AtomicU64,
    /// How many pins of its thread share it. Only that thread uses this.
    pins: AtomicU32,
    /// Whether its thread has set it aside and will take pins from it again: 0 or 1. Only that thread uses
    /// this.
    is_aside: AtomicU32,
    /// Whether a thread has it: 0 or 1.
    is_taken: AtomicU32,
    /// Whether something was handed over to it: 0 or 1. A hint, for who ends.
    has_waiting: AtomicU32,
    waiting: Mutex<HandedOver>,
    /// Written before it is in the list.
    next: AtomicPtr<Reservation>,
}

/// What waits for one reader.
struct HandedOver {
    /// The reader's lower era: with another one, it is another reader.
    lower: u64,
    values: Vec<Retired>,
}

/// A value that nobody comes by any more.
struct Retired {
    birth: u64,
    retired: u64,
    bytes: usize,
    /// Dropped when no reader sees it.
    _value: Box<dyn Send>,
}

/// A reader that reads while somebody collects.
struct Present<'e> {
    at: &'e Reservation,
    lower: u64,
    upper: u64,
    given: Vec<Retired>,
}

/// Where a collection looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Where this thread retires, and in one other bag.
    Some {
        /// A number of the thread's.
        thread: usize,
        /// Another one each time: which other bag it is.
        turn: usize,
    },
    /// Everywhere; and what has to wait is handed over to whom it waits for.
    All,
}

/// Values that nobody sees any more: to be dropped where no lock is held.
#[must_use]
pub struct Freed(Vec<Retired>);

/// What waits for readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// So many values …
    pub values: u64,
    /// … that have so many bytes, as far as who retired them knew.
    pub bytes: u64,
}

impl Eras {
    /// Nobody reads and nothing waits, in this era.
    pub fn beginning_at(era: u64) -> Self {
        Eras {
            era: CachePadded::new(AtomicU64::new(era)),
            reservations: AtomicPtr::new(ptr::null_mut()),
            bags: std::array::from_fn(|_| CachePadded::new(Mutex::new(Vec::new()))),
        }
    }

    /// When what is made now is born.
    #[inline]
    pub fn now(&self) -> u64 {
        // Relaxed: an earlier era keeps a value longer, not shorter. Who reads the value has an era as late
        // as this, for whoever publishes the value has loaded this one before.
        self.era.load(Ordering::Relaxed)
    }

    /// A reservation that no other thread has. It has to be [given back](Eras::give_back).
    pub fn take(&self) -> &Reservation {
        let is_free = |at: &&Reservation| {
            // Acquire: pairs with the store in `give_back`.
            at.is_taken.load(Ordering::Relaxed) == 0
                && at.is_taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        self.each_reservation().find(is_free).unwrap_or_else(|| self.make())
    }

    fn make(&self) -> &Reservation {
        let made = Box::into_raw(Box::new(Reservation::taken()));
        // SAFETY: just made, and freed only with `self`.
        let at = unsafe { &*made };
        let mut first = self.reservations.load(Ordering::Relaxed);
        loop {
            at.next.store(first, Ordering::Relaxed);
            // Release: pairs with the load in `each_reservation`.
            match self.reservations.compare_exchange(first, made, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return at,
                Err(other) => first = other,
            }
        }
    }

    /// A reservation that was taken here, and under which nobody reads, is for any other thread.
    pub fn give_back(&self, at: &Reservation) {
        at.is_taken.store(0, Ordering::Release);
    }

    fn each_reservation(&self) -> impl Iterator<Item = &Reservation> {
        // Acquire: pairs with the exchange in `make`, of which all later ones are the continuation.
        let mut next = self.reservations.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: null, or of the list, whose members are freed with `self` only.
            let at = unsafe { next.as_ref() }?;
            next = at.next.load(Ordering::Relaxed);
            Some(at)
        })
    }

    /// Drops `value` in some collection, when no reader sees it that could come by it until now. The caller
    /// has unlinked it.
    pub fn retire(&self, thread: usize, birth: u64, bytes: usize, value: Box<dyn Send>) {
        let retired = Retired { birth, retired: NOT_YET, bytes, _value: value };
        self.bags[thread % BAGS].lock().push(retired);
    }

    /// Takes out what no reader sees.
    pub fn collect(&self, reach: Reach) -> Freed {
        let found = self.find(reach);
        if found.is_empty() {
            return Freed(found);
        }
        // AcqRel: who enters in the next era sees what was unlinked before. What is found was unlinked before
        // it came into its bag.
        let now = self.era.fetch_add(1, Ordering::AcqRel);
        // Pairs with the fences of readers: who does not see what was unlinked is seen here.
        fence(Ordering::SeqCst);
        let mut readers: Vec<Present<'_>> =
            self.each_reservation().filter_map(Reservation::present).collect();
        let (mut freed, mut waiting) = (Vec::new(), Vec::new());
        for mut value in found {
            value.retired = value.retired.min(now);
            let is_due = reach == Reach::All || value.retired + HANDED_OVER_AGE < now;
            match readers.iter_mut().find(|reader| reader.sees(&value)) {
                None => freed.push(value),
                Some(reader) if is_due => reader.given.push(value),
                Some(_) => waiting.push(value),
            }
        }
        for reader in readers {
            waiting.extend(reader.hand_over());
        }
        if !waiting.is_empty() {
            let thread = if let Reach::Some { thread, .. } = reach { thread } else { 0 };
            self.bags[thread % BAGS].lock().append(&mut waiting);
        }
        Freed(freed)
    }

    /// What may be free: of bags, and of readers that have ended.
    fn find(&self, reach: Reach) -> Vec<Retired> {
        let mut found = Vec::new();
        let mut take = |bag: usize| {
            let mut taken = std::mem::take(&mut *self.bags[bag % BAGS].lock());
            if found.is_empty() {
                found = taken;
            } else {
                found.append(&mut taken);
            }
        };
        match reach {
            Reach::Some { thread, turn } => {
                take(thread);
                take(turn);
            }
            Reach::All => (0..BAGS).for_each(take),
        }
        for at in self.each_reservation() {
            at.give_up(&mut found);
        }
        found
    }

    /// What waits now. It looks at all of it.
    pub fn waiting(&self) -> Waiting {
        let mut waiting = Waiting::default();
        let mut add = |values: &[Retired]| {
            waiting.values += values.len() as u64;
            waiting.bytes += values.iter().map(|value| value.bytes as u64).sum::<u64>();
        };
        self.bags.iter().for_each(|bag| add(&bag.lock()));
        self.each_reservation().for_each(|at| add(&at.waiting.lock().values));
        waiting
    }
}

impl Reservation {
    fn taken() -> Self {
        Reservation {
            lower: AtomicU64::new(IDLE),
            upper: AtomicU64::new(0),
            pins: AtomicU32::new(0),
            is_aside: AtomicU32::new(0),
            is_taken: AtomicU32::new(1),
            has_waiting: AtomicU32::new(0),
            waiting: Mutex::new(HandedOver { lower: IDLE, values: Vec::new() }),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its thread begins to read, or goes on.
    #[inline]
    pub fn enter(&self, eras: &Eras) {
        // Relaxed, here and below: this thread's only.
        let pins = self.pins.load(Ordering::Relaxed);
        self.pins.store(pins + 1, Ordering::Relaxed);
        if pins == 0 {
            // Acquire: pairs with the addition in `collect`. By the time that this is seen the era may be
            // over: then more is kept.
            let era = eras.era.load(Ordering::Acquire);
            self.upper.store(era, Ordering::Relaxed);
            store_before_loads(&self.lower, era);
        }
    }

    /// The opposite of `enter`, as often. True if its thread reads no more.
    #[inline]
    pub fn leave(&self) -> bool {
        let pins = self.pins.load(Ordering::Relaxed);
        self.pins.store(pins - 1, Ordering::Relaxed);
        if pins == 1 {
            // Release: pairs with the loads of who collects, which frees what was read until here.
            self.lower.store(IDLE, Ordering::Release);
        }
        pins == 1
    }

    /// Whether its thread reads.
    pub fn is_idle(&self) -> bool {
        self.pins.load(Ordering::Relaxed) == 0
    }

    /// Its thread takes pins from another one for a while, or from this one again. Meanwhile it may not be
    /// given back, though all its pins may end.
    #[inline]
    pub fn set_aside(&self, is_aside: bool) {
        // Relaxed: this thread's only.
        self.is_aside.store(u32::from(is_aside), Ordering::Relaxed);
    }

    /// Whether its thread comes back to it.
    pub fn is_aside(&self) -> bool {
        self.is_aside.load(Ordering::Relaxed) != 0
    }

    /// Whether some thread has it.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed) != 0
    }

    /// Whether something waited for who has left; it may say no a moment too early, and then the next
    /// collection finds it.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.has_waiting.load(Ordering::Relaxed) != 0
    }

    /// Follows a link: what `load` has loaded (Acquire), so that what it leads to stays until its thread has
    /// left.
    #[inline]
    pub fn follow<L>(&self, eras: &Eras, load: impl Fn() -> L) -> L {
        loop {
            let link = load();
            // Relaxed: whoever stored the link had seen the birth of what it leads to, so this is as late.
            let era = eras.era.load(Ordering::Relaxed);
            if era <= self.upper.load(Ordering::Relaxed) {
                return link;
            }
            // Before it is loaded once more: who collects sees this, or what is loaded has not been unlinked
            // yet.
            self.raise(era);
        }
    }

    /// What was born then, and what is linked in it from now on, stays until its thread has left.
    #[inline]
    pub fn cover(&self, eras: &Eras, birth: u64) {
        if self.upper.load(Ordering::Relaxed) < birth {
            self.raise(eras.era.load(Ordering::Relaxed).max(birth));
        }
    }

    #[cold]
    fn raise(&self, era: u64) {
        store_before_loads(&self.upper, era);
    }

    fn present(&self) -> Option<Present<'_>> {
        // Acquire, both: pair with the stores of who leaves, or has entered again, or read on. They need not
        // be of one moment: of who reads still what was to be seen is seen of both, and who has left has seen
        // nothing that is found.
        let lower = self.lower.load(Ordering::Acquire);
        let upper = self.upper.load(Ordering::Acquire);
        (lower != IDLE).then(|| Present { at: self, lower, upper, given: Vec::new() })
    }

    /// If who read has ended, what waited for it is found again.
    fn give_up(&self, found: &mut Vec<Retired>) {
        if self.has_waiting() {
            let mut waiting = self.waiting.lock();
            if self.lower.load(Ordering::Acquire) != waiting.lower {
                self.has_waiting.store(0, Ordering::Relaxed);
                found.append(&mut waiting.values);
            }
        }
    }
}

impl Present<'_> {
    fn sees(&self, value: &Retired) -> bool {
        let is_born = planted!(KeptForReaders, value.birth <= self.upper => true);
        self.lower <= value.retired && is_born
    }

    /// What is given to the reader waits for it; what does not, because there is another reader by now, comes
    /// back.
    fn hand_over(mut self) -> Vec<Retired> {
        if self.given.is_empty() {
            return self.given;
        }
        let mut waiting = self.at.waiting.lock();
        if waiting.values.is_empty() {
            waiting.lower = self.lower;
        }
        if waiting.lower == self.lower {
            waiting.values.append(&mut self.given);
            self.at.has_waiting.store(1, Ordering::Relaxed);
        }
        self.given
    }
}

impl Freed {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A store that comes before all loads behind it.
#[inline]
fn store_before_loads(to: &AtomicU64, era: u64) {
    if cfg!(all(target_arch = "x86_64", not(miri), not(loom), not(shuttle))) {
        // An exchange is all that a fence is to this processor, and costs half of one.
        to.swap(era, Ordering::SeqCst);
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    } else {
        // Release: who sees this instead of an earlier `leave` sees that too.
        to.store(era, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

impl Drop for Eras {
    fn drop(&mut self) {
        let mut next = self.reservations.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: made by `make`, and nobody has a reference to it that outlives `self`.
            let at = unsafe { Box::from_raw(next) };
            next = at.next.load(Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Eras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Eras {{ era {}, {:?} }}", self.now(), self.waiting())
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reservation")
    }
}

impl fmt::Debug for Freed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Freed({})", self.0.len())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Eras with a count of what was freed of them.
    struct Bed(Eras, Arc<AtomicUsize>);

    impl Bed {
        fn new() -> Self {
            Bed(Eras::beginning_at(1), Arc::default())
        }

        /// A value that was born at `birth` is unlinked now.
        fn retire(&self, birth: u64) {
            self.0.retire(3, birth, 100, Box::new(Counted(Arc::clone(&self.1))));
        }

        fn collect(&self, reach: Reach) -> usize {
            drop(self.0.collect(reach));
            self.1.load(Ordering::SeqCst)
        }

        fn waiting(&self) -> u64 {
            assert_eq!(self.0.waiting().bytes, 100 * self.0.waiting().values);
            self.0.waiting().values
        }
    }

    const OWN: Reach = Reach::Some { thread: 3, turn: 3 };

    /// S-19.
    #[test]
    fn a_value_waits_for_those_who_were_there_and_read_as_late_as_its_birth() {
        let bed = Bed::new();
        let (early, late) = (bed.0.take(), bed.0.take());
        early.enter(&bed.0);
        bed.retire(1);
        assert_eq!((bed.collect(OWN), bed.0.now()), (0, 2), "a reader was there");
        late.enter(&bed.0);
        bed.retire(2);
        assert_eq!(bed.collect(OWN), 0, "the other reader was there");
        assert!(early.leave());
        assert_eq!(bed.collect(OWN), 1, "who came later does not see the first");
        // Who is there, but has read nothing that is so young.
        bed.retire(bed.0.now());
        assert_eq!((bed.collect(OWN), bed.waiting()), (2, 1));
        late.cover(&bed.0, bed.0.now());
        bed.retire(bed.0.now());
        assert_eq!(bed.collect(OWN), 2, "it does by now");
        assert!(late.leave());
        assert_eq!((bed.collect(OWN), bed.waiting()), (4, 0));
    }

    /// Whoever collects does not look again at what waits for a reader that stays.
    #[test]
    fn what_waits_long_is_handed_over_and_found_again_when_its_reader_has_ended() {
        let bed = Bed::new();
        let reader = bed.0.take();
        reader.enter(&bed.0);
        bed.retire(1);
        for _ in 0..HANDED_OVER_AGE + 2 {
            assert!(!reader.has_waiting());
            bed.retire(u64::MAX);
            bed.collect(OWN);
        }
        let others = bed.1.load(Ordering::SeqCst);
        assert!(reader.has_waiting());
        assert!(bed.0.find(Reach::All).is_empty() && bed.waiting() == 1);
        // A reader of the same thread is another one.
        assert!(reader.leave());
        reader.enter(&bed.0);
        assert_eq!((bed.collect(OWN), bed.waiting()), (others + 1, 0));
        assert!(!reader.has_waiting());
        // At once, if one looks everywhere.
        bed.retire(1);
        assert_eq!(bed.collect(Reach::All), others + 1);
        assert!(reader.has_waiting() && reader.leave());
        assert_eq!((bed.collect(Reach::All), bed.waiting()), (others + 2, 0));
    }

    /// Of a thread that collects no more, another finds what it has retired.
    #[test]
    fn who_collects_comes_by_each_bag() {
        let bed = Bed::new();
        bed.retire(1);
        let freed = (0..BAGS).map(|turn| bed.collect(Reach::Some { thread: 0, turn }));
        assert_eq!(freed.last(), Some(1));
    }

    #[test]
    fn a_reservation_that_was_given_back_is_taken_again() {
        let bed = Bed::new();
        let (first, second) = (bed.0.take(), bed.0.take());
        assert!(!ptr::eq(first, second));
        bed.0.give_back(first);
        assert!(ptr::eq(bed.0.take(), first));
        assert_eq!(bed.0.each_reservation().count(), 2);
    }

    #[test]
    fn pins_of_one_reservation_are_one_reader() {
        let bed = Bed::new();
        let reader = bed.0.take();
        reader.enter(&bed.0);
        reader.enter(&bed.0);
        assert!(!reader.leave() && !reader.is_idle());
        bed.retire(1);
        assert_eq!(bed.collect(OWN), 0);
        assert!(reader.leave() && reader.is_idle());
        assert_eq!(bed.collect(OWN), 1);
    }
}
