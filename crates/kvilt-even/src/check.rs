//! Check: reads everything, and reports each broken invariant by its number.

use std::{collections::HashSet, hash::BuildHasher, ops::ControlFlow, sync::Arc};

use kvilt_base::{
    CheckReport, Damage, Direction, EntryRef, Error, ErrorKind, FileName, KeyRange, Kind, Merge, Progress,
    Result, Source, Version, Visible, engine_name,
};
use kvilt_format::{
    log::Outline,
    names::{LOG, TABLE},
    table::Table,
};
use kvilt_sync::published::pin;

use crate::{
    NAME,
    chunk::{Chunk, ChunkState},
    funk::{PartFile, Purpose, log::ChunkLog, table_file::TableFile},
    store::Store,
};
use kvilt_sync::tombstones::{Over, Tombstones};

/// A check on its way.
struct Check<'s> {
    store: &'s Store,
    report: CheckReport,
    done: u64,
    total: u64,
    seen: HashSet<u64>,
    progress: &'s mut dyn FnMut(Progress) -> bool,
}

impl Store {
    /// Verifies every byte and every structure that can be verified while the store is in use.
    pub(crate) fn check(&self, progress: &mut dyn FnMut(Progress) -> bool) -> Result<CheckReport> {
        self.poison.allow_read()?;
        let chunks: Vec<(Arc<Chunk>, ChunkState)> = {
            let pin = pin();
            self.index.load(&pin).chunks().iter().map(|c| (Arc::clone(c), c.state(&pin).clone())).collect()
        };
        let mut check = Check::new(self, progress);
        check.total = check.bytes_to_read(&chunks);
        check.ranges(&chunks);
        check.manifest()?;
        for (chunk, state) in &chunks {
            if check.report.is_cancelled {
                break;
            }
            check.chunk(chunk, state)?;
        }
        Ok(check.report)
    }
}

impl<'s> Check<'s> {
    fn new(store: &'s Store, progress: &'s mut dyn FnMut(Progress) -> bool) -> Self {
        Check { store, report: CheckReport::default(), done: 0, total: 0, seen: HashSet::new(), progress }
    }
}

