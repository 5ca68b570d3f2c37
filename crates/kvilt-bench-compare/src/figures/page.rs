//! The page beside the figures: what was measured and when, the goals with what was reached, and every figure
//! with the numbers behind it and the command that makes it again.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{
    atlas::figures,
    goals::{Verdict, goals},
    plan::experiments,
    plot::{Drawing, Line, Ratio, short, tick, values_across},
    records::{Measured, Records},
};

/// Draws all figures that there are measurements for, and writes the page.
pub(crate) fn write(measured: &Measured, out: &Path) -> Result<()> {
    let mut page = head(measured);
    page += "\n## Goals\n\n";
    page += &goals_table(&verdicts(measured));
    page += &how_it_went(measured);
    for figure in figures() {
        let drawing = (figure.draw)(measured);
        if drawing.is_empty() {
            continue;
        }
        write!(page, "\n## {}\n\nPaper: {}\n", figure.title, figure.paper)?;
        if !matches!(drawing, Drawing::Table { .. }) {
            drawing.draw(figure.title, &out.join(figure.name).with_extension("svg"))?;
            write!(page, "\n![{}]({}.svg)\n\n{}\n", figure.title, figure.name, how_to_read(&drawing))?;
        }
        write!(page, "\n{}\n`figures --only {} --again`\n", table(&drawing), figure.name)?;
    }
    let path = out.join("README.md");
    fs::write(&path, wrapped(&page)).with_context(|| path.display().to_string())
}

/// Widest line of text, in characters, as `cargo xtask tidy` holds all pages to it.
const CHARACTERS_MAX: usize = 110;

/// The page with its text wrapped; rows of tables and headings stay as they are.
fn wrapped(page: &str) -> String {
    let mut text = String::new();
    for line in page.lines() {
        let mut width = 0;
        for word in line.split(' ') {
            let characters = word.chars().count();
            let is_full = width > 0 && width + 1 + characters > CHARACTERS_MAX;
            match is_full && !line.starts_with(['|', '#']) {
                true => text.push('\n'),
                false if width > 0 => text.push(' '),
                false => {}
            }
            width = if is_full { characters } else { width + usize::from(width > 0) + characters };
            text += word;
        }
        text.push('\n');
    }
    text
}

/// The sentence under a plot.
fn how_to_read(drawing: &Drawing) -> &'static str {
    match drawing {
        Drawing::Ratios { .. } => {
            "Above the line at 1 Kvilt is faster. Whiskers: Kvilt's slowest and fastest run. No bar: not measured. \
             @c composite, @z Zipf, @u uniform keys."
        }
        Drawing::Lines { unit, .. } if unit.contains(" / ") => "At the line both are alike.",
        Drawing::Lines { lines, .. }
            if lines.iter().any(|line| line.is_dashed && line.name.contains("paper")) =>
        {
            "Medians. Dashed: this RocksDB's, times by how much TeksDB is ahead of RocksDB in the paper."
        }
        Drawing::Lines { lines, .. } if lines.iter().any(|line| line.is_dashed) => {
            "Kvilt solid, RocksDB dashed; a colour for each work."
        }
        Drawing::Lines { .. } => "Medians; of seconds, the run in the middle.",
        Drawing::Shares { unit: "% of puts", .. } => "Each bar is all puts of one work.",
        Drawing::Shares { .. } => "Each bar is all gets of one work at one ratio of data to memory.",
        Drawing::Table { .. } => "",
    }
}

/// What the measurements say to each goal.
pub(crate) fn verdicts(measured: &Measured) -> Vec<Verdict> {
    goals().into_iter().map(|goal| goal.verdict(measured)).collect()
}

/// A verdict for programs.
pub(crate) fn to_json(verdict: &Verdict) -> Value {
    json!({
        "work": verdict.goal.work, "setting": setting(verdict.goal.experiment, None), "what": verdict.goal.what(),
        "against": verdict.goal.rival.map(|(store, _)| store), "goal": verdict.goal.goal,
        "ours": verdict.ours, "theirs": verdict.theirs, "reached": verdict.reached,
        "is_reached": verdict.is_reached(), "runs": verdict.runs,
    })
}

