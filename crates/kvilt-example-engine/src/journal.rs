//! `Journal`: records of changes, one behind the other, in one file.
//!
//! ```text
//! length of the changes u32 | checksum u64 | per change: length of key u32, of value u32, key, value
//! ```
//!
//! A value's length of all ones is a delete. The checksum is salted by the file's number and the record's
//! offset, so a record at another place is none. The first record of a journal holds all rows that there were
//! when it began; a journal counts once that one is whole, and then all before it are done with.

use std::sync::Arc;

use kvilt_base::{
    Disk, Error, File, FileName, Listed, OperationRef, Result, Value, WriteBatch, directory, disk::FileKind,
};

/// The one kind of file.
pub const JOURNAL: FileKind = FileKind::new("journal");

const HEAD_BYTES: usize = 12;
const DELETE: u32 = u32::MAX;

/// A key and its new value, or none.
pub(crate) type Change = (Vec<u8>, Option<Value>);

/// A journal that is written to.
pub(crate) struct Journal {
    file: Arc<dyn File>,
    number: u64,
    /// Bytes that are whole records. What a refused write left behind is written over.
    end: u64,
}

impl Journal {
    /// Begins a journal with these rows; it is durable, and so is its name.
    pub(crate) fn begin(disk: &dyn Disk, number: u64, rows: &WriteBatch) -> Result<Journal> {
        let journal = Journal::create(disk, number, rows)?;
        journal.settle(disk)?;
        Ok(journal)
    }

    /// Writes a journal that begins with these rows.
    pub(crate) fn create(disk: &dyn Disk, number: u64, rows: &WriteBatch) -> Result<Journal> {
        let name = FileName::Of(JOURNAL, number);
        let file = disk.create(name).map_err(|e| Error::io("create a journal", e).in_file(name))?;
        let mut journal = Journal { file, number, end: 0 };
        journal.append(rows.operations())?;
        Ok(journal)
    }

    /// Makes it durable, and its name.
    pub(crate) fn settle(&self, disk: &dyn Disk) -> Result<()> {
        self.sync()?;
        disk.sync_dir().map_err(|e| Error::io("sync the directory", e).in_file(disk.place()))
    }

    pub(crate) fn name(&self) -> FileName {
        FileName::Of(JOURNAL, self.number)
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn len(&self) -> u64 {
        self.end
    }

    /// Appends the changes as one record: whole or not at all.
    pub(crate) fn append<'c>(&mut self, changes: impl Iterator<Item = OperationRef<'c>>) -> Result<()> {
        let mut record = vec![0; HEAD_BYTES];
        for OperationRef { key, value } in changes {
            record.extend((key.len() as u32).to_le_bytes());
            record.extend(value.map_or(DELETE, |value| value.len() as u32).to_le_bytes());
            record.extend(key);
            record.extend(value.unwrap_or_default());
        }
        let sum = checksum(self.number, self.end, &record[HEAD_BYTES..]);
        let len = (record.len() - HEAD_BYTES) as u32;
        record[..4].copy_from_slice(&len.to_le_bytes());
        record[4..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
        let written = self.file.write_all_at(self.end, &record);
        written.map_err(|e| Error::io("append to the journal", e).at(self.name(), self.end))?;
        self.end += record.len() as u64;
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| Error::io("sync the journal", e).in_file(self.name()))
    }
}

/// What a journal holds.
pub(crate) struct Found {
    pub(crate) number: u64,
    /// Each record's changes, in order.
    pub(crate) records: Vec<Vec<Change>>,
    /// Bytes that are whole records.
    pub(crate) len: u64,
}

