//! `kvilt load`: rows of a CSV or JSON-lines file become rows of the store.
//!
//! Each input row is read, made into a key and a value, and put, one after the other. A row that cannot be read
//! is told with its line number, and nothing of that line is stored.

pub(crate) mod csv_rows;
mod json_rows;
mod source;

use std::{io::IsTerminal, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use kvilt::{KEY_BYTES_MAX, Keyspace, VALUE_BYTES_MAX, WriteBatch};
use serde_json::json;

use crate::{
    failure::Failure,
    globals::{DurabilityChoice, Globals},
    interrupt,
    output::Output,
    stopwatch::{Stopwatch, grouped},
};
use csv_rows::CsvRows;
use json_rows::JsonRows;
use source::Source;

/// With sync durability so many rows are written together, so that they share a sync.
const ROWS_PER_SYNC: usize = 256;

/// So many malformed rows are told one by one.
const MALFORMED_SHOWN_MAX: u64 = 20;

/// The progress bar is redrawn after so many rows: drawing costs more than loading one.
const ROWS_PER_DRAW: u64 = 256;

const FORMATS: &str = "\
A row's key is the text of the --key columns, joined by --separator. Its value is the row as a JSON object.

CSV: the first line names the columns. The object has all columns in their order; a field that reads as a JSON
number is written as that number, digit for digit; every other field is a string.

JSON lines: one object a line, which is stored as it stands, without white space around it. Key columns must be
strings, numbers or booleans. Empty lines are passed over.

A file whose content is compressed with gzip is decompressed, whatever its name. `-` is standard input.

A repeated key gets the later row's value, so a load that was cut short can be repeated.";

/// Load rows from a CSV or JSON-lines file. Makes the store if there is none.
#[derive(Debug, Args)]
#[command(after_help = FORMATS)]
pub(crate) struct Load {
    /// The store's directory.
    dir: PathBuf,

    /// `-`: the same as `--jsonl -`.
    #[arg(value_name = "-", value_parser = ["-"], conflicts_with_all = ["csv", "jsonl"])]
    stdin: Option<String>,

    /// A file of comma-separated values, or `-`.
    #[arg(long, value_name = "FILE[.gz]", conflicts_with = "jsonl")]
    csv: Option<PathBuf>,

    /// A file of JSON objects, one a line, or `-`.
    #[arg(long, value_name = "FILE[.gz]")]
    jsonl: Option<PathBuf>,

    /// The columns that make the key, separated by commas.
    #[arg(long, required = true, value_name = "COLUMNS", value_delimiter = ',')]
    key: Vec<String>,

    /// What stands between the parts of the key.
    #[arg(long, default_value = "/", allow_hyphen_values = true)]
    separator: String,

    /// What to do with a malformed row: stop there and keep the rows before it, or skip it and go on.
    #[arg(long, value_enum, default_value = "stop")]
    on_error: OnError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnError {
    Skip,
    Stop,
}

/// A row as it will be stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoadRow {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Why there is no row.
#[derive(Debug)]
pub(crate) enum BadRow {
    /// The line does not make sense; those behind it may.
    Malformed {
        /// Counted from one.
        line: u64,
        message: String,
    },
    /// Nothing more can be read.
    Unreadable(String),
}

/// Rows as they are read.
type Rows = Box<dyn Iterator<Item = Result<LoadRow, BadRow>>>;

impl Load {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        interrupt::listen();
        let (source, rows) = self.open_input()?;
        let db = globals.open_or_create(&self.dir)?;
        let keyspace = globals.keyspace_to_write(&db)?;
        let mut loading = Loading {
            db: &db,
            keyspace,
            rows_per_write: if globals.durability == DurabilityChoice::Sync { ROWS_PER_SYNC } else { 1 },
            on_error: self.on_error,
            pending: Vec::new(),
            bar: progress_bar(&source),
            source,
            stopwatch: Stopwatch::start(),
            loaded: 0,
            skipped: 0,
        };
        let ended = loading.load(rows);
        // Whatever ended it, what was loaded is to stay.
        let closed = db.close();
        loading.bar.finish_and_clear();
        ended.map_err(|failure| loading.explain(failure))?;
        closed?;
        loading.report(globals)
    }

    fn open_input(&self) -> Result<(Source, Rows), Failure> {
        let unreadable =
            |path: &PathBuf, error| Failure::Input(format!("cannot read `{}`: {error}", path.display()));
        let dash = PathBuf::from("-");
        match (&self.csv, &self.jsonl, &self.stdin) {
            (Some(path), _, _) => {
                let (source, reader) = Source::open(path).map_err(|error| unreadable(path, error))?;
                Ok((source, Box::new(CsvRows::new(reader, &self.key, &self.separator)?)))
            }
            (None, path, stdin) => {
                let Some(path) = path.as_ref().or(stdin.is_some().then_some(&dash)) else {
                    return Err(Failure::Usage("say what to load: --csv FILE or --jsonl FILE".to_string()));
                };
                let (source, reader) = Source::open(path).map_err(|error| unreadable(path, error))?;
                Ok((source, Box::new(JsonRows::new(reader, &self.key, &self.separator))))
            }
        }
    }
}

/// A load under way.
struct Loading<'d> {
    db: &'d kvilt::Db,
    keyspace: Keyspace,
    rows_per_write: usize,
    on_error: OnError,
    /// Rows read and not yet written.
    pending: Vec<LoadRow>,
    bar: ProgressBar,
    source: Source,
    stopwatch: Stopwatch,
    loaded: u64,
    skipped: u64,
}

