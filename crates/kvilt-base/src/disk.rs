//! The `Disk` seam: one directory of files with integer names, and what is durable after which call.
//!
//! Promises that an implementation makes (numbers as in `docs/invariants.md`):
//!
//! * **D-1** After [`File::sync`] returns Ok, every byte written to that file before the call, and its
//!   length, survives a power cut — if the file's name does.
//! * **D-2** After [`Disk::sync_dir`] returns Ok, every create, rename, link and remove before the call
//!   survives.
//! * **D-3** Nothing else survives for certain; what does may be any subset, in any order, torn at 512 bytes.
//! * **D-4** A rename is atomic: a crash leaves the old file or the new one under the name, never neither.
//! * **D-5** After a failed sync nothing may be assumed of any byte written since the last good one.

use std::{any::Any, fmt, io, sync::Arc};

use crate::{Mapping, Queue, queue::BLOCK_BYTES};

/// A kind of file. An engine declares its own as constants; [`FileName`] has those that every store may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKind {
    /// How the name ends, or the whole name of a file that a store has once: then all of it is uppercase.
    text: &'static str,
    is_read_at_random: bool,
    is_direct: bool,
}

impl FileKind {
    /// A kind whose files are read from end to end.
    ///
    /// Panics if the text is empty, or has other characters than ASCII letters of one case and dots.
    pub const fn new(text: &'static str) -> FileKind {
        let (bytes, mut at) = (text.as_bytes(), 0);
        assert!(!bytes.is_empty(), "a kind of file has a name");
        while at < bytes.len() {
            let is_allowed = match bytes[0].is_ascii_uppercase() {
                true => bytes[at].is_ascii_uppercase(),
                false => bytes[at].is_ascii_lowercase() || bytes[at] == b'.',
            };
            assert!(is_allowed, "a kind of file is all uppercase, or lowercase with dots");
            at += 1;
        }
        FileKind { text, is_read_at_random: false, is_direct: false }
    }

    /// A kind whose files are read at random: read-ahead by the system would be wasted on them.
    pub const fn read_at_random(text: &'static str) -> FileKind {
        FileKind { is_read_at_random: true, ..FileKind::new(text) }
    }

    /// A kind whose files are read and written past the system's page cache, where the file system lets us:
    /// in whole blocks, as [`crate::queue`] has it.
    pub const fn direct(text: &'static str) -> FileKind {
        FileKind { is_read_at_random: true, is_direct: true, ..FileKind::new(text) }
    }

    /// Whether it was made by [`FileKind::direct`].
    pub const fn is_direct(self) -> bool {
        self.is_direct
    }

    const fn is_once(self) -> bool {
        self.text.as_bytes()[0].is_ascii_uppercase()
    }
}

/// The name of a file: from integers, never from content or from a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileName {
    /// A file that a store has once, such as `LOCK`.
    Once(FileKind),
    /// One of many of its kind, such as `000000000000002a.log`.
    Of(FileKind, u64),
}

impl FileName {
    /// Held, by advisory lock, by the one process that has the store open, or by those that read it; contains
    /// the id of the one.
    pub const LOCK: FileName = FileName::Once(FileKind::new("LOCK"));
    /// Which engine made the store, see `docs/format/engine.md`.
    pub const ENGINE: FileName = FileName::Once(FileKind::new("ENGINE"));
    /// An empty file: what else is in the directory is not a whole store yet, see
    /// `docs/design/0062-unfinished-directories.md`.
    pub const UNFINISHED: FileName = FileName::Once(FileKind::new("UNFINISHED"));

    /// The name with this text, exactly, if it is one that every store may have, or of one of these `kinds`.
    pub fn parse(text: &str, kinds: &[FileKind]) -> Option<FileName> {
        let common = [FileName::LOCK, FileName::ENGINE, FileName::UNFINISHED].into_iter();
        if let Some(name) = common.chain(FileName::once_of(kinds)).find(|name| name.kind().text == text) {
            return Some(name);
        }
        let (number, ending) = text.split_once('.')?;
        if number.len() != 16 || !number.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return None;
        }
        let kind = kinds.iter().find(|kind| !kind.is_once() && kind.text == ending)?;
        Some(FileName::Of(*kind, u64::from_str_radix(number, 16).ok()?))
    }

    /// The names of those `kinds` that a store has once.
    pub fn once_of(kinds: &[FileKind]) -> impl Iterator<Item = FileName> {
        kinds.iter().filter(|kind| kind.is_once()).map(|kind| FileName::Once(*kind))
    }

    /// The number in the name; zero for those without.
    pub fn number(self) -> u64 {
        match self {
            FileName::Once(_) => 0,
            FileName::Of(_, number) => number,
        }
    }

    /// Whether it is read at random, so that read-ahead by the system would be wasted.
    pub fn is_read_at_random(self) -> bool {
        self.kind().is_read_at_random
    }

    /// What kind of file it is.
    pub fn kind(self) -> FileKind {
        match self {
            FileName::Once(kind) | FileName::Of(kind, _) => kind,
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Once(kind) => f.write_str(kind.text),
            FileName::Of(kind, number) => write!(f, "{number:016x}.{}", kind.text),
        }
    }
}

