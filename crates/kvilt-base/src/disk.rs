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

/// Names come from integers, never from content or from a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileName {
    /// Held, by advisory lock, by the one process that has the store open, or by those that read it; contains
    /// the id of the one.
    Lock,
    /// What of the manifest is known to be synced, see `docs/format/witness.md`.
    Witness,
    /// Room kept back for a full disk; its bytes mean nothing, see `docs/design/0024-reserve.md`.
    Reserve,
    /// An empty file: what else is in the directory is not a whole store yet, see
    /// `docs/design/0062-unfinished-directories.md`.
    Unfinished,
    /// The list of live files, see `docs/format/manifest.md`.
    Manifest(u64),
    /// A manifest under construction; renamed when complete.
    ManifestTemp(u64),
    /// A sorted table.
    Table(u64),
    /// A chunk's log.
    Log(u64),
    /// The commit log of sync mode.
    Commit(u64),
}

impl FileName {
    /// The name with this text, if it is one of ours, exactly.
    pub fn parse(text: &str) -> Option<FileName> {
        match text {
            "LOCK" => return Some(FileName::Lock),
            "WITNESS" => return Some(FileName::Witness),
            "RESERVE" => return Some(FileName::Reserve),
            "UNFINISHED" => return Some(FileName::Unfinished),
            _ => {}
        }
        let (number, suffix) = text.split_once('.')?;
        if number.len() != 16 || !number.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return None;
        }
        let number = u64::from_str_radix(number, 16).ok()?;
        match suffix {
            "manifest" => Some(FileName::Manifest(number)),
            "manifest.tmp" => Some(FileName::ManifestTemp(number)),
            "table" => Some(FileName::Table(number)),
            "log" => Some(FileName::Log(number)),
            "commit" => Some(FileName::Commit(number)),
            _ => None,
        }
    }

    /// The number in the name; zero for those without.
    pub fn number(self) -> u64 {
        match self {
            FileName::Lock | FileName::Witness | FileName::Reserve | FileName::Unfinished => 0,
            FileName::Manifest(n)
            | FileName::ManifestTemp(n)
            | FileName::Table(n)
            | FileName::Log(n)
            | FileName::Commit(n) => n,
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Lock => f.write_str("LOCK"),
            FileName::Witness => f.write_str("WITNESS"),
            FileName::Reserve => f.write_str("RESERVE"),
            FileName::Unfinished => f.write_str("UNFINISHED"),
            FileName::Manifest(n) => write!(f, "{n:016x}.manifest"),
            FileName::ManifestTemp(n) => write!(f, "{n:016x}.manifest.tmp"),
            FileName::Table(n) => write!(f, "{n:016x}.table"),
            FileName::Log(n) => write!(f, "{n:016x}.log"),
            FileName::Commit(n) => write!(f, "{n:016x}.commit"),
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
    names.clone().all(|name| *name == FileName::Lock) || names.any(|name| *name == FileName::Unfinished)
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
    /// Writes into the lock file who has `lock`, which [`Disk::lock`] returned, for those who will be
    /// refused; makes the file if there is none. To be called before anything else of the directory is
    /// changed.
    fn sign(&self, lock: &(dyn Any + Send + Sync)) -> io::Result<()> {
        let _ = lock;
        Ok(())
    }
    /// Makes a new directory for a copy of the store; it must not exist, have nothing in it but a lock, or
    /// bear [`FileName::Unfinished`]. `DirectoryNotEmpty` if not; `InvalidInput`, in words, if it would be
    /// inside of a store's directory. `path` is the user's.
    fn new_directory(&self, path: &std::path::Path) -> io::Result<Arc<dyn Disk>>;
    /// Gives a file a second name, the same one, in another directory made by [`Disk::new_directory`]; copies
    /// it where the system cannot link.
    fn link(&self, name: FileName, into: &dyn Disk) -> io::Result<()>;
    /// Removes the directory itself, and the parents made with it, if this handle made them and nothing is in
    /// them. Nobody is told of an error: an empty directory does no harm.
    fn remove_if_made(&self) {}
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
pub trait File: Send + Sync + fmt::Debug {
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
    /// is no room the file stays as long as it was. For a file that is nothing but room: what its bytes are,
    /// and which of its lengths a crash leaves, is not said. `Unsupported` where a disk cannot.
    fn allocate(&self, len: u64) -> io::Result<()> {
        let _ = len;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// These bytes will be read soon, so the system may begin to fetch them. Advice: nothing depends on it,
    /// and a disk that cannot does nothing.
    fn will_read(&self, _offset: u64, _len: usize) {}
    /// These bytes, which were synced, will not be read soon, so the system need not keep them in memory.
    /// Advice, as above.
    fn will_not_read(&self, _offset: u64, _len: u64) {}
    /// The length, in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Its name.
    fn name(&self) -> FileName;

    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads until the buffer is full or the file ends; says how much it read.
    fn read_full_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(offset + done as u64, &mut buffer[done..]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
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
        let mut done = 0;
        while done < bytes.len() {
            match self.write_at(offset + done as u64, &bytes[done..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_nothing_else_does() {
        for name in [
            FileName::Lock,
            FileName::Witness,
            FileName::Reserve,
            FileName::Unfinished,
            FileName::Manifest(1),
            FileName::ManifestTemp(2),
            FileName::Table(0xabc),
            FileName::Log(u64::MAX),
            FileName::Commit(5),
        ] {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
        for text in [
            "lock",
            "WITNESS.tmp",
            "reserve",
            "1.log",
            "000000000000000g.log",
            "000000000000000A.log",
            "0000000000000001.log.tmp",
            "../LOCK",
        ] {
            assert_eq!(FileName::parse(text), None, "{text}");
        }
    }
}
