//! `CommitLog`: the log that all writers share at level sync. One sync makes all concurrent writes durable
//! (group commit).
//!
//! EvenDB §3.5 syncs the chunk's own log before it returns, and finds that an order of magnitude slower;
//! syncs of different chunks do not group. At level sync, every write first goes into one shared log. One
//! writer leads: it appends the records of all who wait, syncs once, and then applies them, in the order of
//! the log, to the chunks. A write is readable only after it is durable, so no crash undoes a read.
//!
//! The leader is the only one who applies, so it also makes a checkpoint's cut: the new commit log that
//! begins with the cut holds exactly what is behind it. The old logs are removed after the checkpoint; replay
//! at open is bounded by one checkpoint interval.
//!
//! * **E-11** The commit logs that the manifest names hold exactly the writes behind its checkpoint, in their
//!   order.

mod replay;

use std::{
    cell::Cell,
    io,
    ops::Range,
    sync::{Arc, OnceLock},
};

use kvilt_base::{Durability, Error, ErrorKind, File, FileName, KeyRange, Result, Swap, mutant, planted};
use kvilt_format::{
    commit::{Change as Logged, HEADER_BYTES, RECORD_HEAD_BYTES, encode_header, encode_mark, encode_record},
    names::COMMIT,
};
use kvilt_sync::{group::Group, published::pin};
use parking_lot::Mutex;

use crate::{
    checkpoint::{Cut, LogStart},
    chunk::put::{Change, settle},
    files::Hold,
    funk::log::{IfFull, sync_failed},
    mutants,
    reserve::Use,
    store::Store,
};

/// Bytes that one group may write at a time: bounds how long its members wait.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// Zeros that a synced log has ahead, at most, in write buffers of a log.
const AHEAD_IN_BUFFERS: u64 = 4;

