//! `Bystander`: somebody who writes while the background waits for the disk.
//!
//! In a stepped world a step of a worker runs to its end before anything else happens, so nothing could ever
//! come between a checkpoint's cut and its sync, between the reading and the flip of a rewrite, or between a
//! get's read and what it leaves in the row cache. A bystander does: before some of the disk calls of a
//! worker or of a get, and where a worker pauses ([`kvilt_base::Spawn::pause`]), it puts keys, on that very
//! thread, and the seed decides before which. So what real threads meet now and then, scripts meet always,
//! and in the same way each time.
//!
//! What is always true: it comes only where the engine holds no lock that a put could need; what it did is
//! told to the model when the step of the script has ended that let it in. Why so:
//! `docs/design/0030-a-bystander.md`.

use std::{
    any::Any,
    io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use kvilt_base::{
    Completed, Disk, Engine, Error, File, FileName, Level, Listed, Mapping, Means, Queue, Stats, Transfer,
    Work,
    disk::{Habitat, LockFailure},
    queue::{foreign, found},
};
use kvilt_io::Call;

use crate::{
    dice::Dice,
    ledger::Ledger,
    script::{KeyId, Payload},
    subject::Moments,
};

/// It puts before one call in so many.
const TURN: usize = 2;
/// At most so many times.
const PUTS_MAX: usize = 3;
/// Values are at most this long, in bytes: room for them is nearly always there, so that it seldom has to
/// wait.
const VALUE_BYTES_MAX: usize = 60;

/// When it may put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A worker pauses.
    Pause,
    /// Before something is read, by a worker or by a get.
    Read,
    /// Before something is read that a put may come before only if a get reads it.
    ReadByGet,
    /// Before something is written or synced that a put does not wait for.
    Making,
}

/// While the background works.
pub const WHILE_WORKING: &[Moment] = &[Moment::Pause, Moment::Read, Moment::Making];
/// While somebody gets a key.
pub const WHILE_GETTING: &[Moment] = &[Moment::Read, Moment::ReadByGet];

/// One who may stand by; at most one at a time.
#[derive(Default)]
pub struct Bystander {
    presence: Mutex<Option<Presence>>,
    is_putting: AtomicBool,
}

/// Bytes of keys after which it puts no more: the worker that waits makes no room meanwhile, so a put of keys
/// that fill what room there is would be refused in the end.
const KEY_BYTES_MAX: usize = 16 << 10;

/// A bystander with a store to write to, and what it has done.
pub struct Presence {
    /// The store.
    pub engine: Arc<dyn Engine>,
    /// Where among disk calls somebody may put.
    pub moments: Moments,
    /// Whether a put would wait, which on this thread would be for ever.
    pub would_wait: fn(&Stats) -> bool,
    /// When it puts.
    pub waits_for: Vec<Moment>,
    /// The store's keys.
    pub keys: Arc<Vec<Vec<u8>>>,
    /// The only one that it puts, if it has no choice.
    pub key: Option<KeyId>,
    /// What the store promises.
    pub level: Level,
    /// Where its puts are counted.
    pub ledger: Arc<Ledger>,
    /// Chance.
    pub dice: Dice,
    /// Its puts, in order.
    pub puts: Vec<(KeyId, Payload)>,
    /// Bytes of their keys.
    pub key_bytes: usize,
    /// Why the last of them was refused, if it was.
    pub refused: Option<Error>,
}

impl Bystander {
    /// Stands by from now on.
    pub fn enter(&self, presence: Presence) {
        *self.presence() = Some(presence);
    }

    /// Goes away, and tells what was done.
    pub fn leave(&self) -> Option<Presence> {
        self.presence().take()
    }

    /// Where a worker pauses.
    pub fn look(&self) {
        self.look_at(|_| Some(Moment::Pause));
    }

    /// Before a call that waits for the disk.
    fn look_before(&self, call: Call, name: FileName) {
        self.look_at(|presence| (presence.moments)(call, name));
    }

    /// While it puts it is not there: the calls of its own puts pass.
    fn look_at(&self, moment: impl FnOnce(&Presence) -> Option<Moment>) {
        let Some(mut presence) = self.leave() else { return };
        if moment(&presence).is_some_and(|moment| presence.waits_for.contains(&moment)) {
            // Relaxed: one thread.
            self.is_putting.store(true, Relaxed);
            presence.may_put();
            self.is_putting.store(false, Relaxed);
        }
        self.enter(presence);
    }

    /// Whether it is putting just now. Its puts are helped by no worker, whose step could wait for a lock
    /// that the call holds before which it came.
    pub fn is_putting(&self) -> bool {
        self.is_putting.load(Relaxed)
    }

    fn presence(&self) -> std::sync::MutexGuard<'_, Option<Presence>> {
        // A panic of the engine under its put is told by whoever catches it.
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presence {
    fn may_put(&mut self) {
        if !self.dice.chance(1, TURN) {
            return;
        }
        for _ in 0..self.dice.between(1, PUTS_MAX) {
            let is_let_in = self.refused.is_none() && self.key_bytes < KEY_BYTES_MAX;
            if is_let_in && !(self.would_wait)(&self.engine.stats()) {
                self.put();
            }
        }
    }

    fn put(&mut self) {
        let key = self.key.map_or_else(|| self.dice.below(self.keys.len()), usize::from);
        // Above all numbers of scripts.
        let number = self.dice.number() as u32 | 1 << 31;
        let value = Payload { number, bytes: self.dice.between(4, VALUE_BYTES_MAX) as u32 };
        self.puts.push((key as KeyId, value));
        self.key_bytes += self.keys[key].len();
        self.ledger.begin(self.level);
        match self.engine.put(&self.keys[key], &value.expanded()) {
            Ok(()) => self.ledger.acknowledge(self.level),
            Err(error) => self.refused = Some(error),
        }
    }
}

/// A disk with a bystander.
#[derive(Clone)]
pub struct Attended {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Who stands by.
    pub bystander: Arc<Bystander>,
}

impl Attended {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(AttendedFile { file, bystander: Arc::clone(&self.bystander) })
    }
}

