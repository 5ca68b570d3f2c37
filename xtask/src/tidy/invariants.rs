//! Invariants: each number in `docs/invariants.md` stands in code and in a test or check, and no number
//! stands anywhere without being defined there.
//!
//! A definition is a list item that begins with the number in bold: `* **E-4** …`. A section that names a
//! *contract* or an *overview* (`Overview: `kvilt-even/src/lib.rs``) has all its numbers there, too; an
//! overview tells of them and keeps none.

use std::collections::BTreeMap;

use super::{Finding, Tree, source::Source};

const LIST: &str = "docs/invariants.md";

/// Where a number was seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Line of the definition.
    defined: usize,
    in_code: bool,
    in_test: bool,
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(list) = tree.documents.iter().find(|document| document.path == LIST) else {
        return vec![Finding::new(LIST, 0, "the list of invariants is missing")];
    };
    let mut findings = Vec::new();
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    for (line, text) in list.text.lines().enumerate() {
        let Some(number) = definition(text) else { continue };
        let before = seen.insert(number.clone(), Seen { defined: line + 1, ..Seen::default() });
        if before.is_some() {
            findings.push(Finding::new(LIST, line + 1, format!("{number} is defined twice")));
        }
    }
    let letters: String = seen.keys().filter_map(|number| number.chars().next()).collect();
    let summaries = summaries(&list.text);
    for source in tree.sources.iter().filter(|source| source.path.starts_with("crates/")) {
        let is_overview = summaries.iter().any(|summary| summary.is_overview && summary.path == source.path);
        if !is_overview {
            findings.extend(undefined(source, &letters, &mut seen));
        }
    }
    findings.extend(summaries.iter().flat_map(|summary| left_out(tree, summary, &letters)));
    findings.extend(seen.iter().filter_map(|(number, seen)| missing(number, seen)));
    findings
}

/// A file that has all numbers of a section.
struct Summary {
    path: String,
    is_overview: bool,
    numbers: Vec<String>,
}

/// What the sections of the list name as their contracts and overviews.
fn summaries(list: &str) -> Vec<Summary> {
    let mut summaries = Vec::new();
    for section in list.split("\n## ") {
        let numbers: Vec<String> = section.lines().filter_map(definition).collect();
        for (word, is_overview) in [("Contract: `", false), ("Overview: `", true)] {
            let path = section.split_once(word).and_then(|(_, rest)| rest.split_once('`'));
            summaries.extend(path.map(|(path, _)| Summary {
                path: format!("crates/{path}"),
                is_overview,
                numbers: numbers.clone(),
            }));
        }
    }
    summaries
}

/// The numbers that a contract or an overview leaves out or has too many of.
fn left_out(tree: &Tree, summary: &Summary, letters: &str) -> Vec<Finding> {
    let finding = |message: String| Finding::new(&summary.path, 0, message);
    let Some(source) = tree.sources.iter().find(|source| source.path == summary.path) else {
        return vec![finding(format!("{LIST} names this file, which is not there"))];
    };
    let there: Vec<String> = source.text.lines().flat_map(|line| numbers(line, letters)).collect();
    let missing = summary.numbers.iter().filter(|number| !there.contains(number));
    let mut findings: Vec<Finding> =
        missing.map(|number| finding(format!("{number} of {LIST} is missing here"))).collect();
    let of_section = summary.numbers.first().map_or("", |number| &number[..1]);
    let unknown =
        there.iter().filter(|number| number.starts_with(of_section) && !summary.numbers.contains(number));
    if summary.is_overview {
        findings.extend(unknown.map(|number| finding(format!("{number} is not defined in {LIST}"))));
    }
    findings
}

/// Notes where the numbers of a source stand, and finds those that nobody defined.
fn undefined(source: &Source, letters: &str, seen: &mut BTreeMap<String, Seen>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in source.text.lines().enumerate() {
        for number in numbers(text, letters) {
            match seen.get_mut(&number) {
                Some(seen) if is_proof(source, line) => seen.in_test = true,
                Some(seen) => seen.in_code = true,
                None => {
                    let message = format!("{number} is not defined in {LIST}");
                    findings.push(Finding::new(&source.path, line + 1, message));
                }
            }
        }
    }
    findings
}

