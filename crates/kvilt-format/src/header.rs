//! The 64 bytes that every file begins with.
//!
//! Where it stands: logs, commit logs, tables, manifests and both halves of the witness all start with it,
//! and so do slabs, occupancy maps, index snapshots and both copies of a slab engine's root. Always true: its
//! layout and its checksum stay as they are in every format version, so that any Kvilt can tell a newer file
//! from a damaged one (F-1, F-7).
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | magic, by kind of file |
//! | 8 | 4 | format version |
//! | 12 | 4 | checksum of bytes 0–11 and 16–63, salt 0 |
//! | 16 | 8 | store id |
//! | 24 | 8 | file number |
//! | 32 | 8 | by kind: a log's base version; the generation of a witness or a root, or of the root that an index snapshot belongs to; the position of a segment in the redo log; the bytes of a slab's slots; else zero |
//! | 40 | 8 | features that a reader must know: bit 0, of a log or a manifest, summaries |
//! | 48 | 16 | zero |

use kvilt_base::{Error, ErrorKind, FileName, Result};

use crate::{
    FileIdentity,
    checksum::checksum,
    names::{
        COMMIT, JOURNAL, LEVELS, LOG, MANIFEST, MANIFEST_TEMP, MAP, REDO, ROOT, SLAB, SNAPSHOT, TABLE,
        WITNESS,
    },
};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;

/// The format version that this code writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

pub(crate) type Magic = [u8; 8];
pub(crate) const LOG_MAGIC: Magic = *b"KVILTlog";
pub(crate) const COMMIT_MAGIC: Magic = *b"KVILTcom";
pub(crate) const TABLE_MAGIC: Magic = *b"KVILTtab";
pub(crate) const MANIFEST_MAGIC: Magic = *b"KVILTman";
pub(crate) const WITNESS_MAGIC: Magic = *b"KVILTwit";
pub(crate) const JOURNAL_MAGIC: Magic = *b"KVILTjou";
pub(crate) const REDO_MAGIC: Magic = *b"KVILTred";
pub(crate) const LEVELS_MAGIC: Magic = *b"KVILTlev";
pub(crate) const SLAB_MAGIC: Magic = *b"KVILTsla";
pub(crate) const MAP_MAGIC: Magic = *b"KVILTmap";
pub(crate) const ROOT_MAGIC: Magic = *b"KVILTroo";
pub(crate) const SNAPSHOT_MAGIC: Magic = *b"KVILTidx";

/// A log may have summaries; a manifest may say where in a log the last one lies.
const SUMMARIES: u64 = 1;

/// What a reader of such files must know, and this one does.
fn features_of(magic: Magic) -> u64 {
    match magic {
        LOG_MAGIC | MANIFEST_MAGIC => SUMMARIES,
        _ => 0,
    }
}

/// What a valid header says.
pub(crate) struct Header {
    pub(crate) id: FileIdentity,
    /// The field at offset 32.
    pub(crate) by_kind: u64,
}