impl std::fmt::Debug for Attended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Attended({:?})", self.disk)
    }
}

impl Disk for Attended {
    fn create(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.disk.create(name).map(|file| self.file(file))
    }

    fn open(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.disk.open(name).map(|file| self.file(file))
    }

    fn rename(&self, from: FileName, to: FileName) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: FileName) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        self.disk.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        self.disk.lock()
    }

    fn lock_shared(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        self.disk.lock_shared()
    }

    fn sign(&self, lock: &(dyn Any + Send + Sync)) -> io::Result<()> {
        self.disk.sign(lock)
    }

    fn new_directory(&self, path: &Path) -> io::Result<Arc<dyn Disk>> {
        self.disk.new_directory(path)
    }

    fn link(&self, name: FileName, into: &dyn Disk) -> io::Result<()> {
        self.disk.link(name, into)
    }

    fn queue(&self, depth: usize) -> io::Result<Arc<dyn Queue>> {
        let queue = self.disk.queue(depth)?;
        let (bystander, refused) = (Arc::clone(&self.bystander), Mutex::default());
        Ok(Arc::new(AttendedQueue { queue, bystander, refused }))
    }

    fn habitat(&self) -> io::Result<Habitat> {
        self.disk.habitat()
    }

    fn now_ns(&self) -> u64 {
        self.disk.now_ns()
    }

    fn place(&self) -> String {
        self.disk.place()
    }

    fn as_any(&self) -> Option<&dyn Any> {
        self.disk.as_any()
    }
}

struct AttendedFile {
    file: Arc<dyn File>,
    bystander: Arc<Bystander>,
}

impl std::fmt::Debug for AttendedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AttendedFile({:?})", self.file)
    }
}

impl File for AttendedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.bystander.look_before(Call::Read, self.name());
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.bystander.look_before(Call::Write, self.name());
        self.file.write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.bystander.look_before(Call::Sync, self.name());
        self.file.sync()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Arc<Mapping>> {
        self.file.map(offset, len)
    }

    fn changed_ns(&self) -> io::Result<u64> {
        self.file.changed_ns()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn name(&self) -> FileName {
        self.file.name()
    }
}

/// A queue with a bystander: it comes before a batch is submitted, as before the calls of its first transfer.
#[derive(Debug)]
struct AttendedQueue {
    queue: Arc<dyn Queue>,
    bystander: Arc<Bystander>,
    refused: Mutex<Vec<Completed>>,
}

impl std::fmt::Debug for Bystander {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bystander")
    }
}

impl AttendedQueue {
    fn refused(&self) -> std::sync::MutexGuard<'_, Vec<Completed>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue for AttendedQueue {
    fn submit(&self, transfers: Vec<Transfer>) {
        let mut passed = Vec::with_capacity(transfers.len());
        for mut transfer in transfers {
            match found::<AttendedFile>(&*transfer.file).map(|file| Arc::clone(&file.file)) {
                Some(file) => {
                    transfer.file = file;
                    passed.push(transfer);
                }
                None => {
                    let error = foreign(transfer.file.name());
                    self.refused().push(transfer.complete(Err(error)));
                }
            }
        }
        let Some(first) = passed.first() else { return };
        let call = if matches!(first.work, Work::Read(_)) { Call::QueueRead } else { Call::QueueWrite };
        self.bystander.look_before(call, first.file.name());
        self.queue.submit(passed);
    }

    fn reap(&self, done: &mut Vec<Completed>) {
        let before = done.len();
        done.append(&mut self.refused());
        if done.len() == before {
            self.queue.reap(done);
        }
    }

    fn means(&self) -> Means {
        self.queue.means()
    }
}

#[cfg(test)]
mod tests {
    use kvilt_base::disk::FileKind;
    use kvilt_io::MemoryDisk;

    use super::*;

    #[test]
    fn an_attended_queue_passes_its_own_files_on_and_refuses_others() {
        let memory = MemoryDisk::new(1);
        let name = FileName::Of(FileKind::new("log"), 1);
        let disk = Attended { disk: memory.clone(), bystander: Arc::default() };
        let (file, queue) = (disk.create(name).unwrap(), disk.queue(4).unwrap());
        let write = |token, file: &Arc<dyn File>| {
            let work = Work::Write { bytes: vec![7; 4].into(), is_durable: false };
            Transfer { token, file: Arc::clone(file), offset: token, work }
        };
        queue.submit(vec![write(0, &file), write(9, &memory.open(name).unwrap()), write(4, &file)]);
        let mut done = Vec::new();
        while done.len() < 3 {
            queue.reap(&mut done);
        }
        for completed in done {
            assert_eq!(completed.outcome.is_ok(), completed.token != 9, "{}", completed.token);
        }
        assert_eq!(memory.contents(name).unwrap(), [7; 8]);
    }
}
