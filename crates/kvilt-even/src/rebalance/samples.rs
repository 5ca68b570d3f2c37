//! Samples of a cold chunk's log records, each with how many records it stands for and whether it is still
//! needed.
//!
//! A record is chosen with a probability that grows with its length: half of the samples are spread over the
//! records, half over their bytes. So few long records among many short ones are found, and many short ones
//! among few long ones. Lengths come from the offsets in the indexes of logs, which also tell whether a newer
//! record has the same hash; of a sampled record the key is read, and no value. Divides ask where to cut, and
//! the keeper of space how much is dead.

use std::sync::Arc;

use kvilt_base::{Kind, Result, Version, sampling::step};
use kvilt_format::log::HEADER_BYTES;
use kvilt_sync::published::pin;

use crate::{
    chunk::Chunk,
    funk::{
        Funk,
        log::ChunkLog,
        log_index::{ChargedIndex, Record},
    },
    store::Store,
};

/// At most this many times as many records are read where most of them lie in siblings' ranges.
const SHARED_MAX: u64 = 4;

/// Samples that the drive is asked for at once while it is waited for.
const TOGETHER: usize = 64;

/// One record of many.
pub(super) struct Sample {
    pub(super) key: Vec<u8>,
    pub(super) version: Version,
    /// Bytes of it and of the records that it stands for.
    pub(super) bytes: u64,
    /// How many records it stands for.
    pub(super) records: f64,
    /// Whether it is its key's newest in the logs.
    pub(super) is_newest: bool,
    /// Whether it is that, and no tombstone.
    pub(super) is_needed: bool,
}

/// A log's records, by their places.
struct Places<'f> {
    log: &'f Arc<ChunkLog>,
    index: Arc<ChargedIndex>,
    records: Vec<Record>,
    end: u64,
}

/// A record that was chosen as a sample, and not read yet.
struct Chosen<'p> {
    log: &'p Arc<ChunkLog>,
    offset: u64,
    /// How many records it stands for.
    records: f64,
    is_newest: bool,
}

impl Places<'_> {
    /// Each record with its length, about: what follows that is none of the index's counts as well.
    fn lengths(&self) -> impl Iterator<Item = (&Record, u64)> {
        let ends = self.records.iter().skip(1).map(|next| next.offset).chain([self.end]);
        self.records.iter().zip(ends).map(|(record, end)| (record, end - record.offset))
    }
}

impl Store {
    /// Samples of the chunk's records in the logs of `funk`: about as many as `wanted` says for the number of
    /// records there.
    pub(super) fn samples(
        &self,
        chunk: &Chunk,
        funk: &Funk,
        wanted: impl FnOnce(u64) -> u64,
    ) -> Result<Vec<Sample>> {
        let places = funk.logs_newest_first().map(|log| self.places(log)).collect::<Result<Vec<_>>>()?;
        let records: u64 = places.iter().map(|of| of.records.len() as u64).sum();
        let bytes: u64 = places.iter().flat_map(|of| of.lengths()).map(|(_, len)| len).sum();
        // Many records in logs that are shared may be a sibling's.
        let lens: u64 = places.iter().map(|of| of.end).sum();
        let shared = (lens / funk.log_bytes().max(1)).clamp(1, SHARED_MAX);
        // A record's weight is its share of the records and its share of the bytes, each times `records *
        // bytes`.
        let weight = |len: u64| u128::from(len) * u128::from(records) + u128::from(bytes);
        let step = step(wanted(records) * shared, records, 2 * u128::from(records) * u128::from(bytes));
        let mut chosen = Vec::new();
        let mut passed = step / 2;
        for (age, of) in places.iter().enumerate() {
            for (record, len) in of.lengths() {
                let before = passed / step;
                passed += weight(len);
                let hits = (passed / step - before) as f64;
                if hits == 0.0 {
                    continue;
                }
                let records = (hits * step as f64 / weight(len) as f64).max(1.0);
                let is_newest = record.is_newest && {
                    let pin = pin();
                    let mut newer = places[..age].iter();
                    !newer.any(|newer| newer.index.index.offsets(&pin, record.hash).next().is_some())
                };
                chosen.push(Chosen { log: of.log, offset: record.offset, records, is_newest });
            }
        }
        self.read_samples(chunk, &chosen)
    }

    /// Reads what was chosen; what is a sibling's is left out.
    fn read_samples(&self, chunk: &Chunk, chosen: &[Chosen<'_>]) -> Result<Vec<Sample>> {
        let mut of_chunk = Vec::new();
        for together in chosen.chunks(TOGETHER) {
            if self.files.reads.wait_for_the_drive() {
                together
                    .iter()
                    .try_for_each(|record| record.log.will_read_key(&self.files, record.offset))?;
            }
            for &Chosen { log, offset, records, is_newest } in together {
                let sample = log.key_at(&self.files, offset, |entry, len| {
                    chunk.range.contains(entry.key).then(|| Sample {
                        key: entry.key.to_vec(),
                        version: entry.version,
                        bytes: (len as f64 * records) as u64,
                        records,
                        is_newest,
                        is_needed: is_newest && entry.kind == Kind::Put,
                    })
                })?;
                of_chunk.extend(sample);
            }
        }
        Ok(of_chunk)
    }

    fn places<'f>(&self, log: &'f Arc<ChunkLog>) -> Result<Places<'f>> {
        // Records behind it come while this one is at work.
        let end = log.len().max(HEADER_BYTES as u64);
        let index = log.index(&self.files)?;
        let mut records: Vec<Record> = Vec::with_capacity(index.index.records() as usize);
        records.extend(index.index.every(&pin(), 1).filter(|record| record.offset < end));
        records.sort_unstable_by_key(|record| record.offset);
        Ok(Places { log, index, records, end })
    }
}
