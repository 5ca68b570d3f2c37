//! `Failure`: why a command ends early, with which exit code, and in which words.
//!
//! The one place that turns the library's errors into the command's words: the library speaks of settings and
//! calls, the command of options and of itself.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use kvilt::{Error, ErrorKind};
use serde_json::json;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no such key or keyspace.
    NotFound(String),
    /// The command line does not make sense.
    Usage(String),
    /// The input does not: a malformed row, an unreadable file.
    Input(String),
    /// The store refused the arguments, or failed.
    Store(Error),
    /// The store is damaged where an open must read it, so none of it can be read.
    NotOpened(Error),
    /// The store refused or failed, after so much was done.
    StoreAfter(Error, String),
    /// The store, or this program, is not as it should be.
    Damaged(String),
    /// Results could not be written.
    Output(io::Error),
    /// The user pressed Ctrl-C.
    Cancelled(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

impl Failure {
    /// Why a store could not be opened.
    pub(crate) fn of_open(error: Error) -> Self {
        if error.kind() == ErrorKind::Corrupted { Failure::NotOpened(error) } else { Failure::Store(error) }
    }

    /// Tells it on standard error, and gives the exit code.
    pub(crate) fn report(self, as_json: bool) -> ExitCode {
        let (code, kind, message) = match self {
            // Who reads our output has seen enough, as `head` does: not a failure.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Failure::Output(error) => (3, "output", format!("cannot write the output: {error}")),
            Failure::NotFound(message) => (1, "not-found", message),
            Failure::Usage(message) => (2, "usage", message),
            Failure::Input(message) => (2, "input", message),
            Failure::Store(error) => (exit_code(&error), error.kind().name(), in_words(&error)),
            Failure::NotOpened(error) => (3, error.kind().name(), with_advice(&error, Some(NOT_OPENED))),
            Failure::StoreAfter(error, done) => {
                (exit_code(&error), error.kind().name(), format!("{}; {done}", in_words(&error)))
            }
            Failure::Damaged(message) => (3, "damaged", message),
            Failure::Cancelled(message) => (130, "cancelled", message),
        };
        let line = if as_json {
            json!({ "error": { "kind": kind, "message": message } }).to_string()
        } else {
            format!("kvilt: {message}")
        };
        // If standard error is gone too, the exit code still tells.
        let _ = writeln!(io::stderr(), "{line}");
        ExitCode::from(code)
    }
}

/// 2 for what the user can mend by another command line, and 3 for everything else that a store says no to.
fn exit_code(error: &Error) -> u8 {
    if error.kind() == ErrorKind::InvalidArgument { 2 } else { 3 }
}

/// What happened, where, and what to do about it on the command line.
fn in_words(error: &Error) -> String {
    with_advice(error, error.setting().and_then(setting_advice).or_else(|| advice(error)))
}

fn with_advice(error: &Error, advice: Option<&str>) -> String {
    // Of a call that the system refused the library says what it was.
    let is_of_system = std::error::Error::source(error).is_some();
    let mut words = if is_of_system { "cannot ".to_string() } else { String::new() };
    words.push_str(error.message());
    if let Some(file) = error.file() {
        match error.offset() {
            Some(offset) => words.push_str(&format!(" (file {file}, offset {offset})")),
            None => words.push_str(&format!(" (file {file})")),
        }
    }
    if let Some(source) = std::error::Error::source(error) {
        words.push_str(&format!(": {source}"));
    }
    if let Some(advice) = advice {
        words.push_str("; ");
        words.push_str(advice);
    }
    words
}

/// What to do with a store that cannot be opened.
const NOT_OPENED: &str =
    "`kvilt check` shows what is damaged, and `kvilt repair` copies what is left into a new store";

/// What to do where a setting of the library says no. None of them is named: the command has options.
fn setting_advice(setting: &str) -> Option<&'static str> {
    match setting {
        "create_if_missing" | "read_only" => {
            Some("name the directory of a store; `kvilt put` and `kvilt load` make one")
        }
        "error_if_exists" => Some("name a directory that does not exist, or is empty"),
        "engine" => Some("leave --engine away, or copy the store by `kvilt convert`"),
        "memory_budget" => Some("give --memory more"),
        _ => None,
    }
}

/// What to do, by what went wrong; none where the message says it.
fn advice(error: &Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::InvalidArgument => None,
        ErrorKind::NoSpace => {
            Some("free disk space, then run the command again; what the store held before is kept")
        }
        ErrorKind::Busy => Some("stop the other process, or wait until it has closed the store"),
        ErrorKind::Poisoned => Some("run the command again; what was durable before is safe"),
        ErrorKind::Corrupted => Some(
            "`kvilt check` shows what is damaged, and `kvilt repair` copies what is left into a new store; other \
             keys stay readable",
        ),
        ErrorKind::UnsupportedVersion => Some("use the newer kvilt that wrote it; nothing was changed"),
        ErrorKind::Io if error.advice() == Error::new(ErrorKind::Io, "").advice() => {
            Some("remove the cause, then run the command again")
        }
        ErrorKind::Io if is_denied(error) => {
            Some("run the command as the owner of the store's files, or ask the owner for access")
        }
        // The library says the same to a caller that may not write; the others never reach a command's user.
        _ => Some(error.advice()),
    }
}

fn is_denied(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_the_library_is_left() {
        let error = Error::invalid("cannot open x: there is no store").by_setting("create_if_missing");
        let words = in_words(&error);
        assert!(words.starts_with("cannot open x: there is no store; name the directory"), "{words}");
        assert!(!words.contains("create_if_missing") && !words.contains("the call"), "{words}");
        let error = Error::io("open a file", io::Error::from(io::ErrorKind::NotFound)).in_file("0001.log");
        assert_eq!(
            in_words(&error),
            "cannot open a file (file 0001.log): entity not found; remove the cause, then run the command again"
        );
        let error = Error::io("open a file", io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(in_words(&error).contains("run the command as the owner"), "{}", in_words(&error));
    }
}
