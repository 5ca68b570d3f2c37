//! `Chain`: the log as earlier runs left it, read in order.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use kvilt_base::{Disk, Error, File, FileName, Listed, Result, directory, planted};
use kvilt_format::{
    FileIdentity,
    names::REDO,
    redo::{Changes, Ending, RedoReader, Segment, WORD_BYTES, read_sequence, void},
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
    /// Files of segments behind the end.
    behind: Vec<FileName>,
    /// Files of segments before the first.
    stale: Vec<FileName>,
    /// Those that were never a segment, or are none any more.
    pub(super) unused: Vec<FileName>,
    /// All before this is durable.
    durable: Position,
    store_id: u64,
}

/// The last segment, in which the log goes on.
pub(super) struct Resumed {
    pub(super) file: Arc<dyn File>,
    pub(super) at: Position,
}

/// A segment that an earlier run left.
pub(super) struct Left {
    pub(super) sequence: u64,
    pub(super) name: FileName,
    pub(super) bytes: u64,
    /// Where records lie that are not whole, and behind which others count.
    passed: Vec<u64>,
    /// Where its records end.
    pub(super) end: u64,
    /// More may be appended: it is not sealed, nothing that was stored is missing, and no whole record of it
    /// lies behind its end, as a file system may leave one that was shut down by an error.
    may_go_on: bool,
}

impl Chain {
    /// Makes the log durable, as a process that was killed may not have, so that it can go on: in its last
    /// segment, which is returned and is none of those left any more; or, if something behind its end may be
    /// left of what a power cut took back, or there is no such segment, in another one, and then it is ended.
    /// What is found behind its end is removed before, since it would follow then; and what lies before the
    /// first segment that is needed, as the caller made durable.
    ///
    /// Errors: `Io`.
    pub(super) fn end(&mut self, disk: &dyn Disk) -> Result<Option<Resumed>> {
        planted!(BehindNotRemoved => self.behind.clear());
        for name in self.behind.drain(..) {
            disk.remove(name)
                .map_err(|e| Error::io("remove what is behind the redo log", e).in_file(name))?;
        }
        for name in self.stale.drain(..) {
            // What cannot be removed is passed over by every open.
            let _ = disk.remove(name);
        }
        disk.sync_dir().map_err(|e| Error::io("sync the directory", e).in_file(disk.place()))?;
        let resumed = self.resumed(disk);
        for left in self.segments.iter().filter(|left| left.sequence >= self.durable.sequence) {
            let from = if left.sequence == self.durable.sequence { self.durable.offset } else { 0 };
            let goes_on = resumed.as_ref().is_some_and(|resumed| resumed.at.sequence == left.sequence);
            left.write_again(disk, self.store_id, (from / WORD_BYTES as u64 * WORD_BYTES as u64, goes_on))?;
        }
        if resumed.is_some() {
            self.segments.pop_back();
        }
        Ok(resumed)
    }

    /// The last segment, if the log can go on in it.
    fn resumed(&self, disk: &dyn Disk) -> Option<Resumed> {
        let left = self.segments.back().filter(|left| left.may_go_on)?;
        let file = disk.open(left.name).ok()?;
        // Its blocks are there: what is mapped cannot fail for want of room.
        file.allocate(left.bytes).ok()?;
        let has_room = left.end + WORD_BYTES as u64 <= left.bytes;
        has_room.then_some(Resumed { file, at: Position { sequence: left.sequence, offset: left.end } })
    }
}

