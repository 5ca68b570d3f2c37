//! The example of `README.md` stands here line by line, so it compiles as it would in a `main.rs`, and does
//! what it says. Only its name, and where the store is, differ.

use std::path::Path;

const README: &str = include_str!("../../../../README.md");
const HERE: &str = include_str!("readme.rs");

fn example(events: &Path) -> kvilt::Result<()> {
    let db = kvilt::Db::open(events)?;
    db.put("app42/09:15/user7", "opened")?;
    let before = db.snapshot();
    db.delete("app42/09:15/user7")?;
    assert_eq!(before.prefix("app42/").count(), 1);
    db.close()
}

#[test]
fn the_example_of_the_readme_runs_again_and_again() {
    let place = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        example(&place.path().join("events")).unwrap();
    }
}

#[test]
fn the_example_of_the_readme_is_the_one_above_and_a_whole_program() {
    let (_, rest) = README.split_once("```rust\n").expect("the README has an example");
    let (example, rest) = rest.split_once("```").expect("the example ends");
    assert!(!rest.contains("```rust"), "another example stands in the README, and nowhere here");
    assert!(
        example.starts_with("fn main() -> kvilt::Result<()> {\n") && example.ends_with("\n}\n"),
        "{example}"
    );
    let example =
        example.replace("fn main()", "fn example(events: &Path)").replace("(\"events\")", "(events)");
    assert!(HERE.contains(&example), "the README has: {example}");
}
