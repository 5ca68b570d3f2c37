//! Replay: what the commit logs of earlier runs say is applied again.
//!
//! The files since the last checkpoint are a *chain*: each says how many batches lie before its own. They
//! were all synced before it was begun, so if another number of them is there, that is corruption.

use std::io;

use kvilt_base::{Error, ErrorKind, File, FileName, KeyRange, Result, planted};
use kvilt_format::{
    commit::{Change as Logged, Changes, CommitReader},
    names::COMMIT,
};

use crate::{
    chunk::put::{Change, settle},
    files::Hold,
    funk::log::{IfFull, sync_failed},
    store::Store,
};

/// Bytes that are written once more at a time.
const WRITTEN_TOGETHER: usize = 256 << 10;

/// What a change takes in memory beside its key and value, about: a record's head, an index, what is noted of
/// it.
const CHANGE_BYTES: u64 = 64;
/// What is replayed in memory alone may have this part of the budget. Buffers that grow take up to three
/// times as much.
const MEMORY_SHARE: u64 = 4;

/// How far a chain was followed.
struct Chain {
    /// Batches so far; none before the first file of a chain that began in the middle.
    batches: Option<u64>,
    /// Where the last file ended that could be a part of it.
    end: Option<(FileName, u64)>,
    /// Files that were torn.
    torn: u64,
}

/// What is done with what a chain holds.
trait Use {
    /// Before a file is read.
    fn begin(&mut self, name: FileName, file: &dyn File) -> Result<()>;

    /// With each batch, in order.
    fn take(&mut self, changes: Changes<'_>) -> Result<()>;
}

impl Store {
    /// Reads these commit logs and changes nothing, so that an open fails before it has. Says how many bytes
    /// what they hold would take in memory.
    ///
    /// Errors: `Corrupted`; `UnsupportedVersion`; `Io`.
    pub(crate) fn survey(&self, numbers: &[u64]) -> Result<u64> {
        let mut survey = Survey { bytes: 0 };
        self.follow(numbers, &mut survey)?;
        Ok(survey.bytes)
    }

    /// Fails if so much cannot be replayed without a file: what is left out would be missing without a word.
    pub(crate) fn allow_replay_in_memory(&self, bytes: u64) -> Result<()> {
        let most = self.config.budget_bytes / MEMORY_SHARE;
        if bytes <= most {
            return Ok(());
        }
        let message = format!(
            "what was written since the last checkpoint takes {bytes} bytes in memory, as no file is written, and the memory \
             budget has {most} for it; a larger budget has more, and who opens the store to write needs none"
        );
        Err(Error::new(ErrorKind::LimitReached, message).by_setting("memory_budget"))
    }

    /// Applies what these commit logs say, in order; new ones will go on behind it.
    pub(crate) fn replay(&self, numbers: &[u64]) -> Result<()> {
        for &number in numbers {
            self.files.know(FileName::Of(COMMIT, number), &Hold::default());
        }
        planted!(CommitNotShown => if self.config.is_read_only { return Ok(()) });
        let chain = self.follow(numbers, &mut Replay { store: self })?;
        self.counters.torn_tails.add(chain.torn);
        if let Some(log) = &self.commit {
            let batches = chain.batches.unwrap_or(0);
            let batches = planted!(ChainForgotten, batches => 0);
            log.go_on_behind(batches);
        }
        Ok(())
    }

    fn follow(&self, numbers: &[u64], what_for: &mut dyn Use) -> Result<Chain> {
        let begun = self.checkpoint.with_durable(|root| root.commit_is_begun.then_some(root.commit_first));
        if let Some(number) = begun.filter(|number| !numbers.contains(number)) {
            let message = "a commit log that the manifest names is missing";
            return Err(Error::corrupted(FileName::Of(COMMIT, number), 0, message));
        }
        let batches = if begun.is_some() { None } else { Some(0) };
        let mut chain = Chain { batches, end: None, torn: 0 };
        for &number in numbers {
            self.follow_into(number, begun == Some(number), &mut chain, what_for)?;
        }
        Ok(chain)
    }

    fn follow_into(
        &self,
        number: u64,
        is_begun: bool,
        chain: &mut Chain,
        what_for: &mut dyn Use,
    ) -> Result<()> {
        let name = FileName::Of(COMMIT, number);
        let file = self.files.open(name)?;
        what_for.begin(name, &*file)?;
        let mut reader = CommitReader::open(file, self.files.identity(number))?;
        let Some(before) = reader.batches_before() else {
            if is_begun {
                return Err(Error::corrupted(name, 0, "the header was synced, and is not good"));
            }
            chain.torn += 1;
            chain.end = Some((name, 0));
            return Ok(());
        };
        let is_broken = chain.batches.is_some_and(|batches| batches != before);
        if is_broken {
            let (file, offset) = chain.end.unwrap_or((name, 0));
            let message = format!("{name} follows {before} batches, all synced, but they are not all there");
            return Err(Error::corrupted(file, offset, message));
        }
        let mut batches = before;
        while let Some((_, changes)) = reader.next()? {
            what_for.take(changes)?;
            batches += 1;
        }
        chain.torn += u64::from(reader.is_torn());
        (chain.batches, chain.end) = (Some(batches), Some((name, reader.offset())));
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
        planted!(BatchHalfReplayed => writes.truncate(1));
        settle(&mut writes);
        self.apply_batch(&writes, IfFull::Grow)
    }
}

/// To know what there is.
struct Survey {
    bytes: u64,
}

impl Use for Survey {
    fn begin(&mut self, _: FileName, _: &dyn File) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, changes: Changes<'_>) -> Result<()> {
        for change in changes {
            let len = match change {
                Logged::Put { key, value } => key.len() + value.len(),
                Logged::Delete { key } => key.len(),
                Logged::DeleteRange { start, end } => start.len() + end.map_or(0, <[u8]>::len),
            };
            self.bytes += len as u64 + CHANGE_BYTES;
        }
        Ok(())
    }
}

/// To apply it.
struct Replay<'s> {
    store: &'s Store,
}

impl Use for Replay<'_> {
    /// What is replayed can be read from now on, so it must not be lost to a power cut later. Who only reads
    /// promises nothing.
    fn begin(&mut self, name: FileName, file: &dyn File) -> Result<()> {
        planted!(ReplayNotSynced => return Ok(()));
        if self.store.config.is_read_only {
            return Ok(());
        }
        write_once_more(file).map_err(|e| Error::io("write a commit log once more", e).in_file(name))?;
        file.sync().map_err(|e| sync_failed(e, name))
    }

    fn take(&mut self, changes: Changes<'_>) -> Result<()> {
        self.store.apply_logged(changes)
    }
}

/// Writes all bytes of a file that can be read where they are. To sync them alone would not do: where a sync
/// failed before, the kernel may have dropped what it could not write, show it to readers all the same, and
/// take it for written (D-5).
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
