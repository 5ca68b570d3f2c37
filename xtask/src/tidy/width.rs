//! Width: comments and Markdown wrap at a column, as rustfmt wraps code.
//!
//! What cannot be wrapped may be longer: rows of tables, fenced blocks, headings, and a line that is one
//! word.

use super::{Finding, Tree, fence::Fence, source::Source};
use crate::workspace::Document;

/// Longest line of prose, in characters: as long as a line of code may be (`rustfmt.toml`).
const CHARACTERS_MAX: usize = 110;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let pages = tree.documents.iter().filter(|document| document.path.ends_with(".md")).flat_map(in_page);
    let settings = tree.documents.iter().filter(|document| has_hash_comments(&document.path));
    pages.chain(settings.flat_map(in_settings)).chain(tree.sources.iter().flat_map(in_source)).collect()
}

/// A line: its number from zero, all of it, and its prose.
type Line<'t> = (usize, &'t str, &'t str);

fn in_page(page: &Document) -> Vec<Finding> {
    let lines: Vec<Line<'_>> =
        page.text.lines().enumerate().map(|(number, line)| (number, line, line)).collect();
    too_wide(&page.path, &lines)
}

/// The lines of a Rust file that have a comment, which may stand behind code.
fn in_source(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().zip(source.comments.lines()).enumerate();
    let lines = lines.filter(|(_, (_, comment))| !comment.trim().is_empty());
    in_blocks(&source.path, lines.map(|(number, (line, comment))| (number, line, without_slashes(comment))))
}

/// Files whose comments begin with a hash.
pub(super) fn has_hash_comments(path: &str) -> bool {
    path.ends_with(".toml") || path.ends_with(".sh") || path == ".ci/run" || path == "justfile"
}

/// The lines that are nothing but a comment.
fn in_settings(document: &Document) -> Vec<Finding> {
    let lines = document.text.lines().enumerate();
    let comments = lines.filter_map(|(number, line)| Some((number, line, line.trim().strip_prefix('#')?)));
    in_blocks(&document.path, comments)
}

fn without_slashes(comment: &str) -> &str {
    comment.trim().trim_start_matches(['/', '!', '*'])
}

/// Lines of comments, block by block: a fenced block ends with its comment at the latest.
fn in_blocks<'t>(path: &str, lines: impl Iterator<Item = Line<'t>>) -> Vec<Finding> {
    let lines: Vec<Line<'_>> = lines.collect();
    let is_whole = |line: &Line<'_>| line.1.trim_start().starts_with(['/', '#', '*']);
    let blocks = lines.chunk_by(|a, b| a.0 + 1 == b.0 && is_whole(a) && is_whole(b));
    blocks.flat_map(|block| too_wide(path, block)).collect()
}

/// Those that are too long and could be wrapped, and a fenced block that is not closed: it would hide all
/// that follows.
fn too_wide(path: &str, lines: &[Line<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fence = Fence::default();
    let mut begun = 0;
    for (number, line, prose) in lines {
        let was_open = fence.is_open();
        let is_fenced = fence.covers(prose);
        if !was_open {
            begun = number + 1;
        }
        let characters = line.chars().count();
        if characters > CHARACTERS_MAX && !is_fenced && may_be_wrapped(prose.trim()) {
            let message = format!("{characters} characters: comments and Markdown wrap at {CHARACTERS_MAX}");
            findings.push(Finding::new(path, number + 1, message));
        }
    }
    findings.extend(fence.is_open().then(|| Finding::new(path, begun, "a fenced block is not closed")));
    findings
}

/// Neither a row of a table nor a heading, and more than one word behind the mark of a list.
fn may_be_wrapped(prose: &str) -> bool {
    let text = prose.trim_start_matches(['-', '*', '>', ' ']);
    let is_heading = prose.starts_with('#') && prose.trim_start_matches('#').starts_with(' ');
    !prose.starts_with('|') && !is_heading && text.contains(char::is_whitespace)
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
    fn a_block_that_is_not_closed_is_found_and_hides_no_more_than_its_comment() {
        let (_, wide) = full_and_wide();
        let text = format!("/// ```\n/// {wide}\nfn a() {{}}\n// {wide}\nlet a = 1; // ```\n// {wide}\n");
        assert_eq!(lines("crates/a/src/b.rs", &text), [1, 4, 5, 6]);
        assert_eq!(lines("a.md", "```\na\n```\n\n~~~\nb\n```\n"), [5]);
    }

    #[test]
    fn a_word_behind_a_hash_is_no_heading() {
        let (_, wide) = full_and_wide();
        assert_eq!(lines("crates/a/src/b.rs", &format!("// #{wide}\n/// # {wide}\n")), [1]);
    }

    #[test]
    fn comments_of_settings_wrap_too() {
        let (_, wide) = full_and_wide();
        assert_eq!(lines("Cargo.toml", &format!("# {wide}\na = 1 # {wide}")), [1]);
    }
}