pub(crate) fn encode(magic: Magic, id: FileIdentity, by_kind: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&magic);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&id.store_id.to_le_bytes());
    bytes[24..32].copy_from_slice(&id.number.to_le_bytes());
    bytes[32..40].copy_from_slice(&by_kind.to_le_bytes());
    bytes[40..48].copy_from_slice(&features_of(magic).to_le_bytes());
    let sum = header_checksum(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Whose file `name` is, by its header, when nothing else tells.
///
/// Errors: `Corrupted`, `UnsupportedVersion`.
pub fn read_identity(bytes: &[u8], name: FileName) -> Result<FileIdentity> {
    let magic = match name {
        FileName::Of(LOG, _) => LOG_MAGIC,
        FileName::Of(COMMIT, _) => COMMIT_MAGIC,
        FileName::Of(TABLE, _) => TABLE_MAGIC,
        FileName::Of(MANIFEST | MANIFEST_TEMP, _) => MANIFEST_MAGIC,
        WITNESS => WITNESS_MAGIC,
        FileName::Of(JOURNAL, _) => JOURNAL_MAGIC,
        FileName::Of(REDO, _) => REDO_MAGIC,
        FileName::Of(LEVELS, _) => LEVELS_MAGIC,
        FileName::Of(SLAB, _) => SLAB_MAGIC,
        FileName::Of(MAP, _) => MAP_MAGIC,
        FileName::Of(SNAPSHOT, _) => SNAPSHOT_MAGIC,
        ROOT => ROOT_MAGIC,
        FileName::Once(_) | FileName::Of(..) => {
            return Err(Error::corrupted(name, 0, "files of this kind have no header"));
        }
    };
    decode(bytes, magic, name).map(|header| header.id)
}

/// Decodes the header of the file `name`, whose number must be in it.
pub(crate) fn decode(bytes: &[u8], magic: Magic, name: FileName) -> Result<Header> {
    let bytes: &[u8; HEADER_BYTES] = bytes
        .get(..HEADER_BYTES)
        .and_then(|head| head.try_into().ok())
        .ok_or_else(|| Error::corrupted(name, 0, "the file ends within its header"))?;
    if bytes[..8] != magic {
        return Err(Error::corrupted(name, 0, "the file does not begin with the magic of its kind"));
    }
    // The checksum comes before the version: a flipped bit in the version is damage, not a newer Kvilt.
    let (expected, got) = (header_checksum(bytes), u32_at(bytes, 12));
    if expected != got {
        let message = format!("header checksum differs: expected {expected:08x}, got {got:08x}");
        return Err(Error::corrupted(name, 12, message));
    }
    let (version, features) = (u32_at(bytes, 8), u64_at(bytes, 40));
    if version > FORMAT_VERSION || features & !features_of(magic) != 0 {
        let message = format!(
            "format version {version} with features {features:#x}; this Kvilt reads up to version {FORMAT_VERSION}"
        );
        return Err(Error::new(ErrorKind::UnsupportedVersion, message).at(name, 8));
    }
    if version == 0 {
        return Err(Error::corrupted(name, 8, "format version zero was never written"));
    }
    let id = FileIdentity { store_id: u64_at(bytes, 16), number: u64_at(bytes, 24) };
    if id.number != name.number() {
        let message = format!("the header belongs to file number {}: files were swapped", id.number);
        return Err(Error::corrupted(name, 24, message));
    }
    Ok(Header { id, by_kind: u64_at(bytes, 32) })
}

/// Decodes a header that must name the store of `id`, too.
pub(crate) fn decode_of(bytes: &[u8], magic: Magic, name: FileName, id: FileIdentity) -> Result<Header> {
    let header = decode(bytes, magic, name)?;
    if header.id.store_id != id.store_id {
        let message =
            format!("the file belongs to store {:016x}, not {:016x}", header.id.store_id, id.store_id);
        return Err(Error::corrupted(name, 16, message));
    }
    Ok(header)
}

/// Whether `bytes` begin with a header that was written as a whole, of whatever file and version.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|bytes| header_checksum(bytes) == u32_at(bytes, 12))
}

fn header_checksum(bytes: &[u8; HEADER_BYTES]) -> u32 {
    checksum(checksum(0, &bytes[..12]), &bytes[16..])
}

fn u32_at(bytes: &[u8; HEADER_BYTES], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8; HEADER_BYTES], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FileIdentity = FileIdentity { store_id: 77, number: 5 };

    fn kind_of(bytes: &[u8]) -> Option<ErrorKind> {
        decode_of(bytes, LOG_MAGIC, FileName::Of(LOG, 5), ID).err().map(|e| e.kind())
    }

    /// F-1: the header is what a reader trusts first, so nothing in it may change unnoticed.
    #[test]
    fn a_header_comes_back_and_every_flip_and_cut_is_found() {
        let good = encode(LOG_MAGIC, ID, 9);
        let header = decode_of(&good, LOG_MAGIC, FileName::Of(LOG, 5), ID).unwrap();
        assert_eq!((header.id, header.by_kind), (ID, 9));
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(kind_of(&bad), Some(ErrorKind::Corrupted), "bit {bit}");
        }
        for cut in 0..good.len() {
            assert_eq!(kind_of(&good[..cut]), Some(ErrorKind::Corrupted), "cut {cut}");
        }
    }

    /// Files of before there were summaries are read; and what has none says that there are none.
    #[test]
    fn a_header_without_features_is_read() {
        assert_eq!(encode(TABLE_MAGIC, ID, 0)[40..48], [0; 8]);
        let mut older = encode(LOG_MAGIC, ID, 9);
        assert_eq!(older[40], 1);
        older[40] = 0;
        let sum = header_checksum(&older);
        older[12..16].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(decode_of(&older, LOG_MAGIC, FileName::Of(LOG, 5), ID).unwrap().by_kind, 9);
    }

    /// F-7: a newer format is told apart from damage, and from another file.
    #[test]
    fn other_files_stores_kinds_and_newer_formats_are_told_apart() {
        let swapped = encode(LOG_MAGIC, FileIdentity { number: 6, ..ID }, 9);
        let foreign = encode(LOG_MAGIC, FileIdentity { store_id: 78, ..ID }, 9);
        let table = encode(TABLE_MAGIC, ID, 9);
        for bytes in [swapped, foreign, table] {
            assert_eq!(kind_of(&bytes), Some(ErrorKind::Corrupted));
        }
        for (offset, value) in [(8, 2), (40, 2)] {
            let mut newer = encode(LOG_MAGIC, ID, 9);
            newer[offset] = value;
            let sum = header_checksum(&newer);
            newer[12..16].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(kind_of(&newer), Some(ErrorKind::UnsupportedVersion));
        }
    }
}
