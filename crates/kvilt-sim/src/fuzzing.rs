//! What fuzz targets of all engines have in common; `fuzz/` only hands bytes over, so that a plain test can
//! replay the corpus.
//!
//! A target that is a file, or several of one store, is its engine's. Here is the one that any engine has:
//! the bytes are operations, and the answers must be those of an ordered map, reopens and background work
//! included.
//!
//! What is always true here: a body returns, or it panics and that is a finding; the same bytes take the same
//! path.

pub(crate) mod header;
pub(crate) mod operations;
pub(crate) mod plain_file;

/// One fuzz target.
pub struct Target {
    /// Its name, and that of its directory below `fuzz/corpus` and `fuzz/pinned`.
    pub name: &'static str,
    /// What it does with an input.
    pub body: fn(&[u8]),
    /// Inputs to begin with, made by the real encoders.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Longest input that is worth trying: well above the longest of its seeds, which have every part of a
    /// file in them. What is longer repeats, and costs time.
    pub bytes_max: usize,
}

/// Holds a target to its seeds: they pass in all ways of mending; whatever changes in one, or is missing at
/// its end, is an answer or an error.
#[cfg(test)]
pub(crate) fn try_seeds(target: &Target) {
    let seeds = (target.seeds)();
    assert!(seeds.len() > 2, "{}", target.name);
    for mut seed in seeds {
        assert!(seed.len() <= target.bytes_max, "{}: a seed of {} bytes", target.name, seed.len());
        for how in 0..=255 {
            seed[0] = how;
            (target.body)(&seed);
        }
        (target.body)(&[]);
        for how in [0, 1, 255] {
            seed[0] = how;
            for position in 1..seed.len() {
                let byte = seed[position];
                for other in [byte ^ 1, byte ^ 0x80, 0, 255] {
                    seed[position] = other;
                    (target.body)(&seed);
                }
                seed[position] = byte;
                (target.body)(&seed[..position]);
            }
        }
    }
}
