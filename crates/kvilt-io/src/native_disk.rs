//! `NativeDisk`: a directory of the file system behind the `Disk` seam.
//!
//! A file that the engine holds open is *logical*: its descriptor may be closed meanwhile to make room and is
//! opened again on use (see `descriptors`). All handles on one file of one disk share a `Node`, so that they
//! also share its sync failures.
//!
//! What is always true: names come from [`FileName`]; every path is resolved from the directory's descriptor,
//! never through a symbolic link below it; a reopened file is the same inode or an error.

mod advice;
mod allocation;
mod descriptors;
mod likeness;
mod lock;
mod nesting;
mod node;
mod queue;

use std::{
    any::Any,
    collections::HashMap,
    fmt, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use kvilt_base::{
    Disk, File, FileName, Listed, Queue,
    disk::{FileKind, Habitat, LockFailure},
    queue::{BLOCK_BYTES, aligned},
};
use parking_lot::{Mutex, RwLock};
use rustix::{
    fs::{self, AtFlags, Dir, FileType, Mode, OFlags},
    io::{Errno, retry_on_intr},
};

use descriptors::Owner;
pub use descriptors::open_descriptors;
use likeness::Likeness;
use lock::HeldLock;
use node::Node;
use queue::NativeQueue;
pub use queue::QueueBy;

/// Bytes moved at a time where a file cannot be linked and is copied.
const COPY_PIECE_BYTES: usize = 256 << 10;
const _: () = assert!(COPY_PIECE_BYTES.is_multiple_of(BLOCK_BYTES));

/// Reads and writes a file past the page cache.
#[cfg(target_os = "linux")]
const DIRECT: OFlags = OFlags::DIRECT;
#[cfg(not(target_os = "linux"))]
const DIRECT: OFlags = OFlags::empty();

/// A directory and the files in it. Shared freely; see the crate's head for what it guarantees.
///
/// Directories are made with mode 0700, less what the umask takes. Files get owner, group and mode of those
/// that the store has, as far as their maker may give them away; the first of a directory belong to its
/// owner, with mode 0600.
///
/// ```
/// use kvilt_base::{Disk, File, FileName, disk::FileKind};
/// const LOG: FileKind = FileKind::new("log");
/// let place = tempfile::tempdir()?;
/// let disk = kvilt_io::NativeDisk::open(&place.path().join("store"), &[LOG], true)?;
/// let file = disk.create(FileName::Of(LOG, 1))?;
/// file.write_all_at(0, b"hello")?;
/// file.sync()?;
/// disk.sync_dir()?;
/// assert_eq!(disk.open(FileName::Of(LOG, 1))?.len()?, 5);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct NativeDisk {
    directory: Arc<Directory>,
}

/// What a disk and its nodes share.
struct Directory {
    /// None once it is closed.
    fd: Mutex<Option<Arc<OwnedFd>>>,
    /// Marks the slots of its files.
    owner: Owner,
    path: PathBuf,
    /// Those of its files; whatever else is in it is foreign.
    kinds: &'static [FileKind],
    /// Whether files are opened for reading only, and nothing is changed.
    is_read_only: bool,
    /// What new files are made like; found with the first.
    likeness: OnceLock<Likeness>,
    /// The directories that opening this one made, outermost first.
    made: Vec<PathBuf>,
    /// Shared while a name is opened for the first time or made, exclusive while one is renamed or removed:
    /// so what the table below says of a name is true then. Taken before every other lock here.
    naming: RwLock<()>,
    /// The node of each open file. A node leaves when its last handle is dropped or its name is removed.
    nodes: Mutex<HashMap<FileName, Weak<Node>>>,
    /// The file system lets nobody past the page cache.
    refuses_direct: AtomicBool,
    bytes_written: AtomicU64,
    bytes_read: AtomicU64,
}

impl NativeDisk {
    /// Opens the directory at `path`, for files of these `kinds`: whatever else is in it is foreign. If it is
    /// missing and `create`, makes it and its missing parents, durably.
    ///
    /// `NotFound` if it is missing and may not be made, `NotADirectory` if it is something else.
    pub fn open(path: &Path, kinds: &'static [FileKind], create: bool) -> io::Result<Arc<Self>> {
        let mut made = Vec::new();
        if create {
            make_directory(path, &mut made)?;
        }
        NativeDisk::with(path, kinds, false, made)
    }

