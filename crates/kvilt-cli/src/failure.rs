//! `Failure`: why a command ends early, and with which exit code.

use std::{
    io::{self, Write},
    process::ExitCode,
};

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
    /// The store refused or failed.
    Store(kvilt::Error),
    /// The store, or this program, is not as it should be.
    Damaged(String),
    /// Results could not be written.
    Output(io::Error),
    /// The user pressed Ctrl-C.
    Cancelled(String),
}

impl From<kvilt::Error> for Failure {
    fn from(error: kvilt::Error) -> Self {
        Failure::Store(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

impl Failure {
    /// Tells it on standard error, and gives the exit code.
    pub(crate) fn report(self, as_json: bool) -> ExitCode {
        let (code, kind, message) = match self {
            // Who reads our output has seen enough, as `head` does: not a failure.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Failure::Output(error) => (3, "output", format!("cannot write the output: {error}")),
            Failure::NotFound(message) => (1, "not-found", message),
            Failure::Usage(message) => (2, "usage", message),
            Failure::Input(message) => (2, "input", message),
            Failure::Store(error) => (3, error.kind().name(), error.to_string()),
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
