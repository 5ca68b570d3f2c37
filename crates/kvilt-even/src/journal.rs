//! `Journals`: how the files of chunks change between checkpoints, for the next process if this one is
//! killed. See `docs/design/0065-nothing-is-lost-to-a-kill.md`.
//!
//! One journal tells the changes since the last checkpoint's cut. A checkpoint begins the next at its own
//! cut; until its manifest is durable, changes go to both.
//!
//! What is always true:
//! - E-22: a change is in the journal before the gate of its chunk is given back, so no put to a new file
//!   returns before. If it cannot be written, the journals go, and a kill falls back to the last checkpoint
//!   until the next one.

use std::sync::Arc;

use kvilt_base::{Error, FileName, Result, Version};
use kvilt_format::{
    journal::{JournalWriter, Origin},
    manifest::{Edit, FileRecord, PartKind},
    names::JOURNAL,
};
use kvilt_sync::published::Pin;

use crate::{
    chunk::Chunk,
    files::Files,
    funk::{Funk, PartFile, log::ChunkLog},
    pool::Pool,
};

/// See the module.
#[derive(Default)]
pub(crate) struct Journals {
    /// Since the last checkpoint.
    current: Option<JournalWriter>,
    /// Since the cut of the one that is being taken.
    next: Option<JournalWriter>,
    /// The last checkpoint's cut.
    cut: Version,
    /// The cut of the one that is being taken.
    next_cut: Option<Version>,
    /// Where the versions of this run begin.
    epoch_base: Version,
    /// The versions that are dead in this run.
    dead: Vec<(Version, Version)>,
    /// Some change since the last checkpoint is missing.
    is_broken: bool,
}

impl Journals {
    /// Those of a run whose versions begin at `epoch_base`, over the checkpoint with this cut. If there are
    /// commit logs to replay, they tell nothing before the next checkpoint: the logs are there to be replayed
    /// again.
    pub(crate) fn new(
        cut: Version,
        epoch_base: Version,
        dead: Vec<(Version, Version)>,
        has_commit_logs: bool,
    ) -> Self {
        Journals { cut, epoch_base, dead, is_broken: has_commit_logs, ..Journals::default() }
    }

    /// Begins with what a killed process has left, all of it or nothing: until the last of these changes is
    /// there, its own journal counts. False if it cannot be begun.
    pub(crate) fn go_on_with(&mut self, files: &Files, changes: &[Edit]) -> bool {
        match self.begin(files, self.cut, changes) {
            Ok(journal) => self.current = Some(journal),
            Err(_) => self.give_up(files),
        }
        !self.is_broken
    }

    /// Enters a change. The caller has the structure lock, and the gates of the chunks.
    pub(crate) fn note(&mut self, files: &Files, edit: &Edit) {
        let noted = (|| {
            // The first change of the run, so nothing is missing in either.
            if self.current.is_none() && !self.is_broken {
                self.current = Some(self.begin(files, self.cut, &[])?);
                if let Some(cut) = self.next_cut {
                    self.next = Some(self.begin(files, cut, &[])?);
                }
            }
            let both = [&mut self.current, &mut self.next];
            both.into_iter().flatten().try_for_each(|journal| {
                let _change = files.change(journal.name(), journal.len());
                journal.append(edit)
            })
        })();
        if noted.is_err() {
            self.give_up(files);
        }
    }

    /// The number of the next, which is about to be [cut](Journals::cut); none if there will be none. Comes
    /// before the cut itself: what is behind the cut and spills does so for the next journal, too.
    pub(crate) fn number_of_next(&self, files: &Files) -> Option<u64> {
        let pool = files.pool.as_ref().filter(|_| self.current.is_some() || self.is_broken)?;
        // Made before the cut, if it can be at all: what spills behind the cut has where to say so.
        pool.run()?;
        let number = files.next_number();
        pool.begin_journal(number);
        Some(number)
    }

    /// Begins the next, with this number, at a cut, with the chunks that changed before it.
    pub(crate) fn cut(
        &mut self,
        files: &Files,
        number: Option<u64>,
        cut: Version,
        changed: impl Iterator<Item = Edit>,
    ) {
        self.next_cut = Some(cut);
        if let Some(number) = number {
            let changes: Vec<Edit> = changed.collect();
            // If it fails, the one before is as good as it was until the checkpoint is durable.
            self.next = self.begin_with(files, number, cut, &changes).ok();
        }
    }

