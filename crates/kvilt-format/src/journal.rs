//! The journal of structure: how the files of chunks changed since a checkpoint, for whoever opens the store
//! after the process was killed.
//!
//! Where it stands: begun at a checkpoint's cut, and never synced: after a power cut the manifest alone
//! counts. Format: `docs/format/journal.md`. Always true: records come in order; the end is where the first
//! one is not good, for a killed process may have been in the midst of it.

use std::sync::Arc;

use kvilt_base::{Disk, Error, File, FileName, Result, Version};

use crate::{
    FileIdentity,
    coding::{Decoder, Malformed, push_varint},
    header::{self, HEADER_BYTES},
    manifest::Edit,
    names::JOURNAL,
    record,
};

/// Whose journal it is, and of what it tells the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Names the run of the store: random, the same in all its journals and in its pool.
    pub run: u64,
    /// Names the run of the kernel.
    pub boot: [u8; 16],
    /// The checkpoint whose root it changes.
    pub cut: Version,
    /// Where the versions of the run begin.
    pub epoch_base: Version,
    /// How many changes belong to its beginning: with fewer it counts for nothing.
    pub begins_with: u64,
}

impl Origin {
    fn encode(&self) -> Vec<u8> {
        let mut out = self.boot.to_vec();
        for number in [self.run, self.cut.to_u64(), self.epoch_base.to_u64(), self.begins_with] {
            push_varint(&mut out, number);
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<Origin, Malformed> {
        let mut decoder = Decoder::new(bytes);
        let mut boot = [0; 16];
        for byte in &mut boot {
            *byte = decoder.u8()?;
        }
        let (run, cut, epoch_base) = (decoder.varint()?, decoder.varint()?, decoder.varint()?);
        let begins_with = decoder.varint()?;
        if !decoder.is_empty() {
            return Err(Malformed("the origin of a journal is too long"));
        }
        let (cut, epoch_base) = (Version::from_u64(cut), Version::from_u64(epoch_base));
        Ok(Origin { run, boot, cut, epoch_base, begins_with })
    }
}

/// The open end of a journal.
#[derive(Debug)]
pub struct JournalWriter {
    file: Arc<dyn File>,
    id: FileIdentity,
    offset: u64,
}

impl JournalWriter {
    /// Makes a journal with a number that no other has.
    ///
    /// Errors: `NoSpace`, `Io`.
    pub fn create(disk: &dyn Disk, id: FileIdentity, origin: &Origin) -> Result<JournalWriter> {
        let name = FileName::Of(JOURNAL, id.number);
        let file = disk.create(name).map_err(|e| Error::io("create a journal", e).in_file(name))?;
        let mut bytes = header::encode(header::JOURNAL_MAGIC, id, 0).to_vec();
        record::push(&mut bytes, &origin.encode(), id, HEADER_BYTES as u64).expect("an origin is short");
        file.write_all_at(0, &bytes).map_err(|e| Error::io("begin a journal", e).in_file(name))?;
        Ok(JournalWriter { file, id, offset: bytes.len() as u64 })
    }

    /// Appends a change. After a failure the journal is good up to the change before, and ends there.
    ///
    /// Errors: `NoSpace`, `Io`; `LimitReached` if the change exceeds 4 GiB.
    pub fn append(&mut self, edit: &Edit) -> Result<()> {
        let name = self.name();
        let mut body = Vec::new();
        edit.encode(&mut body);
        let mut bytes = Vec::with_capacity(record::HEAD_BYTES + body.len());
        record::push(&mut bytes, &body, self.id, self.offset).ok_or_else(|| {
            Error::new(kvilt_base::ErrorKind::LimitReached, "a change of structure exceeds 4 GiB")
                .in_file(name)
        })?;
        self.file
            .write_all_at(self.offset, &bytes)
            .map_err(|e| Error::io("append to a journal", e).at(name, self.offset))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> FileName {
        FileName::Of(JOURNAL, self.id.number)
    }

    /// Bytes of it so far.
    #[expect(clippy::len_without_is_empty, reason = "a length of a file; it always has a header")]
    pub fn len(&self) -> u64 {
        self.offset
    }
}

/// What a journal tells: whose it is, and the changes, oldest first. None if its beginning is not whole, or
/// if it is not of this store.
///
/// Errors: `UnsupportedVersion`, `Io`.
pub fn read_journal(disk: &dyn Disk, id: FileIdentity) -> Result<Option<(Origin, Vec<Edit>)>> {
    let name = FileName::Of(JOURNAL, id.number);
    let failed = |e| Error::io("read a journal", e).in_file(name);
    let file = disk.open(name).map_err(failed)?;
    let len = usize::try_from(file.len().map_err(failed)?).unwrap_or(0);
    let mut bytes = vec![0; len];
    let read = file.read_full_at(0, &mut bytes).map_err(failed)?;
    bytes.truncate(read);
    match header::decode_of(&bytes, header::JOURNAL_MAGIC, name, id) {
        Err(e) if e.kind() == kvilt_base::ErrorKind::UnsupportedVersion => return Err(e),
        Err(_) => return Ok(None),
        Ok(_) => {}
    }
    let mut bodies = Bodies { bytes: &bytes, id, offset: HEADER_BYTES };
    let Some(origin) = bodies.next().and_then(|body| Origin::decode(body).ok()) else { return Ok(None) };
    let edits: Vec<Edit> = bodies.map_while(|body| Edit::decode(body).ok()).collect();
    Ok((edits.len() as u64 >= origin.begins_with).then_some((origin, edits)))
}

/// The bodies of records, up to the first that is not good.
struct Bodies<'b> {
    bytes: &'b [u8],
    id: FileIdentity,
    offset: usize,
}

impl<'b> Iterator for Bodies<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        match record::at(self.bytes, self.id, self.offset) {
            record::Found::Record(body) => {
                self.offset += record::HEAD_BYTES + body.len();
                Some(body)
            }
            record::Found::Bad => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDisk;

    const ID: FileIdentity = FileIdentity { store_id: 0xfeed, number: 7 };

    fn origin() -> Origin {
        Origin {
            run: 99,
            boot: *b"0123456789abcdef",
            cut: Version::from_u64(5),
            epoch_base: Version::from_u64(1 << 40),
            begins_with: 1,
        }
    }

    fn change(key: &[u8], files: &[u64]) -> Edit {
        Edit { chunks_upserted: vec![(key.to_vec(), files.to_vec())], ..Edit::default() }
    }

    #[test]
    fn changes_are_read_back_up_to_the_one_that_was_torn_wherever_that_is() {
        let disk = MemoryDisk::default();
        let mut journal = JournalWriter::create(&disk, ID, &origin()).unwrap();
        let mut ends = vec![journal.len()];
        let changes = [
            change(b"a", &[1, 2]),
            change(b"m", &[3]),
            Edit { chunks_removed: vec![b"m".to_vec()], ..Edit::default() },
        ];
        for change in &changes {
            journal.append(change).unwrap();
            ends.push(journal.len());
        }
        let name = journal.name();
        let good = disk.bytes(name);
        assert_eq!(read_journal(&disk, ID).unwrap().unwrap(), (origin(), changes.to_vec()));
        for len in 0..good.len() as u64 {
            disk.place(name, good[..len as usize].to_vec());
            let whole = ends.iter().filter(|end| **end <= len).count();
            let expected = whole.checked_sub(1).filter(|whole| *whole > 0);
            let expected = expected.map(|whole| (origin(), changes[..whole].to_vec()));
            assert_eq!(read_journal(&disk, ID).unwrap(), expected, "{len} bytes");
        }
        for bit in HEADER_BYTES * 8..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            disk.place(name, bad);
            let whole = ends.iter().filter(|end| **end <= bit as u64 / 8).count();
            let expected = whole.checked_sub(1).filter(|whole| *whole > 0);
            let expected = expected.map(|whole| (origin(), changes[..whole].to_vec()));
            assert_eq!(read_journal(&disk, ID).unwrap(), expected, "bit {bit}");
        }
        disk.place(name, good);
        let other = FileIdentity { store_id: 1, ..ID };
        assert_eq!(read_journal(&disk, other).unwrap(), None, "a journal of another store");
    }
}
