//! `bed`: an open store for unit tests that call its parts one by one; its workers step only when told.

use std::sync::Arc;

use kvilt_base::{Budget, Disk, EntryRef, Result, World};
use kvilt_format::log::{encode_record, record_len_max};
use kvilt_io::{ManualClock, SeededRng, StepSpawn};

use crate::{
    funk::log::{ChunkLog, IfFull},
    options::Options,
    recovery,
    store::Store,
};

/// Opens the store in `disk`, or makes one.
pub(crate) fn open(disk: Arc<dyn Disk>, options: &Options) -> Arc<Store> {
    let clock = ManualClock::new();
    let world = World {
        rng: Arc::new(SeededRng::new(1)),
        spawn: StepSpawn::new(clock.clone(), 1),
        clock,
        budget: Budget::new(64 << 20),
    };
    recovery::open(disk, world, options).unwrap().0
}

/// Appends a record to a log as a put does, and writes what that sets aside; says where it lies.
pub(crate) fn append(store: &Store, log: &ChunkLog, entry: EntryRef<'_>) -> Result<u64> {
    let room = (1, record_len_max(entry.key.len(), entry.value.len()));
    let is_aside = log.reserve(&store.files, room, store.config.log_buffer_bytes_max, IfFull::Fail)?;
    let offset = append_promised(store, log, entry);
    if is_aside {
        log.write_aside(&store.files);
    }
    Ok(offset)
}

/// Appends a record for which there is room.
pub(crate) fn append_promised(store: &Store, log: &ChunkLog, entry: EntryRef<'_>) -> u64 {
    let (offset, mut record) = (log.len(), Vec::new());
    encode_record(&mut record, store.files.identity(log.number()), offset, log.base(), entry, 0);
    log.append(entry, [&record, &[]], offset);
    offset
}
