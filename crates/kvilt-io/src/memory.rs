//! `MemoryDisk`: a disk in memory that remembers what was synced, and can show what a crash would leave.
//!
//! One `World` holds every directory of a disk (the store's, and those made for copies of it), as one machine
//! does. Each file is an `Inode`: its bytes and the writes since its last sync, those through a mapping too.
//! Each directory keeps the name changes since its last sync. A crash image undoes some of these, see
//! `image`.
//!
//! What is always true: an image is a disk of its own, sharing only unchanged bytes with its origin; nothing
//! here depends on time, threads or addresses, so the same calls and the same seed give the same image.
//!
//! Lock order: the world, then one inode.

mod file;
mod fingerprint;
mod flying;
mod image;
mod inode;
mod mapped;
mod queue;
mod unsynced;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::Path,
    sync::Arc,
};

use kvilt_base::{Disk, File, FileName, Listed, Queue, disk, disk::LockFailure};
use parking_lot::Mutex;

use file::MemoryFile;
use inode::Inode;
use queue::{Flights, MemoryQueue};

pub use image::Keep;

/// A disk in memory, for tests. Shared freely.
///
/// Every call that changes something is numbered from zero (see [`MemoryDisk::ops`]); a test can crash the
/// disk at any of them, and look at each legal state that the crash may have left.
///
/// ```
/// use kvilt_base::{Disk, File, FileName, disk::FileKind};
/// use kvilt_io::{Keep, MemoryDisk, is_crash};
///
/// let (disk, log) = (MemoryDisk::new(1), FileName::Of(FileKind::new("log"), 1));
/// let file = disk.create(log)?;                   // op 0
/// file.write_all_at(0, b"synced")?;               // op 1
/// file.sync()?;                                   // op 2
/// disk.sync_dir()?;                               // op 3
/// disk.set_crash_at(Some(4));
/// assert!(is_crash(&file.write_at(6, b", not").unwrap_err()));
///
/// let after = disk.crash_image(Keep::SyncedOnly);
/// assert_eq!(after.contents(log).unwrap(), b"synced");
/// let after = disk.crash_image(Keep::All);
/// assert_eq!(after.contents(log).unwrap(), b"synced, not");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct MemoryDisk {
    world: Arc<World>,
    /// Which of the world's directories this is.
    directory: usize,
}

struct World {
    seed: u64,
    kernel: Kernel,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
struct Kernel {
    /// Its run: the same in the image of a killed process, another after a power cut.
    boot: u64,
    maps_files: bool,
}

struct State {
    directories: Vec<Directory>,
    /// Changing calls so far.
    ops: u64,
    crash_at: Option<u64>,
    is_crashed: bool,
    sync_failure_at: Option<u64>,
    capacity_bytes: Option<u64>,
    full_at: Option<u64>,
    flights: Flights,
}

struct Directory {
    path: String,
    names: BTreeMap<FileName, Arc<Inode>>,
    /// Changes of names since the last `sync_dir`, in order.
    changes: Vec<NameChange>,
    users: Users,
}

/// Who has a directory locked.
#[derive(Default)]
struct Users {
    readers: usize,
    has_writer: bool,
}

/// A change of names that a crash may undo.
#[derive(Clone)]
struct NameChange {
    kind: ChangeKind,
    /// What the changed names stood for before.
    before: Vec<(FileName, Option<Arc<Inode>>)>,
}

#[derive(Clone)]
enum ChangeKind {
    /// A create or a link.
    Added(FileName, Arc<Inode>),
    Renamed {
        from: FileName,
        to: FileName,
        inode: Arc<Inode>,
    },
    Removed(FileName),
}

/// Whether a changing call happens, or the power fails during it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Whole,
    /// The call takes effect like any that was not synced, but its caller sees the crash.
    Last,
}

impl World {
    /// Numbers a changing call and makes it.
    fn change<T>(&self, call: impl FnOnce(&mut State, Turn) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        let turn = state.turn()?;
        let outcome = call(&mut state, turn);
        match turn {
            Turn::Whole => outcome,
            Turn::Last => Err(crash()),
        }
    }
}

#[derive(Debug)]
struct Crashed;

impl fmt::Display for Crashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("crashed")
    }
}

impl std::error::Error for Crashed {}

fn crash() -> io::Error {
    io::Error::other(Crashed)
}

/// Whether this error says that a [`MemoryDisk`] has crashed.
pub fn is_crash(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Crashed>())
}

impl State {
    /// To be called first by every call that only reads.
    fn check(&self) -> io::Result<()> {
        if self.is_crashed { Err(crash()) } else { Ok(()) }
    }

