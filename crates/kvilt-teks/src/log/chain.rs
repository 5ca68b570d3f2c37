//! `Chain`: the log as earlier runs left it, read in order.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use kvilt_base::{Disk, Error, File, FileName, Listed, Result, directory};
use kvilt_format::{
    FileIdentity,
    names::REDO,
    redo::{Changes, Ending, RedoReader, Segment, read_sequence},
};

use super::Position;

/// Where a log ends, and what its files are.
pub struct Chain {
    /// The position of the last segment; that before the first if there is none.
    pub(super) last_sequence: u64,
    /// The highest number of a file.
    pub(super) last_number: u64,
    /// Segments that records may be in, from the first on.
    pub(super) segments: VecDeque<Left>,
    /// Files that are in no use, those of segments behind the end included.
    unused: Vec<FileName>,
    /// Where the last segment ends, if it does not say so itself.
    end: Option<End>,
}

/// A segment that an earlier run left.
pub(super) struct Left {
    pub(super) sequence: u64,
    pub(super) name: FileName,
    pub(super) bytes: u64,
}

struct End {
    file: Arc<dyn File>,
    offset: u64,
    word: u64,
}

impl Chain {
    /// Ends the log, so that it can go on in another segment, and makes it durable: a process that was killed
    /// may not have. What is found behind its end is removed before, since it would follow then.
    ///
    /// Errors: `Io`.
    pub(super) fn end(&mut self, disk: &dyn Disk) -> Result<()> {
        for name in self.unused.drain(..) {
            disk.remove(name)
                .map_err(|e| Error::io("remove what is behind the redo log", e).in_file(name))?;
        }
        disk.sync_dir().map_err(|e| Error::io("sync the directory", e).in_file(disk.place()))?;
        if let Some(End { file, offset, word }) = self.end.take() {
            let written = file.write_all_at(offset, &word.to_le_bytes());
            written.map_err(|e| Error::io("end the redo log", e).at(file.name(), offset))?;
        }
        for Left { name, .. } in &self.segments {
            let synced = disk.open(*name).and_then(|file| file.sync());
            synced.map_err(|e| Error::io("sync the redo log", e).in_file(*name))?;
        }
        Ok(())
    }
}

/// A record that was read.
pub struct Replayed<'c> {
    /// Where it lies.
    pub position: Position,
    /// What it does.
    pub changes: Changes<'c>,
}

/// What is known of a log before it is read.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The first segment that is needed.
    pub first: u64,
    /// All before this was synced: what is missing there is damage.
    pub synced: Position,
    /// Nothing that was stored is missing: the same boot, and no copy.
    pub is_whole: bool,
}

