//! Width: comments and Markdown wrap at a column, as rustfmt wraps code.
//!
//! What cannot be wrapped may be longer: rows of tables, fenced blocks, headings, and a line that is one
//! word.

use super::{Finding, Tree, source::Source};
use crate::workspace::Document;

/// Longest line of prose, in characters: as long as a line of code may be (`rustfmt.toml`).
const CHARACTERS_MAX: usize = 110;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let pages = tree.documents.iter().filter(|document| document.path.ends_with(".md")).flat_map(in_page);
    let settings = tree.documents.iter().filter(|document| has_hash_comments(&document.path));
    pages.chain(settings.flat_map(in_settings)).chain(tree.sources.iter().flat_map(in_source)).collect()
}

fn in_page(page: &Document) -> Vec<Finding> {
    let lines = page.text.lines().enumerate().map(|(number, line)| (number, line, line));
    too_wide(&page.path, lines)
}

/// The lines of a Rust file that have a comment, which may stand behind code.
fn in_source(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().zip(source.comments.lines()).enumerate();
    let lines = lines.filter(|(_, (_, comment))| !comment.trim().is_empty());
    too_wide(&source.path, lines.map(|(number, (line, comment))| (number, line, without_slashes(comment))))
}

/// Files whose comments begin with a hash.
fn has_hash_comments(path: &str) -> bool {
    path.ends_with(".toml") || path.ends_with(".sh") || path == ".ci/run" || path == "justfile"
}

/// The lines that are nothing but a comment.
fn in_settings(document: &Document) -> Vec<Finding> {
    let lines = document.text.lines().enumerate();
    let comments = lines.filter_map(|(number, line)| Some((number, line, line.trim().strip_prefix('#')?)));
    too_wide(&document.path, comments)
}

fn without_slashes(comment: &str) -> &str {
    comment.trim().trim_start_matches(['/', '!', '*'])
}

/// Of (number from zero, line, its prose) those that are too long and could be wrapped.
fn too_wide<'t>(path: &str, lines: impl Iterator<Item = (usize, &'t str, &'t str)>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_fenced = false;
    for (number, line, prose) in lines {
        let prose = prose.trim();
        if prose.starts_with("```") {
            is_fenced = !is_fenced;
        }
        let characters = line.chars().count();
        if characters > CHARACTERS_MAX && !is_fenced && may_be_wrapped(prose) {
            let message = format!("{characters} characters: comments and Markdown wrap at {CHARACTERS_MAX}");
            findings.push(Finding::new(path, number + 1, message));
        }
    }
    findings
}

/// Neither a row of a table nor a heading, and more than one word behind the mark of a list.
fn may_be_wrapped(prose: &str) -> bool {
    let text = prose.trim_start_matches(['-', '*', '>', ' ']);
    !prose.starts_with(['|', '#']) && text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    /// As wide as may be, and one wider.
    fn full_and_wide() -> (String, String) {
        let full = format!("é {}", "x".repeat(CHARACTERS_MAX - 2));
        (full.clone(), full + "x")
    }

    #[test]
    fn markdown_wraps_at_a_column_of_characters() {
        let (full, wide) = full_and_wide();
        assert_eq!(lines("a.md", &format!("{full}\n{wide}\n{full}")), [2]);
        assert_eq!(lines("a.txt", &wide), [0usize; 0]);
    }

    #[test]
    fn what_cannot_be_wrapped_may_be_wider() {
        let (_, wide) = full_and_wide();
        let word = "x".repeat(200);
        for good in [format!("| {wide} |"), format!("# {wide}"), word.clone(), format!("- {word}")] {
            assert_eq!(lines("a.md", &good), [0usize; 0], "{good}");
        }
        assert_eq!(lines("a.md", &format!("```text\n{wide}\n```\n{wide}")), [4]);
    }

    #[test]
    fn comments_wrap_and_code_is_left_to_rustfmt() {
        let (_, wide) = full_and_wide();
        let too_wide = format!("//! {wide}\nlet a = \"{wide}\";\nlet b = 1; // {wide}\n");
        let may_be = format!("//! | {wide} |\n/// ```\n/// {wide}\n/// ```\n/// {}\n", "x".repeat(200));
        let text = too_wide + &may_be;
        assert_eq!(lines("crates/a/src/b.rs", &text), [1, 3]);
    }

    #[test]
    fn comments_of_settings_wrap_too() {
        let (_, wide) = full_and_wide();
        assert_eq!(lines("Cargo.toml", &format!("# {wide}\na = 1 # {wide}")), [1]);
    }
}
