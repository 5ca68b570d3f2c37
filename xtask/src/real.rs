//! `cargo xtask real …`: the tests on the real operating system, built for release; words are handed to
//! `kvilt-real`.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace::Workspace;

/// Builds the command under test beside the one that tests it, and runs that.
pub(crate) fn run(workspace: &Workspace, words: &[&str]) -> Result<()> {
    let build = ["build", "--release", "--package", "kvilt-cli", "--package", "kvilt-real"];
    let status = workspace.cargo().args(build).status().context("start cargo")?;
    ensure!(status.success(), "cargo {}: {status}", build.join(" "));
    let program = workspace.target_directory().join("release/kvilt-real");
    println!("$ kvilt-real {}", words.join(" "));
    let mut child =
        Command::new(program).args(words).stdout(Stdio::piped()).spawn().context("start kvilt-real")?;
    // What failed is said again at the end of the check: this far up nobody looks, and a record may leave it
    // out.
    let mut failures = Vec::new();
    for line in BufReader::new(child.stdout.take().context("it is piped")?).lines() {
        let line = line.context("read what kvilt-real tells")?;
        println!("{line}");
        if line.starts_with("FAILED") {
            failures.push(line);
        }
    }
    let status = child.wait().context("wait for kvilt-real")?;
    if !status.success() {
        bail!("kvilt-real {}: {status}\n{}", words.join(" "), failures.join("\n"));
    }
    Ok(())
}
