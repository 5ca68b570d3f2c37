//! The process's one cache of descriptors: at most half of `RLIMIT_NOFILE` of them are ours.
//!
//! Each open file has a `Slot`, which holds a descriptor or none. Slots that hold one stand in a ring; a hand
//! goes round it (CLOCK: who was used since the hand last came is passed over) and closes descriptors to make
//! room.
//!
//! What is always true: a descriptor is closed only while nobody uses or holds it, and only when all that was
//! written through it has been synced. If that sync fails, the slot keeps the error, and every later sync of
//! the file fails with it (D-5). The limit is soft for files whose names are gone: their descriptors stay
//! open, since nothing could open them again.
//!
//! Lock order: a slot's descriptor, then the ring. The hand only *tries* to lock slots, holding no ring.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use rustix::{
    fs,
    io::Errno,
    process::{Resource, getrlimit},
};

/// A slot that is not in the ring.
const NOWHERE: usize = usize::MAX;

/// Fewest descriptors that we work with, however low the limit.
const OPEN_MIN: usize = 4;

/// Candidates that one search for room looks at before it gives up; each may be in use by then.
const EVICTION_TRIES: usize = 16;

static RING: Mutex<Ring> = Mutex::new(Ring { slots: Vec::new(), hand: 0 });

struct Ring {
    slots: Vec<Arc<Slot>>,
    hand: usize,
}

/// How many descriptors of files this process holds through its [`crate::NativeDisk`]s. Directories and locks
/// are not among them.
pub fn open_descriptors() -> usize {
    RING.lock().slots.len()
}

/// Runs `open`; if the process or the system is out of descriptors, closes one of ours and tries once more.
pub(super) fn open_within_limit<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match open() {
        Err(error) if is_out_of_descriptors(&error) && evict_one() => open(),
        outcome => outcome,
    }
}

pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Who a slot belongs to: one directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner(u64);

impl Owner {
    /// One that nobody is yet.
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Owner(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Closes the descriptors of all its slots, synced or not.
    pub(super) fn close_all(self) {
        // The ring's lock comes after a slot's, so it is not held while they are closed.
        let slots: Vec<_> = RING.lock().slots.iter().filter(|slot| slot.owner == self).cloned().collect();
        slots.iter().for_each(|slot| slot.close());
    }
}

/// A file's descriptor, when it has one, and what must be remembered when it has none.
pub(super) struct Slot {
    owner: Owner,
    fd: RwLock<Option<Arc<OwnedFd>>>,
    /// How many [`Held`] there are of it. Grows only under the shared lock.
    holds: AtomicUsize,
    /// Used since the hand last came by.
    is_used: AtomicBool,
    /// Something may have been written since the last good sync.
    is_dirty: AtomicBool,
    /// The file cannot be opened again: keep the descriptor.
    is_pinned: AtomicBool,
    /// The first failed sync, as the system numbers it; 0 for none.
    sync_error: AtomicI32,
    /// Where it stands in the ring; changes only under the ring's lock.
    position: AtomicUsize,
}

impl Slot {
    /// A slot without a descriptor.
    pub(super) fn closed(owner: Owner) -> Arc<Self> {
        Arc::new(Slot {
            owner,
            fd: RwLock::default(),
            holds: AtomicUsize::default(),
            is_used: AtomicBool::default(),
            is_dirty: AtomicBool::default(),
            is_pinned: AtomicBool::default(),
            sync_error: AtomicI32::default(),
            position: AtomicUsize::new(NOWHERE),
        })
    }

    /// A slot with this one, made just now.
    pub(super) fn with_fd(owner: Owner, fd: OwnedFd) -> Arc<Self> {
        let slot = Slot::closed(owner);
        slot.admit(&mut slot.fd.write(), fd);
        slot
    }

