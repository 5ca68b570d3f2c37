//! The command as a user meets it: real processes, their output, and their exit codes.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests write input files and read directories of their own"
)]
#![expect(clippy::disallowed_types, reason = "and read the data file")]
#![expect(clippy::unwrap_used, reason = "a test that fails may say where and no more")]

mod damage;
mod demo;
mod engines;
mod kvilt;
mod load;
mod read_only;
mod rows;
mod strange;
