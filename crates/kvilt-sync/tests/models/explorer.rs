//! `explorer`: who walks through a model's interleavings, and with which locks, atomics and threads.
//!
//! What is always true: a model takes threads, locks and atomics from here, so that it can be run by each.

#[cfg(loom)]
pub(crate) use loom::{sync, thread};
#[cfg(shuttle)]
pub(crate) use shuttle::{sync, thread};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{sync, thread};

/// Every interleaving with up to three preemptions: the races at hand need one or two.
#[cfg(loom)]
pub(crate) fn explore(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// `KVILT_SCHEDULES` schedules (20,000 if not told), half of them random, half by priorities that change at
/// up to three places (PCT), from the seed `KVILT_SEED` (0 if not told).
#[cfg(shuttle)]
pub(crate) fn explore(body: impl Fn() + Sync + Send + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number of schedules, or a seed"))
    };
    let half = number("KVILT_SCHEDULES", 20_000).div_ceil(2) as usize;
    let seed = number("KVILT_SEED", 0);
    let body = std::sync::Arc::new(body);
    let mut config = shuttle::Config::new();
    config.stack_size = 64 << 10;
    // Twins fail on purpose; who looks for a real failure finds its schedule in the message.
    config.failure_persistence = shuttle::FailurePersistence::Print;
    let again = std::sync::Arc::clone(&body);
    let random = RandomScheduler::new_from_seed(seed, half);
    shuttle::Runner::new(random, config.clone()).run(move || again());
    let by_priority = PctScheduler::new_from_seed(seed, 3, half);
    shuttle::Runner::new(by_priority, config).run(move || body());
}

/// Once under miri, which is given many seeds instead; else often enough for a sanitizer to see threads meet.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn explore(body: impl Fn() + Sync + Send + 'static) {
    for _ in 0..if cfg!(miri) { 1 } else { 300 } {
        body();
    }
}
