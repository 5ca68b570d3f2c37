//! Time: the system's monotonic clock, and one that a test turns by hand.

use std::time::{Duration, Instant};

use kvilt_base::Clock;

/// The system's monotonic clock. Shared freely.
///
/// ```
/// use kvilt_base::Clock;
/// let clock = kvilt_io::NativeClock::new();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// ```
#[derive(Clone, Debug)]
pub struct NativeClock {
    start: Instant,
}

impl NativeClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        NativeClock { start: Instant::now() }
    }
}

impl Default for NativeClock {
    fn default() -> Self {
        NativeClock::new()
    }
}

impl Clock for NativeClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that stands still until it is told otherwise. Shared freely.
///
/// ```
/// use std::time::Duration;
/// use kvilt_base::Clock;
/// let clock = kvilt_io::ManualClock::new();
/// clock.advance(Duration::from_millis(3));
/// assert_eq!(clock.now(), Duration::from_millis(3));
/// ```
#[cfg(feature = "test-disk")]
#[derive(Debug, Default)]
pub struct ManualClock {
    nanoseconds: std::sync::atomic::AtomicU64,
}

#[cfg(feature = "test-disk")]
impl ManualClock {
    /// A clock that shows zero.
    pub fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(ManualClock::default())
    }

    /// Moves on by `by`. Panics after 584 years.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).expect("a test advances less than 584 years");
        // Relaxed: the clock orders nothing; a reader sees some moment between two calls.
        self.nanoseconds.fetch_add(by, std::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(feature = "test-disk")]
impl Clock for ManualClock {
    fn now(&self) -> Duration {
        // Relaxed: as above.
        Duration::from_nanos(self.nanoseconds.load(std::sync::atomic::Ordering::Relaxed))
    }
}