/// What a listing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// A regular file with a name of ours.
    Ours(FileName),
    /// Anything else: never opened, never deleted.
    Foreign(String),
}

/// Why a directory could not be locked.
#[derive(Debug)]
pub enum LockFailure {
    /// Somebody has it; the process id, if it could be read.
    Held(Option<u32>),
    /// Some who only read have it, and it was wanted alone.
    HeldByReaders,
    /// The system refused.
    Io(io::Error),
}

/// Whether a new store may be made where these names, all of ours, are: nothing but a lock, or what an
/// unfinished job left.
pub fn is_free<'n>(mut names: impl Iterator<Item = &'n FileName> + Clone) -> bool {
    names.clone().all(|name| *name == FileName::LOCK) || names.any(|name| *name == FileName::UNFINISHED)
}

/// Where files live: in one directory, in one run of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habitat {
    /// The kernel's run: random, another one after each boot.
    pub boot: [u8; 16],
    /// The directory's device.
    pub device: u64,
    /// The directory's number on the device.
    pub inode: u64,
}

impl Habitat {
    /// That of no directory.
    pub const NOWHERE: Habitat = Habitat { boot: [0xff; 16], device: u64::MAX, inode: u64::MAX };

    /// Where a disk is; nowhere if it does not know.
    pub fn of(disk: &dyn Disk) -> Habitat {
        disk.habitat().unwrap_or(Habitat::NOWHERE)
    }
}

/// One directory. Every method may be called from several threads.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Makes a new, empty file; `AlreadyExists` if there is one.
    fn create(&self, name: FileName) -> io::Result<Arc<dyn File>>;
    /// Opens a file for reading and writing; `NotFound` if there is none.
    fn open(&self, name: FileName) -> io::Result<Arc<dyn File>>;
    /// Renames, replacing what has the new name (D-4).
    fn rename(&self, from: FileName, to: FileName) -> io::Result<()>;
    /// Removes a file's name; those who have it open keep it.
    fn remove(&self, name: FileName) -> io::Result<()>;
    /// Everything in the directory, in no order. Names only: a length would be one more call to the system
    /// for each of thousands of files, of which an open needs a few.
    fn list(&self) -> io::Result<Vec<Listed>>;
    /// How long a file is, in bytes; `NotFound` if there is none.
    fn len(&self, name: FileName) -> io::Result<u64> {
        self.open(name)?.len()
    }
    /// Makes creates, renames, links and removes durable (D-2).
    fn sync_dir(&self) -> io::Result<()>;
    /// Locks the directory for this handle until the returned value is dropped. A second call fails, from
    /// another process and from this one. No file is made or changed by it.
    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure>;
    /// The same beside others who call this, and nobody who calls [`Disk::lock`]. A disk that knows nothing
    /// of it is locked for one.
    fn lock_shared(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        self.lock()
    }
    /// Writes the id of this process, which holds `lock` from [`Disk::lock`], into the lock file, for the
    /// error that other processes get; makes the file if there is none. To be called before anything else of
    /// the directory is changed.
    fn sign(&self, lock: &(dyn Any + Send + Sync)) -> io::Result<()> {
        let _ = lock;
        Ok(())
    }
    /// Makes a new directory for a copy of the store; it must not exist, have nothing in it but a lock, or
    /// bear [`FileName::UNFINISHED`]. `DirectoryNotEmpty` if not; `InvalidInput`, in words, if it would be
    /// inside of a store's directory. `path` is the user's.
    fn new_directory(&self, path: &std::path::Path) -> io::Result<Arc<dyn Disk>>;
    /// Gives a file a second name, the same one, in another directory made by [`Disk::new_directory`]; copies
    /// it where the system cannot link.
    fn link(&self, name: FileName, into: &dyn Disk) -> io::Result<()>;
    /// Removes the directory itself, and the parents made with it, if this handle made them and nothing is in
    /// them. An error is not reported: an empty directory does no harm.
    fn remove_if_made(&self) {}
    /// A queue for transfers of this disk's files, with at most `depth` of them in flight at the drive; at
    /// least one. `Unsupported` where a disk has none.
    fn queue(&self, depth: usize) -> io::Result<Arc<dyn Queue>>;
    /// Where mappings of its files live. `Unsupported` where that cannot be known.
    fn habitat(&self) -> io::Result<Habitat>;
    /// The time by the clock that [`File::changed_ns`] goes by, in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Where it is, for messages; a path if it has one.
    fn place(&self) -> String;

    /// Gives back what the directory and its files hold of the system, descriptors above all, whoever still
    /// has them open; later calls may fail. A call that is under way may keep what it opens until its handle
    /// is dropped.
    fn close(&self) {}

    /// The disk itself behind any wrapper, so that [`Disk::link`] can recognise its like; none if it has no
    /// use for that.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

