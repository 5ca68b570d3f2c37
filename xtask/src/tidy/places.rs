//! Places: no tracked text names a directory of the machine that it was written on.

use super::{Finding, Tree};

/// Beginnings of such directories; put together here so that this file does not contain them.
const PLACES_BANNED: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/Us", "ers/"),
    concat!("C:\\", "Users"),
    concat!("/tmp/", "target"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in &tree.documents {
        for (number, line) in document.text.lines().enumerate() {
            if let Some(place) = PLACES_BANNED.iter().find(|place| stands_alone(line, place)) {
                let message = format!("`{place}…` is a path of one machine: use a relative one");
                findings.push(Finding::new(&document.path, number + 1, message));
            }
        }
    }
    findings
}

/// Whether an absolute path begins there, rather than the middle of a relative one.
fn stands_alone(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(position, _)| {
        !line[..position].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_are_found_and_relative_ones_are_not() {
        let bad = format!("see {}me/alice/notes", "/ho");
        let good = "crates/home/a  at work/home  ../root/b";
        let tree = Tree::of(&[("a.md", &bad), ("b.md", good), ("c.md", "x/work/y")]);
        let found = check(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), ("a.md", 1));
    }
}
