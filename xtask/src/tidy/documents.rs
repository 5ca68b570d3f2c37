//! Documents: no link leads nowhere, no page of `docs/` is unreachable, and each design record has a number
//! of its own, a status, and a line in the list of records.

use std::collections::BTreeMap;

use super::{Finding, Tree, fence::Fence};
use crate::workspace::Document;

/// Lists all design records by state.
const RECORD_LIST: &str = "docs/design/README.md";
/// What a record's status begins with.
const STATES: [&str; 4] = ["proposed", "accepted", "replaced", "rejected"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in &tree.documents {
        for (line, target) in targets(document) {
            if !exists(tree, &target) {
                findings.push(Finding::new(&document.path, line, format!("`{target}` does not exist")));
            }
        }
    }
    findings.extend(tree.documents.iter().filter(|d| is_page(d)).filter_map(|page| unreferenced(tree, page)));
    findings.extend(design_records(tree));
    findings
}

fn is_page(document: &Document) -> bool {
    document.path.starts_with("docs/") && document.path.ends_with(".md")
}

/// A page that no other file names: nobody would find it.
fn unreferenced(tree: &Tree, page: &Document) -> Option<Finding> {
    let name = page.path.rsplit('/').next().unwrap_or(&page.path);
    let is_named = tree.documents.iter().any(|other| other.path != page.path && other.text.contains(name));
    (!is_named).then(|| Finding::new(&page.path, 0, "no other file refers to this page"))
}

/// Design records: numbered once, each with a status, and each in the list of all.
fn design_records(tree: &Tree) -> Vec<Finding> {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    let list = tree.documents.iter().find(|document| document.path == RECORD_LIST);
    let records = tree.documents.iter().filter(|document| document.path.starts_with("docs/design/"));
    for document in records.filter(|document| document.path != RECORD_LIST) {
        let mut find = |line, message: String| findings.push(Finding::new(&document.path, line, message));
        let name = document.path.rsplit('/').next().unwrap_or(&document.path);
        let number = name.split('-').next().unwrap_or(name);
        let is_number = number.len() == 4 && number.bytes().all(|b| b.is_ascii_digit());
        if !is_number {
            find(0, "a design note is called NNNN-subject.md".to_owned());
        } else if let Some(other) = owners.insert(number, name) {
            find(0, format!("{number} is the number of {other} too"));
        }
        let status = document.text.lines().nth(2).and_then(|line| line.strip_prefix("Status: "));
        if !status.is_some_and(|status| STATES.iter().any(|state| status.starts_with(state))) {
            find(3, format!("the third line is `Status: `, followed by one of {}", STATES.join(", ")));
        }
        if list.is_some_and(|list| !list.text.contains(&format!("({name})"))) {
            find(0, format!("{RECORD_LIST} does not list this record"));
        }
    }
    findings
}

/// Everything in the tree that a document points at: links of a Markdown file; pages and Rust files
/// named in any text.
fn targets(document: &Document) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    let is_markdown = document.path.ends_with(".md");
    let mut fence = Fence::default();
    for (number, line) in document.text.lines().enumerate() {
        let is_fenced = is_markdown && fence.covers(line);
        let links = if is_markdown && !is_fenced { links(&document.path, line) } else { Vec::new() };
        // Files of xtask name pages that exist only in its tests.
        let pages = if document.path.starts_with("xtask/") { Vec::new() } else { pages(line) };
        targets.extend(links.into_iter().chain(pages).map(|target| (number + 1, target)));
    }
    targets
}

/// Relative links of one line, resolved against the directory of `path`.
fn links(path: &str, line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (position, _) in line.match_indices("](") {
        let rest = &line[position + 2..];
        let Some(end) = rest.find(')') else { continue };
        let target = rest[..end].split('#').next().unwrap_or_default();
        let is_outside = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
        if !is_outside {
            found.push(resolve(path, target));
        }
    }
    found
}

fn resolve(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Names of pages in one line of any text, and of our Rust files, with or without `crates/` before the crate.
fn pages(line: &str) -> Vec<String> {
    let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    let page = |word: &str| (word.starts_with("docs/") && word.ends_with(".md")).then(|| word.to_owned());
    let source = |word: &str| {
        let below = word.strip_prefix("crates/").unwrap_or(word);
        (below.starts_with("kvilt") && below.contains('/') && below.ends_with(".rs"))
            .then(|| format!("crates/{below}"))
    };
    line.split(|c: char| !belongs(c)).filter_map(|word| page(word).or_else(|| source(word))).collect()
}

/// Whether a tracked file has this path, or lies below it.
fn exists(tree: &Tree, path: &str) -> bool {
    tree.documents.iter().any(|document| {
        document.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }) || path.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_lead_somewhere() {
        let files = [
            ("README.md", "[a](docs/a.md#part) [web](https://example.org) [top](#top) [dir](docs)"),
            (
                "docs/a.md",
                "[up](../README.md)\n[gone](b.md)\n```\n[code](c.md)\n```\n~~~\n[code](d.md)\n~~~\n",
            ),
        ];
        assert_eq!(messages(&files), ["docs/a.md:2: `docs/b.md` does not exist"]);
    }

    #[test]
    fn pages_named_in_code_exist() {
        let files = [("crates/a/src/lib.rs", "//! See `docs/format/log.md`.\n")];
        assert_eq!(messages(&files), ["crates/a/src/lib.rs:1: `docs/format/log.md` does not exist"]);
    }

    #[test]
    fn rust_files_named_in_a_page_exist() {
        let files = [
            ("README.md", "`kvilt-a/src/munk.rs`, `crates/kvilt-a/src/funk.rs`, munk.rs, a/src/b.rs"),
            ("crates/kvilt-a/src/munk.rs", ""),
        ];
        assert_eq!(messages(&files), ["README.md:1: `crates/kvilt-a/src/funk.rs` does not exist"]);
    }

    #[test]
    fn pages_are_reachable_and_design_notes_numbered_once() {
        let files = [
            ("ARCHITECTURE.md", "0001-a.md and 0001-b.md"),
            ("docs/design/0001-a.md", "# a\n\nStatus: accepted\n"),
            ("docs/design/0001-b.md", "# b\n\nStatus: rejected\n"),
            ("docs/lonely.md", ""),
        ];
        let found = messages(&files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("docs/lonely.md"));
        assert!(found[1].ends_with("0001 is the number of 0001-a.md too"));
    }

    #[test]
    fn each_design_record_has_a_status_and_stands_in_the_list() {
        let files = [
            ("docs/design/README.md", "[1](0001-a.md) [2](0002-b.md)"),
            ("docs/design/0001-a.md", "# a\n\nStatus: accepted, amended by 0002\n"),
            ("docs/design/0002-b.md", "# b\n\nDate: today\n"),
            ("docs/design/0003-c.md", "# c\n\nStatus: rejected\n"),
            ("a.md", "0003-c.md, docs/design/README.md"),
        ];
        let found = messages(&files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("docs/design/0002-b.md:3: the third line is"));
        assert_eq!(found[1], "docs/design/0003-c.md: docs/design/README.md does not list this record");
    }
}
