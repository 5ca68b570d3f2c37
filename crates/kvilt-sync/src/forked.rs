//! A real child process, made by `fork`, for tests: what it does with handles that it inherited is what they
//! ask.
#![expect(unsafe_code, reason = "calls fork")]

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child that takes longer hangs, and is ended by a signal.
const SECONDS_MAX: u32 = 60;

/// What stands for a child that panicked, hung, or was ended otherwise.
pub const FAILED: u8 = 255;

/// Runs `child` in a process forked from this one, and says which number it returned. That process has this
/// thread and no other, prints nothing, and runs no destructors at its end but those of the closure.
pub fn in_child(child: impl FnOnce() -> u8) -> u8 {
    // SAFETY: the child runs the closure on the one thread it has and then ends without returning. Locks that
    // other threads held stay held there: it may hang, which is what a test wants to see, but no memory is
    // touched twice.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "the system forks no process");
    if id == 0 {
        // SAFETY: sets a timer of this process, whose signal is not handled and ends it.
        unsafe { libc::alarm(SECONDS_MAX) };
        let code = catch_unwind(AssertUnwindSafe(child)).unwrap_or(FAILED);
        // SAFETY: ends the process, and runs nothing of the parent's.
        unsafe { libc::_exit(i32::from(code)) };
    }
    let mut status = 0;
    // SAFETY: `id` is our child, waited for nowhere else, and `status` lives.
    let waited = unsafe { libc::waitpid(id, &raw mut status, 0) };
    let has_ended = waited == id && libc::WIFEXITED(status);
    if has_ended { u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(FAILED) } else { FAILED }
}
