//! `Group`: several writers, one sync. The first to come leads, the others ride along.
//!
//! Sync mode's commit log uses it: whoever finds no leader takes everything queued, writes and syncs it once,
//! and everybody in the group gets the outcome; meanwhile the next group gathers.
//!
//! What is always true:
//! - S-40: every item is led exactly once, in the order of submission, and its submitter returns with the
//!   outcome of the group that held it, never before that group ended.
//! - S-41: at most one leader at a time, and it leads a group that begins with its own item, so its `lead` is
//!   called at most once and only with work that includes it.
//! - S-42: a panic in `lead` is an error of kind `Poisoned` to every member, leader included; nobody hangs,
//!   and the next group is led as usual. Whether a failure ends the store is the caller's to decide.
//! - No lock is held while `lead` runs.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use kvilt_base::{Error, ErrorKind, Result};

use crate::shim::{Condvar, Mutex};

/// Most items in a group, unless told otherwise: as many as there can sensibly be threads waiting.
const ITEMS_MAX: usize = 1024;

/// Gathers items of several threads and lets one of them deal with all. Any thread may submit; it returns
/// when its item has been dealt with.
///
/// ```
/// let group = kvilt_sync::Group::new();
/// group.submit("a", |items| { assert_eq!(items, ["a"]); Ok(()) })?;
/// # Ok::<(), kvilt_base::Error>(())
/// ```
pub struct Group<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
    /// Sum of weights at which a group takes no further item.
    weight_max: usize,
    weigh: fn(&T) -> usize,
}

struct State<T> {
    /// Items not taken by any leader, by ticket, ascending.
    queue: VecDeque<Queued<T>>,
    next_ticket: u64,
    is_led: bool,
    /// Outcomes of ended groups that their submitters have not fetched yet.
    outcomes: BTreeMap<u64, Result<()>>,
}

struct Queued<T> {
    ticket: u64,
    weight: usize,
    item: T,
}

impl<T> Group<T> {
    /// A group that takes up to 1024 items at a time.
    pub fn new() -> Self {
        Self::with_weight_max(ITEMS_MAX, |_| 1)
    }

    /// A group that takes items, at least one, while their weights (say, bytes) sum up to `weight_max` or
    /// less.
    pub fn with_weight_max(weight_max: usize, weigh: fn(&T) -> usize) -> Self {
        let state =
            State { queue: VecDeque::new(), next_ticket: 0, is_led: false, outcomes: BTreeMap::new() };
        Group { state: Mutex::new(state), ended: Condvar::new(), weight_max, weigh }
    }

    /// Queues `item` and returns the outcome of the group it ends up in. If this thread is the one to lead,
    /// `lead` is called with the group's items in the order of submission. An error of `lead` is returned to
    /// every member of the group.
    pub fn submit(&self, item: T, lead: impl FnOnce(Vec<T>) -> Result<()>) -> Result<()> {
        // Foreign code, so before the lock: a panic in it queues nothing.
        let weight = (self.weigh)(&item);
        let mut state = self.state.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.queue.push_back(Queued { ticket, weight, item });
        loop {
            if let Some(outcome) = state.outcomes.remove(&ticket) {
                return outcome;
            }
            let is_first = state.queue.front().is_some_and(|first| first.ticket == ticket);
            if is_first && !state.is_led {
                break;
            }
            state = self.ended.wait(state);
        }
        state.is_led = true;
        let (tickets, items) = self.take_group(&mut state);
        drop(state);

        let outcome = catch_unwind(AssertUnwindSafe(|| lead(items))).unwrap_or_else(|panic| {
            Err(Error::new(ErrorKind::Poisoned, format!("the leader of a group panicked: {}", text(&*panic))))
        });

        let mut state = self.state.lock();
        for member in tickets.into_iter().filter(|member| *member != ticket) {
            state.outcomes.insert(member, outcome.clone());
        }
        state.is_led = false;
        drop(state);
        // Wakes the members, and the submitter that stands first by now: it leads next.
        self.ended.notify_all();
        outcome
    }

