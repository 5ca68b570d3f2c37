//! What is measured for the figures: each experiment is a scenario, its stores, and how much time it may
//! take.
//!
//! The machine has minutes for what the paper gave days, so every store takes part only where something is
//! asked of it: RocksDB everywhere, LMDB where all is read from memory, fjall and redb where the goals name
//! them. Where what a store did before decides how fast it reads, Kvilt is held against others in the same
//! experiment, with the same phases before.

use std::time::Duration;

/// Works of the paper's figure 6. Those that mostly read come first, by pattern, so that caches adapt once,
/// and those that put as much as their time allows come last. The paper loads a store for each work (EvenDB
/// §5.3); here one store has them all, and the faster it puts, the more a phase of puts leaves for the next
/// to read: several times as many new rows in one store as in another.
const READS: &str = "B@composite,C@composite,E100@composite,E10@composite,E1000@composite,D,\
                     B@zipf,C@zipf,E100@zipf,E10@zipf,E1000@zipf,readseq,F@composite,F@zipf";
const WRITES: &str = "A@composite,A@zipf,P@composite,P@zipf,P@uniform";
const ALL: &str = "B@composite,C@composite,E100@composite,E10@composite,E1000@composite,D,\
                   B@zipf,C@zipf,E100@zipf,E10@zipf,E1000@zipf,\
                   F@composite,F@zipf,A@composite,A@zipf,P@composite,P@zipf,P@uniform";
/// Works of the figures that follow the ratio of data to memory.
const SWEPT: &str =
    "C@composite,E100@composite,C@zipf,E100@zipf,A@composite,A@zipf,P@composite,P@zipf,P@uniform";

/// Stores doing something, some rounds.
#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    /// Also the name of its file.
    pub(crate) name: &'static str,
    /// Who takes part.
    pub(crate) stores: &'static [&'static str],
    /// A scenario of `kvilt-bench`.
    pub(crate) scenario: &'static str,
    /// Its phases; the scenario's own if empty.
    pub(crate) works: &'static str,
    /// Mebibytes.
    pub(crate) data_mb: u64,
    /// Mebibytes.
    pub(crate) budget_mb: u64,
    /// Mebibytes for the whole process, page cache included; 0 for no ceiling.
    pub(crate) limit_mb: u64,
    /// Threads.
    pub(crate) threads: usize,
    /// Seconds of a phase, when time is not short.
    pub(crate) seconds: f64,
    /// And when it is.
    pub(crate) seconds_min: f64,
    /// Seconds for caches to fill; 0 for a get a record.
    pub(crate) warm_seconds: f64,
    /// It takes part in the first of so many rounds.
    pub(crate) every: u32,
    /// Whether the goals need it; the others come last.
    pub(crate) is_asked: bool,
}

/// In memory: 1 GiB of data under 1.5 GiB.
const MEMORY: Experiment = Experiment {
    name: "memory-reads",
    stores: &["kvilt", "rocksdb"],
    scenario: "memory",
    works: READS,
    data_mb: 1024,
    budget_mb: 1536,
    limit_mb: 0,
    threads: 2,
    seconds: 2.0,
    seconds_min: 1.0,
    warm_seconds: 0.0,
    every: 1,
    is_asked: true,
};

/// 4 GiB of data, 1 GiB of memory in all.
const LIMITED: Experiment = Experiment {
    name: "limited",
    scenario: "limited",
    works: ALL,
    data_mb: 4096,
    budget_mb: 512,
    limit_mb: 1024,
    seconds: 5.0,
    warm_seconds: 8.0,
    every: 2,
    ..MEMORY
};

/// Small, so that 16:1 can be loaded in seconds.
const SWEEP: Experiment = Experiment {
    name: "ratio-1",
    works: SWEPT,
    data_mb: 256,
    budget_mb: 128,
    limit_mb: 256,
    seconds: 3.0,
    warm_seconds: 3.0,
    every: 5,
    is_asked: false,
    ..LIMITED
};

