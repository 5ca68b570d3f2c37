//! libmdbx, version 0.14.4, twice: with pages that it writes to the file, and with a writable map. By way of
//! its C interface: the safe binding hands each write transaction to a thread of its own, and each commit
//! again.
//!
//! | set | why |
//! | --- | --- |
//! | `MDBX_SAFE_NOSYNC`, and a sync each half second | its asynchronous mode that survives a power cut; the rhythm is Kvilt's |
//! | `MDBX_WRITEMAP`, for `mdbx-w` | its documents call it faster; a stray pointer could damage the store |
//! | `MDBX_NORDAHEAD` | its documents recommend it for random reads of data larger than memory |
//! | a map of up to 64 GiB, which grows by its default steps | it cannot grow beyond that |
//! | 256 readers | its default is about half of that, and a scenario has 64 threads |
//! | a transaction each put, a batch in one for loading | as a user would |
//!
//! Its cache is the page cache: the budget cannot bound it, only a ceiling on the process does.
#![expect(unsafe_code, reason = "a C interface")]

use std::{
    ffi::{CStr, CString, c_int},
    marker::PhantomData,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    ptr::{self, NonNull},
    slice,
    sync::{Arc, Once},
};

use anyhow::{Context as _, Result, bail};
use kvilt_bench::store::{Contestant, Store};
use mdbx_sys::{
    MDBX_DB_DEFAULTS, MDBX_DBG_NONE, MDBX_FIRST, MDBX_LOG_ERROR, MDBX_NEXT, MDBX_NORDAHEAD, MDBX_NOTFOUND,
    MDBX_RESULT_TRUE, MDBX_SAFE_NOSYNC, MDBX_SET_RANGE, MDBX_SUCCESS, MDBX_TXN_RDONLY, MDBX_TXN_READWRITE,
    MDBX_UPSERT, MDBX_WRITEMAP, MDBX_cursor, MDBX_cursor_op, MDBX_dbi, MDBX_env, MDBX_opt_max_readers,
    MDBX_txn, MDBX_txn_flags_t, MDBX_val, mdbx_cursor_close, mdbx_cursor_get, mdbx_cursor_open,
    mdbx_dbi_open, mdbx_env_close_ex, mdbx_env_create, mdbx_env_open, mdbx_env_set_geometry,
    mdbx_env_set_option, mdbx_env_sync_ex, mdbx_get, mdbx_put, mdbx_setup_debug, mdbx_strerror,
    mdbx_txn_abort_ex, mdbx_txn_begin_ex, mdbx_txn_commit_ex,
};

use crate::ticker::Ticker;

/// Bytes of address space.
const MAP_BYTES_MAX: isize = 64 << 30;
const READERS_MAX: u64 = 256;
/// Permissions of its files.
const MODE: u32 = 0o644;
/// Else it tells standard error what it does when it is opened.
static ONLY_ERRORS_ARE_TOLD: Once = Once::new();
/// Leaves a part of the geometry as it is by default.
const AS_IT_COMES: isize = -1;

/// Its entries.
pub(crate) fn contestants() -> Vec<Box<dyn Contestant>> {
    [Mdbx::Written, Mdbx::Mapped].map(|one| Box::new(one) as _).into()
}

/// How changed pages get to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mdbx {
    /// A commit writes them.
    Written,
    /// They are changed in the map.
    Mapped,
}

impl Contestant for Mdbx {
    fn name(&self) -> &'static str {
        match self {
            Mdbx::Written => "mdbx",
            Mdbx::Mapped => "mdbx-w",
        }
    }

    fn promise(&self) -> &'static str {
        "after a kill everything; after a power cut a prefix, half a second old at most"
    }

    fn open(&self, directory: &Path, _budget_bytes: u64) -> Result<Box<dyn Store>> {
        let flags = match self {
            Mdbx::Written => 0,
            Mdbx::Mapped => MDBX_WRITEMAP,
        };
        let env = Arc::new(Env::at(directory, flags | MDBX_SAFE_NOSYNC | MDBX_NORDAHEAD)?);
        let rows = env.rows()?;
        let synced = Arc::clone(&env);
        let ticker = Ticker::start(move || synced.sync());
        Ok(Box::new(Opened { env, rows, ticker }))
    }
}

struct Opened {
    env: Arc<Env>,
    /// The table without a name.
    rows: MDBX_dbi,
    ticker: Ticker,
}

