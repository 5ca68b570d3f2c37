//! Conversion: a copy of a store that another engine keeps.

use std::ops::ControlFlow;

use kvilt_base::{
    Direction, Error, ErrorKind, KeyRange, Progress, ReadView, Result, WriteBatch,
    limits::BATCH_OPERATIONS_USUAL,
};

use crate::{
    Builder, Db, Engine, catalogue,
    space::{CATALOGUE_ID, decode_id},
};

/// Rows are written in batches of about this many bytes of keys and values.
const BATCH_BYTES: usize = 256 << 10;

/// What [`Db::convert_to`] copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConvertReport {
    /// Rows in all keyspaces.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Keyspaces with a name.
    pub keyspaces: u64,
    /// CRC-32 over keys and values in order, the names of the keyspaces included: the same in both stores.
    pub checksum: u32,
    /// Whether it was cancelled. Then there is no new store.
    pub is_cancelled: bool,
}

/// What a walk over a whole store has seen.
#[derive(Clone, Default)]
struct Seen {
    report: ConvertReport,
    crc: crc32fast::Hasher,
    /// Bytes of all rows, those of the catalogue of keyspaces included.
    bytes: u64,
}

impl Seen {
    fn row(&mut self, key: &[u8], value: &[u8]) {
        self.bytes += (key.len() + value.len()) as u64;
        let users_key = match decode_id(key) {
            Some((CATALOGUE_ID, key)) if catalogue::is_name(key) => {
                self.report.keyspaces += 1;
                None
            }
            // Marks of dropped keyspaces, which go when a store is next used.
            Some((CATALOGUE_ID, _)) => return,
            Some((_, key)) => Some(key),
            None => Some(key),
        };
        if let Some(key) = users_key {
            self.report.rows += 1;
            self.report.bytes += (key.len() + value.len()) as u64;
        }
        // With their lengths, so that no byte can move from one to the other unnoticed.
        self.crc.update(&(key.len() as u32).to_le_bytes());
        self.crc.update(&(value.len() as u32).to_le_bytes());
        self.crc.update(key);
        self.crc.update(value);
    }

    fn end(self) -> ConvertReport {
        ConvertReport { checksum: self.crc.finalize(), ..self.report }
    }
}

/// [`Db::convert_to_with`].
pub(crate) fn convert(
    source: &Db,
    into: Builder,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<ConvertReport> {
    let engine = into.engine_or(&Engine::default());
    let into = into.for_a_job();
    let env = into.checked_env(&engine)?;
    let mut unfinished = into.begin_unfinished()?;
    // Each row is read twice: to be copied, and in the copy. How much that is, only the first reading tells.
    let guessed: u64 = source.engine().layout()?.ranges.iter().map(|range| range.file_bytes).sum();
    let mut told = |done, all: u64| progress(Progress { done, total: (2 * all).max(done) });
    unfinished.give_up_lock();
    let cancelled = || Ok(ConvertReport { is_cancelled: true, ..ConvertReport::default() });

    // By a handle of its own, for the store closes what it was given.
    let db = into.clone().open_in(&env, &engine, Some(into.made_disk()?), false, true)?;
    let view = source.engine().view()?;
    let copied = walk(source, &view, |batch| db.engine().write(batch), &mut |done| told(done, guessed));
    drop(view);
    let closed = db.close();
    drop(db);
    let Some(copied) = copied? else { return cancelled() };
    closed?;

    // What the files say counts, not what the store that wrote them has in memory.
    let handle = into.made_disk()?;
    let db = into.error_if_exists(false).open_in(&env, &engine, Some(handle), true, true)?;
    let bytes = copied.bytes;
    let view = db.engine().view()?;
    let read = walk(&db, &view, |_| Ok(()), &mut |done| told(bytes + done, bytes));
    drop(view);
    let closed = db.close();
    drop(db);
    let Some(read) = read? else { return cancelled() };
    closed?;
    let (copied, read) = (copied.end(), read.end());
    if copied != read {
        return Err(Error::new(
            ErrorKind::Corrupted,
            format!(
                "the copy differs from the store: {} rows with checksum {:08x} were copied, and {} rows with \
                 checksum {:08x} are in the copy, which was removed",
                copied.rows, copied.checksum, read.rows, read.checksum
            ),
        ));
    }
    unfinished.finish()?;
    Ok(copied)
}

/// Gives all rows at `view`, in order and in batches, to `write`, and says what it saw; none if it was
/// cancelled.
fn walk(
    db: &Db,
    view: &ReadView,
    mut write: impl FnMut(WriteBatch) -> Result<()>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<Seen>> {
    let mut seen = Seen::default();
    let mut left = Some(KeyRange::all());
    while let Some(range) = left {
        if !progress(seen.bytes) {
            return Ok(None);
        }
        let mut batch = WriteBatch::new();
        let mut take = |key: &[u8], value: &[u8]| {
            seen.row(key, value);
            batch.put(key, value);
            let is_full = batch.bytes() >= BATCH_BYTES || batch.len() >= BATCH_OPERATIONS_USUAL;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        left = db.engine().scan(view, &range, Direction::Forward, &mut take)?.left();
        write(batch)?;
    }
    Ok(Some(seen))
}
