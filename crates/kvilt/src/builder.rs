//! `Builder`: settings in, open store out. The one file that knows a disk by name; engines are in
//! `engines.rs`.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kvilt_base::{
    Disk, Error, ErrorKind, FileName, Listed, Recognised, Result, Settings, Unfinished, directory,
    engine_name, limits, unfinished::refuse_unfinished,
};
use kvilt_io::NativeDisk;

use crate::{
    db::Db,
    engines::{self, Engine},
    env::Env,
    options::Durability,
};

/// At level sync a checkpoint begins this often, and bounds the commit log that the next open must replay.
const SYNC_CHECKPOINT_INTERVAL: Duration = Duration::from_millis(500);

/// At most this many unexpected file names are listed in the error.
const FOREIGN_NAMES_MAX: usize = 5;

/// How to open a store. Made by [`Db::builder`]; everything has a default, and [`Builder::open`] refuses what
/// makes no sense instead of bending it.
///
/// ```
/// # fn main() -> kvilt::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("events");
/// use std::time::Duration;
///
/// let db = kvilt::Db::builder(path)
///     .engine(kvilt::Engine::Even(kvilt::even::Options::default()))
///     .memory_budget(64 << 20)
///     .durability(kvilt::Durability::Async { interval: Duration::from_millis(500) })
///     .open()?;
/// # Ok(())
/// # }
/// ```
///
/// Most programs set [`memory_budget`](Builder::memory_budget) and [`durability`](Builder::durability) and
/// nothing else.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is opened"]
pub struct Builder {
    path: PathBuf,
    /// None: the one that made the store; for a new one the default.
    engine: Option<Engine>,
    durability: Durability,
    create_if_missing: bool,
    error_if_exists: bool,
    memory_budget_bytes: Option<u64>,
    env: Option<Env>,
    /// But for what [`Builder::settings`] puts in.
    settings: Settings,
}

impl Builder {
    pub(crate) fn new(path: &Path) -> Self {
        Builder {
            path: path.to_path_buf(),
            engine: None,
            durability: Durability::default(),
            create_if_missing: true,
            error_if_exists: false,
            memory_budget_bytes: None,
            env: None,
            settings: Settings::default(),
        }
    }