thread_local! {
    /// Whether this thread leads a group just now.
    static IS_LEADING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread leads a group: in a simulation, where one thread does everything, a checkpoint that it
/// is asked to help with would wait for itself.
pub(crate) fn is_leading() -> bool {
    IS_LEADING.get()
}

/// Marks this thread as a leader until dropped, also by a panic.
struct Leading;

impl Leading {
    fn begin() -> Self {
        IS_LEADING.set(true);
        Leading
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        IS_LEADING.set(false);
    }
}

/// What to do, owned, because another thread may do it.
pub(crate) enum Deed {
    /// Puts and deletes, as one.
    Write(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    /// Delete a range.
    DeleteRange(KeyRange),
    /// Put or delete if the value is the expected one.
    Swap { key: Vec<u8>, expected: Option<Vec<u8>>, new: Option<Vec<u8>> },
    /// Make a checkpoint's cut, behind which a commit log begins.
    Cut(CutOrder),
}

impl Deed {
    /// Whether it puts anything: what only deletes is let through on a full disk.
    fn brings_data(&self) -> bool {
        match self {
            Deed::Write(changes) => changes.iter().any(|(_, value)| value.is_some()),
            Deed::Swap { new, .. } => new.is_some(),
            Deed::DeleteRange(_) | Deed::Cut(_) => false,
        }
    }

    /// The same once more, if it only deletes.
    fn delete(&self) -> Option<Deed> {
        match self {
            _ if self.brings_data() => None,
            Deed::Write(changes) => Some(Deed::Write(changes.clone())),
            Deed::DeleteRange(range) => Some(Deed::DeleteRange(range.clone())),
            Deed::Swap { key, expected, .. } => {
                Some(Deed::Swap { key: key.clone(), expected: expected.clone(), new: None })
            }
            Deed::Cut(_) => None,
        }
    }
}

/// What a leader must know to make a cut.
pub(crate) struct CutOrder {
    /// No writes come behind it.
    pub(crate) is_closing: bool,
    /// Whether what was replayed when the store was opened is still in commit logs only.
    pub(crate) has_old_logs: bool,
    /// The commit log that the manifest says has begun.
    pub(crate) named: Option<u64>,
    /// Where the cut goes.
    pub(crate) into: Arc<OnceLock<Cut>>,
}

/// A deed on its way through the group.
struct Task {
    deed: Deed,
    outcome: Arc<OnceLock<Result<Swap>>>,
}

impl Task {
    fn settle(&self, outcome: Result<Swap>) {
        let _ = self.outcome.set(outcome);
    }
}

fn weigh(task: &Task) -> usize {
    match &task.deed {
        Deed::Write(changes) => {
            changes.iter().map(|(k, v)| k.len() + v.as_ref().map_or(0, Vec::len) + 16).sum()
        }
        Deed::DeleteRange(range) => range.start.len() + 64,
        Deed::Swap { key, new, .. } => key.len() + new.as_ref().map_or(0, Vec::len) + 16,
        Deed::Cut(_) => 1,
    }
}

/// The file being written.
struct Open {
    number: u64,
    file: Arc<dyn File>,
    /// Where the last good record or mark ends.
    offset: u64,
    /// Up to here the file has zeros behind that, or all the disk has to give.
    zeroed_to: u64,
    has_records: bool,
    /// Keeps the file from being swept while the manifest does not know it.
    _hold: Hold,
}

/// The end of the chain of commit logs.
#[derive(Default)]
struct Tail {
    /// Batches in the chain so far, those that were replayed included.
    batches: u64,
    /// None until the first write.
    open: Option<Open>,
}

/// The shared log.
pub(crate) struct CommitLog {
    group: Group<Task>,
    /// Changed by the group's leader only.
    tail: Mutex<Tail>,
}

impl CommitLog {
    /// A commit log whose first file is yet to be made, where this level has one.
    pub(crate) fn of_level(durability: Durability) -> Option<Self> {
        match durability {
            Durability::Async { .. } => None,
            Durability::Sync { .. } => {
                let group = Group::with_weight_max(GROUP_BYTES_MAX, weigh);
                Some(CommitLog { group, tail: Mutex::default() })
            }
        }
    }

    /// Goes on behind a chain of so many batches.
    pub(crate) fn go_on_behind(&self, batches: u64) {
        self.tail.lock().batches = batches;
    }
}

impl Store {
    /// Logs `deed` and applies it, together with others that come at the same time. What only deletes, and
    /// finds no room even with the reserve, first makes a checkpoint: all that is logged so far needs no log
    /// then.
    pub(crate) fn commit(&self, log: &CommitLog, deed: Deed) -> Result<Swap> {
        let again = deed.delete();
        match (self.submit(log, deed), again) {
            (Err(error), Some(deed)) if error.kind() == ErrorKind::NoSpace && !is_leading() => {
                self.checkpoint_now(false)?;
                self.submit(log, deed)
            }
            (outcome, _) => outcome,
        }
    }

    fn submit(&self, log: &CommitLog, deed: Deed) -> Result<Swap> {
        match deed {
            Deed::Cut(_) => self.poison.allow_apply()?,
            Deed::Write(_) | Deed::DeleteRange(_) | Deed::Swap { .. } => self.poison.allow_write()?,
        }
        let outcome = Arc::new(OnceLock::new());
        let task = Task { deed, outcome: Arc::clone(&outcome) };
        let lead = |tasks: Vec<Task>| {
            let _leading = Leading::begin();
            self.lead(log, &tasks)
        };
        if let Err(error) = log.group.submit(task, lead) {
            self.poison.poison(&error);
            return Err(error);
        }
        Arc::into_inner(outcome)
            .and_then(OnceLock::into_inner)
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Poisoned, "a group ended without an outcome")))
    }

    /// Does what the group wants, in order. Deeds are logged together as long as none must see what
    /// another one before it in the group has done.
    fn lead(&self, log: &CommitLog, tasks: &[Task]) -> Result<()> {
        let mut waiting: Vec<&Task> = Vec::new();
        for task in tasks {
            if let Err(damage) = self.allow_deed(&task.deed) {
                task.settle(Err(damage));
                continue;
            }
            match &task.deed {
                Deed::Write(_) | Deed::DeleteRange(_) => waiting.push(task),
                Deed::Cut(order) => {
                    self.settle_all(log, &mut waiting);
                    task.settle(self.cut_behind_log(log, order).map(|cut| {
                        let _ = order.into.set(cut);
                        Swap::Done
                    }));
                }
                Deed::Swap { key, expected, .. } => {
                    if waiting.iter().any(|before| touches(&before.deed, key)) {
                        self.settle_all(log, &mut waiting);
                    }
                    match self.differs(key, expected.as_deref()) {
                        Ok(None) => waiting.push(task),
                        Ok(Some(actual)) => task.settle(Ok(Swap::Differs(actual))),
                        Err(error) => task.settle(Err(error)),
                    }
                }
            }
        }
        self.settle_all(log, &mut waiting);
        Ok(())
    }

    /// Fails if the deed brings data to a full disk, or goes to a chunk whose files were found damaged. What
    /// is in the log is applied in any case.
    fn allow_deed(&self, deed: &Deed) -> Result<()> {
        if deed.brings_data() {
            self.files.reserve.allow_data()?;
        }
        let pin = pin();
        let index = self.index.load(&pin);
        match deed {
            Deed::Write(changes) => changes.iter().try_for_each(|(key, _)| index.find(key).allow_write()),
            Deed::DeleteRange(range) => index.chunks()[index.position(&range.start)..]
                .iter()
                .take_while(|chunk| !chunk.range.intersection(range).is_empty())
                .try_for_each(|chunk| chunk.allow_write()),
            Deed::Swap { key, .. } => index.find(key).allow_write(),
            Deed::Cut(_) => Ok(()),
        }
    }

    /// Logs and applies the waiting deeds. The leader is the only one who applies, so what a swap compared
    /// with stays true until it is applied.
    fn settle_all(&self, log: &CommitLog, waiting: &mut Vec<&Task>) {
        let mut waiting = std::mem::take(waiting);
        if waiting.is_empty() {
            return;
        }
        planted!(AppliedEarly => waiting.iter().for_each(|task| drop(self.apply_deed(&task.deed))));
        let logged = self.log_group(log, &waiting);
        if let Err(error) = logged.or_else(|error| self.log_deletes(log, &mut waiting, error)) {
            waiting.iter().for_each(|task| task.settle(Err(error.clone())));
            return;
        }
        for task in waiting {
            let applied = self.apply_deed(&task.deed);
            if let Err(error) = &applied {
                // It is in the log, but not to be seen: only an open can bring both together.
                self.poison.poison(error);
            }
            task.settle(applied.map(|()| Swap::Done));
        }
    }

    /// If it was the disk that is full, logs those of the group that only delete, with the room of the
    /// reserve, and refuses the others.
    fn log_deletes(&self, log: &CommitLog, waiting: &mut Vec<&Task>, error: Error) -> Result<()> {
        if error.kind() != ErrorKind::NoSpace {
            return Err(error);
        }
        for task in waiting.extract_if(.., |task| task.deed.brings_data()) {
            task.settle(Err(error.clone()));
        }
        if waiting.is_empty() {
            return Ok(());
        }
        let bytes = waiting.iter().map(|task| weigh(task) as u64).sum();
        let Some(_lease) = self.files.reserve.give(Use::Deletes, bytes) else { return Err(error) };
        self.log_group(log, waiting)
    }

    fn log_group(&self, log: &CommitLog, tasks: &[&Task]) -> Result<()> {
        self.poison.allow_write()?;
        let mut tail = log.tail.lock();
        if tail.open.is_none() {
            self.begin_commit_file(&mut tail)?;
        }
        let open = tail.open.as_mut().expect("made above");
        let name = FileName::Of(COMMIT, open.number);
        let identity = self.files.identity(open.number);
        let mut records = Vec::new();
        for task in tasks {
            encode_deed(&mut records, identity, open.offset, &task.deed);
        }
        if let Err(error) = open.file.write_all_at(open.offset, &records) {
            let error = Error::io("append to the commit log", error).at(name, open.offset);
            // Whole records of a failed group must not be replayed behind a shorter group that succeeds.
            if let Err(cause) = scrub(open) {
                self.poison
                    .poison(&Error::io("take back a failed append to the commit log", cause).in_file(name));
            }
            return Err(error);
        }
        self.write_zeros_ahead(open, records.len() as u64);
        let is_synced = planted!(AcknowledgedEarly, true => false);
        if is_synced {
            open.file.sync().map_err(|e| {
                let error = sync_failed(e, name);
                self.poison.poison(&error);
                error
            })?;
        }
        open.offset += records.len() as u64;
        open.has_records = true;
        self.counters.commit_bytes_written.add(records.len() as u64);
        self.files.reserve.grow_with(records.len() as u64);
        // Not synced itself: it says that the group was, wherever it gets through. Where it cannot be
        // written, the next one says as much.
        let mark = encode_mark(identity, open.offset);
        if open.file.write_all_at(open.offset, &mark).is_ok() {
            open.offset += mark.len() as u64;
        }
        tail.batches += tasks.len() as u64;
        Ok(())
    }

    /// Zeros behind a group that is not synced yet, if there is no room in earlier ones for it and its mark:
    /// a sync that makes the file no longer need not wait for the file system's journal. As many as there is
    /// log, so that they are never more than what is logged, up to a limit.
    ///
    /// On a full disk what lies in them is still taken, and waits in memory for a checkpoint, which the
    /// reserve must have room for: so they are no more than a piece of it. Room that the reserve has given is
    /// not for them.
    fn write_zeros_ahead(&self, open: &mut Open, group_bytes: u64) {
        let reserve = &self.files.reserve;
        let end = open.offset + group_bytes;
        if end + RECORD_HEAD_BYTES as u64 <= open.zeroed_to || reserve.is_short() {
            return;
        }
        let limit = reserve.piece_bytes().min(AHEAD_IN_BUFFERS * self.config.log_buffer_bytes_max as u64);
        let ahead = end.min(limit);
        // A large group takes longer to write than the journal does.
        if group_bytes > ahead / 2 {
            return;
        }
        // Where there is no room for them, it goes on without.
        let is_written = write_zeros(&*open.file, end, end + ahead).is_ok();
        open.zeroed_to = if is_written { end + ahead } else { u64::MAX };
    }

    /// Makes a file whose name and header are durable.
    fn begin_commit_file(&self, tail: &mut Tail) -> Result<()> {
        let number = self.files.next_number();
        let name = FileName::Of(COMMIT, number);
        let hold = Hold::default();
        let file = self.files.create(name, &hold)?;
        let identity = self.files.identity(number);
        let mut head = encode_header(identity, tail.batches).to_vec();
        // All that is in older files was synced before it was acknowledged.
        head.extend_from_slice(&encode_mark(identity, HEADER_BYTES as u64));
        if let Err(error) = file.write_all_at(0, &head) {
            self.files.remove_unfinished(name);
            return Err(Error::io("begin a commit log", error).in_file(name));
        }
        let synced = file.sync().map_err(|e| sync_failed(e, name)).and_then(|()| self.files.sync_names());
        if let Err(error) = synced {
            self.poison.poison(&error);
            return Err(error);
        }
        planted!(CommitRemovedEarly => if let Some(old) = &tail.open {
            self.files.remove_unfinished(FileName::Of(COMMIT, old.number));
        });
        // The old file stays until a checkpoint covers it; the sweep is told what is live.
        let offset = head.len() as u64;
        tail.open = Some(Open { number, file, offset, zeroed_to: offset, has_records: false, _hold: hold });
        Ok(())
    }

    /// Makes a checkpoint's cut. What is logged so far is applied, and nothing is applied meanwhile, so the
    /// commit log that begins here holds exactly what comes behind the cut.
    fn cut_behind_log(&self, log: &CommitLog, order: &CutOrder) -> Result<Cut> {
        let mut tail = log.tail.lock();
        if order.is_closing {
            // Whoever comes behind is refused, and begins no file.
            tail.open = None;
            return Ok(self.cut(Some(LogStart { first: self.files.peek_number(), is_begun: false })));
        }
        let is_covering = tail.open.as_ref().map_or(order.has_old_logs, |open| open.has_records);
        if is_covering {
            self.begin_commit_file(&mut tail)?;
        }
        // Unless the manifest knows it: begun just now, or for a checkpoint before that failed.
        let begun = tail.open.as_ref().map(|open| open.number).filter(|number| order.named != Some(*number));
        let start = begun.map(|first| LogStart { first, is_begun: true });
        Ok(self.cut(start))
    }

    fn apply_deed(&self, deed: &Deed) -> Result<()> {
        match deed {
            Deed::Write(changes) => {
                let mut changes: Vec<_> =
                    changes.iter().map(|(key, value)| Change { key, value: value.as_deref() }).collect();
                settle(&mut changes);
                self.apply_batch(&changes, IfFull::Grow)
            }
            Deed::DeleteRange(range) => self.apply_delete_range(range, IfFull::Grow),
            Deed::Swap { key, new, .. } => {
                self.apply_one(Change { key, value: new.as_deref() }, IfFull::Grow)
            }
            Deed::Cut(_) => Ok(()),
        }
    }

    fn differs(&self, key: &[u8], expected: Option<&[u8]>) -> Result<Option<Option<kvilt_base::Value>>> {
        let mut actual = None;
        self.get(key, kvilt_base::Version::NEWEST, &mut |value| {
            actual = Some(kvilt_base::Value::copied(value))
        })?;
        let is_expected = actual.as_deref() == expected;
        Ok((!is_expected).then_some(actual))
    }
}

