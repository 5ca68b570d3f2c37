//! `NativeQueue`: transfers in flight on files of a directory, by threads or by the kernel's rings.
//!
//! What is always true: a transfer in flight holds its file's descriptor open, and its buffer. A process that
//! was forked off touches neither threads nor rings: what it submits fails, and what its parent has in flight
//! is the parent's.

pub(super) mod threads;
#[cfg(target_os = "linux")]
pub(super) mod uring;

use std::{fmt, io, mem, ops::Range, process, sync::Arc};

use kvilt_base::{
    Completed, Means, MeansKind, Queue, Transfer, Work,
    queue::{BLOCK_BYTES, foreign, found},
};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::{Directory, descriptors::Held, node::Node};
use threads::ThreadQueue;
#[cfg(target_os = "linux")]
use uring::RingQueue;

/// By what a queue of a [`crate::NativeDisk`] is to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueBy {
    /// The kernel's rings where it lets us, else threads.
    Best,
    /// Threads.
    Threads,
}

/// See the module.
pub(super) struct NativeQueue {
    directory: Arc<Directory>,
    process: u32,
    backend: Option<Backend>,
    /// What could not be begun.
    refused: Mutex<Vec<Completed>>,
    /// The same in a process that was forked off, where `refused` may have been locked at that moment.
    orphaned: Mutex<Vec<Completed>>,
}

enum Backend {
    Threads(ThreadQueue),
    #[cfg(target_os = "linux")]
    Rings(Box<RingQueue>),
}

/// A transfer that can be begun.
pub(super) struct Checked {
    pub(super) transfer: Transfer,
    pub(super) held: Held,
    pub(super) course: Course,
}

/// How far a transfer has come.
#[derive(Clone, Copy)]
pub(super) struct Course {
    offset: u64,
    len: usize,
    done: usize,
    pub(super) is_direct: bool,
    is_write: bool,
}

impl Backend {
    /// Rings that cannot be had (an old kernel, a container that forbids them, too little memory that may be
    /// locked) are no error: threads do the same.
    fn new(depth: usize, by: QueueBy) -> Self {
        #[cfg(target_os = "linux")]
        if by == QueueBy::Best
            && let Ok(rings) = RingQueue::new(depth)
        {
            return Backend::Rings(Box::new(rings));
        }
        let _ = by;
        Backend::Threads(ThreadQueue::new(depth))
    }
}

impl NativeQueue {
    pub(super) fn new(directory: &Arc<Directory>, depth: usize, by: QueueBy) -> Self {
        NativeQueue {
            directory: directory.clone(),
            process: process::id(),
            backend: Some(Backend::new(depth, by)),
            refused: Mutex::default(),
            orphaned: Mutex::default(),
        }
    }

    fn is_forked(&self) -> bool {
        process::id() != self.process
    }

    fn backend(&self) -> &Backend {
        self.backend.as_ref().expect("it is there until the queue is dropped")
    }

    fn check(&self, transfer: &Transfer) -> io::Result<()> {
        let node = found::<Node>(&*transfer.file).filter(|node| node.is_of(&self.directory));
        node.ok_or_else(|| foreign(transfer.file.name()))?;
        transfer.check()
    }
}

/// The file of a transfer that a queue has checked.
pub(super) fn node_of(transfer: &Transfer) -> &Node {
    found(&*transfer.file).expect("a queue takes no other files")
}

impl Queue for NativeQueue {
    fn submit(&self, transfers: Vec<Transfer>) {
        if self.is_forked() {
            let error = || io::Error::other("the queue is the process's that this one was forked from");
            let failed = transfers.into_iter().map(|transfer| transfer.complete(Err(error())));
            return self.orphaned.lock().extend(failed);
        }
        let mut able = Vec::with_capacity(transfers.len());
        for transfer in transfers {
            match self.check(&transfer) {
                Ok(()) => able.push(transfer),
                Err(error) => self.refused.lock().push(transfer.complete(Err(error))),
            }
        }
        match self.backend() {
            Backend::Threads(threads) => threads.submit(able),
            #[cfg(target_os = "linux")]
            Backend::Rings(rings) => rings.submit(able),
        }
    }

    fn reap(&self, done: &mut Vec<Completed>) {
        if self.is_forked() {
            return done.append(&mut self.orphaned.lock());
        }
        let mut refused = mem::take(&mut *self.refused.lock());
        if !refused.is_empty() {
            return done.append(&mut refused);
        }
        match self.backend() {
            Backend::Threads(threads) => threads.reap(done),
            #[cfg(target_os = "linux")]
            Backend::Rings(rings) => rings.reap(done),
        }
    }

