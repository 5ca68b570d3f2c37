//! `checkpoint_to`: a copy of the store as of now, in a directory of its own.
//!
//! A batch may have rows in two memory tables, so none is linked: a view is read and put into a new store,
//! which is closed at the end. The directory bears a mark until then.

use std::{ops::ControlFlow, path::Path, sync::Arc};

use kvilt_base::{
    Budget, Direction, Disk, Durability, Engine, KeyRange, Result, Unfinished, World, WriteBatch, limits,
    unfinished::no_directory,
};

use crate::{engine::Teks, recovery, store::Store};

/// Memory of the copy while it is written, in bytes.
const COPY_BYTES: u64 = 64 << 20;
/// Rows that are put together: a record of the log has all of them.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_ROWS: usize = 1 << 10;

/// Copies the store into `directory`.
pub(crate) fn checkpoint_to(store: &Arc<Store>, directory: &Path) -> Result<()> {
    let place = directory.display().to_string();
    let disk = store.disk.new_directory(directory).map_err(|e| no_directory(e, &place))?;
    let mut unfinished = Unfinished::begin(Arc::clone(&disk))?;
    unfinished.give_up_lock();
    let world = World {
        clock: Arc::clone(&store.clock),
        rng: Arc::clone(&store.rng),
        spawn: Arc::clone(&store.spawn),
        budget: Budget::new(COPY_BYTES),
    };
    copy(store, &disk, &world)?;
    unfinished.finish()
}

fn copy(store: &Arc<Store>, disk: &Arc<dyn Disk>, world: &World) -> Result<()> {
    let mut settings = store.settings.clone();
    settings.durability = Durability::Async { interval: settings.durability.interval() };
    (settings.create, settings.read_only, settings.is_unfinished) = (true, false, true);
    // Of its own batches, however small those of the store's users may be.
    settings.batch_operations_max = limits::BATCH_OPERATIONS_USUAL;
    settings.batch_bytes_max = limits::BATCH_BYTES_USUAL;
    let made = recovery::open(Arc::clone(disk), world, &store.options, &settings)?;
    let made = Teks::new(made);
    let filled = fill(store, &made);
    // The directory is open for the mark, whatever became of the copy.
    let closed = made.close_but_not_directory();
    filled.and(closed)
}

/// Puts all rows, as of now, into another store.
fn fill(store: &Arc<Store>, made: &Teks) -> Result<()> {
    let view = store.open_view();
    let (mut batch, mut outcome) = (WriteBatch::new(), Ok(()));
    let mut left = Some(KeyRange::all());
    while let Some(range) = left {
        let mut rows = |key: &[u8], value: &[u8]| {
            batch.put(key, value);
            if batch.bytes() >= BATCH_BYTES || batch.len() >= BATCH_ROWS {
                outcome = made.write(std::mem::take(&mut batch));
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        // A scan may return early.
        left = store.scan(view.version(), &range, Direction::Forward, &mut rows)?.left();
        std::mem::replace(&mut outcome, Ok(()))?;
    }
    made.write(batch)
}
