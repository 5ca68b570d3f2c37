//! `Store`: the engine over the journal and the rows.

use std::{
    io,
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use kvilt_base::{
    Budget, CheckReport, Damage, Direction, Disk, Engine, Error, ErrorKind, FileName, Hand, KeyRange, Level,
    Listed, Next, OperationRef, Progress, ReadView, Result, Scanned, Settings, Stats, Swap, Unfinished,
    Value, Version, Worker, World, WriteBatch,
    directory::{self, DirectoryLock},
    engine_name, limits,
    unfinished::{not_empty, refuse_unfinished},
};

use crate::{
    NAME, ROWS,
    journal::{self, Change, Found, Journal},
    rows::Rows,
};

/// Rows that a scan copies at a time: so long is the map locked for it.
const SCAN_ROWS: usize = 64;

/// A store that is open. Locks are taken in the order of the fields.
pub(crate) struct Store {
    writer: Mutex<Writer>,
    rows: Arc<RwLock<Rows>>,
    disk: Arc<dyn Disk>,
    budget: Arc<Budget>,
    settings: Settings,
    slack_bytes: u64,
    /// A sync failed, or a panic was seen: nothing is written any more.
    is_poisoned: AtomicBool,
    is_closed: AtomicBool,
    syncer: OnceLock<Arc<dyn Hand>>,
    figures: Figures,
}

/// What one writer at a time has.
struct Writer {
    /// None if the store is only read.
    journal: Option<Journal>,
    /// The number of the next journal: none is given out twice, whatever comes of it.
    next_number: u64,
    /// Whether something was appended since the last sync.
    is_dirty: bool,
    /// Whether an append failed: a record may be there that was refused, so nothing may follow it.
    is_torn: bool,
    /// Held until the store is closed.
    lock: Option<DirectoryLock>,
}

#[derive(Default)]
struct Figures {
    gets: AtomicU64,
    puts: AtomicU64,
    batches: AtomicU64,
    views: AtomicU64,
    user_bytes: AtomicU64,
    journal_bytes: AtomicU64,
}

impl Store {
    /// Opens the store in `disk`, or makes one.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        world: &World,
        settings: &Settings,
        slack_bytes: u64,
    ) -> Result<Arc<Store>> {
        let is_read_only = settings.read_only;
        let lock = match is_read_only {
            true => directory::lock_to_read(&*disk)?,
            false => directory::lock(&*disk)?,
        };
        let listed = directory::list(&*disk)?;
        if !settings.is_unfinished {
            refuse_unfinished(&listed, &disk.place())?;
        }
        let found = match journal::newest(&*disk)? {
            Some(found) => {
                engine_name::expect(&*disk, NAME)?;
                found
            }
            None => {
                allow_making(&*disk, &listed, settings)?;
                directory::sign(&*disk, &lock)?;
                make(&*disk, &listed)?
            }
        };
        let mut rows = Rows::new(world.budget.charge(ROWS, 0));
        let Found { number: newest, records, .. } = found;
        records.into_iter().for_each(|changes| rows.apply(changes));
        let numbers = journal::numbers(&directory::list(&*disk)?);
        let next_number = numbers.last().copied().unwrap_or(newest) + 1;
        let mut writer = Writer { journal: None, next_number, is_dirty: false, is_torn: false, lock: None };
        if !is_read_only {
            directory::sign(&*disk, &lock)?;
            // After a kill, what was read may not be durable yet.
            journal::settle(&*disk, newest)?;
            // Behind a torn end nothing may be appended: the new journal begins with all rows. If this open
            // fails and leaves it, it holds what the old one does.
            writer.journal = Some(Journal::begin(&*disk, writer.take_number(), &rows.as_puts())?);
            for number in numbers {
                // What cannot be removed is passed over by the next open, too.
                let _ = disk.remove(FileName::Of(journal::JOURNAL, number));
            }
        }
        writer.lock = Some(lock);
        let store = Arc::new(Store {
            writer: Mutex::new(writer),
            rows: Arc::new(RwLock::new(rows)),
            disk,
            budget: Arc::clone(&world.budget),
            settings: settings.clone(),
            slack_bytes,
            is_poisoned: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            syncer: OnceLock::new(),
            figures: Figures::default(),
        });
        if !is_read_only {
            let interval = settings.durability.bounded().interval();
            let syncer = Syncer { store: Arc::downgrade(&store), interval };
            let _ = store.syncer.set(world.spawn.spawn("syncer", Box::new(syncer)));
        }
        Ok(store)
    }

    fn ensure_open(&self) -> Result<()> {
        match self.is_closed.load(Relaxed) {
            true => Err(Error::new(ErrorKind::Closed, "the store was closed")),
            false => Ok(()),
        }
    }

    /// Lets one in who writes; refuses if nothing may be written any more.
    fn writer(&self) -> Result<MutexGuard<'_, Writer>> {
        let writer = self.writer.lock().unwrap_or_else(|panicked| {
            self.is_poisoned.store(true, Relaxed);
            panicked.into_inner()
        });
        self.ensure_open()?;
        self.ensure_healthy()?;
        Ok(writer)
    }

    fn ensure_healthy(&self) -> Result<()> {
        match self.is_poisoned.load(Relaxed) {
            true => Err(Error::new(ErrorKind::Poisoned, "a sync failed or a bug was seen; open it again")),
            false => Ok(()),
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Rows> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the changes down, then shows them. They are one.
    fn change(&self, writer: &mut Writer, batch: &WriteBatch) -> Result<()> {
        if self.settings.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the store was opened to be read only"));
        }
        if batch.is_empty() {
            return Ok(());
        }
        if writer.is_torn {
            self.replace_journal(writer)?;
        }
        let Writer { journal, is_dirty, is_torn, .. } = writer;
        let journal = journal.as_mut().expect("a store that is not only read has a journal");
        let before = journal.len();
        journal.append(batch.operations()).inspect_err(|_| *is_torn = true)?;
        *is_dirty = true;
        self.figures.journal_bytes.fetch_add(journal.len() - before, Relaxed);
        if self.settings.durability.level() == Level::Sync {
            self.poisoning(journal.sync())?;
        }
        self.figures.puts.fetch_add(batch.len() as u64, Relaxed);
        self.figures.user_bytes.fetch_add(batch.bytes() as u64, Relaxed);
        let change =
            |change: OperationRef<'_>| -> Change { (change.key.to_vec(), change.value.map(Value::copied)) };
        let changes = batch.operations().map(change).collect();
        self.rows.write().unwrap_or_else(PoisonError::into_inner).apply(changes);
        Ok(())
    }

    /// A sync that failed may have lost anything: nobody goes on as if it could be tried again.
    fn poisoning<T>(&self, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() {
            self.is_poisoned.store(true, Relaxed);
        }
        outcome
    }

    /// Makes durable what was written, and begins a new journal if most of this one is dead.
    fn make_durable(&self, writer: &mut Writer) -> Result<()> {
        let Some(journal) = &writer.journal else { return Ok(()) };
        if !writer.is_dirty {
            return Ok(());
        }
        self.poisoning(journal.sync())?;
        writer.is_dirty = false;
        let live_bytes = self.read().live_bytes();
        if journal.len() <= live_bytes + live_bytes / 4 + self.slack_bytes {
            return Ok(());
        }
        match self.replace_journal(writer) {
            // The old one has everything; there will be another try.
            Err(_) if self.ensure_healthy().is_ok() => Ok(()),
            outcome => outcome,
        }
    }

    /// Begins a new journal with all rows and writes to it from now on. If it cannot be made the old one
    /// stays, and nothing is left of the new one.
    fn replace_journal(&self, writer: &mut Writer) -> Result<()> {
        let (number, rows) = (writer.take_number(), self.read().as_puts());
        let created = Journal::create(&*self.disk, number, &rows);
        let journal = match created {
            Ok(journal) => journal,
            Err(error) => {
                // A power cut must not bring it back: it would count instead of the old one.
                let removed = match self.disk.remove(FileName::Of(journal::JOURNAL, number)) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                    Ok(()) | Err(_) => self.disk.sync_dir(),
                };
                self.poisoning(removed.map_err(|e| Error::io("take a journal back", e)))?;
                return Err(error);
            }
        };
        self.poisoning(journal.settle(&*self.disk))?;
        (writer.is_dirty, writer.is_torn) = (false, false);
        if let Some(old) = writer.journal.replace(journal) {
            // What cannot be removed is passed over by the next open.
            let _ = self.disk.remove(old.name());
        }
        Ok(())
    }
}

