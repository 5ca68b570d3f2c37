//! Makes manifests, and appends to them.
//!
//! Where it stands: owned by whoever checkpoints; one thread at a time. Always true: what
//! [`ManifestWriter::append`] returned Ok for is durable; a manifest gets its name only when it is complete
//! and durable.

use std::{io, sync::Arc};

use kvilt_base::{Disk, Error, ErrorKind, File, FileName, Large, Result, directory, planted};

use super::{edit::Edit, record, root::Root, witness::Claim};
use crate::{
    FileIdentity,
    header::{self, HEADER_BYTES},
    names::{MANIFEST, MANIFEST_TEMP},
};

/// The open end of a manifest.
#[derive(Debug)]
pub struct ManifestWriter {
    file: Arc<dyn File>,
    id: FileIdentity,
    /// Where the next record goes.
    offset: u64,
    /// What was synced: the mark behind the last record is not part of it.
    synced_len: u64,
    /// A sync failed: what is on the disk is not known any more.
    is_broken: bool,
}

impl ManifestWriter {
    /// Makes a manifest that holds `root`, with a number above all others in the directory: writes it under
    /// its temporary name, syncs it, renames it, syncs the directory. Older manifests are the caller's to
    /// remove.
    ///
    /// Errors: `NoSpace`, `Io`; `LimitReached` if the root exceeds 4 GiB.
    pub fn create(disk: &dyn Disk, root: &Root) -> Result<ManifestWriter> {
        let listed = directory::list(disk)?;
        let numbers = directory::numbers(&listed, MANIFEST).chain(directory::numbers(&listed, MANIFEST_TEMP));
        let number = numbers.max().unwrap_or(0).checked_add(1).ok_or_else(|| {
            Error::new(ErrorKind::LimitReached, "the directory has the last possible manifest")
        })?;
        ManifestWriter::create_numbered(disk, number, root)
    }

    /// The same with a number that the caller knows to be above all others; spares the listing. A leftover
    /// under the temporary name is replaced.
    pub fn create_numbered(disk: &dyn Disk, number: u64, root: &Root) -> Result<ManifestWriter> {
        let id = FileIdentity { store_id: root.store_id, number };
        let (temp, name) = (FileName::Of(MANIFEST_TEMP, number), FileName::Of(MANIFEST, number));
        let failed = |doing: &str, e| Error::io(doing, e).in_file(temp);
        let mut bytes = Large::from(header::encode(header::MANIFEST_MAGIC, id, 0).to_vec());
        bytes.reserve(root.encoded_bytes_max());
        push_encoded(&mut bytes, |out| root.encode(out), id, HEADER_BYTES as u64)?;
        // The mark is synced with what it vouches for: the rename, not the mark, is what makes this count.
        let mark_offset = bytes.len() as u64;
        push_mark(&mut bytes, id, mark_offset);
        let file = match disk.create(temp) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                disk.remove(temp).and_then(|()| disk.create(temp))
            }
            created => created,
        };
        let file = file.map_err(|e| failed("create a manifest", e))?;
        if let Err(e) = file.write_all_at(0, &bytes) {
            // On a full disk, what was written of it would take the room that the next try needs.
            let _ = disk.remove(temp);
            return Err(failed("write a manifest", e));
        }
        sync_content(&*file, temp)?;
        drop(file);
        disk.rename(temp, name).map_err(|e| failed("rename a manifest", e))?;
        sync_name(disk, name)?;
        // Opened under its final name, as a disk may close and reopen files by their names.
        let file = disk.open(name).map_err(|e| Error::io("open a manifest", e).in_file(name))?;
        let len = bytes.len() as u64;
        Ok(ManifestWriter { file, id, offset: len, synced_len: len, is_broken: false })
    }

    /// Appends an edit and syncs; it is durable when this returns. Says how many bytes were written.
    ///
    /// The caller has applied the edit to its root, so that it is known to fit. After a failed write the edit
    /// may be appended again; after a failed sync every append is `Poisoned`, and only an open tells whether
    /// the edit is there.
    ///
    /// Errors: `NoSpace`, `Io`, `Poisoned`; `LimitReached` if the edit exceeds 4 GiB.
    pub fn append(&mut self, edit: &Edit) -> Result<u64> {
        let name = FileName::Of(MANIFEST, self.id.number);
        if self.is_broken {
            return Err(
                Error::new(ErrorKind::Poisoned, "an earlier sync of the manifest failed").in_file(name)
            );
        }
        let mut bytes = Large::default();
        push_edit(&mut bytes, edit, self.id, self.offset)?;
        self.file
            .write_all_at(self.offset, &bytes)
            .map_err(|e| Error::io("append to the manifest", e).at(name, self.offset))?;
        self.sync_edit(name)?;
        let start = self.offset;
        self.offset += bytes.len() as u64;
        self.synced_len = self.offset;
        // The mark may be lost, or half there: it only helps to tell later damage from a torn end.
        let mut mark = Vec::new();
        push_mark(&mut mark, self.id, self.offset);
        if self.file.write_all_at(self.offset, &mark).is_ok() {
            self.offset += mark.len() as u64;
        }
        Ok(self.offset - start)
    }

    fn sync_edit(&mut self, name: FileName) -> Result<()> {
        planted!(EditNotSynced => return Ok(()));
        self.file.sync().map_err(|e| {
            self.is_broken = true;
            sync_failed(e, name)
        })
    }

    /// Bytes of the manifest so far; when this is many times the root's own size, a fresh one is due.
    #[expect(clippy::len_without_is_empty, reason = "a length of a file; it always has a header")]
    pub fn len(&self) -> u64 {
        self.offset
    }

    /// What is durable of it by now, for the witness.
    pub fn claim(&self) -> Claim {
        Claim { manifest: self.id.number, len: self.synced_len }
    }

    /// The number in its name.
    pub fn number(&self) -> u64 {
        self.id.number
    }
}

fn sync_content(file: &dyn File, name: FileName) -> Result<()> {
    planted!(ManifestNotSynced => return Ok(()));
    file.sync().map_err(|e| sync_failed(e, name))
}

fn sync_name(disk: &dyn Disk, name: FileName) -> Result<()> {
    planted!(ManifestNameNotSynced => return Ok(()));
    disk.sync_dir().map_err(|e| sync_failed(e, name))
}

/// After a failed sync nobody knows what the disk holds (D-5).
fn sync_failed(error: io::Error, name: FileName) -> Error {
    Error::new(ErrorKind::Poisoned, format!("a sync of the manifest failed: {error}")).in_file(name)
}

fn push_edit(out: &mut Vec<u8>, edit: &Edit, id: FileIdentity, offset: u64) -> Result<()> {
    push_encoded(out, |out| edit.encode(out), id, offset)
}

/// Appends the record of what `encode` appends.
fn push_encoded(
    out: &mut Vec<u8>,
    encode: impl FnOnce(&mut Vec<u8>),
    id: FileIdentity,
    offset: u64,
) -> Result<()> {
    let start = out.len();
    out.resize(start + record::HEAD_BYTES, 0);
    encode(out);
    if u32::try_from(out.len() - start).is_err() {
        return Err(Error::new(ErrorKind::LimitReached, "a manifest edit exceeds 4 GiB"));
    }
    // An edit without any field would look like a mark, and changes nothing: a mark it is.
    record::seal(out, start, id, offset);
    Ok(())
}

/// Appends the mark that will lie at `offset`.
fn push_mark(out: &mut Vec<u8>, id: FileIdentity, offset: u64) {
    record::push(out, &[], id, offset).expect("an empty body has a length");
}
