//! The fuzz targets of `even`.
//!
//! | target | the bytes are | what must hold |
//! | --- | --- | --- |
//! | `log`, `commit`, `manifest` | a file | no panic, no endless loop, no allocation beyond the file's length; all ways to read it agree |
//! | `table` | a file | the same; and what `verify` calls good is read alike forward, backward and by gets |
//! | `directory` | several files of one store | an open, and everything that follows, ends in an answer or an error |
//! | `script` | operations | the answers are those of an ordered map, reopens and background work included |
//!
//! Random bytes never have a right checksum, so `mend` puts them right first: what is tested is
//! what lies behind them. The first byte of an input says how much is mended; without mending the guards
//! themselves are tested.

mod decoders;
mod directory;
mod mend;
mod seeds;

use super::EVEN;
use crate::fuzzing::{Target, operations};

// One by one, not by the name in a table: a binary of a decoder is linked without the engine, whose counters
// libFuzzer would else go through behind every input.
pub use decoders::{commit, log, manifest, table};
pub use directory::directory;
pub use mend::IDENTITY;

/// Operations on a store of some configuration.
pub fn script(input: &[u8]) {
    operations::script(&EVEN, input);
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "log", body: log, seeds: seeds::logs, bytes_max: 2048 },
    Target { name: "commit", body: commit, seeds: seeds::commits, bytes_max: 2048 },
    Target { name: "table", body: table, seeds: seeds::tables, bytes_max: 4096 },
    Target { name: "manifest", body: manifest, seeds: seeds::manifests, bytes_max: 2048 },
    Target { name: "directory", body: directory, seeds: seeds::directories, bytes_max: 32 << 10 },
    Target { name: "script", body: script, seeds: operations::seeds, bytes_max: 1024 },
];

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