impl Writer {
    fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }
}

/// Whether a store may be made here: where none is, or one whose making was cut short. No store is used
/// before its second journal, so where there are later ones than the first, and none is whole, one is
/// damaged.
fn allow_making(disk: &dyn Disk, listed: &[Listed], settings: &Settings) -> Result<()> {
    if let Some(number) = journal::numbers(listed).into_iter().rev().find(|number| *number > FIRST) {
        let name = FileName::Of(journal::JOURNAL, number);
        return Err(Error::corrupted(name, 0, "no journal begins with a whole record"));
    }
    let place = disk.place();
    if !settings.create || settings.read_only {
        return Err(Error::invalid(format!("there is no store in {place}")));
    }
    let is_free = |item: &Listed| match item {
        Listed::Ours(FileName::LOCK | FileName::UNFINISHED) => true,
        // What a making left that was cut short.
        Listed::Ours(name) => *name == FileName::ENGINE || name.kind() == journal::JOURNAL,
        Listed::Foreign(_) => false,
    };
    if listed.iter().all(is_free) { Ok(()) } else { Err(not_empty(&place)) }
}

/// The number of a store's first journal, which holds nothing.
const FIRST: u64 = 1;

/// Makes an empty store, durably. Its name is durable first: where a journal is whole there is a store, and a
/// power cut must not leave it beside the torn name of an earlier attempt.
fn make(disk: &dyn Disk, listed: &[Listed]) -> Result<Found> {
    engine_name::write(disk, NAME)?;
    disk.sync_dir().map_err(|e| Error::io("sync the directory", e).in_file(disk.place()))?;
    for number in journal::numbers(listed) {
        let name = FileName::Of(journal::JOURNAL, number);
        disk.remove(name).map_err(|e| Error::io("remove what was cut short", e).in_file(name))?;
    }
    Journal::begin(disk, FIRST, &WriteBatch::new())?;
    Ok(Found { number: FIRST, records: Vec::new(), len: 0 })
}

