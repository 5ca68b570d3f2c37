//! Replay: what the commit logs of earlier runs say is applied again, up to the first gap.
//!
//! The files since the last checkpoint are a *chain*: each says how many batches lie before its own. After a power
//! cut in written mode any of them may be torn or gone, so a file counts only if the ones before it led up to it
//! without a gap. What does not fit is left alone, unless a mark in it says that all before it was synced: then
//! synced bytes are missing, and that is corruption.

use std::io;

use kvilt_base::{Error, File, FileName, KeyRange, Mutant, Result, mutant};
use kvilt_format::commit::{Change as Logged, Changes, CommitReader};

use crate::{
    chunk::put::{Change, settle},
    files::Hold,
    funk::log::{IfFull, sync_failed},
    store::Store,
};

/// Bytes that are written once more at a time.
const WRITTEN_TOGETHER: usize = 256 << 10;

/// How far a chain was followed.
struct Chain {
    /// Batches so far; none before the first file of a chain that began in the middle.
    batches: Option<u64>,
    /// Where the last file ended that could be a part of it.
    end: Option<(FileName, u64)>,
}

impl Store {
    /// Applies what these commit logs say, in order; new ones will go on behind it.
    pub(crate) fn replay(&self, numbers: &[u64]) -> Result<()> {
        for &number in numbers {
            self.files.know(FileName::Commit(number), &Hold::default());
        }
        let begun = self.checkpoint.with_durable(|root| root.commit_is_begun.then_some(root.commit_first));
        if let Some(number) = begun.filter(|number| !numbers.contains(number)) {
            let message = "a commit log that the manifest names is missing";
            return Err(Error::corrupted(FileName::Commit(number), 0, message));
        }
        let mut chain = Chain { batches: if begun.is_some() { None } else { Some(0) }, end: None };
        for &number in numbers {
            self.replay_file(number, begun == Some(number), &mut chain)?;
        }
        if let Some(log) = &self.commit {
            log.go_on_behind(if mutant(Mutant::ChainForgotten) { 0 } else { chain.batches.unwrap_or(0) });
        }
        Ok(())
    }

    fn replay_file(&self, number: u64, is_begun: bool, chain: &mut Chain) -> Result<()> {
        let name = FileName::Commit(number);
        let file = self.files.open(name)?;
        // What is replayed can be read from now on, so it must not be lost to a power cut later.
        if !mutant(Mutant::ReplayNotSynced) {
            write_once_more(&*file)
                .map_err(|e| Error::io("write a commit log once more", e).in_file(name))?;
            file.sync().map_err(|e| sync_failed(e, name))?;
        }
        let mut reader = CommitReader::open(file, self.files.identity(number))?;
        let Some(before) = reader.batches_before() else {
            if is_begun {
                return Err(Error::corrupted(name, 0, "the header was synced, and is not good"));
            }
            self.counters.torn_tails.add(1);
            chain.end = Some((name, 0));
            return Ok(());
        };
        if chain.batches.is_some_and(|batches| batches != before) && !mutant(Mutant::ChainIgnored) {
            if reader.has_mark()? {
                let (file, offset) = chain.end.unwrap_or((name, 0));
                let message =
                    format!("{name} follows {before} batches, all synced, but they are not all there");
                return Err(Error::corrupted(file, offset, message));
            }
            self.counters.torn_tails.add(1);
            return Ok(());
        }
        let mut batches = before;
        while let Some((_, changes)) = reader.next()? {
            self.apply_logged(changes)?;
            batches += 1;
        }
        self.counters.torn_tails.add(u64::from(reader.is_torn()));
        *chain = Chain { batches: Some(batches), end: Some((name, reader.offset())) };
        Ok(())
    }

    fn apply_logged(&self, changes: Changes<'_>) -> Result<()> {
        let mut writes = Vec::new();
        for change in changes {
            match change {
                Logged::Put { key, value } => writes.push(Change { key, value: Some(value) }),
                Logged::Delete { key } => writes.push(Change { key, value: None }),
                Logged::DeleteRange { start, end } => {
                    let range = KeyRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) };
                    self.apply_delete_range(&range, IfFull::Grow)?;
                }
            }
        }
        if mutant(Mutant::BatchHalfReplayed) {
            writes.truncate(1);
        }
        settle(&mut writes);
        self.apply_batch(&writes, IfFull::Grow)
    }
}

/// Writes all bytes of a file that can be read where they are. To sync them alone would not do: where a sync failed before, the
/// kernel may have dropped what it could not write, show it to readers all the same, and take it for written (D-5).
fn write_once_more(file: &dyn File) -> io::Result<()> {
    let mut piece = vec![0; WRITTEN_TOGETHER];
    let mut offset = 0;
    loop {
        let len = file.read_full_at(offset, &mut piece)?;
        match file.write_all_at(offset, &piece[..len]) {
            // They have their room, but for a file system that never writes in place; then it is as it was.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
            written => written?,
        }
        offset += len as u64;
        if len < piece.len() {
            return Ok(());
        }
    }
}
