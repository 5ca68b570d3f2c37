//! Floor 1: the operating system. The only crate that touches files, threads, clocks and chance.
//!
//! Which backend when:
//!
//! | seam | in production | in tests and simulations (feature `test-disk`) |
//! | --- | --- | --- |
//! | [`Disk`](kvilt_base::Disk), [`Queue`](kvilt_base::Queue) | [`NativeDisk`] | `MemoryDisk`, and `FaultyDisk` around either |
//! | [`Clock`](kvilt_base::Clock) | [`NativeClock`] | `ManualClock` |
//! | [`Rng`](kvilt_base::Rng) | [`NativeRng`] | `SeededRng` |
//! | [`Spawn`](kvilt_base::Spawn) | [`NativeSpawn`] | `StepSpawn` |
//!
//! What each guarantees:
//!
//! * [`NativeDisk`] keeps D-1 to D-5 (see [`kvilt_base::disk`]) as far as kernel, file system and drive do:
//!   `fdatasync` for files, `fsync` for the directory. A failed sync sticks to its file: no later sync of it
//!   succeeds. Descriptors of all disks of the process come out of one cache, at most half of
//!   `RLIMIT_NOFILE`. Written for Linux.
//! * Its queues keep D-6 to D-9 (see [`kvilt_base::queue`]), by the kernel's rings
//!   (`io_uring`) where these can be had, else by a pool of threads. Files of direct kinds are
//!   opened with `O_DIRECT` where the file system takes it; a durable write of theirs is one call
//!   (`RWF_DSYNC`), of other files a write and `fdatasync`.
//! * `MemoryDisk` keeps exactly D-1 to D-9 and nothing more: it remembers what was synced and what is in
//!   flight, and makes any legal state after a power cut, by seed. Transfers complete in any order, by seed.
//! * `FaultyDisk` adds errors where a test orders them, and takes nothing away.
//! * [`NativeSpawn`] gives each worker a thread of its own; `StepSpawn` runs a step when the test says so,
//!   of the worker that a number chooses.
//!
//! What is always true here: nothing is unsafe but in `native_disk/queue/uring.rs`; no other crate of Kvilt
//! but `kvilt-base` is imported; no file is opened through a symbolic link, no name comes from content.
#![deny(unsafe_code)]

mod chance;
mod clock;
mod native_disk;
mod threads;

#[cfg(feature = "test-disk")]
mod faulty;
#[cfg(feature = "test-disk")]
mod memory;
#[cfg(feature = "test-disk")]
mod steps;

pub use chance::NativeRng;
pub use clock::NativeClock;
pub use native_disk::{NativeDisk, QueueBy, open_descriptors};
pub use threads::NativeSpawn;

#[cfg(feature = "test-disk")]
pub use {
    chance::SeededRng,
    clock::ManualClock,
    faulty::{Call, Fault, FaultyDisk, PLANNED_PANIC, Times},
    memory::{Keep, MemoryDisk, is_crash},
    steps::StepSpawn,
};
