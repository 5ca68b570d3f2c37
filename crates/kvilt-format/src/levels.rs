//! The catalogue of a log-structured store: which sorted tables it has at which level, where its log begins,
//! and which run of the store wrote this.
//!
//! Where it stands: a file `<number>.levels` for each state; the one with the highest number that is whole
//! counts. Format: `docs/format/levels.md`. Always true: a catalogue is written whole, to a new file, and
//! synced with its name before what it does not need any more is removed. So a torn one leaves the one
//! before; and from level 1 on the tables of a level are in order and do not overlap.

use kvilt_base::{Error, FileName, KeyRange, Level, RangeTombstone, Result, Version, disk::Habitat};

use crate::{
    FileIdentity,
    coding::{Decoder, Malformed, push_prefixed, push_varint},
    header::{self, HEADER_BYTES},
    names::LEVELS,
    record::{self, Found},
};

/// Most levels of a store, level 0 included.
pub const LEVELS_MAX: usize = 8;

/// Bytes that a table takes here, at least, and a range tombstone.
const TABLE_BYTES_MIN: usize = 5;
const TOMBSTONE_BYTES_MIN: usize = 3;

/// A sorted table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOf {
    /// The number of its file.
    pub number: u64,
    /// Bytes of it.
    pub len: u64,
    /// The lowest version in it: a range delete with this version or a lower one hides nothing in it.
    pub version_min: Version,
    /// Its first key.
    pub first_key: Vec<u8>,
    /// Its last key.
    pub last_key: Vec<u8>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    /// The store.
    pub store_id: u64,
    /// The number of the file; above those of all catalogues before.
    pub number: u64,
    /// The epoch of the run that wrote it: all versions in tables are of this or earlier ones.
    pub epoch: u32,
    /// The level of durability of that run.
    pub level: Level,
    /// Where that run was: in another boot, or another directory, what it did not sync may be missing.
    pub habitat: Habitat,
    /// The highest number that a table, or a catalogue, was ever given.
    pub last_file: u64,
    /// The first segment of the redo log that is needed.
    pub log_first: u64,
    /// Up to where the redo log was synced: segment and offset.
    pub log_synced: (u64, u64),
    /// Tables by level. Those of level 0 may overlap, and the newest is first.
    pub levels: Vec<Vec<TableOf>>,
    /// Range deletes that still hide something in a table.
    pub tombstones: Vec<RangeTombstone>,
}

impl Levels {
    /// The bytes of its file.
    ///
    /// Panics if it has more than [`LEVELS_MAX`] levels, or tables that are in no order.
    pub fn encode(&self) -> Vec<u8> {
        if let Err(Malformed(what)) = self.check() {
            panic!("a catalogue is not to be written: {what}");
        }
        let mut body = Vec::new();
        push_varint(&mut body, u64::from(self.epoch));
        body.push(u8::from(self.level == Level::Sync));
        body.extend_from_slice(&self.habitat.boot);
        body.extend_from_slice(&self.habitat.device.to_le_bytes());
        body.extend_from_slice(&self.habitat.inode.to_le_bytes());
        for number in [self.last_file, self.log_first, self.log_synced.0, self.log_synced.1] {
            push_varint(&mut body, number);
        }
        push_varint(&mut body, self.levels.len() as u64);
        for tables in &self.levels {
            push_varint(&mut body, tables.len() as u64);
            for table in tables {
                push_varint(&mut body, table.number);
                push_varint(&mut body, table.len);
                push_varint(&mut body, table.version_min.to_u64());
                push_prefixed(&mut body, &table.first_key);
                push_prefixed(&mut body, &table.last_key);
            }
        }
        push_varint(&mut body, self.tombstones.len() as u64);
        for RangeTombstone { range, version } in &self.tombstones {
            push_varint(&mut body, version.to_u64());
            push_prefixed(&mut body, &range.start);
            body.push(u8::from(range.end.is_some()));
            range.end.iter().for_each(|end| push_prefixed(&mut body, end));
        }
        let id = FileIdentity { store_id: self.store_id, number: self.number };
        let mut bytes = header::encode(header::LEVELS_MAGIC, id, 0).to_vec();
        record::push(&mut bytes, &body, id, HEADER_BYTES as u64).expect("a catalogue has less than 4 GiB");
        bytes
    }