    fn turn(&mut self) -> io::Result<Turn> {
        self.check()?;
        if self.crash_at.is_some_and(|at| self.ops >= at) {
            self.is_crashed = true;
            return Ok(Turn::Last);
        }
        if self.full_at.take_if(|at| *at <= self.ops).is_some() {
            self.capacity_bytes = Some(self.total_bytes());
        }
        self.ops += 1;
        Ok(Turn::Whole)
    }

    fn total_bytes(&self) -> u64 {
        total_bytes(&self.directories)
    }
}

/// Bytes of all files that have a name, each counted once.
fn total_bytes(directories: &[Directory]) -> u64 {
    let mut seen = BTreeSet::new();
    let has_links = directories.len() > 1;
    let inodes = directories.iter().flat_map(|directory| directory.names.values());
    inodes.filter(|inode| !has_links || seen.insert(Arc::as_ptr(inode))).map(|inode| inode.len()).sum()
}

impl Directory {
    fn empty(path: String) -> Self {
        Directory { path, names: BTreeMap::new(), changes: Vec::new(), users: Users::default() }
    }

    fn change(&mut self, kind: ChangeKind, names: &[FileName]) {
        let before = names.iter().map(|name| (*name, self.names.get(name).cloned())).collect();
        apply(&kind, &mut self.names);
        self.changes.push(NameChange { kind, before });
    }
}

/// Makes the change where others before it may be missing: each holds by itself.
fn apply(kind: &ChangeKind, names: &mut BTreeMap<FileName, Arc<Inode>>) {
    match kind {
        ChangeKind::Added(name, inode) => {
            names.insert(*name, inode.clone());
        }
        ChangeKind::Renamed { from, to, inode } => {
            if names.get(from).is_some_and(|there| Arc::ptr_eq(there, inode)) {
                names.remove(from);
            }
            names.insert(*to, inode.clone());
        }
        ChangeKind::Removed(name) => {
            names.remove(name);
        }
    }
}

