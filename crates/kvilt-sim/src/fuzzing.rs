//! What the fuzz targets do with their bytes; `fuzz/` only hands them over, so that a plain test can replay the corpus.
//!
//! | target | the bytes are | what must hold |
//! | --- | --- | --- |
//! | `log`, `commit`, `manifest` | a file | no panic, no endless loop, no allocation beyond the file's length; all ways to read it agree |
//! | `table` | a file | the same; and what `verify` calls good is read alike forward, backward and by gets |
//! | `directory` | several files of one store | an open, and everything that follows, ends in an answer or an error |
//! | `script` | operations | the answers are those of an ordered map, reopens and background work included |
//!
//! Bytes chosen by chance never have a right checksum, so `mend` puts them right first: what is tested is what lies
//! behind them. The first byte of an input says how much is mended; without mending the guards themselves are tested.
//!
//! What is always true here: a body returns, or it panics and that is a finding; the same bytes take the same path.

mod decoders;
mod directory;
mod mend;
mod operations;
mod plain_file;
mod seeds;

pub use mend::IDENTITY;

/// One fuzz target.
pub struct Target {
    /// Its name, and that of its directory below `fuzz/corpus` and `fuzz/pinned`.
    pub name: &'static str,
    /// What it does with an input.
    pub body: fn(&[u8]),
    /// Inputs to begin with, made by the real encoders.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Longest input that is worth trying.
    pub bytes_max: usize,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "log", body: decoders::log, seeds: seeds::logs, bytes_max: 4096 },
    Target { name: "commit", body: decoders::commit, seeds: seeds::commits, bytes_max: 4096 },
    Target { name: "table", body: decoders::table, seeds: seeds::tables, bytes_max: 4096 },
    Target { name: "manifest", body: decoders::manifest, seeds: seeds::manifests, bytes_max: 4096 },
    Target { name: "directory", body: directory::open, seeds: seeds::directories, bytes_max: 32 << 10 },
    Target { name: "script", body: operations::play, seeds: seeds::scripts, bytes_max: 1024 },
];

/// Runs the body of the target of this name; panics if there is none.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    (target.body)(input);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An encoder's own bytes must pass through their target in all ways of mending.
    #[test]
    fn seeds_pass_through_their_targets() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty(), "{}", target.name);
            for mut seed in seeds {
                assert!(seed.len() <= target.bytes_max, "{}: a seed of {} bytes", target.name, seed.len());
                (target.body)(&seed);
                for how in 0..4 {
                    seed[0] = how;
                    (target.body)(&seed);
                }
            }
        }
    }

    /// Mending must leave what an encoder wrote as it is, or targets would test another format.
    #[test]
    fn what_an_encoder_wrote_needs_no_mending() {
        for (kind, seeds) in [
            (mend::Kind::Log, seeds::logs()),
            (mend::Kind::Commit, seeds::commits()),
            (mend::Kind::Table, seeds::tables()),
            (mend::Kind::Manifest, seeds::manifests()),
        ] {
            for seed in seeds {
                let mut bytes = seed[1..].to_vec();
                mend::mend(kind, &mut bytes);
                assert!(bytes == seed[1..], "{kind:?}: mended bytes differ");
            }
        }
    }
}