    /// Opens the directory at `path` for one who only reads. Whatever would change something fails as
    /// `Unsupported`, or as the system says of a file that is open for reading.
    ///
    /// Errors: as [`NativeDisk::open`].
    pub fn open_to_read(path: &Path, kinds: &'static [FileKind]) -> io::Result<Arc<Self>> {
        NativeDisk::with(path, kinds, true, Vec::new())
    }

    /// The directory of a store that `path` is in, however deep, links followed; `path` itself need not be
    /// there. A store has files of these `kinds`. No store is to be made there.
    pub fn store_around(path: &Path, kinds: &[FileKind]) -> Option<PathBuf> {
        nesting::store_around(path, kinds)
    }

    fn with(
        path: &Path,
        kinds: &'static [FileKind],
        is_read_only: bool,
        made: Vec<PathBuf>,
    ) -> io::Result<Arc<Self>> {
        let fd = descriptors::open_within_limit(|| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(retry_on_intr(|| fs::open(path, flags, Mode::empty()))?)
        })?;
        Ok(Arc::new(NativeDisk {
            directory: Arc::new(Directory {
                fd: Mutex::new(Some(Arc::new(fd))),
                owner: Owner::next(),
                path: path.to_path_buf(),
                kinds,
                is_read_only,
                likeness: OnceLock::new(),
                made,
                naming: RwLock::new(()),
                nodes: Mutex::default(),
                refuses_direct: AtomicBool::new(false),
                bytes_written: AtomicU64::new(0),
                bytes_read: AtomicU64::new(0),
            }),
        }))
    }

    /// Bytes that writes to this disk have taken so far.
    pub fn bytes_written(&self) -> u64 {
        // Relaxed: a statistic.
        self.directory.bytes_written.load(Ordering::Relaxed)
    }

    /// Bytes that reads from this disk have given so far.
    pub fn bytes_read(&self) -> u64 {
        // Relaxed: a statistic.
        self.directory.bytes_read.load(Ordering::Relaxed)
    }

    /// The same as [`Disk::queue`], by what the caller says.
    pub fn queue_by(&self, depth: usize, by: QueueBy) -> Arc<dyn Queue> {
        Arc::new(NativeQueue::new(&self.directory, depth, by))
    }

    /// The node of `name`, if somebody has it open.
    fn node(&self, name: FileName) -> Option<Arc<Node>> {
        self.directory.nodes.lock().get(&name).and_then(Weak::upgrade)
    }

    fn copy(&self, name: FileName, into: &dyn Disk) -> io::Result<()> {
        let from = self.open(name)?;
        let to = into.create(name)?;
        let copied = copy_bytes(&*from, &*to);
        if copied.is_err() {
            // The first error is the one to tell.
            let _ = into.remove(name);
        }
        copied
    }
}

impl Disk for NativeDisk {
    fn create(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.directory.allow_change()?;
        let _naming = self.directory.naming.read();
        let fd = descriptors::open_within_limit(|| self.directory.open_new(name))?;
        let mut nodes = self.directory.nodes.lock();
        // Somebody may have opened it since the line before: then there is a node already.
        if let Some(node) = nodes.get(&name).and_then(Weak::upgrade) {
            return Ok(node);
        }
        let node = Arc::new(Node::with_fd(self.directory.clone(), name, fd)?);
        nodes.insert(name, Arc::downgrade(&node));
        Ok(node)
    }

    fn open(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        let _naming = self.directory.naming.read();
        let node = {
            let mut nodes = self.directory.nodes.lock();
            match nodes.get(&name).and_then(Weak::upgrade) {
                Some(node) => node,
                None => {
                    let node = Arc::new(Node::closed(self.directory.clone(), name));
                    nodes.insert(name, Arc::downgrade(&node));
                    node
                }
            }
        };
        node.ensure_open()?;
        Ok(node)
    }

