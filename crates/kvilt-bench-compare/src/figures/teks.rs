//! The figures of TeksDB's sections 6 and 7, of engine `teks`.
//!
//! Not here: figure 9, tails of the latencies of a server of Redis' protocol. Figure 6b counts steps over
//! versions in the list; there are none here.

use super::{
    atlas::{Figure, RATE, experiment, of_stores, of_works, ratios, stores_of},
    plot::{Drawing, Line, Ratio, short},
    records::Measured,
};

/// Of one and of two threads, as it comes and by steps.
const BY_STEP: &[&str] = &["teks-rows-1", "teks-rows-2", "teks-steps-1", "teks-steps-2"];
const BY_THREADS: &[&str] = &["teks-ycsb-1", "teks-ycsb-2", "teks-ycsb-4"];
const LARGE: &[&str] = &["teks-large"];
const MIXES: [&str; 6] = ["A@zipf", "B@zipf", "C@zipf", "D", "E100@zipf", "F@zipf"];
const OURS: &str = "kvilt-teks";
/// The paper's rival: RocksDB with its skip list.
const RIVAL: &str = "rocksdb-list";

/// All of them, in the paper's order.
pub(crate) fn figures() -> Vec<Figure> {
    let mut all = by_steps();
    all.extend(in_memory());
    all.extend(beyond_memory());
    all
}

/// Section 6.1.
fn by_steps() -> Vec<Figure> {
    vec![
        Figure {
            name: "teks04a-put",
            title: "TeksDB's figure 4a: puts of new keys a second, by threads and steps",
            paper: "With both indexes in the put (s) below RocksDB's skip list; all others 6 to 27 % above it.",
            experiments: BY_STEP,
            draw: |measured| by_step(measured, "fillrandom", "puts a second", (1.06, 1.27)),
        },
        Figure {
            name: "teks04b-get",
            title: "TeksDB's figure 4b: gets a second, by threads and steps",
            paper: "2.5 to 3.6 × RocksDB's skip list, all steps alike.",
            experiments: BY_STEP,
            draw: |measured| by_step(measured, "C@uniform", "gets a second", (2.5, 3.6)),
        },
        Figure {
            name: "teks04c-scan",
            title: "TeksDB's figure 4c: rows of whole scans a second, by threads and steps",
            paper: "9 × with 16 threads, where the skip list has up to 16 versions of a key (here one; see \
                    teks04e).",
            experiments: BY_STEP,
            draw: |measured| by_step(measured, "readseq", "rows a second", (9.0, 9.0)),
        },
        Figure {
            name: "teks04d-seek",
            title: "TeksDB's figure 4d: seeks with 10 rows a second, by threads and steps",
            paper: "4.5 × with 16 threads and versions; of these the shortcut makes 15 %, at most 35 %.",
            experiments: BY_STEP,
            draw: |measured| by_step(measured, "S10@uniform", "seeks a second", (4.5, 4.5)),
        },
        Figure {
            name: "teks04e-versions",
            title: "TeksDB's figure 4, with four versions put of each key",
            paper: "Scans 9 ×, seeks 4.5 × RocksDB's skip list, with up to 16 versions.",
            experiments: &["teks-versions"],
            draw: |measured| {
                let paper = |phase: &str| match phase {
                    "readseq" => Some((9.0, 9.0)),
                    "S10@u" => Some((4.5, 4.5)),
                    _ => None,
                };
                beside_paper(ratios(measured, OURS, &["teks-versions"], |_| true), paper)
            },
        },
    ]
}

