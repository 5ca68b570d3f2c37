//! Measuring: round by round, in each round every experiment once with all its stores in turn, so that what
//! the machine does meanwhile meets all of them, and whoever stops after any round has medians of everything.
//!
//! What a run measured is appended to `NAME.jsonl.part` when the run is over, never before; the file becomes
//! `NAME.jsonl` when the experiment has had its rounds. Started again, it goes on where it was.

use std::{
    collections::BTreeMap,
    fs,
    io::{IsTerminal, Write, stderr},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use kvilt_bench::errand::Errand;
use serde_json::{Value, json};

use super::{plan::Experiment, records::Records};

/// The measuring of some experiments.
pub(crate) struct Rounds<'a> {
    /// Which, in the order of a round.
    pub(crate) experiments: &'a [Experiment],
    /// Where the files are.
    pub(crate) out: &'a Path,
    /// Where stores lie while they are measured.
    pub(crate) directory: &'a Path,
    /// How often those in every round run.
    pub(crate) rounds: u32,
    /// No run begins that would not be done by then.
    pub(crate) end: Option<Instant>,
}

/// One run of one store.
struct Turn<'a> {
    experiment: &'a Experiment,
    store: &'a str,
    run: u32,
}

impl Rounds<'_> {
    /// Measures what is not measured yet.
    pub(crate) fn run(&self) -> Result<()> {
        for directory in [self.out, self.directory] {
            fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        }
        for experiment in self.experiments {
            self.begin(experiment)?;
        }
        let turns = self.turns()?;
        let mut took: BTreeMap<(&str, &str), Duration> = BTreeMap::new();
        for (place, turn) in turns.iter().enumerate() {
            let expected = |turn: &Turn| {
                let known = took.get(&(turn.experiment.name, turn.store)).copied();
                known.unwrap_or(turn.experiment.estimate())
            };
            if self.end.is_some_and(|end| Instant::now() + expected(turn) > end) {
                continue;
            }
            let left = turns[place..].iter().map(expected).sum();
            announce(turn, place, turns.len(), left, self.end);
            let begun = Instant::now();
            self.measure(turn)?;
            took.insert((turn.experiment.name, turn.store), begun.elapsed());
        }
        for experiment in self.experiments {
            self.finish(experiment)?;
        }
        Ok(())
    }

    /// What is still to be run, round by round; those that no goal needs come after all others.
    fn turns(&self) -> Result<Vec<Turn<'_>>> {
        let mut turns = Vec::new();
        for is_asked in [true, false] {
            for round in 1..=self.rounds {
                let in_round = |e: &&Experiment| e.is_asked == is_asked && e.is_in_round(round);
                for experiment in self.experiments.iter().filter(in_round) {
                    let run = (round - 1) / experiment.every + 1;
                    let done = self.part(experiment).exists().then(|| Records::read(&self.part(experiment)));
                    let done = done.transpose()?.unwrap_or_default();
                    for turn in 0..experiment.stores.len() {
                        // Each round begins with another store.
                        let store = experiment.stores[(turn + round as usize - 1) % experiment.stores.len()];
                        if !done.has(store, run) {
                            turns.push(Turn { experiment, store, run });
                        }
                    }
                }
            }
        }
        Ok(turns)
    }

    /// Begins a file, unless one is there that was begun with the same arguments.
    fn begin(&self, experiment: &Experiment) -> Result<()> {
        let part = self.part(experiment);
        let arguments = json!(experiment.arguments());
        if part.exists() {
            let records = Records::read(&part)?;
            if records.head().is_some_and(|head| head["arguments"] == arguments) {
                return Ok(());
            }
        }
        let head = json!({
            "kind": "experiment", "name": experiment.name, "arguments": arguments, "stores": experiment.stores,
            "commit": commit(), "machine": machine(),
        });
        fs::write(&part, format!("{head}\n")).with_context(|| part.display().to_string())
    }

    /// Runs a store once. One that fails, is killed or takes too long is noted as such.
    fn measure(&self, turn: &Turn<'_>) -> Result<()> {
        let arguments = turn.experiment.arguments();
        let errand = Errand {
            store: turn.store,
            run: turn.run,
            arguments: &arguments,
            directory: self.directory,
            patience: turn.experiment.patience(),
        };
        let mut lines: Vec<Value> = Vec::new();
        let outcome = errand.run(&mut |line| {
            lines.push(line);
            Ok(())
        });
        if let Err(error) = outcome {
            let why = format!("{error:#}");
            eprintln!("{} did not finish {}: {why}", turn.store, turn.experiment.name);
            lines.push(json!({"kind": "unfinished", "store": turn.store, "run": turn.run, "why": why}));
        }
        let part = self.part(turn.experiment);
        let mut file =
            fs::OpenOptions::new().append(true).open(&part).with_context(|| part.display().to_string())?;
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        file.write_all(text.as_bytes()).with_context(|| part.display().to_string())
    }

    /// Gives the file its name, if anything was measured.
    fn finish(&self, experiment: &Experiment) -> Result<()> {
        let part = self.part(experiment);
        let is_empty = Records::read(&part)?.promises().is_empty();
        match is_empty {
            true => fs::remove_file(&part).context("a file without measurements"),
            false => fs::rename(&part, path(self.out, experiment)).context("a finished file"),
        }
    }

    fn part(&self, experiment: &Experiment) -> PathBuf {
        path(self.out, experiment).with_extension("jsonl.part")
    }
}