/// Events, and then those who look at them.
const INGEST: Experiment = Experiment {
    name: "ingest",
    scenario: "ingest",
    works: "",
    stores: TRIO,
    seconds: 12.0,
    every: 2,
    ..LIMITED
};

/// In memory, with less, for it is loaded for each number of threads.
const SCALING: Experiment = Experiment {
    name: "threads-1",
    works: SCALED,
    data_mb: 512,
    budget_mb: 768,
    threads: 1,
    every: 2,
    ..MEMORY
};

/// Every put is synced.
const SYNC: Experiment = Experiment {
    name: "sync-1",
    scenario: "sync",
    works: "P@uniform",
    stores: SYNCED,
    data_mb: 16,
    budget_mb: 128,
    threads: 1,
    seconds: 3.0,
    ..MEMORY
};

/// Engine `teks` in memory: a million rows of 272 bytes, put in random order. Puts of new keys, of which fast
/// stores make more, come last.
const TEKS: Experiment = Experiment {
    name: "teks-rows-2",
    scenario: "teks",
    works: "C@uniform,S10@uniform,readseq,C&P@uniform*2,S10&P@uniform*2,S10&I@uniform*2",
    stores: &["kvilt-teks", "kvilt", "rocksdb-list", "lmdb"],
    data_mb: 260,
    budget_mb: 4096,
    seconds: 1.5,
    warm_seconds: 1.0,
    ..MEMORY
};
const TEKS_ROWS: &str = "C@uniform,S10@uniform,readseq";
const TEKS_MIXES: &str = "C@zipf,B@zipf,F@zipf,E100@zipf,A@zipf,D";

const RUST: &str = "B@composite,E10@composite,E1000@composite,D,B@zipf,F@composite,F@zipf";
const RIVALS: &str = "B@composite,C@composite,E100@composite,B@zipf,C@zipf,E100@zipf";
const SCALED: &str = "C@composite,C@zipf,A@composite,A@zipf,P@composite,P@zipf";
const SKEWED: &str = "C@composite:0.9,A@composite:0.9,P@composite:0.9,C@zipf:0.9,A@zipf:0.9,P@zipf:0.9,\
                      C@composite:0.8,A@composite:0.8,P@composite:0.8,C@zipf:0.8,A@zipf:0.8,P@zipf:0.8";
const TRIO: &[&str] = &["kvilt", "rocksdb", "rocksdb-buffered"];
/// By the limit of cold logs, rising; the default is 2 MiB.
pub(crate) const LOG_LIMITS: [&str; 5] =
    ["kvilt-log-128k", "kvilt-log-512k", "kvilt-log-1m", "kvilt", "kvilt-log-4m"];
/// And that limit of each.
pub(crate) const LOG_LIMITS_KIB: [f64; LOG_LIMITS.len()] = [128.0, 512.0, 1024.0, 2048.0, 4096.0];
const SYNCED: &[&str] = &["kvilt-sync", "rocksdb-sync"];

/// All experiments, what the goals need first.
pub(crate) fn experiments() -> Vec<Experiment> {
    let mut all = asked();
    all.extend(others());
    all
}

/// What the goals need.
fn asked() -> Vec<Experiment> {
    // RocksDB's write buffers take what two seconds bring, and between phases it compacts when nobody counts:
    // shorter phases of puts would not say what puts cost.
    let writes = Experiment {
        name: "memory-writes",
        works: WRITES,
        stores: TRIO,
        seconds: 6.0,
        seconds_min: 5.0,
        every: 2,
        ..MEMORY
    };
    let lmdb_works = "C@composite,E100@composite,C@zipf,E100@zipf,readseq";
    let lmdb = Experiment { name: "memory-lmdb", works: lmdb_works, stores: &["kvilt", "lmdb"], ..MEMORY };
    let rust =
        Experiment { name: "memory-rust", works: RUST, stores: &["fjall", "redb"], every: 2, ..MEMORY };
    let rivals = Experiment {
        name: "limited-rivals",
        works: RIVALS,
        stores: &["kvilt", "lmdb", "fjall", "leveldb"],
        every: 4,
        ..LIMITED
    };
    vec![
        MEMORY,
        LIMITED,
        writes,
        INGEST,
        lmdb,
        rust,
        // With more, redb is killed at the ceiling: it takes about twice its cache.
        Experiment { name: "limited-redb", stores: &["redb"], budget_mb: 256, ..rivals.clone() },
        rivals,
        Experiment { name: "threads-2", threads: 2, ..SCALING },
        SCALING,
        Experiment { name: "sync-8", threads: 8, ..SYNC },
        SYNC,
    ]
    .into_iter()
    .chain(teks())
    .collect()
}

