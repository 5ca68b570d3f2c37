//! The stores of `even` that are damaged: the first has plenty of tables, the second more logs. Their lives
//! have splits, rewrites and evictions, with and without compression.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use kvilt_base::{Durability, FileName, Result};
use kvilt_even::options::Compression;
use kvilt_format::{
    manifest::{read_manifest, read_root},
    names::MANIFEST,
};
use kvilt_io::MemoryDisk;

use super::Even;
use crate::subject::{LastEnd, Recipe, Subject};

pub(super) fn references() -> Vec<Recipe> {
    [2 << 10, 16 << 10].map(|log_bytes_max| recipe(&with_logs(log_bytes_max))).into()
}

fn recipe(even: &Even) -> Recipe {
    let with = |compression| {
        let mut even = even.clone();
        even.options.compression = compression;
        Box::new(even) as Box<dyn Subject>
    };
    Recipe {
        earlier: vec![with(Compression::None), with(Compression::Lz4)],
        last: with(Compression::None),
        end: LastEnd::PowerCut,
        synced,
        // The witness knows how long the manifest was.
        is_unfound_when_older: |_| false,
    }
}

fn with_logs(log_bytes_max: u64) -> Even {
    let mut even = Even::tiny();
    let options = &mut even.options;
    options.settings.durability = Durability::Async { interval: Duration::from_millis(300) };
    options.chunk_bytes_max = 24 << 10;
    options.chunk_bytes_rebalance = 18 << 10;
    options.chunk_bytes_min = 2 << 10;
    options.log_bytes_max_cold = log_bytes_max;
    options.log_bytes_max_cached = log_bytes_max;
    options.log_bytes_max_unread = log_bytes_max;
    options.block_bytes = 1 << 10;
    options.log_buffer_bytes_max = 256;
    // So little that chunks lose their munks, and files are read.
    even.budget_bytes = 8 << 10;
    even
}

/// What of a store's files counts. Of the witness nothing does: one bad half is taken for a torn write.
fn synced(disk: &MemoryDisk) -> Result<BTreeMap<FileName, Vec<Range<u64>>>> {
    let (root, witness) = read_root(disk)?.expect("the reference is a store");
    let (_, number, _) = read_manifest(disk)?.expect("the reference has a manifest");
    assert_eq!(witness.claim().manifest, number, "the last checkpoint's claim is there");
    let mut lengths = vec![(FileName::Of(MANIFEST, number), witness.claim().len)];
    lengths.extend(root.files.iter().map(|(number, record)| (record.kind.name(*number), record.len)));
    Ok(lengths.into_iter().map(|(name, len)| (name, std::iter::once(0..len).collect())).collect())
}
