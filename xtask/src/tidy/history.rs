//! History: what a commit says of itself. Its subject is short enough for a list, and a body follows.
//!
//! Commits up to [`BASE`] are as they are.

use super::Finding;
use crate::workspace::{Commit, Workspace};

/// The commit with which the rule began.
const BASE: &str = "5567ce18726a0e209ab1f3fb17ed087b878f6440";

/// Longest subject, in characters: lists of commits show it in a line of 80.
const SUBJECT_CHARACTERS_MAX: usize = 72;

/// The findings in all commits behind the base, or why they could not be read.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<Finding>, String> {
    Ok(in_commits(&workspace.commits_since(BASE)?))
}

fn in_commits(commits: &[Commit]) -> Vec<Finding> {
    commits.iter().flat_map(in_commit).collect()
}

fn in_commit(commit: &Commit) -> Vec<Finding> {
    let place = format!("commit {}", commit.id);
    let characters = commit.subject.chars().count();
    let long = format!("a subject of {characters} characters, {SUBJECT_CHARACTERS_MAX} allowed");
    let mut findings = Vec::new();
    findings.extend((characters > SUBJECT_CHARACTERS_MAX).then(|| Finding::new(&place, 0, long)));
    // `Signed-off-by:` and its like say nothing of the change.
    let says = |line: &str| !line.split(':').next().is_some_and(|key| key.trim().ends_with("-by"));
    let is_bare = !commit.body.lines().any(|line| !line.trim().is_empty() && says(line));
    findings.extend(is_bare.then(|| Finding::new(&place, 0, "no body: say what was, what is, and why")));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(subject: &str, body: &str) -> Vec<String> {
        let commit = Commit { id: "1a2b3c".into(), subject: subject.into(), body: body.into() };
        in_commits(&[commit]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_subject_fits_into_a_line_and_a_body_follows() {
        assert_eq!(messages(&"é".repeat(SUBJECT_CHARACTERS_MAX), "It was; it is; because."), [""; 0]);
        let long = messages(&"é".repeat(SUBJECT_CHARACTERS_MAX + 1), "Because.");
        assert_eq!(long, ["commit 1a2b3c: a subject of 73 characters, 72 allowed"]);
        for body in [" \n", "\nSigned-off-by: A <a@b.c>\nCo-authored-by: D\n"] {
            let bare = messages("even: a put", body);
            assert_eq!(bare, ["commit 1a2b3c: no body: say what was, what is, and why"]);
        }
        assert_eq!(messages("even: a put", "It is.\n\nSigned-off-by: A <a@b.c>"), [""; 0]);
    }
}