    fn rename(&self, from: FileName, to: FileName) -> io::Result<()> {
        self.directory.allow_change()?;
        let fd = self.directory.fd()?;
        let _naming = self.directory.naming.write();
        let replaced = if from == to { None } else { self.node(to) };
        // Those who have the replaced file open keep it: its descriptor must not be closed any more.
        if let Some(node) = &replaced {
            node.pin()?;
        }
        // Declared before the table's lock, so dropped after it: a node that goes looks into the table.
        let moved;
        let mut nodes = self.directory.nodes.lock();
        moved = nodes.get(&from).and_then(Weak::upgrade);
        let mut name_of_moved = moved.as_ref().map(|node| node.lock_name());
        let texts = (from.to_string(), to.to_string());
        if let Err(error) = fs::renameat(&fd, texts.0, &fd, texts.1) {
            if let Some(node) = &replaced {
                node.unpin();
            }
            return Err(error.into());
        }
        if from != to {
            nodes.remove(&to);
            if let Some(node) = nodes.remove(&from) {
                nodes.insert(to, node);
            }
        }
        if let Some(name) = &mut name_of_moved {
            **name = to;
        }
        Ok(())
    }

    fn remove(&self, name: FileName) -> io::Result<()> {
        self.directory.allow_change()?;
        let fd = self.directory.fd()?;
        let _naming = self.directory.naming.write();
        let node = self.node(name);
        if let Some(node) = &node {
            node.pin()?;
        }
        let mut nodes = self.directory.nodes.lock();
        if let Err(error) = fs::unlinkat(&fd, name.to_string(), AtFlags::empty()) {
            if let Some(node) = &node {
                node.unpin();
            }
            return Err(error.into());
        }
        nodes.remove(&name);
        drop(nodes);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        let fd = self.directory.fd()?;
        let entries = descriptors::open_within_limit(|| Ok(retry_on_intr(|| Dir::read_from(&fd))?))?;
        let mut listed = Vec::new();
        for entry in entries {
            let entry = entry?;
            let text = entry.file_name().to_string_lossy();
            if text == "." || text == ".." {
                continue;
            }
            let Some(name) = FileName::parse(&text, self.directory.kinds) else {
                listed.push(Listed::Foreign(text.into_owned()));
                continue;
            };
            let found = match entry.file_type() {
                // A file system that does not say, and has to be asked for each.
                FileType::Unknown => look_at(&fd, name).map(|(file_type, _)| file_type),
                known => Ok(known),
            };
            match found {
                Ok(FileType::RegularFile) => listed.push(Listed::Ours(name)),
                Ok(_) => listed.push(Listed::Foreign(text.into_owned())),
                // Removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(listed)
    }

    fn len(&self, name: FileName) -> io::Result<u64> {
        match look_at(&*self.directory.fd()?, name)? {
            (FileType::RegularFile, len) => Ok(len),
            _ => Err(not_regular(name)),
        }
    }

    fn sync_dir(&self) -> io::Result<()> {
        let fd = self.directory.fd()?;
        Ok(retry_on_intr(|| fs::fsync(&fd))?)
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        Ok(Box::new(HeldLock::alone(&self.directory)?))
    }

    fn lock_shared(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        Ok(Box::new(HeldLock::shared(&self.directory)?))
    }

    fn sign(&self, lock: &(dyn Any + Send + Sync)) -> io::Result<()> {
        lock.downcast_ref::<HeldLock>().map_or(Ok(()), |held| held.sign(&self.directory))
    }

    fn new_directory(&self, path: &Path) -> io::Result<Arc<dyn Disk>> {
        if let Some(store) = NativeDisk::store_around(path, self.directory.kinds) {
            let message =
                format!("it would be inside {}, which is the directory of a store", store.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let is_new = !path.exists();
        let disk = NativeDisk::open(path, self.directory.kinds, true)?;
        let listed = disk.list()?;
        // A lock alone is what a job left that was killed before it began.
        let is_free = listed.iter().all(|listed| *listed == Listed::Ours(FileName::LOCK))
            || listed.contains(&Listed::Ours(FileName::UNFINISHED));
        if !is_free {
            return Err(io::Error::new(
                io::ErrorKind::DirectoryNotEmpty,
                format!("{} is not empty", path.display()),
            ));
        }
        // Half of the copy's files are the store's own, by other names: the other half is to be of use to the
        // same.
        if is_new {
            Likeness::of_directory(&*self.directory.fd()?)?.give_to(&*disk.directory.fd()?)?;
        }
        let _ = disk.directory.likeness.set(self.directory.likeness()?);
        Ok(disk)
    }

    fn link(&self, name: FileName, into: &dyn Disk) -> io::Result<()> {
        // A link is counted in the file itself.
        self.directory.allow_change()?;
        let Some(other) = into.as_any().and_then(|any| any.downcast_ref::<NativeDisk>()) else {
            return self.copy(name, into);
        };
        let text = name.to_string();
        match fs::linkat(self.directory.fd()?, &text, other.directory.fd()?, &text, AtFlags::empty()) {
            Ok(()) => Ok(()),
            // Another file system, one without hard links, or too many links already.
            Err(Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                self.copy(name, into)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn remove_if_made(&self) {
        // One that has something in it cannot be removed, and ends this.
        let _ = self.directory.made.iter().rev().try_for_each(fs::rmdir);
    }

    fn queue(&self, depth: usize) -> io::Result<Arc<dyn Queue>> {
        Ok(self.queue_by(depth, QueueBy::Best))
    }

    #[cfg(target_os = "linux")]
    fn habitat(&self) -> io::Result<Habitat> {
        let stat = fs::fstat(&*self.directory.fd()?)?;
        Ok(Habitat { boot: boot_id()?, device: stat.st_dev, inode: stat.st_ino })
    }

    fn now_ns(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        since.as_nanos() as u64
    }

    fn place(&self) -> String {
        self.directory.path.display().to_string()
    }

    fn close(&self) {
        // In this order: nothing is opened any more, then what is open is closed.
        self.directory.fd.lock().take();
        self.directory.owner.close_all();
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl fmt::Debug for NativeDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NativeDisk({})", self.directory.path.display())
    }
}

impl Directory {
    /// The descriptor, for one call.
    fn fd(&self) -> io::Result<Arc<OwnedFd>> {
        let is_closed = || io::Error::other(format!("the directory {} was closed", self.path.display()));
        self.fd.lock().clone().ok_or_else(is_closed)
    }

    /// Fails if it was opened for reading.
    fn allow_change(&self) -> io::Result<()> {
        let message = || format!("the directory {} was opened for reading only", self.path.display());
        if self.is_read_only { Err(io::Error::new(io::ErrorKind::Unsupported, message())) } else { Ok(()) }
    }

    fn open_existing(&self, name: FileName) -> io::Result<OwnedFd> {
        self.open_with(name, if self.is_read_only { OFlags::RDONLY } else { OFlags::RDWR })
    }

    /// Makes a file like those that are there.
    fn open_new(&self, name: FileName) -> io::Result<OwnedFd> {
        let likeness = self.likeness()?;
        let fd = self.open_with(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        if let Err(error) = likeness.give_to(&fd) {
            // The first error is the one to tell.
            let _ = fs::unlinkat(&*self.fd()?, name.to_string(), AtFlags::empty());
            return Err(error);
        }
        Ok(fd)
    }

    /// What files of this store are like: one of those that it has once, since they are made with it and
    /// stay; if there is none, another file of its. The lock file tells nothing: whoever looked into the
    /// store may have made it.
    fn likeness(&self) -> io::Result<Likeness> {
        if let Some(likeness) = self.likeness.get() {
            return Ok(*likeness);
        }
        let fd = self.fd()?;
        let mut names = listed(&fd, self.kinds)?;
        names.sort_unstable();
        let mut found = None;
        for name in names.iter().filter(|name| **name != FileName::LOCK) {
            found = Likeness::of_file(&fd, &name.to_string())?;
            if found.is_some() {
                break;
            }
        }
        let likeness = match found {
            Some(likeness) => likeness,
            None => Likeness::of_first_in(&fd)?,
        };
        Ok(*self.likeness.get_or_init(|| likeness))
    }

    /// Whether a file of this name is opened past the page cache.
    fn opens_direct(&self, name: FileName) -> bool {
        name.kind().is_direct() && !self.refuses_direct.load(Ordering::Relaxed)
    }

    /// Whether some files are, as far as is known.
    fn is_direct(&self) -> bool {
        self.kinds.iter().any(|kind| kind.is_direct()) && !self.refuses_direct.load(Ordering::Relaxed)
    }

    /// Sets how a file is read and written from now on. Not when it is opened: some file systems make a new
    /// file and then refuse the flag.
    fn set_flags(&self, fd: &OwnedFd, name: FileName) -> io::Result<()> {
        // A ring would take it for a wish not to wait for the drive.
        let flags = fs::fcntl_getfl(fd)? - OFlags::NONBLOCK;
        if self.opens_direct(name) {
            match fs::fcntl_setfl(fd, flags | DIRECT) {
                // Relaxed: nothing else hangs on it.
                Err(Errno::INVAL) => self.refuses_direct.store(true, Ordering::Relaxed),
                outcome => return Ok(outcome?),
            }
        }
        Ok(fs::fcntl_setfl(fd, flags)?)
    }

    /// Opens a regular file. Whatever else bears the name is `InvalidData`.
    fn open_with(&self, name: FileName, how: OFlags) -> io::Result<OwnedFd> {
        // NONBLOCK and NOCTTY: a pipe or a terminal under our name must neither hold us up nor adopt us.
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let directory = self.fd()?;
        let mode = Mode::RUSR | Mode::WUSR;
        let opened = retry_on_intr(|| fs::openat(&directory, name.to_string(), flags | how, mode));
        match opened {
            Ok(fd) => {
                if FileType::from_raw_mode(fs::fstat(&fd)?.st_mode) != FileType::RegularFile {
                    return Err(not_regular(name));
                }
                self.set_flags(&fd, name)?;
                advice::advise(&fd, name);
                Ok(fd)
            }
            Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => Err(not_regular(name)),
            Err(error) => Err(error.into()),
        }
    }
}

/// The kernel's run.
#[cfg(target_os = "linux")]
fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number =
        u128::from_str_radix(&digits, 16).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(number.to_be_bytes())
}

/// The names of ours in a directory, whatever bears them.
fn listed(directory: &OwnedFd, kinds: &[FileKind]) -> io::Result<Vec<FileName>> {
    let entries = descriptors::open_within_limit(|| Ok(retry_on_intr(|| Dir::read_from(directory))?))?;
    let mut names = Vec::new();
    for entry in entries {
        names.extend(FileName::parse(&entry?.file_name().to_string_lossy(), kinds));
    }
    Ok(names)
}

/// What bears the name, links not followed, and how long it is.
fn look_at(directory: &OwnedFd, name: FileName) -> io::Result<(FileType, u64)> {
    let stat = fs::statat(directory, name.to_string(), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((FileType::from_raw_mode(stat.st_mode), u64::try_from(stat.st_size).unwrap_or(0)))
}

fn not_regular(name: FileName) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{name} is not a regular file"))
}

/// Makes a directory and its missing parents, notes what it `made`, and makes their names durable.
fn make_directory(path: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    match fs::mkdir(path, Mode::RWXU) {
        Ok(()) => made.push(path.to_path_buf()),
        Err(Errno::EXIST) => return Ok(()),
        Err(Errno::NOENT) => {
            let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
                return Err(Errno::NOENT.into());
            };
            make_directory(parent, made)?;
            match fs::mkdir(path, Mode::RWXU) {
                Ok(()) => made.push(path.to_path_buf()),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(error) => return Err(error.into()),
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match retry_on_intr(|| fs::open(parent, flags, Mode::empty())) {
        Ok(fd) => Ok(retry_on_intr(|| fs::fsync(&fd))?),
        // One may be allowed to make a directory where one may not look.
        Err(Errno::ACCESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn copy_bytes(from: &dyn File, to: &dyn File) -> io::Result<()> {
    let mut piece = aligned(COPY_PIECE_BYTES);
    let mut offset = 0;
    loop {
        let read = from.read_full_at(offset, &mut piece)?;
        if read == 0 {
            break;
        }
        to.write_all_at(offset, &piece[..read])?;
        offset += read as u64;
    }
    // A link shares the durability of its file, so a copy must have it too.
    to.sync()
}
