//! `Description`: what a person wants to know of a store: rows, bytes, keyspaces, largest rows.
//!
//! What files and chunks there are is known without a look at a row. How many rows there are is not: some
//! chunks are read, spread over the whole store, and stand for the others; or all of them, and then every
//! figure is exact.

use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
};

use kvilt_base::{
    Direction, ErrorKind, FilesOfKind, KeyRange, Layout, LayoutRange, Progress, ReadView, Result,
};

use crate::{
    Db,
    space::{CATALOGUE_ID, DEFAULT_ID, decode_id},
};

/// So many chunks are read if not all are wanted: each has a few megabytes.
const CHUNKS_READ_MAX: usize = 8;

/// So many of the largest rows are told, and so many bytes of the key of each.
const LARGEST_ROWS_MAX: usize = 5;
const KEY_BYTES_TOLD_MAX: usize = 128;

/// What a store holds, as [`Db::describe`] found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The version of its file formats.
    pub format_version: u32,
    /// Every file in its directory, by kind: `log`, `table`, `commit log`, `manifest`, `other`.
    pub files: BTreeMap<&'static str, FilesOfKind>,
    /// Chunks: ranges of keys that are kept together.
    pub chunks: u64,
    /// Of these, so many were read, row by row.
    pub chunks_read: u64,
    /// Of these, so many could not be read because they are damaged; their rows are in no figure.
    pub chunks_damaged: u64,
    /// Whether rows and their bytes were counted, all of them; if not, they are estimates.
    pub is_exact: bool,
    /// Whether the caller cancelled before the end.
    pub is_cancelled: bool,
    /// Each keyspace that has a name or rows, the default one first, then by name.
    pub keyspaces: Vec<KeyspaceFigures>,
    /// The largest rows among those that were read, the largest first.
    pub largest_rows: Vec<LargeRow>,
}

/// What a keyspace holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyspaceFigures {
    /// Its name; empty for the default keyspace.
    pub name: String,
    /// Rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub row_bytes: u64,
    /// Bytes of tables and logs that are thought to be its own: always an estimate.
    pub file_bytes: u64,
}

/// A row that is larger than most.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LargeRow {
    /// The name of its keyspace; empty for the default one.
    pub keyspace: String,
    /// Its key; of a long one the first 128 bytes.
    pub key: Vec<u8>,
    /// Bytes of key and value.
    pub bytes: u64,
}

impl Description {
    /// Rows in all keyspaces.
    pub fn rows(&self) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.rows).sum()
    }

    /// Bytes of keys and values in all keyspaces.
    pub fn row_bytes(&self) -> u64 {
        self.keyspaces.iter().map(|keyspace| keyspace.row_bytes).sum()
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        self.files.values().map(|kind| kind.bytes).sum()
    }

    /// What tables and logs, or slabs, have beside rows: dead rows, old versions, free slots, and what it
    /// takes to find rows.
    pub fn beside_rows_bytes(&self) -> u64 {
        let of = |kind| self.files.get(kind).map_or(0, |kind| kind.bytes);
        (of("table") + of("log") + of("slab")).saturating_sub(self.row_bytes())
    }
}

/// Rows and bytes, of a keyspace in what was read or is estimated.
#[derive(Clone, Copy, Default)]
struct Sum {
    rows: u64,
    row_bytes: u64,
    file_bytes: u64,
}

/// A description on its way.
struct Describing<'d> {
    db: &'d Db,
    view: ReadView,
    description: Description,
    /// By number of keyspace.
    sums: HashMap<u32, Sum>,
    /// The largest rows: number of keyspace, key, bytes.
    largest: Vec<(u32, Vec<u8>, u64)>,
    read: Sum,
}

