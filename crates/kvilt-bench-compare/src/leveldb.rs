//! LevelDB, version 1.22, by way of its C interface: the binding that there is seeks the first key of the
//! store before each scan.
//!
//! | set | why |
//! | --- | --- |
//! | write buffers of at most 2 × 64 MiB and a quarter of the budget | it fills one while it writes the other; its header advises larger ones for loads, and so has RocksDB |
//! | a block cache of the rest of the budget | the budget is for both |
//! | Bloom filters of 10 bits | its guide's advice |
//! | 4,000 open files | its header says one for two megabytes of the working set |
//! | no compression | as everybody here |
//! | no files mapped into memory | what is mapped passes by the block cache, and each fault reads ahead what the system is set to: with 8 MiB of that, and 4 GiB of rows under 1 GiB, it made 116 gets a second |
//!
//! Its checksums are computed without the processor's help: the library for that is no part of its sources.
#![expect(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a C interface: one reason is for all the calls of a block"
)]

use std::{
    borrow::Cow,
    ffi::{CStr, CString, c_char, c_int},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    ptr::{self, NonNull},
    sync::Once,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use kvilt_bench::store::{Contestant, Store};
use leveldb_sys::{
    Compression, leveldb_cache_create_lru, leveldb_cache_destroy, leveldb_cache_t, leveldb_close,
    leveldb_create_iterator, leveldb_filterpolicy_create_bloom, leveldb_filterpolicy_destroy,
    leveldb_filterpolicy_t, leveldb_free, leveldb_get, leveldb_iter_destroy, leveldb_iter_get_error,
    leveldb_iter_key, leveldb_iter_next, leveldb_iter_seek, leveldb_iter_valid, leveldb_iter_value,
    leveldb_iterator_t, leveldb_open, leveldb_options_create, leveldb_options_destroy,
    leveldb_options_set_cache, leveldb_options_set_compression, leveldb_options_set_create_if_missing,
    leveldb_options_set_filter_policy, leveldb_options_set_max_open_files,
    leveldb_options_set_write_buffer_size, leveldb_property_value, leveldb_readoptions_create,
    leveldb_readoptions_destroy, leveldb_readoptions_t, leveldb_t, leveldb_write, leveldb_writebatch_create,
    leveldb_writebatch_destroy, leveldb_writebatch_put, leveldb_writebatch_t, leveldb_writeoptions_create,
    leveldb_writeoptions_destroy, leveldb_writeoptions_set_sync, leveldb_writeoptions_t,
};

use crate::rocks::{COMPACTION_WAIT_MAX, write_buffers_bytes};

unsafe extern "C" {
    /// `EnvPosixTestHelper::SetReadOnlyMMapLimit`: how many files are mapped. Its C interface has nothing for
    /// that.
    #[link_name = "_ZN7leveldb18EnvPosixTestHelper20SetReadOnlyMMapLimitEi"]
    fn leveldb_set_mapped_files_max(files: c_int);
}

/// Before anything else is made.
static NO_FILES_ARE_MAPPED: Once = Once::new();

const OPEN_FILES_MAX: c_int = 4000;
const BLOOM_BITS: c_int = 10;
/// It cannot be waited for, only be asked.
const COMPACTION_ASKED_EACH: Duration = Duration::from_millis(50);
/// So many files of level 0 are compacted.
const LEVEL_0_FILES: f64 = 4.0;

/// LevelDB's entry.
pub(crate) struct LevelDb;

impl Contestant for LevelDb {
    fn name(&self) -> &'static str {
        "leveldb"
    }

    fn promise(&self) -> &'static str {
        "after a kill everything; after a power cut a prefix of any length (its log is not synced)"
    }

    fn open(&self, directory: &Path, budget_bytes: u64) -> Result<Box<dyn Store>> {
        Ok(Box::new(Opened::at(directory, budget_bytes as usize)?))
    }
}

/// An open store.
struct Opened {
    db: NonNull<leveldb_t>,
    /// Goes when the store has been closed.
    needs: Needs,
}

/// What a store is given when it is opened or used.
struct Needs {
    cache: NonNull<leveldb_cache_t>,
    filter: NonNull<leveldb_filterpolicy_t>,
    read: NonNull<leveldb_readoptions_t>,
    write: NonNull<leveldb_writeoptions_t>,
    write_synced: NonNull<leveldb_writeoptions_t>,
}