/// Those of engine `teks`; its figures need some rivals and steps more.
fn teks() -> Vec<Experiment> {
    let steps = Experiment {
        name: "teks-steps-2",
        works: TEKS_ROWS,
        stores: &["kvilt-teks-s", "kvilt-teks-a", "kvilt-teks-ac", "kvilt-teks-acs"],
        ..TEKS
    };
    let ycsb = Experiment {
        name: "teks-ycsb-2",
        works: TEKS_MIXES,
        stores: &["kvilt-teks", "kvilt", "rocksdb", "rocksdb-list", "lmdb"],
        ..TEKS
    };
    let by_threads =
        Experiment { stores: &["kvilt-teks", "rocksdb"], every: 3, is_asked: false, ..ycsb.clone() };
    let large = Experiment {
        name: "teks-large",
        works: "C@uniform,S10@uniform,readseq,C@zipf,B@zipf,F@zipf,E100@zipf,A@zipf,D",
        stores: &["kvilt-teks", "kvilt", "rocksdb"],
        data_mb: 1024,
        budget_mb: 128,
        limit_mb: 256,
        seconds: 3.0,
        every: 3,
        ..TEKS
    };
    let open = Experiment {
        name: "teks-open",
        works: "P@uniform",
        stores: &["kvilt-teks", "kvilt", "rocksdb"],
        data_mb: 1024,
        budget_mb: 1536,
        every: 3,
        ..TEKS
    };
    vec![
        Experiment { name: "teks-rows-1", works: TEKS_ROWS, threads: 1, ..TEKS },
        TEKS,
        Experiment {
            name: "teks-versions",
            scenario: "versions",
            works: TEKS_ROWS,
            threads: 1,
            budget_mb: 8192,
            ..TEKS
        },
        Experiment { name: "teks-ycsb-1", threads: 1, ..by_threads.clone() },
        Experiment { name: "teks-ycsb-4", threads: 4, ..by_threads },
        ycsb,
        large,
        Experiment { is_asked: false, ..open },
        Experiment { name: "teks-steps-1", threads: 1, is_asked: false, ..steps.clone() },
        Experiment { is_asked: false, ..steps },
    ]
}

/// What only figures need.
fn others() -> Vec<Experiment> {
    let rarely = |one: Experiment| Experiment { is_asked: false, every: 5, ..one };
    let rows = Experiment {
        name: "rows",
        scenario: "rows",
        works: "",
        stores: &["kvilt", "rocksdb", "lmdb", "fjall", "redb", "sled", "leveldb"],
        data_mb: 272,
        budget_mb: 1024,
        ..MEMORY
    };
    vec![
        rarely(Experiment { name: "threads-4", threads: 4, ..SCALING }),
        rarely(Experiment { name: "ingest-1", data_mb: 1024, ..INGEST }),
        rarely(Experiment { name: "ingest-2", data_mb: 2048, ..INGEST }),
        SWEEP,
        Experiment { name: "ratio-2", data_mb: 512, ..SWEEP },
        Experiment { name: "ratio-4", data_mb: 1024, ..SWEEP },
        Experiment { name: "ratio-16", data_mb: 4096, ..SWEEP },
        Experiment {
            name: "log-limits",
            works: "A@composite,E100@composite",
            stores: &LOG_LIMITS,
            data_mb: 1024,
            ..SWEEP
        },
        Experiment { name: "skew", works: SKEWED, data_mb: 1024, ..SWEEP },
        rarely(rows),
    ]
}

