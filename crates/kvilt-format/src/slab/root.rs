//! The root of a store of slabs: which cut of the occupancy maps counts, which run of the store wrote it, and
//! what was chosen when the store was made.
//!
//! Where it stands: the file `ROOT`, which makes a cut count; format: `docs/format/root.md`. Always true: of
//! its two copies the one is written that is not the newest, after the newest was synced, so a torn write
//! leaves the root before; two copies that are both bad are corruption, never "there is no root".

use kvilt_base::{Error, ErrorKind, Level, Result, Version, disk::Habitat};

use super::{Class, PAGE_BYTES, PAGE_CHECKSUM_OFFSET, number_at, u32_at, u64_at};
use crate::{
    FileIdentity,
    checksum::checksum,
    header::{self, HEADER_BYTES},
    names::ROOT,
};

/// Bytes of one copy; the file has two.
pub const ROOT_COPY_BYTES: usize = PAGE_BYTES;

/// Most shards of a store: the root has twelve bytes for each.
pub const SHARDS_MAX: usize = 64;

/// Most writes that a root can name as in flight.
pub const IN_FLIGHT_MAX: usize = (PAGE_CHECKSUM_OFFSET - IN_FLIGHT_OFFSET) / size_of::<u64>();

const CUT_OFFSET: usize = HEADER_BYTES;
const VERSION_OFFSET: usize = 72;
const IN_FLIGHT_COUNT_OFFSET: usize = 80;
const HASH_KEY_OFFSET: usize = 88;
const BOOT_OFFSET: usize = 104;
const DEVICE_OFFSET: usize = 120;
const INODE_OFFSET: usize = 128;
const SHARDS_OFFSET: usize = 136;
const EPOCH_OFFSET: usize = 140;
const LEVEL_OFFSET: usize = 144;
const CLEAN_OFFSET: usize = 145;
const CLASSES_OFFSET: usize = 148;
const MAPS_OFFSET: usize = 152;
const MAP_BYTES: usize = 12;

/// An epoch is the high 24 bits of a version.
const EPOCH_MAX: u32 = (1 << (u64::BITS - kvilt_base::version::COUNT_BITS)) - 1;

const IN_FLIGHT_OFFSET: usize = MAPS_OFFSET + SHARDS_MAX * MAP_BYTES;

/// What the root knows of a shard's occupancy map: a map that lost pages, or has older ones, is not that of
/// the cut (F-9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapTotal {
    /// Pairs of pages.
    pub pairs: u32,
    /// The sum, modulo 2^64, of [`super::pair_stamp`] of all its pairs.
    pub stamps: u64,
}

/// A root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The store.
    pub store_id: u64,
    /// One more for each root of the store; below `u64::MAX`.
    pub generation: u64,
    /// The cut of the maps: pages of later cuts do not count.
    pub cut: u64,
    /// The newest version that a write had begun with at the cut.
    pub version: Version,
    /// Versions of the writes that had begun and were not over, ascending: at most [`IN_FLIGHT_MAX`].
    pub in_flight: Vec<Version>,
    /// The key of the hash that says which shard a key belongs to.
    pub hash_key: [u8; 16],
    /// The epoch of the run that wrote this root.
    pub epoch: u32,
    /// The level of durability of that run.
    pub level: Level,
    /// Where that run was: in another boot, or another directory, what it did not sync may be missing.
    pub habitat: Habitat,
    /// The store was closed with this root, so index snapshots of this generation count.
    pub is_clean: bool,
    /// The map of each shard: 1 to [`SHARDS_MAX`] of them.
    pub maps: Vec<MapTotal>,
}

impl Root {
    /// Which copy this root is: 0 or 1.
    pub fn copy(&self) -> usize {
        (self.generation % 2) as usize
    }

    /// Where in the file it is to be written.
    pub fn offset(&self) -> u64 {
        (self.copy() * ROOT_COPY_BYTES) as u64
    }

