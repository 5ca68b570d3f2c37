//! `kvilt stats`: what a store holds.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use kvilt::{Db, Description, Stats as Figures};
use serde_json::{Map, Value, json};

use super::check::progress_bar;
use crate::{
    failure::Failure,
    globals::Globals,
    interrupt,
    notation::{escape, to_hex, to_json},
    output::Output,
    stopwatch::{counted, grouped},
};

/// So many keyspaces are shown to people, those with most bytes first.
const KEYSPACES_SHOWN_MAX: usize = 20;

/// So many bytes of a key are shown to people.
const KEY_BYTES_SHOWN_MAX: usize = 48;

const FIGURES: &str = "\
Without --deep up to eight chunks are read, and rows and their bytes are estimates if there are more. With --json all
figures are exact numbers, those of the open itself among them; with --figures these are printed, too. Those that count
begin at zero with each open.";

/// Show what a store holds: rows, bytes by kind of file and by keyspace, largest rows.
#[derive(Debug, Args)]
#[command(after_help = FIGURES)]
pub(crate) struct Stats {
    /// The store's directory.
    dir: PathBuf,

    /// Read every row, so that rows and their bytes are counted, not estimated.
    #[arg(long)]
    deep: bool,

    /// Print the figures of the open as well.
    #[arg(long)]
    figures: bool,
}

impl Stats {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        interrupt::listen();
        let checkpoint = last_checkpoint(&self.dir);
        let db = globals.open_to_read(&self.dir)?;
        let figures = db.stats();
        let bar = if self.deep { progress_bar() } else { indicatif::ProgressBar::hidden() };
        let described = db.describe_with(self.deep, |progress| {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
            !interrupt::is_pressed()
        });
        bar.finish_and_clear();
        let description = described?;
        let shown = Shown { db: &db, description: &description, figures: &figures, checkpoint };
        let (mut lines, object) = (shown.lines(globals), shown.json(globals));
        db.close()?;
        if self.figures {
            lines.push(String::new());
            let line = |figure: kvilt::Figure| format!("{:<26}{:>16}", figure.name, figure.value);
            lines.extend(figures.figures().into_iter().map(line));
            lines.push(format!("{:<26}{:>16.2}", "write_amplification", figures.write_amplification()));
        }
        let printed = Output::new(globals).report(&lines, &object);
        if description.is_cancelled {
            return Err(Failure::Cancelled(
                "cancelled before the end; rows are of what was read".to_string(),
            ));
        }
        Ok(printed?)
    }
}

struct Shown<'s> {
    db: &'s Db,
    description: &'s Description,
    figures: &'s Figures,
    checkpoint: Option<SystemTime>,
}

