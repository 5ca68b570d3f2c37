//! What a killed process has left, where the kernel still has all of it: the files that chunks had, and what
//! its write buffers held. See `docs/design/0065-nothing-is-lost-to-a-kill.md`.
//!
//! What is always true: on any doubt there is nothing, and the open goes on from the last checkpoint.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::pool::{self, LeftBuffer, LeftPool};
use kvilt_base::{Disk, Error, File, FileName, Listed, Result, Version, directory, planted};
use kvilt_format::{
    FileIdentity,
    journal::{Origin, read_journal},
    log::{Decoded, HEADER_BYTES, decode_header, decode_record},
    manifest::{Edit, FileRecord, PartKind, Root},
    names::{JOURNAL, LOG, POOL, TABLE},
};

/// The store as it was when its process was killed.
pub(super) struct Killed {
    /// What the manifest would say had the last checkpoint been taken at that moment; the lengths of logs are
    /// those that they have now.
    pub(super) root: Root,
    /// Where the versions of the killed run began.
    pub(super) epoch_base: Version,
    /// First keys of the chunks that changed since the checkpoint; some may be no more.
    pub(super) changed: BTreeSet<Vec<u8>>,
    /// What of logs is not in their files, and was not to be written: from where on, and the bytes.
    pub(super) in_memory: BTreeMap<u64, (u64, Vec<u8>)>,
    /// The logs, open: the recovery uses each of them again, and an open costs five system calls.
    pub(super) _logs: Vec<Arc<dyn File>>,
}

/// Looks for what a killed process has left above `root`, and writes its buffers to its logs, unless the
/// store is to be read only.
///
/// Errors: `Io`, `NoSpace`.
pub(super) fn find(
    disk: &dyn Disk,
    root: &Root,
    listed: &[Listed],
    is_read_only: bool,
) -> Result<Option<Killed>> {
    let numbers = |kind| directory::numbers(listed, kind).collect::<BTreeSet<u64>>();
    let identity = |number| FileIdentity { store_id: root.store_id, number };
    let journals = numbers(JOURNAL);
    if journals.is_empty() {
        return Ok(None);
    }
    let pools: Vec<LeftPool> =
        numbers(POOL).into_iter().filter_map(|number| pool::left(disk, identity(number))).collect();
    // Of two that count, the later one goes on from the one before.
    for number in journals.into_iter().rev() {
        let Some((origin, edits)) = read_journal(disk, identity(number))? else { continue };
        let is_its = |pool: &&LeftPool| pool.run == origin.run && pool.boot == origin.boot;
        let Some(pool) = pools.iter().find(is_its).filter(|pool| number > pool.lapsed) else { continue };
        if origin.cut != root.checkpoint {
            continue;
        }
        if !pool.has_all_logs(listed) {
            continue;
        }
        let has_spilled = number <= pool.spilled;
        let has_spilled = planted!(SpillNotRead, has_spilled => false);
        let found = Search { disk, pool, origin, root, is_read_only, has_spilled };
        if let Some(killed) = found.killed(number, &edits)? {
            return Ok(Some(killed));
        }
    }
    Ok(None)
}

struct Search<'s> {
    disk: &'s dyn Disk,
    pool: &'s LeftPool,
    origin: Origin,
    root: &'s Root,
    is_read_only: bool,
    /// Whether logs may end within a record, or within a batch of which the pool does not know.
    has_spilled: bool,
}

/// What is known of a log that may have become longer than the manifest knows.
struct Grown {
    /// None if its first buffer was never written.
    file: Option<Arc<dyn File>>,
    file_len: u64,
    len: u64,
    buffers: Vec<LeftBuffer>,
}

