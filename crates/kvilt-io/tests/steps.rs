//! `StepSpawn`: who steps when, and that the same seed takes the same path.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kvilt_base::{Clock, Hand, Next, Spawn, Worker};
use kvilt_io::{ManualClock, SeededRng, StepSpawn};

type Path = Arc<Mutex<Vec<(&'static str, u32)>>>;

/// Writes down its name at each step; `then` says what it wants after so many steps.
struct Scribe<F> {
    name: &'static str,
    path: Path,
    steps: u32,
    then: F,
}

impl<F: FnMut(u32) -> Next + Send> Worker for Scribe<F> {
    fn step(&mut self) -> Next {
        self.steps += 1;
        self.path.lock().unwrap().push((self.name, self.steps));
        (self.then)(self.steps)
    }

    fn panicked(&mut self, message: &str) {
        assert_eq!(message, "planned");
        self.path.lock().unwrap().push(("panicked", self.steps));
    }
}

struct Setting {
    clock: Arc<ManualClock>,
    spawn: Arc<StepSpawn>,
    path: Path,
}

impl Setting {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::new();
        Setting { spawn: StepSpawn::new(clock.clone(), seed), clock, path: Path::default() }
    }

    fn worker(&self, name: &'static str, then: impl FnMut(u32) -> Next + Send + 'static) -> Arc<dyn Hand> {
        self.spawn.spawn(name, Box::new(Scribe { name, path: self.path.clone(), steps: 0, then }))
    }

    fn taken(&self) -> Vec<(&'static str, u32)> {
        std::mem::take(&mut self.path.lock().unwrap())
    }
}

#[test]
fn rests_end_by_the_clock_or_a_wake() {
    let setting = Setting::new(1);
    let second = Duration::from_secs(1);
    let hand = setting.worker("a", move |_| Next::Rest(Some(second)));
    setting.worker("b", |_| Next::Rest(None));
    assert_eq!(setting.spawn.step_all_until_idle(), 2);
    assert_eq!(setting.spawn.next_deadline(), Some(second));
    setting.taken();
    setting.clock.advance(second - Duration::from_nanos(1));
    assert!(!setting.spawn.step(0));
    setting.clock.advance(Duration::from_nanos(1));
    assert_eq!(setting.spawn.ready(), ["a"]);
    assert!(setting.spawn.step(0) && !setting.spawn.step(0));
    hand.wake();
    assert!(setting.spawn.step(0) && !setting.spawn.step(0));
    assert_eq!(setting.taken(), [("a", 2), ("a", 3)]);
    assert_eq!(setting.spawn.next_deadline(), Some(setting.clock.now() + second));
}

#[test]
fn the_choice_picks_among_the_ready() {
    let setting = Setting::new(1);
    for name in ["a", "b", "c"] {
        setting.worker(name, |_| Next::Again);
    }
    for choice in [2, 0, 1, 5] {
        assert!(setting.spawn.step(choice));
    }
    assert_eq!(setting.taken(), [("c", 1), ("a", 1), ("b", 1), ("c", 2)]);
}

#[test]
fn the_same_seed_takes_the_same_path() {
    let path = |seed: u64| {
        let setting = Setting::new(seed);
        for name in ["a", "b", "c"] {
            setting.worker(name, |steps| if steps < 20 { Next::Again } else { Next::Done });
        }
        setting.spawn.step_all_until_idle();
        assert_eq!(setting.spawn.living(), 0);
        setting.taken()
    };
    assert_eq!(path(7), path(7));
    assert_ne!(path(7), path(8));
    assert_eq!(path(7).len(), 60);
}

#[test]
fn a_wake_during_a_step_is_a_reason_to_step_again() {
    let setting = Setting::new(1);
    let hand: Arc<Mutex<Option<Arc<dyn Hand>>>> = Arc::default();
    let own = hand.clone();
    *hand.lock().unwrap() = Some(setting.worker("a", move |steps| {
        if steps == 1 {
            own.lock().unwrap().as_ref().unwrap().wake();
        }
        Next::Rest(None)
    }));
    assert_eq!(setting.spawn.step_all_until_idle(), 2);
}

#[test]
fn help_steps_a_resting_worker_but_never_inside_a_step() {
    let setting = Setting::new(1);
    let spawn = setting.spawn.clone();
    setting.worker("a", move |_| {
        assert!(!spawn.help() && !spawn.step(0), "a step is running");
        Next::Rest(None)
    });
    assert!(setting.spawn.help());
    assert!(setting.spawn.help(), "it rests, and is stepped for all that");
    assert_eq!(setting.taken(), [("a", 1), ("a", 2)]);
    assert!(!Setting::new(1).spawn.help(), "there is nobody");
}

#[test]
fn join_steps_until_done_and_returns_at_once_inside_a_step() {
    let setting = Setting::new(1);
    let slow = setting.worker("slow", |steps| if steps < 5 { Next::Rest(None) } else { Next::Done });
    let inner = slow.clone();
    let outer = setting.worker("outer", move |_| {
        inner.join();
        Next::Done
    });
    outer.join();
    slow.join();
    slow.join();
    slow.wake();
    assert_eq!(setting.taken().iter().filter(|(name, _)| *name == "slow").count(), 5);
    assert_eq!(setting.spawn.living(), 0);
}

#[test]
fn a_panic_is_told_once_and_ends_the_worker() {
    let setting = Setting::new(1);
    let hand = setting.worker("a", |_| panic!("planned"));
    setting.spawn.step_all_until_idle();
    hand.wake();
    hand.join();
    assert!(!setting.spawn.help());
    assert_eq!(setting.taken(), [("a", 1), ("panicked", 1)]);
}

#[test]
fn a_step_may_spawn() {
    let setting = Setting::new(1);
    let (spawn, path) = (setting.spawn.clone(), setting.path.clone());
    setting.worker("parent", move |_| {
        let child = Scribe { name: "child", path: path.clone(), steps: 0, then: |_| Next::Done };
        spawn.spawn("child", Box::new(child));
        Next::Done
    });
    setting.spawn.step_all_until_idle();
    assert_eq!(setting.taken(), [("parent", 1), ("child", 1)]);
}

#[test]
fn seeded_numbers_are_spread() {
    let rng = SeededRng::new(1);
    let mut counts = [0u32; 8];
    for _ in 0..8_000 {
        counts[rng.below(8) as usize] += 1;
    }
    assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
}
