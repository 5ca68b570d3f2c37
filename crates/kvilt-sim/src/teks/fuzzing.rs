//! The fuzz targets of the files of `teks`; its sorted tables are those of `even`.
//!
//! | target | the bytes are | what must hold |
//! | --- | --- | --- |
//! | `levels` | a catalogue | it has one encoding, and passes as its own number's only |
//! | `redo` | a segment of the redo log | all ways to read it agree; a record has one encoding |
//!
//! As random bytes never have a right checksum, `mend` puts them right first. The lowest bit of the first
//! byte says not to: then the guards themselves are tested.

mod decoders;
mod mend;
mod seeds;

use crate::fuzzing::Target;

pub use decoders::{levels, redo};
pub use mend::IDENTITY;

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "levels", body: levels, seeds: seeds::catalogues, bytes_max: 1024 },
    Target { name: "redo", body: redo, seeds: seeds::segments, bytes_max: 2048 },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::try_seeds;

    #[test]
    fn seeds_pass_through_their_targets() {
        TARGETS.iter().for_each(try_seeds);
    }

    /// Mending must leave what an encoder wrote as it is, or targets would test another format.
    #[test]
    fn what_an_encoder_wrote_needs_no_mending() {
        for seed in seeds::catalogues() {
            let mut mended = seed[1..].to_vec();
            mend::levels(&mut mended);
            assert!(mended == seed[1..]);
        }
        for seed in seeds::segments() {
            let mut mended = seed[1..].to_vec();
            mend::redo(&mut mended);
            assert!(mended == seed[1..]);
        }
    }

    /// Seeds get past the guards: else every target would be content with refusing.
    #[test]
    fn seeds_are_good_files() {
        assert!(seeds::catalogues().iter().all(|seed| decoders::catalogue_of(&seed[1..]).is_ok()));
        let records = |seed: &Vec<u8>| decoders::records_of(&seed[1..], true).records.len();
        assert_eq!(seeds::segments().iter().map(records).collect::<Vec<_>>(), [0, 3, 4, 3]);
    }
}
