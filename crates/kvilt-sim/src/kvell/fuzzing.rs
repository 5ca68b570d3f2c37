//! The fuzz targets of the files of `kvell`.
//!
//! | target | the bytes are | what must hold |
//! | --- | --- | --- |
//! | `slab` | slots of a block | all ways to decode an item agree; an item has one encoding, and passes at its place only |
//! | `map` | a pair of pages | a page has one encoding; of a pair the right one counts |
//! | `root` | both copies | the newest good one counts, and can be written and read again |
//! | `snapshot` | an index snapshot | it is the same however it is read; keys ascend, and can be written and read again |
//!
//! As random bytes never have a right checksum, `mend` puts them right first. The lowest bit of the first
//! byte says not to: then the guards themselves are tested.

mod decoders;
mod mend;
mod seeds;

use crate::fuzzing::Target;

pub use decoders::{map, root, slab, snapshot};
pub use mend::STORE_ID;

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "slab", body: slab, seeds: seeds::slabs, bytes_max: 2048 },
    Target { name: "map", body: map, seeds: seeds::maps, bytes_max: 512 },
    Target { name: "root", body: root, seeds: seeds::roots, bytes_max: 2048 },
    Target { name: "snapshot", body: snapshot, seeds: seeds::snapshots, bytes_max: 2048 },
];

#[cfg(test)]
mod tests {
    use kvilt_format::slab::{ROOT_COPY_BYTES, newest_of_pair};

    use super::*;
    use crate::fuzzing::try_seeds;

    #[test]
    fn seeds_pass_through_their_targets() {
        TARGETS.iter().for_each(try_seeds);
    }

    /// Mending must leave what an encoder wrote as it is, or targets would test another format.
    #[test]
    fn what_an_encoder_wrote_needs_no_mending() {
        for seed in seeds::slabs() {
            let mut slots = decoders::Slots::of(&seed).expect("a seed names a class");
            let written = slots.bytes.clone();
            slots.mend();
            assert!(slots.bytes == written && written.iter().any(|byte| *byte != 0));
        }
        for seed in seeds::maps() {
            let pair = decoders::pair_of(&seed).expect("a seed has a pair").1;
            for (copy, page) in pair.iter().enumerate() {
                let mut mended = page.clone();
                mend::map_page(&mut mended, copy);
                assert!(mended == *page);
            }
        }
        for (seed, generations) in seeds::roots().iter().zip(seeds::ROOTS) {
            let mut mended = decoders::root_file(seed).expect("a seed has two copies");
            mend::root(&mut mended);
            for (generation, copy) in generations.iter().zip(mended.chunks_exact(ROOT_COPY_BYTES)) {
                match generation {
                    Some(generation) => assert!(copy == seeds::root(*generation).encode().as_slice()),
                    None => assert!(copy.iter().all(|byte| *byte == 0)),
                }
            }
        }
        for seed in seeds::snapshots() {
            let mut mended = seed[1..].to_vec();
            mend::snapshot(&mut mended);
            assert!(mended == seed[1..]);
        }
    }

    /// Seeds get past the guards: else every target would be content with refusing.
    #[test]
    fn seeds_are_good_files() {
        for seed in seeds::slabs() {
            assert!(decoders::Slots::of(&seed).expect("a seed names a class").items().count() > 1);
        }
        for seed in seeds::maps().iter().take(3) {
            let (cut_max, pages) = decoders::pair_of(seed).expect("a seed has a pair");
            let decoded = [0, 1].map(|copy| decoders::map_page(&pages[copy], copy));
            assert!(newest_of_pair([&decoded[0], &decoded[1]], cut_max).is_some());
        }
        for seed in seeds::snapshots() {
            assert!(decoders::entries_of(&seed[1..], 100).is_ok());
        }
    }
}
