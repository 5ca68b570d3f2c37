//! A disk in memory for this crate's tests: files are vectors, every call succeeds unless told otherwise.
//!
//! Where it stands: tests only. It has no notion of crashes; the disk of `kvilt-io` has. Always true: what
//! was written is what is read.

use std::{
    any::Any,
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use kvilt_base::{
    Disk, File, FileName, Listed, Mapping,
    disk::{Habitat, LockFailure},
};

#[derive(Debug, Default)]
pub(crate) struct Memory {
    files: Mutex<BTreeMap<FileName, Arc<MemoryFile>>>,
    pub(crate) fail_sync: AtomicBool,
    pub(crate) fail_write: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct MemoryFile {
    name: Mutex<FileName>,
    bytes: Mutex<Vec<u8>>,
    pub(crate) reads: AtomicU64,
}

impl MemoryFile {
    pub(crate) fn new(name: FileName, bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(MemoryFile { name: Mutex::new(name), bytes: Mutex::new(bytes), reads: AtomicU64::new(0) })
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl File for MemoryFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads.fetch_add(1, SeqCst);
        let bytes = self.bytes.lock().unwrap();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let n = buffer.len().min(bytes.len() - start);
        buffer[..n].copy_from_slice(&bytes[start..start + n]);
        Ok(n)
    }

    fn write_at(&self, offset: u64, new: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().unwrap();
        // Short writes, so that callers must go on.
        let new = &new[..new.len().min(100_000)];
        let start = offset as usize;
        if bytes.len() < start + new.len() {
            bytes.resize(start + new.len(), 0);
        }
        bytes[start..start + new.len()].copy_from_slice(new);
        Ok(new.len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn map(&self, _offset: u64, _len: usize) -> io::Result<Arc<Mapping>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn changed_ns(&self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn name(&self) -> FileName {
        *self.name.lock().unwrap()
    }
}

/// A file handle that asks its disk whether to fail.
#[derive(Debug)]
struct Handle(Arc<MemoryFile>, Arc<Memory>);

impl File for Handle {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        if self.1.fail_write.load(SeqCst) {
            // Half of it reaches the file before the disk is full.
            self.0.write_at(offset, &bytes[..bytes.len() / 2])?;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.0.write_at(offset, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        if self.1.fail_sync.load(SeqCst) { Err(io::Error::other("no sync")) } else { Ok(()) }
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn map(&self, _offset: u64, _len: usize) -> io::Result<Arc<Mapping>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn changed_ns(&self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn name(&self) -> FileName {
        self.0.name()
    }
}

/// The disk itself; a new type so that handles can hold it.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryDisk(pub(crate) Arc<Memory>);

impl MemoryDisk {
    /// Puts a file with these bytes under `name`, replacing what is there.
    pub(crate) fn place(&self, name: FileName, bytes: Vec<u8>) {
        self.0.files.lock().unwrap().insert(name, MemoryFile::new(name, bytes));
    }

    pub(crate) fn bytes(&self, name: FileName) -> Vec<u8> {
        self.0.files.lock().unwrap()[&name].to_vec()
    }
}

impl Disk for MemoryDisk {
    fn create(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        let mut files = self.0.files.lock().unwrap();
        if files.contains_key(&name) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let file = MemoryFile::new(name, Vec::new());
        files.insert(name, file.clone());
        Ok(Arc::new(Handle(file, self.0.clone())))
    }
    fn open(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        let files = self.0.files.lock().unwrap();
        let file = files.get(&name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(Handle(file.clone(), self.0.clone())))
    }
    fn rename(&self, from: FileName, to: FileName) -> io::Result<()> {
        let mut files = self.0.files.lock().unwrap();
        let file = files.remove(&from).ok_or(io::ErrorKind::NotFound)?;
        *file.name.lock().unwrap() = to;
        files.insert(to, file);
        Ok(())
    }
    fn remove(&self, name: FileName) -> io::Result<()> {
        self.0.files.lock().unwrap().remove(&name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }
    fn list(&self) -> io::Result<Vec<Listed>> {
        Ok(self.0.files.lock().unwrap().keys().copied().map(Listed::Ours).collect())
    }
    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        Ok(Box::new(()))
    }
    fn new_directory(&self, _: &std::path::Path) -> io::Result<Arc<dyn Disk>> {
        Ok(Arc::new(MemoryDisk::default()))
    }
    fn link(&self, _: FileName, _: &dyn Disk) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
    fn queue(&self, _depth: usize) -> io::Result<Arc<dyn kvilt_base::Queue>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn habitat(&self) -> io::Result<Habitat> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn place(&self) -> String {
        "memory".into()
    }
}
