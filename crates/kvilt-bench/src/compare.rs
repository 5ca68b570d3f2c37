//! Many runs, each in a process of its own, the stores in turn, so that what the machine does meanwhile meets
//! all of them; then medians, and ratios to the first store.

use std::{collections::BTreeMap, io::Write, path::Path, time::Duration};

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::errand::Errand;

/// A run that takes longer has not finished: nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What is compared.
pub struct Comparison<'a> {
    /// The stores; all are compared to the first.
    pub stores: &'a [String],
    /// Runs of each.
    pub runs: u32,
    /// What each run is told besides its store and its directory.
    pub arguments: &'a [String],
    /// Where the stores lie, each run's in a directory of its own that is removed afterwards.
    pub directory: &'a Path,
}

/// One figure of one phase: by store, what each run measured.
type Figures = BTreeMap<(usize, String, &'static str), BTreeMap<String, Vec<f64>>>;

/// Figures of a phase that the table shows: name in the table, where it stands, whether more is better.
const SHOWN: [(&str, &str); 17] = [
    ("ops/s", "/operations_a_second"),
    ("pages read/s", "/pages_read_each_second"),
    ("pages written/s", "/pages_written_each_second"),
    ("drive reads/s", "/drive/random reads, depth 64/each_second"),
    ("drive mixed/s", "/drive/reads and writes, depth 64/each_second"),
    ("worst second", "/worst_second"),
    ("put p99.9 us", "/latency_micros/put/p99.9"),
    ("get p99.9 us", "/latency_micros/get/p99.9"),
    ("get longest us", "/latency_micros/get/max"),
    ("write amp", "/write_amplification"),
    ("write amp and rest", "/steady/write_amplification_with_rest"),
    ("write amp, own count", "/steady/store_write_amplification"),
    ("space max, of live", "/steady/space_max"),
    ("kept space max, of live", "/steady/kept_space_max"),
    ("space at rest, of live", "/steady/space_at_rest"),
    ("RSS max MiB", "/resident_bytes_max"),
    ("cpu us/op", "/processor_micros_an_operation"),
];

/// The same for opening.
const SHOWN_OF_OPENS: [(&str, &str); 3] =
    [("close ms", "/close_ms"), ("open ms", "/open_clean_ms"), ("open killed ms", "/open_killed_ms")];

impl Comparison<'_> {
    /// Runs everything; every line that a run measured goes to `kept`. Returns the table.
    ///
    /// # Errors
    ///
    /// If no store could be run to its end. A store that fails is told on standard error and left out.
    pub fn run(&self, kept: &mut dyn Write) -> Result<String> {
        let mut figures = Figures::new();
        let mut completed = 0;
        for run in 0..self.runs {
            for turn in 0..self.stores.len() {
                // Each run begins with another store.
                let store = &self.stores[(turn + run as usize) % self.stores.len()];
                eprintln!("run {} of {}: {store}", run + 1, self.runs);
                match self.run_one(store, run, kept, &mut figures) {
                    Ok(()) => completed += 1,
                    Err(error) => eprintln!("{store} did not finish: {error:#}"),
                }
            }
        }
        ensure!(completed > 0, "no store finished a run");
        Ok(self.table(&figures))
    }

    fn run_one(&self, store: &str, run: u32, kept: &mut dyn Write, figures: &mut Figures) -> Result<()> {
        let errand = Errand {
            store,
            run: run + 1,
            arguments: self.arguments,
            directory: self.directory,
            patience: PATIENCE,
        };
        let mut place = 0;
        errand.run(&mut |measured| {
            writeln!(kept, "{measured}")?;
            note(figures, place, store, &measured);
            place += 1;
            Ok(())
        })
    }

    fn table(&self, figures: &Figures) -> String {
        let mut lines = vec![format!("| phase | figure | {} |", self.stores.join(" | "))];
        lines.push(format!("| --- | --- |{}", " ---: |".repeat(self.stores.len())));
        for ((_, phase, figure), by_store) in figures {
            let first = self.stores.first().and_then(|store| by_store.get(store)).map(|all| median(all));
            let cells = self.stores.iter().map(|store| cell(by_store.get(store), first));
            lines.push(format!("| {phase} | {figure} | {} |", cells.collect::<Vec<_>>().join(" | ")));
        }
        lines.join("\n")
    }
}

fn note(figures: &mut Figures, place: usize, store: &str, measured: &Value) {
    let (phase, shown): (&str, &[(&'static str, &str)]) = match measured["kind"].as_str() {
        Some("phase") => (measured["phase"].as_str().unwrap_or("?"), &SHOWN),
        Some("open") => ("open", &SHOWN_OF_OPENS),
        _ => return,
    };
    for (name, pointer) in shown {
        let Some(mut figure) = measured.pointer(pointer).and_then(Value::as_f64) else { continue };
        if name.ends_with("MiB") {
            figure /= f64::from(1 << 20);
        }
        let by_store = figures.entry((place, phase.to_owned(), name)).or_default();
        by_store.entry(store.to_owned()).or_default().push(figure);
    }
}

/// The median, and how it compares to the first store's.
fn cell(figures: Option<&Vec<f64>>, first: Option<f64>) -> String {
    let Some(figures) = figures else { return "–".into() };
    let median = median(figures);
    match first {
        Some(first) if median > 0.0 && first > 0.0 => {
            format!("{} ({:.2}×)", rounded(median), first / median)
        }
        _ => rounded(median),
    }
}

fn rounded(figure: f64) -> String {
    match figure.abs() {
        large if large >= 100.0 => format!("{figure:.0}"),
        middling if middling >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_table_compares_with_the_first_store() {
        let mut figures = Figures::new();
        for (store, rate) in [("a", 300.0), ("a", 100.0), ("a", 200.0), ("b", 50.0)] {
            let measured = json!({"kind": "phase", "phase": "C", "operations_a_second": rate});
            note(&mut figures, 1, store, &measured);
        }
        let stores = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let comparison = Comparison { stores: &stores, runs: 3, arguments: &[], directory: Path::new(".") };
        let table = comparison.table(&figures);
        assert!(table.ends_with("| C | ops/s | 200 (1.00×) | 50.0 (4.00×) | – |"), "{table}");
    }
}
