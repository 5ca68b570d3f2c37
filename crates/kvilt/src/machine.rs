//! How many cores this process may use, and how much memory: the machine's, or less if a control group says
//! so.
//!
//! A container's limit stands in a file of its control group or of one above it, in version 1 or 2 of that
//! interface. The smallest number found wins. What cannot be read is left out; a machine about which nothing
//! can be read is taken for a small one.

use std::path::{Path, PathBuf};

/// Taken if nothing can be read.
const UNKNOWN_MACHINE_BYTES: u64 = 1 << 30;

/// Cores that this process may use.
pub(crate) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX))
}

/// Memory that this process may use, in bytes.
pub(crate) fn memory_bytes() -> u64 {
    memory_bytes_below(Path::new("/"))
}

/// The same, where the system's files lie below `root`.
fn memory_bytes_below(root: &Path) -> u64 {
    let read = |path: PathBuf| std::fs::read_to_string(path).ok();
    let machine = read(root.join("proc/meminfo")).and_then(|text| machine_bytes(&text));
    let groups = read(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&root.join("sys/fs/cgroup"), &groups)
        .into_iter()
        .filter_map(|path| read(path)?.trim().parse::<u64>().ok());
    limits.chain(machine).min().unwrap_or(UNKNOWN_MACHINE_BYTES)
}

/// The machine's memory, of the text of `/proc/meminfo`.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The files that may limit this process: those of its groups and of all groups above. `groups` is the text
/// of `/proc/self/cgroup`, whose lines read `hierarchy:controllers:path`; version 2 has hierarchy 0 and no
/// controllers.
fn limit_files(mount: &Path, groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (top, name) = if controllers.is_empty() {
            (mount.to_path_buf(), "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (mount.join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        let group = Path::new(group.trim_start_matches('/'));
        // In a container the group's own path is often not mounted, and its limit stands at the top.
        files.extend(group.ancestors().map(|above| top.join(above).join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lays out a machine of 8 GiB with these group files, and says what this process may use.
    fn check(groups: &str, files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        let all =
            [("proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n"), ("proc/self/cgroup", groups)];
        for (path, text) in all.iter().chain(files) {
            let path = root.path().join(path);
            #[expect(clippy::disallowed_methods, reason = "the test lays out the system's files")]
            {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
        }
        memory_bytes_below(root.path())
    }

    #[test]
    fn the_smallest_limit_wins() {
        assert_eq!(check("", &[]), 8 << 30);
        let group = "0::/a/b\n";
        assert_eq!(check(group, &[("sys/fs/cgroup/a/b/memory.max", "max\n")]), 8 << 30);
        assert_eq!(check(group, &[("sys/fs/cgroup/a/memory.max", "1073741824\n")]), 1 << 30);
        assert_eq!(check(group, &[("sys/fs/cgroup/memory.max", "1048576\n")]), 1 << 20);
        let old = "5:cpu:/x\n4:memory:/docker/x\n";
        assert_eq!(check(old, &[("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "4096\n")]), 4096);
        let unlimited = [("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(check(old, &unlimited), 8 << 30);
    }

    #[test]
    fn a_machine_that_says_nothing_is_small() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(memory_bytes_below(root.path()), UNKNOWN_MACHINE_BYTES);
        assert!(memory_bytes() > 0);
    }
}