/// Sections 6.2 and 6.3.
fn in_memory() -> Vec<Figure> {
    vec![
        Figure {
            name: "teks05-ycsb",
            title: "TeksDB's figure 5: YCSB in memory, two threads",
            paper: "1.8 to 3.3 × RocksDB, behind a server of Redis' protocol.",
            experiments: &["teks-ycsb-2"],
            draw: |measured| {
                beside_paper(ratios(measured, OURS, &["teks-ycsb-2"], is_mix), |_| Some((1.8, 3.3)))
            },
        },
        Figure {
            name: "teks06-writes",
            title: "TeksDB's figure 6a: what puts of YCSB did, two threads",
            paper: "Of updates 9.3 % in place, at most 18 %: one reader anywhere has all of them appended.",
            experiments: &["teks-ycsb-2"],
            draw: writes,
        },
        Figure {
            name: "teks07-threads",
            title: "TeksDB's figure 7: YCSB by threads (this machine has two cores)",
            paper: "TeksDB scales better than RocksDB up to 16 threads in all works.",
            experiments: BY_THREADS,
            draw: by_threads,
        },
        Figure {
            name: "teks08-memory",
            title: "TeksDB's figure 8: resident memory at its highest, MiB, of 260 MiB of rows",
            paper: "RocksDB and 12 % under puts, 34 % less with reclamation; RocksDB and 54 to 59 % under YCSB.",
            experiments: &["teks-rows-1", "teks-versions", "teks-ycsb-2"],
            draw: memory,
        },
    ]
}

/// Section 7, and what an open takes.
fn beyond_memory() -> Vec<Figure> {
    vec![
        Figure {
            name: "teks10-large",
            title: "TeksDB's figure 10: data four times as large as memory",
            paper: "Puts and gets as its hash alone; scans 2.1 ×, seeks 4.6 × RocksDB.",
            experiments: LARGE,
            draw: |measured| {
                let paper = |phase: &str| match phase {
                    "readseq" => Some((2.1, 2.1)),
                    "S10@u" => Some((4.6, 4.6)),
                    _ => None,
                };
                beside_paper(ratios(measured, OURS, LARGE, |phase| !is_mix(phase)), paper)
            },
        },
        Figure {
            name: "teks11-large-ycsb",
            title: "TeksDB's figure 11: YCSB, data four times as large as memory",
            paper: "1.2 to 2.8 × RocksDB.",
            experiments: LARGE,
            draw: |measured| beside_paper(ratios(measured, OURS, LARGE, is_mix), |_| Some((1.2, 2.8))),
        },
        Figure {
            name: "teks-open",
            title: "Opens of 1 GiB of rows under 1.5 GiB of memory, milliseconds",
            paper: "Not in TeksDB's paper.",
            experiments: &["teks-open"],
            draw: opens,
        },
    ]
}

fn is_mix(phase: &str) -> bool {
    MIXES.contains(&phase)
}

/// Ratios, and those of the paper over its RocksDB, from the least to the most.
fn beside_paper(mut drawing: Drawing, paper: impl Fn(&str) -> Option<(f64, f64)>) -> Drawing {
    if let Drawing::Ratios { series, groups, .. } = &mut drawing {
        series.push("RocksDB in the paper".to_owned());
        for group in groups {
            let of_paper = paper(&group.name)
                .map(|(least, most)| (None, Ratio { least, median: f64::midpoint(least, most), most }));
            group.bars.push(of_paper);
        }
    }
    drawing
}

/// A line a store or step, over threads; and, dashed, how many times as much as this RocksDB TeksDB would
/// make if it were ahead by what the paper says, from the least to the most.
fn by_step(measured: &Measured, phase: &str, unit: &'static str, paper: (f64, f64)) -> Drawing {
    let point = |name: &&str, store: &str| {
        let rate = measured.get(*name)?.median(store, phase, RATE)?;
        Some((experiment(name).threads as f64, rate))
    };
    let points = |store: &str| BY_STEP.iter().filter_map(|name| point(name, store)).collect();
    let mut lines = of_stores(stores_of(measured, BY_STEP), points);
    let colour = lines.len();
    let mut factors = vec![paper.0, paper.1];
    factors.dedup();
    for factor in factors {
        let points = BY_STEP.iter().filter_map(|name| point(name, RIVAL));
        let points = points.map(|(threads, rate)| (threads, rate * factor)).collect();
        lines.push(Line { name: format!("paper: {factor} × {RIVAL}"), colour, is_dashed: true, points });
    }
    Drawing::Lines { across: "threads", unit, doubles: true, lines }
}