impl Engine for Store {
    fn get_with(&self, key: &[u8], at: Option<&ReadView>, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.ensure_open()?;
        limits::check_key(key, limits::ENGINE_KEY_BYTES_MAX)?;
        self.figures.gets.fetch_add(1, Relaxed);
        // Shared, not copied: the map is free again while it is looked at.
        let value = self.read().get(key, at.map(|view| view.version().to_u64()));
        Ok(value.inspect(|value| found(value)).is_some())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        self.write(batch)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete(key);
        self.write(batch)
    }

    fn write(&self, batch: WriteBatch) -> Result<()> {
        let (operations_max, bytes_max) = (self.settings.batch_operations_max, self.settings.batch_bytes_max);
        if batch.len() > operations_max || batch.len() > 1 && batch.bytes() > bytes_max {
            return Err(Error::invalid(format!(
                "a batch may have `batch_operations_max` = {operations_max} operations and `batch_bytes_max` = \
                 {bytes_max} bytes, and this one has {} and {}",
                batch.len(),
                batch.bytes()
            )));
        }
        for operation in batch.operations() {
            limits::check_key(operation.key, limits::ENGINE_KEY_BYTES_MAX)?;
            limits::check_value(operation.value.unwrap_or_default())?;
        }
        self.figures.batches.fetch_add(u64::from(batch.len() > 1), Relaxed);
        self.change(&mut *self.writer()?, &batch)
    }

    fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        limits::check_key(key, limits::ENGINE_KEY_BYTES_MAX)?;
        limits::check_value(new.unwrap_or_default())?;
        let mut writer = self.writer()?;
        let there = self.read().get(key, None);
        if there.as_deref() != expected {
            return Ok(Swap::Differs(there));
        }
        let mut batch = WriteBatch::new();
        batch.add(&[key], new);
        self.change(&mut writer, &batch)?;
        Ok(Swap::Done)
    }

    fn delete_range(&self, range: &KeyRange) -> Result<()> {
        let mut writer = self.writer()?;
        let mut batch = WriteBatch::new();
        for key in self.read().keys_in(range) {
            batch.delete(key);
        }
        self.change(&mut writer, &batch)
    }

    fn view(&self) -> Result<ReadView> {
        self.ensure_open()?;
        self.figures.views.fetch_add(1, Relaxed);
        let version = self.rows.write().unwrap_or_else(PoisonError::into_inner).open_view();
        let held = Held { rows: Arc::clone(&self.rows), version };
        Ok(ReadView::new(Version::from_u64(version), Box::new(held)))
    }

    fn scan(
        &self,
        view: &ReadView,
        range: &KeyRange,
        direction: Direction,
        rows: &mut dyn kvilt_base::Rows,
    ) -> Result<Scanned> {
        self.ensure_open()?;
        let mut left = range.clone();
        loop {
            // Whoever takes the rows may call the store, so the map is not locked meanwhile.
            let some = self.read().some_of(&left, view.version().to_u64(), direction, SCAN_ROWS);
            if some.is_empty() {
                return Ok(Scanned::Ended);
            }
            for (key, value) in some {
                let outcome = rows.take(&key, &value);
                match direction {
                    Direction::Forward => left.start = kvilt_base::key::successor(&key),
                    Direction::Backward => left.end = Some(key),
                }
                if outcome == ControlFlow::Break(()) {
                    return Ok(Scanned::Left(left));
                }
            }
        }
    }

    fn sync(&self) -> Result<()> {
        self.make_durable(&mut *self.writer()?)
    }

    fn checkpoint_to(&self, directory: &Path) -> Result<()> {
        self.ensure_open()?;
        let place = directory.display().to_string();
        let no_directory = |e: io::Error| match e.kind() {
            io::ErrorKind::DirectoryNotEmpty => not_empty(&place),
            _ => Error::io("make the directory of the copy", e).in_file(&place),
        };
        let disk = self.disk.new_directory(directory).map_err(no_directory)?;
        let unfinished = Unfinished::begin(Arc::clone(&disk))?;
        engine_name::write(&*disk, NAME)?;
        Journal::begin(&*disk, FIRST + 1, &self.read().as_puts())?;
        unfinished.finish()
    }

    fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        if let Some(journal) = &self.writer.lock().unwrap_or_else(PoisonError::into_inner).journal {
            (stats.files_now, stats.disk_bytes_now) = (1, journal.len());
        }
        let rows = self.read();
        stats.open_views_now = rows.views() as u64;
        stats.dead_bytes_now = stats.disk_bytes_now.saturating_sub(rows.live_bytes());
        stats.budget_bytes = self.budget.bytes_max();
        stats.memory_bytes_now = self.budget.used_in_all();
        stats.gets = self.figures.gets.load(Relaxed);
        stats.puts = self.figures.puts.load(Relaxed);
        stats.batches = self.figures.batches.load(Relaxed);
        stats.views = self.figures.views.load(Relaxed);
        stats.user_bytes = self.figures.user_bytes.load(Relaxed);
        stats.bytes_written = self.figures.journal_bytes.load(Relaxed);
        stats
    }

    fn check(&self, progress: &mut dyn FnMut(Progress) -> bool) -> Result<CheckReport> {
        self.ensure_open()?;
        // Nobody appends meanwhile.
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = CheckReport::default();
        let Some(journal) = &writer.journal else { return Ok(report) };
        report.is_cancelled = !progress(Progress { done: 0, total: journal.len() });
        if report.is_cancelled {
            return Ok(report);
        }
        let found = journal::read(&*self.disk, journal.number())?;
        report.files = 1;
        report.bytes = found.len;
        report.entries = found.records.iter().map(|changes| changes.len() as u64).sum();
        if found.len < journal.len() {
            report.damages.push(Damage {
                what: "checksum".into(),
                file: Some(journal.name().to_string()),
                offset: Some(found.len),
                range: Some(KeyRange::all()),
                message: "a record of the journal is not whole".into(),
            });
        }
        Ok(report)
    }

    fn close(&self) -> Result<()> {
        let outcome = {
            let mut writer = match self.writer() {
                Ok(writer) => writer,
                Err(error) if error.kind() == ErrorKind::Closed => return Ok(()),
                Err(_) => self.writer.lock().unwrap_or_else(PoisonError::into_inner),
            };
            let outcome = self.ensure_healthy().and_then(|()| self.make_durable(&mut writer));
            self.is_closed.store(true, Relaxed);
            outcome
        };
        // Not under the lock: the worker may be about to take it.
        if let Some(syncer) = self.syncer.get() {
            syncer.wake();
            syncer.join();
        }
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).lock = None;
        outcome
    }
}

/// Closes a view when dropped.
struct Held {
    rows: Arc<RwLock<Rows>>,
    version: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.rows.write().unwrap_or_else(PoisonError::into_inner).close_view(self.version);
    }
}

/// Syncs the journal again and again, so that a power cut loses little.
struct Syncer {
    store: Weak<Store>,
    interval: Duration,
}

impl Worker for Syncer {
    fn step(&mut self) -> Next {
        match self.store.upgrade().map(|store| store.sync()) {
            // Dropped or closed.
            None => Next::Done,
            Some(Err(error)) if error.kind() == ErrorKind::Closed => Next::Done,
            Some(Ok(()) | Err(_)) => Next::Rest(Some(self.interval)),
        }
    }

    fn panicked(&mut self, _message: &str) {
        if let Some(store) = self.store.upgrade() {
            store.is_poisoned.store(true, Relaxed);
        }
    }
}
