//! `Recorder`: a disk that stands in front of a [`MemoryDisk`] and, before calls that change something, makes
//! images of what a power cut, or the death of the process, at this moment could leave. One recorded run
//! gives every crash of a script; the run itself is not disturbed.

use std::{
    any::Any,
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use kvilt_base::{
    Completed, Disk, File, FileName, Listed, Mapping, Means, Queue, Transfer,
    disk::{Habitat, LockFailure},
    queue::{foreign, found},
};
use kvilt_io::{Keep, MemoryDisk};

use crate::{
    dice::mix,
    ledger::{Ledger, Promise},
};

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The process dies: the kernel has everything written, and what was not synced is no safer than before.
    /// If it dies within a write, the first bytes of that may be there.
    Killed,
    /// The power goes, and this is kept of what was not synced.
    PowerCut(Keep),
}

/// Which images are made of a moment, besides one of the process killed and one of a power cut that leaves
/// only what was synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Images {
    /// By seed: a prefix, and this many random ones.
    Drawn {
        /// Random ones.
        random: u64,
    },
    /// Everything that was not synced lost alone, and kept alone, and all of it kept: nothing is left to
    /// chance.
    Singles,
}

/// Of so many crashes, one is tried if they are sampled.
const SAMPLED_STRIDE: u64 = 16;

/// When images are made.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    /// Before every changing call; if sampled, of the images of about each sixteenth only one.
    Always { images: Images, is_sampled: bool, seed: u64 },
    /// Before every so many-th changing call.
    Every { stride: u64, images: Images, seed: u64 },
    /// Before the changing call with this number; then the disk is gone.
    Once { op: u64, end: End },
    /// Never.
    Never,
}

/// What the end of a life left, and what had been promised when it came.
pub(super) struct Shot {
    /// The number of the changing call that did not happen any more.
    pub(super) op: u64,
    pub(super) end: End,
    pub(super) image: Arc<MemoryDisk>,
    pub(super) promise: Promise,
}

/// What is being written, and where.
#[derive(Clone, Copy)]
struct Write<'w> {
    name: FileName,
    offset: u64,
    bytes: &'w [u8],
}

/// What a recorder and its files share. Relaxed throughout: a stepped world has one thread.
pub(super) struct Film {
    disk: Arc<MemoryDisk>,
    ledger: Arc<Ledger>,
    when: When,
    ops: AtomicU64,
    is_dark: AtomicBool,
    is_stopped: AtomicBool,
    shots: Mutex<Vec<Shot>>,
}

impl Film {
    pub(super) fn new(disk: Arc<MemoryDisk>, ledger: Arc<Ledger>, when: When) -> Arc<Film> {
        Arc::new(Film {
            disk,
            ledger,
            when,
            ops: AtomicU64::new(0),
            is_dark: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            shots: Mutex::default(),
        })
    }

    /// Changing calls so far.
    pub(super) fn ops(&self) -> u64 {
        self.ops.load(Relaxed)
    }

    /// Takes the images made so far.
    pub(super) fn take_shots(&self) -> Vec<Shot> {
        std::mem::take(&mut *self.shots.lock().expect("nobody panics while holding it"))
    }

    /// Makes images of this moment, as before a changing call.
    pub(super) fn shoot_now(&self) {
        self.shoot(None);
    }

    fn shoot(&self, write: Option<Write<'_>>) {
        if self.is_stopped.load(Relaxed) {
            return;
        }
        let op = self.ops();
        let ends = match self.when {
            When::Always { images, is_sampled, seed } => {
                let mut ends = self.ends(op, images, seed);
                if is_sampled {
                    let one = mix(seed ^ mix(op)) % (ends.len() as u64 * SAMPLED_STRIDE);
                    ends = ends.get(one as usize).copied().into_iter().collect();
                }
                ends
            }
            // Another seed, other calls.
            When::Every { stride, images, seed } if (op + seed % stride).is_multiple_of(stride) => {
                self.ends(op, images, seed)
            }
            When::Once { op: at, end } if at == op => vec![end],
            When::Every { .. } | When::Once { .. } | When::Never => vec![],
        };
        let mut shots = self.shots.lock().expect("nobody panics while holding it");
        for end in ends {
            let image = match end {
                End::Killed => self.killed(op, write),
                End::PowerCut(keep) => self.disk.crash_image(keep),
            };
            shots.push(Shot { op, end, image, promise: self.ledger.now() });
        }
    }

