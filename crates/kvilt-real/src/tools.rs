//! What the machine offers: programs, privileges; and whether the user has pressed Ctrl-C.

use std::{
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, Result, ensure};

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C and SIGTERM ask for an early end instead of making one, so that nothing stays mounted.
pub(crate) fn heed_interrupts() -> Result<()> {
    ctrlc::set_handler(|| IS_INTERRUPTED.store(true, Ordering::SeqCst)).context("listen to Ctrl-C")
}

/// Whether the user wants an end.
pub(crate) fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::SeqCst)
}

/// Where a program is; system directories count even if the path leaves them out.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a program to its end; fails with what it said.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let path = find(program).with_context(|| format!("there is no {program}"))?;
    let output = Command::new(path).args(arguments).output().with_context(|| format!("start {program}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}: {}", arguments.join(" "), output.status, told.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
