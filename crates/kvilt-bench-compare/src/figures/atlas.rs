//! The figures and tables of EvenDB's section 5, as far as they make sense here: what each is drawn from, and
//! how. Those of TeksDB's paper are in [`super::teks`].
//!
//! Not here: figure 12b (sensitivity to how Bloom filters are split): Kvilt's logs have an index instead of
//! filters. Table 4's PebblesDB is not to be had; fjall and redb stand in for it.

use kvilt_bench::compare::median;

use super::{
    plan::{Experiment, LOG_LIMITS, LOG_LIMITS_KIB, experiments},
    plot::{Drawing, Group, Line, Ratio, short},
    records::Measured,
};

/// A figure, or a table.
pub(crate) struct Figure {
    /// Its file, without an ending; `--only` knows it by this.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) title: &'static str,
    /// What the paper saw.
    pub(crate) paper: &'static str,
    /// Experiments that it needs.
    pub(crate) experiments: &'static [&'static str],
    /// Draws it.
    pub(crate) draw: fn(&Measured) -> Drawing,
}

pub(crate) const RATE: &str = "/operations_a_second";
const WRITTEN: &str = "/write_amplification";
const INGESTS: &[&str] = &["ingest", "ingest-1", "ingest-2"];
const IN_MEMORY: &[&str] = &["memory-reads", "memory-writes", "memory-lmdb", "memory-rust"];
const LIMITED: &[&str] = &["limited", "limited-rivals", "limited-redb"];
/// Not `limited`: it has the ratio of `ratio-4` once more, with sixteen times the data.
const AT_RATIOS: &[&str] = &["memory-writes", "ratio-1", "ratio-2", "ratio-4", "ratio-16"];
const DATA_TO_MEMORY: &str = "bytes of data for a byte of memory";
const THREADS: &[&str] = &["threads-1", "threads-2", "threads-4"];

/// All of them, in the paper's order.
pub(crate) fn figures() -> Vec<Figure> {
    let mut all = production();
    all.extend(synthetic());
    all.extend(details());
    all.extend(super::teks::figures());
    all
}

/// Section 5.2: events in, minutes out.
fn production() -> Vec<Figure> {
    vec![
        Figure {
            name: "fig03a-ingest",
            title: "Figure 3a: ingest, events a second by size",
            paper: "EvenDB 4.4× RocksDB at 256 GB with 16 GB of memory.",
            experiments: INGESTS,
            draw: |measured| by_size(measured, RATE, "events a second"),
        },
        Figure {
            name: "fig03b-ingest-seconds",
            title: "Figure 3b: ingest, events of each second",
            paper: "RocksDB stalls for a minute and longer; EvenDB is always above 4× RocksDB's average.",
            experiments: &["ingest"],
            draw: |measured| over_time(measured, "ingest", "seconds", "events a second", 1.0),
        },
        Figure {
            name: "fig03c-ingest-written",
            title: "Figure 3c: ingest, bytes written for a byte put, by size",
            paper: "EvenDB's does not grow with size, RocksDB's does (2.5 and 10.4 at 256 GB, by table 2).",
            experiments: INGESTS,
            draw: |measured| by_size(measured, WRITTEN, "bytes for a byte"),
        },
        Figure {
            name: "fig04-space",
            title: "Figure 4: space on the drive while events come in, MiB",
            paper: "EvenDB's grows evenly, logs being most of what is more than the data; RocksDB's goes up and down.",
            experiments: &["ingest"],
            draw: |measured| over_time(measured, "ingest", "disk_bytes", "MiB", f64::from(1 << 20)),
        },
        Figure {
            name: "table2-resources",
            title: "Table 2: what ingest takes",
            paper: "1.1 h, 14.6 h of processors, 47.6 GB read, 645 GB written; RocksDB 4.85 h, 10.4 h, 2,054 GB, 2,660 GB.",
            experiments: &["ingest"],
            draw: resources,
        },
        Figure {
            name: "fig05-analytics-seconds",
            title: "Figure 5: 95 % scans of a minute, 5 % puts: operations of each second after ingest",
            paper: "EvenDB 1.2 to 1.3×, steady at once; RocksDB needs 10 to 35 minutes to be.",
            experiments: &["ingest"],
            draw: |measured| over_time(measured, "analytics", "seconds", "operations a second", 1.0),
        },
    ]
}