/// Whether `deed` may change what `key` has.
fn touches(deed: &Deed, key: &[u8]) -> bool {
    match deed {
        Deed::Write(changes) => changes.iter().any(|(k, _)| k == key),
        Deed::DeleteRange(range) => range.contains(key),
        Deed::Swap { key: other, .. } => other == key,
        Deed::Cut(_) => false,
    }
}

/// Appends the record of a deed to those that will lie from `offset` on.
fn encode_deed(out: &mut Vec<u8>, id: kvilt_format::FileIdentity, offset: u64, deed: &Deed) {
    let offset = offset + out.len() as u64;
    match deed {
        Deed::Write(changes) if mutant(&mutants::BatchInPieces) => {
            let start = offset - out.len() as u64;
            for (k, v) in changes {
                encode_record(out, id, start + out.len() as u64, [as_logged(k, v)]);
            }
        }
        Deed::Write(changes) => encode_record(out, id, offset, changes.iter().map(|(k, v)| as_logged(k, v))),
        Deed::DeleteRange(range) => {
            let change = Logged::DeleteRange { start: &range.start, end: range.end.as_deref() };
            encode_record(out, id, offset, [change]);
        }
        Deed::Swap { key, new, .. } => encode_record(out, id, offset, [as_logged(key, new)]),
        Deed::Cut(_) => {}
    }
}

