//! `check`: reads and verifies every sorted table. What is in memory was verified when the log was read, and
//! is counted.

use kvilt_base::{CheckReport, Damage, Error, ErrorKind, FileName, Progress, Result};
use kvilt_format::names::TABLE;

use crate::{
    sources::{Sorted, open_table},
    store::Store,
};

/// Verifies the store. `progress` returns false to cancel.
pub(crate) fn check(store: &Store, progress: &mut dyn FnMut(Progress) -> bool) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let sources = store.sources_now();
    report.entries = sources.unflushed().map(|memory| memory.table.fill().keys as u64).sum();
    // Not all sources: memory tables that are let go of meanwhile are not to wait for the end.
    let tables = sources.levels.into_iter().flatten().collect::<Vec<_>>();
    let total = tables.iter().map(|sorted| sorted.of.len).sum();
    let mut done = 0;
    for sorted in &tables {
        report.files += 1;
        let mut is_cancelled = false;
        let verified = verify(store, sorted, &mut report.damages, &mut |bytes| {
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

/// Opens a table anew, so that header, footer, filter and index are read from the disk, and reads it. One
/// that was merged meanwhile may have no name any more; it is read as it is open.
fn verify(
    store: &Store,
    sorted: &Sorted,
    damages: &mut Vec<Damage>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<u64> {
    let table = match open_table(&*store.disk, store.store_id, &sorted.of) {
        // A merge publishes its sources before it removes files.
        Err(_) if !store.sources_now().sorted().any(|other| other.of.number == sorted.of.number) => {
            return sorted.table.verify(progress);
        }
        opened => opened?,
    };
    if table.has_damaged_filter() {
        damages.push(Damage {
            what: "F-5".to_owned(),
            file: Some(FileName::Of(TABLE, sorted.of.number).to_string()),
            offset: Some(table.filter_offset()),
            range: None,
            message: "the filter is damaged; lookups go on without it".to_owned(),
        });
    }
    table.verify(progress)
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
