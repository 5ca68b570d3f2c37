//! `ThreadQueue`: a pool of threads that read and write at positions.
//!
//! Threads are started when there is more in flight than there are of them, and end when the queue is
//! dropped. Where the system gives no thread, the caller that reaps does the work.

use std::{
    collections::VecDeque,
    io, mem,
    os::fd::AsFd as _,
    sync::Arc,
    thread::{self, JoinHandle},
};

use kvilt_base::{Completed, Transfer, Work};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::{super::descriptors::is_out_of_descriptors, Checked, Course};

/// Threads that one queue has at most: each takes a stack and a place in the scheduler, and more of them
/// bring little.
const THREADS_MAX: usize = 16;

/// See the module.
pub(in crate::native_disk) struct ThreadQueue {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    threads_max: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Told when there is work, or never will be.
    has_work: Condvar,
    /// Told when a transfer has completed.
    has_completed: Condvar,
    /// The same, for threads that wait for a descriptor.
    has_let_go: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Transfer>,
    /// How many are being done.
    under_way: usize,
    /// How many times one was begun.
    begun: u64,
    done: Vec<Completed>,
    is_closing: bool,
}

impl State {
    fn in_flight(&self) -> usize {
        self.waiting.len() + self.under_way
    }
}

impl ThreadQueue {
    pub(super) fn new(depth: usize) -> Self {
        ThreadQueue {
            shared: Arc::default(),
            threads: Mutex::default(),
            threads_max: depth.clamp(1, THREADS_MAX),
        }
    }

    pub(super) fn submit(&self, transfers: Vec<Transfer>) {
        let count = transfers.len();
        let in_flight = {
            let mut state = self.shared.state.lock();
            state.waiting.extend(transfers);
            state.in_flight()
        };
        self.start_threads(in_flight);
        for _ in 0..count.min(self.threads_max) {
            self.shared.has_work.notify_one();
        }
    }

    fn start_threads(&self, in_flight: usize) {
        let mut threads = self.threads.lock();
        while threads.len() < in_flight.min(self.threads_max) {
            let shared = self.shared.clone();
            let started = thread::Builder::new().name("kvilt-queue".to_owned()).spawn(move || shared.work());
            match started {
                Ok(thread) => threads.push(thread),
                // Those that there are do it, or the caller that reaps.
                Err(_) => break,
            }
        }
    }

    pub(super) fn reap(&self, done: &mut Vec<Completed>) {
        let has_threads = !self.threads.lock().is_empty();
        let mut state = self.shared.state.lock();
        while state.done.is_empty() && state.in_flight() > 0 {
            if has_threads {
                self.shared.has_completed.wait(&mut state);
            } else if let Some(transfer) = state.waiting.pop_front() {
                drop(state);
                done.push(perform_alone(transfer));
                return;
            }
        }
        done.append(&mut state.done);
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        self.shared.state.lock().is_closing = true;
        self.shared.has_work.notify_all();
        for thread in mem::take(self.threads.get_mut()) {
            // Its panic was reported when it came.
            let _ = thread.join();
        }
        // Where no thread was given.
        let waiting = mem::take(&mut self.shared.state.lock().waiting);
        waiting.into_iter().for_each(|transfer| drop(perform_alone(transfer)));
    }
}

impl Shared {
    /// The life of a thread: until nothing waits and nothing will.
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            let Some(transfer) = state.waiting.pop_front() else {
                if state.is_closing {
                    return;
                }
                self.has_work.wait(&mut state);
                continue;
            };
            state.under_way += 1;
            state.begun += 1;
            let (is_alone, begun) = (state.under_way == 1, state.begun);
            drop(state);
            let performed = perform(transfer, is_alone);
            state = self.state.lock();
            state.under_way -= 1;
            let completed = match performed {
                Ok(completed) => completed,
                Err((transfer, error)) if is_alone && state.begun == begun => transfer.complete(Err(error)),
                // Others have descriptors, or had them meanwhile.
                Err((transfer, _)) => {
                    state.waiting.push_front(transfer);
                    if state.under_way > 0 {
                        self.has_let_go.wait(&mut state);
                    }
                    continue;
                }
            };
            state.done.push(completed);
            self.has_completed.notify_all();
            self.has_let_go.notify_all();
        }
    }
}

/// Does it; gives it back if there is no descriptor for it. Only if it `is_alone` it may exceed our share of
/// them.
fn perform(transfer: Transfer, is_alone: bool) -> Result<Completed, (Transfer, io::Error)> {
    match Checked::new(transfer, is_alone) {
        Ok(mut checked) => {
            let outcome = checked.perform();
            Ok(checked.complete(outcome))
        }
        Err((transfer, error)) if is_out_of_descriptors(&error) => Err((transfer, error)),
        Err((transfer, error)) => Ok(transfer.complete(Err(error))),
    }
}

/// The same without threads: nobody else will let a descriptor go.
fn perform_alone(transfer: Transfer) -> Completed {
    perform(transfer, true).unwrap_or_else(|(transfer, error)| transfer.complete(Err(error)))
}

impl Checked {
    fn perform(&mut self) -> io::Result<()> {
        let Checked { transfer, held, course } = self;
        match &mut transfer.work {
            Work::Read(buffer) => {
                while !course.is_over() {
                    let rest = &mut buffer[course.rest()];
                    match rustix::io::pread(&*held, rest, course.at()) {
                        Ok(read) => course.advance(read, || held.file_len())?,
                        Err(Errno::INTR | Errno::AGAIN) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(())
            }
            Work::Write { bytes, is_durable } => {
                let bytes = bytes.clone();
                let is_durable = *is_durable;
                self.write(&bytes, is_durable)
            }
        }
    }

    fn write(&mut self, bytes: &[u8], is_durable: bool) -> io::Result<()> {
        let mut syncs_apart = is_durable && !self.course.is_direct;
        let mut syncs_within = is_durable && self.course.is_direct;
        while !self.course.is_over() {
            let rest = &bytes[self.course.rest()];
            match write_at(self.held.as_fd(), rest, self.course, syncs_within) {
                Ok(written) => self.course.advance(written, || self.held.file_len())?,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) if syncs_within => {
                    (syncs_apart, syncs_within) = (true, false);
                }
                Err(error) => {
                    if syncs_within {
                        self.note_failure(error);
                    }
                    return Err(error.into());
                }
            }
        }
        if syncs_apart { self.held.sync() } else { Ok(()) }
    }
}

fn write_at(
    fd: std::os::fd::BorrowedFd<'_>,
    bytes: &[u8],
    course: Course,
    is_durable: bool,
) -> rustix::io::Result<usize> {
    #[cfg(target_os = "linux")]
    if is_durable {
        let flags = rustix::io::ReadWriteFlags::DSYNC;
        return rustix::io::pwritev2(fd, &[io::IoSlice::new(bytes)], course.at(), flags);
    }
    if is_durable {
        return Err(Errno::NOSYS);
    }
    rustix::io::pwrite(fd, bytes, course.at())
}
