//! `Samples`: some records of a cold chunk's logs, in proportion, with whether they are still needed.
//!
//! Indexes of logs tell whether a newer record has the same hash; only the sampled records are read. Divides ask where
//! to cut, and the keeper of space how much is dead.

use std::sync::Arc;

use kvilt_base::{Kind, Result, Version};
use kvilt_format::log::record_len_max;
use kvilt_sync::published::pin;

use crate::{
    chunk::Chunk,
    funk::{Funk, log_index::ChargedIndex},
    store::Store,
};

/// At most this many times as many records are read where most of them lie in siblings' ranges.
const SHARED_MAX: u64 = 4;

/// One record of many.
pub(super) struct Sample {
    pub(super) key: Vec<u8>,
    pub(super) version: Version,
    pub(super) bytes: u64,
    /// Whether it is its key's newest in the logs.
    pub(super) is_newest: bool,
    /// Whether it is that, and no tombstone.
    pub(super) is_needed: bool,
}

/// Records of a chunk, from all its logs in proportion.
pub(super) struct Samples {
    pub(super) of_chunk: Vec<Sample>,
    /// Each stands for this many records.
    pub(super) step: u64,
}

impl Store {
    /// About `wanted` records of the chunk from the logs of `funk`.
    pub(super) fn samples(&self, chunk: &Chunk, funk: &Funk, wanted: u64) -> Result<Samples> {
        let logs: Vec<_> = funk.logs_newest_first().collect();
        let indexes = logs.iter().map(|log| log.index(&self.files)).collect::<Result<Vec<_>>>()?;
        let records: u64 = indexes.iter().map(|index| index.index.records()).sum();
        // Many records in logs that are shared may be a sibling's.
        let lens: u64 = logs.iter().map(|log| log.len()).sum();
        let shared = (lens / funk.log_bytes().max(1)).clamp(1, SHARED_MAX);
        let step = (records / (wanted * shared)).max(1);
        let mut found = Vec::new();
        {
            let pin = pin();
            for (age, (log, index)) in logs.iter().zip(&indexes).enumerate() {
                let is_in =
                    |hash: u32, newer: &Arc<ChargedIndex>| newer.index.offsets(&pin, hash).next().is_some();
                found.extend(index.index.every(&pin, step as usize).map(|record| {
                    let is_newest =
                        record.is_newest && !indexes[..age].iter().any(|newer| is_in(record.hash, newer));
                    (log, record.offset, is_newest)
                }));
            }
        }
        let mut of_chunk = Vec::new();
        for (log, offset, is_newest) in found {
            log.outline_at(&self.files, offset, |entry, value_len| {
                if chunk.range.contains(entry.key) {
                    of_chunk.push(Sample {
                        key: entry.key.to_vec(),
                        version: entry.version,
                        bytes: record_len_max(entry.key.len(), value_len) as u64,
                        is_newest,
                        is_needed: is_newest && entry.kind == Kind::Put,
                    });
                }
            })?;
        }
        Ok(Samples { of_chunk, step })
    }
}