    /// Calls `call` with the descriptor, which `reopen` makes if need be.
    pub(super) fn with<T>(
        self: &Arc<Self>,
        reopen: impl Fn() -> io::Result<OwnedFd>,
        call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.with_owned(reopen, |fd| call(fd.as_fd()))
    }

    /// Keeps the descriptor, which `reopen` makes if need be, open while the returned value is there. Many
    /// may be held, and none of those can be closed: only where it `may_exceed` our share is one opened
    /// beyond that, else it is `EMFILE`.
    pub(super) fn hold(
        self: &Arc<Self>,
        may_exceed: bool,
        reopen: impl Fn() -> io::Result<OwnedFd>,
    ) -> io::Result<Held> {
        let reopen_within = || {
            if !may_exceed && open_descriptors() >= open_max() && !evict_one() {
                return Err(Errno::MFILE.into());
            }
            reopen()
        };
        self.with_owned(reopen_within, |fd| {
            // Relaxed: who evicts has the exclusive lock, which comes after our shared one.
            self.holds.fetch_add(1, Ordering::Relaxed);
            Ok(Held { slot: self.clone(), fd: fd.clone() })
        })
    }

    fn with_owned<T>(
        self: &Arc<Self>,
        reopen: impl Fn() -> io::Result<OwnedFd>,
        call: impl FnOnce(&Arc<OwnedFd>) -> io::Result<T>,
    ) -> io::Result<T> {
        // Relaxed: a hint to the hand. Looked at first, so that readers do not fight for the line.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        let guard = self.fd.read();
        if let Some(fd) = &*guard {
            return call(fd);
        }
        drop(guard);
        let mut guard = self.fd.write();
        if guard.is_none() {
            let fd = open_within_limit(reopen)?;
            self.admit(&mut guard, fd);
        }
        let guard = RwLockWriteGuard::downgrade(guard);
        call(guard.as_ref().expect("admitted above, and held since"))
    }

    /// Puts the descriptor in and the slot into the ring, and makes room for it elsewhere.
    fn admit(self: &Arc<Self>, guard: &mut RwLockWriteGuard<'_, Option<Arc<OwnedFd>>>, fd: OwnedFd) {
        **guard = Some(Arc::new(fd));
        let open = {
            let mut ring = RING.lock();
            // Relaxed: under the ring's lock.
            self.position.store(ring.slots.len(), Ordering::Relaxed);
            ring.slots.push(self.clone());
            ring.slots.len()
        };
        for _ in open_max()..open {
            if !evict_one() {
                break;
            }
        }
    }

    /// Something was written. To be called after the write, while the descriptor is still held: a sync that
    /// clears the mark in between has covered the write, so the mark is at worst superfluous.
    pub(super) fn mark_dirty(&self) {
        // Relaxed: the evictor reads it under the exclusive lock, which orders it after our shared one.
        self.is_dirty.store(true, Ordering::Relaxed);
    }

    /// Syncs through `fd`. Once it has failed, it fails for ever (D-5).
    pub(super) fn sync(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.check_sync_error()?;
        // Relaxed: see `mark_dirty`.
        self.is_dirty.store(false, Ordering::Relaxed);
        if let Err(error) = rustix::io::retry_on_intr(|| fs::fdatasync(fd)) {
            self.keep_sync_error(error);
        }
        self.check_sync_error()
    }

    /// A sync has failed.
    fn keep_sync_error(&self, error: Errno) {
        // Relaxed: nothing else hangs on it.
        self.sync_error.store(error.raw_os_error(), Ordering::Relaxed);
    }

