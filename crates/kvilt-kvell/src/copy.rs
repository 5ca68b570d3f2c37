//! `checkpoint_to`: a copy of the store as of now, in a directory of its own.
//!
//! The slabs go on changing, so nothing is linked: a view is read in order and put into a new store, which is
//! closed at the end. The directory bears a mark until then.

use std::{path::Path, sync::Arc};

use kvilt_base::{
    Budget, Direction, Disk, Result, Unfinished, World,
    copying::{copy_rows, of_the_copy, settings_of_copy},
    unfinished::no_directory,
};

use crate::{Options, engine::Kvell, recovery, store::Store};

/// Memory of the copy while it is written, in bytes for each shard.
const COPY_BYTES_A_SHARD: u64 = 8 << 20;
/// Copies the store into `directory`.
pub(crate) fn checkpoint_to(store: &Arc<Store>, directory: &Path) -> Result<()> {
    let place = directory.display().to_string();
    let disk = store.disk.new_directory(directory).map_err(|e| no_directory(e, &place))?;
    let mut unfinished = Unfinished::begin(Arc::clone(&disk))?;
    unfinished.give_up_lock();
    let shards = store.shards.len() as u32;
    let world = World {
        clock: Arc::clone(&store.clock),
        rng: Arc::clone(&store.rng),
        spawn: Arc::clone(&store.spawn),
        budget: Budget::new(u64::from(shards) * COPY_BYTES_A_SHARD + store.index_bytes() * 2),
    };
    copy(store, &disk, &world, shards).map_err(of_the_copy)?;
    unfinished.finish()
}

fn copy(store: &Arc<Store>, disk: &Arc<dyn Disk>, world: &World, shards: u32) -> Result<()> {
    let settings = settings_of_copy(&store.settings);
    let options = Options { shards, ..Options::default() };
    let made = recovery::open(Arc::clone(disk), world, &options, &settings)?;
    let made = Kvell::new(made);
    let view = store.open_view();
    let filled =
        copy_rows(&|range, rows| store.scan(view.version().to_u64(), range, Direction::Forward, rows), &made);
    drop(view);
    // The directory is open for the mark, whatever became of the copy.
    let closed = made.close_but_not_directory();
    filled.and(closed)
}
