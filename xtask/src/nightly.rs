//! `Nightly`: the toolchain that fuzzing, miri and the sanitizers need, and what of it is there.
//!
//! Nothing that everybody must build needs it. What is missing is installed if that can be had; if not,
//! whoever asked is told why, and skips loudly.

use std::{path::PathBuf, process::Command};

use crate::workspace::Workspace;

/// A nightly toolchain with the components that were asked for.
#[derive(Debug)]
pub(crate) struct Nightly {
    root: PathBuf,
}

impl Nightly {
    /// The toolchain with these components, installed if need be; or why it is not to be had.
    pub(crate) fn with(workspace: &Workspace, components: &[&str]) -> Result<Self, String> {
        let nightly = Nightly { root: workspace.root.clone() };
        if !succeeds(nightly.rustup(&["run", "nightly", "cargo", "--version"])) {
            let install = ["toolchain", "install", "nightly", "--profile", "minimal"];
            if !succeeds(nightly.rustup(&install)) {
                return Err("there is no nightly toolchain, and rustup could not install one".into());
            }
        }
        let installed =
            nightly.rustup(&["component", "list", "--toolchain", "nightly", "--installed"]).output();
        let installed = installed.map_err(|e| format!("ask rustup for components: {e}"))?;
        let installed = String::from_utf8_lossy(&installed.stdout).into_owned();
        for component in components {
            let is_there = installed.lines().any(|line| line.starts_with(component));
            if !is_there
                && !succeeds(nightly.rustup(&["component", "add", "--toolchain", "nightly", component]))
            {
                return Err(format!("nightly has no component {component}, and rustup could not install it"));
            }
        }
        Ok(nightly)
    }

    /// A cargo command of this toolchain, started in the root. `target` is the directory for its artifacts.
    pub(crate) fn cargo(&self, target: &PathBuf) -> Command {
        let mut command = self.rustup(&["run", "nightly", "cargo"]);
        command.env("CARGO_TARGET_DIR", target);
        command
    }

    fn rustup(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("rustup");
        command.args(arguments).current_dir(&self.root);
        // What the cargo that runs us says of its own toolchain must not reach another one.
        for name in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTFLAGS", "RUSTDOC"] {
            command.env_remove(name);
        }
        command
    }
}

/// The triple of this machine, which sanitizers must be told.
pub(crate) fn host() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Says why something is left out, so that nobody takes it for done.
pub(crate) fn skip(what: &str, reason: &str) {
    println!("SKIP {what}: {reason}");
}

fn succeeds(mut command: Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