impl MemoryDisk {
    fn lock_for(
        &self,
        enter: impl FnOnce(&mut Users) -> Result<(), LockFailure>,
    ) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        let mut state = self.world.state.lock();
        state.check().map_err(LockFailure::Io)?;
        let users = &mut state.directories[self.directory].users;
        if users.has_writer {
            return Err(LockFailure::Held(Some(std::process::id())));
        }
        enter(users)?;
        Ok(Box::new(HeldLock { world: self.world.clone(), directory: self.directory }))
    }

    /// An empty disk without limit. The seed decides what stale bytes its images show.
    pub fn new(seed: u64) -> Arc<Self> {
        MemoryDisk::under(Kernel { boot: 0, maps_files: true }, seed)
    }

    /// The same; but one in five, by its seed, maps no files, as some file systems of networks.
    pub fn of_any_kind(seed: u64) -> Arc<Self> {
        MemoryDisk::under(Kernel { boot: 0, maps_files: !seed.is_multiple_of(5) }, seed)
    }

    fn under(kernel: Kernel, seed: u64) -> Arc<Self> {
        MemoryDisk::with_directories(seed, vec![Directory::empty("memory".to_owned())], 0, None, kernel)
    }

    fn with_directories(
        seed: u64,
        directories: Vec<Directory>,
        directory: usize,
        capacity_bytes: Option<u64>,
        kernel: Kernel,
    ) -> Arc<Self> {
        let state = State {
            directories,
            ops: 0,
            crash_at: None,
            is_crashed: false,
            sync_failure_at: None,
            capacity_bytes,
            full_at: None,
            flights: Flights::default(),
        };
        Arc::new(MemoryDisk { world: Arc::new(World { seed, kernel, state: Mutex::new(state) }), directory })
    }

    /// How many changing calls (create, write, allocate, sync, rename, remove, link, new directory) came so
    /// far: the number that the next one gets. Failed ones count. Through a queue, each batch with a write in
    /// it is one, and each write that is executed is another.
    pub fn ops(&self) -> u64 {
        self.world.state.lock().ops
    }

    /// Lets the power fail during the changing call with number `op`: it and every call after it fail (see
    /// [`is_crash`]). What it would have done is treated like everything that was not synced: an image may
    /// show it, in part or whole. None takes the plan back, and revives a disk that has crashed.
    pub fn set_crash_at(&self, op: Option<u64>) {
        let mut state = self.world.state.lock();
        state.crash_at = op;
        state.is_crashed = false;
        state.flights.forget_lost();
    }

    /// Whether a planned crash has happened.
    pub fn has_crashed(&self) -> bool {
        self.world.state.lock().is_crashed
    }

    /// Lets the first file sync with number `op` or higher fail, once, as Linux does after a failed
    /// write-back: the error is reported, later syncs succeed, reads show the new bytes; but the pages that
    /// were written since the last good sync count as clean. Any crash shows the old bytes there, until a
    /// page is written again, through a mapping or by a call, with bytes that differ or by a call with the
    /// same, and synced: then all of it is durable. A durable write of a queue is a sync, too.
    pub fn set_sync_failure_at(&self, op: Option<u64>) {
        self.world.state.lock().sync_failure_at = op;
    }

    /// Gives the disk room for this many bytes of file contents; a write beyond is short, then `StorageFull`.
    /// None: no limit. A removed file gives its room back at once.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.world.state.lock().capacity_bytes = bytes;
    }

    /// Before the changing call with number `op` or higher, gives the disk the capacity that it uses then,
    /// once.
    pub fn set_full_at(&self, op: Option<u64>) {
        self.world.state.lock().full_at = op;
    }

    /// Bytes of all files that have a name, in all directories.
    pub fn total_bytes(&self) -> u64 {
        self.world.state.lock().total_bytes()
    }

    /// What a file holds, as a reader would see it now; none if there is no such file. Works after a crash.
    pub fn contents(&self, name: FileName) -> Option<Vec<u8>> {
        self.inode(name).map(|inode| inode.bytes())
    }

    /// Every file and what it holds, for messages and comparisons. Works after a crash.
    pub fn snapshot(&self) -> BTreeMap<FileName, Vec<u8>> {
        let state = self.world.state.lock();
        let names = &state.directories[self.directory].names;
        names.iter().map(|(name, inode)| (*name, inode.bytes())).collect()
    }

    /// The directory that [`Disk::new_directory`] made under this path.
    pub fn directory(&self, path: &Path) -> Option<Arc<MemoryDisk>> {
        let path = path.display().to_string();
        let state = self.world.state.lock();
        let directory = state.directories.iter().position(|directory| directory.path == path)?;
        Some(Arc::new(MemoryDisk { world: self.world.clone(), directory }))
    }

    /// Damages the platter: flips bit `bit` (0 to 7) of the byte at `offset`. False if there is no such byte.
    pub fn flip_bit(&self, name: FileName, offset: u64, bit: u32) -> bool {
        let flip = |bytes: &mut Vec<u8>| {
            let byte = usize::try_from(offset).ok().and_then(|offset| bytes.get_mut(offset));
            byte.map(|byte| *byte ^= 1 << bit).is_some()
        };
        self.inode(name).is_some_and(|inode| inode.damage(flip))
    }

    /// Damages the platter: cuts a file to `len` bytes, durably. False if it is not longer than that.
    pub fn truncate(&self, name: FileName, len: u64) -> bool {
        let cut = |bytes: &mut Vec<u8>| {
            let is_longer = len < bytes.len() as u64;
            if is_longer {
                bytes.truncate(usize::try_from(len).expect("shorter than a vector"));
            }
            is_longer
        };
        self.inode(name).is_some_and(|inode| inode.damage(cut))
    }

    /// Damages the platter: the file has these bytes from now on, durably, whether it was there before or
    /// not.
    pub fn replace(&self, name: FileName, bytes: Vec<u8>) {
        let mut state = self.world.state.lock();
        let directory = &mut state.directories[self.directory];
        directory.forget_changes(name);
        directory.names.insert(name, Inode::new(name, bytes).damaged());
    }

    /// Damages the platter: the file is gone, durably. False if it was not there.
    pub fn lose(&self, name: FileName) -> bool {
        let mut state = self.world.state.lock();
        let directory = &mut state.directories[self.directory];
        directory.forget_changes(name);
        directory.names.remove(&name).is_some()
    }

    fn inode(&self, name: FileName) -> Option<Arc<Inode>> {
        self.world.state.lock().directories[self.directory].names.get(&name).cloned()
    }

    fn file(&self, inode: Arc<Inode>) -> Arc<dyn File> {
        Arc::new(MemoryFile { world: self.world.clone(), inode })
    }
}

impl Directory {
    /// Makes what a name stands for now independent of what a crash keeps.
    fn forget_changes(&mut self, name: FileName) {
        self.changes.retain(|change| change.before.iter().all(|(changed, _)| *changed != name));
    }
}

fn missing(name: FileName) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {name}"))
}

impl Disk for MemoryDisk {
    fn create(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.world.change(|state, _| {
            let directory = &mut state.directories[self.directory];
            if directory.names.contains_key(&name) {
                return Err(io::Error::from(io::ErrorKind::AlreadyExists));
            }
            let inode = Inode::new(name, Vec::new());
            directory.change(ChangeKind::Added(name, inode.clone()), &[name]);
            Ok(self.file(inode))
        })
    }

