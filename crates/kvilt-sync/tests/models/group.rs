//! M9, group commit: every item is led once, everybody learns the outcome, nobody hangs; and what stands on
//! it, the commit log of sync mode.
//!
//! The commit log is modelled as a count of records written and one of records synced; what a record says,
//! and the file, are left out.

use kvilt_base::{Error, ErrorKind, Result};
use kvilt_sync::Group;

use crate::explorer::{
    explore,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Three submitters. `led[i]` counts how often item `i` was led; a group that `fails` picks fails.
fn three_submitters(weight_max: usize, fails: fn(&[usize]) -> bool) {
    let group = Arc::new(Group::with_weight_max(weight_max, |_| 1));
    let led = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)]);
    let leaders = Arc::new(AtomicUsize::new(0));
    let submit = move |item: usize| -> (usize, Result<()>) {
        let mut failed = false;
        let outcome = group.submit(item, |items| {
            assert_eq!(leaders.fetch_add(1, Ordering::AcqRel), 0, "two leaders at a time");
            assert_eq!(items[0], item);
            assert!(items.len() <= weight_max);
            failed = fails(&items);
            for item in &items {
                // A failed group counts ten, so that a member knows which kind held it.
                led[*item].fetch_add(if failed { 10 } else { 1 }, Ordering::Relaxed);
            }
            leaders.fetch_sub(1, Ordering::AcqRel);
            if failed { Err(Error::new(ErrorKind::Io, "as planned")) } else { Ok(()) }
        });
        // Relaxed: the outcome must bring the leader's writes along.
        (led[item].load(Ordering::Relaxed), outcome)
    };
    let check = |(led, outcome): (usize, Result<()>)| match outcome {
        Ok(()) => assert_eq!(led, 1),
        Err(error) => assert_eq!((led, error.kind()), (10, ErrorKind::Io)),
    };
    let others: Vec<_> = (1..3)
        .map(|item| {
            let submit = submit.clone();
            thread::spawn(move || check(submit(item)))
        })
        .collect();
    check(submit(0));
    for other in others {
        other.join().unwrap();
    }
}

#[test]
fn every_item_is_led_once_and_learns_its_outcome() {
    explore(|| three_submitters(3, |_| false));
}

#[test]
fn a_failure_reaches_exactly_the_members_of_its_group() {
    explore(|| three_submitters(3, |items| items.contains(&1)));
}

#[test]
fn small_groups_hand_on_the_lead() {
    explore(|| three_submitters(1, |items| items.contains(&2)));
}

/// S-42. One leader panics; the others get its error or succeed in a later group.
#[test]
fn a_panicking_leader_hangs_nobody() {
    // The panics are planned; their text would drown the report.
    std::panic::set_hook(Box::new(|_| {}));
    explore(|| {
        let group = Arc::new(Group::new());
        let other = {
            let group = group.clone();
            thread::spawn(move || group.submit(1, |_| Ok(())))
        };
        let own = group.submit(0, |_| panic!("as planned"));
        let other = other.join().unwrap();
        for outcome in [&own, &other] {
            assert!(outcome.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::Poisoned));
        }
        assert!(own.is_err() || other.is_ok(), "who was led by the other shares its success");
        group.submit(2, |_| Ok(())).unwrap();
    });
    let _ = std::panic::take_hook();
}

/// A commit log whose syncs fail from the `good`-th on, or only that one: the system may report success
/// again.
struct CommitLog {
    group: Group<()>,
    written: AtomicUsize,
    synced: AtomicUsize,
    syncs: AtomicUsize,
    good: usize,
    is_poisoned: AtomicUsize,
    /// Syncs tried after one had failed. Counted, for a panic of a leader would be taken for a failure of its
    /// group.
    tried_again: AtomicUsize,
}

impl CommitLog {
    fn new(good: usize) -> Arc<Self> {
        Arc::new(CommitLog {
            group: Group::new(),
            written: AtomicUsize::new(0),
            synced: AtomicUsize::new(0),
            syncs: AtomicUsize::new(0),
            good,
            is_poisoned: AtomicUsize::new(0),
            tried_again: AtomicUsize::new(0),
        })
    }

    fn poison(&self) -> Error {
        self.is_poisoned.store(1, Ordering::Release);
        Error::new(ErrorKind::Poisoned, "a sync failed")
    }

    /// Writes a record and returns when it is durable. `poisons_inside` says that the failure is known to all
    /// before the next leader may begin; `tells_all` that a failure is every member's.
    fn commit(&self, poisons_inside: bool, tells_all: bool) -> Result<()> {
        let outcome = self.group.submit((), |items| {
            if self.is_poisoned.load(Ordering::Acquire) == 1 {
                return Err(Error::new(ErrorKind::Poisoned, "an earlier sync failed"));
            }
            let end = self.written.fetch_add(items.len(), Ordering::AcqRel) + items.len();
            let number = self.syncs.fetch_add(1, Ordering::AcqRel);
            if number > self.good {
                self.tried_again.fetch_add(1, Ordering::AcqRel);
            }
            if number != self.good {
                self.synced.fetch_add(items.len(), Ordering::AcqRel);
                return Ok(());
            }
            let error = Error::new(ErrorKind::Io, format!("the sync up to record {end} failed"));
            match (tells_all, poisons_inside) {
                (false, _) => Ok(()),
                (true, false) => Err(error),
                (true, true) => Err(self.poison()),
            }
        });
        if outcome.is_err() {
            self.poison();
        }
        outcome
    }
}

/// D6 and M11: whose record lies before the failed sync gets the error, and nobody syncs after it.
fn commits_with_a_failing_sync(good: usize, poisons_inside: bool, tells_all: bool) {
    let log = CommitLog::new(good);
    let others: Vec<_> = (0..2)
        .map(|_| {
            let log = log.clone();
            thread::spawn(move || usize::from(log.commit(poisons_inside, tells_all).is_ok()))
        })
        .collect();
    let mut acknowledged = usize::from(log.commit(poisons_inside, tells_all).is_ok());
    for other in others {
        acknowledged += other.join().unwrap();
    }
    assert_eq!(
        acknowledged,
        log.synced.load(Ordering::Acquire),
        "acknowledged and not synced, or the reverse"
    );
    assert_eq!(log.tried_again.load(Ordering::Acquire), 0, "a sync was tried after one had failed");
}

#[test]
fn everybody_before_a_failed_sync_gets_the_error_and_nobody_syncs_again() {
    explore(|| commits_with_a_failing_sync(0, true, true));
}

#[test]
fn whose_group_was_synced_is_not_told_of_the_failure_of_the_next() {
    explore(|| commits_with_a_failing_sync(1, true, true));
}

#[cfg(any(loom, shuttle))]
mod twins {
    use super::*;

    #[test]
    #[should_panic(expected = "acknowledged and not synced, or the reverse")]
    fn a_leader_that_keeps_the_failure_to_itself_acknowledges_what_is_not_durable() {
        explore(|| commits_with_a_failing_sync(0, true, false));
    }

    #[test]
    #[should_panic(expected = "a sync was tried after one had failed")]
    fn poisoned_only_after_the_group_ended_the_next_leader_syncs_again() {
        explore(|| commits_with_a_failing_sync(0, false, true));
    }
}
