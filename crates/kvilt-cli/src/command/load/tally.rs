//! `Tally`: what a load did, counted, for the user.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::stopwatch::{Stopwatch, counted, grouped};

/// So many lines are named for each thing that is counted.
const LINES_NAMED_MAX: usize = 5;

/// Why a row is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    FieldCount,
    OpenQuote,
    LongRecord,
    NotUtf8,
    NotAnObject,
    RepeatedName,
    NoKey,
    LongKey,
    LongValue,
}

impl Reason {
    /// As in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::FieldCount => "field-count",
            Reason::OpenQuote => "open-quote",
            Reason::LongRecord => "long-record",
            Reason::NotUtf8 => "not-utf-8",
            Reason::NotAnObject => "not-an-object",
            Reason::RepeatedName => "repeated-name",
            Reason::NoKey => "no-key",
            Reason::LongKey => "long-key",
            Reason::LongValue => "long-value",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Reason::FieldCount => "more or fewer fields than the first line",
            Reason::OpenQuote => "a quote that is not closed at the end of a field",
            Reason::LongRecord => "longer than --record-max",
            Reason::NotUtf8 => "not UTF-8",
            Reason::NotAnObject => "not a JSON object",
            Reason::RepeatedName => "an object that has a name twice",
            Reason::NoKey => "no key",
            Reason::LongKey => "a key that is too long",
            Reason::LongValue => "a value that is too long",
        }
    }
}

/// Rows of one kind.
#[derive(Default)]
struct Count {
    rows: u64,
    /// The lines of the first.
    lines: Vec<u64>,
}

impl Count {
    fn add(&mut self, line: u64) {
        self.rows += 1;
        if self.lines.len() < LINES_NAMED_MAX {
            self.lines.push(line);
        }
    }

    /// `line 3`, `lines 3, 4`, `lines 3, 4, 5, 6, 7 and more`.
    fn lines(&self) -> String {
        let lines: Vec<String> = self.lines.iter().map(u64::to_string).collect();
        let more = if self.rows > self.lines.len() as u64 { " and more" } else { "" };
        format!("{} {}{more}", if self.rows == 1 { "line" } else { "lines" }, lines.join(", "))
    }
}

/// What a load did so far.
#[derive(Default)]
pub(super) struct Tally {
    /// Rows written, each put counted.
    pub(super) stored: u64,
    /// Of these, those that replaced an earlier row of the same load.
    repeated: Count,
    skipped: BTreeMap<Reason, Count>,
}

impl Tally {
    pub(super) fn repeat(&mut self, line: u64) {
        self.repeated.add(line);
    }

    pub(super) fn skip(&mut self, reason: Reason, line: u64) {
        self.skipped.entry(reason).or_default().add(line);
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped.values().map(|count| count.rows).sum()
    }

    /// For people.
    pub(super) fn lines(&self, stopwatch: Stopwatch, is_exact: bool) -> Vec<String> {
        let skipped = match self.skipped() {
            0 => String::new(),
            count => format!(", {} skipped", counted(count, "malformed row")),
        };
        let mut lines = vec![format!(
            "loaded {} in {:.2} s ({} rows/s){skipped}",
            counted(self.stored, "row"),
            stopwatch.elapsed().as_secs_f64(),
            grouped(stopwatch.rate(self.stored) as u64)
        )];
        if self.repeated.rows > 0 {
            lines.push(format!(
                "  {}{} replaced an earlier row of this load with the same key: {}",
                if is_exact { "" } else { "at least " },
                grouped(self.repeated.rows),
                self.repeated.lines()
            ));
        } else if !is_exact {
            lines.push("  too many rows to tell whether some replaced a row of this load".to_string());
        }
        for (reason, count) in &self.skipped {
            lines.push(format!("  {} skipped, {}: {}", grouped(count.rows), reason.text(), count.lines()));
        }
        lines
    }

    /// The same and more, exact. `is_complete` says whether the whole input was read.
    pub(super) fn json(&self, stopwatch: Stopwatch, is_exact: bool, is_complete: bool) -> Value {
        let by_reason: serde_json::Map<String, Value> = self
            .skipped
            .iter()
            .map(|(reason, count)| {
                (reason.name().to_string(), json!({ "rows": count.rows, "first_lines": count.lines }))
            })
            .collect();
        json!({
            "rows": self.stored,
            "repeated": self.repeated.rows,
            "repeated_is_exact": is_exact,
            "repeated_first_lines": self.repeated.lines,
            "skipped": self.skipped(),
            "skipped_by_reason": by_reason,
            "complete": is_complete,
            "seconds": stopwatch.elapsed().as_secs_f64(),
            "rows_per_second": stopwatch.rate(self.stored),
        })
    }
}
