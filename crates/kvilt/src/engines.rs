//! `Engine`: which engine keeps the rows; the one list of all engines that there are.

use kvilt_base::{
    Descriptor, Disk, Error, ErrorKind, FileName, Listed, Recognised, Result, disk::FileKind, engine_name,
};

use crate::{even, kvell, teks};

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
    /// TeksDB (POMACS '19): for keys that are written and read in no order and scanned at once, most of them
    /// in memory. New rows lie in a table in memory that is found by hash and in order, and are flushed to
    /// sorted tables in levels.
    Teks(teks::Options),
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
            Engine::Teks(options) => &options.0,
        }
    }
}

/// The kinds of files of each engine.
const OF_EACH: [&[FileKind]; 3] = [kvilt_even::KINDS, kvilt_kvell::KINDS, kvilt_teks::KINDS];

/// The kinds of files of all engines.
pub(crate) const KINDS: &[FileKind] = &{
    let mut kinds = [OF_EACH[0][0]; OF_EACH[0].len() + OF_EACH[1].len() + OF_EACH[2].len()];
    let (mut engine, mut first) = (0, 0);
    while engine < OF_EACH.len() {
        let mut at = 0;
        while at < OF_EACH[engine].len() {
            kinds[first + at] = OF_EACH[engine][at];
            at += 1;
        }
        first += at;
        engine += 1;
    }
    kinds
};

/// Every engine, with its defaults.
fn all() -> [Engine; 3] {
    [Engine::default(), Engine::Kvell(kvell::Options::default()), Engine::Teks(teks::Options::default())]
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
        None => Ok(by_files(listed)),
    }
}

/// The engine that knows these files: one that finds a store, or else one that finds pieces. Of these, kinds
/// that several engines have, such as sorted tables, are asked about last.
fn by_files(listed: &[Listed]) -> Option<Engine> {
    let is_shared = |item: &Listed| {
        let Listed::Ours(name) = item else { return false };
        OF_EACH.iter().filter(|kinds| kinds.contains(&name.kind())).count() > 1
    };
    let others: Vec<Listed> = listed.iter().filter(|item| !is_shared(item)).cloned().collect();
    let first = |listed: &[Listed], is_it: fn(Recognised) -> bool| {
        all().into_iter().find(|engine| is_it(engine.descriptor().recognise(listed)))
    };
    let is_any = |found| found != Recognised::Nothing;
    first(listed, |found| found == Recognised::Store)
        .or_else(|| first(&others, is_any))
        .or_else(|| first(listed, is_any))
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

    /// The engine of files with these names, which bear no name of an engine.
    fn of_files(names: &[&str]) -> Option<&'static str> {
        let listed: Vec<Listed> =
            names.iter().map(|name| Listed::Ours(FileName::parse(name, KINDS).unwrap())).collect();
        by_files(&listed).map(|engine| engine.descriptor().name())
    }

    #[test]
    fn files_tell_the_engine_of_a_store_without_a_name() {
        let [table, log, redo, levels, manifest] =
            ["table", "log", "redo", "levels", "manifest"].map(|kind| format!("0000000000000001.{kind}"));
        let cases: [(&[&str], _); 8] = [
            (&[&manifest, &table, &log], Some("even")),
            (&[&levels, &table, &redo], Some("teks")),
            (&[&table, &log], Some("even")),
            (&[&table, &redo], Some("teks")),
            (&[&table], Some("even")),
            (&["ROOT"], Some("kvell")),
            (&["LOCK", "ENGINE"], None),
            (&[], None),
        ];
        for (names, expected) in cases {
            assert_eq!(of_files(names), expected, "{names:?}");
        }
    }

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
