//! `invariant!`: an assertion that bears the number it has in `docs/invariants.md`.

/// Asserts, in every build, an invariant by its number; the message says which one is broken.
///
/// ```
/// let (start, end) = (1, 2);
/// kvilt_base::invariant!("B-1", start <= end, "range {start}..{end}");
/// ```
#[macro_export]
macro_rules! invariant {
    ($number:literal, $condition:expr) => {
        assert!($condition, concat!("invariant ", $number, " is broken: ", stringify!($condition)))
    };
    ($number:literal, $condition:expr, $($arg:tt)+) => {
        assert!($condition, concat!("invariant ", $number, " is broken: {}"), format_args!($($arg)+))
    };
}