    fn check_sync_error(&self) -> io::Result<()> {
        match self.sync_error.load(Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Keeps the descriptor from now on, if there is one now.
    pub(super) fn pin(&self) {
        // Relaxed: whoever closes looks under the exclusive lock; the caller takes the lock next.
        self.is_pinned.store(true, Ordering::Relaxed);
    }

    /// Takes [`Slot::pin`] back.
    pub(super) fn unpin(&self) {
        self.is_pinned.store(false, Ordering::Relaxed);
    }

    /// Closes the descriptor for good, synced or not: nobody has the file open any more, or its directory is
    /// closed. One that is held is closed when it is let go.
    pub(super) fn close(&self) {
        let mut guard = self.fd.write();
        if let Some(fd) = guard.take() {
            RING.lock().take_out(self);
            drop(fd);
        }
    }

    /// Closes the descriptor to make room; false if it is in use, pinned or gone.
    fn evict(&self) -> bool {
        let Some(mut guard) = self.fd.try_write() else {
            return false;
        };
        // Acquire: what its holders wrote and marked is seen below.
        if self.is_pinned.load(Ordering::Relaxed) || self.holds.load(Ordering::Acquire) > 0 {
            return false;
        }
        let Some(fd) = guard.take() else {
            return false;
        };
        if self.is_dirty.load(Ordering::Relaxed) {
            // An error is kept in the slot, and told to the next who syncs.
            let _ = self.sync(fd.as_fd());
        }
        RING.lock().take_out(self);
        drop(fd);
        true
    }
}

/// A descriptor that stays open.
pub(super) struct Held {
    slot: Arc<Slot>,
    fd: Arc<OwnedFd>,
}

impl Held {
    /// See [`Slot::mark_dirty`].
    pub(super) fn mark_dirty(&self) {
        self.slot.mark_dirty();
    }

    /// See [`Slot::sync`].
    pub(super) fn sync(&self) -> io::Result<()> {
        self.slot.sync(self.fd.as_fd())
    }

    /// Fails if a sync has failed.
    pub(super) fn check_sync_error(&self) -> io::Result<()> {
        self.slot.check_sync_error()
    }

    /// A sync by other means than [`Held::sync`] has failed.
    pub(super) fn keep_sync_error(&self, error: Errno) {
        self.slot.keep_sync_error(error);
    }

    /// How long the file is, in bytes.
    pub(super) fn file_len(&self) -> io::Result<u64> {
        Ok(u64::try_from(fs::fstat(&self.fd)?.st_size).unwrap_or(0))
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Release: see `evict`.
        self.slot.holds.fetch_sub(1, Ordering::Release);
    }
}

impl Ring {
    /// Takes a slot out; the last one takes its place.
    fn take_out(&mut self, slot: &Slot) {
        let position = slot.position.swap(NOWHERE, Ordering::Relaxed);
        assert!(position < self.slots.len(), "a slot with a descriptor is in the ring");
        self.slots.swap_remove(position);
        if let Some(moved) = self.slots.get(position) {
            moved.position.store(position, Ordering::Relaxed);
        }
    }

    /// The next slot whose descriptor may go: in the first two rounds only one with nothing to sync.
    fn candidate(&mut self) -> Option<Arc<Slot>> {
        let count = self.slots.len();
        for step in 0..3 * count {
            self.hand = (self.hand + 1) % count;
            let slot = &self.slots[self.hand];
            // Who is locked is in use, or being closed already: to pick it again and again would spare the
            // rest.
            let is_spared = slot.fd.is_locked()
                || slot.is_pinned.load(Ordering::Relaxed)
                || slot.holds.load(Ordering::Relaxed) > 0
                || slot.is_used.swap(false, Ordering::Relaxed)
                || (step < 2 * count && slot.is_dirty.load(Ordering::Relaxed));
            if !is_spared {
                return Some(slot.clone());
            }
        }
        None
    }
}

/// Closes one descriptor; false if none can be closed now.
fn evict_one() -> bool {
    for _ in 0..EVICTION_TRIES {
        let Some(slot) = RING.lock().candidate() else {
            return false;
        };
        if slot.evict() {
            return true;
        }
    }
    false
}

/// Half of what the process may have. Asked anew each time: the limit may change, and the question is cheap
/// beside an open.
fn open_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 2).unwrap_or(usize::MAX).max(OPEN_MIN)
}

#[cfg(test)]
mod tests;