impl Experiment {
    /// The same with phases shorter by a factor, but none shorter than it may be.
    pub(crate) fn shortened(mut self, factor: f64) -> Experiment {
        let shorter = |seconds: f64, least: f64| (seconds * factor).max(least).min(seconds);
        self.seconds = shorter(self.seconds, self.seconds_min);
        self.warm_seconds = shorter(self.warm_seconds, 1.0);
        self
    }

    /// The same with hardly any data: shows that it works, and measures nothing.
    pub(crate) fn tiny(mut self) -> Experiment {
        self.data_mb = (self.data_mb / 32).clamp(4, 64);
        self.budget_mb = self.budget_mb.min(128);
        self.limit_mb = 0;
        self.seconds_min = 1.0;
        self.shortened(0.0)
    }

    /// Whether it takes part in a round, counted from 1.
    pub(crate) fn is_in_round(&self, round: u32) -> bool {
        (round - 1).is_multiple_of(self.every)
    }

    /// The arguments of a run.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--scenario".to_owned(), self.scenario.to_owned()];
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        if !self.works.is_empty() {
            add("--works", self.works.to_owned());
        }
        if self.warm_seconds > 0.0 {
            add("--warm-seconds", self.warm_seconds.to_string());
        }
        add("--seconds", self.seconds.to_string());
        add("--threads", self.threads.to_string());
        add("--data-mb", self.data_mb.to_string());
        add("--budget-mb", self.budget_mb.to_string());
        add("--limit-mb", self.limit_mb.to_string());
        arguments
    }

    /// What one run of one store may take, before anybody has tried.
    pub(crate) fn estimate(&self) -> Duration {
        let phases = self.works.split(',').filter(|work| !work.is_empty()).count().max(2) as f64;
        let apart_from_phases = 6.0 + self.data_mb as f64 * 0.012;
        Duration::from_secs_f64(apart_from_phases + self.warm_seconds + phases * self.seconds)
    }

    /// After this time a run is given up, and reported as such.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(60) + self.estimate() * 4
    }

    /// Data for each byte of memory.
    pub(crate) fn ratio(&self) -> f64 {
        let memory = if self.limit_mb > 0 { self.limit_mb } else { self.budget_mb };
        self.data_mb as f64 / memory as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use kvilt_bench::scenario::{Scenario, works_of};

    use super::*;
    use crate::everybody;

    #[test]
    fn experiments_name_stores_scenarios_and_works_that_there_are() {
        let known: Vec<&str> = everybody().iter().map(|contestant| contestant.name()).collect();
        let mut names = HashSet::new();
        for experiment in experiments() {
            assert!(names.insert(experiment.name), "{} is there twice", experiment.name);
            assert!(experiment.stores.iter().all(|store| known.contains(store)), "{experiment:?}");
            Scenario::named(experiment.scenario).unwrap();
            assert!(experiment.works.is_empty() || works_of(experiment.works).is_ok(), "{experiment:?}");
            assert!(experiment.is_in_round(1) && experiment.ratio() > 0.0);
        }
    }

    #[test]
    fn a_shorter_phase_is_as_long_as_it_must_be_and_no_phase_stays_none() {
        let shorter = LIMITED.shortened(0.1);
        assert_eq!((shorter.seconds, shorter.warm_seconds), (1.0, 1.0));
        assert_eq!(MEMORY.shortened(0.1).warm_seconds, 0.0);
        assert_eq!(LIMITED.shortened(2.0).seconds, LIMITED.seconds);
        let writes = asked().into_iter().find(|one| one.name == "memory-writes").unwrap();
        assert_eq!((writes.clone().shortened(0.1).seconds, writes.tiny().seconds), (5.0, 1.0));
    }
}