/// The goals as a table of Markdown.
pub(crate) fn goals_table(verdicts: &[Verdict]) -> String {
    let mut text = String::from(
        "| work | data, memory | what | Kvilt | held against | goal | reached | | runs |\n\
         | --- | --- | --- | ---: | --- | ---: | ---: | --- | ---: |\n",
    );
    let figure = |figure: Option<f64>| figure.map_or("–".to_owned(), short);
    for verdict in verdicts {
        let goal = verdict.goal;
        let against = match goal.rival {
            Some((store, "threads-1")) => format!("{store}, 1 thread: {}", figure(verdict.theirs)),
            Some((store, _)) => format!("{store}: {}", figure(verdict.theirs)),
            None => "–".into(),
        };
        let reached = match (goal.rival, verdict.reached) {
            (Some(_), Some(ratio)) => format!("{ratio:.2}×"),
            (_, reached) => figure(reached),
        };
        let judged = match verdict.is_reached() {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "not measured",
        };
        let cells = [
            goal.work.to_owned(),
            setting(goal.experiment, None),
            goal.what().to_owned(),
            figure(verdict.ours),
            against,
            goal.text(),
            reached,
            judged.to_owned(),
            verdict.runs.to_string(),
        ];
        text += &format!("| {} |\n", cells.join(" | "));
    }
    let known: Vec<bool> = verdicts.iter().filter_map(Verdict::is_reached).collect();
    let reached = known.iter().filter(|is_reached| **is_reached).count();
    text + &format!(
        "\n{reached} of {} reached, {} not measured.\n",
        known.len(),
        verdicts.len() - known.len()
    )
}

/// Data and memory of an experiment: as it was told, or as it is planned.
fn setting(name: &str, head: Option<&Value>) -> String {
    let Some(mut experiment) = experiments().into_iter().find(|one| one.name == name) else {
        return name.into();
    };
    let told = |name: &str| argument(head, name).parse().ok();
    experiment.data_mb = told("--data-mb").unwrap_or(experiment.data_mb);
    experiment.budget_mb = told("--budget-mb").unwrap_or(experiment.budget_mb);
    experiment.limit_mb = told("--limit-mb").unwrap_or(experiment.limit_mb);
    let size = |megabytes: u64| match megabytes {
        whole if whole >= 1024 && whole.is_multiple_of(512) => format!("{} GiB", whole as f64 / 1024.0),
        _ => format!("{megabytes} MiB"),
    };
    match experiment.limit_mb {
        0 => format!("{}, {}", size(experiment.data_mb), size(experiment.budget_mb)),
        limit => format!("{}, {} in all", size(experiment.data_mb), size(limit)),
    }
}

fn head(measured: &Measured) -> String {
    let mut text = String::from(
        "# Figures\n\nWritten by `cargo run --release --manifest-path crates/kvilt-bench-compare/Cargo.toml -- \
         figures`; nothing here is edited by hand. [performance.md](../performance.md) says how to read it.\n\n",
    );
    let of_heads = |name: &str| {
        let mut all: Vec<String> = measured
            .values()
            .filter_map(|records| Some(records.head()?[name].as_str()?.to_owned()))
            .collect();
        all.sort();
        all.dedup();
        all.join("; ")
    };
    let loads: Vec<(f64, f64)> = measured.values().filter_map(|records| records.loads()).collect();
    let least = loads.iter().map(|load| load.0).fold(f64::MAX, f64::min);
    let most = loads.iter().map(|load| load.1).fold(0.0, f64::max);
    let _ = writeln!(text, "Commit {}. Machine: {}.", of_heads("commit"), of_heads("machine"));
    let is_as_planned = |(name, records): (&&str, &Records)| {
        let planned = experiments().into_iter().find(|one| one.name == *name);
        planned.is_none_or(|one| argument(records.head(), "--data-mb") == one.data_mb.to_string())
    };
    if !measured.iter().all(is_as_planned) {
        text += "**Made with `--quick`: not the sizes that the tables name. Compare nothing.**\n";
    }
    let _ = writeln!(
        text,
        "Load of the machine when runs began: {least:.1} to {most:.1} (the runs' own load counts)."
    );
    text
}