    fn means(&self) -> Means {
        let kind = match self.backend() {
            Backend::Threads(_) => MeansKind::Threads,
            #[cfg(target_os = "linux")]
            Backend::Rings(_) => MeansKind::IoUring,
        };
        Means { kind, is_direct: self.directory.is_direct() }
    }
}

impl Drop for NativeQueue {
    fn drop(&mut self) {
        if self.is_forked() {
            mem::forget(self.backend.take());
        }
    }
}

impl fmt::Debug for NativeQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NativeQueue({:?}, {:?})", self.directory.path, self.means().kind)
    }
}

impl Checked {
    /// Takes hold of the file; where it `may_exceed` our share of descriptors, in any case. An error comes
    /// with the transfer.
    pub(super) fn new(transfer: Transfer, may_exceed: bool) -> Result<Self, (Transfer, io::Error)> {
        let node = node_of(&transfer);
        let begun = node.hold(may_exceed).and_then(|held| {
            if matches!(transfer.work, Work::Write { is_durable: true, .. }) {
                held.check_sync_error()?;
            }
            Ok(held)
        });
        let course = Course {
            offset: transfer.offset,
            len: transfer.work.len(),
            done: 0,
            is_direct: node.is_direct(),
            is_write: transfer.work.is_write(),
        };
        match begun {
            Ok(held) => Ok(Checked { transfer, held, course }),
            Err(error) => Err((transfer, error)),
        }
    }

    /// Counts it, and lets go of the file.
    pub(super) fn complete(self, outcome: io::Result<()>) -> Completed {
        let is_synced = matches!(self.transfer.work, Work::Write { is_durable: true, .. }) && outcome.is_ok();
        if self.transfer.work.is_write() && !is_synced {
            self.held.mark_dirty();
        }
        node_of(&self.transfer).count(self.course.is_write, self.course.done);
        self.transfer.complete(outcome)
    }

    /// A durable write has failed. Nobody knows what the drive has of it, unless there was no room: past the
    /// page cache that is known before anything is written.
    pub(super) fn note_failure(&self, error: Errno) {
        let is_refused = self.course.is_direct && matches!(error, Errno::NOSPC | Errno::DQUOT | Errno::FBIG);
        if !is_refused {
            self.held.keep_sync_error(error);
        }
    }
}

impl Course {
    /// What is to be moved yet.
    pub(super) fn rest(&self) -> Range<usize> {
        self.done..self.len
    }

    /// Where in the file that begins.
    pub(super) fn at(&self) -> u64 {
        self.offset + self.done as u64
    }

    pub(super) fn is_over(&self) -> bool {
        self.done == self.len
    }