impl Left {
    /// Writes what lies behind `from` once more and syncs it: after a sync that failed, it may be in the
    /// kernel's cache, where a read finds it and no later sync does. Records that are not whole become void,
    /// since a mark behind the sync would call them damaged; and the segment gets its end, unless the log
    /// goes on in it.
    fn write_again(&self, disk: &dyn Disk, store_id: u64, (from, goes_on): (u64, bool)) -> Result<()> {
        let from = from.min(self.end);
        let failed = |e| Error::io("write the redo log once more", e).in_file(self.name);
        let file = disk.open(self.name).map_err(failed)?;
        planted!(FoundNotWrittenAgain => return file.sync().map_err(failed));
        let segment =
            Segment { id: FileIdentity { store_id, number: self.name.number() }, sequence: self.sequence };
        let mut bytes = vec![0; usize::try_from(self.end.saturating_sub(from)).unwrap_or(usize::MAX)];
        file.read_exact_at(from, &mut bytes).map_err(failed)?;
        for offset in self.passed.iter().filter(|offset| **offset >= from) {
            planted!(NotMadeVoid => continue);
            void(segment, *offset, &mut bytes[(offset - from) as usize..])
                .ok_or_else(|| changed(self.name))?;
        }
        // If it has an end it stands there.
        let last = if goes_on { 0 } else { segment.end(self.end) };
        bytes.extend_from_slice(&last.to_le_bytes());
        file.write_all_at(from, &bytes).and_then(|()| file.sync()).map_err(failed)
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
        behind: Vec::new(),
        stale: Vec::new(),
        unused: Vec::new(),
        durable: known.synced,
        store_id,
    };
    let mut sequence = known.first;
    // The first record that is not whole, and behind which others count.
    let mut passed: Option<Position> = None;
    let mut end_of_log = Position { sequence, offset: 0 };
    while let Some(name) = files.by_sequence.remove(&sequence) {
        let (file, mut reader) = open(disk, store_id, name, known.is_whole)?.ok_or_else(|| changed(name))?;
        if let Some(passed) = passed.filter(|_| reader.has_mark_from(0)) {
            return Err(damaged(&chain, passed));
        }
        while let Some((offset, changes)) = reader.next()? {
            apply(Replayed { position: Position { sequence, offset }, changes })?;
        }
        passed = passed.or(reader.passed().first().map(|offset| Position { sequence, offset: *offset }));
        let bytes =
            file.len().map_err(|e| Error::io("ask for the length of the redo log", e).in_file(name))?;
        let (passed_here, end) = (reader.passed().to_vec(), reader.offset());
        let is_open = reader.ending() == Ending::Open;
        let may_go_on = is_open && known.is_whole && !reader.has_record_from(end);
        chain.segments.push_back(Left { sequence, name, bytes, passed: passed_here, end, may_go_on });
        chain.last_sequence = sequence;
        if let Some(passed) = passed.filter(|passed| *passed < known.synced) {
            return Err(damaged(&chain, passed));
        }
        if let Some(offset) = reader.last_mark() {
            chain.durable = chain.durable.max(Position { sequence, offset });
        }
        if is_open {
            end_of_log = Position { sequence, offset: end };
            break;
        }
        sequence += 1;
        end_of_log = Position { sequence, offset: 0 };
    }
    // Which file a segment is stands in its header only: where the one before ends is a place to name.
    let no_segment = (FileName::Of(REDO, chain.last_number.max(1)), 0);
    let (last, before) = chain.segments.back().map_or(no_segment, |left| (left.name, left.end));
    refuse_missing((disk, store_id, &files), (last, before, end_of_log), known)?;
    let behind = files.by_sequence.split_off(&known.first);
    chain.behind.extend(behind.into_values());
    chain.stale.extend(files.by_sequence.into_values());
    chain.unused.extend(files.without_header);
    Ok(chain)
}

fn damaged(chain: &Chain, at: Position) -> Error {
    let left = chain.segments.iter().find(|left| left.sequence == at.sequence).expect("it was read");
    Error::corrupted(left.name, at.offset, "a record is damaged: it was synced")
}

/// The log ends at `end`: nothing behind it may have been synced.
fn refuse_missing(
    (disk, store_id, files): (&dyn Disk, u64, &Files),
    (last, before, end): (FileName, u64, Position),
    known: Known,
) -> Result<()> {
    let missing = || {
        let Position { sequence, offset } = end;
        if offset > 0 {
            let message = format!("the redo log ends in segment {sequence} at {offset}, and more was synced");
            return Error::corrupted(last, offset, message);
        }
        let message = format!(
            "segment {sequence} of the redo log, which was synced, is missing, or its header is damaged: the \
             one before it ends here"
        );
        Error::corrupted(last, before, message)
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