    /// Which engine keeps the rows, with its own settings. Default: the one that made the store, with its
    /// defaults, and for a new store [`Engine::Even`]. A store keeps the engine that made it; to open it by
    /// another is refused as [`ErrorKind::InvalidArgument`].
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }

    /// What survives a crash. Default: [`Durability::Async`] every half second. May differ from one open to
    /// the next.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Memory for this store alone, in bytes; at least 1 MiB. One number for everything that grows: munks,
    /// row cache, filters, log indexes, write buffers. Default: the budget of the [`Env`].
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.memory_budget_bytes = Some(bytes);
        self
    }

    /// The environment, whose memory budget this store shares with others. Default: [`Env::process`].
    /// Excludes [`Builder::memory_budget`].
    pub fn env(mut self, env: &Env) -> Self {
        self.env = Some(env.clone());
        self
    }

    /// Whether to make a store if the directory is missing or empty. Default: true.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// Whether to refuse a store that is there already. Default: false.
    pub fn error_if_exists(mut self, refuse: bool) -> Self {
        self.error_if_exists = refuse;
        self
    }

    /// Whether to open it to be read only. Default: false.
    ///
    /// No file is made, changed or removed, and nothing runs in the background: so it works on read-only
    /// media, in a directory that may only be read, and with another user's files. What would change the
    /// store fails as [`ErrorKind::ReadOnly`]; so do [`Db::sync`] and [`Db::checkpoint_to`], and
    /// [`Db::keyspace`] for a name that there is not.
    ///
    /// Any number of processes may read a store at once. Beside one that has it open to write, a reader is
    /// refused as [`ErrorKind::Busy`], and so is a writer beside readers.
    ///
    /// It shows what another open would show. What a killed process has written at level `Sync` since the
    /// last checkpoint is kept in memory for that; if it takes more than a quarter of the memory budget, the
    /// open is refused as [`ErrorKind::LimitReached`]. What a process that was killed has left may not be
    /// durable yet, and a reader does not make it so: a power cut may still take back what it saw.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("events");
    /// # kvilt::Db::open(&path)?.put("k", "v")?;
    /// let db = kvilt::Db::builder(&path).read_only(true).open()?;
    /// let other = kvilt::Db::builder(&path).read_only(true).open()?;
    /// assert_eq!(db.get("k")?, other.get("k")?);
    /// assert_eq!(db.put("k", "w").unwrap_err().kind(), kvilt::ErrorKind::ReadOnly);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// There must be a store, whatever [`Builder::create_if_missing`] says; [`Builder::error_if_exists`]
    /// makes no sense with it and is refused. [`Builder::snapshot_age_max`] does not count, since old
    /// versions cost nothing where none is replaced.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.settings.read_only = read_only;
        self
    }

    /// How old a snapshot or scan may become; longer than zero. Default: 24 hours; [`Duration::MAX`] means no
    /// limit.
    ///
    /// An older one expires within about a second: whatever it is asked for fails as
    /// [`ErrorKind::SnapshotTooOld`], and versions are no longer kept for it. So one that was forgotten costs
    /// memory and space for a time, not for ever.
    pub fn snapshot_age_max(mut self, age: Duration) -> Self {
        self.settings.view_age_max = age;
        self
    }

    /// Operations that a [`crate::WriteBatch`] may have. Default: 32,768; at most 4,194,304.
    ///
    /// While a batch is written, writes to its chunks and new snapshots wait: about a microsecond for each of
    /// its operations.
    pub fn batch_operations_max(mut self, operations: usize) -> Self {
        self.settings.batch_operations_max = operations;
        self
    }

    /// Bytes of keys and values that a [`crate::WriteBatch`] may have. Default: 72 MiB; at most 256 MiB.
    ///
    /// While it is written, a batch takes about twice as much memory besides itself, and the memory budget
    /// does not count for it.
    pub fn batch_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.batch_bytes_max = bytes;
        self
    }

    /// Opens the store.
    ///
    /// A directory that does not exist or is empty becomes a store. A directory that holds other files and no
    /// store is refused as [`ErrorKind::InvalidArgument`], and nothing is written to it; and so is one inside
    /// of a store's directory, unless it is a store already.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("not-there");
    /// let error = kvilt::Db::builder(&path).create_if_missing(false).open().unwrap_err();
    /// assert_eq!(error.kind(), kvilt::ErrorKind::InvalidArgument);
    /// assert!(!path.exists());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: see [`Db::open`]; also `InvalidArgument` if a setting makes no sense, if there is no store and
    /// none may be made, or if there is one and it was to be refused.
    pub fn open(self) -> Result<Db> {
        if self.settings.read_only && self.error_if_exists {
            let reason = "a reader needs a store that is there, and such a store was to be refused";
            return Err(self.refuse(reason).by_setting("error_if_exists"));
        }
        let found = self.found_disk()?;
        let made_by = found.as_ref().map_or(Ok(None), |disk| self.made_by(&**disk))?;
        let engine = self.engine_for(made_by.as_ref())?;
        let env = self.checked_env(&engine)?;
        self.open_in(&env, &engine, found, made_by.is_some(), false)
    }

    /// The engine to open the store by, which `made_by` made, if there is one.
    pub(crate) fn engine_for(&self, made_by: Option<&Engine>) -> Result<Engine> {
        match (&self.engine, made_by) {
            (Some(own), Some(other)) if own.descriptor().name() != other.descriptor().name() => {
                let (own, other) = (own.descriptor().name(), other.descriptor().name());
                Err(engine_name::not_of(&self.path.display().to_string(), other, own))
            }
            (_, made_by) => Ok(self.engine_or(&made_by.cloned().unwrap_or_default())),
        }
    }

    /// The engine for a new store: `engine` if none was chosen.
    pub(crate) fn engine_or(&self, engine: &Engine) -> Engine {
        self.engine.clone().unwrap_or_else(|| engine.clone())
    }

    /// The environment, and whether all settings make sense to the engine.
    pub(crate) fn checked_env(&self, engine: &Engine) -> Result<Env> {
        let env = self.chosen_env()?;
        // Before a directory is made: whatever the open is refused for, it leaves nothing behind.
        let (engine, settings) = (engine.descriptor(), self.settings(false, false));
        engine.capabilities().allow(engine.name(), &settings)?;
        engine.validate(&settings, env.memory_budget_bytes())?;
        Ok(env)
    }

    /// Opens the store in its directory, which may bear the mark of the unfinished if the caller has marked
    /// it.
    pub(crate) fn open_in(
        self,
        env: &Env,
        engine: &Engine,
        found: Option<Arc<dyn Disk>>,
        has_store: bool,
        is_unfinished: bool,
    ) -> Result<Db> {
        if has_store && self.error_if_exists {
            return Err(self.refuse("there is a store already").by_setting("error_if_exists"));
        }
        if !has_store {
            self.allow_making(found.as_deref())?;
        }
        let disk = match found {
            Some(disk) => disk,
            None => {
                NativeDisk::open(&self.path, engines::KINDS, true).map_err(|error| self.not_opened(error))?
            }
        };
        // Also where there seems to be a store: its first files may be all that a making left that was
        // killed, as only the engine can tell.
        let settings = self.settings(self.why_none_is_made().is_none(), is_unfinished);
        let opened = engine.descriptor().open(disk, env.world()?, &settings)?;
        Ok(Db::named(opened, engine.descriptor().name(), self.path))
    }

    /// For a store that a job makes and fills: there may be none yet, and the limits on batches are ours.
    pub(crate) fn for_a_job(self) -> Self {
        let operations_max = limits::BATCH_OPERATIONS_USUAL;
        self.error_if_exists(true)
            .batch_operations_max(operations_max)
            .batch_bytes_max(limits::BATCH_BYTES_USUAL)
    }

    /// The directory for a new store, marked as unfinished.
    ///
    /// Errors: `InvalidArgument` if there is a store already, or anything else.
    pub(crate) fn begin_unfinished(&self) -> Result<Unfinished> {
        let new = self.made_disk()?;
        let listed = directory::list(&*new)?;
        if !listed.contains(&Listed::Ours(FileName::UNFINISHED)) && self.made_by(&*new)?.is_some() {
            return Err(self.refuse("there is a store already").by_setting("error_if_exists"));
        }
        Unfinished::begin(new)
    }

    /// Refuses to make a store where none may be made.
    fn allow_making(&self, found: Option<&dyn Disk>) -> Result<()> {
        if let Some(setting) = self.why_none_is_made() {
            let is_empty = found.is_none_or(|disk| disk.list().is_ok_and(|listed| listed.is_empty()));
            let reason = match is_empty {
                true => "the directory is empty, so there is no store in it",
                false => "there is no store in the directory, only what an open that was cut short has left",
            };
            return Err(self.refuse(reason).by_setting(setting));
        }
        match NativeDisk::store_around(&self.path, engines::KINDS) {
            None => Ok(()),
            Some(store) => Err(Error::invalid(format!(
                "cannot make a store in {}: it would be inside {}, which is the directory of a store; name a directory outside of it",
                self.path.display(),
                store.display()
            ))),
        }
    }

    /// The setting by which no store is made, if none may be made.
    fn why_none_is_made(&self) -> Option<&'static str> {
        match (self.settings.read_only, self.create_if_missing) {
            (true, _) => Some("read_only"),
            (false, false) => Some("create_if_missing"),
            (false, true) => None,
        }
    }

    /// What to name in place of a directory that cannot be opened.
    fn what_to_name(&self) -> &'static str {
        match self.why_none_is_made() {
            Some(_) => "name the directory of a store",
            None => "name a directory that is a store, is empty, or does not exist",
        }
    }

    fn chosen_env(&self) -> Result<Env> {
        match (&self.env, self.memory_budget_bytes) {
            (Some(_), Some(_)) => Err(Error::invalid(
                "`memory_budget` and `env` exclude each other: the memory budget is the environment's",
            )
            .by_setting("memory_budget")),
            (Some(env), None) => Ok(env.clone()),
            (None, Some(bytes)) => Env::new(bytes),
            (None, None) => Env::process(),
        }
    }

    /// The directory for a new store, made if there is none and it may be.
    pub(crate) fn made_disk(&self) -> Result<Arc<dyn Disk>> {
        let found = self.found_disk()?;
        self.allow_making(found.as_deref())?;
        let disk =
            NativeDisk::open(&self.path, engines::KINDS, true).map_err(|error| self.not_opened(error))?;
        Ok(disk)
    }

    /// The directory, if there is one.
    fn found_disk(&self) -> Result<Option<Arc<dyn Disk>>> {
        let found = match self.settings.read_only {
            true => NativeDisk::open_to_read(&self.path, engines::KINDS),
            false => NativeDisk::open(&self.path, engines::KINDS, false),
        };
        match found {
            Ok(disk) => Ok(Some(disk)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.why_none_is_made() {
                Some(setting) => Err(self.refuse("there is no such directory").by_setting(setting)),
                None => Ok(None),
            },
            Err(error) => Err(self.not_opened(error)),
        }
    }

    fn not_opened(&self, error: io::Error) -> Error {
        if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists) {
            let what = if self.path.symlink_metadata().is_ok() {
                "it"
            } else {
                "something that its path leads through"
            };
            return self.refuse(&format!("{what} is not a directory; {}", self.what_to_name()));
        }
        if error.kind() == io::ErrorKind::InvalidFilename {
            return self
                .refuse("a name in its path is longer than the file system allows; name a shorter one");
        }
        Error::io(format!("open the directory {}", self.path.display()), error)
    }

    /// What every engine is told.
    fn settings(&self, create: bool, is_unfinished: bool) -> Settings {
        let durability = match self.durability {
            Durability::Async { interval } => kvilt_base::Durability::Async { interval },
            Durability::Sync => kvilt_base::Durability::Sync { interval: SYNC_CHECKPOINT_INTERVAL },
        };
        let mut settings = self.settings.clone();
        (settings.durability, settings.create, settings.is_unfinished) = (durability, create, is_unfinished);
        settings
    }

    /// An error about the directory.
    pub(crate) fn refuse(&self, reason: &str) -> Error {
        Error::invalid(format!("cannot open {}: {reason}", self.path.display()))
    }

    /// The engine whose store the directory holds, if it holds one. A directory that holds anything else, and
    /// no store, is refused: it may be a mistyped path.
    pub(crate) fn made_by(&self, disk: &dyn Disk) -> Result<Option<Engine>> {
        let place = disk.place();
        let listed = directory::list(disk)?;
        refuse_unfinished(&listed, &place)?;
        if let Some(engine) = engines::of(disk, &listed)? {
            return match engine.descriptor().recognise(&listed) {
                Recognised::Pieces(name) => Err(Error::new(
                    ErrorKind::Corrupted,
                    format!(
                        "{place} holds files of a store, such as {name}, but the file that lists them is missing"
                    ),
                )),
                Recognised::Store | Recognised::Nothing => Ok(Some(engine)),
            };
        }
        // What is ours and no store is what an open has left that was cut short.
        let mut foreign: Vec<&str> = Vec::new();
        for item in &listed {
            if let Listed::Foreign(name) = item {
                foreign.push(name);
            }
        }
        if !foreign.is_empty() {
            foreign.sort_unstable();
            let others = foreign.len().saturating_sub(FOREIGN_NAMES_MAX);
            let shown: Vec<String> = foreign
                .iter()
                .take(FOREIGN_NAMES_MAX)
                .map(|name| format!("`{}`", name.escape_debug()))
                .collect();
            let more = if others > 0 { format!(" and {others} more") } else { String::new() };
            return Err(Error::invalid(format!(
                "{place} is not a store: it has none of its files, but holds {}{more}; {}",
                shown.join(", "),
                self.what_to_name()
            )));
        }
        Ok(None)
    }
}
