//! `check`: reads and verifies every sorted table. What is in memory was verified when the log was read, and
//! is counted.

use kvilt_base::{CheckReport, Damage, Error, ErrorKind, Progress, Result};

use crate::store::Store;

/// Verifies the store. `progress` returns false to cancel.
pub(crate) fn check(store: &Store, progress: &mut dyn FnMut(Progress) -> bool) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let sources = store.sources_now();
    report.entries = sources.memories().map(|memory| memory.table.fill().keys as u64).sum();
    let total = sources.sorted().map(|sorted| sorted.of.len).sum();
    let mut done = 0;
    for sorted in sources.sorted() {
        report.files += 1;
        let mut is_cancelled = false;
        let verified = sorted.table.verify(&mut |bytes| {
            is_cancelled = !progress(Progress { done: done + bytes, total });
            !is_cancelled
        });
        if is_cancelled {
            report.is_cancelled = true;
            return Ok(report);
        }
        match verified {
            Ok(entries) => report.entries += entries,
            Err(error) if error.kind() == ErrorKind::Corrupted => report.damages.push(damage(&error)),
            Err(error) => return Err(error),
        }
        done += sorted.of.len;
        report.bytes += sorted.of.len;
    }
    progress(Progress { done: total, total });
    Ok(report)
}

fn damage(error: &Error) -> Damage {
    Damage {
        what: "checksum".to_owned(),
        file: error.file().map(ToString::to_string),
        offset: error.offset(),
        range: None,
        message: error.message().to_owned(),
    }
}
