//! Writes the inputs that fuzzing begins with into `DIR/TARGET/`: `cargo run -p kvilt-sim --example
//! fuzz_seeds -- DIR`.
#![expect(
    clippy::disallowed_methods,
    reason = "a command of the workshop that writes files for another program"
)]

use std::{fs, io, path::PathBuf};

fn main() -> io::Result<()> {
    let directory = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "fuzz/corpus".into()));
    for target in kvilt_sim::engines::fuzz_targets() {
        let corpus = directory.join(target.name);
        fs::create_dir_all(&corpus)?;
        let seeds = (target.seeds)();
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(corpus.join(format!("seed-{number}")), seed)?;
        }
        println!(
            "{:<10} {} inputs, {} bytes",
            target.name,
            seeds.len(),
            seeds.iter().map(Vec::len).sum::<usize>()
        );
    }
    Ok(())
}