/// An open file. Reads and writes name their offset, so handles share no position.
pub trait File: Any + Send + Sync + fmt::Debug {
    /// Reads up to `buffer.len()` bytes; fewer at the end of the file or when interrupted.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes up to `bytes.len()` bytes, growing the file; says how many.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;
    /// Makes all written bytes and the length durable (D-1).
    fn sync(&self) -> io::Result<()>;
    /// These bytes were written and will be synced soon, so the system may begin to bring them to the drive:
    /// where many files are, and all are begun before the first is synced, that takes less time. They may be
    /// the first that it does not keep in memory. Advice: it promises nothing, and an error is told by the
    /// sync.
    fn will_sync(&self, _offset: u64, _len: u64) {}
    /// Makes the file `len` bytes long, and all of them the disk's promise: the room is taken now, and given
    /// back only when a later call makes the file shorter, or its name goes and nobody has it open. If there
    /// is no room the file stays as long as it was. What is in the file stays, and what the new bytes are,
    /// and which of its lengths a crash leaves, is not said. If it does not become shorter, reads and writes
    /// past the page cache that were under way end first, also those of a process that was killed.
    /// `Unsupported` where a disk cannot.
    fn allocate(&self, len: u64) -> io::Result<()> {
        let _ = len;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Maps `len` bytes from `offset` on, which [`File::allocate`] has taken room for, shared with the file:
    /// what is written there is in the file at once, and outlives the process. Both are multiples of a page.
    /// `Unsupported` where a disk cannot.
    fn map(&self, offset: u64, len: usize) -> io::Result<Arc<Mapping>>;
    /// These bytes will be read soon, so the system may begin to fetch them. Advice: nothing depends on it,
    /// and a disk that cannot does nothing.
    fn will_read(&self, _offset: u64, _len: usize) {}
    /// These bytes, which were synced, will not be read soon, so the system need not keep them in memory.
    /// Advice, as above.
    fn will_not_read(&self, _offset: u64, _len: u64) {}
    /// When anybody changed its bytes, its length or its owner last, in nanoseconds: what no copy and no
    /// restored backup can bear from its origin. `Unsupported` where that is not kept.
    fn changed_ns(&self) -> io::Result<u64>;
    /// The length, in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Its name.
    fn name(&self) -> FileName;
    /// The file that this one only watches, so that a [`Queue`] finds its own; none if it is one itself, or
    /// changes what happens.
    fn behind(&self) -> Option<&Arc<dyn File>> {
        None
    }

    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads until the buffer is full or the file ends; says how much it read.
    fn read_full_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let (mut done, mut begun) = (0, 0);
        while done < buffer.len() {
            match self.read_at(offset + begun as u64, &mut buffer[begun..]) {
                // The end of the file, or of its last block that is not whole.
                Ok(n) if begun + n <= done => break,
                Ok(n) => done = begun + n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            begun = whole(self.name(), done);
        }
        Ok(done)
    }

    /// Fills the buffer; `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.read_full_at(offset, buffer)? < buffer.len() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        Ok(())
    }

    /// Writes all bytes, going on after short writes and interruptions.
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut done, mut begun) = (0, 0);
        while done < bytes.len() {
            match self.write_at(offset + begun as u64, &bytes[begun..]) {
                Ok(n) if begun + n <= done => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(n) => done = begun + n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            begun = whole(self.name(), done);
        }
        Ok(())
    }
}

/// Where to go on behind `done` bytes: a file of a direct kind is read and written in whole blocks.
fn whole(name: FileName, done: usize) -> usize {
    if name.kind().is_direct() { done / BLOCK_BYTES * BLOCK_BYTES } else { done }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_nothing_else_does() {
        let (list, list_temp, log) =
            (FileKind::new("list"), FileKind::new("list.tmp"), FileKind::read_at_random("log"));
        let sign = FileKind::new("SIGN");
        let kinds = [list, list_temp, log, sign];
        for name in [
            FileName::LOCK,
            FileName::ENGINE,
            FileName::UNFINISHED,
            FileName::Once(sign),
            FileName::Of(list, 1),
            FileName::Of(list_temp, 0xabc),
            FileName::Of(log, u64::MAX),
        ] {
            assert_eq!(FileName::parse(&name.to_string(), &kinds), Some(name));
        }
        for text in [
            "lock",
            "SIGN.tmp",
            "sign",
            "list",
            "OTHER",
            "0000000000000001.SIGN",
            "0000000000000001.table",
            "1.log",
            "000000000000000g.log",
            "000000000000000A.log",
            "0000000000000001.log.tmp",
            "../LOCK",
        ] {
            assert_eq!(FileName::parse(text, &kinds), None, "{text}");
        }
    }
}
