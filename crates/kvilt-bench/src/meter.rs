//! What this process has used, as the kernel counts it, and differences of it.

use std::{fs, time::Duration};

use serde_json::{Value, json};

/// Counters of this process at one moment. Those that the kernel does not offer are zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    /// Bytes that went, or will go, to the device; what was dropped before it got there is taken off.
    pub written_bytes: u64,
    /// Bytes fetched from the device.
    pub read_bytes: u64,
    /// System calls that read.
    pub read_calls: u64,
    /// System calls that write.
    pub write_calls: u64,
    /// Time on a processor, in user code and in the kernel.
    pub processor: Duration,
}

impl Meter {
    /// Reads the counters.
    pub fn now() -> Meter {
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let figure = |name| figure_in(&io, name);
        Meter {
            written_bytes: figure("write_bytes:").saturating_sub(figure("cancelled_write_bytes:")),
            read_bytes: figure("read_bytes:"),
            read_calls: figure("syscr:"),
            write_calls: figure("syscw:"),
            processor: processor_time(),
        }
    }

    /// What was used since an earlier moment.
    pub fn since(&self, earlier: &Meter) -> Meter {
        Meter {
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            read_calls: self.read_calls.saturating_sub(earlier.read_calls),
            write_calls: self.write_calls.saturating_sub(earlier.write_calls),
            processor: self.processor.saturating_sub(earlier.processor),
        }
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "written_bytes": self.written_bytes,
            "read_bytes": self.read_bytes,
            "read_calls": self.read_calls,
            "write_calls": self.write_calls,
            "processor_seconds": self.processor.as_secs_f64(),
        })
    }
}

/// Memory that is resident now, and the most that ever was, in bytes.
pub fn resident_bytes() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    (figure_in(&status, "VmRSS:") << 10, figure_in(&status, "VmHWM:") << 10)
}

/// Bytes that a directory's files take on the device.
pub fn disk_bytes(directory: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;

    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let bytes = entries.flatten().filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        Some(if metadata.is_dir() { disk_bytes(&entry.path()) } else { metadata.blocks() * 512 })
    });
    bytes.sum()
}

/// The load that others put on the machine, as the kernel's average over a minute.
pub fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn figure_in(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
    line.split_whitespace().next().and_then(|figure| figure.parse().ok()).unwrap_or(0)
}

/// User and system time, fields 14 and 15 of the process's line, in ticks of 10 ms.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in brackets, and may hold anything.
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        behind_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
