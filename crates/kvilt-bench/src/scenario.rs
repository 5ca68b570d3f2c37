//! Scenarios: how much data, how much memory, and the phases in their order.

use std::{str::FromStr, time::Duration};

use anyhow::{Context, Result};
use rand::{Rng, RngExt};
use serde_json::{Value, json};

use crate::{
    cli::Unknown,
    events::{self, EVENT_KEY_BYTES},
    keys::{KEY_BYTES, key_of},
    steady::Steady,
    work::{NamedWork, Work},
};

/// What is done to a store, from empty to closed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Bytes of keys and values loaded in the order of keys before the first phase; none before events.
    pub data_bytes: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// What each store gets for all that it caches and buffers.
    pub budget_bytes: u64,
    /// A ceiling on the process, page cache included.
    pub limit_bytes: Option<u64>,
    /// Whether rows are put in a random order, each alone, and not loaded in order and together.
    pub is_load_random: bool,
    /// Threads that load in a random order; if none are named, as many as work.
    pub load_threads: Option<usize>,
    /// How often each row is put when rows are loaded in a random order.
    pub load_times: u64,
    /// Whether what the drive does by itself is measured before the first phase and beside each.
    pub is_drive_measured: bool,
    /// The longest time that caches get to fill before the first phase; else a get a record.
    pub warm: Option<Duration>,
    /// The phases.
    pub works: Vec<NamedWork>,
    /// How long a phase lasts; ingest and a whole scan end by themselves.
    pub phase: Duration,
    /// If given, phases that put rows over are measured in steady state.
    pub steady: Option<Steady>,
    /// Threads.
    pub threads: usize,
    /// Decides all chance.
    pub seed: u64,
}

impl Scenario {
    /// A scenario by name, with its own sizes.
    pub fn named(name: &str) -> Result<Scenario> {
        let mib = |megabytes: u64| megabytes << 20;
        let (data, budget, limit, seconds, works) = match name {
            "memory" => (1024, 1536, None, 7, MEMORY),
            "limited" => (4096, 512, Some(1024), 15, LIMITED),
            "ingest" => (4096, 512, Some(1024), 40, "ingest,analytics,popular"),
            "rows" => (272, 1024, None, 5, "readrandom,readseq,seekrandom"),
            "teks" => (260, 4096, None, 3, TEKS),
            "versions" => (260, 8192, None, 3, VERSIONS),
            "drive" => (2000, 800, Some(1300), 10, DRIVE),
            "sync" => (16, 128, None, 5, "P@uniform"),
            "steady" => (512, 128, None, 20, "P@uniform,P@zipf,A@uniform,A@zipf"),
            "small" => (64, 128, None, 1, "C,A,E100,P,readseq"),
            _ => {
                let names = "memory, limited, ingest, rows, teks, versions, drive, sync, steady, small";
                return Err(Unknown(format!("no scenario is called {name:?}; there are: {names}")).into());
            }
        };
        Ok(Scenario {
            name: name.to_owned(),
            data_bytes: mib(data),
            value_bytes: match name {
                "rows" => 256,
                // With its key as many bytes as in TeksDB's benchmark.
                "teks" | "versions" => 272 - KEY_BYTES,
                "drive" => 1024 - KEY_BYTES,
                _ => 800,
            },
            budget_bytes: mib(budget),
            limit_bytes: limit.map(mib),
            is_load_random: matches!(name, "rows" | "teks" | "versions" | "drive"),
            load_threads: match name {
                "drive" => Some(64),
                "rows" => Some(1),
                _ => None,
            },
            load_times: if name == "versions" { 4 } else { 1 },
            is_drive_measured: name == "drive",
            warm: (name == "drive").then_some(Duration::from_secs(15)),
            works: works_of(works)?,
            phase: Duration::from_secs(seconds),
            steady: (name == "steady").then(Steady::default),
            threads: 2,
            seed: 1,
        })
    }

    /// Records, or events, that make up the data.
    pub fn records(&self) -> u64 {
        let key_bytes = if self.has_events() { EVENT_KEY_BYTES } else { KEY_BYTES };
        (self.data_bytes / (key_bytes + self.value_bytes) as u64).max(1)
    }

    /// Threads that load in a random order.
    pub fn load_threads(&self) -> usize {
        self.load_threads.unwrap_or(self.threads).max(1)
    }

    /// Whether it is about events, which are not loaded before.
    pub fn has_events(&self) -> bool {
        self.works.iter().any(|work| matches!(work.work, Work::Ingest | Work::Analytics(_)))
    }

    /// A random key of the data, or where an app's events of the last minute begin.
    pub fn place(&self, chance: &mut impl Rng) -> Vec<u8> {
        if self.has_events() {
            let since = events::minute_before(events::time_of(self.records()));
            return events::event_key(events::app(chance), since, 0).to_vec();
        }
        key_of(chance.random_range(0..self.records())).to_vec()
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "scenario": self.name, "data_bytes": self.data_bytes, "value_bytes": self.value_bytes,
            "budget_bytes": self.budget_bytes, "limit_bytes": self.limit_bytes, "threads": self.threads,
            "seconds": self.phase.as_secs_f64(), "seed": self.seed, "records": self.records(),
        })
    }
}

const MEMORY: &str = "C@composite,C@zipf,E100@composite,E100@zipf,E10@composite,E1000@composite,readseq,B@composite,\
                      B@zipf,D,F@composite,F@zipf,A@composite,A@zipf,P@composite,P@zipf,P@uniform";

const LIMITED: &str = "C@composite,C@zipf,E100@composite,E100@zipf,B@composite,B@zipf,D,F@composite,A@composite,A@zipf,\
                       P@composite,P@zipf,P@uniform";

/// A million rows in memory, read, and read beside one thread that puts or inserts; then YCSB's mixes.
const TEKS: &str = "C@uniform,S10@uniform,readseq,C&P@uniform*2,S10&P@uniform*2,C@zipf,B@zipf,F@zipf,E100@zipf,\
                    A@zipf,P@uniform,D,S10&I@uniform*2";

/// What comes behind four puts of each row.
const VERSIONS: &str = "C@uniform,S10@uniform,readseq";

/// Uniform keys of data beyond memory; calls in flight at once by threads or by calls for many keys.
const DRIVE: &str = "C@uniform*64,C64@uniform*1,C64@uniform*2,A@uniform*64,P@uniform*64,C@uniform*8,A@uniform*8,\
                     B@uniform*8,E99@uniform*8,E99@uniform*2";

/// Works by their names, with commas between.
pub fn works_of(names: &str) -> Result<Vec<NamedWork>> {
    names
        .split(',')
        .map(|name| NamedWork::from_str(name.trim()).with_context(|| format!("in the phases {names}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_can_be_built() {
        let names =
            ["memory", "limited", "ingest", "rows", "teks", "versions", "drive", "sync", "steady", "small"];
        for name in names {
            let scenario = Scenario::named(name).unwrap();
            assert!(scenario.records() > 10_000 && !scenario.works.is_empty());
            assert_eq!(scenario.has_events(), name == "ingest");
            assert_eq!(scenario.steady.is_some(), name == "steady");
        }
        assert!(Scenario::named("large").is_err());
        assert!(works_of("A,,B").is_err());
    }
}