/// Section 5.3: YCSB.
fn synthetic() -> Vec<Figure> {
    vec![
        Figure {
            name: "fig06a-memory",
            title: "Figure 6: 1 GiB of data, 1.5 GiB of memory",
            paper: "4 GB and 16 GB: P 1.6 to 2.3×, C 1.1 to 2×, E up to 3.2× RocksDB.",
            experiments: IN_MEMORY,
            draw: |measured| all_phases(measured, IN_MEMORY),
        },
        Figure {
            name: "fig06b-limited",
            title: "Figure 6: 4 GiB of data, 1 GiB of memory in all",
            paper: "64 GB and 16 GB: composite ahead of RocksDB everywhere; Zipf-simple about half of it under A.",
            experiments: LIMITED,
            draw: |measured| all_phases(measured, LIMITED),
        },
        Figure {
            name: "fig06c-ratios",
            title: "Figure 6: Kvilt's operations a second over RocksDB's, by data for each byte of memory",
            paper: "Advantages shrink as data grow, for Zipf-simple to below 1.",
            experiments: &["ratio-1", "ratio-2", "ratio-4", "ratio-16"],
            draw: ahead_by_ratio,
        },
        Figure {
            name: "fig07-written",
            title: "Figure 7: bytes written for a byte put under P",
            paper: "64 GB: composite 1.3 and RocksDB 3.1, uniform 1.1 and 7.6.",
            experiments: AT_RATIOS,
            draw: |measured| {
                let phases = ["P@composite", "P@zipf", "P@uniform"];
                by_ratio(measured, &phases.map(|phase| (phase, WRITTEN)), "bytes for a byte")
            },
        },
    ]
}

/// Sections 5.3 to 5.5: how long, where from, and on what it depends.
fn details() -> Vec<Figure> {
    vec![
        Figure {
            name: "fig08-tails",
            title: "Figure 8: 95 % of puts and gets under A take less, µs",
            paper: "Composite: EvenDB ahead. Zipf-simple: puts alike, EvenDB's gets slower with much data.",
            experiments: AT_RATIOS,
            draw: |measured| {
                const PUT: &str = "/latency_micros/put/p95";
                const GET: &str = "/latency_micros/get/p95";
                let looked_at =
                    [("A@composite", PUT), ("A@composite", GET), ("A@zipf", PUT), ("A@zipf", GET)];
                by_ratio(measured, &looked_at, "µs")
            },
        },
        Figure {
            name: "fig09-sources",
            title: "Figure 9: where Kvilt's gets were answered under A, %",
            paper: "64 GB: 3.3 % (composite) and 4 % (Zipf-simple) from logs; row cache 4.5 % and 32.8 %.",
            experiments: AT_RATIOS,
            draw: sources,
        },
        Figure {
            name: "fig10-skew",
            title: "Figure 10: operations a second by skew, 1 GiB of data, 256 MiB of memory",
            paper: "Less skew is slower for both; EvenDB's reads feel it more.",
            experiments: &["ratio-4", "skew"],
            draw: by_skew,
        },
        Figure {
            name: "table3-frequency",
            title: "Table 3: how often the most popular key is drawn, %",
            paper: "Zipf-simple 4.87, 3.30, 1.91, 1.04, 0.54; composite 0.013 to 0.008.",
            experiments: &[],
            draw: |_| frequency(),
        },
        Figure {
            name: "table4-others",
            title: "Table 4: Kvilt's operations a second over others', in memory",
            paper: "Over PebblesDB: P 0.9 to 2.8, A 0.9 to 1.6, B and C 1.4 to 2.3, D 1 to 2, E 1 to 3.4, F 0.8 to 1.2.",
            experiments: IN_MEMORY,
            draw: over_others,
        },
        Figure {
            name: "fig11-threads",
            title: "Figure 11: operations a second by threads (this machine has two cores)",
            paper: "C 7.7× with 12 threads on 12 cores; the others less.",
            experiments: THREADS,
            draw: by_threads,
        },
        Figure {
            name: "fig12a-log-limits",
            title: "Figure 12a: operations a second by the limit of cold logs, 1 GiB of data, 256 MiB of memory",
            paper: "A: with 128 KB a third of what 2 MB make. E100: with 512 KB a fifth more.",
            experiments: &["log-limits"],
            draw: by_log_limit,
        },
        Figure {
            name: "rows",
            title: "TeksDB's benchmark: a million rows of 256 bytes",
            paper: "Not in EvenDB's paper.",
            experiments: &["rows"],
            draw: |measured| all_phases(measured, &["rows"]),
        },
    ]
}