// SAFETY: its header says that a store may be used by several threads without a lock; the options are only
// read.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Opened {
    fn at(directory: &Path, budget: usize) -> Result<Self> {
        let name = CString::new(directory.as_os_str().as_bytes()).context("a path without zeros")?;
        let buffers = write_buffers_bytes(budget);
        // SAFETY: sets a number, before anybody reads it.
        NO_FILES_ARE_MAPPED.call_once(|| unsafe { leveldb_set_mapped_files_max(0) });
        let needs = Needs::new(budget - buffers);
        let mut error = Failure::none();
        // SAFETY: the options are made and destroyed here; what they refer to lives until the store has been
        // closed, and opening copies the rest.
        let db = unsafe {
            let options = leveldb_options_create();
            leveldb_options_set_create_if_missing(options, 1);
            leveldb_options_set_write_buffer_size(options, buffers / 2);
            leveldb_options_set_max_open_files(options, OPEN_FILES_MAX);
            leveldb_options_set_cache(options, needs.cache.as_ptr());
            leveldb_options_set_filter_policy(options, needs.filter.as_ptr());
            leveldb_options_set_compression(options, Compression::No);
            let db = leveldb_open(options, name.as_ptr(), error.place());
            leveldb_options_destroy(options);
            db
        };
        error.check("open LevelDB")?;
        Ok(Opened { db: made(db), needs })
    }

    fn write<'r>(
        &self,
        rows: impl IntoIterator<Item = (&'r [u8], &'r [u8])>,
        options: NonNull<leveldb_writeoptions_t>,
    ) -> Result<()> {
        let batch = Batch::of(rows);
        let mut error = Failure::none();
        // SAFETY: store, options and batch are alive.
        unsafe { leveldb_write(self.db.as_ptr(), options.as_ptr(), batch.0.as_ptr(), error.place()) };
        error.check("write to LevelDB")
    }

    /// Syncs the log, with a batch of nothing behind all that it has.
    fn sync(&self) -> Result<()> {
        self.write([], self.needs.write_synced)
    }

    /// Whether no level is above its limit, as far as it tells: megabytes of a level are rounded.
    fn is_compacted(&self) -> Result<bool> {
        // SAFETY: the store is alive, and the name ends with a zero.
        let stats = unsafe { leveldb_property_value(self.db.as_ptr(), c"leveldb.stats".as_ptr()) };
        let stats = Given(NonNull::new(stats).context("LevelDB has statistics")?);
        // SAFETY: what it tells ends with a zero.
        Ok(are_levels_compacted(&unsafe { stats.text() }))
    }
}

/// Of its statistics, each line that begins with a number is a level: then follow its files and megabytes.
fn are_levels_compacted(stats: &str) -> bool {
    stats.lines().all(|line| {
        let mut words = line.split_whitespace().map_while(|word| word.parse::<f64>().ok());
        match (words.next(), words.next(), words.next()) {
            (Some(0.0), Some(files), _) => files < LEVEL_0_FILES,
            (Some(level), _, Some(megabytes)) => megabytes <= 10f64.powf(level),
            _ => true,
        }
    })
}

impl Store for Opened {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        // Its own way to put one row makes a batch of it, too.
        self.write([(key, value)], self.needs.write)
    }

    fn load(&self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.write(rows.iter().map(|(key, value)| (&key[..], &value[..])), self.needs.write)
    }

    fn get(&self, key: &[u8], shown: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (mut error, mut len) = (Failure::none(), 0);
        // SAFETY: store and options are alive; the key is as long as it says, and is not kept.
        let value = unsafe {
            leveldb_get(
                self.db.as_ptr(),
                self.needs.read.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                &raw mut len,
                error.place(),
            )
        };
        error.check("get from LevelDB")?;
        let Some(value) = NonNull::new(value) else { return Ok(false) };
        let value = Given(value);
        // SAFETY: the copy it made has as many bytes, until `value` is dropped.
        shown(unsafe { std::slice::from_raw_parts(value.0.as_ptr().cast(), len) });
        Ok(true)
    }

    fn scan(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        rows_max: u64,
        shown: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let mut rows = Rows::from(self, from);
        for _ in 0..rows_max {
            let Some((key, value)) = rows.row() else { break };
            if end.is_some_and(|end| key >= end) {
                break;
            }
            shown(key, value);
            rows.advance();
        }
        rows.check()
    }

    /// Also waits for compactions, as for RocksDB.
    fn settle(&self) -> Result<()> {
        self.sync()?;
        let begun = Instant::now();
        // As compacted as it gets in that time.
        while !self.is_compacted()? && begun.elapsed() < COMPACTION_WAIT_MAX {
            thread::sleep(COMPACTION_ASKED_EACH);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened once, and nobody has it any more.
        unsafe { leveldb_close(self.db.as_ptr()) };
    }
}

impl Needs {
    fn new(cache_bytes: usize) -> Self {
        // SAFETY: makes things of their own, of which one is then written to.
        unsafe {
            let write_synced = leveldb_writeoptions_create();
            leveldb_writeoptions_set_sync(write_synced, 1);
            Needs {
                cache: made(leveldb_cache_create_lru(cache_bytes)),
                filter: made(leveldb_filterpolicy_create_bloom(BLOOM_BITS)),
                read: made(leveldb_readoptions_create()),
                write: made(leveldb_writeoptions_create()),
                write_synced: made(write_synced),
            }
        }
    }
}

impl Drop for Needs {
    fn drop(&mut self) {
        // SAFETY: each was made once, and nobody has it any more: the store was closed, or never opened.
        unsafe {
            leveldb_cache_destroy(self.cache.as_ptr());
            leveldb_filterpolicy_destroy(self.filter.as_ptr());
            leveldb_readoptions_destroy(self.read.as_ptr());
            leveldb_writeoptions_destroy(self.write.as_ptr());
            leveldb_writeoptions_destroy(self.write_synced.as_ptr());
        }
    }
}

