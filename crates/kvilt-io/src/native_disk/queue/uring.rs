//! `RingQueue`: transfers by the kernel's rings (`io_uring`), a system call for each batch.
//!
//! A batch is written to the submission ring and handed over by one call; a reap makes one call that waits
//! until something has completed. Nothing here spins.
//!
//! What is always true: the kernel is given the address of a buffer, and the descriptor, of a transfer that
//! is in its place in `places`, and it leaves there only when the kernel has said that it is done with it.
//! Both rings are touched under the lock alone. There is never more in the kernel than there are places, so
//! neither ring runs over.
//!
//! Lock order: the reaper's, then the state's, then those of descriptors.
#![expect(unsafe_code, reason = "the kernel reads and writes buffers by their addresses")]

use std::{
    collections::VecDeque,
    io, mem,
    os::fd::{AsFd as _, AsRawFd as _},
    thread,
};

use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue, types};
use kvilt_base::{Completed, Transfer, Work};
use parking_lot::Mutex;
use rustix::io::{Errno, ReadWriteFlags};

use super::{super::descriptors::is_out_of_descriptors, Checked};

/// Transfers of one queue that the kernel has at most: what it allows in one ring is more, and no drive has
/// use for that.
const DEPTH_MAX: usize = 4096;

/// See the module.
pub(in crate::native_disk) struct RingQueue {
    ring: IoUring,
    state: Mutex<State>,
    /// Held by the one who waits for the kernel.
    reaper: Mutex<()>,
}

struct State {
    /// Those that the kernel has, by the number that it knows them by.
    places: Vec<Option<Flying>>,
    /// Numbers of places without any.
    free: Vec<usize>,
    /// Those for which there is no place yet.
    waiting: VecDeque<Transfer>,
    /// Those that could not be begun, or had nothing to do.
    done: Vec<Completed>,
}

/// A transfer that the kernel has.
struct Flying {
    checked: Checked,
    stage: Stage,
    /// A call that would have waited was refused: now a worker of the kernel makes it, and waits.
    is_patient: bool,
}

/// What the kernel does with it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Reads, or writes.
    Move,
    /// Writes, and completes when that is durable.
    MoveDurably,
    /// Writes; a sync is to follow.
    MoveBeforeSync,
    /// Syncs.
    Sync,
}

