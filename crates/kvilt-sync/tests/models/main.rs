//! Models of the protocols between threads, M1 to M21 (the table in `docs/testing.md`).
//!
//! Each is written once, over the primitives of this crate, and walked through by whichever explorer the
//! build chose: loom tries every interleaving with up to three preemptions, shuttle many random
//! schedules, and without either the threads are real, for miri and the sanitizers. Where a protocol lives in
//! engine `even`, its model is the smallest that keeps the order of its steps; what it leaves out stands in
//! the head of its file.
//!
//! What is always true: every model has a twin in the `twins` module of its file that leaves out, or
//! misplaces, the step that matters, and must fail. Twins need an explorer.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p kvilt-sync --release --test models`, or `cargo xtask shuttle`.
#![expect(clippy::unwrap_used, reason = "a test")]
#![cfg_attr(
    not(any(loom, shuttle)),
    expect(clippy::disallowed_methods, reason = "without an explorer the threads are the system's")
)]

mod explorer;

mod checkpoint;
mod chunk;
mod closing;
mod doze;
mod eras;
mod files;
mod group;
#[cfg(not(miri))]
mod log_segment;
mod pile;
mod row_cache;
mod rows;
mod teks;
mod versions;