    fn take_group(&self, state: &mut State<T>) -> (Vec<u64>, Vec<T>) {
        let mut weight: usize = 0;
        let mut taken = 0;
        for queued in &state.queue {
            weight = weight.saturating_add(queued.weight);
            if taken > 0 && weight > self.weight_max {
                break;
            }
            taken += 1;
        }
        state.queue.drain(..taken).map(|queued| (queued.ticket, queued.item)).unzip()
    }
}

fn text(panic: &(dyn std::any::Any + Send)) -> &str {
    let string = panic.downcast_ref::<String>().map(String::as_str);
    string.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

impl<T> Default for Group<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Group<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        write!(f, "Group {{ queued: {}, is_led: {} }}", state.queue.len(), state.is_led)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    };

    use super::*;

    /// S-40 and S-41.
    #[test]
    fn every_item_is_led_once_in_order_and_groups_form() {
        const THREADS: u64 = 4;
        const ITEMS: u64 = if cfg!(miri) { 10 } else { 2_000 };
        let group = Group::with_weight_max(3, |_| 1);
        let led = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|s| {
            for thread in 0..THREADS {
                let (group, led) = (&group, &led);
                s.spawn(move || {
                    for i in 0..ITEMS {
                        let item = thread * ITEMS + i;
                        let lead = |items: Vec<u64>| {
                            assert!((1..=3).contains(&items.len()));
                            assert_eq!(items[0], item, "a leader leads its own item first");
                            led.lock().unwrap().extend(items);
                            Ok(())
                        };
                        group.submit(item, lead).unwrap();
                        assert!(led.lock().unwrap().contains(&item) || ITEMS > 100);
                    }
                });
            }
        });
        let mut led = led.into_inner().unwrap();
        for thread in 0..THREADS {
            let own: Vec<u64> = led.iter().copied().filter(|i| i / ITEMS == thread).collect();
            assert!(own.is_sorted(), "a thread's items keep their order");
        }
        led.sort_unstable();
        assert_eq!(led, (0..THREADS * ITEMS).collect::<Vec<_>>());
        assert!(group.state.lock().outcomes.is_empty());
    }

    /// Makes one leader wait inside `lead` until the others have queued, so that they form one group.
    fn second_group(lead: impl Fn(Vec<u64>) -> Result<()> + Sync) -> (Vec<Result<()>>, Group<u64>) {
        let group = Group::new();
        let entered = Barrier::new(2);
        let outcomes = std::thread::scope(|s| {
            let first = s.spawn(|| {
                group.submit(0, |_| {
                    entered.wait();
                    while group.state.lock().queue.len() < 3 {
                        std::thread::yield_now();
                    }
                    Ok(())
                })
            });
            entered.wait();
            let (group, lead) = (&group, &lead);
            let others: Vec<_> = (1..4).map(|i| s.spawn(move || group.submit(i, lead))).collect();
            first.join().expect("no panic").expect("the first leader succeeds");
            others.into_iter().map(|o| o.join().expect("no panic")).collect()
        });
        (outcomes, group)
    }

    #[test]
    fn a_failure_reaches_every_member_and_only_them() {
        let leads = AtomicU64::new(0);
        let (outcomes, group) = second_group(|items| {
            assert_eq!(items.len(), 3);
            leads.fetch_add(1, Ordering::Relaxed);
            Err(Error::new(ErrorKind::NoSpace, "full"))
        });
        assert_eq!(leads.into_inner(), 1);
        assert!(outcomes.iter().all(|o| o.as_ref().unwrap_err().kind() == ErrorKind::NoSpace));
        group.submit(9, |_| Ok(())).unwrap();
    }

    /// S-42.
    #[test]
    fn a_panic_poisons_every_member_and_hangs_nobody() {
        let (outcomes, group) = second_group(|items| panic!("{} items met a bug", items.len()));
        for outcome in outcomes {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned);
            assert!(error.message().contains("3 items met a bug"));
        }
        group.submit(9, |_| Ok(())).unwrap();
    }
}
