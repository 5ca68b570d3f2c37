//! `Death`: the ways in which a process ends without closing its store.
//!
//! A kill comes from outside, anywhere in a life. All others come from within, while the writers write: a
//! thread beside them does what brings the end.

use std::{process::ExitStatus, time::Duration};

use clap::ValueEnum;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Death {
    /// SIGKILL.
    Kill,
    /// The kernel kills it for want of memory in its control group.
    OutOfMemory,
    /// `abort`.
    Abort,
    /// `exit`, which runs no destructor of any thread.
    Exit,
    /// A panic that unwinds out of `main`, which drops its own handle on the store and no writer's.
    Panic,
}

/// Memory that a process may have which is to run out of it, in bytes.
pub(crate) const MEMORY_BYTES: u64 = 48 << 20;

/// An exit code that nothing else here gives.
const EXIT_CODE: i32 = 77;
/// What the standard library gives a process whose `main` panicked.
const PANIC_CODE: i32 = 101;

impl Death {
    /// All but the kill.
    pub(crate) const FROM_WITHIN: [Death; 4] = [Death::OutOfMemory, Death::Abort, Death::Exit, Death::Panic];

    /// Its name on the command line and in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Death::Kill => "kill",
            Death::OutOfMemory => "out-of-memory",
            Death::Abort => "abort",
            Death::Exit => "exit",
            Death::Panic => "panic",
        }
    }

    /// Ends this process, after this time. The caller is the thread of `main`.
    pub(crate) fn meet(self, delay: Duration) -> ! {
        // A random moment: nothing is waited for here.
        std::thread::sleep(delay);
        match self {
            Death::OutOfMemory => use_all_memory(),
            Death::Kill | Death::Abort => std::process::abort(),
            Death::Exit => {
                // From a thread that is neither a writer nor `main`.
                let _ = std::thread::spawn(|| std::process::exit(EXIT_CODE)).join();
                unreachable!("the process has ended")
            }
            // As a panic does, but for the message.
            Death::Panic => std::panic::resume_unwind(Box::new("the end")),
        }
    }

    /// Whether this is how a process ended.
    pub(crate) fn is_of(self, status: ExitStatus) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        /// SIGKILL and SIGABRT.
        const SIGNALS: [i32; 2] = [9, 6];
        match self {
            Death::Kill | Death::OutOfMemory => status.signal() == Some(SIGNALS[0]),
            Death::Abort => status.signal() == Some(SIGNALS[1]),
            Death::Exit => status.code() == Some(EXIT_CODE),
            Death::Panic => status.code() == Some(PANIC_CODE),
        }
    }
}

/// The kernel ends this process before it has ten times what it may.
fn use_all_memory() -> ! {
    const PIECE_BYTES: usize = 1 << 20;
    let pieces: Vec<Vec<u8>> = (0..10 * MEMORY_BYTES as usize / PIECE_BYTES)
        .map(|piece| vec![piece as u8 | 1; PIECE_BYTES])
        .collect();
    panic!("{} MiB, and the kernel has not ended this process", pieces.len());
}