    /// Half of those who die at a write die within it.
    fn killed(&self, op: u64, write: Option<Write<'_>>) -> Arc<MemoryDisk> {
        let image = self.disk.kill_image_with(Keep::Random(mix(op)));
        if let Some(Write { name, offset, bytes }) = write
            && let torn = mix(op) % (2 * bytes.len() as u64 + 1)
            && let Some(first) = bytes.get(..torn as usize)
            && let Ok(file) = image.open(name)
        {
            // On a full disk it takes fewer still.
            let _ = file.write_at(offset, first);
        }
        image
    }

    fn ends(&self, op: u64, images: Images, seed: u64) -> Vec<End> {
        let cut = |keep| End::PowerCut(keep);
        let mut ends = vec![End::Killed, cut(Keep::SyncedOnly)];
        match images {
            Images::Drawn { random } => {
                ends.push(cut(Keep::Prefix(mix(seed ^ op))));
                ends.extend((0..random).map(|i| cut(Keep::Random(mix(seed ^ op ^ (i + 1) << 40)))));
            }
            Images::Singles => {
                ends.push(cut(Keep::All));
                let units = 0..self.disk.unsynced();
                ends.extend(units.flat_map(|unit| [cut(Keep::Only(unit)), cut(Keep::AllBut(unit))]));
            }
        }
        ends
    }

    /// Takes the disk away: every call fails from now on.
    pub(super) fn go_dark(&self) {
        self.is_dark.store(true, Relaxed);
    }

    /// Makes no more images.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
    }

    pub(super) fn is_dark(&self) -> bool {
        self.is_dark.load(Relaxed)
    }

    fn before_read(&self) -> io::Result<()> {
        if self.is_dark() { Err(io::Error::other("the disk is gone")) } else { Ok(()) }
    }

    fn before_change(&self) -> io::Result<()> {
        self.before(None)
    }

    fn before(&self, write: Option<Write<'_>>) -> io::Result<()> {
        self.before_read()?;
        self.shoot(write);
        if matches!(self.when, When::Once { op, .. } if op == self.ops()) {
            self.go_dark();
        }
        self.before_read()?;
        self.ops.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// See the module.
pub(super) struct Recorder(pub(super) Arc<Film>);

impl Recorder {
    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(RecordedFile { inner, film: Arc::clone(&self.0) })
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorder({:?})", self.0.disk)
    }
}

impl Disk for Recorder {
    fn create(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.0.before_change()?;
        self.0.disk.create(name).map(|file| self.file(file))
    }

    fn open(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.0.before_read()?;
        self.0.disk.open(name).map(|file| self.file(file))
    }

    fn rename(&self, from: FileName, to: FileName) -> io::Result<()> {
        self.0.before_change()?;
        self.0.disk.rename(from, to)
    }

    fn remove(&self, name: FileName) -> io::Result<()> {
        self.0.before_change()?;
        self.0.disk.remove(name)
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        self.0.before_read()?;
        self.0.disk.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.0.before_change()?;
        self.0.disk.sync_dir()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        self.0.before_read().map_err(LockFailure::Io)?;
        self.0.disk.lock()
    }

    fn lock_shared(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        self.0.before_read().map_err(LockFailure::Io)?;
        self.0.disk.lock_shared()
    }

    fn sign(&self, lock: &(dyn Any + Send + Sync)) -> io::Result<()> {
        self.0.before_read()?;
        self.0.disk.sign(lock)
    }

    fn new_directory(&self, path: &Path) -> io::Result<Arc<dyn Disk>> {
        self.0.before_change()?;
        self.0.disk.new_directory(path)
    }

    fn link(&self, name: FileName, into: &dyn Disk) -> io::Result<()> {
        self.0.before_change()?;
        self.0.disk.link(name, into)
    }