/// The numbers of the journals that there are, in order.
pub(crate) fn numbers(listed: &[Listed]) -> Vec<u64> {
    let number = |item: &Listed| match item {
        Listed::Ours(FileName::Of(JOURNAL, number)) => Some(*number),
        Listed::Ours(_) | Listed::Foreign(_) => None,
    };
    let mut numbers: Vec<u64> = listed.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// The journal that counts: the newest whose first record is whole.
///
/// Errors: `Io`.
pub(crate) fn newest(disk: &dyn Disk) -> Result<Option<Found>> {
    for number in numbers(&directory::list(disk)?).into_iter().rev() {
        let found = read(disk, number)?;
        if !found.records.is_empty() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Makes a journal durable that was found, and its name.
///
/// Errors: `Io`.
pub(crate) fn settle(disk: &dyn Disk, number: u64) -> Result<()> {
    let name = FileName::Of(JOURNAL, number);
    let file = disk.open(name).map_err(|e| Error::io("open a journal", e).in_file(name))?;
    Journal { file, number, end: 0 }.settle(disk)
}

/// A journal, up to the first record that is not whole.
///
/// Errors: `Io`.
pub(crate) fn read(disk: &dyn Disk, number: u64) -> Result<Found> {
    let name = FileName::Of(JOURNAL, number);
    let failed = |e| Error::io("read a journal", e).in_file(name);
    let file = disk.open(name).map_err(failed)?;
    let mut bytes = vec![0; file.len().map_err(failed)? as usize];
    let count = file.read_full_at(0, &mut bytes).map_err(failed)?;
    bytes.truncate(count);
    let mut found = Found { number, records: Vec::new(), len: 0 };
    while let Some((changes, len)) = decode(&bytes[found.len as usize..], number, found.len) {
        found.records.push(changes);
        found.len += len;
    }
    Ok(found)
}

/// The record that these bytes begin with, and its length; none if it is not whole.
fn decode(bytes: &[u8], number: u64, offset: u64) -> Option<(Vec<Change>, u64)> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let len = u32::from_le_bytes(*head.first_chunk()?) as usize;
    let mut payload = rest.get(..len)?;
    if head[4..] != checksum(number, offset, payload).to_le_bytes() {
        return None;
    }
    let mut changes = Vec::new();
    while !payload.is_empty() {
        let (lens, rest) = payload.split_first_chunk::<8>()?;
        let key_len = u32::from_le_bytes(*lens.first_chunk()?) as usize;
        let value_len = u32::from_le_bytes(*lens.last_chunk()?);
        let (key, rest) = rest.split_at_checked(key_len)?;
        let (value, rest) = match value_len {
            DELETE => (None, rest),
            len => rest.split_at_checked(len as usize).map(|(value, rest)| (Some(value), rest))?,
        };
        changes.push((key.to_vec(), value.map(Value::copied)));
        payload = rest;
    }
    Some((changes, (HEAD_BYTES + len) as u64))
}

/// FNV-1a over place and bytes.
fn checksum(number: u64, offset: u64, bytes: &[u8]) -> u64 {
    let place = [number.to_le_bytes(), offset.to_le_bytes(), (bytes.len() as u64).to_le_bytes()];
    place
        .as_flattened()
        .iter()
        .chain(bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use kvilt_io::MemoryDisk;

    use super::*;

    #[test]
    fn a_journal_is_read_up_to_the_first_record_with_a_wrong_bit() {
        let disk = MemoryDisk::new(1);
        let mut journal = Journal::begin(&*disk, 3, &WriteBatch::new()).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").put(b"", b"").delete(b"b");
        journal.append(batch.operations()).unwrap();
        let before_last = journal.len();
        journal.append(batch.operations()).unwrap();
        let found = newest(&*disk).unwrap().unwrap();
        assert_eq!((found.number, found.records.len(), found.len), (3, 3, journal.len()));
        let (delete, empty) = ((b"b".to_vec(), None), (vec![], Some(Value::default())));
        assert_eq!(found.records[1], [(b"a".to_vec(), Some(Value::copied(b"1"))), empty, delete]);
        for bit in 0..8 * (journal.len() - before_last) {
            assert!(disk.flip_bit(journal.name(), before_last + bit / 8, (bit % 8) as u32));
            assert_eq!(read(&*disk, 3).unwrap().len, before_last, "bit {bit}");
            assert!(disk.flip_bit(journal.name(), before_last + bit / 8, (bit % 8) as u32));
        }
    }
}
