//! `kvilt-bench-compare`: Kvilt beside other stores, under the driver of `kvilt-bench`.
//!
//! | file | what |
//! | --- | --- |
//! | [`rocks`], [`lmdb`], [`mdbx`], `wiredtiger`, [`fjall_store`], [`redb_store`], [`sled_store`], [`leveldb`] | a rival each: its settings, and why |
//! | [`figures`] | the paper's figures, measured, drawn and judged |
//! | [`ticker`] | a thread that syncs a store each half second, for rivals that leave that to their user |
//! | `checks` | what the tests of several rivals ask |
//!
//! Rules for an adapter: within the budget go caches and write buffers together; no compression; what a put
//! promises is stated; settings are those that the store's own documents recommend; a get shows the value
//! where the store has it, without a copy if the store offers that; nothing is cached or batched that a user
//! would not.
#![deny(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark measures the real machine: its clock, its files, its threads"
)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kvilt_bench::{cli, store::Contestant};

#[cfg(test)]
mod checks;
mod figures;
mod fjall_store;
mod leveldb;
mod lmdb;
mod mdbx;
mod redb_store;
mod rocks;
mod sled_store;
mod ticker;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

/// Lets Kvilt and other stores do the same work and measures them.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Bench(cli::Command),
    /// Reproduces the figures and tables of EvenDB's evaluation at this machine's size, and judges the goals.
    Figures(figures::Figures),
}

fn main() -> ExitCode {
    cli::exit_code(match Arguments::parse().command {
        Command::Bench(command) => command.run(&everybody()),
        Command::Figures(figures) => figures.run(),
    })
}

/// Kvilt first, then those that it is measured against.
fn everybody() -> Vec<Box<dyn Contestant>> {
    let mut all = kvilt_bench::contestants::contestants();
    all.extend(rocks::contestants());
    all.push(Box::new(lmdb::Lmdb));
    all.extend(mdbx::contestants());
    #[cfg(feature = "wiredtiger")]
    all.extend(wiredtiger::contestants());
    all.push(Box::new(fjall_store::Fjall));
    all.push(Box::new(redb_store::Redb));
    all.push(Box::new(sled_store::Sled));
    all.push(Box::new(leveldb::LevelDb));
    all
}
