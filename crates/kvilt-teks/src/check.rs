//! `check`: reads and verifies every sorted table, and the redo log as far as it is durable. A store that was
//! opened to be read only has read its log just then. Rows in memory are counted.

use kvilt_base::{CheckReport, Damage, Error, ErrorKind, FileName, Progress, Result};
use kvilt_format::names::TABLE;

use crate::{
    log::Part,
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
    let log = store.log.get().map(|log| (log, log.parts()));
    let log_bytes = log.iter().flat_map(|(_, parts)| parts).map(Part::bytes).sum::<u64>();
    let mut done =
        Progress { done: 0, total: tables.iter().map(|sorted| sorted.of.len).sum::<u64>() + log_bytes };
    for sorted in &tables {
        let mut is_cancelled = false;
        let verified = verify(store, sorted, &mut report.damages, &mut |bytes| {
            is_cancelled = !progress(Progress { done: done.done + bytes, ..done });
            !is_cancelled
        });
        if is_cancelled {
            report.files += 1;
            report.is_cancelled = true;
            return Ok(report);
        }
        report.entries += note(&mut report, verified)?.unwrap_or(0);
        report.bytes += sorted.of.len;
        done.done += sorted.of.len;
    }
    for (log, part) in log.iter().flat_map(|(log, parts)| parts.iter().map(move |part| (log, part))) {
        if !progress(done) {
            report.is_cancelled = true;
            return Ok(report);
        }
        let verified = log.verify(*part);
        if !matches!(verified, Ok(false)) {
            note(&mut report, verified)?;
            report.bytes += part.bytes();
        }
        done.done += part.bytes();
    }
    if log.is_none() {
        let read = store.log_files()?;
        report.files += read.files;
        report.bytes += read.bytes;
    }
    progress(Progress { done: done.total, ..done });
    Ok(report)
}

/// Counts a file, and takes its damage into the report.
fn note<T>(report: &mut CheckReport, verified: Result<T>) -> Result<Option<T>> {
    report.files += 1;
    match verified {
        Err(error) if error.kind() == ErrorKind::Corrupted => {
            report.damages.push(damage(&error));
            Ok(None)
        }
        verified => verified.map(Some),
    }
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
