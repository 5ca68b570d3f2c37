//! What experiments measured: JSON lines, and the medians in them.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use kvilt_bench::compare::median;
use serde_json::Value;

/// The measurements of one experiment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records(Vec<Value>);

/// The measurements of all, by the experiment's name.
pub(crate) type Measured = BTreeMap<&'static str, Records>;

impl Records {
    /// Reads a file of JSON lines.
    pub(crate) fn read(path: &Path) -> Result<Records> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let parsed = text.lines().map(|line| serde_json::from_str(line).context("a line of measurements"));
        Ok(Records(parsed.collect::<Result<_>>().with_context(|| path.display().to_string())?))
    }

    /// Its first line, which says how it was measured.
    pub(crate) fn head(&self) -> Option<&Value> {
        self.of_kind("experiment").next()
    }

    /// Whether a store's run is in it, finished or not.
    pub(crate) fn has(&self, store: &str, run: u32) -> bool {
        let is_it = |line: &&Value| line["store"] == store && line["run"] == run;
        self.of_kind("open").chain(self.of_kind("unfinished")).any(|line| is_it(&line))
    }

    /// How often a store ran to its end.
    pub(crate) fn runs(&self, store: &str) -> usize {
        self.of_kind("open").filter(|line| line["store"] == store).count()
    }

    /// Why runs of a store did not end well.
    pub(crate) fn failures(&self) -> Vec<String> {
        let lines = self.of_kind("unfinished");
        let text = |line: &Value, name: &str| line[name].as_str().unwrap_or("?").to_owned();
        lines
            .map(|line| format!("{} (run {}): {}", text(line, "store"), line["run"], text(line, "why")))
            .collect()
    }

    /// What each store that took part promised.
    pub(crate) fn promises(&self) -> BTreeMap<String, String> {
        let lines = self.of_kind("start");
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        lines.map(|line| (text(&line["store"]), text(&line["promise"]))).collect()
    }

    /// Whether a ceiling on memory was asked for and could not be had.
    pub(crate) fn is_unlimited_by_mistake(&self) -> bool {
        self.of_kind("start").any(|line| !line["limit_refused"].is_null())
    }

    /// The load of the machine at the starts, least and most.
    pub(crate) fn loads(&self) -> Option<(f64, f64)> {
        let mut loads: Vec<f64> = self.of_kind("start").filter_map(|line| line["load"].as_f64()).collect();
        loads.sort_by(f64::total_cmp);
        Some((*loads.first()?, *loads.last()?))
    }

    /// The names of the phases, in the order in which they ran.
    pub(crate) fn phases(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.of_kind("phase").filter_map(|line| line["phase"].as_str()) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// A figure of a phase (`open` for those of opening), one a run.
    pub(crate) fn figures(&self, store: &str, phase: &str, pointer: &str) -> Vec<f64> {
        self.lines(store, phase).filter_map(|line| line.pointer(pointer)?.as_f64()).collect()
    }

    /// Its median.
    pub(crate) fn median(&self, store: &str, phase: &str, pointer: &str) -> Option<f64> {
        let figures = self.figures(store, phase, pointer);
        (!figures.is_empty()).then(|| median(&figures))
    }

    /// A list in a phase, such as the operations of each second, one list a run.
    pub(crate) fn lists(&self, store: &str, phase: &str, name: &str) -> Vec<Vec<f64>> {
        let list =
            |line: &Value| line[name].as_array().map(|all| all.iter().filter_map(Value::as_f64).collect());
        self.lines(store, phase).filter_map(list).collect()
    }

    /// How much a figure that the store keeps itself grew in a phase, in the middle run.
    pub(crate) fn growth(&self, store: &str, phase: &str, figure: &str) -> Option<f64> {
        let mut before: BTreeMap<u64, f64> = BTreeMap::new();
        let mut grown = Vec::new();
        for line in self.of_kind("phase").filter(|line| line["store"] == store) {
            let (run, now) = (line["run"].as_u64()?, line["figures"][figure].as_f64()?);
            let then = before.insert(run, now).unwrap_or(0.0);
            if line["phase"] == phase {
                grown.push(now - then);
            }
        }
        (!grown.is_empty()).then(|| median(&grown))
    }

    fn lines<'a>(&'a self, store: &'a str, phase: &'a str) -> impl Iterator<Item = &'a Value> {
        let is_it = move |line: &&Value| match line["kind"].as_str() {
            Some("phase") => line["phase"] == phase,
            Some("open") => phase == "open",
            _ => false,
        };
        self.0.iter().filter(is_it).filter(move |line| line["store"] == store)
    }

    fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |line| line["kind"] == kind)
    }
}

#[cfg(test)]
impl Records {
    /// For tests: lines as they would stand in a file.
    pub(crate) fn of(lines: &[Value]) -> Records {
        Records(lines.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn medians_are_of_one_store_and_one_phase() {
        let line = |store: &str, run, rate, gets| {
            json!({"kind": "phase", "phase": "C", "store": store, "run": run, "operations_a_second": rate,
                   "seconds": [rate], "figures": {"gets": gets}})
        };
        let records = Records::of(&[
            line("a", 1, 10, 5),
            line("a", 2, 30, 9),
            line("a", 3, 20, 7),
            line("b", 1, 99, 1),
            json!({"kind": "open", "store": "a", "run": 1, "open_killed_ms": 4.5}),
            json!({"kind": "unfinished", "store": "b", "run": 1, "why": "killed"}),
        ]);
        assert_eq!(records.median("a", "C", "/operations_a_second"), Some(20.0));
        assert_eq!(records.median("a", "open", "/open_killed_ms"), Some(4.5));
        assert_eq!(records.median("c", "C", "/operations_a_second"), None);
        assert_eq!(records.growth("a", "C", "gets"), Some(7.0));
        assert_eq!(records.lists("b", "C", "seconds"), [[99.0]]);
        assert_eq!((records.runs("a"), records.runs("b")), (1, 0));
        assert!(records.has("b", 1) && !records.has("b", 2));
        assert_eq!(records.failures(), ["b (run 1): killed"]);
        assert_eq!(records.phases(), ["C"]);
    }
}
