//! `kvilt load`: rows of a CSV or JSON-lines file become rows of the store.
//!
//! Each input row is read, made into a key and a value, and put, one after the other. A row that cannot be
//! read is told with its line number, and nothing of that line is stored.

mod csv_records;
pub(crate) mod csv_rows;
mod json_rows;
mod repeats;
mod source;
mod tally;

use std::{
    collections::HashSet,
    ffi::OsString,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use kvilt::{KEY_BYTES_MAX, Keyspace, VALUE_BYTES_MAX, WriteBatch};
use serde_json::{Value, json};

use crate::{
    engine::EngineOption,
    failure::Failure,
    globals::{DurabilityChoice, Globals, parse_size},
    interrupt,
    notation::escape,
    output::Output,
    stopwatch::{Stopwatch, counted, grouped},
};
use csv_rows::CsvRows;
use json_rows::JsonRows;
use repeats::Repeats;
use source::Source;
pub(crate) use tally::Reason;
use tally::Tally;

/// With sync durability so many rows are written together, so that they share a sync.
const ROWS_PER_SYNC: usize = 256;

/// Or fewer, if they have so many bytes: a batch takes memory, and has a limit.
const PENDING_BYTES_MAX: usize = 4 << 20;

/// So many malformed rows are told one by one.
const MALFORMED_SHOWN_MAX: u64 = 20;

/// What `--record-max` may be, in bytes: fewer would not hold the names of some columns, and for more there
/// is no value.
const RECORD_BYTES_MIN: u64 = 1 << 10;
const RECORD_BYTES_MAX: u64 = 1 << 30;

/// What remembers the keys of a load may take so many bytes, and no more than this part of the memory budget
/// beside it, but never less than some.
const SEEN_BYTES_MAX: u64 = 64 << 20;
const SEEN_BYTES_MIN: u64 = 4 << 20;
const SEEN_PART_OF_BUDGET: u64 = 4;

/// The progress bar is redrawn after so many rows: drawing costs more than loading one.
const ROWS_PER_DRAW: u64 = 256;

const FORMATS: &str = "\
A row's key is the text of the --key columns, joined by --separator. Its value is the row as a JSON object.

CSV: the first line names the columns. The object has all columns in their order; a field that reads as a JSON
number is written as that number, digit for digit; every other field is a string. A quote that opens at the
beginning of a field must be closed at the end of one, within --record-max. If it is not, the row is malformed, and
the next row is looked for on the line behind the one where the quote opened.

JSON lines: one object a line, which is stored as it stands, without white space around it. Key columns must be
strings, numbers or booleans. An object that has a name twice is malformed. Empty lines are passed over.

A file whose content is compressed with gzip is decompressed, whatever its name. `-` is standard input.

A repeated key gets the later row's value, so a load that was cut short can be repeated. Rows that replaced an
earlier row of the same load are counted: exactly if the keyspace was empty before, or while the hashes of their keys
fit into a quarter of --memory, but 4 to 64 MiB; what is counted beyond is a lower bound, and called so.";

/// Load rows from a CSV or JSON-lines file. Makes the store if there is none.
#[derive(Debug, Args)]
#[command(after_help = FORMATS)]
pub(crate) struct Load {
    /// The store's directory.
    dir: PathBuf,

    /// `-`: the same as `--jsonl -`.
    #[arg(value_name = "-", conflicts_with_all = ["csv", "jsonl"])]
    stdin: Option<PathBuf>,

    /// A file of comma-separated values, or `-`.
    #[arg(long, value_name = "FILE[.gz]", conflicts_with = "jsonl")]
    csv: Option<PathBuf>,

    /// A file of JSON objects, one a line, or `-`.
    #[arg(long, value_name = "FILE[.gz]")]
    jsonl: Option<PathBuf>,

    /// The columns that make the key, separated by commas; each of them once.
    #[arg(long, required = true, value_name = "COLUMNS", value_delimiter = ',')]
    key: Vec<String>,

    /// What stands between the parts of the key; taken like keys on the command line. Default: `/`.
    #[arg(long, allow_hyphen_values = true)]
    separator: Option<OsString>,

    /// The most that a row may take in the input, from 1KiB to 1GiB. One that is longer is malformed.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_record_max)]
    record_max: u64,

    /// What to do with a malformed row: stop there and keep the rows before it, or skip it and go on.
    #[arg(long, value_enum, default_value = "stop")]
    on_error: OnError,

    #[command(flatten)]
    engine: EngineOption,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnError {
    Skip,
    Stop,
}

/// A row as it will be stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoadRow {
    /// Where it began in the input.
    pub(crate) line: u64,
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
        reason: Reason,
        message: String,
    },
    /// Nothing more can be read.
    Unreadable(String),
}