impl RingQueue {
    /// Errors: whatever keeps this process from using rings.
    pub(super) fn new(depth: usize) -> io::Result<Self> {
        let depth = depth.clamp(1, DEPTH_MAX);
        let ring = IoUring::builder().dontfork().build(depth as u32)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE];
        // Without the feature the kernel may forget what has completed.
        if !needed.iter().all(|code| probe.is_supported(*code)) || !ring.params().is_feature_nodrop() {
            return Err(Errno::NOSYS.into());
        }
        let state = State {
            places: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::new(),
            done: Vec::new(),
        };
        Ok(RingQueue { ring, state: Mutex::new(state), reaper: Mutex::default() })
    }

    pub(super) fn submit(&self, transfers: Vec<Transfer>) {
        let mut state = self.state.lock();
        state.waiting.extend(transfers);
        self.begin(&mut state);
        // What the kernel does not take now is handed over again by the next reap.
        let _ = self.hand_over(&mut state);
    }

    pub(super) fn reap(&self, done: &mut Vec<Completed>) {
        let _reaper = self.reaper.lock();
        loop {
            let mut state = self.state.lock();
            self.drain(&mut state);
            self.begin(&mut state);
            let handed_over = self.hand_over(&mut state);
            if !state.done.is_empty() {
                return done.append(&mut state.done);
            }
            if state.in_kernel() == 0 {
                return;
            }
            drop(state);
            match handed_over {
                Ok(()) => self.wait(),
                // Out of memory for a moment.
                Err(_) => thread::yield_now(),
            }
        }
    }

    /// Begins what there are places for.
    fn begin(&self, state: &mut State) {
        while !state.free.is_empty() {
            let Some(transfer) = state.waiting.pop_front() else { return };
            let is_alone = state.in_kernel() == 0;
            match Checked::new(transfer, is_alone) {
                Ok(checked) => {
                    let stage = Stage::first(&checked);
                    self.go_on(state, Flying { checked, stage, is_patient: false });
                }
                // What is in flight gives its descriptors back.
                Err((transfer, error)) if is_out_of_descriptors(&error) && !is_alone => {
                    return state.waiting.push_front(transfer);
                }
                Err((transfer, error)) => state.done.push(transfer.complete(Err(error))),
            }
        }
    }

    /// Gives the kernel the next part of a transfer, or completes it.
    fn go_on(&self, state: &mut State, mut flying: Flying) {
        if flying.checked.course.is_over() && flying.stage != Stage::Sync {
            if flying.stage != Stage::MoveBeforeSync {
                return state.done.push(flying.checked.complete(Ok(())));
            }
            flying.stage = Stage::Sync;
        }
        let number = state.free.pop().expect("a place is free for each that goes on");
        let entry = flying.entry().user_data(number as u64);
        state.places[number] = Some(flying);
        // SAFETY: the lock of the state is held, and it is held wherever this is called.
        let mut submission = unsafe { self.ring.submission_shared() };
        // SAFETY: descriptor and buffer are in their place from the line above on, and stay, neither moved
        // nor changed nor given away, until the kernel has completed the entry.
        let pushed = unsafe { submission.push(&entry) };
        pushed.expect("the ring has as many entries as there are places");
    }

    /// Hands what was written to the submission ring to the kernel, by one call.
    fn hand_over(&self, _state: &mut State) -> io::Result<()> {
        loop {
            // SAFETY: the lock of the state is held, see the argument.
            let is_empty = unsafe { self.ring.submission_shared() }.is_empty();
            if is_empty {
                return Ok(());
            }
            match self.ring.submit() {
                Ok(0) => return Err(Errno::AGAIN.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until something has completed, or a signal comes.
    fn wait(&self) {
        // SAFETY: nothing is submitted, and there is no argument that the kernel could look at.
        let waited = unsafe { self.ring.submitter().enter::<()>(0, 1, EnterFlags::GETEVENTS.bits(), None) };
        // What went wrong goes wrong again, or was a signal.
        drop(waited);
    }

    /// Takes what has completed.
    fn drain(&self, state: &mut State) {
        // SAFETY: the lock of the state is held, and it is held wherever this is called.
        let completion = unsafe { self.ring.completion_shared() };
        // Copied, so that the ring is free for what goes on.
        let entries: Vec<cqueue::Entry> = completion.collect();
        for entry in entries {
            let number = usize::try_from(entry.user_data()).expect("it is the number of a place");
            let flying = state.places[number].take().expect("the kernel completes what it has, once");
            state.free.push(number);
            self.take(state, flying, entry.result());
        }
    }

    /// The kernel is done with a part of a transfer.
    fn take(&self, state: &mut State, mut flying: Flying, result: i32) {
        let outcome = match usize::try_from(result) {
            Ok(_) if flying.stage == Stage::Sync => {
                return state.done.push(flying.checked.complete(Ok(())));
            }
            Ok(moved) => {
                let Checked { course, held, .. } = &mut flying.checked;
                course.advance(moved, || held.file_len())
            }
            Err(_) => flying.take_error(Errno::from_raw_os_error(-result)),
        };
        match outcome {
            Ok(()) => self.go_on(state, flying),
            Err(error) => state.done.push(flying.checked.complete(Err(error))),
        }
    }
}

impl State {
    fn in_kernel(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

impl Stage {
    fn first(checked: &Checked) -> Stage {
        match checked.transfer.work {
            Work::Write { is_durable: true, .. } if checked.course.is_direct => Stage::MoveDurably,
            Work::Write { is_durable: true, .. } => Stage::MoveBeforeSync,
            Work::Write { .. } | Work::Read(_) => Stage::Move,
        }
    }
}

impl Flying {
    /// What the kernel is to do.
    fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.checked.held.as_fd().as_raw_fd());
        let course = self.checked.course;
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let entry = match (self.stage, &mut self.checked.transfer.work) {
            (Stage::Sync, _) => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            (_, Work::Read(buffer)) => {
                let rest = &mut buffer[course.rest()];
                opcode::Read::new(fd, rest.as_mut_ptr(), len(rest)).offset(course.at()).build()
            }
            (stage, Work::Write { bytes, .. }) => {
                let rest = &bytes[course.rest()];
                let is_durable = stage == Stage::MoveDurably;
                let flags = if is_durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
                let write = opcode::Write::new(fd, rest.as_ptr(), len(rest)).offset(course.at());
                write.rw_flags(flags.bits() as i32).build()
            }
        };
        if self.is_patient { entry.flags(squeue::Flags::ASYNC) } else { entry }
    }

    /// The kernel has failed. Ok if it is to try again.
    fn take_error(&mut self, error: Errno) -> io::Result<()> {
        match error {
            // The last: the thread that submitted it has ended.
            Errno::INTR | Errno::CANCELED => return Ok(()),
            Errno::AGAIN => {
                self.is_patient = true;
                return Ok(());
            }
            Errno::OPNOTSUPP | Errno::NOSYS if self.stage == Stage::MoveDurably => {
                self.stage = Stage::MoveBeforeSync;
                return Ok(());
            }
            _ => {}
        }
        match self.stage {
            Stage::Move | Stage::MoveBeforeSync => {}
            Stage::MoveDurably => self.checked.note_failure(error),
            Stage::Sync => self.checked.held.keep_sync_error(error),
        }
        Err(error.into())
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        loop {
            self.reap(&mut done);
            if mem::take(&mut done).is_empty() {
                return;
            }
        }
    }
}