impl Check<'_> {
    fn bytes_to_read(&self, chunks: &[(Arc<Chunk>, ChunkState)]) -> u64 {
        let mut seen = HashSet::new();
        let parts =
            chunks.iter().flat_map(|(_, state)| &state.funk.parts).filter(|part| seen.insert(part.number()));
        let parts: u64 = parts
            .map(|part| match &part.file {
                PartFile::Table(table) => table.len(),
                PartFile::Log(log) => log.len(),
            })
            .sum();
        parts
            + chunks.iter().filter_map(|(_, state)| state.funk.log.as_ref()).map(|log| log.len()).sum::<u64>()
    }

    fn damage(&mut self, what: &str, range: Option<&KeyRange>, message: String) {
        self.report.damages.push(Damage {
            what: what.to_string(),
            file: None,
            offset: None,
            range: range.cloned(),
            message,
        });
    }

    /// A damaged file is a finding; anything else that fails ends the check.
    fn note(&mut self, range: &KeyRange, error: Error) -> Result<()> {
        if !matches!(error.kind(), ErrorKind::Corrupted | ErrorKind::UnsupportedVersion | ErrorKind::Io) {
            return Err(error);
        }
        self.report.damages.push(Damage {
            what: match error.kind() {
                // Whatever is damaged, a checksum, a length or an order that formats promise told so.
                ErrorKind::Corrupted => "F-2".to_string(),
                kind => kind.name().to_string(),
            },
            file: error.file().map(str::to_string),
            offset: error.offset(),
            range: Some(range.clone()),
            message: error.message().to_string(),
        });
        Ok(())
    }

    /// E-1: the ranges follow each other from the empty key to no end.
    fn ranges(&mut self, chunks: &[(Arc<Chunk>, ChunkState)]) {
        let mut expected = Some(Vec::new());
        for (chunk, _) in chunks {
            if expected.as_ref() != Some(&chunk.range.start) {
                self.damage(
                    "E-1",
                    Some(&chunk.range),
                    "a chunk does not begin where the one before it ends".to_string(),
                );
            }
            expected = chunk.range.end.clone();
        }
        if expected.is_some() {
            self.damage("E-1", None, "the last chunk has an end".to_string());
        }
    }

    /// F-4, E-9: the manifest on the disk is whole, and says what this run thinks it says.
    fn manifest(&mut self) -> Result<()> {
        // In this order: a checkpoint may end in between, and the current version only grows.
        let checkpoint = self.store.checkpoint.with_durable(|root| root.checkpoint);
        let current = self.store.versions.current();
        if checkpoint > current {
            self.damage(
                "E-9",
                None,
                format!("the checkpoint {checkpoint} is above the current version {current}"),
            );
        }
        let disk = &*self.store.files.disk;
        match engine_name::expect(disk, NAME) {
            Err(error) if matches!(error.kind(), ErrorKind::Corrupted | ErrorKind::InvalidArgument) => {
                self.report.damages.push(Damage {
                    what: "B-8".to_string(),
                    file: Some(FileName::ENGINE.to_string()),
                    offset: None,
                    range: None,
                    message: error.message().to_string(),
                });
            }
            Err(error) => self.note(&KeyRange::all(), error)?,
            Ok(()) => {}
        }
        match self.store.checkpoint.verify(disk) {
            Ok(bytes) => self.count(bytes, 0),
            Err(error) => self.note(&KeyRange::all(), error)?,
        }
        Ok(())
    }

    fn chunk(&mut self, chunk: &Chunk, state: &ChunkState) -> Result<()> {
        let found_before = self.report.damages.len();
        for part in &state.funk.parts {
            if !self.seen.insert(part.number()) {
                continue;
            }
            let result = match &part.file {
                PartFile::Table(table) => self.table(table),
                PartFile::Log(log) => self.log(log),
            };
            if let Err(error) = result {
                self.note(&chunk.range, error)?;
            }
        }
        if let Some(log) = &state.funk.log
            && let Err(error) = self.log(log)
        {
            self.note(&chunk.range, error)?;
        }
        let is_sound = self.report.damages.len() == found_before;
        if is_sound
            && !self.report.is_cancelled
            && let Err(error) = self.order(chunk, state).and_then(|()| self.agreement(chunk))
        {
            self.note(&chunk.range, error)?;
        }
        Ok(())
    }

    fn table(&mut self, table: &TableFile) -> Result<()> {
        // Anew, so that header, footer, filter and index are read from the disk.
        let files = &self.store.files;
        let name = FileName::Of(TABLE, table.number());
        let open = Arc::new(Table::open(files.open(name)?, files.identity(table.number()), table.len())?);
        if open.has_damaged_filter() {
            self.report.damages.push(Damage {
                what: "F-5".to_string(),
                file: Some(name.to_string()),
                offset: Some(open.filter_offset()),
                range: None,
                message: "the filter is damaged; lookups go on without it".to_string(),
            });
        }
        let (done, total) = (self.done, self.total);
        let progress = &mut *self.progress;
        let mut is_cancelled = false;
        let entries = open.verify(&mut |bytes| {
            let goes_on = progress(Progress { done: done + bytes, total });
            is_cancelled |= !goes_on;
            goes_on
        })?;
        self.report.is_cancelled |= is_cancelled;
        self.count(table.len(), entries);
        Ok(())
    }

    fn log(&mut self, log: &ChunkLog) -> Result<()> {
        let len = log.len();
        let files = &self.store.files;
        log.check_header(files)?;
        let (mut entries, mut read, mut told) = (0, Outlined::default(), Outlined::default());
        log.for_each(files, 0, len, &mut |offset, EntryRef { key, version, kind, .. }, _| {
            entries += 1;
            read.add(&Outline { offset, kind, key, version });
            Ok(())
        })?;
        log.for_each_outline(files, 0..len, &mut |outline| {
            told.add(&outline);
            Ok(())
        })?;
        if read.digest != told.digest {
            let name = FileName::Of(LOG, log.number());
            self.damage("E-14", None, format!("the summaries in {name} do not tell what its records say"));
        }
        self.count(len, entries);
        Ok(())
    }

    fn count(&mut self, bytes: u64, entries: u64) {
        self.done += bytes;
        self.report.files += 1;
        self.report.bytes += bytes;
        self.report.entries += entries;
        if !(self.progress)(Progress { done: self.done, total: self.total }) {
            self.report.is_cancelled = true;
        }
    }

    /// E-3, E-4: a munk's entries are its chunk's, and come in order.
    fn order(&mut self, chunk: &Chunk, state: &ChunkState) -> Result<()> {
        let Some(munk) = &state.munk else { return Ok(()) };
        let hold = munk.run.run.hold();
        let mut entries = munk.entries_held(&chunk.range, Direction::Forward, &hold);
        let mut last: Option<(Vec<u8>, Version)> = None;
        while let Some(entry) = entries.entry() {
            if !chunk.range.contains(entry.key) || entry.kind == Kind::RangeTombstone {
                self.damage(
                    "E-3",
                    Some(&chunk.range),
                    "a munk has an entry that does not belong to it".to_string(),
                );
                break;
            }
            let is_behind = last.as_ref().is_none_or(|(key, version)| {
                (key.as_slice(), std::cmp::Reverse(*version)) <= (entry.key, std::cmp::Reverse(entry.version))
            });
            if !is_behind {
                self.damage("E-4", Some(&chunk.range), "entries do not come in order".to_string());
                break;
            }
            last = Some((entry.key.to_vec(), entry.version));
            entries.advance()?;
        }
        Ok(())
    }

    /// E-3: a reader of now finds the same rows in the munk and in the files.
    fn agreement(&mut self, chunk: &Chunk) -> Result<()> {
        // The view first: what it sees is complete in whatever the chunk consists of afterwards.
        let view = self.store.versions.open_view();
        let state = chunk.state(&pin()).clone();
        let Some(munk) = &state.munk else { return Ok(()) };
        let files = &self.store.files;
        let in_memory = {
            let hold = munk.run.run.hold();
            let entries = munk.entries_held(&chunk.range, Direction::Forward, &hold);
            digest(entries, view.version(), munk.over())?
        };
        let tombstones = state.funk.tombstones(files, &self.store.versions)?;
        let purpose = Purpose::Scan { view: view.version(), rows: None, cost_bytes: None };
        let in_files = state.funk.entries(&chunk.range, Direction::Forward, files, purpose)?;
        let in_files = digest(in_files, view.version(), &tombstones)?;
        state.funk.forget_indexes();
        // A view that expired meanwhile proves nothing.
        if in_memory != in_files && !self.store.versions.is_expired(view.version()) {
            let message = format!(
                "a munk shows {} rows, the chunk's files {}, or they differ in content",
                in_memory.0, in_files.0
            );
            self.damage("E-3", Some(&chunk.range), message);
        }
        Ok(())
    }
}

/// A number that very probably differs where outlines do.
#[derive(Default)]
struct Outlined {
    hasher: foldhash::quality::FixedState,
    digest: u64,
}

impl Outlined {
    fn add(&mut self, outline: &Outline<'_>) {
        let Outline { offset, kind, key, version } = *outline;
        self.digest = self.hasher.hash_one((self.digest, offset, kind as u8, key, version.to_u64()));
    }
}

/// How many rows a reader sees, and a number that very probably differs where they do.
fn digest(entries: Merge<'_>, view: Version, tombstones: &[Arc<Tombstones>]) -> Result<(u64, u64)> {
    let hasher = foldhash::quality::FixedState::default();
    let mut rows = Visible::new(entries, Direction::Forward, view, Over::new(tombstones));
    let (mut count, mut digest) = (0, 0);
    let _at_its_end = rows.each(|key, value| {
        count += 1;
        digest = hasher.hash_one((digest, key, value));
        ControlFlow::Continue(())
    })?;
    Ok((count, digest))
}

#[cfg(test)]
mod tests;