    /// Decodes the file with this number.
    ///
    /// Errors: `Corrupted`, also if it was written in part only; `UnsupportedVersion`.
    pub fn decode(bytes: &[u8], number: u64) -> Result<Levels> {
        let name = FileName::Of(LEVELS, number);
        let id = header::decode(bytes, header::LEVELS_MAGIC, name)?.id;
        let damaged = |what: &str| Error::corrupted(name, HEADER_BYTES as u64, what);
        let Found::Record(body) = record::at(bytes, id, HEADER_BYTES) else {
            return Err(damaged("the catalogue is not whole"));
        };
        if HEADER_BYTES + record::HEAD_BYTES + body.len() != bytes.len() {
            return Err(damaged("there is something behind the catalogue"));
        }
        Levels::decode_body(body, id).map_err(|Malformed(what)| damaged(what))
    }

    fn decode_body(body: &[u8], id: FileIdentity) -> Result<Levels, Malformed> {
        let mut decoder = Decoder::new(body);
        let levels = Levels {
            store_id: id.store_id,
            number: id.number,
            epoch: u32::try_from(decoder.varint()?).map_err(|_| Malformed("its epoch exceeds 32 bits"))?,
            level: if flag(&mut decoder)? { Level::Sync } else { Level::Async },
            habitat: Habitat { boot: boot(&mut decoder)?, device: decoder.u64()?, inode: decoder.u64()? },
            last_file: decoder.varint()?,
            log_first: decoder.varint()?,
            log_synced: (decoder.varint()?, decoder.varint()?),
            levels: levels_of(&mut decoder)?,
            tombstones: tombstones_of(&mut decoder)?,
        };
        if !decoder.is_empty() {
            return Err(Malformed("the catalogue has bytes behind its end"));
        }
        levels.check()?;
        Ok(levels)
    }

    fn check(&self) -> Result<(), Malformed> {
        if self.levels.len() > LEVELS_MAX {
            return Err(Malformed("it has too many levels"));
        }
        if self.levels.iter().flatten().any(|table| table.first_key > table.last_key) {
            return Err(Malformed("a table ends before it begins"));
        }
        let is_in_order = |tables: &Vec<TableOf>| tables.is_sorted_by(|a, b| a.last_key < b.first_key);
        if !self.levels.iter().skip(1).all(is_in_order) {
            return Err(Malformed("tables of a level overlap"));
        }
        let mut numbers: Vec<u64> = self.levels.iter().flatten().map(|table| table.number).collect();
        numbers.sort_unstable();
        if !numbers.is_sorted_by(|a, b| a < b) || numbers.last().is_some_and(|last| *last > self.last_file) {
            return Err(Malformed("two tables have one number, or one has a number that was never given"));
        }
        Ok(())
    }
}

fn levels_of(decoder: &mut Decoder<'_>) -> Result<Vec<Vec<TableOf>>, Malformed> {
    let count = decoder.count(1)?;
    let mut levels = Vec::with_capacity(count.min(LEVELS_MAX));
    for _ in 0..count {
        let count = decoder.count(TABLE_BYTES_MIN)?;
        let tables: Result<Vec<TableOf>, Malformed> = (0..count).map(|_| table_of(decoder)).collect();
        levels.push(tables?);
    }
    Ok(levels)
}

fn table_of(decoder: &mut Decoder<'_>) -> Result<TableOf, Malformed> {
    Ok(TableOf {
        number: decoder.varint()?,
        len: decoder.varint()?,
        version_min: Version::from_u64(decoder.varint()?),
        first_key: decoder.prefixed()?.to_vec(),
        last_key: decoder.prefixed()?.to_vec(),
    })
}

