//! The workshop's door to the real operating system: processes that are killed, file systems that are cut
//! off, disks that are full, errors that strace makes.
//!
//! What the simulation assumes about kernels, this tries on one. A [`tale`] decides by a seed what a writer
//! does, a [`child`] process does it and keeps a [`diary`], [`hunt`] brings its [`death`], and [`verdict`]
//! says whether what is left is what the [`level`] promised. What a machine refuses (no root, no strace, no
//! XFS) is skipped, loudly, with its reason.
#![forbid(unsafe_code)]

mod child;
mod cut;
mod death;
mod diary;
mod engines;
mod group;
mod hunt;
mod kill;
mod level;
mod memory;
mod mount;
mod round;
mod scenes;
mod series;
mod subject;
mod tale;
mod tools;
mod verdict;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tests of Kvilt on the real operating system.
#[derive(Debug, Parser)]
#[command(name = "kvilt-real")]
struct Arguments {
    /// The engine that is tested.
    #[arg(long, global = true, value_parser = engines::named, default_value = engines::ALL[0].name)]
    engine: &'static engines::UnderTest,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Kill(kill::Kill),
    Series(series::Series),
    Cut(cut::Cut),
    Scenes(scenes::Scenes),
    Round(round::Round),
    Memory(memory::Memory),
    #[command(hide = true)]
    Child(child::Child),
    #[command(hide = true)]
    MemoryCase(memory::MemoryCase),
    /// Fills a store and says how much memory that took. Started by this program itself.
    #[command(hide = true)]
    Glutton {
        store: std::path::PathBuf,
        rows: usize,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    engines::choose(arguments.engine);
    let outcome = match &arguments.what {
        What::Child(child) => child.live(),
        What::Glutton { store, rows } => scenes::gorge(store, *rows),
        What::Round(round) => tools::heed_interrupts().and_then(|()| round.run()),
        What::Memory(memory) => tools::heed_interrupts().and_then(|()| memory.run()),
        What::MemoryCase(case) => case.run(),
        What::Scenes(scenes) => tools::heed_interrupts().and_then(|()| scenes.run()),
        What::Series(series) => tools::heed_interrupts().and_then(|()| series.run()),
        What::Cut(cut) => tools::heed_interrupts().and_then(|()| cut.run().map(drop)),
        What::Kill(kill) => tools::heed_interrupts().and_then(|()| kill.run()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kvilt-real: {error:#}");
            ExitCode::FAILURE
        }
    }
}
