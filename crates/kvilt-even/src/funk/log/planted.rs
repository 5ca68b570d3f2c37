//! A log that takes records behind what it has: for tests, and for the planted bug `AppendBehindTornTail`. In
//! no other build.

use std::sync::{Arc, atomic::Ordering};

use kvilt_base::{FileName, Version};
use kvilt_format::names::LOG;
use kvilt_sync::published::pin;

use super::{ChargedIndex, ChunkLog};
use crate::files::Files;

impl ChunkLog {
    /// What it holds is indexed as far as it can be read.
    pub(crate) fn reopened_for_append(files: &Files, number: u64, base: Version, len: u64) -> Arc<Self> {
        let log = Self::with(files, (number, base), len, None);
        files.know(FileName::Of(LOG, number), &log.hold);
        log.is_closed.store(false, Ordering::Relaxed);
        log.index.replace(Some(ChargedIndex::new(files)));
        if let Some(index) = log.index.load(&pin()) {
            let _ = log.extend_index(files, index, 0..len);
        }
        Arc::new(log)
    }
}
