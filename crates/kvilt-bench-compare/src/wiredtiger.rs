//! WiredTiger, twice: with a log that each put writes, and with a log buffered in the process, as it comes.
//! By way of its C interface, if the feature `wiredtiger` is on.
//!
//! | set | why |
//! | --- | --- |
//! | a cache of the budget without 32 MiB, at least half of it | the budget is for all; 128 log buffers of 256 KiB are outside of the cache |
//! | a log, `transaction_sync=(enabled=true,method=none)`, synced each half second | its documents: a commit hands its record to the system, so a kill loses nothing; the rhythm is Kvilt's |
//! | the same without `transaction_sync`, for `wiredtiger-buffered` | its default: records stay in a buffer of the process for a while |
//! | a checkpoint each 60 s or 2 GiB of log | what MongoDB sets; by default it makes none, and each half second one would write all changed pages each time |
//! | `key_format=u`, `value_format=u` | bytes, in the order of bytes |
//! | no compression, of prefixes neither | as everybody here, and its default |
//! | pages of 32 KiB | its default |
//! | `isolation=snapshot` | a scan sees one moment, as everybody's does; its default since version 10 |
//! | a session and a cursor each thread, kept | its documents recommend it |
//! | a batch in a transaction for loading | its bulk load takes only rows in order, and only into an empty table |
#![expect(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a C interface: a method is read from a handle, and called"
)]

use std::{
    ffi::{CStr, CString, c_int},
    fs,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    ptr::{self, NonNull},
    slice,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, Result, bail};
use kvilt_bench::store::{Contestant, Store};

use self::bindings::{
    WT_CONNECTION, WT_CURSOR, WT_ITEM, WT_NOTFOUND, WT_SESSION, wiredtiger_open, wiredtiger_strerror,
};
use crate::ticker::Ticker;

#[allow(
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "as its header has it; which of these there are depends on its version"
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/wiredtiger.rs"));
}

/// Bytes of all its log buffers.
const LOG_BUFFERS_BYTES: u64 = 32 << 20;
/// Sessions for threads: as many as a scenario may have at once.
const SESSIONS: usize = 128;
/// Sessions in all; its own threads have some.
const SESSIONS_MAX: usize = SESSIONS + 64;

const TABLE: &CStr = c"table:rows";

/// Its entries.
pub(crate) fn contestants() -> Vec<Box<dyn Contestant>> {
    [WiredTiger::Written, WiredTiger::Buffered].map(|one| Box::new(one) as _).into()
}

/// How puts get to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WiredTiger {
    /// Each put, or each group of puts, makes a system call to write it.
    Written,
    /// It is buffered in the process.
    Buffered,
}

impl Contestant for WiredTiger {
    fn name(&self) -> &'static str {
        match self {
            WiredTiger::Written => "wiredtiger",
            WiredTiger::Buffered => "wiredtiger-buffered",
        }
    }

    fn promise(&self) -> &'static str {
        match self {
            WiredTiger::Written => {
                "after a kill everything; after a power cut a prefix, half a second old at most"
            }
            WiredTiger::Buffered => "a prefix after any crash, half a second old at most",
        }
    }

    fn open(&self, directory: &Path, budget_bytes: u64) -> Result<Box<dyn Store>> {
        fs::create_dir_all(directory)?;
        let cache_bytes = budget_bytes.saturating_sub(LOG_BUFFERS_BYTES).max(budget_bytes / 2);
        let settings = format!(
            "create,cache_size={cache_bytes},session_max={SESSIONS_MAX},log=(enabled=true),\
             transaction_sync=(enabled={},method=none),checkpoint=(wait=60,log_size=2GB)",
            *self == WiredTiger::Written
        );
        let connection = Arc::new(Connection::open(directory, &settings)?);
        let syncing = Mutex::new(Session::of(&connection)?);
        let ticker = Ticker::start(move || syncing.lock().expect("a tick that panics is the last").sync());
        let sessions = (0..SESSIONS).map(|_| Slot::default()).collect();
        Ok(Box::new(Opened { ticker, sessions, connection }))
    }
}

