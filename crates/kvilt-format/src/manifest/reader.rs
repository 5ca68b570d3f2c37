//! The newest manifest of a directory, replayed to the root.
//!
//! Where it stands: the first thing an open reads, and nearly all it reads. Always true: the root that comes
//! out is what the last append that returned left, or the one begun after it; never an older one.

use kvilt_base::{Disk, Error, ErrorKind, FileName, Result, directory};

use super::{edit::Edit, record, root::Root, witness::Witness};
use crate::{
    FileIdentity,
    header::{self, HEADER_BYTES},
    names::{MANIFEST, WITNESS},
};

/// Reads the manifest with the highest number: the root, that number, and how many of its bytes are good.
/// None if there is no manifest.
///
/// A torn record at the end is left out; `valid_len` then is less than the file's length. Nothing may be
/// appended to a manifest that was read: make a new one ([`super::ManifestWriter::create`]).
///
/// Errors: `Corrupted` with file and offset, `UnsupportedVersion`, `Io`.
pub fn read_manifest(disk: &dyn Disk) -> Result<Option<(Root, u64, u64)>> {
    let Some(number) = highest_number(disk)? else { return Ok(None) };
    let name = FileName::Of(MANIFEST, number);
    let failed = |e| Error::io("read the manifest", e).in_file(name);
    let file = disk.open(name).map_err(failed)?;
    let len = usize::try_from(file.len().map_err(failed)?)
        .map_err(|_| Error::corrupted(name, 0, "the manifest exceeds the address space"))?;
    let mut bytes = vec![0; len];
    let read = file.read_full_at(0, &mut bytes).map_err(failed)?;
    bytes.truncate(read);
    let (root, valid_len) = replay(&bytes, name)?;
    Ok(Some((root, number, valid_len)))
}

/// Reads the newest manifest, and the witness, which must not have seen more of it than there is. None if
/// there is no store.
///
/// Errors: `Corrupted` with file and offset if synced bytes of the manifest are damaged or gone, or if there
/// is no good witness; `UnsupportedVersion`, `Io`.
pub fn read_root(disk: &dyn Disk) -> Result<Option<(Root, Witness)>> {
    let Some((root, number, valid_len)) = read_manifest(disk)? else {
        return match Witness::read(disk, None) {
            Ok(Some(witness)) if witness.claim().manifest > 0 => Err(Error::corrupted(
                FileName::Of(MANIFEST, witness.claim().manifest),
                0,
                "the manifest is missing; the witness has seen it",
            )),
            // The making of a store was cut short.
            Err(e) if e.kind() == ErrorKind::Corrupted => Ok(None),
            Ok(_) => Ok(None),
            Err(e) => Err(e),
        };
    };
    let witness = Witness::read(disk, Some(root.store_id))?
        .ok_or_else(|| Error::corrupted(WITNESS, 0, "the witness of the manifest is missing"))?;
    let claim = witness.claim();
    if claim.manifest > number {
        let message = format!("the manifest is missing; the newest there is has number {number}");
        return Err(Error::corrupted(FileName::Of(MANIFEST, claim.manifest), 0, message));
    }
    if claim.manifest == number && claim.len > valid_len {
        let message = format!("the manifest is good for {valid_len} bytes only; {} were synced", claim.len);
        return Err(Error::corrupted(FileName::Of(MANIFEST, number), valid_len, message));
    }
    Ok(Some((root, witness)))
}

/// The root after the last record before any damage of the newest manifest, for a repair; none if not even
/// the first one is good. It may be any earlier one.
///
/// Errors: `Io`.
pub fn read_prefix(disk: &dyn Disk) -> Result<Option<Root>> {
    let Some(number) = highest_number(disk)? else { return Ok(None) };
    let name = FileName::Of(MANIFEST, number);
    let failed = |e| Error::io("read the manifest", e).in_file(name);
    let file = disk.open(name).map_err(failed)?;
    let len = usize::try_from(file.len().map_err(failed)?).unwrap_or(0);
    let mut bytes = vec![0; len];
    let read = file.read_full_at(0, &mut bytes).map_err(failed)?;
    bytes.truncate(read);
    // Each record that fits is one step; the first that does not ends it.
    let Ok(header) = header::decode(&bytes, header::MANIFEST_MAGIC, name) else { return Ok(None) };
    let mut root = Root::nothing(header.id.store_id);
    let mut offset = HEADER_BYTES;
    while let record::Found::Record(body) = record::at(&bytes, header.id, offset) {
        if offset == HEADER_BYTES || !body.is_empty() {
            let applied = Edit::decode(body).ok().and_then(|edit| root.apply(&edit).ok());
            if applied.is_none() {
                break;
            }
        }
        offset += record::HEAD_BYTES + body.len();
    }
    Ok((offset > HEADER_BYTES).then_some(root))
}

fn highest_number(disk: &dyn Disk) -> Result<Option<u64>> {
    Ok(directory::numbers(&directory::list(disk)?, MANIFEST).max())
}

/// The root that the bytes of the manifest `name` lead to, and how many of them are good.
pub(super) fn replay(bytes: &[u8], name: FileName) -> Result<(Root, u64)> {
    let header = header::decode(bytes, header::MANIFEST_MAGIC, name)?;
    let id: FileIdentity = header.id;
    let mut root = Root::nothing(id.store_id);
    let mut offset = HEADER_BYTES;
    while offset < bytes.len() {
        let is_first = offset == HEADER_BYTES;
        let body = match record::at(bytes, id, offset) {
            record::Found::Record(body) => body,
            record::Found::Bad if is_first || record::is_proven_by_later(bytes, id, offset) => {
                return Err(Error::corrupted(name, offset as u64, "a manifest record is damaged"));
            }
            record::Found::Bad => break,
        };
        if is_first || !body.is_empty() {
            let edit = Edit::decode(body).map_err(|what| Error::corrupted(name, offset as u64, what.0))?;
            root.apply(&edit).map_err(|e| e.at(name, offset as u64))?;
        }
        offset += record::HEAD_BYTES + body.len();
    }
    if offset == HEADER_BYTES {
        return Err(Error::corrupted(name, offset as u64, "the manifest ends before its first record"));
    }
    Ok((root, offset as u64))
}
