//! `Output`: the sorted tables that a flush or a merge writes, each up to a length, synced one by one.

use std::sync::Arc;

use kvilt_base::{EntryRef, Error, File, FileName, Result, Version, planted};
use kvilt_format::{
    FileIdentity,
    levels::TableOf,
    names::TABLE,
    table::{Table, TableOptions, TableWriter},
};

use crate::{sources::Sorted, store::Store};

/// See the module. What it has written is removed when it is dropped before [`Output::finish`].
pub(crate) struct Output<'s> {
    store: &'s Store,
    bytes_max: u64,
    /// The oldest memory table with rows of what is written.
    memory_min: u64,
    writing: Option<Writing>,
    done: Vec<Arc<Sorted>>,
    is_finished: bool,
}

struct Writing {
    writer: TableWriter,
    file: Arc<dyn File>,
    id: FileIdentity,
    version_min: Version,
    last_key: Vec<u8>,
}

impl<'s> Output<'s> {
    /// Without tables. Each has about `bytes_max` bytes; all versions of a key are in one.
    pub(crate) fn new(store: &'s Store, bytes_max: u64, memory_min: u64) -> Self {
        Output { store, bytes_max, memory_min, writing: None, done: Vec::new(), is_finished: false }
    }

    /// Adds the entry that follows in order.
    ///
    /// Errors: `NoSpace`, `Io`.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let is_full = self.writing.as_ref().is_some_and(|writing| {
            writing.writer.bytes_so_far() >= self.bytes_max && writing.last_key != entry.key
        });
        if is_full {
            self.end_table()?;
        }
        if self.writing.is_none() {
            self.writing = Some(self.begin_table()?);
        }
        let writing = self.writing.as_mut().expect("it was begun above");
        writing.writer.add(entry)?;
        writing.version_min = writing.version_min.min(entry.version);
        if writing.last_key != entry.key {
            writing.last_key.clear();
            writing.last_key.extend_from_slice(entry.key);
        }
        Ok(())
    }

    /// All tables, durable with their names: a catalogue is made only behind that, for a power cut may leave
    /// it whole, and its name, before its own sync is done.
    ///
    /// Errors: `NoSpace`, `Io`.
    pub(crate) fn finish(mut self) -> Result<Vec<Arc<Sorted>>> {
        self.end_table()?;
        if !self.done.is_empty() {
            self.store.disk.sync_dir().map_err(|e| {
                let error = Error::io("sync the names of sorted tables", e).in_file(self.store.disk.place());
                self.store.poison(&error);
                error
            })?;
        }
        self.is_finished = true;
        Ok(std::mem::take(&mut self.done))
    }

    fn begin_table(&self) -> Result<Writing> {
        let number = self.store.catalogue.lock().next_number();
        let name = FileName::Of(TABLE, number);
        let file = self.store.disk.create(name);
        let file = file.map_err(|e| Error::io("make a sorted table", e).in_file(name))?;
        let id = FileIdentity { store_id: self.store.store_id, number };
        let writer = TableWriter::new(Arc::clone(&file), id, TableOptions::default());
        Ok(Writing { writer, file, id, version_min: Version::NEWEST, last_key: Vec::new() })
    }

    fn end_table(&mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let name = writing.name();
        let written = self.write_out(writing);
        if written.is_err() {
            // What cannot be removed is removed by the next open.
            let _ = self.store.disk.remove(name);
        }
        self.done.push(written?);
        Ok(())
    }

    fn write_out(&self, Writing { writer, file, id, version_min, .. }: Writing) -> Result<Arc<Sorted>> {
        let summary = writer.finish()?;
        if let Err(e) = planted!(TableNotSynced, file.sync() => Ok(())) {
            let error = Error::io("sync a sorted table", e).in_file(file.name());
            self.store.poison(&error);
            return Err(error);
        }
        let table = Arc::new(Table::open(file, id, summary.len)?);
        let of = TableOf {
            number: id.number,
            len: summary.len,
            version_min,
            first_key: summary.first_key,
            last_key: summary.last_key,
        };
        // Relaxed: a statistic.
        self.store.counters.table_bytes_written.fetch_add(summary.len, std::sync::atomic::Ordering::Relaxed);
        Ok(Arc::new(Sorted::new(of, table, self.memory_min, &self.store.budget)))
    }
}

impl Writing {
    fn name(&self) -> FileName {
        FileName::Of(TABLE, self.id.number)
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let writing = self.writing.take().map(|writing| writing.name());
        let done = self.done.iter().map(|sorted| FileName::Of(TABLE, sorted.of.number));
        for name in done.chain(writing) {
            // As above.
            let _ = self.store.disk.remove(name);
        }
    }
}
