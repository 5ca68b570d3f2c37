//! The `kvilt` command: one file in `command/` for each thing it can do.
//!
//! Always true here: results go to standard output, everything else (errors, progress) to standard error; the
//! exit code says what happened. The store is reached through the crate `kvilt` alone.
#![forbid(unsafe_code)]

mod command;
mod engine;
mod failure;
mod globals;
mod interrupt;
mod notation;
mod output;
mod selection;
mod stopwatch;

use std::process::ExitCode;

use clap::{Parser, Subcommand, error::ErrorKind};

use command::{
    check::Check, convert::Convert, count::Count, delete::Delete, delete_range::DeleteRange, demo::Demo,
    demo::child::Child, get::Get, load::Load, put::Put, repair::Repair, scan::Scan, stats::Stats,
};
use failure::Failure;
use globals::Globals;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    not found: no such key or keyspace
  2    the command line or the input is wrong: an option, a key or value that is
       too long, a directory that is not what the command needs (none, empty, a
       file, not a store, not empty), a malformed row
  3    the command line may be right, but the store could not be opened, read or
       written, or is in use or damaged, a repair found that something may be
       lost, or the output could not be written
  130  cancelled with Ctrl-C

Keys and values:
  On the command line they are taken as they stand, UTF-8 or not; with --hex as hexadecimal digits; with --escaped in the
  notation of the output. Printed as text, with \\\\ for a backslash, \\n \\r \\t, and \\xNN for bytes that are
  not printable; with --hex as hexadecimal digits. With --json a key or value is a string, or, if it is not
  UTF-8, an object {\"hex\": \"…\"}.";

/// An embedded, ordered key-value store.
#[derive(Debug, Parser)]
#[command(name = "kvilt", version, after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Put(Put),
    Get(Get),
    Delete(Delete),
    DeleteRange(DeleteRange),
    Scan(Scan),
    Count(Count),
    Stats(Stats),
    Check(Check),
    Repair(Repair),
    Convert(Convert),
    Load(Load),
    Demo(Demo),
    #[command(hide = true)]
    DemoChild(Child),
}

fn main() -> ExitCode {
    let Cli { globals, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let done = globals.check_keyspace(command.whole_store()).and_then(|()| run(command, &globals));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(globals.json),
    }
}

impl Command {
    /// Its name, if it is about all keyspaces together.
    fn whole_store(&self) -> Option<&'static str> {
        match self {
            Command::Stats(_) => Some("stats"),
            Command::Check(_) => Some("check"),
            Command::Repair(_) => Some("repair"),
            Command::Convert(_) => Some("convert"),
            Command::Demo(_) => Some("demo"),
            Command::Put(_)
            | Command::Get(_)
            | Command::Delete(_)
            | Command::DeleteRange(_)
            | Command::Scan(_)
            | Command::Count(_)
            | Command::Load(_)
            | Command::DemoChild(_) => None,
        }
    }
}

fn run(command: Command, globals: &Globals) -> Result<(), Failure> {
    match command {
        Command::Put(put) => put.run(globals),
        Command::Get(get) => get.run(globals),
        Command::Delete(delete) => delete.run(globals),
        Command::DeleteRange(delete_range) => delete_range.run(globals),
        Command::Scan(scan) => scan.run(globals),
        Command::Count(count) => count.run(globals),
        Command::Stats(stats) => stats.run(globals),
        Command::Check(check) => check.run(globals),
        Command::Repair(repair) => repair.run(globals),
        Command::Convert(convert) => convert.run(globals),
        Command::Load(load) => load.run(globals),
        Command::Demo(demo) => demo.run(globals),
        Command::DemoChild(child) => child.run(globals),
    }
}

/// Shows the help that was asked for, or says what is wrong with the command line.
fn refuse(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    if !error.use_stderr() || !wants_json && error.kind() != ErrorKind::InvalidUtf8 {
        error.exit();
    }
    let message = match error.kind() {
        ErrorKind::InvalidUtf8 => {
            "an argument that must be text is not UTF-8; keys, values, --separator and files may be anything"
                .to_string()
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "there is no command; `kvilt help` lists them".to_string()
        }
        _ => {
            let text = error.render().to_string();
            text.trim().trim_start_matches("error: ").to_string()
        }
    };
    Failure::Usage(message).report(wants_json)
}
