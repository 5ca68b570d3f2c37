//! Salvage: everything of a damaged store that provably is its newest content, and a list of what may be
//! lost.
//!
//! A row is given away only if nothing newer of its key can be among what is damaged. So each chunk is read
//! from its newest part to its oldest, and damage of a part hides what lies under it in the parts behind:
//!
//! | damaged | keys that may be lost |
//! | --- | --- |
//! | a block of a table | those between its neighbours' separators |
//! | a table's header, footer or index; a missing file | the chunk's |
//! | a log's records | the chunk's, but for keys with an entry behind the damage |
//! | a commit log | all that were written since the last checkpoint: that is, any |
//! | manifest or witness | any: rows are gathered from every file, and none is proven |
//!
//! Nothing here writes to the store's directory. One chunk at a time is in memory; without a manifest, all
//! rows are.

mod gathering;
mod parts;

use std::collections::BTreeMap;

use kvilt_base::{
    Damage, Disk, Error, ErrorKind, FileName, KeyRange, Listed, RepairReport, Result, Salvaged, directory,
};
use kvilt_format::{
    FileIdentity,
    commit::{Change, CommitReader},
    manifest::{PartKind, Root, read_manifest, read_prefix, read_root},
    names::{COMMIT, LOG, TABLE, WITNESS},
};

use self::{gathering::Gathering, parts::Parts};
use crate::files::DeadVersions;

/// Locks the store in `disk` as one who reads it does, until what this returns is dropped: for who prepares a
/// salvage, and would not do so in vain.
///
/// Errors: `Busy`; `InvalidArgument` if there is nothing of a store; `UnsupportedVersion`; `Io`.
pub fn lock_to_salvage(disk: &dyn Disk) -> Result<Box<dyn std::any::Any + Send + Sync>> {
    let lock = directory::lock_to_read(disk)?;
    match read_root(disk) {
        Err(error) if error.kind() != ErrorKind::Corrupted => return Err(error),
        Ok(None) => {
            let listed = directory::list(disk)?;
            let has_rows = |l: &Listed| matches!(l, Listed::Ours(name) if is_of_rows(*name));
            if !listed.iter().any(has_rows) {
                return Err(nothing_of_a_store(disk));
            }
        }
        Err(_) | Ok(Some(_)) => {}
    }
    Ok(lock)
}

fn nothing_of_a_store(disk: &dyn Disk) -> Error {
    let what = match disk.list() {
        Ok(listed) if listed.is_empty() => "the directory is empty",
        Ok(_) | Err(_) => "no file in it is a table, a log or a manifest of a store",
    };
    Error::invalid(format!("there is nothing of a store in {}: {what}", disk.place()))
}

/// Gives all that can be saved of the store in `disk`, which nobody can open to write meanwhile, to `save`.
/// `progress` is told the bytes read of all bytes there are.
///
/// Errors: those of `save`; `Busy`; `InvalidArgument` if there is nothing of a store; `Io` if a file cannot
/// be read for a reason other than damage; `UnsupportedVersion`.
pub fn salvage(
    disk: &dyn Disk,
    save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport> {
    let _lock = directory::lock_to_read(disk)?;
    let listed = directory::list(disk)?;
    let mut files = BTreeMap::new();
    for entry in listed {
        if let Listed::Ours(name) = entry {
            files.insert(name, directory::len_of(disk, name)?);
        }
    }
    let mut report = RepairReport { is_proven: true, ..RepairReport::default() };
    let (root, dead) = find_root(disk, &files, &mut report)?;
    let parts = Parts { disk, store_id: root.store_id, dead };
    let is_read = |name: &FileName| match name {
        FileName::Of(TABLE | LOG, number) => root.files.contains_key(number),
        FileName::Of(COMMIT, number) => *number >= root.commit_first,
        _ => false,
    };
    let total = files.iter().filter(|(name, _)| is_read(name)).map(|(_, len)| len).sum();
    let mut salvage = Salvage { parts, files: &files, report, done: 0, total, progress };
    let ends = root.chunks.keys().skip(1).cloned().map(Some).chain([None]);
    for ((start, numbers), end) in root.chunks.iter().zip(ends) {
        let range = KeyRange { start: start.clone(), end };
        salvage.chunk(&root, &range, numbers, save)?;
    }
    salvage.commit_logs(&root, save)?;
    (salvage.progress)(total, total);
    Ok(salvage.report)
}

fn is_of_rows(name: FileName) -> bool {
    matches!(name, FileName::Of(TABLE | LOG | COMMIT, _))
}

/// The versions that no reader may see, as the next open would find them: see `recovery.rs`.
fn dead_versions(root: &Root) -> DeadVersions {
    let mut dead = root.dead.clone();
    dead.push((root.checkpoint, root.checkpoint.next_epoch()));
    DeadVersions(dead)
}

/// The root; if it is not proven to be the newest, one made of every file there is.
fn find_root(
    disk: &dyn Disk,
    files: &BTreeMap<FileName, u64>,
    report: &mut RepairReport,
) -> Result<(Root, DeadVersions)> {
    let error = match read_root(disk) {
        Ok(Some((root, _))) => {
            let dead = dead_versions(&root);
            return Ok((root, dead));
        }
        Ok(None) if !files.keys().any(|name| is_of_rows(*name)) => {
            return Err(nothing_of_a_store(disk));
        }
        Ok(None) => Error::new(ErrorKind::Corrupted, "the manifest is missing"),
        Err(error) if error.kind() == ErrorKind::Corrupted => error,
        Err(error) => return Err(error),
    };
    report.is_proven = false;
    report.losses.push(Damage {
        what: "F-8".to_string(),
        file: error.file().map(str::to_string),
        offset: error.offset(),
        range: Some(KeyRange::all()),
        message: format!(
            "{}; so it is not proven which files were the last: any row may be older than it was, or deleted since",
            error.message()
        ),
    });
    if error.file() == Some(&WITNESS.to_string())
        && let Ok(Some((root, _, _))) = read_manifest(disk)
    {
        // The manifest itself is sound as far as it goes.
        let dead = dead_versions(&root);
        return Ok((root, dead));
    }
    let root = parts::root_of_all_files(disk, files, read_prefix(disk)?)?;
    // What of the last run was synced is not known, so nothing of it is ignored.
    let dead = DeadVersions(root.dead.clone());
    Ok((root, dead))
}

/// A salvage on its way.
struct Salvage<'s> {
    parts: Parts<'s>,
    /// What there is, and its length.
    files: &'s BTreeMap<FileName, u64>,
    report: RepairReport,
    /// Bytes read so far, of a file that chunks share the part of each.
    done: u64,
    total: u64,
    progress: &'s mut dyn FnMut(u64, u64),
}