impl Shown<'_> {
    fn lines(&self, globals: &Globals) -> Vec<String> {
        let d = self.description;
        let about = if d.is_exact { "" } else { "about " };
        let mut lines = vec![
            line("store", &self.db.path().display().to_string()),
            line("engine", &format!("{}, format version {}", self.db.engine_name(), d.format_version)),
            line("last checkpoint", &self.checkpoint.map_or("unknown".to_string(), checkpoint_text)),
            line("rows", &format!("{about}{}{}", grouped(d.rows()), self.how_counted())),
            line("rows' bytes", &format!("{about}{} of keys and values", size(d.row_bytes()))),
            line("on disk", &format!("{} in {}", size(d.file_bytes()), files_text(self.file_count()))),
        ];
        for (kind, files) in &d.files {
            let name = if files.files == 1 { (*kind).to_string() } else { plural(kind) };
            lines.push(line(
                &format!("  {name}"),
                &format!("{} in {}", size(files.bytes), files_text(files.files)),
            ));
        }
        let parts = match self.db.engine_name() {
            "kvell" => "slabs: free slots, headers, and what rows leave empty of their slots",
            _ => "logs and tables: dead rows, old versions, and what it takes to find rows",
        };
        lines.push(line("beside rows", &format!("{about}{} of {parts}", size(d.beside_rows_bytes()))));
        lines.extend(self.structure());
        if d.chunks_damaged > 0 {
            lines.push(line("damaged", &format!("{} chunks; see `kvilt check`", grouped(d.chunks_damaged))));
        }
        lines.push(line("keyspaces", &grouped(d.keyspaces.len() as u64)));
        let mut keyspaces: Vec<_> = d.keyspaces.iter().collect();
        keyspaces.sort_by_key(|keyspace| std::cmp::Reverse(keyspace.file_bytes));
        for keyspace in keyspaces.iter().take(KEYSPACES_SHOWN_MAX) {
            let name = match keyspace.name.as_str() {
                "" => "the default one".to_string(),
                name => format!("`{}`", escape(name.as_bytes())),
            };
            lines.push(format!(
                "  {name}: {about}{}, {about}{} of keys and values, about {} on disk",
                counted(keyspace.rows, "row"),
                size(keyspace.row_bytes),
                size(keyspace.file_bytes)
            ));
        }
        if keyspaces.len() > KEYSPACES_SHOWN_MAX {
            lines.push(format!("  and {} more", grouped((keyspaces.len() - KEYSPACES_SHOWN_MAX) as u64)));
        }
        self.push_largest(&mut lines, globals);
        lines
    }

    fn push_largest(&self, lines: &mut Vec<String>, globals: &Globals) {
        let d = self.description;
        if d.largest_rows.is_empty() {
            return;
        }
        lines.push(if d.is_exact {
            "largest rows".to_string()
        } else {
            "largest rows of those read".to_string()
        });
        for row in &d.largest_rows {
            let shown = &row.key[..row.key.len().min(KEY_BYTES_SHOWN_MAX)];
            let key = if globals.hex { to_hex(shown) } else { escape(shown) };
            let more = if shown.len() < row.key.len() { "…" } else { "" };
            let of = match row.keyspace.as_str() {
                "" => String::new(),
                name => format!(" of keyspace `{}`", escape(name.as_bytes())),
            };
            lines.push(format!("  {}: {key}{more}{of}", size(row.bytes)));
        }
    }

    /// What the engine cuts the keys into.
    fn structure(&self) -> Vec<String> {
        let own = |name| self.figures.own(name).map(grouped);
        if let (Some(shards), Some(used), Some(free)) =
            (own("shards_now"), own("slots_used_now"), own("slots_free_now"))
        {
            return vec![line("shards", &shards), line("slots", &format!("{used} in use, {free} free"))];
        }
        if let (Some(tables), Some(keys)) = (own("sorted_tables_now"), own("table_keys_now")) {
            return vec![line("sorted tables", &tables), line("in memory", &format!("{keys} keys"))];
        }
        vec![line("chunks", &grouped(self.description.chunks))]
    }

    fn how_counted(&self) -> String {
        let d = self.description;
        if d.is_exact {
            return String::new();
        }
        format!(", by {} of {} chunks; --deep counts them", grouped(d.chunks_read), grouped(d.chunks))
    }

    fn file_count(&self) -> u64 {
        self.description.files.values().map(|kind| kind.files).sum()
    }

    fn json(&self, globals: &Globals) -> Value {
        let d = self.description;
        // Figures of the open stand beside the others, as they always did.
        let mut object: Map<String, Value> = self
            .figures
            .figures()
            .into_iter()
            .map(|figure| (figure.name.to_string(), json!(figure.value)))
            .collect();
        object.insert("write_amplification".to_string(), json!(self.figures.write_amplification()));
        let files: Map<String, Value> = d
            .files
            .iter()
            .map(|(kind, files)| ((*kind).to_string(), json!({ "files": files.files, "bytes": files.bytes })))
            .collect();
        let keyspaces: Vec<Value> = d
            .keyspaces
            .iter()
            .map(|keyspace| {
                json!({
                    "name": keyspace.name, "rows": keyspace.rows, "row_bytes": keyspace.row_bytes,
                    "file_bytes": keyspace.file_bytes,
                })
            })
            .collect();
        let largest: Vec<Value> = d
            .largest_rows
            .iter()
            .map(|row| {
                json!({ "keyspace": row.keyspace, "key": to_json(&row.key, globals.hex), "bytes": row.bytes })
            })
            .collect();
        let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let description = json!({
            "store": self.db.path().to_string_lossy(),
            "engine": self.db.engine_name(),
            "format_version": d.format_version,
            "last_checkpoint_unix_seconds": self.checkpoint.map(seconds),
            "rows": d.rows(),
            "row_bytes": d.row_bytes(),
            "exact": d.is_exact,
            "file_bytes": d.file_bytes(),
            "files": files,
            "beside_rows_bytes": d.beside_rows_bytes(),
            "chunks": d.chunks,
            "chunks_read": d.chunks_read,
            "chunks_damaged": d.chunks_damaged,
            "keyspaces": keyspaces,
            "largest_rows": largest,
            "cancelled": d.is_cancelled,
        });
        if let Value::Object(description) = description {
            object.extend(description);
        }
        object.into()
    }
}

fn line(name: &str, text: &str) -> String {
    format!("{name:<18}{text}")
}

fn files_text(files: u64) -> String {
    counted(files, "file")
}

fn plural(kind: &str) -> String {
    if kind == "other" { "others".to_string() } else { format!("{kind}s") }
}

/// Bytes for people: three digits that count, and a unit.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1023.95 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// When the newest manifest, or root, or file of a redo log was written to last: each checkpoint ends with
/// that. None if there is none to be seen.
#[expect(
    clippy::disallowed_methods,
    reason = "looks at times in the user's own directory, and opens no file"
)]
fn last_checkpoint(dir: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(dir).ok()?;
    let written_last = entries.filter_map(Result::ok).filter(|entry| {
        let is_one = |is: &std::ffi::OsStr| is == "manifest" || is == "redo";
        entry.path().extension().is_some_and(is_one) || entry.file_name() == "ROOT"
    });
    written_last.filter_map(|entry| entry.metadata().ok()?.modified().ok()).max()
}

/// A time, and how long ago it was.
fn checkpoint_text(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{}, {}", utc(seconds), ago(at.elapsed().unwrap_or_default()))
}

fn ago(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    let (count, unit) = match seconds {
        0..120 => (seconds, "seconds"),
        120..7200 => (seconds / 60, "minutes"),
        7200..172_800 => (seconds / 3600, "hours"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{} {unit} ago", grouped(count))
}

/// Seconds since 1970 as date and time of day, by the rule of the Gregorian calendar: 400 years have 146,097
/// days.
fn utc(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of the year 0, where leap days are the last of their years.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let of_years = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_years + of_years / 4 - of_years / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + of_years + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_for_people() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1536, "1.5 KiB"),
            (1 << 20, "1.0 MiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
        assert_eq!(ago(Duration::from_secs(119)), "119 seconds ago");
        assert_eq!(ago(Duration::from_secs(7200)), "2 hours ago");
    }
}
