//! `Group`: a control group whose processes have a limit of memory, removed in the end.
//!
//! Version 2 of the kernel's interface where its hierarchy has the memory controller, else version 1. Only
//! root may make one, and in some containers nobody: then [`obstacle`] says why.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result, ensure};

use crate::tools;

/// Where the two versions are mounted.
const PLACE: &str = "/sys/fs/cgroup";
const PLACE_OF_VERSION_1: &str = "/sys/fs/cgroup/memory";

/// A control group of memory.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    /// Says, in a line `oom_kill N`, how many of its processes the kernel has killed.
    events: &'static str,
}

/// Why no group can be made here; none if one can.
pub(crate) fn obstacle() -> Option<String> {
    Group::new(1 << 30).err().map(|error| format!("{error:#}"))
}

impl Group {
    /// An empty group that may have `bytes` of memory, and no swap.
    pub(crate) fn new(bytes: u64) -> Result<Group> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        ensure!(tools::is_root(), "only root may make a control group");
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("kvilt-real-{}-{number}", std::process::id());
        let controllers = fs::read_to_string(Path::new(PLACE).join("cgroup.controllers"));
        let has_memory = |controllers: String| controllers.split_whitespace().any(|word| word == "memory");
        if controllers.is_ok_and(has_memory) {
            fs::write(Path::new(PLACE).join("cgroup.subtree_control"), "+memory")
                .context("have control groups, version 2, limit memory")?;
            return Group::at(
                Path::new(PLACE).join(name),
                "memory.events",
                bytes,
                ["memory.max", "memory.swap.max"],
            );
        }
        let limits = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
        Group::at(Path::new(PLACE_OF_VERSION_1).join(name), "memory.oom_control", bytes, limits)
    }

    fn at(path: PathBuf, events: &'static str, bytes: u64, [limit, swap]: [&str; 2]) -> Result<Group> {
        fs::create_dir(&path).context("make a control group of memory")?;
        let group = Group { path, events };
        fs::write(group.path.join(limit), bytes.to_string()).context("limit a control group")?;
        // Version 1 limits memory and swap together, version 2 swap alone; a kernel without swap has neither
        // file.
        let swap_bytes = if swap == "memory.swap.max" { 0 } else { bytes };
        let _ = fs::write(group.path.join(swap), swap_bytes.to_string());
        Ok(group)
    }

    /// The words that put a command into it.
    pub(crate) fn wrapper(&self) -> Vec<String> {
        let line = format!("echo $$ > '{}' && exec \"$0\" \"$@\"", self.path.join("cgroup.procs").display());
        ["sh".to_string(), "-c".to_string(), line].into()
    }

    /// How many of its processes the kernel has killed for want of memory.
    pub(crate) fn kills(&self) -> Result<u64> {
        let events = fs::read_to_string(self.path.join(self.events)).context("ask a control group")?;
        let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.context("the kernel does not count what it kills")?.trim().parse().context("read a count")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Empty by now: its processes have ended.
        let _ = fs::remove_dir(&self.path);
    }
}