impl BadRow {
    /// What is told of it, if it ends the load.
    fn end_of_load(&self, on_error: OnError) -> Option<String> {
        match self {
            BadRow::Unreadable(message) => Some(message.clone()),
            BadRow::Malformed { line, message, .. } => {
                (on_error == OnError::Stop).then(|| format!("line {line}: {message}"))
            }
        }
    }
}

/// Rows as they are read.
type Rows = Box<dyn Iterator<Item = Result<LoadRow, BadRow>>>;

impl Load {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        interrupt::listen();
        let (source, rows) = self.open_input(globals).map_err(unless_cancelled)?;
        let mut rows = rows.peekable();
        // No store is made for nothing.
        let is_place_free = self.is_place_free();
        if is_place_free && rows.peek().is_some() && interrupt::is_pressed() {
            return Err(Failure::Cancelled(CANCELLED_AT_FIRST.to_string()));
        }
        if is_place_free
            && let Some(Err(bad)) = rows.peek()
            && let Some(told) = bad.end_of_load(self.on_error)
        {
            return Err(Failure::Input(format!(
                "{told}; the 0 rows before it are stored, so no store was made"
            )));
        }
        let db = globals.open_or_create(&self.dir, self.engine)?;
        let keyspace = globals.keyspace_to_write(&db)?;
        let part_of = |budget: u64| (budget / SEEN_PART_OF_BUDGET).clamp(SEEN_BYTES_MIN, SEEN_BYTES_MAX);
        let seen_bytes_max = globals.memory.map_or(SEEN_BYTES_MAX, part_of);
        let mut loading = Loading {
            db: &db,
            repeats: Repeats::of(&keyspace, seen_bytes_max)?,
            keyspace,
            rows_per_write: if globals.durability == DurabilityChoice::Sync { ROWS_PER_SYNC } else { 1 },
            on_error: self.on_error,
            is_json: globals.json,
            pending: Vec::new(),
            pending_bytes: 0,
            bar: progress_bar(&source),
            source,
            stopwatch: Stopwatch::start(),
            tally: Tally::default(),
        };
        let ended = loading.load(Box::new(rows));
        // Whatever ended it, what was loaded is to stay.
        let closed = db.close();
        loading.bar.finish_and_clear();
        // Why it ended is the graver, also where nobody can read the report.
        let printed = loading.report(globals, ended.is_ok() && closed.is_ok(), closed.is_ok());
        loading.outcome(ended, closed)?;
        printed
    }

    /// Whether there is nothing yet where the store shall be.
    #[expect(
        clippy::disallowed_methods,
        reason = "looks whether the user's own directory is empty, and opens no file"
    )]
    fn is_place_free(&self) -> bool {
        !self.dir.exists() || std::fs::read_dir(&self.dir).is_ok_and(|mut entries| entries.next().is_none())
    }

    fn open_input(&self, globals: &Globals) -> Result<(Source, Rows), Failure> {
        let mut seen = HashSet::new();
        if let Some(twice) = self.key.iter().find(|name| !seen.insert(name.as_str())) {
            let message =
                format!("--key names the column `{}` twice; name each once", escape(twice.as_bytes()));
            return Err(Failure::Usage(message));
        }
        let separator = match &self.separator {
            Some(separator) => globals.parse(separator)?,
            None => b"/".to_vec(),
        };
        let record_bytes_max = self.record_max as usize;
        let not_opened =
            |path: &PathBuf, error| Failure::Input(format!("cannot read `{}`: {error}", path.display()));
        let dash = PathBuf::from("-");
        if let Some(path) = self.stdin.as_ref().filter(|path| **path != dash) {
            let path = path.display();
            let message = format!("say what `{path}` is: `--csv {path}` or `--jsonl {path}`");
            return Err(Failure::Usage(message));
        }
        match (&self.csv, &self.jsonl, &self.stdin) {
            (Some(path), _, _) => {
                let (source, reader) = Source::open(path).map_err(|error| not_opened(path, error))?;
                Ok((source, Box::new(CsvRows::new(reader, &self.key, &separator, record_bytes_max)?)))
            }
            (None, path, stdin) => {
                let Some(path) = path.as_ref().or(stdin.is_some().then_some(&dash)) else {
                    return Err(Failure::Usage("say what to load: --csv FILE or --jsonl FILE".to_string()));
                };
                let (source, reader) = Source::open(path).map_err(|error| not_opened(path, error))?;
                Ok((source, Box::new(JsonRows::new(reader, &self.key, &separator, record_bytes_max))))
            }
        }
    }
}