/// Rows that are written together.
struct Batch(NonNull<leveldb_writebatch_t>);

impl Batch {
    fn of<'r>(rows: impl IntoIterator<Item = (&'r [u8], &'r [u8])>) -> Self {
        // SAFETY: makes a thing of its own.
        let batch = Batch(made(unsafe { leveldb_writebatch_create() }));
        for (key, value) in rows {
            let (key_from, value_from) = (key.as_ptr().cast(), value.as_ptr().cast());
            // SAFETY: the batch is alive; key and value are as long as they say, and are copied.
            unsafe {
                leveldb_writebatch_put(batch.0.as_ptr(), key_from, key.len(), value_from, value.len());
            }
        }
        batch
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: made once, and nobody has it any more.
        unsafe { leveldb_writebatch_destroy(self.0.as_ptr()) };
    }
}

/// An iterator, at a row or behind the last.
struct Rows<'s> {
    rows: NonNull<leveldb_iterator_t>,
    /// The iterator must go before it does.
    _store: &'s Opened,
}

impl<'s> Rows<'s> {
    fn from(store: &'s Opened, from: &[u8]) -> Self {
        // SAFETY: store and options are alive, the store as long as this.
        let rows = made(unsafe { leveldb_create_iterator(store.db.as_ptr(), store.needs.read.as_ptr()) });
        // SAFETY: just made; the key is as long as it says, and is not kept.
        unsafe { leveldb_iter_seek(rows.as_ptr(), from.as_ptr().cast(), from.len()) };
        Rows { rows, _store: store }
    }

    /// Key and value where it stands, until it moves.
    fn row(&self) -> Option<(&[u8], &[u8])> {
        // SAFETY: the iterator is alive.
        if unsafe { leveldb_iter_valid(self.rows.as_ptr()) } == 0 {
            return None;
        }
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: it stands at a row, so it has both, as long as they say, until it moves, which takes `&mut
        // self`.
        unsafe {
            let key = leveldb_iter_key(self.rows.as_ptr(), &raw mut key_len);
            let value = leveldb_iter_value(self.rows.as_ptr(), &raw mut value_len);
            Some((
                std::slice::from_raw_parts(key.cast(), key_len),
                std::slice::from_raw_parts(value.cast(), value_len),
            ))
        }
    }

    /// Goes to the next row. It must stand at one.
    fn advance(&mut self) {
        // SAFETY: the iterator is alive; who calls this has seen a row.
        unsafe { leveldb_iter_next(self.rows.as_ptr()) };
    }

    fn check(&self) -> Result<()> {
        let mut error = Failure::none();
        // SAFETY: the iterator is alive.
        unsafe { leveldb_iter_get_error(self.rows.as_ptr(), error.place().cast_const().cast()) };
        error.check("scan LevelDB")
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        // SAFETY: made once, and nobody has it any more.
        unsafe { leveldb_iter_destroy(self.rows.as_ptr()) };
    }
}

/// Memory that LevelDB gave away.
struct Given(NonNull<c_char>);

impl Given {
    /// What it says.
    ///
    /// # Safety
    /// It ends with a zero, as all but values do.
    unsafe fn text(&self) -> Cow<'_, str> {
        // SAFETY: says the caller.
        unsafe { CStr::from_ptr(self.0.as_ptr()) }.to_string_lossy()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        // SAFETY: it was given away, and once.
        unsafe { leveldb_free(self.0.as_ptr().cast()) };
    }
}

/// Where LevelDB says what went wrong, if anything does.
struct Failure(*mut c_char);

impl Failure {
    fn none() -> Self {
        Failure(ptr::null_mut())
    }

    fn place(&mut self) -> *mut *mut c_char {
        &raw mut self.0
    }

    fn check(self, what: &str) -> Result<()> {
        match NonNull::new(self.0) {
            None => Ok(()),
            Some(text) => {
                let text = Given(text);
                // SAFETY: what it tells ends with a zero.
                bail!("{what}: {}", unsafe { text.text() })
            }
        }
    }
}

/// What its functions make is there: they abort when memory is not.
fn made<T>(thing: *mut T) -> NonNull<T> {
    NonNull::new(thing).expect("LevelDB makes what it is asked for")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;

    #[test]
    fn what_is_put_is_there_in_order_also_when_opened_again() {
        checks::rows(&LevelDb);
    }

    #[test]
    fn it_is_compacted_when_no_level_is_above_its_limit() {
        let stats = |levels: &str| {
            format!(
                "                               Compactions\nLevel  Files Size(MB) Time(sec)\n---\n{levels}"
            )
        };
        assert!(are_levels_compacted(&stats("")));
        assert!(are_levels_compacted(&stats(
            "  0        3       99         1\n  1        5       10         0\n"
        )));
        assert!(!are_levels_compacted(&stats("  0        4        1         1\n")));
        assert!(!are_levels_compacted(&stats("  2       60      101         1\n")));
    }
}