/// An open store. What comes first goes first.
struct Opened {
    ticker: Ticker,
    /// By number of the thread.
    sessions: Vec<Slot>,
    connection: Arc<Connection>,
}

/// The session of a thread, which is made when it is first needed. Alone in its cache lines: each operation
/// locks it.
#[derive(Default)]
#[repr(align(128))]
struct Slot(Mutex<Option<Session>>);

/// The next thread's number.
static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread's number. Relaxed: it orders nothing, numbers need only differ.
    static THREAD: usize = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
}

impl Opened {
    /// Works with this thread's session. Two threads whose numbers are [`SESSIONS`] apart have the same, in
    /// turn.
    fn with_session<T>(&self, work: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        let slot = &self.sessions[THREAD.with(|number| number % SESSIONS)];
        let mut session = slot.0.lock().expect("work that panics ends the benchmark");
        match &mut *session {
            Some(session) => work(session),
            none => work(none.insert(Session::of(&self.connection)?)),
        }
    }
}

impl Store for Opened {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.with_session(|session| session.put(key, value))
    }

    fn load(&self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.with_session(|session| {
            let transaction = Transaction::begin(session)?;
            for (key, value) in rows {
                transaction.session.put(key, value)?;
            }
            transaction.commit()
        })
    }

    fn get(&self, key: &[u8], shown: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.with_session(|session| session.get(key, shown))
    }

    fn scan(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        rows_max: u64,
        shown: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        self.with_session(|session| {
            let transaction = Transaction::begin(session)?;
            let session = &mut *transaction.session;
            let mut is_there = rows_max > 0 && session.seek(from)?;
            let mut rows = 0;
            while is_there {
                let (key, value) = session.row()?;
                if end.is_some_and(|end| key >= end) {
                    break;
                }
                shown(key, value);
                rows += 1;
                is_there = rows < rows_max && session.advance()?;
            }
            transaction.commit()
        })
    }

    /// Also writes changed pages: what a phase put off counts for that phase.
    fn settle(&self) -> Result<()> {
        self.with_session(Session::checkpoint)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.settle()?;
        self.ticker.stop()
    }
}

/// Calls a method of a handle, whose first argument is the handle.
macro_rules! call {
    ($handle:expr, $method:ident $(, $argument:expr)*) => {{
        let handle = $handle;
        (*handle).$method.expect("WiredTiger has all its methods")(handle $(, $argument)*)
    }};
}

/// A connection to a store. Any thread may use it.
struct Connection(NonNull<WT_CONNECTION>);

// SAFETY: its documents say that a connection is used by several threads.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

impl Connection {
    fn open(directory: &Path, settings: &str) -> Result<Self> {
        let directory = CString::new(directory.as_os_str().as_bytes()).context("a path without zeros")?;
        let settings = CString::new(settings).context("settings without zeros")?;
        let mut connection = ptr::null_mut();
        // SAFETY: path and settings end with a zero, and are not kept; the handle is written to a place that
        // there is.
        let outcome = unsafe {
            wiredtiger_open(directory.as_ptr(), ptr::null_mut(), settings.as_ptr(), &raw mut connection)
        };
        check(outcome, "open WiredTiger")?;
        Ok(Connection(made(connection)))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: opened once, and nobody has it any more: sessions own a part of it.
        unsafe { call!(self.0.as_ptr(), close, ptr::null()) };
    }
}

/// A session, and its cursor on the rows. One thread at a time may use it.
struct Session {
    session: NonNull<WT_SESSION>,
    cursor: NonNull<WT_CURSOR>,
    _connection: Arc<Connection>,
}

// SAFETY: its documents say that a session may be passed from thread to thread, if one uses it at a time.
unsafe impl Send for Session {}