/// Runs, promises, and what did not end well.
fn how_it_went(measured: &Measured) -> String {
    let mut text = String::from("\n## How it was measured\n\n");
    let mut promises: BTreeMap<String, String> = BTreeMap::new();
    text += "| experiment | data, memory | threads | seconds of a phase | runs that ended |\n";
    text += "| --- | --- | ---: | ---: | --- |\n";
    for experiment in experiments() {
        let Some(records) = measured.get(experiment.name) else { continue };
        promises.extend(records.promises());
        let runs = experiment.stores.iter().map(|store| format!("{store} {}", records.runs(store)));
        let runs = runs.collect::<Vec<_>>().join(", ");
        let seconds = argument(records.head(), "--seconds");
        let seconds = seconds.parse().map_or(seconds, tick);
        let (name, threads) = (experiment.name, experiment.threads);
        text += &format!("| {name} | {} | {threads} | {seconds} | {runs} |\n", setting(name, records.head()));
    }
    text += "\nFigures are medians of the runs. What an acknowledged put survives:\n\n";
    for (store, promise) in promises {
        text += &format!("- {store}: {promise}\n");
    }
    for (name, records) in measured {
        if records.is_unlimited_by_mistake() {
            text += &format!("- **{name}: no ceiling on memory could be had.**\n");
        }
        for failure in records.failures() {
            text += &format!("- {name}: did not finish: {failure}\n");
        }
    }
    text
}

/// What an experiment was told, by the name of the argument.
fn argument(head: Option<&Value>, name: &str) -> String {
    let all = head.and_then(|head| head["arguments"].as_array()).cloned().unwrap_or_default();
    let place = all.iter().position(|argument| argument == name);
    place.and_then(|place| all.get(place + 1)?.as_str()).unwrap_or("?").to_owned()
}