fn as_logged<'a>(key: &'a [u8], value: &'a Option<Vec<u8>>) -> Logged<'a> {
    match value {
        Some(value) => Logged::Put { key, value },
        None => Logged::Delete { key },
    }
}

const PAGE_BYTES: usize = 4096;

/// The parts of a stretch of a file that lie in different pages.
fn pages(from: u64, to: u64) -> impl Iterator<Item = Range<u64>> {
    let page = PAGE_BYTES as u64;
    (from / page..to.div_ceil(page))
        .map(move |n| from.max(n * page)..to.min((n + 1) * page))
        .filter(|part| !part.is_empty())
}

/// Page by page: the kernel keeps what one call writes as one piece, and counts all of a piece as written
/// when one record in it is.
fn write_zeros(file: &dyn File, from: u64, to: u64) -> io::Result<()> {
    pages(from, to).try_for_each(|page| {
        file.write_all_at(page.start, &[0; PAGE_BYTES][..(page.end - page.start) as usize])
    })
}

/// Writes zeros over what a failed append has left, where it has left anything: a disk may have no room for
/// that either.
fn scrub(open: &Open) -> io::Result<()> {
    let mut is_dirty = false;
    for page in pages(open.offset, open.file.len()?) {
        let mut bytes = [0; PAGE_BYTES];
        let bytes = &mut bytes[..(page.end - page.start) as usize];
        open.file.read_exact_at(page.start, bytes)?;
        if bytes.iter().any(|&byte| byte != 0) {
            write_zeros(&*open.file, page.start, page.end)?;
            is_dirty = true;
        }
    }
    // Or a power cut could bring back the records, whose writers were told that they failed.
    if is_dirty { open.file.sync() } else { Ok(()) }
}

#[cfg(test)]
mod tests;
