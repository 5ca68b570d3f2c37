//! `Run`: the sorted tables of a level below level 0 as one source. A table is opened when the one before it
//! has ended, so a scan of ten rows reads one block of a level, and a merge has few sources to look at.

use std::{ops::ControlFlow, sync::Arc};

use kvilt_base::{Direction, Each, EntryRef, KeyRange, Result, Source, Streamed, Version, planted};
use kvilt_format::table::TableSource;

use crate::sources::Sorted;

/// See the module.
pub(crate) struct Run<'t> {
    /// Those that are left, in the order of keys.
    tables: &'t [Arc<Sorted>],
    /// Those with rows of this memory table on only are not read.
    memory_end: u64,
    range: &'t KeyRange,
    direction: Direction,
    now: Option<TableSource>,
}

impl<'t> Run<'t> {
    /// The entries of `range` in these tables, but for those that have rows of the memory table `memory_end`
    /// and later ones only. They share no key, and come in the order of keys.
    ///
    /// Errors, here and later: `Corrupted`, `Io`.
    pub(crate) fn new(
        tables: &'t [Arc<Sorted>],
        memory_end: u64,
        range: &'t KeyRange,
        direction: Direction,
    ) -> Result<Self> {
        let begin = tables.partition_point(|sorted| sorted.of.last_key < range.start);
        let tables = &tables[begin..];
        let is_before_end =
            |sorted: &Arc<Sorted>| range.end.as_ref().is_none_or(|end| sorted.of.first_key < *end);
        let tables = &tables[..tables.partition_point(is_before_end)];
        let mut run = Run { tables, memory_end, range, direction, now: None };
        run.open_next()?;
        Ok(run)
    }

    /// Opens the next table that has an entry of the range. At the end there is none.
    fn open_next(&mut self) -> Result<()> {
        self.now = None;
        loop {
            let next = match self.direction {
                Direction::Forward => self.tables.split_off_first(),
                Direction::Backward => self.tables.split_off_last(),
            };
            let Some(next) = next else { return Ok(()) };
            if next.memory_min >= self.memory_end {
                continue;
            }
            let source = next.table.source(self.range, self.direction)?;
            if source.key().is_some() {
                planted!(LevelEndsEarly => self.tables = &[]);
                self.now = Some(source);
                return Ok(());
            }
        }
    }

    fn go_on(&mut self) -> Result<()> {
        if self.now.as_ref().is_some_and(|now| now.key().is_none()) { self.open_next() } else { Ok(()) }
    }
}

impl Source for Run<'_> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.now.as_ref()?.entry()
    }

    fn key(&self) -> Option<&[u8]> {
        self.now.as_ref()?.key()
    }

    fn version(&self) -> Option<Version> {
        self.now.as_ref()?.version()
    }

    fn fetch(&mut self) -> Result<()> {
        self.now.as_mut().map_or(Ok(()), Source::fetch)
    }

    fn streamed(&self) -> Option<&dyn Streamed> {
        self.now.as_ref()?.streamed()
    }

    fn advance(&mut self) -> Result<()> {
        let now = self.now.as_mut().expect("advance is not called at the end");
        now.advance()?;
        self.go_on()
    }

    fn walk(&mut self, stop: Option<&[u8]>, each: &mut Each<'_>) -> Result<ControlFlow<()>> {
        while let Some(now) = &mut self.now {
            if now.walk(stop, each)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if now.key().is_some() {
                break;
            }
            self.open_next()?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use kvilt_base::{Budget, Disk as _, FileName, Kind};
    use kvilt_format::{
        FileIdentity,
        levels::TableOf,
        names::TABLE,
        table::{Table, TableOptions, TableWriter},
    };
    use kvilt_io::MemoryDisk;

    use super::*;

    /// Tables of four keys each: `00` to `03`, `04` to `07`, and so on; the third has rows in memory only.
    fn level() -> Vec<Arc<Sorted>> {
        let (disk, budget) = (MemoryDisk::new(1), Budget::new(1 << 20));
        let table = |number: u64| {
            let file = disk.create(FileName::Of(TABLE, number)).unwrap();
            let id = FileIdentity { store_id: 1, number };
            let mut writer = TableWriter::new(Arc::clone(&file), id, TableOptions::default());
            for key in 4 * number..4 * number + 4 {
                let key = format!("{key:02}").into_bytes();
                let entry = EntryRef { key: &key, version: Version::new(1, 1), kind: Kind::Put, value: b"v" };
                writer.add(entry).unwrap();
            }
            let summary = writer.finish().unwrap();
            let table = Arc::new(Table::open(file, id, summary.len).unwrap());
            let (first_key, last_key) = (summary.first_key, summary.last_key);
            let version_min = Version::new(1, 1);
            let of = TableOf { number, len: summary.len, version_min, first_key, last_key };
            Arc::new(Sorted::new(of, table, if number == 2 { 9 } else { 1 }, &budget))
        };
        (0..4).map(table).collect()
    }

    fn keys(start: &str, end: Option<&str>, direction: Direction) -> Vec<String> {
        let range = KeyRange { start: start.into(), end: end.map(Into::into) };
        let (level, mut keys) = (level(), Vec::new());
        let mut run = Run::new(&level, 9, &range, direction).unwrap();
        while let Some(key) = run.key() {
            keys.push(String::from_utf8(key.to_vec()).unwrap());
            run.advance().unwrap();
        }
        if direction == Direction::Forward {
            let (mut walked, mut run) = (Vec::new(), Run::new(&level, 9, &range, direction).unwrap());
            let each = &mut |entry: EntryRef<'_>| {
                walked.push(String::from_utf8(entry.key.to_vec()).unwrap());
                ControlFlow::Continue(())
            };
            assert!(run.walk(Some(b"99"), each).unwrap().is_continue() && run.key().is_none());
            assert_eq!(walked, keys);
        }
        keys
    }

    #[test]
    fn a_run_has_the_keys_of_a_range_in_order_but_for_those_in_memory() {
        let all = ["00", "01", "02", "03", "04", "05", "06", "07", "12", "13", "14", "15"];
        assert_eq!(keys("", None, Direction::Forward), all);
        assert!(keys("", None, Direction::Backward).iter().rev().eq(all.iter()));
        assert_eq!(keys("03", Some("05"), Direction::Forward), ["03", "04"]);
        assert_eq!(keys("08", Some("13"), Direction::Backward), ["12"]);
        assert_eq!(keys("08", Some("12"), Direction::Forward), [] as [&str; 0]);
        assert_eq!(keys("15", None, Direction::Backward), ["15"]);
        assert_eq!(keys("16", None, Direction::Forward), [] as [&str; 0]);
    }

    /// A scan without an end read a block of every table of the store before its first row.
    #[test]
    fn a_table_is_opened_when_the_one_before_it_has_ended() {
        let (level, all) = (level(), KeyRange::all());
        let mut run = Run::new(&level, u64::MAX, &all, Direction::Forward).unwrap();
        let mut unopened = Vec::new();
        while run.key().is_some() {
            unopened.push(run.tables.len());
            run.advance().unwrap();
        }
        assert_eq!(unopened, [3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0]);
        // A walk stops in the table that it is in.
        let mut run = Run::new(&level, u64::MAX, &all, Direction::Forward).unwrap();
        let flow = run.walk(Some(b"02"), &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!((flow, run.key(), run.tables.len()), (ControlFlow::Continue(()), Some(&b"02"[..]), 3));
    }
}