impl Session {
    /// Opens one, and makes the table if there is none.
    fn of(connection: &Arc<Connection>) -> Result<Self> {
        let (mut session, mut cursor) = (ptr::null_mut(), ptr::null_mut());
        let handle = connection.0.as_ptr();
        let settings = c"isolation=snapshot";
        // SAFETY: the connection is open; the handle is written to a place that there is.
        let outcome =
            unsafe { call!(handle, open_session, ptr::null_mut(), settings.as_ptr(), &raw mut session) };
        check(outcome, "open a session of WiredTiger")?;
        let session = made(session);
        let settings = c"key_format=u,value_format=u";
        // SAFETY: the session was just opened; name and settings end with a zero, and are not kept.
        let outcome = unsafe { call!(session.as_ptr(), create, TABLE.as_ptr(), settings.as_ptr()) };
        check(outcome, "create WiredTiger's table")?;
        // SAFETY: as above; there is no cursor to copy; the handle is written to a place that there is.
        let outcome = unsafe {
            let (to_copy, settings) = (ptr::null_mut(), ptr::null());
            call!(session.as_ptr(), open_cursor, TABLE.as_ptr(), to_copy, settings, &raw mut cursor)
        };
        check(outcome, "open a cursor of WiredTiger")?;
        Ok(Session { session, cursor: made(cursor), _connection: Arc::clone(connection) })
    }

    /// Puts a row; alone, if no transaction has begun.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (key, value) = (lent(key), lent(value));
        let cursor = self.cursor.as_ptr();
        // SAFETY: the cursor is open, and this thread's; its formats take an item each, as long as it says,
        // which is read by the insert and not kept behind it.
        let outcome = unsafe {
            call!(cursor, set_key, &raw const key);
            call!(cursor, set_value, &raw const value);
            call!(cursor, insert)
        };
        check(outcome, "put to WiredTiger")
    }

    fn get(&mut self, key: &[u8], shown: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (key, cursor) = (lent(key), self.cursor.as_ptr());
        // SAFETY: as for a put.
        let outcome = unsafe {
            call!(cursor, set_key, &raw const key);
            call!(cursor, search)
        };
        let is_there = is_found(outcome, "get from WiredTiger")?;
        if is_there {
            shown(self.value()?);
        }
        // SAFETY: the cursor is open, and this thread's.
        check(unsafe { call!(cursor, reset) }, "reset a cursor of WiredTiger")?;
        Ok(is_there)
    }

    /// Goes to the first row at or behind a key, and says whether there is one. The cursor must stand
    /// nowhere.
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        // It takes no empty key, and is before the first row.
        if key.is_empty() {
            return self.advance();
        }
        let (key, cursor, mut side) = (lent(key), self.cursor.as_ptr(), 0);
        // SAFETY: as for a put; where the row lies is written to a place that there is.
        let outcome = unsafe {
            call!(cursor, set_key, &raw const key);
            call!(cursor, search_near, &raw mut side)
        };
        // It may stand at the last row before the key.
        Ok(is_found(outcome, "seek in WiredTiger")? && (side >= 0 || self.advance()?))
    }

    /// Goes to the next row, and says whether there is one.
    fn advance(&mut self) -> Result<bool> {
        // SAFETY: the cursor is open, and this thread's.
        is_found(unsafe { call!(self.cursor.as_ptr(), next) }, "scan WiredTiger")
    }

    /// The row where the cursor stands, until it moves.
    fn row(&self) -> Result<(&[u8], &[u8])> {
        let mut key = lent(&[]);
        // SAFETY: the cursor is open, and this thread's; its key is an item, which is written to a place that
        // there is.
        let outcome = unsafe { call!(self.cursor.as_ptr(), get_key, &raw mut key) };
        check(outcome, "read a key of WiredTiger")?;
        // SAFETY: it is there until the cursor moves, which takes `&mut self`.
        Ok((unsafe { bytes(&key) }, self.value()?))
    }

    /// The value where the cursor stands, until it moves.
    fn value(&self) -> Result<&[u8]> {
        let mut value = lent(&[]);
        // SAFETY: as for a key.
        let outcome = unsafe { call!(self.cursor.as_ptr(), get_value, &raw mut value) };
        check(outcome, "read a value of WiredTiger")?;
        // SAFETY: as for a key.
        Ok(unsafe { bytes(&value) })
    }

    /// Syncs the log.
    fn sync(&mut self) -> Result<()> {
        // SAFETY: the session is open, and this thread's; the setting ends with a zero.
        let outcome = unsafe { call!(self.session.as_ptr(), log_flush, c"sync=on".as_ptr()) };
        check(outcome, "sync WiredTiger's log")
    }

    fn checkpoint(&mut self) -> Result<()> {
        // SAFETY: the session is open, and this thread's.
        let outcome = unsafe { call!(self.session.as_ptr(), checkpoint, ptr::null()) };
        check(outcome, "write a checkpoint of WiredTiger")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: opened once, and nobody has it any more; its cursor goes with it; the connection is open.
        unsafe { call!(self.session.as_ptr(), close, ptr::null()) };
    }
}

