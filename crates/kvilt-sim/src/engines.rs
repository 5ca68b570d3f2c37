//! The one list of the engines that are tested.

use crate::{even::EVEN, fuzzing::Target, kvell::KVELL, subject::Tested, teks::TEKS};

/// All of them; the first is the one that is tested if none is named.
pub const ALL: &[&dyn Tested] = &[&EVEN, &KVELL, &TEKS];

/// The engine of this name, or an error that names those there are.
pub fn named(name: &str) -> Result<&'static dyn Tested, String> {
    ALL.iter().copied().find(|engine| engine.name() == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|engine| engine.name()).collect();
        format!("there is no engine {name:?}; there are: {}", names.join(", "))
    })
}

/// The fuzz targets of all engines.
pub fn fuzz_targets() -> impl Iterator<Item = &'static Target> {
    ALL.iter().flat_map(|engine| engine.fuzz_targets())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_planted_bug_has_a_layer_that_should_find_it() {
        let crates = [
            kvilt_format::mutants::ALL,
            kvilt_sync::mutants::ALL,
            kvilt_even::mutants::ALL,
            kvilt_kvell::mutants::ALL,
            kvilt_teks::mutants::ALL,
        ];
        // Each is a static: where it lies tells it from another crate's of the same name.
        let declared: BTreeSet<*const _> = crates.concat().into_iter().map(std::ptr::from_ref).collect();
        let mut planted = BTreeSet::new();
        for engine in ALL {
            let all = engine.planted();
            let names: BTreeSet<&str> = all.iter().map(|planted| planted.mutant.name()).collect();
            assert_eq!(names.len(), all.len(), "{}: two bugs of one name", engine.name());
            planted.extend(all.iter().map(|planted| std::ptr::from_ref(planted.mutant)));
        }
        assert_eq!(planted, declared);
    }

    /// A name is a directory of inputs.
    #[test]
    fn no_two_fuzz_targets_have_one_name() {
        let mut names: Vec<&str> = fuzz_targets().map(|target| target.name).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    }

    #[test]
    fn an_engine_is_found_by_its_name_and_an_unknown_one_is_refused_with_the_names_there_are() {
        for engine in ALL {
            assert_eq!(named(engine.name()).map(Tested::name), Ok(engine.name()));
            assert!(engine.configurations() > 0);
        }
        let refused = named("nobody").map(Tested::name).unwrap_err();
        assert!(refused.contains("nobody") && refused.contains(ALL[0].name()), "{refused}");
    }
}
