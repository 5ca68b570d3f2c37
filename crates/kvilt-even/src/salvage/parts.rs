//! Reading tables and logs that may be damaged, and finding out what there is if the manifest does not say.

use std::{collections::BTreeMap, io, sync::Arc};

use kvilt_base::{
    Disk, Error, ErrorKind, File, FileName, KeyRange, Kind, RangeTombstone, Result, Version, key::successor,
};
use kvilt_format::{
    FileIdentity, HEADER_BYTES,
    log::{decode_header, salvage},
    manifest::{Edit, FileRecord, PartKind, Root, Witness},
    names::{LOG, TABLE},
    read_identity,
    table::{SalvagedBlock, SalvagedEntry, Table},
};

use super::gathering::Gathering;
use crate::{files::DeadVersions, funk::log::range_tombstone};

/// The store's directory, and how its logs are read.
pub(super) struct Parts<'s> {
    pub(super) disk: &'s dyn Disk,
    pub(super) store_id: u64,
    pub(super) dead: DeadVersions,
}

/// A file that cannot be opened because it is not there, or is no file, is damage.
pub(super) fn open_failed(error: io::Error, name: FileName) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::corrupted(name, 0, "a file that the manifest names is missing"),
        io::ErrorKind::InvalidData => Error::corrupted(name, 0, error.to_string()),
        _ => Error::io("open a file", error).in_file(name),
    }
}

/// Errors other than damage end a salvage: they may pass, and then more can be saved.
fn as_damage<T>(result: Result<T>) -> Result<Result<T, Error>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) if error.kind() == ErrorKind::Corrupted => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

impl Parts<'_> {
    /// Takes in a table of `len` bytes.
    pub(super) fn table(&self, number: u64, len: u64, into: &mut Gathering) -> Result<()> {
        let name = FileName::Of(TABLE, number);
        let id = FileIdentity { store_id: self.store_id, number };
        let opened = self.disk.open(name).map_err(|e| open_failed(e, name));
        let table = match as_damage(opened.and_then(|file| Table::open(file, id, len)))? {
            Ok(table) => Arc::new(table),
            Err(damage) => {
                into.damage(&damage, into.range().clone());
                return Ok(());
            }
        };
        let mut good = Vec::new();
        for block in 0..table.blocks() {
            match table.salvage_block(block)? {
                SalvagedBlock::Good(entries) => good.push(entries),
                SalvagedBlock::Bad { offset, from, to, message } => {
                    // Before the entries of its neighbours: they may hold older versions of a key at its
                    // ends.
                    let range = KeyRange { start: from, end: Some(successor(&to)) };
                    into.damage(&Error::corrupted(name, offset, message), range);
                }
            }
        }
        good.into_iter().flatten().for_each(|entry| into.entry(entry));
        Ok(())
    }

    /// Takes in a log, up to `record.len`; if that was synced, it must be good up to there.
    pub(super) fn log(
        &self,
        number: u64,
        record: FileRecord,
        is_synced: bool,
        into: &mut Gathering,
    ) -> Result<()> {
        let name = FileName::Of(LOG, number);
        let id = FileIdentity { store_id: self.store_id, number };
        let opened = self.disk.open(name).map_err(|e| open_failed(e, name));
        let bytes = match as_damage(opened.and_then(|file| read_up_to(&*file, name, record.len)))? {
            Ok(bytes) => bytes,
            Err(damage) => {
                into.damage(&damage, into.range().clone());
                return Ok(());
            }
        };
        // Records have the file's identity in their checksums: a damaged header alone loses nothing.
        let mut pieces: Vec<Piece> = Vec::new();
        let pieces_of = std::cell::RefCell::new(&mut pieces);
        salvage(
            &bytes,
            id,
            record.base,
            is_synced,
            &mut |entry| {
                if !self.dead.contain(entry.version) {
                    pieces_of.borrow_mut().push(if entry.kind == Kind::RangeTombstone {
                        Piece::Tombstone(range_tombstone(&entry))
                    } else {
                        Piece::Entry(SalvagedEntry::of(&entry))
                    });
                }
            },
            &mut |offset| pieces_of.borrow_mut().push(Piece::Damage(offset)),
        );
        if is_synced && (bytes.len() as u64) < record.len {
            pieces.push(Piece::Damage(bytes.len() as u64));
        }
        for piece in pieces.into_iter().rev() {
            match piece {
                Piece::Entry(entry) => into.entry(entry),
                Piece::Tombstone(tombstone) => into.tombstone(tombstone),
                Piece::Damage(offset) => {
                    let damage = Error::corrupted(name, offset, "log records that were synced are damaged");
                    into.damage(&damage, into.range().clone());
                }
            }
        }
        Ok(())
    }
}

