//! The command line. `kvilt-bench` runs it with Kvilt's entries, `kvilt-bench-compare` with everybody's.

use std::{
    collections::BTreeSet,
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use kvilt_io::QueueBy;
use serde_json::{Value, json};

use crate::{
    caches::Caches,
    compare::Comparison,
    contestants::DEFAULT_ENGINE,
    drive::{self, Drive},
    run::{run, write_for_ever},
    scenario::{Scenario, works_of},
    store::Contestant,
};

/// Lets stores do the same work and measures them.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What can be done with stores, whichever they are.
#[derive(Subcommand)]
pub enum Command {
    /// Names the stores that can take part, the engine of each that is ours, and what each promises.
    Stores,
    /// Runs a scenario on one store in this process; prints a JSON object a measurement.
    One(One),
    /// Runs a scenario on several stores in turn, each run in a process of its own; prints a table of
    /// medians.
    Compare(Compare),
    /// Measures what the drive does by itself, by each kind of queue; prints a JSON object a kind.
    Drive {
        /// Where; a directory beside it is made and removed.
        #[arg(long)]
        dir: PathBuf,
    },
    /// Simulates cache policies: which gets would read from the drive, by memory; prints tables.
    Caches(Caches),
    /// Writes until it is killed.
    #[command(hide = true)]
    WriteForEver(One),
}

/// One store.
#[derive(Args)]
pub struct One {
    /// Which store, see `stores`.
    #[arg(long, default_value = "kvilt")]
    store: String,
    /// Where; it must not exist.
    #[arg(long)]
    dir: PathBuf,
    /// Decides all chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    changes: Changes,
}

/// Several stores.
#[derive(Args)]
pub struct Compare {
    /// Which stores, see `stores`; ratios are to the first.
    #[arg(long, value_delimiter = ',', default_value = "kvilt")]
    stores: Vec<String>,
    /// Runs of each store.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Where the stores lie while they are measured.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Keep every measurement here, a JSON object a line.
    #[arg(long)]
    out: Option<PathBuf>,
    #[command(flatten)]
    changes: Changes,
}

/// A scenario, and what is different from it.
#[derive(Args)]
struct Changes {
    /// memory, limited, ingest, rows, teks, versions, drive, sync, steady or small.
    #[arg(long, default_value = "small")]
    scenario: String,
    /// The engine of the stores that are ours; without it, that of the store's entry, and of several entries
    /// of that name the default one's.
    #[arg(long)]
    engine: Option<String>,
    /// The phases, as in `A@composite,E100@zipf,P@uniform`.
    #[arg(long)]
    works: Option<String>,
    /// Seconds of a phase.
    #[arg(long)]
    seconds: Option<f64>,
    /// The longest time for caches to fill before the first phase; without it, a get a record.
    #[arg(long)]
    warm_seconds: Option<f64>,
    /// Measures phases that put in steady state: each first puts this many times the bytes of all rows.
    #[arg(long)]
    put_over: Option<f64>,
    /// Seconds of rest behind a phase in steady state.
    #[arg(long)]
    rest_seconds: Option<f64>,
    /// Threads.
    #[arg(long)]
    threads: Option<usize>,
    /// Mebibytes of data.
    #[arg(long)]
    data_mb: Option<u64>,
    /// Bytes of a value; a key has 14.
    #[arg(long)]
    value_bytes: Option<usize>,
    /// Mebibytes that a store gets for what it caches and buffers.
    #[arg(long)]
    budget_mb: Option<u64>,
    /// A ceiling on the whole process in mebibytes, page cache included; 0 for none.
    #[arg(long)]
    limit_mb: Option<u64>,
}

/// Runs the command line with these stores.
pub fn run_with(contestants: &[Box<dyn Contestant>]) -> ExitCode {
    exit_code(Arguments::parse().command.run(contestants))
}

impl Command {
    /// Does it with these stores.
    pub fn run(&self, contestants: &[Box<dyn Contestant>]) -> Result<()> {
        match self {
            Command::Stores => stores(contestants),
            Command::One(one) => one.run(contestants),
            Command::Compare(compare) => compare.run(contestants),
            Command::Drive { dir } => measure_drive(dir),
            Command::Caches(caches) => caches.run(),
            Command::WriteForEver(one) => one.write_for_ever(contestants),
        }
    }
}

/// What the process ends with, 2 where the command line is wrong; an error goes to standard error.
pub fn exit_code(outcome: Result<()>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("error: {error:#}");
    if error.is::<Unknown>() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// The command line names something that there is not.
#[derive(Debug)]
pub(crate) struct Unknown(pub(crate) String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unknown {}

fn stores(contestants: &[Box<dyn Contestant>]) -> Result<()> {
    for contestant in contestants {
        let (name, engine) = (contestant.name(), contestant.engine().unwrap_or("-"));
        writeln!(io::stdout(), "{name:<20} {engine:<8} {}", contestant.promise())?;
    }
    Ok(())
}

fn measure_drive(directory: &Path) -> Result<()> {
    let drive = Drive::beside(directory, u64::MAX, Duration::MAX)?;
    for by in [QueueBy::Best, QueueBy::Threads] {
        writeln!(io::stdout(), "{}", drive.measure(drive::PLANS, by)?)?;
    }
    Ok(())
}

/// The store of this name; of those of ours, that of this engine, if one is given.
fn contestant<'a>(
    contestants: &'a [Box<dyn Contestant>],
    name: &str,
    engine: Option<&str>,
) -> Result<&'a dyn Contestant, Unknown> {
    let engines: BTreeSet<&str> = contestants.iter().filter_map(|contestant| contestant.engine()).collect();
    if let Some(engine) = engine.filter(|engine| !engines.contains(engine)) {
        let engines = Vec::from_iter(engines).join(", ");
        return Err(Unknown(format!("there is no engine {engine:?}; there are: {engines}")));
    }
    let of_name = || contestants.iter().map(|contestant| &**contestant).filter(|one| one.name() == name);
    let of_engine = |engine| of_name().find(|one| one.engine().is_none_or(|own| own == engine));
    let found = match engine {
        Some(engine) => of_engine(engine),
        None => of_engine(DEFAULT_ENGINE).or_else(|| of_name().next()),
    };
    found.ok_or_else(|| {
        let engine = engine.map_or(String::new(), |engine| format!(", with engine {engine}"));
        Unknown(format!("no store is called {name}{engine}; see `stores`"))
    })
}

impl One {
    fn run(&self, contestants: &[Box<dyn Contestant>]) -> Result<()> {
        let contestant = contestant(contestants, &self.store, self.changes.engine.as_deref())?;
        let mut tell = |measured: Value| {
            // A pipe is a block of bytes to Rust: whoever reads along must see each line when it is there.
            let mut out = io::stdout().lock();
            writeln!(out, "{measured}")?;
            Ok(out.flush()?)
        };
        let outcome = run(contestant, &self.scenario()?, &self.dir, &mut tell);
        if let Err(error) = &outcome {
            tell(json!({"kind": "failed", "why": format!("{error:#}")}))?;
        }
        outcome
    }

    fn write_for_ever(&self, contestants: &[Box<dyn Contestant>]) -> Result<()> {
        write_for_ever(
            contestant(contestants, &self.store, self.changes.engine.as_deref())?,
            &self.scenario()?,
            &self.dir,
        )
    }

    fn scenario(&self) -> Result<Scenario> {
        Ok(Scenario { seed: self.seed, ..self.changes.scenario()? })
    }
}

impl Compare {
    fn run(&self, contestants: &[Box<dyn Contestant>]) -> Result<()> {
        for store in &self.stores {
            contestant(contestants, store, self.changes.engine.as_deref())?;
        }
        self.changes.scenario()?;
        let mut kept: Box<dyn Write> = match &self.out {
            Some(path) => Box::new(fs::File::create(path).with_context(|| path.display().to_string())?),
            None => Box::new(io::sink()),
        };
        let comparison = Comparison {
            stores: &self.stores,
            runs: self.runs,
            arguments: &self.changes.as_arguments(),
            directory: &self.dir,
        };
        writeln!(io::stdout(), "{}", comparison.run(&mut kept)?)?;
        Ok(())
    }
}

impl Changes {
    fn scenario(&self) -> Result<Scenario> {
        let mut scenario = Scenario::named(&self.scenario)?;
        let mib = |megabytes: u64| megabytes << 20;
        if let Some(works) = &self.works {
            scenario.works = works_of(works)?;
        }
        if let Some(seconds) = self.seconds {
            scenario.phase = Duration::try_from_secs_f64(seconds).context("seconds of a phase")?;
        }
        if let Some(seconds) = self.warm_seconds {
            scenario.warm = Some(Duration::try_from_secs_f64(seconds).context("seconds to warm up")?);
        }
        if let Some(put_over) = self.put_over {
            ensure!(put_over.is_finite() && put_over >= 0.0, "--put-over is a number of times");
            scenario.steady.get_or_insert_default().put_over = put_over;
        }
        if let Some(seconds) = self.rest_seconds {
            scenario.steady.get_or_insert_default().rest =
                Duration::try_from_secs_f64(seconds).context("seconds of rest")?;
        }
        scenario.threads = self.threads.unwrap_or(scenario.threads).max(1);
        scenario.data_bytes = self.data_mb.map_or(scenario.data_bytes, mib);
        scenario.value_bytes = self.value_bytes.unwrap_or(scenario.value_bytes);
        scenario.budget_bytes = self.budget_mb.map_or(scenario.budget_bytes, mib);
        scenario.limit_bytes = match self.limit_mb {
            None => scenario.limit_bytes,
            Some(0) => None,
            Some(megabytes) => Some(mib(megabytes)),
        };
        Ok(scenario)
    }

    /// The same again for a process that runs one store.
    fn as_arguments(&self) -> Vec<String> {
        let mut arguments = ["--scenario", &self.scenario].map(str::to_owned).to_vec();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                arguments.extend([name.to_owned(), value]);
            }
        };
        add("--engine", self.engine.clone());
        add("--works", self.works.clone());
        add("--seconds", self.seconds.map(|seconds| seconds.to_string()));
        add("--warm-seconds", self.warm_seconds.map(|seconds| seconds.to_string()));
        add("--put-over", self.put_over.map(|times| times.to_string()));
        add("--rest-seconds", self.rest_seconds.map(|seconds| seconds.to_string()));
        add("--threads", self.threads.map(|threads| threads.to_string()));
        add("--data-mb", self.data_mb.map(|megabytes| megabytes.to_string()));
        add("--value-bytes", self.value_bytes.map(|bytes| bytes.to_string()));
        add("--budget-mb", self.budget_mb.map(|megabytes| megabytes.to_string()));
        add("--limit-mb", self.limit_mb.map(|megabytes| megabytes.to_string()));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestants::contestants;

    #[test]
    fn a_name_that_there_is_not_is_a_mistake_of_the_command_line() {
        let all = contestants();
        let named = |store, engine| contestant(&all, store, engine).map(|found| found.name());
        let refused = |store, engine| named(store, Some(engine)).unwrap_err();
        assert_eq!(
            refused("kvilt", "nobody").0,
            "there is no engine \"nobody\"; there are: even, kvell, teks"
        );
        assert!(
            refused("kvilt-kvell", "even").0.contains("no store is called kvilt-kvell, with engine even")
        );
        assert_eq!(named("kvilt-kvell", None).unwrap(), "kvilt-kvell", "its entry knows its engine");
        assert!(refused("nobody", DEFAULT_ENGINE).0.contains("no store is called nobody"));
        assert_eq!(exit_code(Err(refused("kvilt", "nobody").into())), ExitCode::from(2));
        assert_eq!(exit_code(Scenario::named("nothing").map(drop)), ExitCode::from(2));
        assert_eq!(exit_code(Err(anyhow::anyhow!("the disk is full"))), ExitCode::FAILURE);
    }
}
