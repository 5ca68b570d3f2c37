//! The example of `README.md` stands here line by line, so it compiles and does what it says. It has no `main`, for
//! brevity, so it cannot be an example of the pages itself.

const README: &str = include_str!("../../../../README.md");
const HERE: &str = include_str!("readme.rs");

#[test]
fn the_example_of_the_readme_runs() -> kvilt::Result<()> {
    let place = tempfile::tempdir().unwrap();
    let events = place.path().join("events");
    // From here to the end as in the README, but for the place.
    let db = kvilt::Db::open(events)?;
    db.put("app42/09:15/user7", "opened")?;
    let before = db.snapshot();
    db.delete("app42/09:15/user7")?;
    assert_eq!(before.prefix("app42/").count(), 1);
    Ok(())
}

#[test]
fn the_example_of_the_readme_is_the_one_above() {
    let (_, rest) = README.split_once("```rust\n").expect("the README has an example");
    let (example, rest) = rest.split_once("```").expect("the example ends");
    assert!(!rest.contains("```rust"), "another example stands in the README, and nowhere here");
    let (_, above) = HERE.split_once("but for the place.\n").unwrap();
    let (above, _) = above.split_once("    Ok(())").unwrap();
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(&example.replace("(\"events\")", "(events)")), lines(above));
}