/// A transaction of a session, rolled back unless it is committed.
struct Transaction<'s> {
    session: &'s mut Session,
}

impl<'s> Transaction<'s> {
    fn begin(session: &'s mut Session) -> Result<Self> {
        // SAFETY: the session is open, and this thread's, and has no transaction: one that begins ends.
        let outcome = unsafe { call!(session.session.as_ptr(), begin_transaction, ptr::null()) };
        check(outcome, "begin a transaction of WiredTiger")?;
        Ok(Transaction { session })
    }

    /// Its cursor stands nowhere then.
    fn commit(self) -> Result<()> {
        let session = self.session.session.as_ptr();
        // What is committed is over, also when that fails.
        std::mem::forget(self);
        // SAFETY: the session is open, and this thread's, and has a transaction.
        check(unsafe { call!(session, commit_transaction, ptr::null()) }, "commit to WiredTiger")
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: as for a commit, which there was none of.
        unsafe { call!(self.session.session.as_ptr(), rollback_transaction, ptr::null()) };
    }
}

/// Bytes as WiredTiger takes them.
fn lent(bytes: &[u8]) -> WT_ITEM {
    // SAFETY: numbers and pointers, all of which may be zero.
    let empty = unsafe { std::mem::zeroed::<WT_ITEM>() };
    WT_ITEM { data: bytes.as_ptr().cast(), size: bytes.len(), ..empty }
}

/// Bytes as WiredTiger gives them.
///
/// # Safety
/// They are there, and do not change, for that long.
unsafe fn bytes<'t>(given: &WT_ITEM) -> &'t [u8] {
    if given.size == 0 {
        return &[];
    }
    // SAFETY: says the caller.
    unsafe { slice::from_raw_parts(given.data.cast(), given.size) }
}

fn is_found(outcome: c_int, what: &str) -> Result<bool> {
    if outcome == WT_NOTFOUND {
        return Ok(false);
    }
    check(outcome, what)?;
    Ok(true)
}

fn check(outcome: c_int, what: &str) -> Result<()> {
    if outcome == 0 {
        return Ok(());
    }
    // SAFETY: takes any number.
    let text = unsafe { wiredtiger_strerror(outcome) };
    // SAFETY: it ends with a zero, and is read before another call of this thread could change it.
    bail!("{what}: {}", unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// What its functions make is there where they say so.
fn made<T>(thing: *mut T) -> NonNull<T> {
    NonNull::new(thing).expect("WiredTiger makes what it is asked for")
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
    fn a_kill_loses_nothing_if_each_put_writes_the_log() {
        let test = "wiredtiger::tests::a_kill_loses_nothing_if_each_put_writes_the_log";
        checks::a_kill_loses_nothing(&WiredTiger::Written, test);
    }

    #[test]
    fn threads_put_the_same_rows() {
        contestants().iter().for_each(|one| checks::threads_put_the_same_rows(&**one));
    }
}
