//! `cargo xtask real …`: the tests on the real operating system, built for release; words are handed to `kvilt-real`.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::workspace::Workspace;

/// Builds the command under test beside the one that tests it, and runs that.
pub(crate) fn run(workspace: &Workspace, words: &[&str]) -> Result<()> {
    let build = ["build", "--release", "--package", "kvilt-cli", "--package", "kvilt-real"];
    let status = workspace.cargo().args(build).status().context("start cargo")?;
    ensure!(status.success(), "cargo {}: {status}", build.join(" "));
    let program = workspace.target_directory().join("release/kvilt-real");
    println!("$ kvilt-real {}", words.join(" "));
    let status = Command::new(program).args(words).status().context("start kvilt-real")?;
    ensure!(status.success(), "kvilt-real {}: {status}", words.join(" "));
    Ok(())
}