impl Store for Opened {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let transaction = Transaction::begin(&self.env, MDBX_TXN_READWRITE)?;
        transaction.put(self.rows, key, value)?;
        transaction.commit()
    }

    fn load(&self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let transaction = Transaction::begin(&self.env, MDBX_TXN_READWRITE)?;
        for (key, value) in rows {
            transaction.put(self.rows, key, value)?;
        }
        transaction.commit()
    }

    fn get(&self, key: &[u8], shown: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = Transaction::begin(&self.env, MDBX_TXN_RDONLY)?;
        let found = transaction.get(self.rows, key)?;
        Ok(found.inspect(|value| shown(value)).is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        rows_max: u64,
        shown: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let transaction = Transaction::begin(&self.env, MDBX_TXN_RDONLY)?;
        let mut cursor = Cursor::of(&transaction, self.rows)?;
        let mut row = if from.is_empty() { cursor.step(MDBX_FIRST)? } else { cursor.seek(from)? };
        for number in 1..=rows_max {
            let Some((key, value)) = row else { break };
            if end.is_some_and(|end| key >= end) {
                break;
            }
            shown(key, value);
            if number < rows_max {
                row = cursor.step(MDBX_NEXT)?;
            }
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.env.sync()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.ticker.stop()?;
        self.env.sync()
    }
}

/// An open environment. Any thread may use it.
struct Env(NonNull<MDBX_env>);

// SAFETY: its header says that an environment is used by several threads; what belongs to one of them is a
// transaction.
unsafe impl Send for Env {}
// SAFETY: as above.
unsafe impl Sync for Env {}

impl Env {
    fn at(directory: &Path, flags: u32) -> Result<Self> {
        let path = CString::new(directory.as_os_str().as_bytes()).context("a path without zeros")?;
        // SAFETY: sets numbers, before anything else is asked of it.
        ONLY_ERRORS_ARE_TOLD.call_once(|| unsafe {
            mdbx_setup_debug(MDBX_LOG_ERROR, MDBX_DBG_NONE, None);
        });
        let mut env = ptr::null_mut();
        // SAFETY: writes the new handle to a place that there is.
        check(unsafe { mdbx_env_create(&raw mut env) }, "create an environment of libmdbx")?;
        let env = Env(NonNull::new(env).context("libmdbx makes what it is asked for")?);
        let handle = env.0.as_ptr();
        // SAFETY: the environment was created, and is not open yet.
        let outcome = unsafe {
            mdbx_env_set_geometry(
                handle,
                AS_IT_COMES,
                AS_IT_COMES,
                MAP_BYTES_MAX,
                AS_IT_COMES,
                AS_IT_COMES,
                AS_IT_COMES,
            )
        };
        check(outcome, "set libmdbx's geometry")?;
        // SAFETY: as above.
        let outcome = unsafe { mdbx_env_set_option(handle, MDBX_opt_max_readers, READERS_MAX) };
        check(outcome, "set libmdbx's readers")?;
        // SAFETY: the path ends with a zero, and is copied. The directory is a benchmark's own: nobody else
        // opens, shortens or writes the file that gets mapped.
        check(unsafe { mdbx_env_open(handle, path.as_ptr(), flags as _, MODE as _) }, "open libmdbx")?;
        Ok(env)
    }

    /// The table without a name.
    fn rows(&self) -> Result<MDBX_dbi> {
        let transaction = Transaction::begin(self, MDBX_TXN_READWRITE)?;
        let mut rows = 0;
        // SAFETY: the transaction is alive; no name is asked for; the handle is written to a place that there
        // is.
        let outcome =
            unsafe { mdbx_dbi_open(transaction.handle(), ptr::null(), MDBX_DB_DEFAULTS, &raw mut rows) };
        check(outcome, "open libmdbx's table")?;
        transaction.commit()?;
        Ok(rows)
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: the environment is open.
        match unsafe { mdbx_env_sync_ex(self.0.as_ptr(), true, false) } {
            // There was nothing to sync.
            MDBX_RESULT_TRUE => Ok(()),
            outcome => check(outcome, "sync libmdbx"),
        }
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        // SAFETY: created once, and nobody has it any more: transactions borrow it.
        unsafe { mdbx_env_close_ex(self.0.as_ptr(), false) };
    }
}

/// A transaction of this thread, aborted unless it is committed.
struct Transaction<'e> {
    transaction: NonNull<MDBX_txn>,
    _env: &'e Env,
}

impl<'e> Transaction<'e> {
    fn begin(env: &'e Env, flags: MDBX_txn_flags_t) -> Result<Self> {
        let mut transaction = ptr::null_mut();
        // SAFETY: the environment is open; there is no parent; the handle is written to a place that there
        // is.
        let outcome = unsafe {
            mdbx_txn_begin_ex(env.0.as_ptr(), ptr::null_mut(), flags, &raw mut transaction, ptr::null_mut())
        };
        check(outcome, "begin a transaction of libmdbx")?;
        let transaction = NonNull::new(transaction).context("libmdbx makes what it is asked for")?;
        Ok(Transaction { transaction, _env: env })
    }

    fn handle(&self) -> *mut MDBX_txn {
        self.transaction.as_ptr()
    }

    fn put(&self, rows: MDBX_dbi, key: &[u8], value: &[u8]) -> Result<()> {
        let (key, mut value) = (lent(key), lent(value));
        // SAFETY: the transaction writes, and is this thread's; key and value are as long as they say, are
        // copied, and are not written to: that is asked for by flags only.
        let outcome = unsafe { mdbx_put(self.handle(), rows, &raw const key, &raw mut value, MDBX_UPSERT) };
        check(outcome, "put to libmdbx")
    }

