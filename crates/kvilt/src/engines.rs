//! `Engine`: which engine keeps the rows; the one list of all engines that there are.

use kvilt_base::{
    Descriptor, Disk, Error, ErrorKind, FileName, Listed, Recognised, Result, disk::FileKind, engine_name,
};

use crate::{even, kvell};

/// Which engine keeps the rows, with its own settings. It is chosen when a store is made, and the same ever
/// after.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Engine {
    /// EvenDB (EuroSys '20): for data with spatial locality, where popular keys lie side by side. Chunks of
    /// the key order are cached in memory whole; writes go to one log a chunk; opening reads metadata only.
    Even(even::Options),
    /// KVell (SOSP '19): for random reads and updates of data far beyond memory on a fast drive. Rows lie
    /// unsorted, the index is in memory; one read of the drive for each row that is not cached.
    Kvell(kvell::Options),
}

impl Default for Engine {
    /// [`Engine::Even`], with its defaults.
    fn default() -> Self {
        Engine::Even(even::Options::default())
    }
}

impl Engine {
    pub(crate) fn descriptor(&self) -> &dyn Descriptor {
        match self {
            Engine::Even(options) => &options.0,
            Engine::Kvell(options) => &options.0,
        }
    }
}

/// The kinds of files of all engines.
pub(crate) const KINDS: &[FileKind] = &{
    let mut kinds = [kvilt_even::KINDS[0]; kvilt_even::KINDS.len() + kvilt_kvell::KINDS.len()];
    let mut at = 0;
    while at < kinds.len() {
        kinds[at] = match at.checked_sub(kvilt_even::KINDS.len()) {
            None => kvilt_even::KINDS[at],
            Some(at) => kvilt_kvell::KINDS[at],
        };
        at += 1;
    }
    kinds
};

/// Every engine, with its defaults.
fn all() -> [Engine; 2] {
    [Engine::default(), Engine::Kvell(kvell::Options::default())]
}

/// The engine, with its defaults, whose store is in a directory with these files: the one whose name the
/// store bears; without a name, the one that knows its files.
///
/// Errors: `UnsupportedVersion` if the store bears the name of an engine that there is not; `Io`.
pub(crate) fn of(disk: &dyn Disk, listed: &[Listed]) -> Result<Option<Engine>> {
    let has_files = |engine: &Engine| engine.descriptor().recognise(listed) != Recognised::Nothing;
    match named(disk)? {
        // A name alone is what an open has left that was cut short.
        Some(engine) => Ok(Some(engine).filter(has_files)),
        None => Ok(all().into_iter().find(has_files)),
    }
}

/// The engine whose name the store bears; none if it bears none, or if the name is damaged, of which the
/// engine's open tells.
fn named(disk: &dyn Disk) -> Result<Option<Engine>> {
    let name = match engine_name::read(disk) {
        Err(error) if error.kind() == ErrorKind::Corrupted => None,
        read => read?,
    };
    let Some(name) = name else { return Ok(None) };
    let found = all().into_iter().find(|engine| engine.descriptor().name() == name);
    found.map(Some).ok_or_else(|| {
        let known: Vec<_> = all().iter().map(|engine| engine.descriptor().name()).collect();
        let message = format!(
            "{} holds a store of engine `{name}`, which this Kvilt does not have; it has: {}",
            disk.place(),
            known.join(", ")
        );
        Error::new(ErrorKind::UnsupportedVersion, message).in_file(FileName::ENGINE)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_engines_share_a_name_or_a_slot_of_the_budget() {
        let engines = all();
        let names: HashSet<_> = engines.iter().map(|engine| engine.descriptor().name()).collect();
        assert_eq!(names.len(), engines.len());
        let slots: Vec<_> =
            engines.iter().flat_map(|engine| engine.descriptor().parts()).map(|part| part.slot()).collect();
        assert_eq!(slots.iter().collect::<HashSet<_>>().len(), slots.len());
    }
}