/// [`Db::describe_with`].
pub(crate) fn describe(
    db: &Db,
    is_deep: bool,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<Description> {
    let layout = db.engine().layout()?;
    let view = db.engine().view()?;
    let mut describing = Describing {
        db,
        view,
        description: Description {
            format_version: layout.format_version,
            chunks: layout.ranges.len() as u64,
            ..Description::default()
        },
        sums: HashMap::new(),
        largest: Vec::new(),
        read: Sum::default(),
    };
    describing.ranges(&layout, is_deep, progress)?;
    describing.end(layout)
}

impl Describing<'_> {
    /// Reads some ranges, or all, and estimates the others by them.
    fn ranges(
        &mut self,
        layout: &Layout,
        is_deep: bool,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<()> {
        let count = layout.ranges.len();
        let step = if is_deep { 1 } else { count.div_ceil(CHUNKS_READ_MAX).max(1) };
        // In the middle of each stretch.
        let is_read = |number: usize| number % step == step / 2 || step == 1;
        let wanted = |number: &usize| is_read(*number);
        let total = (0..count).filter(wanted).map(|number| layout.ranges[number].file_bytes).sum();
        let mut done = 0;
        for number in (0..count).filter(wanted) {
            if !progress(Progress { done, total }) {
                self.description.is_cancelled = true;
                break;
            }
            self.read_range(&layout.ranges[number])?;
            done += layout.ranges[number].file_bytes;
        }
        self.description.is_exact = step == 1 && !self.description.is_cancelled;
        if !self.description.is_cancelled {
            (0..count)
                .filter(|number| !is_read(*number))
                .for_each(|number| self.guess(&layout.ranges[number]));
        }
        Ok(())
    }

    fn read_range(&mut self, range: &LayoutRange) -> Result<()> {
        let mut found = HashMap::new();
        match self.read_rows(&range.keys, &mut found) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Corrupted => {
                self.description.chunks_damaged += 1;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.description.chunks_read += 1;
        let row_bytes: u64 = found.values().map(|sum: &Sum| sum.row_bytes).sum();
        for (id, sum) in found {
            let entry = self.sums.entry(id).or_default();
            entry.rows += sum.rows;
            entry.row_bytes += sum.row_bytes;
            entry.file_bytes += scaled(range.file_bytes, sum.row_bytes, row_bytes);
            self.read.rows += sum.rows;
        }
        self.read.row_bytes += row_bytes;
        self.read.file_bytes += range.file_bytes;
        Ok(())
    }

    fn read_rows(&mut self, keys: &KeyRange, found: &mut HashMap<u32, Sum>) -> Result<()> {
        let (largest, engine) = (&mut self.largest, self.db.engine());
        let mut left = Some(keys.clone());
        while let Some(range) = left {
            let mut take = |key: &[u8], value: &[u8]| {
                let Some((id, user_key)) = decode_id(key) else { return ControlFlow::Continue(()) };
                let bytes = (user_key.len() + value.len()) as u64;
                let sum = found.entry(id).or_default();
                sum.rows += 1;
                sum.row_bytes += bytes;
                let is_large =
                    largest.len() < LARGEST_ROWS_MAX || largest.last().is_some_and(|l| l.2 < bytes);
                if is_large && id != CATALOGUE_ID {
                    let told = &user_key[..user_key.len().min(KEY_BYTES_TOLD_MAX)];
                    let place = largest.partition_point(|large| large.2 >= bytes);
                    largest.insert(place, (id, told.to_vec(), bytes));
                    largest.truncate(LARGEST_ROWS_MAX);
                }
                ControlFlow::Continue(())
            };
            left = engine.scan(&self.view, &range, Direction::Forward, &mut take)?.left();
        }
        Ok(())
    }

    /// Takes a range for one like those that were read, and for one of the keyspace in which it begins.
    fn guess(&mut self, range: &LayoutRange) {
        let id = if range.keys.start.is_empty() {
            DEFAULT_ID
        } else {
            decode_id(&range.keys.start).map_or(DEFAULT_ID, |(id, _)| id)
        };
        let sum = self.sums.entry(id).or_default();
        sum.rows += scaled(range.file_bytes, self.read.rows, self.read.file_bytes);
        sum.row_bytes += scaled(range.file_bytes, self.read.row_bytes, self.read.file_bytes);
        sum.file_bytes += range.file_bytes;
    }

    /// Names keyspaces, and puts them in order.
    fn end(mut self, layout: Layout) -> Result<Description> {
        let store = &self.db.default.store;
        let names = store.catalogue.ids(store)?;
        let mut named: Vec<KeyspaceFigures> = Vec::with_capacity(names.len() + 1);
        let all = std::iter::once((DEFAULT_ID, String::new())).chain(names.iter().cloned());
        for (id, name) in all {
            let Sum { rows, row_bytes, file_bytes } = self.sums.remove(&id).unwrap_or_default();
            named.push(KeyspaceFigures { name, rows, row_bytes, file_bytes });
        }
        named[1..].sort_by(|a, b| a.name.cmp(&b.name));
        let name_of = |id| names.iter().find(|(named, _)| *named == id).map_or("", |(_, name)| name);
        let large = |(id, key, bytes): (u32, Vec<u8>, u64)| LargeRow {
            keyspace: name_of(id).to_string(),
            key,
            bytes,
        };
        self.description.largest_rows = self.largest.into_iter().map(large).collect();
        self.description.keyspaces = named;
        self.description.files = layout.files;
        Ok(self.description)
    }
}

/// `part` of `whole`, of `all`.
fn scaled(all: u64, part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (u128::from(all) * u128::from(part) / u128::from(whole)) as u64 }
}
