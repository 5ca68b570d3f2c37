//! Runs the command.

use std::{
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// What a run of the command left behind.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The output of a run that must have gone well.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// The errors of a run that must have ended with this code.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        self.stderr
    }
}

/// A directory with a store in it, and the command.
pub(crate) struct Store {
    dir: TempDir,
}

impl Store {
    pub(crate) fn new() -> Self {
        Store { dir: tempfile::tempdir().unwrap() }
    }

    /// Where the store is.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// Writes a file beside the store.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_string()
    }

    /// `kvilt COMMAND STORE ARGUMENTS`.
    pub(crate) fn run(&self, command: &str, arguments: &[&str]) -> Ran {
        self.run_with(command, arguments, b"")
    }

    /// The same, with bytes on standard input.
    pub(crate) fn run_with(&self, command: &str, arguments: &[&str], stdin: &[u8]) -> Ran {
        let path = self.path();
        let mut all = vec![command, path.to_str().unwrap()];
        all.extend_from_slice(arguments);
        kvilt(&all, stdin)
    }
}

/// The built program.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_kvilt"))
}

/// `kvilt ARGUMENTS`, with bytes on standard input.
pub(crate) fn kvilt<A: AsRef<OsStr>>(arguments: &[A], stdin: &[u8]) -> Ran {
    let mut child = Command::new(program())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().expect("it was not killed"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