/// Whether a line belongs to a test, to the simulation, or to an engine's walk over its own store.
fn is_proof(source: &Source, line: usize) -> bool {
    source.is_test_line(line)
        || source.path.starts_with("crates/kvilt-sim/")
        || source.path.ends_with("/check.rs")
        || source.path.contains("/check/")
}

fn missing(number: &str, seen: &Seen) -> Option<Finding> {
    let message = match (seen.in_code, seen.in_test) {
        (true, true) => return None,
        (false, true) => format!("{number} stands in no code"),
        (true, false) => format!("{number} stands in no test and no check"),
        (false, false) => format!("{number} stands neither in code nor in a test"),
    };
    Some(Finding::new(LIST, seen.defined, message))
}

/// The number that a line of the list defines.
fn definition(line: &str) -> Option<String> {
    let bold = line.trim_start().strip_prefix("* **").or(line.trim_start().strip_prefix("- **"))?;
    let (number, _) = bold.split_once("**")?;
    let (letter, digits) = number.split_once('-')?;
    let is_number = letter.len() == 1
        && letter.bytes().all(|b| b.is_ascii_uppercase())
        && !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| number.to_owned())
}

/// Every number in the line that begins with one of the letters.
fn numbers(line: &str, letters: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (dash, _) in line.match_indices('-') {
        let (before, after) = (&line[..dash], &line[dash + 1..]);
        let Some(letter) = before.chars().next_back().filter(|letter| letters.contains(*letter)) else {
            continue;
        };
        let word = &before[..before.len() - 1];
        let is_word_start = !word.ends_with(|c: char| c.is_alphanumeric() || c == '-' || c == '_');
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        let is_word_end = !after[digits.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        if is_word_start && is_word_end && !digits.is_empty() {
            found.push(format!("{letter}-{digits}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(list: &str, code: &str) -> Vec<String> {
        let tree = Tree::of(&[(LIST, list), ("crates/a/src/munk.rs", code)]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    const TESTED: &str = "//! E-1 holds.\n#[cfg(test)]\nmod tests {\n    // E-1\n}\n";

    #[test]
    fn a_number_in_code_and_test_is_complete() {
        assert_eq!(findings("* **E-1** Chunks cover all keys.\n", TESTED), Vec::<String>::new());
        let checked = Tree::of(&[
            (LIST, "- **E-1** Chunks.\n"),
            ("crates/a/src/munk.rs", "//! E-1\n"),
            ("crates/a/src/check.rs", "//! E-1\n"),
        ]);
        assert!(check(&checked).is_empty());
    }

    #[test]
    fn a_number_missing_in_any_place_is_found() {
        assert_eq!(
            findings("* **E-1** a\n* **E-2** b\n", TESTED),
            ["E-2 stands neither in code nor in a test"]
        );
        assert_eq!(findings("* **E-1** a\n", "//! E-1\n"), ["E-1 stands in no test and no check"]);
        assert_eq!(
            findings("* **E-1** a\n", &format!("{TESTED}// E-9\n")),
            ["E-9 is not defined in docs/invariants.md"]
        );
        assert_eq!(findings("* **E-1** a\n* **E-1** b\n", TESTED), ["E-1 is defined twice"]);
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }

    #[test]
    fn numbers_are_told_from_words_that_look_alike() {
        assert_eq!(numbers("E-1, (D-20) E-3: UTF-8 1E-4 X-5 E-6x D- -D-7", "ED"), ["E-1", "D-20", "E-3"]);
    }

    #[test]
    fn an_overview_has_all_numbers_of_its_section_and_counts_as_no_code() {
        let list = "## E: x\n\nOverview: `a/src/lib.rs`.\n\n* **E-1** x\n* **E-2** y\n";
        let lib = "//! E-1 and E-3.\n";
        let tree = Tree::of(&[(LIST, list), ("crates/a/src/lib.rs", lib), ("crates/a/src/munk.rs", TESTED)]);
        let found: Vec<String> = check(&tree).into_iter().map(|finding| finding.message).collect();
        assert_eq!(
            found,
            [
                "E-2 of docs/invariants.md is missing here",
                "E-3 is not defined in docs/invariants.md",
                "E-2 stands neither in code nor in a test",
            ]
        );
    }
}