fn tombstones_of(decoder: &mut Decoder<'_>) -> Result<Vec<RangeTombstone>, Malformed> {
    let count = decoder.count(TOMBSTONE_BYTES_MIN)?;
    let tombstone = |_| {
        let version = Version::from_u64(decoder.varint()?);
        let start = decoder.prefixed()?.to_vec();
        let end = if flag(decoder)? { Some(decoder.prefixed()?.to_vec()) } else { None };
        Ok(RangeTombstone { range: KeyRange { start, end }, version })
    };
    (0..count).map(tombstone).collect()
}

fn flag(decoder: &mut Decoder<'_>) -> Result<bool, Malformed> {
    match decoder.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed("something that is yes or no is neither")),
    }
}

fn boot(decoder: &mut Decoder<'_>) -> Result<[u8; 16], Malformed> {
    Ok(decoder.bytes(16)?.try_into().expect("as many as were asked for"))
}

#[cfg(test)]
mod tests {
    use kvilt_base::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    fn table(number: u64, keys: std::ops::RangeInclusive<u8>) -> TableOf {
        let version_min = Version::new(1, number);
        let (first_key, last_key) = (vec![*keys.start()], vec![*keys.end()]);
        TableOf { number, len: 1000 + number, version_min, first_key, last_key }
    }

    fn levels() -> Levels {
        Levels {
            store_id: 7,
            number: 12,
            epoch: 3,
            level: Level::Sync,
            habitat: Habitat { boot: [9; 16], device: 4, inode: 5 },
            last_file: 11,
            log_first: 40,
            log_synced: (42, 4096),
            levels: vec![
                vec![table(11, 1..=9), table(9, 0..=200)],
                vec![table(3, 0..=4), table(5, 5..=5)],
                vec![],
            ],
            tombstones: vec![
                RangeTombstone {
                    range: KeyRange { start: vec![3], end: Some(vec![4]) },
                    version: Version::new(2, 9),
                },
                RangeTombstone { range: KeyRange { start: vec![], end: None }, version: Version::new(3, 1) },
            ],
        }
    }

    #[test]
    fn a_catalogue_comes_back_and_every_cut_and_flip_is_found() {
        let good = levels().encode();
        assert_eq!(Levels::decode(&good, 12).unwrap(), levels());
        for len in 0..good.len() {
            assert_eq!(Levels::decode(&good[..len], 12).unwrap_err().kind(), ErrorKind::Corrupted, "{len}");
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Levels::decode(&bad, 12).unwrap_err().kind(), ErrorKind::Corrupted, "bit {bit}");
        }
        assert_eq!(Levels::decode(&[&good[..], &[0]].concat(), 12).unwrap_err().kind(), ErrorKind::Corrupted);
        assert_eq!(Levels::decode(&good, 13).unwrap_err().kind(), ErrorKind::Corrupted);
    }

    #[test]
    fn what_makes_no_sense_is_refused_though_its_checksums_are_right() {
        let wrong: [fn(&mut Levels); 5] = [
            |levels| levels.levels = vec![vec![]; LEVELS_MAX + 1],
            |levels| levels.levels[1].swap(0, 1),
            |levels| levels.levels[1][1].first_key = vec![4],
            |levels| levels.levels[0][0].number = 3,
            |levels| levels.last_file = 10,
        ];
        for make_wrong in wrong {
            let mut levels = levels();
            make_wrong(&mut levels);
            assert!(levels.check().is_err(), "{levels:?}");
        }
    }

    proptest! {
        /// F-3, for bodies with a right checksum: any bytes, and a good body with one byte changed.
        #[test]
        fn any_body_decodes_or_not(
            any in prop::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index, byte: u8, is_any: bool,
        ) {
            let id = FileIdentity { store_id: 7, number: 12 };
            let mut bytes = levels().encode().split_off(HEADER_BYTES + record::HEAD_BYTES);
            *at.get_mut(&mut bytes) = byte;
            let bytes = if is_any { any } else { bytes };
            let mut file = header::encode(header::LEVELS_MAGIC, id, 0).to_vec();
            record::push(&mut file, &bytes, id, HEADER_BYTES as u64).unwrap();
            if let Ok(levels) = Levels::decode(&file, 12) {
                prop_assert_eq!(levels.encode(), file, "one catalogue, one encoding");
            }
        }
    }
}
