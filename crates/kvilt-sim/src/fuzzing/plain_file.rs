//! A file, and a directory with one file, that are nothing but bytes: cheap enough to make for every input.

use std::{any::Any, io, path::Path, sync::Arc};

use kvilt_base::{Disk, File, FileName, Listed, disk::LockFailure};

/// A file that can only be read.
#[derive(Clone, Debug)]
pub(crate) struct PlainFile {
    name: FileName,
    bytes: Arc<Vec<u8>>,
}

impl PlainFile {
    pub(crate) fn new(name: FileName, bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(PlainFile { name, bytes: Arc::new(bytes) })
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl File for PlainFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let count = buffer.len().min(self.bytes.len() - start);
        buffer[..count].copy_from_slice(&self.bytes[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<usize> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn map(&self, _offset: u64, _len: usize) -> io::Result<Arc<kvilt_base::Mapping>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn changed_ns(&self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn name(&self) -> FileName {
        self.name
    }
}

/// A directory with one file in it.
#[derive(Debug)]
pub(crate) struct PlainDisk(pub(crate) Arc<PlainFile>);

impl Disk for PlainDisk {
    fn create(&self, _: FileName) -> io::Result<Arc<dyn File>> {
        refused()
    }

    fn open(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        if name == self.0.name { Ok(self.0.clone()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn rename(&self, _: FileName, _: FileName) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: FileName) -> io::Result<()> {
        refused()
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        Ok(vec![Listed::Ours(self.0.name)])
    }

    fn sync_dir(&self) -> io::Result<()> {
        refused()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        Ok(Box::new(()))
    }

    fn new_directory(&self, _: &Path) -> io::Result<Arc<dyn Disk>> {
        refused()
    }

    fn link(&self, _: FileName, _: &dyn Disk) -> io::Result<()> {
        refused()
    }

    fn queue(&self, _depth: usize) -> io::Result<Arc<dyn kvilt_base::Queue>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn habitat(&self) -> io::Result<kvilt_base::disk::Habitat> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn place(&self) -> String {
        "bytes".into()
    }
}