pub(crate) fn experiment(name: &str) -> Experiment {
    experiments().into_iter().find(|one| one.name == name).expect("figures name experiments that there are")
}

/// Stores in the order in which experiments name them, Kvilt first.
pub(crate) fn stores_of(measured: &Measured, names: &[&str]) -> Vec<String> {
    let mut stores: Vec<String> = Vec::new();
    for name in names.iter().filter(|name| measured.contains_key(*name)) {
        for store in experiment(name).stores {
            if !stores.iter().any(|known| known == store) {
                stores.push((*store).to_owned());
            }
        }
    }
    stores
}

/// Lines of stores, in the stores' colours.
pub(crate) fn of_stores(stores: Vec<String>, points: impl Fn(&str) -> Vec<(f64, f64)>) -> Vec<Line> {
    let line = |(colour, name): (usize, String)| {
        let points = points(&name);
        Line { name, colour, is_dashed: false, points }
    };
    stores.into_iter().enumerate().map(line).collect()
}

fn by_size(measured: &Measured, pointer: &str, unit: &'static str) -> Drawing {
    let point = |store: &str, name: &str| {
        let figure = measured.get(name)?.median(store, "ingest", pointer)?;
        Some((experiment(name).data_mb as f64 / 1024.0, figure))
    };
    let points = |store: &str| {
        ["ingest-1", "ingest-2", "ingest"].iter().filter_map(|name| point(store, name)).collect()
    };
    let lines = of_stores(stores_of(measured, INGESTS), points);
    Drawing::Lines { across: "GiB of events", unit, doubles: true, lines }
}

/// A list of each second, of the run in the middle.
fn over_time(measured: &Measured, phase: &str, list: &str, unit: &'static str, part: f64) -> Drawing {
    let points = |store: &str| {
        let mut runs = measured.get("ingest").map_or(Vec::new(), |records| records.lists(store, phase, list));
        runs.sort_by(|a, b| a.iter().sum::<f64>().total_cmp(&b.iter().sum()));
        let middle = runs.get(runs.len() / 2).cloned().unwrap_or_default();
        let points = middle.iter().enumerate().map(|(second, figure)| (second as f64 + 1.0, figure / part));
        points.collect()
    };
    let lines = of_stores(stores_of(measured, &["ingest"]), points);
    Drawing::Lines { across: "seconds", unit, doubles: false, lines }
}

fn resources(measured: &Measured) -> Drawing {
    let head = ["store", "duration, s", "processor time, s", "read, MiB", "written, MiB", "longest put, ms"];
    let row = |store: String| {
        let figure = |pointer: &str, part: f64| {
            let figure = measured.get("ingest").and_then(|records| records.median(&store, "ingest", pointer));
            figure.map_or("–".to_owned(), |figure| short(figure / part))
        };
        const MIB: f64 = (1 << 20) as f64;
        vec![
            store.clone(),
            figure("/elapsed_seconds", 1.0),
            figure("/used/processor_seconds", 1.0),
            figure("/used/read_bytes", MIB),
            figure("/written_bytes", MIB),
            figure("/latency_micros/put/max", 1e3),
        ]
    };
    let rows = stores_of(measured, &["ingest"]).into_iter().map(row).collect();
    Drawing::Table { head: head.map(str::to_owned).to_vec(), rows }
}

/// All phases of some experiments that have the same data and memory.
fn all_phases(measured: &Measured, names: &[&str]) -> Drawing {
    ratios(measured, "kvilt", names, |_| true)
}

