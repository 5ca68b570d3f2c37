//! `Db`: an open store. All methods are thin: they name the keyspace and hand over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use kvilt_base::{CheckReport, Damage, KeyRange, Progress, Result, Stats, Swap, Value};

use crate::{
    batch::WriteBatch,
    bounds::KeyBounds,
    builder::Builder,
    convert::{ConvertReport, convert},
    description::{Description, describe},
    keyspace::Keyspace,
    range::Range,
    snapshot::Snapshot,
    space::{CATALOGUE_ID, DEFAULT_ID, Space, user_ranges},
    store::Store,
};

/// So many keyspaces at most are named for one damage.
const NAMES_TOLD_MAX: usize = 8;

/// An open store: an ordered map from bytes to bytes, kept in a directory.
///
/// Cheap to clone, `Send` and `Sync`: clone it into every thread that needs it. All methods take `&self`, and
/// any number of threads may read and write at once. The store is closed when [`Db::close`] is called, or
/// when the last handle (clones, keyspaces, snapshots and ranges included) is dropped.
///
/// One process may have a directory open, once; a second open fails as [`crate::ErrorKind::Busy`] and names
/// the process that has it.
///
/// Methods without a keyspace in their name mean the default one. Keys are ordered bytewise and may be empty.
/// A key longer than 64 KiB or a value longer than 64 MiB is refused as
/// [`crate::ErrorKind::InvalidArgument`] before anything is written.
#[derive(Clone)]
pub struct Db {
    pub(crate) default: Keyspace,
}

