//! `Catalogue`: which sorted tables there are, durably.
//!
//! What is always true: a state is durable, with the names of its tables, before what only the one before
//! needed is removed or used again.

use std::sync::Arc;

use kvilt_base::{Disk, Error, ErrorKind, File, FileName, Listed, Result, directory, planted};
use kvilt_format::{levels::Levels, names::LEVELS};

/// See the module.
pub(crate) struct Catalogue {
    disk: Arc<dyn Disk>,
    levels: Levels,
    /// A sync failed, so nobody knows which state is durable.
    is_unsure: bool,
}

/// The newest catalogue that is whole; none if there is none at all.
///
/// Errors: `Corrupted` if none is whole, `UnsupportedVersion`, `Io`.
pub(crate) fn newest(disk: &dyn Disk, listed: &[Listed]) -> Result<Option<Levels>> {
    let mut numbers: Vec<u64> = directory::numbers(listed, LEVELS).collect();
    numbers.sort_unstable();
    let mut first_error = None;
    for number in numbers.into_iter().rev() {
        let name = FileName::Of(LEVELS, number);
        let failed = |e| Error::io("read the catalogue", e).in_file(name);
        let file = disk.open(name).map_err(failed)?;
        let mut bytes = vec![0; usize::try_from(file.len().map_err(failed)?).unwrap_or(usize::MAX)];
        let len = file.read_full_at(0, &mut bytes).map_err(failed)?;
        match Levels::decode(&bytes[..len], number) {
            Ok(levels) => return Ok(Some(levels)),
            Err(error) if error.kind() == ErrorKind::Corrupted => first_error = first_error.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    first_error.map_or(Ok(None), Err)
}

impl Catalogue {
    /// That of these levels, which are durable.
    pub(crate) fn new(disk: Arc<dyn Disk>, levels: Levels) -> Self {
        Catalogue { disk, levels, is_unsure: false }
    }

    /// The durable state.
    pub(crate) fn levels(&self) -> &Levels {
        &self.levels
    }

    /// Whether a sync failed: then the store must not go on.
    pub(crate) fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// A number that no table and no catalogue had.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.levels.last_file += 1;
        self.levels.last_file
    }

    /// Makes the state durable that an open found: a process that was killed may not have. If there is no
    /// room for another file, its own file gets the same bytes once more.
    ///
    /// Errors: `Io`.
    pub(crate) fn renew(&mut self) -> Result<()> {
        match self.change(|_| {}) {
            Err(error) if error.kind() == ErrorKind::NoSpace && !self.is_unsure => self.write_again(),
            changed => changed.map(drop),
        }
    }

    /// A read finds what is in the kernel's cache and, after a sync that failed, no later sync makes durable;
    /// so a sync alone is not enough. Whatever a power cut leaves of this write, the bytes are the same.
    fn write_again(&mut self) -> Result<()> {
        let name = FileName::Of(LEVELS, self.levels.number);
        let failed = |e| Error::io("write the catalogue once more", e).in_file(name);
        let file = self.disk.open(name).map_err(failed)?;
        let mut bytes = vec![0; usize::try_from(file.len().map_err(failed)?).unwrap_or(usize::MAX)];
        file.read_exact_at(0, &mut bytes).map_err(failed)?;
        file.write_all_at(0, &bytes).map_err(failed)?;
        sync(&*self.disk, &*file, &mut self.is_unsure)
    }

    /// Makes a changed state durable. Returns how many bytes that took.
    ///
    /// Errors: `NoSpace`, `Io`: then the state before counts, unless the catalogue is unsure.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Levels)) -> Result<u64> {
        if self.is_unsure {
            return Err(Error::new(ErrorKind::Poisoned, "an earlier sync of the catalogue failed"));
        }
        let number = self.next_number();
        let mut levels = Levels { number, ..self.levels.clone() };
        change(&mut levels);
        let bytes = levels.encode();
        write(&*self.disk, number, &bytes, &mut self.is_unsure)?;
        let before = std::mem::replace(&mut self.levels, levels);
        // What cannot be removed is removed by the next open.
        let _ = self.disk.remove(FileName::Of(LEVELS, before.number));
        Ok(bytes.len() as u64)
    }
}

/// Writes a catalogue to a new file, durably with all names. `is_unsure` becomes true if a sync fails.
pub(crate) fn write(disk: &dyn Disk, number: u64, bytes: &[u8], is_unsure: &mut bool) -> Result<()> {
    let name = FileName::Of(LEVELS, number);
    let failed = |doing: &'static str| move |e| Error::io(doing, e).in_file(name);
    let file = disk.create(name).map_err(failed("make a catalogue"))?;
    if let Err(e) = file.write_all_at(0, bytes) {
        // It is not whole, so the state before counts, whatever becomes of this.
        let _ = disk.remove(name);
        return Err(failed("write a catalogue")(e));
    }
    sync(disk, &*file, is_unsure)
}

/// Makes a catalogue durable with all names. `is_unsure` becomes true if that fails.
fn sync(disk: &dyn Disk, file: &dyn File, is_unsure: &mut bool) -> Result<()> {
    let synced = planted!(CatalogueNotSynced, file.sync() => Ok(()));
    synced.and_then(|()| planted!(NamesNotSynced, disk.sync_dir() => Ok(()))).map_err(|e| {
        *is_unsure = true;
        Error::io("sync a catalogue", e).in_file(file.name())
    })
}