/// Where an experiment's measurements are when it is done.
pub(crate) fn path(out: &Path, experiment: &Experiment) -> PathBuf {
    out.join(experiment.name).with_extension("jsonl")
}

fn announce(turn: &Turn<'_>, place: usize, of: usize, left: Duration, end: Option<Instant>) {
    let until_end = end.map_or(left, |end| left.min(end.saturating_duration_since(Instant::now())));
    let text = format!(
        "{:>3} of {of} · {} · run {} · {} · {} min left",
        place + 1,
        turn.experiment.name,
        turn.run,
        turn.store,
        until_end.as_secs().div_ceil(60),
    );
    match stderr().is_terminal() {
        true => eprintln!("\x1b[1m{text}\x1b[0m"),
        false => eprintln!("{text}"),
    }
}

/// The commit that is measured, with a plus if files differ from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).output().ok().filter(|output| output.status.success());
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let is_changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    let commit = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".into());
    if is_changed { format!("{commit}+") } else { commit }
}

/// Processor, cores and memory.
fn machine() -> String {
    let field = |path: &str, name: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or("").to_owned();
        line.split_once(':').map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{}, {cores} cores, {} of memory",
        field("/proc/cpuinfo", "model name"),
        field("/proc/meminfo", "MemTotal")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::plan::experiments;

    fn rounds<'a>(experiments: &'a [Experiment], out: &'a Path) -> Rounds<'a> {
        Rounds { experiments, out, directory: out, rounds: 5, end: None }
    }

    #[test]
    fn each_round_has_all_stores_and_begins_with_another() {
        let out = tempfile::tempdir().unwrap();
        let all: Vec<Experiment> = experiments().into_iter().filter(|e| e.name == "memory-writes").collect();
        let rounds = rounds(&all, out.path());
        let turns = rounds.turns().unwrap();
        let of_run = |run| turns.iter().filter(move |turn| turn.run == run).map(|turn| turn.store);
        assert_eq!(of_run(1).collect::<Vec<_>>(), ["kvilt", "rocksdb", "rocksdb-buffered"]);
        assert_eq!(of_run(2).collect::<Vec<_>>(), ["rocksdb-buffered", "kvilt", "rocksdb"]);
        assert_eq!(turns.len(), 9, "every other round of five");
    }

    #[test]
    fn what_was_measured_is_not_measured_again() {
        let out = tempfile::tempdir().unwrap();
        let all: Vec<Experiment> = experiments().into_iter().filter(|e| e.name == "limited").collect();
        let rounds = rounds(&all, out.path());
        rounds.begin(&all[0]).unwrap();
        assert_eq!(rounds.turns().unwrap().len(), 6);
        let part = rounds.part(&all[0]);
        let done = json!({"kind": "open", "store": "rocksdb", "run": 1});
        let begun = fs::read_to_string(&part).unwrap();
        fs::write(&part, format!("{begun}{done}\n")).unwrap();
        rounds.begin(&all[0]).unwrap();
        assert_eq!(rounds.turns().unwrap().len(), 5);
        // With other arguments, nothing of it counts.
        let shorter = [all[0].clone().shortened(0.5)];
        let rounds = Rounds { experiments: &shorter, ..rounds };
        rounds.begin(&shorter[0]).unwrap();
        assert_eq!(rounds.turns().unwrap().len(), 6);
    }
}
