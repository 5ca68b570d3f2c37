//! Steps, counted: nodes, entries and places that an operation looks at, so that tests can hold work to a
//! bound that does not depend on a clock. Each thread counts its own.
//!
//! Only builds with debug assertions count; in others [`steps`] is nothing, and [`take_steps`] gives 0.

#[cfg(debug_assertions)]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts `count` steps.
    #[inline]
    pub fn steps(count: usize) {
        COUNT.with(|all| all.set(all.get() + count as u64));
    }

    /// How many this thread has taken since it asked last.
    pub fn take_steps() -> u64 {
        COUNT.with(|all| all.replace(0))
    }
}

#[cfg(debug_assertions)]
pub use counted::{steps, take_steps};

/// Nothing, in a build that does not count.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn steps(_: usize) {}

/// None were counted.
#[cfg(not(debug_assertions))]
pub const fn take_steps() -> u64 {
    0
}
