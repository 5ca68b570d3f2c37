//! `Stopwatch`: how long something took, for the user to read; nothing depends on it.

use std::time::{Duration, Instant};

/// Time since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a command measures its own time, for the user to read")]
    pub(crate) fn start() -> Self {
        Stopwatch(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// So many in the time since the start, for one second.
    pub(crate) fn rate(self, count: u64) -> f64 {
        count as f64 / self.elapsed().as_secs_f64().max(1e-9)
    }
}

/// A count for people: digits in groups of three.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun, which gets an `s` unless the number is one.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::{counted, grouped};

    #[test]
    fn one_of_a_thing_is_not_several() {
        assert_eq!([0, 1, 1000].map(|count| counted(count, "row")), ["0 rows", "1 row", "1,000 rows"]);
    }

    #[test]
    fn counts_are_grouped_by_three() {
        for (count, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (27_004, "27,004"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(count), text);
        }
    }
}
