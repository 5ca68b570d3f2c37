//! `Workspace`: where the tree is, how cargo is called on it, and which files belong to it.
//!
//! Paths inside are relative to the root and separated by `/`.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

/// The checkout that this xtask works on.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The directory of the root `Cargo.toml`.
    pub(crate) root: PathBuf,
}

/// The manifest of the crate that has a workspace of its own, as it builds stores in C and C++.
pub(crate) const BENCH_COMPARE: &str = "crates/kvilt-bench-compare/Cargo.toml";

/// A text file of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// Relative to the root.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
}

/// A commit, by what it says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    /// The beginning of its hash.
    pub(crate) id: String,
    pub(crate) subject: String,
    pub(crate) body: String,
}

impl Workspace {
    /// The workspace that contains xtask. What cargo says now counts more than where we were built: two
    /// checkouts may share one target directory.
    pub(crate) fn here() -> Self {
        let xtask =
            std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&xtask).parent().expect("xtask lies below the root");
        Workspace { root: root.to_path_buf() }
    }

    /// A cargo command that starts in the root; the same cargo that runs us.
    pub(crate) fn cargo(&self) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command.current_dir(&self.root);
        // A relative one would mean another directory wherever a step starts, and each would build everything
        // again.
        if std::env::var_os("CARGO_TARGET_DIR").is_some() {
            command.env("CARGO_TARGET_DIR", self.target_directory());
        }
        command
    }

    /// Where this build's artifacts go; absolute, whatever `CARGO_TARGET_DIR` is relative to.
    pub(crate) fn target_directory(&self) -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.and_then(|target| std::path::absolute(target).ok());
        target.unwrap_or_else(|| self.root.join("target"))
    }

    /// What `cargo metadata` says about our own packages in the workspace of this manifest.
    pub(crate) fn metadata(&self, manifest: &str) -> Result<serde_json::Value> {
        let mut command = self.cargo();
        command.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path", manifest]);
        let output = command.output().context("run cargo metadata")?;
        ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).context("read cargo metadata")
    }

    /// Every text file under version control, by path; of a source archive without version control, every
    /// one.
    pub(crate) fn documents(&self) -> Result<Vec<Document>> {
        let mut paths = match self.tracked_paths() {
            Some(paths) => paths,
            None => self.all_paths()?,
        };
        paths.sort();
        let mut documents = Vec::new();
        for path in paths {
            // A file that git lists but that is gone is about to be removed; one that is not UTF-8 is data.
            let Ok(bytes) = fs::read(self.root.join(&path)) else { continue };
            if let Ok(text) = String::from_utf8(bytes) {
                documents.push(Document { path, text });
            }
        }
        Ok(documents)
    }

    /// All commits that came after `base`, merges left out; or why git does not say.
    pub(crate) fn commits_since(&self, base: &str) -> Result<Vec<Commit>, String> {
        let range = format!("{base}..HEAD");
        let output = Command::new("git")
            .args(["log", "--no-merges", "--format=%h%x00%s%x00%b%x00", &range])
            .current_dir(&self.root)
            .output()
            .map_err(|e| format!("git does not start: {e}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("the history is not here, or not all of it: {}", said.trim()));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let fields: Vec<&str> = text.split('\0').collect();
        let commit = |fields: &[&str]| Commit {
            id: fields[0].trim().to_owned(),
            subject: fields[1].to_owned(),
            body: fields[2].to_owned(),
        };
        Ok(fields.chunks_exact(3).map(commit).collect())
    }

    /// A number that belongs to the commit, another one for each; none where git does not say.
    pub(crate) fn commit_number(&self) -> Option<u32> {
        let output = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(&self.root).output().ok()?;
        u32::from_str_radix(std::str::from_utf8(&output.stdout).ok()?.get(..7)?, 16).ok()
    }

    fn tracked_paths(&self) -> Option<Vec<String>> {
        let output = Command::new("git").args(["ls-files", "-z"]).current_dir(&self.root).output().ok()?;
        let listing = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        let paths: Vec<String> = listing.split_terminator('\0').map(str::to_owned).collect();
        (!paths.is_empty()).then_some(paths)
    }

    fn all_paths(&self) -> Result<Vec<String>> {
        let mut paths = Vec::new();
        let mut pending = vec![PathBuf::new()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(self.root.join(&directory)).context("list the tree")? {
                let entry = entry?;
                let path = directory.join(entry.file_name());
                let text = path.to_string_lossy().replace('\\', "/");
                match entry.file_type()? {
                    kind if kind.is_dir() => {
                        let is_made = entry.file_name() == "target" || text == ".git";
                        pending.extend((!is_made).then_some(path));
                    }
                    kind if kind.is_file() => paths.push(text),
                    _ => {}
                }
            }
        }
        Ok(paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_found_with_or_without_version_control() {
        let workspace = Workspace::here();
        assert!(workspace.root.join("Cargo.toml").is_file());
        assert!(workspace.documents().unwrap().iter().any(|d| d.path == "Cargo.toml"));
        assert!(workspace.all_paths().unwrap().iter().any(|path| path == "xtask/src/workspace.rs"));
    }

    #[test]
    fn commits_behind_one_that_is_not_here_are_refused_with_a_reason() {
        let reason = Workspace::here().commits_since(&"0".repeat(40)).unwrap_err();
        assert!(
            reason.contains("git does not start") || reason.contains("the history is not here"),
            "{reason}"
        );
    }
}
