//! `Mutant`: bugs planted on purpose, each at one marked place, so that the tests can show that they would
//! notice. Here is the mechanism only: each crate declares its own bugs, by [`mutants!`](crate::mutants).
//!
//! A bug has a line of its own, [`planted!`](crate::planted), so that the lines beside it show only what the
//! code does. Without the feature `mutants`, which only the workshop's command of that name turns on,
//! [`mutant`] is a constant and the line compiles to nothing. With it, at most one bug is alive in the
//! process, from `plant` until `uproot`. What each breaks, and what finds it, is in `docs/testing.md`.

use std::fmt;
#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicBool, Ordering};

/// A planted bug; each breaks one rule. It is a static, declared by [`mutants!`](crate::mutants).
pub struct Mutant {
    name: &'static str,
    /// Relaxed: it changes while no store is open.
    #[cfg(feature = "mutants")]
    is_alive: AtomicBool,
}

impl Mutant {
    /// A bug of this name, not alive.
    pub const fn new(name: &'static str) -> Self {
        Mutant {
            name,
            #[cfg(feature = "mutants")]
            is_alive: AtomicBool::new(false),
        }
    }

    /// Its name, as its crate declares it.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Declares the bugs of a crate, each as a static, and the list of them, `ALL`.
///
/// ```
/// mod mutants {
///     kvilt_base::mutants! {
///         /// A sync does not sync.
///         SyncForgotten,
///     }
/// }
/// assert!(!kvilt_base::mutant(&mutants::SyncForgotten));
/// assert_eq!(mutants::ALL[0].name(), "SyncForgotten");
/// ```
#[macro_export]
macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        $(
            $(#[$doc])*
            #[allow(non_upper_case_globals, reason = "named as in docs/testing.md")]
            pub static $name: $crate::Mutant = $crate::Mutant::new(stringify!($name));
        )+

        /// All of them.
        pub static ALL: &[&$crate::Mutant] = &[$(&$name),+];
    };
}

/// A bug of the crate's `mutants`, in a line of its own.
///
/// `planted!(Bug => step)` takes the step while the bug is alive, and none otherwise. `planted!(Bug, value =>
/// other)` is the value, or the other while the bug is alive; only one of them is evaluated.
///
/// ```
/// mod mutants {
///     kvilt_base::mutants! {
///         /// The last one is left out.
///         LastLeftOut,
///     }
/// }
/// use kvilt_base::planted;
///
/// fn sum(numbers: &[u32]) -> u32 {
///     planted!(LastLeftOut => return numbers[1..].iter().sum());
///     numbers.iter().sum()
/// }
///
/// fn main() {
///     assert_eq!(sum(&[1, 2]), 3);
///     assert_eq!(planted!(LastLeftOut, "all" => "fewer"), "all");
/// }
/// ```
#[macro_export]
#[allow(clippy::crate_in_macro_def, reason = "the bugs are those of the crate in which the line stands")]
macro_rules! planted {
    ($bug:ident => $step:expr) => {
        if $crate::mutant(&crate::mutants::$bug) {
            $step;
        }
    };
    ($bug:ident, $value:expr => $other:expr) => {
        if $crate::mutant(&crate::mutants::$bug) { $other } else { $value }
    };
}

/// Whether this bug is alive.
#[cfg(feature = "mutants")]
pub fn mutant(mutant: &Mutant) -> bool {
    mutant.is_alive.load(Ordering::Relaxed)
}

/// Whether this bug is alive: never, in a build without the feature.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn mutant(_: &Mutant) -> bool {
    false
}

#[cfg(feature = "mutants")]
mod alive {
    use std::sync::atomic::Ordering;

    use parking_lot::Mutex;

    use super::Mutant;

    /// The bug that is alive.
    static PLANTED: Mutex<Option<&Mutant>> = Mutex::new(None);

    /// Brings a bug to life, in place of any other, for all stores of this process.
    pub fn plant(mutant: &'static Mutant) {
        replace(Some(mutant));
    }

    /// No bug is alive any more.
    pub fn uproot() {
        replace(None);
    }

    fn replace(next: Option<&'static Mutant>) {
        let mut planted = PLANTED.lock();
        if let Some(last) = planted.take() {
            last.is_alive.store(false, Ordering::Relaxed);
        }
        if let Some(next) = next {
            next.is_alive.store(true, Ordering::Relaxed);
        }
        *planted = next;
    }
}

#[cfg(feature = "mutants")]
pub use alive::{plant, uproot};
