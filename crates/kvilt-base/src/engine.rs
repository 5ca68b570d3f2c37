//! The contract that every engine signs. Numbers as in `docs/invariants.md`.
//!
//! * **B-1** Keys are ordered bytewise. Ranges are half open.
//! * **B-2** Gets and puts are linearizable. A get waits for no put.
//! * **B-3** A read view is one point in time over the whole store: it holds every write that completed
//!   before it was opened and none that began after, whatever is rebalanced, split or evicted meanwhile.
//! * **B-4** A write batch is seen whole or not at all, by gets, read views, and recovery.
//! * **B-5** After a crash the store equals a prefix of the writes in real-time order: at least all that
//!   completed before the last successful [`Engine::sync`] began, and all that were acknowledged if only the
//!   process died, or at level sync.
//! * **B-6** After a failed sync, and after a panic in the background, every write fails as poisoned; reads
//!   go on.
//! * **B-7** An open that is refused, and a store that is open to be read only, changes no file; and who only
//!   reads sees all that another open would show, or is refused.
//! * **B-8** A store is opened by the engine that made it and by no other.

use std::{any::Any, fmt, path::Path};

use crate::{
    Direction, KeyRange, Layout, LayoutRange, Result, Rows, Scanned, Stats, Value, Version, WriteBatch,
};

/// A read view held open: versions it can see are kept until it is dropped. Owned, `Send` and `Sync`.
pub struct ReadView {
    version: Version,
    /// Closes the view when dropped; its type is the engine's affair.
    _held: Box<dyn Any + Send + Sync>,
}

impl ReadView {
    /// A view at `version`, which stays open until `held` is dropped.
    pub fn new(version: Version, held: Box<dyn Any + Send + Sync>) -> Self {
        ReadView { version, _held: held }
    }

    /// The version that it sees.
    pub fn version(&self) -> Version {
        self.version
    }
}

impl fmt::Debug for ReadView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadView({})", self.version)
    }
}

/// What came of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The expected value was there; the new one is now.
    Done,
    /// Something else was there: this. Nothing was changed.
    Differs(Option<Value>),
}

/// How far a long job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Work done, in the job's own unit (bytes for a check).
    pub done: u64,
    /// All the work, as far as known.
    pub total: u64,
}

/// One thing that a check found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The broken invariant's number, such as `E-4`, or `checksum`.
    pub what: String,
    /// The file, if one is concerned.
    pub file: Option<String>,
    /// The offset in it, in bytes.
    pub offset: Option<u64>,
    /// The keys concerned.
    pub range: Option<KeyRange>,
    /// What is wrong, in a sentence.
    pub message: String,
}

/// What a check read, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Files read.
    pub files: u64,
    /// Bytes verified.
    pub bytes: u64,
    /// Entries verified.
    pub entries: u64,
    /// What is wrong; empty for a sound store.
    pub damages: Vec<Damage>,
    /// Whether the caller cancelled before the end.
    pub is_cancelled: bool,
}

/// What a repair copied of a damaged store, and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Rows copied.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Rows that were found and not copied, as a newer value of theirs may have been lost.
    pub rows_withheld: u64,
    /// What is damaged, and which keys may be lost with it: a key in none of these ranges has its right
    /// value, or had none. Damage of what no reader would find any more is no loss. Where a store has
    /// keyspaces, there is one for each that is concerned, whose name the message tells, with a range of its
    /// keys; without a name it is the default one's.
    pub losses: Vec<Damage>,
    /// Names given to keyspaces whose rows were found and whose names are lost: `recovered-` and a number.
    pub keyspaces_recovered: Vec<String>,
    /// Whether what was copied is the newest that the store had: it is known which files were its last, and
    /// no commit log is damaged. If not, a loss names all keys, and what was copied may be older than it was,
    /// or deleted since.
    pub is_proven: bool,
}

/// A store: an ordered map from bytes to bytes. See the module for what is promised.
///
/// Keys may be up to [`crate::limits::ENGINE_KEY_BYTES_MAX`] long, values up to
/// [`crate::limits::VALUE_BYTES_MAX`]; more is `InvalidArgument` before anything is written.
pub trait Engine: Send + Sync {
    /// Calls `found` with the key's value, in place, and returns true; or returns false. `at` none means now.
    /// `found` should be short: what it reads is kept for it, beside what takes its place meanwhile. It may
    /// call the engine.
    fn get_with(&self, key: &[u8], at: Option<&ReadView>, found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// The key's value.
    fn get(&self, key: &[u8], at: Option<&ReadView>) -> Result<Option<Value>> {
        let mut value = None;
        self.get_with(key, at, &mut |bytes| value = Some(Value::copied(bytes)))?;
        Ok(value)
    }

    /// Calls `found` for each of `keys`, with its position among them and its value, or none: once for each,
    /// in any order. `at` none means now: then each answer is linearizable, and they need not be of one
    /// moment.
    ///
    /// An engine that can have several reads of the disk in flight does so here. After an error some keys
    /// have had their answers, and those are right.
    fn get_many(
        &self,
        keys: &[&[u8]],
        at: Option<&ReadView>,
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (i, key) in keys.iter().enumerate() {
            if !self.get_with(key, at, &mut |value| found(i, Some(value)))? {
                found(i, None);
            }
        }
        Ok(())
    }

    /// Gives the key a value.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Takes the key's value away. No error if it has none.
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Applies all operations as one (B-4).
    fn write(&self, batch: WriteBatch) -> Result<()>;

    /// If the key's value is `expected` (none: absent), makes it `new` (none: deletes it), in one step.
    fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap>;

    /// Deletes every key of the range, in one step. An empty range is no error.
    fn delete_range(&self, range: &KeyRange) -> Result<()>;

    /// Opens a read view on this moment.
    fn view(&self) -> Result<ReadView>;

    /// Gives rows of `range` at `view` to `rows`, in place and in `direction`, until it breaks or the range
    /// ends, and returns which it was. May return early with few rows or none, and the rest left.
    ///
    /// `rows` should be short and may call the engine, as with [`Engine::get_with`]. After an error the rows
    /// given before it are right, and none is missing before them.
    fn scan(
        &self,
        view: &ReadView,
        range: &KeyRange,
        direction: Direction,
        rows: &mut dyn Rows,
    ) -> Result<Scanned>;

    /// Everything that completed before this call is durable when it returns.
    fn sync(&self) -> Result<()>;

    /// Makes a copy of the store, as of now, in a directory that does not exist or is empty; by hard links
    /// where it can.
    fn checkpoint_to(&self, directory: &Path) -> Result<()>;

    /// Figures about every part.
    fn stats(&self) -> Stats;

    /// What the store consists of, as of now. Asks the disk for the length of each file, and reads none. An
    /// engine without files has none to tell of, and one range of all keys.
    fn layout(&self) -> Result<Layout> {
        let ranges = vec![LayoutRange { keys: KeyRange::all(), file_bytes: 0 }];
        Ok(Layout { ranges, ..Layout::default() })
    }

    /// Reads and verifies everything. `progress` returns false to cancel.
    fn check(&self, progress: &mut dyn FnMut(Progress) -> bool) -> Result<CheckReport>;

    /// Makes everything durable, ends background work and releases the directory. Later calls fail as
    /// closed; a second close is no error.
    fn close(&self) -> Result<()>;
}