impl Search<'_> {
    fn killed(&self, journal: u64, edits: &[Edit]) -> Result<Option<Killed>> {
        let mut living = self.root.clone();
        let mut changed = BTreeSet::new();
        for edit in edits {
            // Those with which a journal begins are older than the checkpoint's own edit.
            let next_file = edit.next_file.map(|next| next.max(living.next_file));
            if living.apply(&Edit { next_file, ..edit.clone() }).is_err() {
                return Ok(None);
            }
            changed.extend(edit.chunks_upserted.iter().map(|(key, _)| key.clone()));
            changed.extend(edit.chunks_removed.iter().cloned());
        }
        let tables = living.files.iter().filter(|(number, record)| {
            record.kind == PartKind::Table
                && !self.root.files.contains_key(number)
                && living.users(**number) > 0
        });
        let mut tables = tables.map(|(number, record)| (FileName::Of(TABLE, *number), record.len));
        // The manifest was synced, and is known by its cut.
        if !self.is_own(FileName::Of(JOURNAL, journal), None)
            || !tables.all(|(name, len)| self.is_own(name, Some(len)))
        {
            return Ok(None);
        }
        let Some(mut grown) = self.grown_logs(&living, edits)? else { return Ok(None) };
        let mut in_memory = BTreeMap::new();
        for (number, log) in &mut grown {
            if !self.is_read_only {
                let buffers = std::mem::take(&mut log.buffers);
                buffers.iter().try_for_each(|buffer| self.write(*number, log, buffer))?;
            } else if let Some(begin) = log.buffers.iter().map(|buffer| buffer.left.place.offset).min()
                && begin < log.len
            {
                in_memory.insert(*number, (begin, self.end_of(*number, log, begin)?));
            }
        }
        let Some(root) = with_lengths(living, &grown) else { return Ok(None) };
        let _logs = grown.into_values().filter_map(|log| log.file).collect();
        Ok(Some(Killed { root, epoch_base: self.origin.epoch_base, changed, in_memory, _logs }))
    }

    /// Whether nobody but the killed process has changed a file, of this length if it is given.
    fn is_own(&self, name: FileName, len: Option<u64>) -> bool {
        let found = self.disk.open(name).ok().and_then(|file| self.pool.own_len(&*file));
        found.is_some_and(|found| len.is_none_or(|len| len == found))
    }

    /// The logs of the run that may have become longer since the checkpoint; none if something is missing.
    fn grown_logs(&self, living: &Root, edits: &[Edit]) -> Result<Option<BTreeMap<u64, Grown>>> {
        // The last of each chunk, and all that the journal names: it knows no length of a log of its run, and
        // one that it names may by now be another chunk's alone.
        let last = living.chunks.values().filter_map(|numbers| numbers.last()).copied();
        let named = edits.iter().flat_map(|edit| &edit.files_upserted).map(|(number, _)| *number);
        let may_have_grown: BTreeSet<u64> = last.chain(named).filter(|n| living.users(*n) > 0).collect();
        let is_of_run = |number: &u64| {
            let record = &living.files[number];
            record.kind == PartKind::Log && record.base == self.origin.epoch_base
        };
        let mut grown = BTreeMap::new();
        for number in may_have_grown.into_iter().filter(is_of_run) {
            let name = FileName::Of(LOG, number);
            let (file, file_len) = match self.disk.open(name) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => (None, 0),
                Err(e) => return Err(Error::io("open a log", e).in_file(name)),
                Ok(file) => match self.pool.own_len(&*file) {
                    Some(len) => (Some(file), len),
                    None => return Ok(None),
                },
            };
            grown.insert(number, Grown { file, file_len, len: file_len, buffers: Vec::new() });
        }
        let buffers =
            self.pool.buffers().map_err(|e| Error::io("read what a killed process had buffered", e))?;
        let Some(buffers) = buffers else { return Ok(None) };
        for buffer in buffers {
            if let Some(log) = grown.get_mut(&buffer.left.place.log) {
                log.buffers.push(buffer);
            }
        }
        for (number, log) in &mut grown {
            let durable = self.root.files.get(number).map_or(0, |record| record.len);
            if !log.measure(&self.pool.open_batches) || log.len < durable {
                return Ok(None);
            }
            if self.has_spilled {
                log.len = self.end_of_whole_records(*number, log, durable)?;
            }
        }
        Ok(Some(grown))
    }

    /// Where the whole records of a log end, of which the first `durable` bytes are good, and before any of a
    /// batch that is not whole.
    fn end_of_whole_records(&self, number: u64, log: &Grown, durable: u64) -> Result<u64> {
        let bytes = self.end_of(number, log, durable)?;
        let id = FileIdentity { store_id: self.root.store_id, number };
        let mut at = 0;
        if durable == 0 {
            if decode_header(&bytes, FileName::Of(LOG, number), id).is_err() {
                return Ok(0);
            }
            at = HEADER_BYTES;
        }
        loop {
            let offset = durable + at as u64;
            match decode_record(&bytes[at..], id, offset, self.origin.epoch_base) {
                Decoded::Record { batch, .. } if self.pool.open_batches.contains(&batch) => {
                    return Ok(offset);
                }
                Decoded::Record { len, .. } | Decoded::Summary { len } => at += len,
                Decoded::Incomplete { .. } | Decoded::Bad(_) => return Ok(offset),
            }
        }
    }

    /// The bytes of a log from `begin` on: those of its file, and over them those of its buffers.
    fn end_of(&self, number: u64, log: &Grown, begin: u64) -> Result<Vec<u8>> {
        let name = FileName::Of(LOG, number);
        let mut bytes = vec![0; (log.len - begin) as usize];
        let in_file = log.file_len.saturating_sub(begin).min(bytes.len() as u64) as usize;
        if in_file > 0
            && let Some(file) = &log.file
        {
            file.read_exact_at(begin, &mut bytes[..in_file])
                .map_err(|e| Error::io("read the end of a log", e).at(name, begin))?;
        }
        for buffer in &log.buffers {
            let there = self.bytes_of(number, log, buffer)?;
            let offset = buffer.left.place.offset;
            let skipped = (begin.saturating_sub(offset) as usize).min(there.len());
            let at = (offset + skipped as u64).saturating_sub(begin) as usize;
            bytes[at..at + there.len() - skipped].copy_from_slice(&there[skipped..]);
        }
        Ok(bytes)
    }

    /// What of a buffer belongs to its log.
    fn bytes_of(&self, number: u64, log: &Grown, buffer: &LeftBuffer) -> Result<Vec<u8>> {
        let name = FileName::Of(LOG, number);
        let mut bytes = self
            .pool
            .bytes(buffer)
            .map_err(|e| Error::io("read what a killed process had buffered", e).in_file(name))?;
        bytes.truncate(log.len.saturating_sub(buffer.left.place.offset) as usize);
        Ok(bytes)
    }

    fn write(&self, number: u64, log: &mut Grown, buffer: &LeftBuffer) -> Result<()> {
        let (name, begin) = (FileName::Of(LOG, number), buffer.left.place.offset);
        let bytes = self.bytes_of(number, log, buffer)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let failed = |e| Error::io("write what a killed process had buffered", e).at(name, begin);
        self.pool.stamp(self.disk).map_err(failed)?;
        let file = match &mut log.file {
            Some(file) => file,
            none => none.insert(self.disk.create(name).map_err(failed)?),
        };
        file.write_all_at(begin, &bytes).map_err(failed)
    }
}

