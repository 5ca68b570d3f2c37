//! Repair: what is left of a damaged store, in a new one.

use std::{io, path::Path};

use kvilt_base::{
    Descriptor, Disk, Engine, Error, Progress, RepairReport, Result, Salvaged, WriteBatch, directory,
    limits::BATCH_OPERATIONS_USUAL,
};
use kvilt_io::NativeDisk;

use crate::{Builder, Db, engines};

/// Rows are written in batches of about so many bytes.
const BATCH_BYTES: usize = 256 << 10;

/// Copies everything of the damaged store in `dir` that provably is its newest content into a new store in
/// `to`, and says what may be lost. See [`repair_with`].
///
/// ```
/// # fn main() -> kvilt::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (path, new) = (dir.path().join("events"), dir.path().join("new"));
/// # let db = kvilt::Db::open(&path)?;
/// # db.put("k", "v")?;
/// # db.close()?;
/// let report = kvilt::repair(&path, &new)?;
/// for loss in &report.losses {
///     println!("{}: {:?}", loss.message, loss.range);
/// }
/// assert_eq!(kvilt::Db::open(&new)?.get("k")?.unwrap(), b"v");
/// # Ok(())
/// # }
/// ```
pub fn repair(dir: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<RepairReport> {
    repair_with(dir, Db::builder(to), |_| {})
}

/// [`repair`] into a store with settings, which must be a new one; `progress` is told how far it is, in
/// bytes.
///
/// The damaged store is locked as by one who reads it, and not written to. A key in none of the ranges of
/// [`RepairReport::losses`] has its last durable value in the new store, or had none. Of keys within, only
/// those values are copied that nothing damaged can have replaced; older ones are withheld. If manifest or
/// witness are damaged, nothing proves which files were the store's last: then all rows that can be found are
/// copied, and [`RepairReport::is_proven`] is false; as it is if a commit log is damaged, whose writes may be
/// lost from there on.
///
/// Errors: `Busy` if the damaged store is open; `InvalidArgument` if there is none, or if the new one exists,
/// or would be inside a store's directory; and as for any write. A repair that fails removes what it made.
/// One that is killed leaves a directory with the file `UNFINISHED`, which no open takes for a store, and
/// which the next repair into it replaces.
pub fn repair_with(
    dir: impl AsRef<Path>,
    into: Builder,
    mut progress: impl FnMut(Progress),
) -> Result<RepairReport> {
    let dir = dir.as_ref();
    let disk = NativeDisk::open_to_read(dir, engines::KINDS).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::invalid(format!(
            "there is no directory {}; name the directory of a damaged store",
            dir.display()
        )),
        io::ErrorKind::InvalidFilename => {
            Error::invalid(format!("a name in {} is longer than the file system allows", dir.display()))
        }
        io::ErrorKind::NotADirectory => Error::invalid(format!(
            "{} is not a directory; name the directory of a damaged store",
            dir.display()
        )),
        _ => Error::io(format!("open the directory {}", dir.display()), error),
    })?;
    // Before a new store is made that would be in the way of the next try.
    let made_by = engines::of(&*disk, &directory::list(&*disk)?)?.unwrap_or_default();
    let source = made_by.descriptor();
    if !source.capabilities().has_repair {
        let reason = format!("engine `{}` has no repair", source.name());
        return Err(Error::invalid(reason).by_setting("engine").in_file(dir.display().to_string()));
    }
    let _lock = source.lock_to_salvage(&*disk)?;
    let into = into.for_a_job();
    let engine = into.engine_or(&made_by);
    let env = into.checked_env(&engine)?;
    let mut unfinished = into.begin_unfinished()?;
    unfinished.give_up_lock();
    // By a handle of its own, for the store closes what it was given.
    let handle = into.made_disk()?;
    let db = into.open_in(&env, &engine, Some(handle), false, true)?;
    let copied = copy(source, &*disk, &db, &mut progress);
    let closed = db.close();
    drop(db);
    let report = copied?;
    closed?;
    unfinished.finish()?;
    Ok(report)
}

/// Copies what is left of the store in `disk`, and tells losses in the users' keys.
fn copy(
    source: &dyn Descriptor,
    disk: &dyn Disk,
    db: &Db,
    progress: &mut dyn FnMut(Progress),
) -> Result<RepairReport> {
    let mut copy = Copy { engine: db.engine(), batch: WriteBatch::new() };
    let mut report = source.salvage(disk, &mut |salvaged| copy.take_in(salvaged), &mut |done, total| {
        progress(Progress { done, total });
    })?;
    copy.write()?;
    report.losses = db.in_users_keys(report.losses);
    report.keyspaces_recovered = db.name_lost_keyspaces()?;
    Ok(report)
}

/// What is on its way into the new store.
struct Copy<'d> {
    engine: &'d dyn Engine,
    batch: WriteBatch,
}

impl Copy<'_> {
    fn take_in(&mut self, salvaged: Salvaged<'_>) -> Result<()> {
        match salvaged {
            Salvaged::Row(key, value) => self.batch.put(key, value),
            Salvaged::Delete(key) => self.batch.delete(key),
            Salvaged::DeleteRange(range) => {
                self.write()?;
                return self.engine.delete_range(&range);
            }
        };
        let is_full = self.batch.bytes() >= BATCH_BYTES || self.batch.len() >= BATCH_OPERATIONS_USUAL;
        if is_full { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.engine.write(std::mem::take(&mut self.batch))
    }
}