/// Phases of some experiments that have the same data and memory: how much one store of ours is ahead of all
/// others. A ratio is of one experiment, if that has both stores.
pub(crate) fn ratios(
    measured: &Measured,
    ours: &'static str,
    names: &[&str],
    is_wanted: impl Fn(&str) -> bool,
) -> Drawing {
    let series: Vec<String> = stores_of(measured, names).into_iter().filter(|store| store != ours).collect();
    let mut phases: Vec<String> = Vec::new();
    for records in names.iter().filter_map(|name| measured.get(name)) {
        let new = records.phases().into_iter();
        let new = new.filter(|phase| !["load", "warm"].contains(&phase.as_str()) && is_wanted(phase));
        let new: Vec<String> = new.filter(|phase| !phases.contains(phase)).collect();
        phases.extend(new);
    }
    phases.sort();
    let group = |phase: String| Group {
        ours: names.iter().find_map(|name| measured.get(name)?.median(ours, &phase, RATE)),
        bars: series.iter().map(|store| against(measured, names, (ours, store), &phase)).collect(),
        // The names are long, and stand beside each other.
        name: phase.replace("@composite", "@c").replace("@zipf", "@z").replace("@uniform", "@u"),
    };
    Drawing::Ratios {
        ours,
        unit: "Kvilt's operations a second / another's",
        groups: phases.into_iter().map(group).collect(),
        series: series.clone(),
    }
}

/// What a store makes of a phase, and how many times as much Kvilt makes.
fn against(
    measured: &Measured,
    names: &[&str],
    (ours, store): (&str, &str),
    phase: &str,
) -> Option<(Option<f64>, Ratio)> {
    let theirs_in =
        |name: &&&str| measured.get(**name).is_some_and(|one| one.median(store, phase, RATE).is_some());
    let with_theirs: Vec<&&str> = names.iter().filter(theirs_in).collect();
    let ours_in = |name: &&str| {
        let ours = measured.get(name)?.figures(ours, phase, RATE);
        (!ours.is_empty()).then_some(ours)
    };
    let beside = with_theirs.iter().find_map(|name| Some((ours_in(name)?, **name)));
    let (ours, name) = beside.or_else(|| Some((names.iter().find_map(ours_in)?, **with_theirs.first()?)))?;
    let theirs = measured.get(name)?.median(store, phase, RATE)?;
    let least = ours.iter().copied().fold(f64::MAX, f64::min);
    let most = ours.iter().copied().fold(0.0, f64::max);
    let ratio = Ratio { least: least / theirs, median: median(&ours) / theirs, most: most / theirs };
    Some((Some(theirs), ratio))
}

/// Lines of one work have one colour; those of single popular keys are dashed.
fn ahead_by_ratio(measured: &Measured) -> Drawing {
    let names = ["ratio-1", "ratio-2", "ratio-4", "ratio-16"];
    let works = experiment("ratio-1").works;
    let point = |name: &&str, phase: &str| {
        let records = measured.get(*name)?;
        let ahead = records.median("kvilt", phase, RATE)? / records.median("rocksdb", phase, RATE)?;
        Some((experiment(name).ratio(), ahead))
    };
    let line = |phase: &str| {
        let work = ["C@", "E100@", "A@", "P@"].iter().position(|work| phase.starts_with(work)).unwrap_or(5);
        Line {
            name: phase.to_owned(),
            colour: if phase.ends_with("uniform") { 4 } else { work },
            is_dashed: phase.ends_with("zipf"),
            points: names.iter().filter_map(|name| point(name, phase)).collect(),
        }
    };
    Drawing::Lines {
        across: DATA_TO_MEMORY,
        unit: "Kvilt / RocksDB",
        doubles: true,
        lines: works.split(',').map(line).collect(),
    }
}

const BOTH: [&str; 2] = ["kvilt", "rocksdb"];

/// A line for each of two stores, ours first, and each of some works, in the work's colour.
pub(crate) fn of_works(
    works: &[&str],
    stores: [&str; 2],
    points: impl Fn(usize, &str) -> Vec<(f64, f64)>,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for (colour, work) in works.iter().enumerate() {
        for store in stores {
            lines.push(Line {
                name: format!("{work} {store}"),
                colour,
                is_dashed: store != stores[0],
                points: points(colour, store),
            });
        }
    }
    lines
}