enum Piece {
    Entry(SalvagedEntry),
    Tombstone(RangeTombstone),
    Damage(u64),
}

fn read_up_to(file: &dyn File, name: FileName, limit: u64) -> Result<Vec<u8>> {
    let failed = |e| Error::io("read a log", e).in_file(name);
    let len = file.len().map_err(failed)?.min(limit);
    let mut bytes =
        vec![0; usize::try_from(len).map_err(|_| Error::corrupted(name, 0, "the log is too long"))?];
    let read = file.read_full_at(0, &mut bytes).map_err(failed)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// A root that has every table and log of the store in one chunk, the older files first. What `prefix` knows
/// of dead versions is kept.
pub(super) fn root_of_all_files(
    disk: &dyn Disk,
    files: &BTreeMap<FileName, u64>,
    prefix: Option<Root>,
) -> Result<Root> {
    let heads = heads_of(disk, files)?;
    let store_id = match &prefix {
        Some(prefix) => prefix.store_id,
        None => match as_damage(Witness::read(disk, None))? {
            Ok(Some(witness)) => witness.store_id(),
            Ok(None) | Err(_) => {
                most_frequent(heads.iter().map(|head| head.id.store_id)).ok_or_else(|| {
                    Error::invalid(format!("no file in {} has a header that can be read", disk.place()))
                })?
            }
        },
    };
    // Tables before logs: where versions are equal, what is in a log was written later.
    let mut numbers: Vec<(bool, u64)> = Vec::new();
    let mut edit = Edit::default();
    for head in heads.iter().filter(|head| head.id.store_id == store_id) {
        let kind = if head.is_log { PartKind::Log } else { PartKind::Table };
        // How much of a log was synced is not known: all that is good is taken.
        let len = if head.is_log { u64::MAX } else { head.len };
        edit.files_upserted.push((head.id.number, FileRecord { kind, len, base: head.base, summary: None }));
        numbers.push((head.is_log, head.id.number));
    }
    numbers.sort_unstable();
    edit.chunks_upserted = vec![(Vec::new(), numbers.into_iter().map(|(_, number)| number).collect())];
    edit.next_file = Some(u64::MAX);
    let mut root = Root::new(store_id);
    if let Some(prefix) = prefix {
        edit.dead = Some(prefix.dead);
        edit.commit_first = Some(prefix.commit_first);
    }
    root.apply(&edit)?;
    Ok(root)
}

struct Head {
    id: FileIdentity,
    is_log: bool,
    base: Version,
    len: u64,
}

/// The tables and logs whose headers can be read.
fn heads_of(disk: &dyn Disk, files: &BTreeMap<FileName, u64>) -> Result<Vec<Head>> {
    let mut heads = Vec::new();
    for (&name, &len) in files {
        if !matches!(name, FileName::Of(TABLE | LOG, _)) {
            continue;
        }
        let read = disk.open(name).map_err(|e| open_failed(e, name)).and_then(|file| {
            let mut header = [0; HEADER_BYTES];
            let read =
                file.read_full_at(0, &mut header).map_err(|e| Error::io("read a file", e).in_file(name))?;
            let id = read_identity(&header[..read], name)?;
            let base = match name {
                FileName::Of(LOG, _) => decode_header(&header, name, id)?.base,
                _ => Version::ZERO,
            };
            Ok(Head { id, is_log: matches!(name, FileName::Of(LOG, _)), base, len })
        });
        if let Ok(head) = as_damage(read)? {
            heads.push(head);
        }
    }
    Ok(heads)
}

fn most_frequent(ids: impl Iterator<Item = u64>) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for id in ids {
        *counts.entry(id).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(id, _)| id)
}