fn by_threads(measured: &Measured) -> Drawing {
    let point = |name: &&str, phase: &str, store: &str| {
        let rate = measured.get(*name)?.median(store, phase, RATE)?;
        Some((experiment(name).threads as f64, rate))
    };
    let points = |mix: usize, store: &str| {
        BY_THREADS.iter().filter_map(|name| point(name, MIXES[mix], store)).collect()
    };
    let lines = of_works(&MIXES, [OURS, "rocksdb"], points);
    Drawing::Lines { across: "threads", unit: "operations a second", doubles: true, lines }
}

/// Of the rows that a work put: of new keys, in the place of older ones, and beside them.
fn writes(measured: &Measured) -> Drawing {
    let group = |phase: &&str| {
        let grown = |figure| measured.get("teks-ycsb-2")?.growth(OURS, phase, figure);
        let put = grown("table_records_now").filter(|put| *put > 0.0)?;
        let new = grown("table_keys_now")?;
        // A put may also take out what phases before it appended.
        let replaced = grown("table_records_replaced_now")?.min(put - new);
        let parts = [new, replaced, put - new - replaced].map(|part| Some(part / put * 100.0));
        Some(((*phase).to_owned(), parts.to_vec()))
    };
    let mut groups: Vec<_> = MIXES.iter().filter_map(group).collect();
    if !groups.is_empty() {
        groups.push(("updates in the paper".to_owned(), [0.0, 9.3, 90.7].map(Some).to_vec()));
    }
    Drawing::Shares {
        unit: "% of puts",
        series: ["insert", "update in place", "update appended"].map(str::to_owned).to_vec(),
        groups,
    }
}

fn memory(measured: &Measured) -> Drawing {
    let looked_at = [
        ("put once", "teks-rows-1", "fillrandom"),
        ("put four times", "teks-versions", "fillrandom"),
        ("after YCSB", "teks-ycsb-2", "A@zipf"),
    ];
    let cell = |store: &str, name: &str, phase: &str| {
        let bytes = measured.get(name)?.median(store, phase, "/resident_bytes_max")?;
        Some(short(bytes / f64::from(1 << 20)))
    };
    let mut drawing = table(measured, "MiB", &looked_at, cell);
    if let Drawing::Table { rows, .. } = &mut drawing
        && !rows.is_empty()
    {
        rows.push(
            ["TeksDB in the paper, of its RocksDB", "1.12 ×", "0.66 ×", "1.54 to 1.59 ×"]
                .map(str::to_owned)
                .to_vec(),
        );
    }
    drawing
}

fn opens(measured: &Measured) -> Drawing {
    let looked_at = [
        ("close", "teks-open", "/close_ms"),
        ("open after a close", "teks-open", "/open_clean_ms"),
        ("open after a kill", "teks-open", "/open_killed_ms"),
        ("first get then", "teks-open", "/first_get_killed_ms"),
    ];
    let cell = |store: &str, name: &str, pointer: &str| {
        Some(short(measured.get(name)?.median(store, "open", pointer)?))
    };
    table(measured, "ms", &looked_at, cell)
}

/// A row a store and a column for each of what is looked at, which are named by an experiment and a detail.
fn table(
    measured: &Measured,
    unit: &str,
    looked_at: &[(&str, &str, &str)],
    cell: impl Fn(&str, &str, &str) -> Option<String>,
) -> Drawing {
    let names: Vec<&str> = looked_at.iter().map(|(_, name, _)| *name).collect();
    let row = |store: String| {
        let cells = looked_at.iter().map(|(_, name, detail)| cell(&store, name, detail));
        let cells = cells.map(|cell| cell.unwrap_or("–".into())).collect();
        [vec![store.clone()], cells].concat()
    };
    let head = looked_at.iter().map(|(column, ..)| (*column).to_owned()).collect();
    Drawing::Table {
        head: [vec![unit.to_owned()], head].concat(),
        rows: stores_of(measured, &names).into_iter().map(row).collect(),
    }
}