/// Kvilt and RocksDB beside each other, for some phases at each ratio of data to memory.
fn by_ratio(measured: &Measured, looked_at: &[(&str, &str)], unit: &'static str) -> Drawing {
    let name = |(phase, pointer): &(&str, &str)| {
        let kind = pointer.split('/').find(|part| ["put", "get"].contains(part)).map_or("", |kind| kind);
        format!("{phase} {kind}").trim_end().to_owned()
    };
    let names: Vec<String> = looked_at.iter().map(name).collect();
    let points = |work: usize, store: &str| {
        let (phase, pointer) = looked_at[work];
        let point = |name: &&str| {
            Some((experiment(name).ratio(), measured.get(*name)?.median(store, phase, pointer)?))
        };
        AT_RATIOS.iter().filter_map(point).collect()
    };
    let works: Vec<&str> = names.iter().map(String::as_str).collect();
    Drawing::Lines { across: DATA_TO_MEMORY, unit, doubles: true, lines: of_works(&works, BOTH, points) }
}

fn sources(measured: &Measured) -> Drawing {
    const FROM: [&str; 4] = ["gets_from_munk", "gets_from_row_cache", "gets_from_log", "gets_from_table"];
    let mut groups = Vec::new();
    for phase in ["A@composite", "A@zipf"] {
        for name in AT_RATIOS {
            let Some(records) = measured.get(name) else { continue };
            let all = records.growth("kvilt", phase, "gets").unwrap_or(0.0).max(1.0);
            let part = |figure| Some(records.growth("kvilt", phase, figure)? / all * 100.0);
            groups.push((
                format!("{} {:.1}:1", &phase[..3], experiment(name).ratio()),
                FROM.map(part).to_vec(),
            ));
        }
    }
    let series = FROM.map(|figure| figure.trim_start_matches("gets_from_").replace('_', " ")).to_vec();
    Drawing::Shares { unit: "% of gets", series, groups }
}

fn by_skew(measured: &Measured) -> Drawing {
    const WORKS: [&str; 6] = ["C@composite", "C@zipf", "A@composite", "A@zipf", "P@composite", "P@zipf"];
    let points = |work: usize, store: &str| {
        let work = WORKS[work];
        let at = |name: &str, phase: &str| measured.get(name)?.median(store, phase, RATE);
        let points = [
            (0.8, at("skew", &format!("{work}:0.8"))),
            (0.9, at("skew", &format!("{work}:0.9"))),
            (0.99, at("ratio-4", work)),
        ];
        points.iter().filter_map(|(theta, rate)| Some((*theta, (*rate)?))).collect()
    };
    Drawing::Lines {
        across: "theta",
        unit: "operations a second",
        doubles: false,
        lines: of_works(&WORKS, BOTH, points),
    }
}

/// Computed: the share of rank 1 is one over the sum of all ranks' weights.
fn frequency() -> Drawing {
    const THETAS: [f64; 5] = [0.99, 0.95, 0.9, 0.85, 0.8];
    let records = experiment("limited").data_mb as f64 * f64::from(1 << 20) / 814.0;
    let share = |ranks: f64, theta: f64| {
        100.0 / (1..=ranks as u64).map(|rank| (rank as f64).powf(-theta)).sum::<f64>()
    };
    let ranges = f64::from(1 << 14);
    let row = |name: &str, figure: &dyn Fn(f64) -> f64| {
        let figures = THETAS.iter().map(|theta| format!("{:.4}", figure(*theta)));
        [vec![name.to_owned()], figures.collect()].concat()
    };
    Drawing::Table {
        head: [vec!["theta".to_owned()], THETAS.map(|theta| theta.to_string()).to_vec()].concat(),
        rows: vec![
            row("Zipf-simple", &|theta| share(records, theta)),
            row("composite", &|theta| share(ranges, theta) * ranges / records),
        ],
    }
}

fn over_others(measured: &Measured) -> Drawing {
    let rivals: Vec<String> =
        stores_of(measured, IN_MEMORY).into_iter().filter(|store| store != "kvilt").collect();
    let rate = |store: &str, phase: &str| {
        IN_MEMORY.iter().find_map(|name| measured.get(*name)?.median(store, phase, RATE))
    };
    let works = ["P", "A", "B", "C", "D", "E10", "E100", "E1000", "F", "readseq"];
    let cell = |work: &str, rival: &str| {
        let phases =
            [work.to_owned(), format!("{work}@composite"), format!("{work}@zipf"), format!("{work}@uniform")];
        let ahead = |phase: &String| Some(rate("kvilt", phase)? / rate(rival, phase)?);
        let mut all: Vec<f64> = phases.iter().filter_map(ahead).collect();
        all.sort_by(f64::total_cmp);
        match all[..] {
            [] => "–".to_owned(),
            [one] => short(one),
            [least, .., most] => format!("{} to {}", short(least), short(most)),
        }
    };
    let row =
        |rival: &String| [vec![rival.clone()], works.iter().map(|work| cell(work, rival)).collect()].concat();
    let rows = if measured.is_empty() { Vec::new() } else { rivals.iter().map(row).collect() };
    Drawing::Table { head: [vec!["over".to_owned()], works.map(str::to_owned).to_vec()].concat(), rows }
}

