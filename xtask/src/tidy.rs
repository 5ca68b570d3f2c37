//! `cargo xtask tidy`: the rules of `STYLE.md` that a machine can hold.
//!
//! Reads every tracked text file once and lets each check look at all of them. A check is a function from the
//! tree to its findings, so its tests need no files. Only `history` looks at commits instead.

mod documents;
mod fence;
mod history;
mod invariants;
mod layout;
mod phrases;
mod places;
mod source;
mod width;
mod words;

use std::fmt;

use anyhow::{Result, bail};

use crate::workspace::{Document, Workspace};
use source::Source;

/// One broken rule, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    /// Counted from one; zero means the file as a whole.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// The text files of the tree, Rust sources also taken apart.
pub(crate) struct Tree {
    documents: Vec<Document>,
    sources: Vec<Source>,
}

impl Tree {
    fn new(documents: Vec<Document>) -> Self {
        let is_rust = |document: &&Document| document.path.ends_with(".rs");
        let sources = documents.iter().filter(is_rust).map(Source::new).collect();
        Tree { documents, sources }
    }

    /// A tree of (path, text) pairs.
    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        let document = |(path, text): &(&str, &str)| Document { path: (*path).into(), text: (*text).into() };
        Tree::new(files.iter().map(document).collect())
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

const CHECKS: &[Check] = &[
    layout::check,
    words::check,
    invariants::check,
    documents::check,
    places::check,
    width::check,
    phrases::check,
];

/// Writes down how many banned phrases are left, then looks at everything.
pub(crate) fn run_lowered(workspace: &Workspace) -> Result<()> {
    phrases::lower(workspace, &Tree::new(workspace.documents()?))?;
    run(workspace)
}

/// Fails, printing every finding.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let tree = Tree::new(workspace.documents()?);
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    match history::check(workspace) {
        Ok(of_commits) => findings.extend(of_commits),
        Err(reason) => println!("tidy: commits not looked at: {reason}"),
    }
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    if findings.is_empty() {
        println!("tidy: {} files, {} of them Rust", tree.documents.len(), tree.sources.len());
        return Ok(());
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    bail!("{} findings", findings.len())
}