/// The numbers of a drawing.
fn table(drawing: &Drawing) -> String {
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let ruler = |columns: usize| format!("| --- |{}\n", " ---: |".repeat(columns - 1));
    let figure = |figure: &Option<f64>| figure.map_or("–".to_owned(), short);
    match drawing {
        Drawing::Table { head, rows } => {
            let rows = rows.iter().map(|cells| row(cells.clone())).collect::<String>();
            row(head.clone()) + &ruler(head.len()) + &rows
        }
        Drawing::Ratios { ours, series, groups, .. } => {
            let columns = series.iter().flat_map(|name| [name.clone(), "ratio".to_owned()]);
            let head =
                [vec!["operations a second".to_owned(), (*ours).to_owned()], columns.collect()].concat();
            let bars = |bar: &Option<(Option<f64>, Ratio)>| {
                bar.map_or(["–".to_owned(), "–".to_owned()], |(theirs, ratio)| match theirs {
                    Some(theirs) => [short(theirs), format!("{:.2}", ratio.median)],
                    None if ratio.least == ratio.most => ["–".to_owned(), format!("{:.2}", ratio.median)],
                    None => ["–".to_owned(), format!("{} to {}", ratio.least, ratio.most)],
                })
            };
            let rows = groups.iter().map(|group| {
                let ours = figure(&group.ours);
                row([vec![group.name.clone(), ours], group.bars.iter().flat_map(bars).collect()].concat())
            });
            row(head.clone()) + &ruler(head.len()) + &rows.collect::<String>()
        }
        Drawing::Shares { series, groups, unit } => {
            let head = [vec![(*unit).to_owned()], series.clone()].concat();
            let rows = groups
                .iter()
                .map(|(name, bars)| row([vec![name.clone()], bars.iter().map(figure).collect()].concat()));
            row(head) + &ruler(series.len() + 1) + &rows.collect::<String>()
        }
        // Every second of a line would be a page; the file has them.
        Drawing::Lines { lines, across, unit, .. } if lines.iter().any(|line| line.points.len() > 6) => {
            let rows = lines.iter().map(|line| {
                let heights: Vec<f64> = line.points.iter().map(|(_, y)| *y).collect();
                let least = heights.iter().copied().fold(f64::MAX, f64::min);
                let most = heights.iter().copied().fold(0.0, f64::max);
                let middle = kvilt_bench::compare::median(&heights);
                let length = heights.len().to_string();
                row(vec![line.name.clone(), length, short(least), short(middle), short(most)])
            });
            let head = [
                "".to_owned(),
                (*across).to_owned(),
                format!("least {unit}"),
                "median".into(),
                "most".into(),
            ];
            row(head.to_vec()) + &ruler(5) + &rows.collect::<String>()
        }
        Drawing::Lines { lines, across, unit, .. } => {
            let values = values_across(lines);
            let head =
                [vec![format!("{unit}, by {across}")], values.iter().map(|x| tick(*x)).collect()].concat();
            let at = |line: &Line, x: f64| {
                line.points.iter().find(|(known, _)| *known == x).map_or("–".to_owned(), |(_, y)| short(*y))
            };
            let rows = lines.iter().map(|line| {
                row([vec![line.name.clone()], values.iter().map(|x| at(line, *x)).collect()].concat())
            });
            row(head.clone()) + &ruler(head.len()) + &rows.collect::<String>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_and_tables_and_headings_are_not() {
        let (half, wide) = ("x".repeat(CHARACTERS_MAX / 2), "y".repeat(CHARACTERS_MAX + 1));
        let page = format!("# {half} {half}\n\n{half} {half} {wide} z\n| {half} | {half} |\n");
        let expected = format!("# {half} {half}\n\n{half}\n{half}\n{wide}\nz\n| {half} | {half} |\n");
        assert_eq!(wrapped(&page), expected);
        assert_eq!(wrapped(&expected), expected);
    }

    #[test]
    fn the_page_tells_goals_runs_promises_and_failures() {
        let out = tempfile::tempdir().unwrap();
        let line = |store: &str, rate: f64| {
            json!({"kind": "phase", "store": store, "phase": "P@composite", "run": 1, "operations_a_second": rate,
                   "write_amplification": 1.5, "seconds": [9, 8]})
        };
        let records = Records::of(&[
            json!({"kind": "experiment", "commit": "abc+", "machine": "two cores", "arguments": ["--seconds", "6", "--data-mb", "1024"]}),
            json!({"kind": "start", "store": "kvilt", "promise": "a prefix", "load": 1.5, "limit_refused": null}),
            line("kvilt", 500.0),
            line("rocksdb", 100.0),
            json!({"kind": "open", "store": "kvilt", "run": 1, "open_killed_ms": 9.0}),
            json!({"kind": "unfinished", "store": "rocksdb", "run": 1, "why": "signal: 9"}),
        ]);
        let measured = Measured::from([("memory-writes", records)]);
        write(&measured, out.path()).unwrap();
        let page = fs::read_to_string(out.path().join("README.md")).unwrap();
        for expected in [
            "Commit abc+. Machine: two cores.",
            "| P composite | 1 GiB, 1.5 GiB | operations a second | 500 | rocksdb: 100 | ≥ 4× | 5.00× | yes | 0 |",
            "| P uniform | 1 GiB, 1.5 GiB | operations a second | – | rocksdb: – | ≥ 4× | – | not measured | 0 |",
            "| memory-writes | 1 GiB, 1.5 GiB | 2 | 6 | kvilt 1, rocksdb 0, rocksdb-buffered 0 |",
            "- kvilt: a prefix\n",
            "- memory-writes: did not finish: rocksdb (run 1): signal: 9\n",
            "![Figure 7",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
        assert!(out.path().join("fig07-written.svg").exists());
        let told = to_json(&verdicts(&measured)[0]);
        assert_eq!((told["reached"].as_f64(), told["is_reached"].as_bool()), (Some(5.0), Some(true)));
    }
}
