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
        assert!(tally.refused > 0 && tally.contained > 0, "{tally:?}");
    }
}