    fn open(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        let state = self.world.state.lock();
        state.check()?;
        let inode = state.directories[self.directory].names.get(&name).ok_or_else(|| missing(name))?;
        Ok(self.file(inode.clone()))
    }

    fn rename(&self, from: FileName, to: FileName) -> io::Result<()> {
        self.world.change(|state, _| {
            let directory = &mut state.directories[self.directory];
            let inode = directory.names.get(&from).cloned().ok_or_else(|| missing(from))?;
            if from != to {
                inode.rename(to);
                directory.change(ChangeKind::Renamed { from, to, inode }, &[from, to]);
            }
            Ok(())
        })
    }

    fn remove(&self, name: FileName) -> io::Result<()> {
        self.world.change(|state, _| {
            let directory = &mut state.directories[self.directory];
            if !directory.names.contains_key(&name) {
                return Err(missing(name));
            }
            directory.change(ChangeKind::Removed(name), &[name]);
            Ok(())
        })
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        let state = self.world.state.lock();
        state.check()?;
        let names = &state.directories[self.directory].names;
        Ok(names.keys().copied().map(Listed::Ours).collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.world.change(|state, turn| {
            if turn == Turn::Whole {
                state.directories[self.directory].changes.clear();
            }
            Ok(())
        })
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        self.lock_for(|users| {
            if users.readers > 0 {
                return Err(LockFailure::HeldByReaders);
            }
            users.has_writer = true;
            Ok(())
        })
    }

    fn lock_shared(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        self.lock_for(|users| {
            users.readers += 1;
            Ok(())
        })
    }

    fn sign(&self, _: &(dyn Any + Send + Sync)) -> io::Result<()> {
        let mut state = self.world.state.lock();
        state.check()?;
        // A lock file that is always there and always empty: nothing depends on what a crash does to it.
        let names = &mut state.directories[self.directory].names;
        names.entry(FileName::LOCK).or_insert_with(|| Inode::new(FileName::LOCK, Vec::new()));
        Ok(())
    }

    fn new_directory(&self, path: &Path) -> io::Result<Arc<dyn Disk>> {
        self.world.change(|state, _| {
            let path = path.display().to_string();
            let found = state.directories.iter().position(|directory| directory.path == path);
            let directory = match found {
                Some(found) if disk::is_free(state.directories[found].names.keys()) => found,
                Some(_) => return Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty)),
                None => {
                    state.directories.push(Directory::empty(path));
                    state.directories.len() - 1
                }
            };
            Ok(Arc::new(MemoryDisk { world: self.world.clone(), directory }) as Arc<dyn Disk>)
        })
    }

    fn link(&self, name: FileName, into: &dyn Disk) -> io::Result<()> {
        let other = into.as_any().and_then(|any| any.downcast_ref::<MemoryDisk>());
        let other = other.filter(|other| Arc::ptr_eq(&self.world, &other.world));
        let Some(other) = other else {
            return copy(self, name, into);
        };
        self.world.change(|state, _| {
            let names = &state.directories[self.directory].names;
            let inode = names.get(&name).cloned().ok_or_else(|| missing(name))?;
            let target = &mut state.directories[other.directory];
            if target.names.contains_key(&name) {
                return Err(io::Error::from(io::ErrorKind::AlreadyExists));
            }
            target.change(ChangeKind::Added(name, inode), &[name]);
            Ok(())
        })
    }

    fn queue(&self, depth: usize) -> io::Result<Arc<dyn Queue>> {
        Ok(Arc::new(MemoryQueue::new(&self.world, depth)?))
    }

    fn habitat(&self) -> io::Result<disk::Habitat> {
        let boot = u128::from(self.world.kernel.boot).to_be_bytes();
        Ok(disk::Habitat { boot, device: 0, inode: self.directory as u64 })
    }

    fn now_ns(&self) -> u64 {
        self.ops()
    }

    fn place(&self) -> String {
        self.world.state.lock().directories[self.directory].path.clone()
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

fn copy(from: &MemoryDisk, name: FileName, into: &dyn Disk) -> io::Result<()> {
    from.world.state.lock().check()?;
    let bytes = from.contents(name).ok_or_else(|| missing(name))?;
    let file = into.create(name)?;
    file.write_all_at(0, &bytes)?;
    file.sync()
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.world.state.lock();
        let directory = &state.directories[self.directory];
        write!(f, "MemoryDisk({}, {} files, op {})", directory.path, directory.names.len(), state.ops)
    }
}

struct HeldLock {
    world: Arc<World>,
    directory: usize,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let users = &mut self.world.state.lock().directories[self.directory].users;
        // Either there is one who writes, or there are some who read.
        users.readers = users.readers.saturating_sub(1);
        users.has_writer = false;
    }
}
