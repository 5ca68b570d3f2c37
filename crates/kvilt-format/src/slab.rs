//! Slabs: items in slots of fixed sizes, the map of the slots that are occupied, the root that says which map
//! counts, and the index as a clean close leaves it.
//!
//! Where it stands: the files of engine `kvell`; `docs/design/0066-kvell.md` says why they are so. Formats:
//! `docs/format/slab.md`, `occupancy-map.md`, `root.md` and `index-snapshot.md`. Nothing here reads or writes
//! a file: the engine has its own way to the drive, so bytes come in and go out.
//!
//! Always true: an item, a page of a map, a copy of the root and a block of a snapshot pass only at the place
//! of the file of the store for which they were encoded (F-2); what a crash may have torn is [`Decoded::Bad`]
//! and no error, for only the engine knows whether it counts.

mod classes;
mod item;
mod map;
mod root;
mod snapshot;

pub use classes::{CLASS_COUNT, Class};
pub use item::{
    Content, Decoded, Head, ITEM_BYTES_MAX, ITEM_HEADER_BYTES, Item, ItemKind, TOMBSTONE_BYTES, Verifier,
};
pub use map::{
    DecodedPage, MAP_BITS_BYTES, MAP_PAGE_SLOTS, MapPage, map_page_offset, newest_of_pair, pair_stamp,
};
pub use root::{IN_FLIGHT_MAX, MapTotal, ROOT_COPY_BYTES, Root, SHARDS_MAX};
pub use snapshot::{SNAPSHOT_BLOCK_BYTES_MAX, SnapshotReader, SnapshotWriter};

#[cfg(test)]
mod tests;

use kvilt_base::{Error, FileName, Result};

use crate::{
    FileIdentity,
    checksum::checksum,
    header::{self, HEADER_BYTES},
    names::{MAP, SLAB, SNAPSHOT},
};

/// Bytes of a page: what is read and written at once, and what direct I/O aligns to.
pub const PAGE_BYTES: usize = 4096;

const PAGE_CHECKSUM_OFFSET: usize = PAGE_BYTES - 4;

/// Bits of a slab's number that are the class; the others are the shard.
const CLASS_BITS: u32 = 8;

const _: () = assert!(CLASS_COUNT <= 1 << CLASS_BITS);

/// The slab of a shard and a class.
pub fn slab_name(shard: u32, class: Class) -> FileName {
    FileName::Of(SLAB, u64::from(shard) << CLASS_BITS | u64::from(class.number()))
}

/// The shard and the class of the slab with this number; none if there is no such class.
pub fn slab_of(number: u64) -> Option<(u32, Class)> {
    let shard = u32::try_from(number >> CLASS_BITS).ok()?;
    Some((shard, Class::new(number as u8)?))
}

/// The occupancy map of a shard.
pub fn map_name(shard: u32) -> FileName {
    FileName::Of(MAP, u64::from(shard))
}

/// The index snapshot of a shard.
pub fn snapshot_name(shard: u32) -> FileName {
    FileName::Of(SNAPSHOT, u64::from(shard))
}

/// The first page of the slab with this identity, whose number tells shard and class.
///
/// Panics if no class has the number.
pub fn encode_slab_header(id: FileIdentity) -> Box<[u8; PAGE_BYTES]> {
    let (_, class) = slab_of(id.number).expect("a slab's number tells its class");
    header_page(header::SLAB_MAGIC, id, class.slot_bytes() as u64)
}

/// Checks that `page` is the first page of the slab with this identity.
///
/// Errors: `Corrupted`, `UnsupportedVersion`.
pub fn check_slab_header(page: &[u8], id: FileIdentity) -> Result<()> {
    let name = FileName::Of(SLAB, id.number);
    let slot_bytes = check_header_page(page, header::SLAB_MAGIC, name, id)?;
    let class = slab_of(id.number).map(|(_, class)| class);
    if class.is_none_or(|class| class.slot_bytes() as u64 != slot_bytes) {
        let message = format!("slots of {slot_bytes} bytes are not those of the class in the slab's number");
        return Err(Error::corrupted(name, 32, message));
    }
    Ok(())
}

/// The first page of the occupancy map with this identity.
pub fn encode_map_header(id: FileIdentity) -> Box<[u8; PAGE_BYTES]> {
    header_page(header::MAP_MAGIC, id, 0)
}

/// Checks that `page` is the first page of the occupancy map with this identity.
///
/// Errors: `Corrupted`, `UnsupportedVersion`.
pub fn check_map_header(page: &[u8], id: FileIdentity) -> Result<()> {
    check_header_page(page, header::MAP_MAGIC, FileName::Of(MAP, id.number), id).map(drop)
}

/// A header, zeros, and a checksum of both, for the header's own covers no zeros.
fn header_page(magic: header::Magic, id: FileIdentity, by_kind: u64) -> Box<[u8; PAGE_BYTES]> {
    let mut page = Box::new([0; PAGE_BYTES]);
    page[..HEADER_BYTES].copy_from_slice(&header::encode(magic, id, by_kind));
    let sum = checksum(id.salt(0), &page[..PAGE_CHECKSUM_OFFSET]);
    page[PAGE_CHECKSUM_OFFSET..].copy_from_slice(&sum.to_le_bytes());
    page
}

/// The header's field by kind.
fn check_header_page(page: &[u8], magic: header::Magic, name: FileName, id: FileIdentity) -> Result<u64> {
    let header = header::decode_of(page, magic, name, id)?;
    let page: &[u8; PAGE_BYTES] =
        page.first_chunk().ok_or_else(|| Error::corrupted(name, 0, "the file ends within its first page"))?;
    let sum = checksum(id.salt(0), &page[..PAGE_CHECKSUM_OFFSET]);
    if sum.to_le_bytes() != page[PAGE_CHECKSUM_OFFSET..] {
        let message = "the checksum of the first page differs";
        return Err(Error::corrupted(name, PAGE_CHECKSUM_OFFSET as u64, message));
    }
    Ok(header.by_kind)
}

fn number_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N].try_into().expect("a range has its length")
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(number_at(bytes, offset))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(number_at(bytes, offset))
}