    /// A call has moved this many bytes of the rest. `file_len` says how long the file is.
    pub(super) fn advance(
        &mut self,
        moved: usize,
        file_len: impl FnOnce() -> io::Result<u64>,
    ) -> io::Result<()> {
        let end = self.done + moved;
        if moved == 0 {
            let kind = if self.is_write { io::ErrorKind::WriteZero } else { io::ErrorKind::UnexpectedEof };
            return Err(kind.into());
        }
        if !self.is_direct || end.is_multiple_of(BLOCK_BYTES) {
            self.done = end;
            return Ok(());
        }
        // The end of a file that has no whole blocks; or a short call, and its last block is moved again.
        if !self.is_write && self.offset + end as u64 >= file_len()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.done = end - end % BLOCK_BYTES;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use kvilt_base::{Disk as _, File, FileName, disk::FileKind, queue::aligned};

    use super::*;
    use crate::NativeDisk;

    fn course(is_direct: bool, is_write: bool) -> Course {
        Course { offset: 8192, len: 16384, done: 0, is_direct, is_write }
    }

    #[test]
    fn short_calls_are_continued_on_whole_blocks_where_the_file_is_direct() {
        // Of 16384 bytes the first call moves two blocks and a sector, the next a sector.
        for (is_direct, rests) in [(true, [8192..16384, 8192..16384]), (false, [8704..16384, 9216..16384])] {
            let mut course = course(is_direct, false);
            for (moved, rest) in [8704, 512].into_iter().zip(rests) {
                course.advance(moved, || Ok(1 << 20)).unwrap();
                assert_eq!(course.rest(), rest);
                assert!(!course.is_over());
            }
            course.advance(course.rest().len(), || Ok(1 << 20)).unwrap();
            assert!(course.is_over());
        }
    }

    #[test]
    fn nothing_moved_is_the_end_of_a_file_or_a_write_that_cannot_go_on() {
        for is_direct in [true, false] {
            let error = course(is_direct, false).advance(0, || Ok(0)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            let error = course(is_direct, true).advance(0, || Ok(0)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WriteZero);
        }
        let error = course(true, false).advance(5000, || Ok(8192 + 5000)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "an end within a block");
    }

    const SLAB: FileKind = FileKind::direct("slab");

    fn write(file: &Arc<dyn File>, is_durable: bool) -> Transfer {
        let work = Work::Write { bytes: aligned(BLOCK_BYTES).freeze(), is_durable };
        Transfer { token: 1, file: file.clone(), offset: 0, work }
    }

    fn outcome_of(queue: &dyn Queue, transfer: Transfer) -> io::Result<()> {
        queue.submit(vec![transfer]);
        let mut done = Vec::new();
        queue.reap(&mut done);
        done.pop().unwrap().outcome
    }

    #[test]
    fn a_failed_durable_write_is_a_failed_sync_unless_there_was_no_room() {
        for by in [QueueBy::Best, QueueBy::Threads] {
            let place = tempfile::tempdir().unwrap();
            let disk = NativeDisk::open(place.path(), &[SLAB], true).unwrap();
            let queue = disk.queue_by(4, by);
            let file = disk.create(FileName::Of(SLAB, 1)).unwrap();
            let Ok(checked) = Checked::new(write(&file, true), true) else { panic!("it can be begun") };
            if checked.course.is_direct {
                checked.note_failure(Errno::NOSPC);
                outcome_of(&*queue, write(&file, true)).unwrap();
                file.sync().unwrap();
            }
            checked.note_failure(Errno::IO);
            let errors = [outcome_of(&*queue, write(&file, true)), file.sync()];
            for error in errors {
                assert_eq!(error.unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
            }
            outcome_of(&*queue, write(&file, false)).unwrap();
        }
    }

    /// As on ramfs, which no test machine need have mounted.
    #[test]
    fn where_the_file_system_refuses_files_go_through_the_page_cache() {
        for by in [QueueBy::Best, QueueBy::Threads] {
            let place = tempfile::tempdir().unwrap();
            let disk = NativeDisk::open(place.path(), &[SLAB], true).unwrap();
            disk.directory.refuses_direct.store(true, Ordering::Relaxed);
            let (queue, file) = (disk.queue_by(4, by), disk.create(FileName::Of(SLAB, 1)).unwrap());
            assert!(!queue.means().is_direct);
            outcome_of(&*queue, write(&file, true)).unwrap();
            let read = Work::Read(aligned(BLOCK_BYTES));
            outcome_of(&*queue, Transfer { work: read, ..write(&file, false) }).unwrap();
            let odd = outcome_of(&*queue, Transfer { offset: 512, ..write(&file, true) });
            assert_eq!(odd.unwrap_err().kind(), io::ErrorKind::InvalidInput, "the same as elsewhere");
        }
    }

    /// A child has a copy of the queue; here the queue of another process stands for it.
    #[test]
    fn a_forked_process_gets_errors_and_waits_for_nothing() {
        for by in [QueueBy::Best, QueueBy::Threads] {
            let place = tempfile::tempdir().unwrap();
            let disk = NativeDisk::open(place.path(), &[SLAB], true).unwrap();
            let file = disk.create(FileName::Of(SLAB, 1)).unwrap();
            let mut queue = NativeQueue::new(&disk.directory, 4, by);
            queue.submit(vec![write(&file, false)]);
            queue.process += 1;
            assert!(outcome_of(&queue, write(&file, false)).unwrap_err().to_string().contains("forked"));
            let mut done = Vec::new();
            queue.reap(&mut done);
            assert!(done.is_empty(), "what the parent has in flight is the parent's");
            queue.process -= 1;
            queue.reap(&mut done);
            done.pop().unwrap().outcome.unwrap();
        }
    }

    #[test]
    fn a_descriptor_in_flight_is_held_until_the_transfer_is_over_also_when_the_disk_is_closed() {
        let place = tempfile::tempdir().unwrap();
        let disk = NativeDisk::open(place.path(), &[SLAB], true).unwrap();
        let file = disk.create(FileName::Of(SLAB, 1)).unwrap();
        let Ok(checked) = Checked::new(write(&file, true), true) else { panic!("it can be begun") };
        disk.close();
        assert_eq!(checked.held.file_len().unwrap(), 0, "it is open");
        drop(checked);
        assert!(file.len().is_err());
    }
}