    /// The value of a key, until the transaction ends. It must be one that reads.
    fn get(&self, rows: MDBX_dbi, key: &[u8]) -> Result<Option<&[u8]>> {
        let (key, mut value) = (lent(key), lent(&[]));
        // SAFETY: the transaction is this thread's; the key is as long as it says, and is not kept; the value
        // is written to a place that there is.
        match unsafe { mdbx_get(self.handle(), rows, &raw const key, &raw mut value) } {
            MDBX_NOTFOUND => Ok(None),
            outcome => {
                check(outcome, "get from libmdbx")?;
                // SAFETY: it was found, and stays until the transaction ends, which takes what is borrowed.
                Ok(Some(unsafe { bytes(value) }))
            }
        }
    }

    fn commit(self) -> Result<()> {
        let handle = self.handle();
        // What is committed is over, also when that fails.
        std::mem::forget(self);
        // SAFETY: begun once by this thread, and nobody has it any more.
        check(unsafe { mdbx_txn_commit_ex(handle, ptr::null_mut()) }, "commit to libmdbx")
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: begun once by this thread, not committed, and nobody has it any more.
        unsafe { mdbx_txn_abort_ex(self.handle(), ptr::null_mut()) };
    }
}

/// A cursor of a transaction that reads.
struct Cursor<'t> {
    cursor: NonNull<MDBX_cursor>,
    /// Rows are borrowed from it; the cursor must go before it does.
    _transaction: PhantomData<&'t ()>,
}

impl<'t> Cursor<'t> {
    fn of(transaction: &'t Transaction<'_>, rows: MDBX_dbi) -> Result<Self> {
        let mut cursor = ptr::null_mut();
        // SAFETY: the transaction is this thread's; the handle is written to a place that there is.
        let outcome = unsafe { mdbx_cursor_open(transaction.handle(), rows, &raw mut cursor) };
        check(outcome, "open a cursor of libmdbx")?;
        let cursor = NonNull::new(cursor).context("libmdbx makes what it is asked for")?;
        Ok(Cursor { cursor, _transaction: PhantomData })
    }

    /// Goes to the first row at or behind a key.
    fn seek(&mut self, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        self.stand(lent(key), MDBX_SET_RANGE)
    }

    /// Goes to the first row, or to the next.
    fn step(&mut self, to: MDBX_cursor_op) -> Result<Option<(&'t [u8], &'t [u8])>> {
        self.stand(lent(&[]), to)
    }

    fn stand(&mut self, mut key: MDBX_val, to: MDBX_cursor_op) -> Result<Option<(&'t [u8], &'t [u8])>> {
        let mut value = lent(&[]);
        // SAFETY: the cursor is alive, as its transaction is; the key is as long as it says, and is not kept;
        // what is found is written to places that there are.
        match unsafe { mdbx_cursor_get(self.cursor.as_ptr(), &raw mut key, &raw mut value, to) } {
            MDBX_NOTFOUND => Ok(None),
            outcome => {
                check(outcome, "scan libmdbx")?;
                // SAFETY: it was found; a transaction that reads has its rows until it ends.
                let key = unsafe { bytes(key) };
                // SAFETY: as above.
                Ok(Some((key, unsafe { bytes(value) })))
            }
        }
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: opened once, and nobody has it any more.
        unsafe { mdbx_cursor_close(self.cursor.as_ptr()) };
    }
}

/// Bytes as libmdbx takes them.
fn lent(bytes: &[u8]) -> MDBX_val {
    MDBX_val { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Bytes as libmdbx gives them.
///
/// # Safety
/// They are there, and do not change, for that long.
unsafe fn bytes<'t>(given: MDBX_val) -> &'t [u8] {
    if given.iov_len == 0 {
        return &[];
    }
    // SAFETY: says the caller.
    unsafe { slice::from_raw_parts(given.iov_base.cast(), given.iov_len) }
}

fn check(outcome: c_int, what: &str) -> Result<()> {
    if outcome == MDBX_SUCCESS {
        return Ok(());
    }
    // SAFETY: takes any number.
    let text = unsafe { mdbx_strerror(outcome) };
    // SAFETY: it ends with a zero, and is read before another call of this thread could change it.
    bail!("{what}: {}", unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;

    #[test]
    fn what_is_put_is_there_in_order_also_when_opened_again() {
        contestants().iter().for_each(|one| checks::rows(&**one));
    }

    #[test]
    fn a_kill_loses_nothing() {
        checks::a_kill_loses_nothing(&Mdbx::Written, "mdbx::tests::a_kill_loses_nothing");
    }

    #[test]
    fn a_kill_loses_nothing_of_a_writable_map() {
        let test = "mdbx::tests::a_kill_loses_nothing_of_a_writable_map";
        checks::a_kill_loses_nothing(&Mdbx::Mapped, test);
    }

    #[test]
    fn threads_put_the_same_rows() {
        contestants().iter().for_each(|one| checks::threads_put_the_same_rows(&**one));
    }
}
