//! What is to be reached: the rows of the project's goals, and what the measurements say to each.

use super::records::Measured;

/// One thing that is to be reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// As people write it.
    pub(crate) work: &'static str,
    /// The experiment with Kvilt's figures.
    pub(crate) experiment: &'static str,
    /// What is looked at.
    pub(crate) measure: Measure,
    /// Held against whom, and the experiment with its figures; against the goal itself if none.
    pub(crate) rival: Option<(&'static str, &'static str)>,
    /// At least this; at most, where less is better and there is no rival.
    pub(crate) goal: f64,
}

/// What a goal looks at, in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Operations a second.
    Rate(&'static str),
    /// The slowest put of a thousand; less is better, so the ratio is the rival's to ours.
    PutTail(&'static str),
    /// The worst second of all runs as a part of the median second.
    WorstSecond(&'static str),
    /// The first second as a part of the median second, median of the runs.
    FirstSecond(&'static str),
    /// Bytes written for a byte put; less is better.
    WriteAmplification(&'static str),
    /// The slowest scan of a hundred, in microseconds; less is better.
    ScanTail(&'static str),
    /// Bytes of memory that an item takes beside key and value, by engine `teks`' own count; less is better.
    ItemBytes(&'static str),
    /// Milliseconds to open after SIGKILL; less is better.
    OpenKilled,
    /// Operations a second, over those of the rival's experiment (fewer threads).
    Scaling(&'static str),
}

/// A goal, and what was measured.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// The goal.
    pub(crate) goal: Goal,
    /// Kvilt's figure.
    pub(crate) ours: Option<f64>,
    /// The rival's.
    pub(crate) theirs: Option<f64>,
    /// What is held against the goal: a ratio, or Kvilt's figure.
    pub(crate) reached: Option<f64>,
    /// Runs behind Kvilt's figure and the rival's, the fewer of both.
    pub(crate) runs: usize,
}

/// All goals, as the project's third issue lists them, and for engine `teks` its own.
pub(crate) fn goals() -> Vec<Goal> {
    let mut goals = in_memory();
    goals.extend(limited());
    goals.extend(teks());
    goals
}

use Measure::{
    FirstSecond, ItemBytes, OpenKilled, PutTail, Rate, Scaling, ScanTail, WorstSecond, WriteAmplification,
};

const READS: &str = "memory-reads";
const WRITES: &str = "memory-writes";
const LMDB: &str = "memory-lmdb";
const ROCKS: &str = "rocksdb";

fn goal(work: &'static str, experiment: &'static str, measure: Measure, goal: f64) -> Goal {
    Goal { work, experiment, measure, rival: None, goal }
}

fn against(rival: (&'static str, &'static str), goal: Goal) -> Goal {
    Goal { rival: Some(rival), ..goal }
}

/// 1 GB of data under 1.5 GB.
fn in_memory() -> Vec<Goal> {
    let mut goals = Vec::new();
    for (work, phase, at_least) in [
        ("P composite", "P@composite", 4.0),
        ("P uniform", "P@uniform", 4.0),
        ("P Zipf-simple", "P@zipf", 4.0),
        ("A composite", "A@composite", 5.0),
        ("A Zipf-simple", "A@zipf", 5.0),
    ] {
        goals.push(against((ROCKS, WRITES), goal(work, WRITES, Rate(phase), at_least)));
    }
    for (work, phase, rocks, lmdb) in [
        ("C composite", "C@composite", 4.0, 1.3),
        ("C Zipf-simple", "C@zipf", 4.0, 1.3),
        ("E100 composite", "E100@composite", 6.0, 1.2),
        ("E100 Zipf-simple", "E100@zipf", 6.0, 1.2),
    ] {
        goals.push(against((ROCKS, READS), goal(work, READS, Rate(phase), rocks)));
        goals.push(against(("lmdb", LMDB), goal(work, LMDB, Rate(phase), lmdb)));
    }
    for (work, phase) in [
        ("E10 composite", "E10@composite"),
        ("E1000 composite", "E1000@composite"),
        ("B composite", "B@composite"),
        ("B Zipf-simple", "B@zipf"),
        ("D", "D"),
        ("F composite", "F@composite"),
        ("F Zipf-simple", "F@zipf"),
    ] {
        for rival in [(ROCKS, READS), ("fjall", "memory-rust"), ("redb", "memory-rust")] {
            goals.push(against(rival, goal(work, READS, Rate(phase), 1.0)));
        }
    }
    for (work, phase, at_least) in [
        ("C, 1 to 2 threads", "C@composite", 1.8),
        ("A, 1 to 2 threads", "A@composite", 1.6),
        ("P, 1 to 2 threads", "P@composite", 1.6),
    ] {
        goals.push(against(("kvilt", "threads-1"), goal(work, "threads-2", Scaling(phase), at_least)));
    }
    for (work, phase) in [("P", "P@composite"), ("A", "A@composite")] {
        goals.push(goal(work, WRITES, WorstSecond(phase), 0.5));
        goals.push(against((ROCKS, WRITES), goal(work, WRITES, PutTail(phase), 1.0)));
    }
    for (work, experiment) in [("sync, 1 writer", "sync-1"), ("sync, 8 writers", "sync-8")] {
        goals.push(against(("rocksdb-sync", experiment), goal(work, experiment, Rate("P@uniform"), 1.0)));
    }
    goals.push(goal("open after SIGKILL", WRITES, OpenKilled, 20.0));
    goals.push(against(("lmdb", LMDB), goal("readseq", LMDB, Rate("readseq"), 1.0)));
    goals
}

const LIMITED: &str = "limited";
const RIVALS: &str = "limited-rivals";
const INGEST: &str = "ingest";

/// 4 GB of data, 1 GB of memory in all.
fn limited() -> Vec<Goal> {
    let mut goals = vec![
        against((ROCKS, INGEST), goal("ingest", INGEST, Rate("ingest"), 5.0)),
        goal("ingest", INGEST, WriteAmplification("ingest"), 1.3),
        against((ROCKS, INGEST), goal("analytics", INGEST, Rate("analytics"), 2.0)),
        goal("analytics, from the first second", INGEST, FirstSecond("analytics"), 0.8),
    ];
    for (work, phase, at_least, written) in [
        ("P composite", "P@composite", 2.5, 1.3),
        ("P uniform", "P@uniform", 4.0, 1.2),
        ("P Zipf-simple", "P@zipf", 1.6, 1.4),
    ] {
        goals.push(against((ROCKS, LIMITED), goal(work, LIMITED, Rate(phase), at_least)));
        goals.push(goal(work, LIMITED, WriteAmplification(phase), written));
    }
    for (work, phase, at_least) in [
        ("A composite", "A@composite", 2.5),
        ("A Zipf-simple", "A@zipf", 1.2),
        ("E10 composite", "E10@composite", 1.0),
        ("E10 Zipf-simple", "E10@zipf", 1.0),
        ("E1000 composite", "E1000@composite", 1.0),
        ("E1000 Zipf-simple", "E1000@zipf", 1.0),
        ("B composite", "B@composite", 1.0),
        ("B Zipf-simple", "B@zipf", 1.0),
        ("D", "D", 1.0),
        ("F composite", "F@composite", 1.0),
        ("F Zipf-simple", "F@zipf", 1.0),
    ] {
        goals.push(against((ROCKS, LIMITED), goal(work, LIMITED, Rate(phase), at_least)));
    }
    for (work, phase, rocks) in [
        ("C composite", "C@composite", 3.0),
        ("C Zipf-simple", "C@zipf", 1.5),
        ("E100 composite", "E100@composite", 4.0),
        ("E100 Zipf-simple", "E100@zipf", 1.3),
    ] {
        goals.push(against((ROCKS, LIMITED), goal(work, LIMITED, Rate(phase), rocks)));
        for rival in [("lmdb", RIVALS), ("fjall", RIVALS), ("leveldb", RIVALS), ("redb", "limited-redb")] {
            goals.push(against(rival, goal(work, RIVALS, Rate(phase), 1.0)));
        }
    }
    for (work, experiment, phase) in
        [("P", LIMITED, "P@composite"), ("A", LIMITED, "A@composite"), ("ingest", INGEST, "ingest")]
    {
        goals.push(goal(work, experiment, WorstSecond(phase), 0.5));
        goals.push(against((ROCKS, experiment), goal(work, experiment, PutTail(phase), 1.0)));
    }
    goals.push(goal("open after SIGKILL", LIMITED, OpenKilled, 50.0));
    goals
}

/// Engine `teks`: a million rows of 272 bytes in memory, YCSB, and data of four times the memory.
fn teks() -> Vec<Goal> {
    const ONE: &str = "teks-rows-1";
    const TWO: &str = "teks-rows-2";
    const VERSIONS: &str = "teks-versions";
    const LIST: &str = "rocksdb-list";
    const TEKS: &str = "kvilt-teks";
    let mut goals = Vec::new();
    for (work, experiment, phase, list, lmdb) in [
        ("teks: fill, 1 thread", ONE, "fillrandom", 3.0, None),
        ("teks: fill, 2 threads", TWO, "fillrandom", 3.0, None),
        ("teks: get, 1 thread", ONE, "C@uniform", 5.0, Some(1.5)),
        ("teks: get, 2 threads", TWO, "C@uniform", 5.0, Some(1.5)),
        ("teks: seek and 10 rows, 1 thread", ONE, "S10@uniform", 4.0, Some(1.0)),
        ("teks: seek and 10 rows, 2 threads", TWO, "S10@uniform", 4.0, Some(1.0)),
        ("teks: seek and 10 rows, 4 versions put", VERSIONS, "S10@uniform", 8.0, None),
        ("teks: whole scan, 4 versions put", VERSIONS, "readseq", 8.0, None),
        ("teks: get beside a writer", TWO, "C&P@uniform*2", 5.0, None),
        ("teks: seek and 10 rows beside a writer", TWO, "S10&P@uniform*2", 4.0, None),
    ] {
        goals.push(against((LIST, experiment), goal(work, experiment, Rate(phase), list)));
        if let Some(lmdb) = lmdb {
            goals.push(against(("lmdb", experiment), goal(work, experiment, Rate(phase), lmdb)));
        }
    }
    for (work, phase) in [
        ("teks: seek and 10 rows, 4 versions over 1", "S10@uniform"),
        ("teks: whole scan, 4 versions over 1", "readseq"),
    ] {
        goals.push(against((TEKS, ONE), goal(work, VERSIONS, Rate(phase), 1.0)));
    }
    goals.push(goal("teks: seek and 10 rows beside new keys", TWO, ScanTail("S10&I@uniform*2"), 1000.0));
    goals.push(goal("teks: memory", TWO, ItemBytes("C@uniform"), 64.0));
    for (in_memory, beyond, phase) in [
        ("teks: A", "teks: A, beyond memory", "A@zipf"),
        ("teks: B", "teks: B, beyond memory", "B@zipf"),
        ("teks: C", "teks: C, beyond memory", "C@zipf"),
        ("teks: D", "teks: D, beyond memory", "D"),
        ("teks: E", "teks: E, beyond memory", "E100@zipf"),
        ("teks: F", "teks: F, beyond memory", "F@zipf"),
    ] {
        let (ycsb, large) = ("teks-ycsb-2", "teks-large");
        if phase != "E100@zipf" {
            goals.push(against((ROCKS, ycsb), goal(in_memory, ycsb, Rate(phase), 2.0)));
        }
        goals.push(against((ROCKS, large), goal(beyond, large, Rate(phase), 1.0)));
    }
    goals
}

impl Goal {
    /// Looks it up.
    pub(crate) fn verdict(self, measured: &Measured) -> Verdict {
        let ours = self.figure(measured, self.experiment, self.store());
        let theirs = self.rival.and_then(|(store, experiment)| self.figure(measured, experiment, store));
        let reached = match (self.rival, ours, theirs) {
            (None, ours, _) => ours,
            (Some(_), Some(ours), Some(theirs)) if self.is_less_better() => Some(theirs / ours),
            (Some(_), Some(ours), Some(theirs)) => Some(ours / theirs),
            (Some(_), _, _) => None,
        };
        let runs = |experiment, store| measured.get(experiment).map_or(0, |records| records.runs(store));
        let of_rival = self.rival.map(|(store, experiment)| runs(experiment, store));
        let of_ours = runs(self.experiment, self.store());
        Verdict {
            goal: self,
            ours,
            theirs,
            reached,
            runs: of_rival.map_or(of_ours, |runs| runs.min(of_ours)),
        }
    }

    /// What is looked at, in words.
    pub(crate) fn what(&self) -> &'static str {
        match self.measure {
            Rate(_) | Scaling(_) => "operations a second",
            PutTail(_) => "put p99.9, µs",
            WorstSecond(_) => "worst second / median second",
            FirstSecond(_) => "first second / median second",
            WriteAmplification(_) => "bytes written / bytes put",
            ScanTail(_) => "scan p99, µs",
            ItemBytes(_) => "bytes an item beside key and value",
            OpenKilled => "milliseconds",
        }
    }

    /// The goal, in words.
    pub(crate) fn text(&self) -> String {
        match (self.rival, self.is_less_better()) {
            (Some(_), _) => format!("≥ {}×", self.goal),
            (None, true) => format!("≤ {}", self.goal),
            (None, false) => format!("≥ {}", self.goal),
        }
    }

    fn store(&self) -> &'static str {
        match self.experiment.split('-').next() {
            Some("sync") => "kvilt-sync",
            Some("teks") => "kvilt-teks",
            _ => "kvilt",
        }
    }

    fn is_less_better(&self) -> bool {
        match self.measure {
            PutTail(_) | ScanTail(_) | ItemBytes(_) | WriteAmplification(_) | OpenKilled => true,
            Rate(_) | WorstSecond(_) | FirstSecond(_) | Scaling(_) => false,
        }
    }

    fn figure(&self, measured: &Measured, experiment: &str, store: &str) -> Option<f64> {
        let records = measured.get(experiment)?;
        let seconds = |phase| records.lists(store, phase, "seconds");
        match self.measure {
            Rate(phase) | Scaling(phase) => records.median(store, phase, "/operations_a_second"),
            PutTail(phase) => records.median(store, phase, "/latency_micros/put/p99.9"),
            ScanTail(phase) => records.median(store, phase, "/latency_micros/scan/p99"),
            ItemBytes(phase) => {
                let of_memory = records.median(store, phase, "/figures/memory_bytes_now")?;
                Some(of_memory / records.median(store, phase, "/figures/table_keys_now")? - 272.0)
            }
            WriteAmplification(phase) => records.median(store, phase, "/write_amplification"),
            OpenKilled => records.median(store, "open", "/open_killed_ms"),
            WorstSecond(phase) => {
                let all = seconds(phase).concat();
                Some(all.iter().copied().reduce(f64::min)? / kvilt_bench::compare::median(&all))
            }
            FirstSecond(phase) => {
                let of_run = |run: &Vec<f64>| Some(run.first()? / kvilt_bench::compare::median(run));
                let of_runs: Vec<f64> = seconds(phase).iter().filter_map(of_run).collect();
                (!of_runs.is_empty()).then(|| kvilt_bench::compare::median(&of_runs))
            }
        }
    }
}

impl Verdict {
    /// Whether the goal is reached; nobody knows before it is measured.
    pub(crate) fn is_reached(&self) -> Option<bool> {
        let reached = self.reached?;
        // A ratio is turned so that more is better.
        let is_upper_bound = self.goal.rival.is_none() && self.goal.is_less_better();
        Some(if is_upper_bound { reached <= self.goal.goal } else { reached >= self.goal.goal })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::figures::{plan::experiments, records::Records};

    fn line(store: &str, phase: &str, rate: f64) -> Value {
        json!({"kind": "phase", "store": store, "phase": phase, "run": 1, "operations_a_second": rate,
               "write_amplification": 1.25, "seconds": [50, 100, 100, 40],
               "latency_micros": {"put": {"p99.9": 1e6 / rate}}})
    }

    fn verdict(goal: Goal) -> Verdict {
        let lines = [line("kvilt", "P@composite", 500.0), line("rocksdb", "P@composite", 100.0)];
        let open = json!({"kind": "open", "store": "kvilt", "run": 1, "open_killed_ms": 30.0});
        let all = [lines.as_slice(), &[open]].concat();
        goal.verdict(&Measured::from([(WRITES, Records::of(&all))]))
    }

    #[test]
    fn ratios_and_bounds_are_judged_in_their_own_direction() {
        let phase = "P@composite";
        let rival = (ROCKS, WRITES);
        for (goal, reached, is_reached) in [
            (against(rival, goal("P", WRITES, Rate(phase), 4.0)), 5.0, true),
            (against(rival, goal("P", WRITES, Rate(phase), 6.0)), 5.0, false),
            (against(rival, goal("P", WRITES, PutTail(phase), 1.0)), 5.0, true),
            (goal("P", WRITES, WriteAmplification(phase), 1.3), 1.25, true),
            (goal("P", WRITES, WriteAmplification(phase), 1.2), 1.25, false),
            (goal("P", WRITES, WorstSecond(phase), 0.5), 40.0 / 75.0, true),
            (goal("P", WRITES, FirstSecond(phase), 0.8), 50.0 / 75.0, false),
            (goal("open", WRITES, OpenKilled, 20.0), 30.0, false),
        ] {
            let verdict = verdict(goal);
            assert_eq!(
                (verdict.reached, verdict.is_reached()),
                (Some(reached), Some(is_reached)),
                "{goal:?}"
            );
        }
        assert_eq!(verdict(goal("P", LIMITED, Rate(phase), 1.0)).is_reached(), None);
    }

    #[test]
    fn every_goal_is_measured_by_an_experiment() {
        let experiments = experiments();
        let asked = |name: &str, store: &str, measure: Measure| {
            let experiment = experiments.iter().find(|e| e.name == name).unwrap();
            assert!(experiment.is_asked && experiment.stores.contains(&store), "{name} {store}");
            let (Rate(phase)
            | PutTail(phase)
            | ScanTail(phase)
            | ItemBytes(phase)
            | WorstSecond(phase)
            | FirstSecond(phase)
            | WriteAmplification(phase)
            | Scaling(phase)) = measure
            else {
                return;
            };
            let is_there = experiment.works.split(',').any(|work| work == phase);
            let is_load = phase == "fillrandom" && experiment.scenario == "teks";
            assert!(is_there || is_load || experiment.works.is_empty(), "{name} {phase}");
        };
        for goal in goals() {
            asked(goal.experiment, goal.store(), goal.measure);
            if let Some((store, experiment)) = goal.rival {
                asked(experiment, store, goal.measure);
            }
        }
    }
}