/// A load under way.
struct Loading<'d> {
    db: &'d kvilt::Db,
    keyspace: Keyspace,
    repeats: Repeats,
    rows_per_write: usize,
    on_error: OnError,
    is_json: bool,
    /// Rows read and not yet written.
    pending: Vec<LoadRow>,
    /// Bytes of their keys and values.
    pending_bytes: usize,
    bar: ProgressBar,
    source: Source,
    stopwatch: Stopwatch,
    tally: Tally,
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
                if self.repeats.note(&self.keyspace, &self.pending, &row.key)? {
                    self.tally.repeat(row.line);
                }
                self.pending_bytes += row.key.len() + row.value.len();
                self.pending.push(row);
                if self.pending.len() >= self.rows_per_write || self.pending_bytes >= PENDING_BYTES_MAX {
                    self.write_pending()?;
                }
                Ok(())
            }
            Err(BadRow::Unreadable(message)) => Err(Failure::Input(message)),
            Err(BadRow::Malformed { line, reason, message }) => {
                let told = format!("line {line}: {message}");
                if self.on_error == OnError::Stop {
                    return Err(Failure::Input(told));
                }
                self.tally.skip(reason, line);
                if self.tally.skipped() <= MALFORMED_SHOWN_MAX {
                    let object = json!({ "line": line, "reason": reason.name(), "message": message });
                    self.tell(&format!("{told}; skipped"), &json!({ "skipped": object }));
                }
                Ok(())
            }
        }
    }

    /// Says something beside the result, on standard error. If that is gone, the result still tells.
    fn tell(&self, text: &str, object: &Value) {
        let line = if self.is_json { object.to_string() } else { format!("kvilt: {text}") };
        let _ = self.bar.suspend(|| writeln!(io::stderr(), "{line}"));
    }

    fn write_pending(&mut self) -> Result<(), Failure> {
        let rows = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
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
        let before = self.tally.stored;
        self.tally.stored += count;
        if before / ROWS_PER_DRAW != self.tally.stored / ROWS_PER_DRAW {
            self.draw();
        }
        Ok(())
    }

    fn draw(&self) {
        self.bar.set_position(self.source.bytes_read());
        let rate = self.stopwatch.rate(self.tally.stored) as u64;
        self.bar.set_message(format!("{} rows, {} rows/s", grouped(self.tally.stored), grouped(rate)));
    }

    /// How the load ended, and what is in the store now. What a failed close leaves undone, nobody knows.
    fn outcome(&self, ended: Result<(), Failure>, closed: kvilt::Result<()>) -> Result<(), Failure> {
        let rows = counted(self.tally.stored, "row");
        let what_is = match (&closed, self.tally.stored) {
            (Ok(()), 1) => "is stored",
            (Ok(()), _) => "are stored",
            (Err(_), _) => "may be lost from the last checkpoint on, since the store could not be closed",
        };
        match ended {
            Ok(()) => closed.map_err(|error| Failure::StoreAfter(error, format!("the {rows} {what_is}"))),
            Err(Failure::Input(message)) => {
                Err(Failure::Input(format!("{message}; the {rows} before it {what_is}")))
            }
            Err(Failure::Cancelled(message)) => {
                Err(Failure::Cancelled(format!("{message}; {rows} {what_is}")))
            }
            Err(Failure::Store(error)) => {
                Err(Failure::StoreAfter(error, format!("the {rows} before it {what_is}")))
            }
            Err(other) => Err(other),
        }
    }

    fn report(&self, globals: &Globals, is_complete: bool, is_durable: bool) -> Result<(), Failure> {
        let untold = self.tally.skipped().saturating_sub(MALFORMED_SHOWN_MAX);
        if untold > 0 {
            let text = format!("{} skipped", counted(untold, "more malformed row"));
            self.tell(&text, &json!({ "skipped_more": { "rows": untold } }));
        }
        let lines = self.tally.lines(self.stopwatch, self.repeats.is_exact());
        let mut object = self.tally.json(self.stopwatch, self.repeats.is_exact(), is_complete);
        object["durable"] = is_durable.into();
        Ok(Output::new(globals).report(&lines, &object)?)
    }
}

