//! One run of one store in a process of its own, which nobody waits for longer than agreed: a store that
//! hangs, or is killed for its memory, costs a comparison this one run.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::limit::Limit;

/// What is run.
pub struct Errand<'a> {
    /// The store's name.
    pub store: &'a str,
    /// Which run, from 1; it is the seed, too.
    pub run: u32,
    /// The scenario, as arguments of `one`.
    pub arguments: &'a [String],
    /// Where the store gets a directory of its own, removed afterwards.
    pub directory: &'a Path,
    /// How long it may take.
    pub patience: Duration,
}

impl Errand<'_> {
    /// Runs it; `told` gets each measurement, with the store's name and the run.
    ///
    /// # Errors
    ///
    /// If the run failed, was killed, or took too long; it is over in any case.
    pub fn run(&self, told: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
        let directory = tempfile::Builder::new().prefix("kvilt-bench-").tempdir_in(self.directory)?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["one", "--store", self.store, "--dir"])
            .arg(directory.path().join("store"))
            .args(self.arguments)
            .args(["--seed", &self.run.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("a run in a process of its own")?;
        let outcome = self.listen(&mut child, told);
        if outcome.is_err() {
            // It may be over already; what matters is that it is.
            let _ = child.kill();
        }
        let status = child.wait()?;
        Limit::clear_of(child.id());
        outcome?;
        ensure!(status.success(), "{status}");
        Ok(())
    }

    fn listen(&self, child: &mut Child, told: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let (tell, heard) = mpsc::channel();
        thread::spawn(move || lines.map(|line| tell.send(line)).take_while(Result::is_ok).count());
        let begun = Instant::now();
        loop {
            let line = match heard.recv_timeout(self.patience.saturating_sub(begun.elapsed())) {
                Ok(line) => line?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => bail!("not done after {} s", self.patience.as_secs()),
            };
            let mut measured: Value = serde_json::from_str(&line).context("a run prints JSON lines")?;
            if measured["kind"] == "failed" {
                bail!("{}", measured["why"].as_str().unwrap_or("it did not say why"));
            }
            measured["store"] = json!(self.store);
            measured["run"] = json!(self.run);
            told(measured)?;
        }
    }
}