    fn queue(&self, depth: usize) -> io::Result<Arc<dyn Queue>> {
        self.0.before_read()?;
        let inner = self.0.disk.queue(depth)?;
        let (writes, refused) = (AtomicU64::new(0), Mutex::default());
        Ok(Arc::new(RecordedQueue { inner, film: Arc::clone(&self.0), writes, refused }))
    }

    fn habitat(&self) -> io::Result<Habitat> {
        self.0.disk.habitat()
    }

    fn now_ns(&self) -> u64 {
        self.0.disk.now_ns()
    }

    fn place(&self) -> String {
        self.0.disk.place()
    }
}

struct RecordedFile {
    inner: Arc<dyn File>,
    film: Arc<Film>,
}

impl std::fmt::Debug for RecordedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordedFile({:?})", self.inner)
    }
}

impl File for RecordedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.film.before_read()?;
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.film.before(Some(Write { name: self.inner.name(), offset, bytes }))?;
        self.inner.write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.film.before_change()?;
        self.inner.sync()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.film.before_change()?;
        self.inner.allocate(len)
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Arc<Mapping>> {
        self.film.before_change()?;
        self.inner.map(offset, len)
    }

    fn changed_ns(&self) -> io::Result<u64> {
        self.film.before_read()?;
        self.inner.changed_ns()
    }

    fn len(&self) -> io::Result<u64> {
        self.film.before_read()?;
        self.inner.len()
    }

    fn name(&self) -> FileName {
        self.inner.name()
    }
}

/// Images are made before a batch with a write in it is submitted, and before it is reaped while writes are
/// in flight: until then each of them may be there, in part or whole, or not.
struct RecordedQueue {
    inner: Arc<dyn Queue>,
    film: Arc<Film>,
    /// In flight.
    writes: AtomicU64,
    refused: Mutex<Vec<Completed>>,
}

impl std::fmt::Debug for RecordedQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordedQueue({:?})", self.inner)
    }
}

impl RecordedQueue {
    fn refuse(&self, transfer: Transfer, error: io::Error) {
        let mut refused = self.refused.lock().expect("nobody panics while holding it");
        refused.push(transfer.complete(Err(error)));
    }
}

impl Queue for RecordedQueue {
    fn submit(&self, transfers: Vec<Transfer>) {
        let changes = transfers.iter().any(|transfer| transfer.work.is_write());
        let before = || if changes { self.film.before_change() } else { self.film.before_read() };
        if before().is_err() {
            let gone = || self.film.before_read().err().unwrap_or_else(|| io::ErrorKind::Other.into());
            return transfers.into_iter().for_each(|transfer| self.refuse(transfer, gone()));
        }
        let mut passed = Vec::with_capacity(transfers.len());
        for mut transfer in transfers {
            match found::<RecordedFile>(&*transfer.file).map(|file| Arc::clone(&file.inner)) {
                Some(file) => {
                    transfer.file = file;
                    self.writes.fetch_add(u64::from(transfer.work.is_write()), Relaxed);
                    passed.push(transfer);
                }
                None => {
                    let error = foreign(transfer.file.name());
                    self.refuse(transfer, error);
                }
            }
        }
        self.inner.submit(passed);
    }

    fn reap(&self, done: &mut Vec<Completed>) {
        let mut refused = std::mem::take(&mut *self.refused.lock().expect("nobody panics while holding it"));
        if !refused.is_empty() {
            return done.append(&mut refused);
        }
        // Whether the disk is gone is asked below, for each.
        let _ = match self.writes.load(Relaxed) {
            0 => self.film.before_read(),
            _ => self.film.before_change(),
        };
        let from = done.len();
        self.inner.reap(done);
        for completed in &mut done[from..] {
            self.writes.fetch_sub(u64::from(completed.work.is_write()), Relaxed);
            // The disk is gone: what becomes of its bytes now is seen by nobody.
            if let Err(error) = self.film.before_read() {
                completed.outcome = Err(error);
            }
        }
    }

    fn means(&self) -> Means {
        self.inner.means()
    }
}

#[cfg(test)]
mod tests;