impl Salvage<'_> {
    fn chunk(
        &mut self,
        root: &Root,
        range: &KeyRange,
        numbers: &[u64],
        save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut gathering = Gathering::new(range.clone());
        let is_proven = self.report.is_proven;
        for number in numbers.iter().rev() {
            let record = &root.files[number];
            match record.kind {
                PartKind::Table => self.parts.table(*number, record.len, &mut gathering)?,
                // Without a manifest it is not known how much of a log was synced.
                PartKind::Log => self.parts.log(*number, *record, record.len < u64::MAX, &mut gathering)?,
            }
            let name = record.kind.name(*number);
            self.done += self.files.get(&name).unwrap_or(&0) / u64::from(root.users(*number).max(1));
            (self.progress)(self.done, self.total);
        }
        for loss in gathering.take_losses() {
            self.report.losses.push(loss);
        }
        for (key, value, is_row_proven) in gathering.into_rows() {
            if is_row_proven || !is_proven {
                self.report.rows += 1;
                self.report.bytes += (key.len() + value.len()) as u64;
                save(Salvaged::Row(&key, &value))?;
            } else {
                self.report.rows_withheld += 1;
            }
        }
        Ok(())
    }

    /// What sync mode had acknowledged since the last checkpoint.
    fn commit_logs(&mut self, root: &Root, save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>) -> Result<()> {
        for (name, len) in self.files {
            let FileName::Of(COMMIT, number) = name else { continue };
            if *number < root.commit_first {
                continue;
            }
            if let Err(error) = self.commit_log(*number, save) {
                if error.kind() != ErrorKind::Corrupted {
                    return Err(error);
                }
                self.report.losses.push(Damage {
                    what: "F-2".to_string(),
                    file: Some(name.to_string()),
                    offset: error.offset(),
                    range: Some(KeyRange::all()),
                    message: format!("writes since the last checkpoint may be lost: {}", error.message()),
                });
                // What came later must not be applied without what is lost, so what was copied may be older
                // than it was.
                self.report.is_proven = false;
                return Ok(());
            }
            self.done += len;
            (self.progress)(self.done, self.total);
        }
        Ok(())
    }

    fn commit_log(&mut self, number: u64, save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>) -> Result<()> {
        let name = FileName::Of(COMMIT, number);
        let file = self.parts.disk.open(name).map_err(|e| parts::open_failed(e, name))?;
        let id = FileIdentity { store_id: self.parts.store_id, number };
        if file.is_empty().map_err(|e| Error::io("ask for a commit log's length", e).in_file(name))? {
            return Ok(());
        }
        let mut reader = CommitReader::open(file, id)?;
        while let Some((_, changes)) = reader.next()? {
            for change in changes {
                match change {
                    Change::Put { key, value } => {
                        self.report.rows += 1;
                        self.report.bytes += (key.len() + value.len()) as u64;
                        save(Salvaged::Row(key, value))?;
                    }
                    Change::Delete { key } => save(Salvaged::Delete(key))?,
                    Change::DeleteRange { start, end } => {
                        let range = KeyRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) };
                        save(Salvaged::DeleteRange(range))?;
                    }
                }
            }
        }
        Ok(())
    }
}
