//! Layout: how a Rust file begins, how long it is, what it is called, and where unsafe code may live.

use super::{Finding, Tree, source::Source};

/// Longest file, in lines without its tests: a stranger reads it in one sitting.
const LINES_MAX: usize = 600;

/// Names that say nothing: what would go there has no noun yet.
const NAMES_BANNED: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "types", "impl"];

/// The crates that may contain unsafe code; every other root forbids it. The second calls other stores' C
/// interfaces.
const UNSAFE_CRATES: &[&str] = &["kvilt-sync", "kvilt-bench-compare"];

/// The crates that may contain unsafe code in one file, and that file: one gives the kernel's rings the
/// addresses of buffers, the other gets addresses from Java. The root denies it, and the file alone lifts
/// that.
const UNSAFE_IN_ONE_FILE: &[(&str, &str)] = &[
    ("kvilt-io", "crates/kvilt-io/src/native_disk/queue/uring.rs"),
    ("kvilt-jni", "crates/kvilt-jni/src/border.rs"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources
        .iter()
        .flat_map(|s| [head(s), length(s), name(s), forbids_unsafe(s), keeps_unsafe(s)])
        .flatten()
        .collect()
}

fn head(source: &Source) -> Option<Finding> {
    let has_head = source.text.starts_with("//!");
    (!has_head).then(|| {
        Finding::new(&source.path, 1, "the file must open with `//!`: what it is, where, what is always true")
    })
}

fn length(source: &Source) -> Option<Finding> {
    if source.is_test_file() {
        return None;
    }
    let tests: usize = source.tests.iter().map(ExactSizeIterator::len).sum();
    let lines = source.text.lines().count() - tests;
    (lines > LINES_MAX).then(|| {
        let message = format!("{lines} lines without tests, {LINES_MAX} allowed: find the second noun in it");
        Finding::new(&source.path, 0, message)
    })
}

fn name(source: &Source) -> Option<Finding> {
    let path = source.path.strip_suffix(".rs").unwrap_or(&source.path);
    let banned = path.split('/').find(|part| NAMES_BANNED.contains(part))?;
    Some(Finding::new(
        &source.path,
        0,
        format!("`{banned}` names no thing: use the noun of what lives there"),
    ))
}

fn forbids_unsafe(source: &Source) -> Option<Finding> {
    let root = source.path.strip_suffix("/src/lib.rs").or(source.path.strip_suffix("/src/main.rs"))?;
    let name = root.rsplit('/').next().unwrap_or(root);
    let word = if UNSAFE_IN_ONE_FILE.iter().any(|(one, _)| *one == name) { "deny" } else { "forbid" };
    let wanted = format!("#![{word}(unsafe_code)]");
    let is_fine = UNSAFE_CRATES.contains(&name) || source.code.contains(&wanted);
    (!is_fine).then(|| Finding::new(&source.path, 1, format!("this crate must say `{wanted}`")))
}

/// Where a crate only denies unsafe code, nothing but the one file lifts that.
fn keeps_unsafe(source: &Source) -> Option<Finding> {
    let is_of = |name: &str| source.path.starts_with(&format!("crates/{name}/"));
    let (name, file) = UNSAFE_IN_ONE_FILE.iter().find(|(name, _)| is_of(name))?;
    let lifts = ["expect(unsafe_code", "allow(unsafe_code"].iter().any(|word| source.code.contains(word));
    (source.path != *file && lifts)
        .then(|| Finding::new(&source.path, 0, format!("unsafe code of {name} lives in {file}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_file_opens_with_its_head() {
        assert_eq!(findings("crates/a/src/munk.rs", "//! Munk.\n"), 0);
        assert_eq!(findings("crates/a/src/munk.rs", "use a::b;\n//! Late.\n"), 1);
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_are_not_counted() {
        let long = format!("//! Long.\n{}", "fn a() {}\n".repeat(LINES_MAX));
        assert_eq!(findings("crates/a/src/munk.rs", &long), 1);
        assert_eq!(findings("crates/a/tests/munk.rs", &long), 0);
        let tested =
            format!("//! Short.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "    fn a() {}\n".repeat(LINES_MAX));
        assert_eq!(findings("crates/a/src/munk.rs", &tested), 0);
    }

    #[test]
    fn names_without_a_noun_are_found() {
        assert_eq!(findings("crates/a/src/util.rs", "//! U.\n"), 1);
        assert_eq!(findings("crates/a/src/common/log.rs", "//! L.\n"), 1);
        assert_eq!(findings("crates/a/src/utility_bill.rs", "//! B.\n"), 0);
    }

    #[test]
    fn a_root_forbids_unsafe_code_unless_its_crate_is_built_for_it() {
        assert_eq!(findings("crates/kvilt-even/src/lib.rs", "//! Even.\n"), 1);
        assert_eq!(findings("crates/kvilt-even/src/lib.rs", "//! Even.\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(findings("crates/kvilt-sync/src/lib.rs", "//! Sync.\n"), 0);
    }

    #[test]
    fn unsafe_code_of_io_and_jni_lives_in_one_file_each() {
        assert_eq!(findings("crates/kvilt-io/src/lib.rs", "//! Io.\n"), 1);
        assert_eq!(findings("crates/kvilt-io/src/lib.rs", "//! Io.\n#![deny(unsafe_code)]\n"), 0);
        let lifted = "//! A.\n#![expect(unsafe_code, reason = \"a\")]\n";
        assert_eq!(findings("crates/kvilt-io/src/clock.rs", lifted), 1);
        assert_eq!(findings("crates/kvilt-io/src/native_disk/queue/uring.rs", lifted), 0);
        assert_eq!(findings("crates/kvilt-jni/src/lib.rs", "//! Jni.\n"), 1);
        assert_eq!(findings("crates/kvilt-jni/src/reads.rs", lifted), 1);
        assert_eq!(findings("crates/kvilt-jni/src/border.rs", lifted), 0);
    }
}