impl Db {
    /// Opens the store in the directory `path`, with default settings; makes it if there is none.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("events");
    /// let db = kvilt::Db::open(path)?;
    /// db.put("greeting", "hello")?;
    /// assert_eq!(db.get("greeting")?.unwrap(), b"hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors, by kind: `InvalidArgument` if the directory holds something else (nothing is written to it);
    /// `Busy` if a process has it open; `Corrupted` or `UnsupportedVersion` if its files cannot be trusted or
    /// are newer than this library; `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Db::builder(path).open()
    }

    /// Settings for the store in the directory `path`; [`Builder::open`] opens it.
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder::new(path.as_ref())
    }

    /// A store over any engine. For the workshop: simulations and tests that bring an engine on a disk of
    /// their own.
    #[doc(hidden)]
    pub fn over(engine: Arc<dyn kvilt_base::Engine>, path: impl Into<PathBuf>) -> Db {
        Db::named(engine, "", path)
    }

    pub(crate) fn named(
        engine: Arc<dyn kvilt_base::Engine>,
        name: &'static str,
        path: impl Into<PathBuf>,
    ) -> Db {
        let store = Store::new(engine, name, path.into());
        Db { default: Keyspace::new(&store, &Arc::new(Space::new(DEFAULT_ID, ""))) }
    }

    /// The key's value, or none. It is a copy: keeping it keeps nothing of the store in memory.
    ///
    /// Waits for no writer. Errors: the key is too long; the disk could not be read.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default.get(key)
    }

    /// Calls `found` with the key's value, in place, without a copy; returns what it returned, or none if the
    /// key has no value.
    ///
    /// `found` should be short: what it reads is kept in memory for it, beside what takes its place meanwhile
    /// (`waiting_bytes_now` in [`crate::Stats`]). It may call the store.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("events"))?;
    /// db.put("picture", vec![7; 100_000])?;
    /// assert_eq!(db.get_with("picture", |bytes| bytes.len())?, Some(100_000));
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, found: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.default.get_with(key, found)
    }

    /// The values of several keys, in the order of the keys; none for a key that has none.
    ///
    /// As [`Db::get`] for one key after the other, but in one call: an engine may have several reads of the
    /// drive in flight. Writes may come in between; [`Snapshot::get_many`] reads all keys at one moment.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("users"))?;
    /// db.put("ada", "1815")?;
    /// db.put("alan", "1912")?;
    /// let born = db.get_many(["alan", "nobody", "ada"])?;
    /// assert_eq!(born.len(), 3);
    /// assert_eq!(born[0].as_deref(), Some(&b"1912"[..]));
    /// assert_eq!(born[1], None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors as [`Db::get`]: one for all keys, and a key that is too long is found before anything is read.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Value>>> {
        self.default.get_many(keys)
    }

    /// Whether the key has a value.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.contains_key(key)
    }

    /// Gives the key a value, in place of the one it had.
    ///
    /// When it returns, every get, scan and snapshot that begins sees it. Whether it survives a crash at that
    /// moment is a matter of [`crate::Durability`].
    ///
    /// Errors: `InvalidArgument` (too long); `NoSpace`; `Poisoned` after a failed sync; `Closed`; `Io`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }

    /// Takes the key's value away. No error if it has none. Works on a full disk. Errors as [`Db::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }

    /// Deletes every key of the range, in one step: a reader sees all of them or none.
    ///
    /// Costs little however many rows there are; the space comes back in the background. An empty range, or
    /// one whose start lies behind its end, is no error.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("events"))?;
    /// for day in ["2024-01-30", "2024-01-31", "2024-02-01"] {
    ///     db.put(day, "…")?;
    /// }
    /// db.delete_range(.."2024-02")?;
    /// assert_eq!(db.iter().count(), 1);
    /// db.delete_range(..)?;
    /// assert_eq!(db.iter().count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range(&self, range: impl KeyBounds) -> Result<()> {
        self.default.delete_range(range)
    }

    /// Applies all operations of the batch as one; see [`WriteBatch`]. An empty batch does nothing.
    ///
    /// Errors as [`Db::put`]; with an error nothing of the batch is visible.
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        let operations = batch.into_operations(&self.default.store)?;
        if operations.is_empty() {
            return Ok(());
        }
        self.engine().write(operations)
    }

    /// If the key's value is `expected`, makes it `new`, in one step. None means absent on both sides: `None`
    /// expects no value, and as `new` deletes.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("locks"))?;
    /// use kvilt::Swap;
    ///
    /// assert_eq!(db.compare_and_swap("lock", None, Some(b"me"))?, Swap::Done);
    /// let taken = db.compare_and_swap("lock", None, Some(b"you"))?;
    /// assert_eq!(taken, Swap::Differs(Some(b"me".to_vec().into())));
    /// assert_eq!(db.compare_and_swap("lock", Some(b"me"), None)?, Swap::Done);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors as [`Db::put`]. A different value is not an error.
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        self.default.compare_and_swap(key, expected, new)
    }

    /// Gives the key a value if it has none, in one step. Otherwise says, as [`Swap::Differs`], which it has.
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Swap> {
        self.default.put_if_absent(key, value)
    }

    /// Makes a new value from the old one, in one step, and returns it. None means absent on both sides.
    ///
    /// `update` is called again whenever another writer came in between, so it should do nothing but compute.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("counters"))?;
    /// let count = |old: Option<&[u8]>| {
    ///     let old = old.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
    ///     Some((old + 1).to_be_bytes())
    /// };
    /// db.update("visits", count)?;
    /// db.update("visits", count)?;
    /// assert_eq!(db.get("visits")?.unwrap(), &2u64.to_be_bytes());
    /// # Ok(())
    /// # }
    /// ```
    pub fn update<N: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        update: impl FnMut(Option<&[u8]>) -> Option<N>,
    ) -> Result<Option<Value>> {
        self.default.update(key, update)
    }

    /// The rows of a range of keys, as of now; see [`Range`] and [`KeyBounds`].
    pub fn range(&self, range: impl KeyBounds) -> Range {
        self.default.range(range)
    }

    /// The rows whose keys begin with `prefix`, as of now; see [`Range`]. An empty prefix means all.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("events"))?;
    /// db.put("app42/2024-05-01/ada", "login")?;
    /// db.put("app42/2024-05-02/bob", "login")?;
    /// db.put("app43/2024-05-01/eve", "login")?;
    /// assert_eq!(db.prefix("app42/").count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.default.prefix(prefix)
    }

    /// All rows, as of now; see [`Range`].
    pub fn iter(&self) -> Range {
        self.default.iter()
    }

    /// The store as of now, for as long as the handle lives; see [`Snapshot`].
    pub fn snapshot(&self) -> Snapshot {
        self.default.snapshot()
    }

    /// The keyspace that the methods above mean, as a handle, for code that takes any keyspace. It has no
    /// name, and cannot be dropped.
    pub fn default_keyspace(&self) -> Keyspace {
        self.default.clone()
    }

    /// The keyspace of this name, made if there is none; see [`Keyspace`].
    ///
    /// Making one is a write like any other. Errors: the name is empty or longer than 255 bytes; as
    /// [`Db::put`].
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let store = &self.default.store;
        Ok(Keyspace::new(store, &store.catalogue.open(store, name)?))
    }

    /// The names of all keyspaces, sorted. The default one has no name.
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        let store = &self.default.store;
        store.catalogue.names(store)
    }

    /// Deletes a keyspace and all its rows; says whether there was one. Costs as little as
    /// [`Db::delete_range`].
    ///
    /// Handles to it fail from now on, snapshots taken before still see its rows, and [`Db::keyspace`] makes
    /// a new, empty one of the same name.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("tenants"))?;
    /// db.keyspace("tenant-7")?.put("k", "v")?;
    /// assert!(db.drop_keyspace("tenant-7")?);
    /// assert!(!db.drop_keyspace("tenant-7")?);
    /// assert_eq!(db.keyspace("tenant-7")?.iter().count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        let store = &self.default.store;
        store.catalogue.drop_keyspace(store, name)
    }

    /// Makes durable all that completed before this call: it survives a power cut once this has returned.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("orders"))?;
    /// db.put("order/1", "paid")?;
    /// db.sync()?; // now tell the customer
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An error here is serious: the store is poisoned, since nobody knows what the disk kept, and takes no
    /// writes until it is opened again.
    pub fn sync(&self) -> Result<()> {
        self.engine().sync()
    }

    /// Figures about every part: memory, where gets found their answers, bytes written by kind, stalls by
    /// reason. Cheap.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// What the store holds: files by kind, rows and bytes by keyspace, the largest rows; see
    /// [`Description`].
    ///
    /// Reads up to eight chunks of the store, spread over all of it, and takes the others for their like; a
    /// store that has no more is counted exactly. Reads and writes go on meanwhile, and are not seen.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("events"))?;
    /// db.put("app42/2024-05-01/ada", "login")?;
    /// let description = db.describe()?;
    /// assert!(description.is_exact);
    /// assert_eq!((description.rows(), description.row_bytes()), (1, 25));
    /// # Ok(())
    /// # }
    /// ```
    pub fn describe(&self) -> Result<Description> {
        self.describe_with(false, |_| true)
    }

    /// [`Db::describe`] that reads every chunk if `is_deep`, so that rows and their bytes are exact; that
    /// tells how far it is, and stops early when `progress` returns false.
    pub fn describe_with(
        &self,
        is_deep: bool,
        mut progress: impl FnMut(Progress) -> bool,
    ) -> Result<Description> {
        describe(self, is_deep, &mut progress)
    }

    /// Reads and verifies every file: checksums, order, and that the parts agree with one another.
    ///
    /// Damage is not an error: it is listed in the report. Reads and writes go on meanwhile.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("events"))?;
    /// let report = db.check()?;
    /// assert!(report.damages.is_empty(), "{:?}", report.damages);
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<CheckReport> {
        self.check_with(|_| true)
    }

    /// [`Db::check`] that tells how far it is, and stops early when `progress` returns false.
    pub fn check_with(&self, mut progress: impl FnMut(Progress) -> bool) -> Result<CheckReport> {
        let mut report = self.engine().check(&mut progress)?;
        report.damages = self.in_users_keys(report.damages);
        Ok(report)
    }

    /// An engine's damages name keys with their keyspace prefix; a user wants keyspace and key. One that
    /// reaches over several keyspaces becomes several.
    pub(crate) fn in_users_keys(&self, damages: Vec<Damage>) -> Vec<Damage> {
        // Nothing is read where nothing is damaged.
        if damages.is_empty() {
            return damages;
        }
        let store = &self.default.store;
        // Names that cannot be read are damaged themselves.
        let named = store.catalogue.ids(store).unwrap_or_default();
        let mut names: BTreeMap<u32, String> =
            named.into_iter().map(|(id, name)| (id, format!("keyspace `{name}`"))).collect();
        names.insert(CATALOGUE_ID, "names of keyspaces, and keyspaces whose names are lost".to_string());
        let known = names.keys().copied().collect();
        damages.into_iter().flat_map(|damage| in_each_keyspace(damage, &names, &known)).collect()
    }

    /// Gives names to keyspaces that have rows and no name, as a repair may find them.
    pub(crate) fn name_lost_keyspaces(&self) -> Result<Vec<String>> {
        let store = &self.default.store;
        store.catalogue.name_lost(store)
    }

    /// Makes a copy of the store, as of now, in a directory that does not exist or is empty. By hard links
    /// where the file system can, so it costs little time and space; the copy is a store of its own.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (path, backup) = (dir.path().join("events"), dir.path().join("backup"));
    /// let db = kvilt::Db::open(path)?;
    /// db.put("k", "before")?;
    /// db.checkpoint_to(&backup)?;
    /// db.put("k", "after")?;
    /// assert_eq!(kvilt::Db::open(&backup)?.get("k")?.unwrap(), b"before");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A copy that fails removes what it made, and can be tried again. One that is cut short by a crash
    /// leaves a directory with the file `UNFINISHED`: no open takes it for a store, and the next copy into it
    /// replaces it.
    ///
    /// Errors: `InvalidArgument` if the directory is not empty, is none, or is inside of a store's; `Busy` if
    /// another copy is made there; `NoSpace`; `Io`.
    pub fn checkpoint_to(&self, directory: impl AsRef<Path>) -> Result<()> {
        self.engine().checkpoint_to(directory.as_ref())
    }

    /// Copies the store, as of now, into a new store that another engine keeps; see
    /// [`Db::convert_to_with`].
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (path, new) = (dir.path().join("events"), dir.path().join("new"));
    /// use kvilt::{Db, Engine, kvell};
    ///
    /// let db = Db::open(path)?;
    /// db.put("k", "v")?;
    /// let report = db.convert_to(Db::builder(&new).engine(Engine::Kvell(kvell::Options::default())))?;
    /// assert_eq!(report.rows, 1);
    /// assert_eq!(Db::open(&new)?.get("k")?.unwrap(), b"v");
    /// # Ok(())
    /// # }
    /// ```
    pub fn convert_to(&self, into: Builder) -> Result<ConvertReport> {
        self.convert_to_with(into, |_| true)
    }

    /// [`Db::convert_to`] that tells how far it is, in bytes, and stops early when `progress` returns false.
    ///
    /// `into` names the new store's directory, which must not exist or be empty, its engine and its settings.
    /// All keyspaces are copied, at one moment; reads and writes go on meanwhile. At the end the new store is
    /// closed, opened again and read, and has to have the same rows, by their number and by a checksum over
    /// all keys and values.
    ///
    /// A conversion that fails or is cancelled removes what it made. One that is killed leaves a directory
    /// with the file `UNFINISHED`, which no open takes for a store, and which the next conversion into it
    /// replaces.
    ///
    /// Errors: `InvalidArgument` if the directory holds a store or anything else, or is inside of a store's;
    /// `Busy` if another job fills it; `Corrupted` if this store is damaged, or the copy is not the same; and
    /// as for any write.
    pub fn convert_to_with(
        &self,
        into: Builder,
        mut progress: impl FnMut(Progress) -> bool,
    ) -> Result<ConvertReport> {
        convert(self, into, &mut progress)
    }

    /// Makes everything durable, ends the background work and lets go of the directory.
    ///
    /// Every later call, through any handle, fails as [`crate::ErrorKind::Closed`]; closing again is no
    /// error. Dropping the last handle closes too, but cannot tell of an error.
    pub fn close(&self) -> Result<()> {
        self.engine().close()
    }

    /// The name of the engine that keeps it, such as `even`. Empty if it came by `Db::over`.
    pub fn engine_name(&self) -> &'static str {
        self.default.store.engine_name
    }

    /// The directory it was opened with.
    pub fn path(&self) -> &Path {
        &self.default.store.path
    }

    pub(crate) fn engine(&self) -> &dyn kvilt_base::Engine {
        self.default.store.engine()
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Db({})", self.path().display())
    }
}