    /// The bytes of its copy.
    ///
    /// Panics if a number is not within its limits.
    pub fn encode(&self) -> Box<[u8; ROOT_COPY_BYTES]> {
        if let Err(what) = self.check() {
            panic!("a root is not to be written: {what}");
        }
        let id = FileIdentity { store_id: self.store_id, number: 0 };
        let mut bytes = Box::new([0; ROOT_COPY_BYTES]);
        let mut put = |offset: usize, part: &[u8]| bytes[offset..offset + part.len()].copy_from_slice(part);
        put(0, &header::encode(header::ROOT_MAGIC, id, self.generation));
        put(CUT_OFFSET, &self.cut.to_le_bytes());
        put(VERSION_OFFSET, &self.version.to_u64().to_le_bytes());
        put(IN_FLIGHT_COUNT_OFFSET, &(self.in_flight.len() as u32).to_le_bytes());
        for (number, version) in self.in_flight.iter().enumerate() {
            put(IN_FLIGHT_OFFSET + number * size_of::<u64>(), &version.to_u64().to_le_bytes());
        }
        put(HASH_KEY_OFFSET, &self.hash_key);
        put(BOOT_OFFSET, &self.habitat.boot);
        put(DEVICE_OFFSET, &self.habitat.device.to_le_bytes());
        put(INODE_OFFSET, &self.habitat.inode.to_le_bytes());
        put(SHARDS_OFFSET, &(self.maps.len() as u32).to_le_bytes());
        put(EPOCH_OFFSET, &self.epoch.to_le_bytes());
        put(LEVEL_OFFSET, &[u8::from(self.level == Level::Sync)]);
        put(CLEAN_OFFSET, &[u8::from(self.is_clean)]);
        put(CLASSES_OFFSET, &Class::table_checksum().to_le_bytes());
        for (shard, map) in self.maps.iter().enumerate() {
            put(MAPS_OFFSET + shard * MAP_BYTES, &map.pairs.to_le_bytes());
            put(MAPS_OFFSET + shard * MAP_BYTES + 4, &map.stamps.to_le_bytes());
        }
        let sum = checksum(id.salt(self.copy() as u64), &bytes[..PAGE_CHECKSUM_OFFSET]);
        bytes[PAGE_CHECKSUM_OFFSET..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn check(&self) -> Result<(), &'static str> {
        let wrong = [
            (self.generation == u64::MAX, "there is no generation behind its own"),
            (self.in_flight.len() > IN_FLIGHT_MAX, "it names too many writes in flight"),
            (!self.in_flight.is_sorted_by(|a, b| a < b), "its writes in flight are in no order"),
            (self.epoch > EPOCH_MAX, "its epoch exceeds 24 bits"),
            (self.maps.is_empty(), "it has no shards"),
            (self.maps.len() > SHARDS_MAX, "it has too many shards"),
        ];
        wrong.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, what)| Err(what))
    }

    /// Decodes the copy 0 or 1.
    ///
    /// Errors: `Corrupted`; `UnsupportedVersion`, also if the store has other size classes.
    pub fn decode(bytes: &[u8], copy: usize) -> Result<Root> {
        let offset = (copy * ROOT_COPY_BYTES) as u64;
        let damaged = |what: &str| Error::corrupted(ROOT, offset, what);
        let header = header::decode(bytes, header::ROOT_MAGIC, ROOT)
            .map_err(|e| if e.kind() == ErrorKind::Corrupted { damaged(e.message()) } else { e })?;
        let bytes: &[u8; ROOT_COPY_BYTES] =
            bytes.try_into().map_err(|_| damaged("a copy of the root has another length"))?;
        let sum = checksum(header.id.salt(copy as u64), &bytes[..PAGE_CHECKSUM_OFFSET]);
        if sum != u32_at(bytes, PAGE_CHECKSUM_OFFSET) {
            return Err(damaged("the checksum of a copy of the root differs"));
        }
        if u32_at(bytes, CLASSES_OFFSET) != Class::table_checksum() {
            let message = "the store has other size classes than this Kvilt";
            let offset = offset + CLASSES_OFFSET as u64;
            return Err(Error::new(ErrorKind::UnsupportedVersion, message).at(ROOT, offset));
        }
        let root = Root {
            store_id: header.id.store_id,
            generation: header.by_kind,
            cut: u64_at(bytes, CUT_OFFSET),
            version: Version::from_u64(u64_at(bytes, VERSION_OFFSET)),
            in_flight: in_flight_of(bytes).ok_or_else(|| damaged("the root names too many writes"))?,
            hash_key: number_at(bytes, HASH_KEY_OFFSET),
            epoch: u32_at(bytes, EPOCH_OFFSET),
            level: match bytes[LEVEL_OFFSET] {
                0 => Level::Async,
                1 => Level::Sync,
                _ => return Err(damaged("the root's level of durability is unknown")),
            },
            habitat: Habitat {
                boot: number_at(bytes, BOOT_OFFSET),
                device: u64_at(bytes, DEVICE_OFFSET),
                inode: u64_at(bytes, INODE_OFFSET),
            },
            is_clean: match bytes[CLEAN_OFFSET] {
                0 => false,
                1 => true,
                _ => return Err(damaged("the root does not say whether the store was closed")),
            },
            maps: maps_of(bytes).ok_or_else(|| damaged("the root has too many shards"))?,
        };
        root.check().map_err(|what| damaged(&format!("the root makes no sense: {what}")))?;
        if root.copy() != copy {
            return Err(damaged("a copy of the root has a generation that does not belong there"));
        }
        Ok(root)
    }

    /// The root that counts, of the bytes of the whole file: the newest that is good. None if nothing was
    /// ever written.
    ///
    /// Errors: `Corrupted` if no copy is good, or if they are of two stores; `UnsupportedVersion` if a copy
    /// is.
    pub fn newest(file: &[u8]) -> Result<Option<Root>> {
        let mut newest: Option<Root> = None;
        let mut first_error = None;
        for copy in 0..2 {
            let start = (copy * ROOT_COPY_BYTES).min(file.len());
            let bytes = &file[start..(start + ROOT_COPY_BYTES).min(file.len())];
            if bytes.iter().all(|byte| *byte == 0) {
                continue;
            }
            match (Root::decode(bytes, copy), &newest) {
                (Ok(root), Some(other)) if root.store_id != other.store_id => {
                    let message = "the two copies of the root belong to two stores";
                    return Err(Error::corrupted(ROOT, start as u64, message));
                }
                (Ok(root), Some(other)) if root.generation < other.generation => {}
                (Ok(root), _) => newest = Some(root),
                (Err(e), _) if e.kind() == ErrorKind::UnsupportedVersion => return Err(e),
                (Err(e), _) => {
                    first_error.get_or_insert(e);
                }
            }
        }
        match (newest, first_error) {
            (None, Some(e)) => Err(e),
            (newest, _) => Ok(newest),
        }
    }
}

fn in_flight_of(bytes: &[u8; ROOT_COPY_BYTES]) -> Option<Vec<Version>> {
    let count =
        usize::try_from(u32_at(bytes, IN_FLIGHT_COUNT_OFFSET)).ok().filter(|&n| n <= IN_FLIGHT_MAX)?;
    let version = |number| Version::from_u64(u64_at(bytes, IN_FLIGHT_OFFSET + number * size_of::<u64>()));
    Some((0..count).map(version).collect())
}

fn maps_of(bytes: &[u8; ROOT_COPY_BYTES]) -> Option<Vec<MapTotal>> {
    let shards = usize::try_from(u32_at(bytes, SHARDS_OFFSET)).ok().filter(|&n| n <= SHARDS_MAX)?;
    let maps = bytes[MAPS_OFFSET..].chunks_exact(MAP_BYTES).take(shards);
    Some(maps.map(|map| MapTotal { pairs: u32_at(map, 0), stamps: u64_at(map, 4) }).collect())
}
