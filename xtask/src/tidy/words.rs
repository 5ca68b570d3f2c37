//! Words: names and marks that the style guide bans, where clippy has no lint for them.

use super::{Finding, Tree, source::Source};

/// Macros that stand for work not done or for a look at a value.
const MACROS_BANNED: &[&str] = &["todo!", "unimplemented!", "dbg!"];

/// Beginnings of function names that say nothing about the step.
const VERBS_BANNED: &[&str] = &["get_", "do_", "handle_", "process_"];

/// `get` is an operation of the store; its variants carry its name.
const FUNCTIONS_ALLOWED: &[&str] = &["get_with", "get_many"];

/// Ends of type names that hide what the type is.
const TYPE_ENDS_BANNED: &[&str] = &["Manager", "Helper", "Info", "Data", "Utils"];

/// Marks of unfinished work; allowed with the number of an issue behind them, as `TODO(#12)`.
const MARKS_BANNED: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources.iter().flat_map(in_source).collect()
}

fn in_source(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in source.code.lines().enumerate() {
        let complaints = MACROS_BANNED
            .iter()
            .filter(|name| word_position(line, name).is_some())
            .map(|name| format!("`{name}` must not land"))
            .chain(function_name(line))
            .chain(type_name(line));
        findings.extend(complaints.map(|message| Finding::new(&source.path, number + 1, message)));
    }
    for (number, line) in source.comments.lines().enumerate() {
        if let Some(mark) = unfinished(line) {
            let message = format!("`{mark}` without an issue: write `{mark}(#number)` or finish it");
            findings.push(Finding::new(&source.path, number + 1, message));
        }
    }
    findings
}

fn function_name(line: &str) -> Option<String> {
    let name = name_after(line, "fn ")?;
    let verb = VERBS_BANNED.iter().find(|verb| name.starts_with(**verb))?;
    (!FUNCTIONS_ALLOWED.contains(&name))
        .then(|| format!("`{name}`: no name begins with `{verb}`; say the step"))
}

fn type_name(line: &str) -> Option<String> {
    let name = ["struct ", "enum ", "trait ", "type "].iter().find_map(|word| name_after(line, word))?;
    let end = TYPE_ENDS_BANNED.iter().find(|end| name.ends_with(**end))?;
    Some(format!("`{name}`: no type ends in `{end}`; say what it is"))
}

fn unfinished(line: &str) -> Option<&'static str> {
    MARKS_BANNED.iter().copied().find(|mark| {
        word_position(line, mark).is_some_and(|position| !line[position + mark.len()..].starts_with("(#"))
    })
}

/// The name that follows a keyword.
fn name_after<'l>(line: &'l str, keyword: &str) -> Option<&'l str> {
    let start = word_position(line, keyword)? + keyword.len();
    let end = line[start..].find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(&line[start..end.map_or(line.len(), |end| start + end)])
}

/// Where `word` stands in the line, not as part of a longer word.
fn word_position(line: &str, word: &str) -> Option<usize> {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).map(|(position, _)| position).find(|&position| {
        let (before, after) = (&line[..position], &line[position + word.len()..]);
        let goes_on = word.ends_with(is_letter) && after.starts_with(is_letter);
        !before.ends_with(is_letter) && !goes_on
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/a/src/munk.rs", text)]);
        check(&tree).into_iter().map(|finding| format!("{} {}", finding.line, finding.message)).collect()
    }

    #[test]
    fn banned_words_are_found_in_code_and_only_there() {
        for bad in [
            "fn a() { todo!() }",
            "fn get_key() {}",
            "pub(crate) fn handle_it<T>() {}",
            "struct ChunkManager;",
            "pub enum FileInfo {}",
            "// TODO mend this",
        ] {
            assert_eq!(messages(bad).len(), 1, "{bad}");
        }
        for good in [
            "let a = \"todo!()\"; // unimplemented! is banned",
            "fn get_with() {} fn target_get() {} fn forget_range() {}",
            "struct Manager2; struct Database;",
            "// TODO(#12) mend this; TODOS and MY_HACK are other words",
            "let info = Information;",
        ] {
            assert_eq!(messages(good), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn a_finding_names_its_line() {
        assert!(messages("fn a() {}\n\nfn do_it() {}\n")[0].starts_with("3 `do_it`"));
    }
}