fn by_threads(measured: &Measured) -> Drawing {
    let works: Vec<&str> = experiment("threads-1").works.split(',').collect();
    let points = |work: usize, store: &str| {
        let point = |name: &&str| {
            let rates = measured.get(*name)?.figures(store, works[work], RATE);
            (!rates.is_empty()).then(|| (experiment(name).threads as f64, median(&rates)))
        };
        THREADS.iter().filter_map(point).collect()
    };
    Drawing::Lines {
        across: "threads",
        unit: "operations a second",
        doubles: true,
        lines: of_works(&works, BOTH, points),
    }
}

/// As parts of what the default limit makes: the works differ tenfold.
fn by_log_limit(measured: &Measured) -> Drawing {
    let line = |(colour, phase): (usize, &str)| {
        let rate = |store: &str| measured.get("log-limits")?.median(store, phase, RATE);
        let point = |(store, kib): (&&str, f64)| Some((kib, rate(store)? / rate("kvilt")?));
        Line {
            name: phase.to_owned(),
            colour,
            is_dashed: false,
            points: LOG_LIMITS.iter().zip(LOG_LIMITS_KIB).filter_map(point).collect(),
        }
    };
    Drawing::Lines {
        across: "KiB of log",
        unit: "operations a second / those with 2 MiB",
        doubles: true,
        lines: experiment("log-limits").works.split(',').enumerate().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::figures::records::Records;

    #[test]
    fn every_figure_has_its_experiments_and_is_drawn_of_them() {
        let line = |store: &str, phase: &str, run: u32| {
            json!({"kind": "phase", "store": store, "phase": phase, "run": run, "operations_a_second": 100 + run,
                   "write_amplification": 1.5, "seconds": [9, 8], "disk_bytes": [1 << 20, 2 << 20],
                   "elapsed_seconds": 2.0, "figures": {"gets": 10 * run, "gets_from_munk": 9 * run, "table_keys_now": 1, "table_records_now": 4,
                               "table_records_replaced_now": 2},
                   "resident_bytes_max": 1 << 20, "latency_micros": {"put": {"p95": 3.0}, "get": {"p95": 2.0}}})
        };
        let mut measured = Measured::new();
        for experiment in experiments() {
            let works = if experiment.works.is_empty() { "ingest,analytics" } else { experiment.works };
            let works = works.split(',').chain(["fillrandom"]);
            let works: Vec<&str> = works.collect();
            let lines =
                experiment.stores.iter().flat_map(|store| works.iter().map(|work| line(store, work, 1)));
            measured.insert(experiment.name, Records::of(&lines.collect::<Vec<_>>()));
        }
        for figure in figures() {
            assert!(figure.experiments.iter().all(|name| measured.contains_key(name)), "{}", figure.name);
            assert!(!(figure.draw)(&measured).is_empty(), "{}", figure.name);
            let nothing = (figure.draw)(&Measured::new());
            assert!(nothing.is_empty() || figure.experiments.is_empty(), "{}", figure.name);
        }
    }

    #[test]
    fn the_most_popular_key_is_as_popular_as_in_the_paper() {
        let Drawing::Table { rows, .. } = frequency() else { panic!("a table") };
        let figure = |row: usize, column: usize| rows[row][column].parse::<f64>().unwrap();
        // The paper has more keys, so its figures are smaller: by a sixth, and nearly a half where skew is
        // least.
        assert!((4.87..7.0).contains(&figure(0, 1)), "{rows:?}");
        assert!((0.54..1.0).contains(&figure(0, 5)), "{rows:?}");
        assert!(figure(1, 1) < 0.04, "{rows:?}");
    }
}