/// Reads the log of a store from the first segment that is needed on, and gives each record to `apply`.
///
/// Errors: `Corrupted` if something is missing or damaged that was synced; those of `apply`; `Io`.
pub fn replay(
    disk: &dyn Disk,
    store_id: u64,
    known: Known,
    apply: &mut dyn FnMut(Replayed<'_>) -> Result<()>,
) -> Result<Chain> {
    let mut files = Files::look(disk, store_id)?;
    let mut chain = Chain {
        last_sequence: known.first - 1,
        last_number: files.last_number,
        segments: VecDeque::new(),
        unused: Vec::new(),
        end: None,
    };
    let mut sequence = known.first;
    // The first record that is not whole, and behind which others count.
    let mut passed: Option<Position> = None;
    while let Some(name) = files.by_sequence.remove(&sequence) {
        let (file, mut reader) = open(disk, store_id, name, known.is_whole)?.ok_or_else(|| changed(name))?;
        if let Some(passed) = passed.filter(|_| reader.has_mark_from(0)) {
            return Err(damaged(&chain, passed));
        }
        while let Some((offset, changes)) = reader.next()? {
            apply(Replayed { position: Position { sequence, offset }, changes })?;
        }
        passed = passed.or(reader.passed().map(|offset| Position { sequence, offset }));
        let bytes =
            file.len().map_err(|e| Error::io("ask for the length of the redo log", e).in_file(name))?;
        chain.segments.push_back(Left { sequence, name, bytes });
        chain.last_sequence = sequence;
        if let Some(passed) = passed.filter(|passed| *passed < known.synced) {
            return Err(damaged(&chain, passed));
        }
        let end = Position { sequence, offset: reader.offset() };
        let format = Segment { id: FileIdentity { store_id, number: name.number() }, sequence };
        chain.end = match reader.ending() {
            Ending::Continued => None,
            Ending::Open => Some(End { file, offset: end.offset, word: format.end(end.offset) }),
        };
        if chain.end.is_some() {
            refuse_missing(disk, store_id, &files, end, known)?;
            break;
        }
        sequence += 1;
    }
    if chain.end.is_none() {
        let end = Position { sequence, offset: 0 };
        refuse_missing(disk, store_id, &files, end, known)?;
    }
    chain.unused.extend(files.by_sequence.into_values());
    chain.unused.extend(files.without_header);
    Ok(chain)
}

fn damaged(chain: &Chain, at: Position) -> Error {
    let left = chain.segments.iter().find(|left| left.sequence == at.sequence).expect("it was read");
    Error::corrupted(left.name, at.offset, "a record is damaged: it was synced")
}

/// The log ends at `end`: nothing behind it may have been synced.
fn refuse_missing(disk: &dyn Disk, store_id: u64, files: &Files, end: Position, known: Known) -> Result<()> {
    let missing = || {
        let message =
            format!("the redo log ends in segment {} at {}, and more was synced", end.sequence, end.offset);
        let file = files.by_sequence.get(&end.sequence).copied();
        file.map_or_else(
            || Error::corrupted(FileName::Of(REDO, 0), end.offset, message.clone()),
            |file| Error::corrupted(file, end.offset, message.clone()),
        )
    };
    if end < known.synced {
        return Err(missing());
    }
    for (_, name) in files.by_sequence.range(end.sequence + 1..) {
        let later = open(disk, store_id, *name, known.is_whole)?;
        if later.is_some_and(|(_, reader)| reader.has_mark_from(0)) {
            return Err(missing());
        }
    }
    Ok(())
}

/// Files of a log, by the position of their segments.
struct Files {
    by_sequence: BTreeMap<u64, FileName>,
    without_header: Vec<FileName>,
    last_number: u64,
}

impl Files {
    fn look(disk: &dyn Disk, store_id: u64) -> Result<Files> {
        let mut files = Files { by_sequence: BTreeMap::new(), without_header: Vec::new(), last_number: 0 };
        for listed in directory::list(disk)? {
            let Listed::Ours(name @ FileName::Of(kind, number)) = listed else { continue };
            if kind != REDO {
                continue;
            }
            files.last_number = files.last_number.max(number);
            let file = disk.open(name).map_err(|e| Error::io("open the redo log", e).in_file(name))?;
            let Some(sequence) = read_sequence(&*file, FileIdentity { store_id, number })? else {
                files.without_header.push(name);
                continue;
            };
            if let Some(other) = files.by_sequence.insert(sequence, name) {
                let message = format!("{other} is the same segment of the redo log");
                return Err(Error::corrupted(name, 0, message));
            }
        }
        Ok(files)
    }
}

fn open(
    disk: &dyn Disk,
    store_id: u64,
    name: FileName,
    is_whole: bool,
) -> Result<Option<(Arc<dyn File>, RedoReader)>> {
    let file = disk.open(name).map_err(|e| Error::io("open the redo log", e).in_file(name))?;
    let id = FileIdentity { store_id, number: name.number() };
    let reader = RedoReader::open(&file, id, is_whole)?;
    Ok(reader.map(|reader| (file, reader)))
}

fn changed(name: FileName) -> Error {
    Error::corrupted(name, 0, "the file changed while it was read")
}
