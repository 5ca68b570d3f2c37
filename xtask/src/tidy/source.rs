//! `Source`: a Rust file taken apart into code, comments and tests, so that a word is judged by where it
//! stands.
//!
//! Views keep the shape of the file: what does not belong to a view is blank there, and line numbers agree.

use std::ops::Range;

use crate::workspace::Document;

/// A Rust file and its views.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the root.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
    /// Without comments and literals.
    pub(crate) code: String,
    /// Comments alone.
    pub(crate) comments: String,
    /// Lines (counted from zero) inside a `#[cfg(test)] mod … { … }`.
    pub(crate) tests: Vec<Range<usize>>,
}

impl Source {
    /// Takes a file apart.
    pub(crate) fn new(document: &Document) -> Self {
        let (code, comments) = views(&document.text);
        let tests = test_modules(&code);
        Source { path: document.path.clone(), text: document.text.clone(), code, comments, tests }
    }

    /// Whether the whole file is a test: below `tests/`, or a unit's `tests.rs`.
    pub(crate) fn is_test_file(&self) -> bool {
        let in_directory = |name: &str| self.path.split('/').rev().skip(1).any(|part| part == name);
        in_directory("tests") || in_directory("benches") || self.path.ends_with("/tests.rs")
    }

    /// Whether a line, counted from zero, belongs to a test.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.is_test_file() || self.tests.iter().any(|range| range.contains(&line))
    }
}

/// Where the walk through a file is.
enum Place {
    Code,
    LineComment,
    /// With this many comments open.
    BlockComment(usize),
    /// A literal that ends with this quote, after a backslash counts for nothing.
    Escaped(char),
    /// A raw string that ends with a quote and this many hashes.
    Raw(usize),
}

/// The text with all but code blanked, and with all but comments blanked.
fn views(text: &str) -> (String, String) {
    let letters: Vec<char> = text.chars().collect();
    let (mut code, mut comments) = (String::new(), String::new());
    let mut place = Place::Code;
    let mut at = 0;
    while at < letters.len() {
        let was_code = matches!(place, Place::Code);
        let step = advance(&mut place, &letters, at);
        let is_comment = matches!(place, Place::LineComment | Place::BlockComment(_))
            || (!was_code && letters[at..].starts_with(&['*', '/']));
        let is_code = was_code && matches!(place, Place::Code);
        for &letter in &letters[at..(at + step).min(letters.len())] {
            let blank = if letter == '\n' { '\n' } else { ' ' };
            code.push(if is_code { letter } else { blank });
            comments.push(if is_comment { letter } else { blank });
        }
        at += step;
    }
    (code, comments)
}

/// Moves over what stands at `at`: says how many letters it took, and leaves the place behind it.
fn advance(place: &mut Place, letters: &[char], at: usize) -> usize {
    let rest = &letters[at..];
    match place {
        Place::Code => {
            if let Some((next, step)) = opening(letters, at) {
                *place = next;
                return step;
            }
        }
        Place::LineComment => {
            if rest[0] == '\n' {
                *place = Place::Code;
            }
        }
        Place::BlockComment(depth) => {
            if rest.starts_with(&['/', '*']) {
                *depth += 1;
                return 2;
            }
            if rest.starts_with(&['*', '/']) {
                *depth -= 1;
                if *depth == 0 {
                    *place = Place::Code;
                }
                return 2;
            }
        }
        Place::Escaped(quote) => {
            if rest[0] == '\\' {
                return 2;
            }
            if rest[0] == *quote {
                *place = Place::Code;
            }
        }
        Place::Raw(hashes) => {
            let closes = rest[0] == '"' && rest[1..].iter().take_while(|l| **l == '#').count() >= *hashes;
            if closes {
                let step = 1 + *hashes;
                *place = Place::Code;
                return step;
            }
        }
    }
    1
}

/// A comment or literal that begins at `at`, and the length of its beginning.
fn opening(letters: &[char], at: usize) -> Option<(Place, usize)> {
    let rest = &letters[at..];
    match rest {
        ['/', '/', ..] => Some((Place::LineComment, 2)),
        ['/', '*', ..] => Some((Place::BlockComment(1), 2)),
        ['"', ..] => Some((Place::Escaped('"'), 1)),
        // A quote opens a character unless it begins a lifetime.
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => Some((Place::Escaped('\''), 1)),
        ['r', '"' | '#', ..] => {
            let follows_name = at > 0 && (letters[at - 1].is_alphanumeric() || letters[at - 1] == '_');
            let is_prefixed = at > 0 && matches!(letters[at - 1], 'b' | 'c');
            let hashes = rest[1..].iter().take_while(|l| **l == '#').count();
            let opens = rest.get(1 + hashes) == Some(&'"') && (!follows_name || is_prefixed);
            opens.then_some((Place::Raw(hashes), hashes + 2))
        }
        _ => None,
    }
}

/// The lines of each module that exists for tests only.
fn test_modules(code: &str) -> Vec<Range<usize>> {
    let lines: Vec<&str> = code.lines().collect();
    let mut modules = Vec::new();
    let mut line = 0;
    while line < lines.len() {
        let is_attribute = lines[line].starts_with("#[cfg(") && lines[line].contains("test");
        let opens = |l: &&str| (l.starts_with("mod ") || l.starts_with("pub mod ")) && l.ends_with('{');
        let is_module = is_attribute && lines.get(line + 1).is_some_and(opens);
        if is_module {
            // rustfmt puts the closing brace of a top-level module into the first column.
            let end = (line..lines.len()).find(|&l| lines[l].starts_with('}')).unwrap_or(lines.len());
            modules.push(line..end + 1);
            line = end;
        }
        line += 1;
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new(&Document { path: "crates/a/src/b.rs".into(), text: text.into() })
    }

    #[test]
    fn code_comments_and_literals_are_told_apart() {
        let s = source(
            "let a = \"// no \\\" todo\"; // yes 'c\nf::<'a>('\"', b'\\'', r#\"x\"y\"#); /* p /* q */ r */ g",
        );
        let code: Vec<String> = s.code.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(code, ["leta=;", "f::<'a>(,b,);g"]);
        let comments: Vec<String> = s.comments.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(comments, ["//yes'c", "/*p/*q*/r*/"]);
    }

    #[test]
    fn views_keep_the_lines() {
        let text = "a\n\"b\nc\"\n/* d\n */ e\n";
        let s = source(text);
        assert_eq!(s.code.lines().count(), text.lines().count());
        assert_eq!(s.code.lines().nth(4).map(str::trim), Some("e"));
    }

    #[test]
    fn test_modules_are_found_with_their_ends() {
        let s = source(
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod d;\n",
        );
        assert_eq!((s.tests.len(), s.tests[0].clone()), (1, 1..5));
        assert!(s.is_test_line(3) && !s.is_test_line(5));
    }

    #[test]
    fn test_files_are_known_by_their_place() {
        for (path, is_test) in [
            ("crates/a/tests/it/main.rs", true),
            ("crates/a/src/munk/tests.rs", true),
            ("crates/a/src/tests/munk.rs", true),
            ("crates/a/src/munk.rs", false),
        ] {
            let document = Document { path: path.into(), text: String::new() };
            assert_eq!(Source::new(&document).is_test_file(), is_test, "{path}");
        }
    }
}