/// One damage for each keyspace of which a part is concerned, and one for all of which everything is.
fn in_each_keyspace(damage: Damage, names: &BTreeMap<u32, String>, known: &BTreeSet<u32>) -> Vec<Damage> {
    if damage.range == Some(KeyRange::all()) {
        let message = format!("{} (in all keyspaces)", damage.message);
        return vec![Damage { message, ..damage }];
    }
    let Some(ranges) = damage.range.as_ref().and_then(|range| user_ranges(range, known)) else {
        return vec![damage];
    };
    let name_of = |id: u32| names.get(&id).cloned().unwrap_or_else(|| format!("keyspace `number {id}`"));
    let told = |range: KeyRange, place: String| {
        let message = format!("{}{place}", damage.message);
        Damage { range: Some(range), message, ..damage.clone() }
    };
    let (whole, parts): (Vec<_>, Vec<_>) =
        ranges.into_iter().partition(|(id, range)| *id != DEFAULT_ID && *range == KeyRange::all());
    let mut damages: Vec<Damage> = parts
        .into_iter()
        .map(|(id, range)| match id {
            DEFAULT_ID => told(range, String::new()),
            id => told(range, format!(" ({})", name_of(id))),
        })
        .collect();
    if !whole.is_empty() {
        let mut places: Vec<String> = whole.iter().take(NAMES_TOLD_MAX).map(|(id, _)| name_of(*id)).collect();
        let others = whole.len() - places.len();
        if others > 0 {
            places.push(format!("{others} more keyspaces"));
        }
        damages.push(told(KeyRange::all(), format!(" (all of: {})", places.join("; "))));
    }
    damages
}
