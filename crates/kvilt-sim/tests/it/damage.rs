//! Damage of whole files (F-2, F-8) of each engine's references; an engine's own module has their bytes.

use kvilt_sim::{
    damage::{DamageTally, blow::Blow, reference::Reference, run_blows},
    engines,
};

/// Runs these blows and demands that there was no failure.
pub(crate) fn run(reference: &Reference, blows: impl Iterator<Item = Blow>, shards: u64) -> DamageTally {
    let mut tally = DamageTally::default();
    run_blows(reference, blows, (0, shards), &mut tally).unwrap_or_else(|failure| panic!("{failure}"));
    tally
}

/// Fault table, row 9: files missing, exchanged, doubled, or older than they should be.
#[test]
fn files_that_are_missing_exchanged_or_old_are_found() {
    for engine in engines::ALL {
        let Some(last) = engine.references().len().checked_sub(1) else { continue };
        let reference = Reference::new(engine.references(), last as u64).unwrap();
        let tally = run(&reference, Blow::whole_files(&reference), 1);
        println!("{}: {tally:?}", engine.name());
        assert!(tally.refused > 0 && tally.refused + tally.contained > 10, "{tally:?}");
    }
}

/// Fault table, row 8: of each file of each reference, some of all flips, lengths and mixed up sectors.
/// `kvilt-sim damage` does all.
#[test]
fn damage_within_any_file_is_found_and_never_answers_wrong() {
    for engine in engines::ALL {
        for number in 0..engine.references().len() as u64 {
            let reference = Reference::new(engine.references(), number).unwrap();
            let mut all = DamageTally::default();
            for (name, bytes) in &reference.files {
                let blows = || {
                    Blow::flips(*name, bytes.len())
                        .chain(Blow::cuts(*name, bytes.len()))
                        .chain(Blow::sectors(*name, bytes.len()))
                };
                let count = blows().count() as u64;
                let tally = run(&reference, blows(), count / CASES_A_FILE + 1);
                // How many files there are differs from run to run: a store frees memory beside other tests.
                assert!(tally.cases >= count.min(CASES_A_FILE / 2), "{name}: {tally:?} of {count}");
                all.add(tally);
            }
            println!("{} {number}: {all:?}", engine.name());
            assert!(all.refused + all.contained > 0, "{all:?}");
        }
    }
}

/// Cases of one file, at most; of a long one at least half as many.
const CASES_A_FILE: u64 = 60;