/// The message when Ctrl-C came before there was a store.
const CANCELLED_AT_FIRST: &str = "cancelled; 0 rows are stored, so no store was made";

/// The same failure, unless Ctrl-C is what caused it.
fn unless_cancelled(failure: Failure) -> Failure {
    match failure {
        Failure::Input(_) if interrupt::is_pressed() => {
            Failure::Cancelled("cancelled; 0 rows are stored".to_string())
        }
        other => other,
    }
}

/// The message for an input in UTF-16.
const UTF_16: &str = "the input is UTF-16; convert it to UTF-8 first";

/// Whether the first bytes of an input say that it is.
fn is_utf_16(first: &[u8]) -> bool {
    first.starts_with(b"\xff\xfe") || first.starts_with(b"\xfe\xff")
}

/// Says that the input cannot be read behind this line, the last of which all was read.
fn unreadable(line: u64, error: &io::Error) -> BadRow {
    BadRow::Unreadable(match line {
        0 => format!("cannot read the first line of the input: {error}"),
        _ => format!("cannot read on after line {line}, the last that is whole: {error}"),
    })
}

/// The key of a row of these parts, and the row, if the store will take them.
fn checked_row(line: u64, key: Vec<u8>, value: Vec<u8>) -> Result<LoadRow, BadRow> {
    if key.len() > KEY_BYTES_MAX {
        let message = format!("the key has {} bytes; a key may have up to {KEY_BYTES_MAX}", key.len());
        return Err(BadRow::Malformed { line, reason: Reason::LongKey, message });
    }
    if value.len() > VALUE_BYTES_MAX {
        let message = format!("the row has {} bytes; a value may have up to {VALUE_BYTES_MAX}", value.len());
        return Err(BadRow::Malformed { line, reason: Reason::LongValue, message });
    }
    Ok(LoadRow { line, key, value })
}

fn parse_record_max(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if (RECORD_BYTES_MIN..=RECORD_BYTES_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("a row may be given {RECORD_BYTES_MIN} to {RECORD_BYTES_MAX} bytes"))
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