impl Loading<'_> {
    /// Loads until the end, an error that stops, or Ctrl-C. In each case all rows read before are written.
    fn load(&mut self, rows: Rows) -> Result<(), Failure> {
        let mut ended = Ok(());
        for row in rows {
            if interrupt::is_pressed() {
                ended = Err(Failure::Cancelled("cancelled".to_string()));
                break;
            }
            if let Err(failure) = self.take(row) {
                ended = Err(failure);
                break;
            }
        }
        // An error of the store is told first: it is the graver one.
        self.write_pending()?;
        ended
    }

    fn take(&mut self, row: Result<LoadRow, BadRow>) -> Result<(), Failure> {
        match row {
            Ok(row) => {
                self.pending.push(row);
                if self.pending.len() >= self.rows_per_write {
                    self.write_pending()?;
                }
                Ok(())
            }
            Err(BadRow::Unreadable(message)) => Err(Failure::Input(message)),
            Err(BadRow::Malformed { line, message }) => {
                let told = format!("line {line}: {message}");
                if self.on_error == OnError::Stop {
                    return Err(Failure::Input(told));
                }
                self.skipped += 1;
                if self.skipped <= MALFORMED_SHOWN_MAX {
                    self.bar.suspend(|| eprintln!("kvilt: {told}; skipped"));
                }
                Ok(())
            }
        }
    }

    fn write_pending(&mut self) -> Result<(), Failure> {
        let rows = std::mem::take(&mut self.pending);
        let count = rows.len() as u64;
        match rows.as_slice() {
            [] => return Ok(()),
            [row] => self.keyspace.put(&row.key, &row.value)?,
            rows => {
                let mut batch = WriteBatch::new();
                for row in rows {
                    batch.put_in(&self.keyspace, &row.key, &row.value);
                }
                self.db.write(batch)?;
            }
        }
        let before = self.loaded;
        self.loaded += count;
        if before / ROWS_PER_DRAW != self.loaded / ROWS_PER_DRAW {
            self.draw();
        }
        Ok(())
    }

    fn draw(&self) {
        self.bar.set_position(self.source.bytes_read());
        let rate = self.stopwatch.rate(self.loaded) as u64;
        self.bar.set_message(format!("{} rows, {} rows/s", grouped(self.loaded), grouped(rate)));
    }

    /// Says, with the reason, what is in the store now.
    fn explain(&self, failure: Failure) -> Failure {
        let kept = format!("the {} rows before it are stored", grouped(self.loaded));
        match failure {
            Failure::Input(message) => Failure::Input(format!("{message}; {kept}")),
            Failure::Cancelled(message) => {
                Failure::Cancelled(format!("{message}; {} rows are stored", grouped(self.loaded)))
            }
            Failure::Store(error) => {
                eprintln!("kvilt: the load ended early, after {} rows", grouped(self.loaded));
                Failure::Store(error)
            }
            other => other,
        }
    }

    fn report(&self, globals: &Globals) -> Result<(), Failure> {
        if self.skipped > MALFORMED_SHOWN_MAX {
            eprintln!("kvilt: {} more malformed rows skipped", grouped(self.skipped - MALFORMED_SHOWN_MAX));
        }
        let (seconds, rate) = (self.stopwatch.elapsed().as_secs_f64(), self.stopwatch.rate(self.loaded));
        let mut output = Output::new(globals);
        if output.is_json() {
            let report = json!({
                "rows": self.loaded, "skipped": self.skipped, "seconds": seconds, "rows_per_second": rate,
            });
            output.json(&report)?;
        } else {
            let skipped = match self.skipped {
                0 => String::new(),
                count => format!(", {} malformed rows skipped", grouped(count)),
            };
            output.line(&format!(
                "loaded {} rows in {seconds:.2} s ({} rows/s){skipped}",
                grouped(self.loaded),
                grouped(rate as u64)
            ))?;
        }
        Ok(output.end()?)
    }
}

/// The key of a row of these parts, and the row, if the store will take them.
fn checked_row(line: u64, key: Vec<u8>, value: Vec<u8>) -> Result<LoadRow, BadRow> {
    if key.len() > KEY_BYTES_MAX {
        let message = format!("the key has {} bytes; a key may have up to {KEY_BYTES_MAX}", key.len());
        return Err(BadRow::Malformed { line, message });
    }
    if value.len() > VALUE_BYTES_MAX {
        let message = format!("the row has {} bytes; a value may have up to {VALUE_BYTES_MAX}", value.len());
        return Err(BadRow::Malformed { line, message });
    }
    Ok(LoadRow { key, value })
}

/// A bar with what is left to do, or without if nobody knows; nothing if nobody watches.
fn progress_bar(source: &Source) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match source.bytes_in_all() {
        Some(bytes) => (ProgressBar::new(bytes), "{wide_bar} {percent}%, {msg}, {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}, {elapsed}"),
    };
    bar.enable_steady_tick(Duration::from_millis(200));
    bar.with_style(ProgressStyle::with_template(template).expect("the template is sound"))
}
