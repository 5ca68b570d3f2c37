//! Phrases that plain English has another word for; `STYLE.md` says which.
//!
//! Older text still has some. `xtask/phrases-left.txt` says how many of each are left in which file, one
//! `count phrase path` a line, and these numbers only sink: a phrase more is a finding, and so is one less
//! until `cargo xtask tidy --lower` has written it down.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result};

use super::{Finding, Tree, width::has_hash_comments};
use crate::workspace::{Document, Workspace};

/// The phrases, and what to write instead. One with a capital is banned with this capital only: it begins a
/// sentence.
const PHRASES_BANNED: &[(&str, &str)] = &[
    ("so many", "name what the number limits or counts"),
    ("by chance", "write `random` or `at random`"),
    ("is told", "write `is reported`, `is asked` or `receives`"),
    ("the system's cache", "write `the page cache`"),
    ("Who", "name the actor"),
];

/// Where the counts of older text are.
const LEFT: &str = "xtask/phrases-left.txt";

/// By path and phrase: the lines where it stands.
type Places<'t> = BTreeMap<(&'t str, &'static str), Vec<usize>>;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut left = left(tree);
    let mut findings = Vec::new();
    for ((path, phrase), lines) in places(tree) {
        let allowed = left.remove(&(path.to_owned(), phrase.to_owned())).unwrap_or(0);
        let instead = PHRASES_BANNED.iter().find(|banned| banned.0 == phrase).map_or("", |banned| banned.1);
        let all: Vec<String> = lines.iter().map(usize::to_string).collect();
        let more = format!("`{phrase}` stands in lines {}, {allowed} allowed: {instead}", all.join(", "));
        findings.extend((lines.len() > allowed).then(|| Finding::new(path, lines[0], more)));
        findings.extend((lines.len() < allowed).then(|| fewer(path, phrase)));
    }
    findings.extend(left.keys().map(|(path, phrase)| fewer(path, phrase)));
    findings
}

fn fewer(path: &str, phrase: &str) -> Finding {
    let message = format!("fewer `{phrase}` than {LEFT} says; well done: `cargo xtask tidy --lower`");
    Finding::new(path, 0, message)
}

/// Writes down how many are left. No count rises.
pub(crate) fn lower(workspace: &Workspace, tree: &Tree) -> Result<()> {
    fs::write(workspace.root.join(LEFT), lowered(tree)).with_context(|| format!("write {LEFT}"))
}

/// The file of counts as it should be.
fn lowered(tree: &Tree) -> String {
    let left = left(tree);
    let mut text = String::new();
    for ((path, phrase), lines) in places(tree) {
        let allowed = left.get(&(path.to_owned(), phrase.to_owned())).copied().unwrap_or(0);
        match lines.len().min(allowed) {
            0 => {}
            count => text.push_str(&format!("{count} {phrase} {path}\n")),
        }
    }
    text
}

/// The counts of older text, by path and phrase.
fn left(tree: &Tree) -> BTreeMap<(String, String), usize> {
    let file = tree.documents.iter().find(|document| document.path == LEFT);
    let line = |line: &str| {
        let (count, rest) = line.split_once(' ')?;
        let (phrase, path) = rest.rsplit_once(' ')?;
        Some(((path.to_owned(), phrase.to_owned()), count.parse().ok()?))
    };
    file.into_iter().flat_map(|file| file.text.lines().filter_map(line)).collect()
}

fn places(tree: &Tree) -> Places<'_> {
    let mut places = Places::new();
    for document in &tree.documents {
        // The checks themselves name what they ban.
        let has_prose = document.path.ends_with(".md") || document.path.ends_with(".rs");
        let is_prose = has_prose || has_hash_comments(&document.path);
        if !is_prose || document.path.starts_with("xtask/src/tidy/") {
            continue;
        }
        let words = words(document);
        for (phrase, _) in PHRASES_BANNED {
            let wanted: Vec<&str> = phrase.split(' ').collect();
            for found in words.windows(wanted.len()).filter(|window| is_phrase(window, &wanted)) {
                places.entry((&document.path, phrase)).or_default().push(found[0].1);
            }
        }
    }
    places
}

fn is_phrase(words: &[(&str, usize)], phrase: &[&str]) -> bool {
    words.iter().zip(phrase).all(|((word, _), wanted)| {
        if wanted.starts_with(char::is_uppercase) {
            word == wanted
        } else {
            word.eq_ignore_ascii_case(wanted)
        }
    })
}

/// The words of a text with their lines, so that a phrase is found across the end of a line; without code in
/// backticks.
fn words(document: &Document) -> Vec<(&str, usize)> {
    let mut words = Vec::new();
    for (number, line) in document.text.lines().enumerate() {
        for (position, span) in line.split('`').enumerate() {
            if position % 2 == 0 {
                let found = span.split(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '_'));
                words.extend(found.filter(|word| !word.is_empty()).map(|word| (word, number + 1)));
            } else {
                // Code stands between words, whatever it says.
                words.push(("`", number + 1));
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_banned_phrase_is_found_across_lines_and_not_in_code() {
        let text =
            "/// So\n/// many, or `so many` of these.\n// Who reads? Whoever, and who\nfn so_many() {}\n";
        let found = messages(&[("crates/a/src/b.rs", text)]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/b.rs:3: `Who` stands in lines 3, 0 allowed"));
        assert!(found[1].starts_with("crates/a/src/b.rs:1: `so many` stands in lines 1, 0 allowed"));
    }

    #[test]
    fn settings_and_scripts_are_prose_too() {
        let text = "# by chance\n";
        for path in ["Cargo.toml", "crates/a/run.sh", "justfile", ".ci/run"] {
            assert_eq!(messages(&[(path, text)]).len(), 1, "{path}");
        }
        assert_eq!(messages(&[("data/rows.csv", text)]), [""; 0]);
    }

    #[test]
    fn what_is_left_of_a_phrase_may_not_rise_and_sinks_by_a_command() {
        let left = (LEFT, "1 so many a.md\n");
        assert_eq!(messages(&[("a.md", "so many"), left]), [""; 0]);
        let risen = messages(&[("a.md", "so many\nand so many"), left]);
        assert!(risen[0].starts_with("a.md:1: `so many` stands in lines 1, 2, 1 allowed"), "{risen:?}");
        for text in ["few", "as many"] {
            let sunk = messages(&[("a.md", text), left]);
            assert!(sunk.len() == 1 && sunk[0].starts_with("a.md: fewer `so many`"), "{sunk:?}");
        }
    }

    #[test]
    fn counts_are_lowered_and_never_raised() {
        let left = "2 so many a.md\n3 is told b.md\n1 Who c.md\n";
        let tree = Tree::of(&[("a.md", "so many"), ("b.md", "x"), ("c.md", "Who? Who?"), (LEFT, left)]);
        assert_eq!(lowered(&tree), "1 so many a.md\n1 Who c.md\n");
    }
}
