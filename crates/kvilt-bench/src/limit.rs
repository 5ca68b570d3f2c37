//! A ceiling on this process's memory, page cache included: a control group (version 1) of its own.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

/// Where the memory controller's groups are.
const GROUPS: &str = "/sys/fs/cgroup/memory";

/// This process lives in a group with a ceiling until this is dropped.
pub struct Limit(PathBuf);

impl Limit {
    /// Moves this process, and those that it will start, under a ceiling. Needs the rights of root.
    pub fn impose(bytes: u64) -> Result<Limit> {
        let group = group_of(std::process::id());
        fs::create_dir(&group).with_context(|| format!("no control group {}", group.display()))?;
        let limit = Limit(group);
        limit.write("memory.limit_in_bytes", bytes)?;
        limit.write("cgroup.procs", u64::from(std::process::id()))?;
        Ok(limit)
    }

    /// Removes the group of a process that was killed and could not do so itself.
    pub fn clear_of(process: u32) {
        let _ = fs::remove_dir(group_of(process));
    }

    fn write(&self, file: &str, figure: u64) -> Result<()> {
        let path = self.0.join(file);
        fs::write(&path, figure.to_string()).with_context(|| format!("{figure} to {}", path.display()))
    }
}

fn group_of(process: u32) -> PathBuf {
    PathBuf::from(GROUPS).join(format!("kvilt-bench-{process}"))
}

impl Drop for Limit {
    fn drop(&mut self) {
        // Back to where it came from, more or less; a group that still has somebody in it stays.
        let _ = fs::write(PathBuf::from(GROUPS).join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(&self.0);
    }
}