impl Grown {
    /// Finds where the log ends: behind what file and buffers have without a gap, before a batch that is not
    /// whole. False if there is a gap.
    fn measure(&mut self, open_batches: &[u64]) -> bool {
        self.buffers.sort_unstable_by_key(|buffer| (buffer.left.place.offset, buffer.left.len));
        let mut end = self.file_len;
        for buffer in &self.buffers {
            if buffer.left.place.offset > end {
                return false;
            }
            end = end.max(buffer.left.place.offset + buffer.left.len as u64);
        }
        let batches = self.buffers.iter().filter_map(|buffer| buffer.left.batch);
        let cut = batches.filter(|(id, _)| open_batches.contains(id)).map(|(_, begin)| begin).min();
        self.len = cut.map_or(end, |cut| cut.min(end));
        true
    }
}

/// The root with the lengths that logs have, and without those that have no record.
fn with_lengths(mut root: Root, grown: &BTreeMap<u64, Grown>) -> Option<Root> {
    let is_empty = |number: &u64| grown.get(number).is_some_and(|log| log.len <= HEADER_BYTES as u64);
    let record = |number: &u64, len| FileRecord { len, summary: None, ..root.files[number] };
    let files_upserted = grown.iter().map(|(number, log)| (*number, record(number, log.len))).collect();
    let without = |(key, numbers): (&Vec<u8>, &Vec<u64>)| {
        numbers.iter().any(is_empty).then(|| {
            (key.clone(), numbers.iter().copied().filter(|number| !is_empty(number)).collect::<Vec<u64>>())
        })
    };
    let chunks_upserted = root.chunks.iter().filter_map(without).collect();
    root.apply(&Edit { files_upserted, chunks_upserted, ..Edit::default() }).ok()?;
    let unused: Vec<u64> = root.files.keys().copied().filter(|number| root.users(*number) == 0).collect();
    root.apply(&Edit { files_removed: unused, ..Edit::default() }).ok()?;
    Some(root)
}