    /// The checkpoint with this cut is durable: the next takes the place of the one before.
    pub(crate) fn checkpoint_done(&mut self, files: &Files, cut: Version) {
        let next = self.next.take();
        self.next_cut = None;
        // Without it, what changed since the cut is missing.
        self.is_broken = next.is_none() && (self.current.is_some() || self.is_broken);
        self.cut = cut;
        remove(files, std::mem::replace(&mut self.current, next));
    }

    /// It failed: the one before goes on.
    pub(crate) fn checkpoint_failed(&mut self, files: &Files) {
        self.next_cut = None;
        remove(files, self.next.take());
    }

    /// Everything is durable.
    pub(crate) fn close(&mut self, files: &Files) {
        remove(files, self.current.take());
        remove(files, self.next.take());
    }

    fn begin(&self, files: &Files, cut: Version, changes: &[Edit]) -> Result<JournalWriter> {
        let number = files.next_number();
        files.pool.iter().for_each(|pool| pool.begin_journal(number));
        self.begin_with(files, number, cut, changes)
    }

    /// Begins a journal with what is dead in this run, and with these changes.
    ///
    /// Errors: also if there is no pool, and can be none: then it is of no use.
    fn begin_with(
        &self,
        files: &Files,
        number: u64,
        cut: Version,
        changes: &[Edit],
    ) -> Result<JournalWriter> {
        let run = files.pool.as_ref().and_then(Pool::run);
        let Some((run, habitat)) = run else {
            return Err(Error::invalid("there can be no file with write buffers"));
        };
        let id = files.identity(number);
        let _change = files.change(FileName::Of(JOURNAL, number), 0);
        let begins_with = 1 + changes.len() as u64;
        let origin = Origin { run, boot: habitat.boot, cut, epoch_base: self.epoch_base, begins_with };
        let mut journal = JournalWriter::create(&*files.disk, id, &origin)?;
        journal.append(&Edit { dead: Some(self.dead.clone()), ..Edit::default() })?;
        changes.iter().try_for_each(|change| journal.append(change))?;
        Ok(journal)
    }

    fn give_up(&mut self, files: &Files) {
        self.close(files);
        self.is_broken = true;
    }
}

fn remove(files: &Files, journal: Option<JournalWriter>) {
    if let Some(journal) = journal {
        // The next open removes it, if this cannot; its cut says that it counts no more.
        let _ = files.disk.remove(journal.name());
    }
}

/// The change that gives a chunk these files, those without a durable byte included.
pub(crate) fn chunk_has(files: &Files, first_key: &[u8], funk: &Funk) -> Edit {
    let parts = funk.parts.iter().map(|part| match &part.file {
        PartFile::Table(table) => (table.number(), FileRecord::table(table.len())),
        PartFile::Log(log) => (log.number(), record_of(log)),
    });
    let all: Vec<(u64, FileRecord)> =
        parts.chain(funk.log.iter().map(|log| (log.number(), record_of(log)))).collect();
    let numbers = all.iter().map(|(number, _)| *number).collect();
    let mut files_upserted = all;
    files_upserted.sort_unstable_by_key(|(number, _)| *number);
    files_upserted.dedup_by_key(|(number, _)| *number);
    Edit {
        next_file: Some(files.peek_number()),
        files_upserted,
        chunks_upserted: vec![(first_key.to_vec(), numbers)],
        ..Edit::default()
    }
}

/// The change that puts `children` in the place of `parents`.
pub(crate) fn chunks_succeed(
    files: &Files,
    parents: &[&Arc<Chunk>],
    children: &[Arc<Chunk>],
    pin: &Pin,
) -> Edit {
    let mut edit = Edit { next_file: Some(files.peek_number()), ..Edit::default() };
    for child in children {
        let change = chunk_has(files, &child.range.start, &child.state(pin).funk);
        edit.files_upserted.extend(change.files_upserted);
        edit.chunks_upserted.extend(change.chunks_upserted);
    }
    edit.files_upserted.sort_unstable_by_key(|(number, _)| *number);
    edit.files_upserted.dedup_by_key(|(number, _)| *number);
    let goes = |parent: &&&Arc<Chunk>| children.iter().all(|child| child.range.start != parent.range.start);
    edit.chunks_removed = parents.iter().filter(goes).map(|parent| parent.range.start.clone()).collect();
    edit
}

/// A log of this run may become longer, and says itself how long it is; one of an earlier run does not.
fn record_of(log: &ChunkLog) -> FileRecord {
    let len = if log.is_of_this_run() { 0 } else { log.len() };
    FileRecord { kind: PartKind::Log, len, base: log.base(), summary: None }
}
