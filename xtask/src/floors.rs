//! Floors: which of our crates may import which. The table is `docs/design/0001-floors.md` in code.
//!
//! Imports go down, never sideways. A crate that is not in the table is an error, so nobody moves in unseen.

use anyhow::{Context as _, Result, bail};

use crate::workspace::{BENCH_COMPARE, Workspace};

/// One crate, and the crates of ours that it may name.
struct Room {
    name: &'static str,
    floor: u8,
    /// In `[dependencies]` and `[build-dependencies]`.
    imports: &'static [&'static str],
    /// In `[dev-dependencies]`, besides those.
    test_imports: &'static [&'static str],
}

const ROOMS: &[Room] = &[
    Room { name: "kvilt-base", floor: 0, imports: &[], test_imports: &[] },
    Room { name: "kvilt-format", floor: 1, imports: &["kvilt-base"], test_imports: &[] },
    Room { name: "kvilt-sync", floor: 1, imports: &["kvilt-base"], test_imports: &[] },
    Room { name: "kvilt-io", floor: 1, imports: &["kvilt-base"], test_imports: &[] },
    // An engine sees the `Disk` trait, a word of floor 0; only its tests know a backend.
    Room {
        name: "kvilt-even",
        floor: 2,
        imports: &["kvilt-base", "kvilt-format", "kvilt-sync"],
        test_imports: &["kvilt-io"],
    },
    Room {
        name: "kvilt-kvell",
        floor: 2,
        imports: &["kvilt-base", "kvilt-format", "kvilt-sync"],
        test_imports: &["kvilt-io"],
    },
    Room {
        name: "kvilt-teks",
        floor: 2,
        imports: &["kvilt-base", "kvilt-format", "kvilt-sync"],
        test_imports: &["kvilt-io"],
    },
    // What a third party would write: it shows that words are enough.
    Room { name: "kvilt-example-engine", floor: 2, imports: &["kvilt-base"], test_imports: &["kvilt-io"] },
    // The façade picks the backend, and owns the memory budget that several stores share.
    Room {
        name: "kvilt",
        floor: 3,
        imports: &["kvilt-base", "kvilt-io", "kvilt-sync", "kvilt-even", "kvilt-kvell", "kvilt-teks"],
        test_imports: &["kvilt-example-engine"],
    },
    Room { name: "kvilt-cli", floor: 4, imports: &["kvilt"], test_imports: &[] },
    Room { name: "kvilt-jni", floor: 4, imports: &["kvilt"], test_imports: &[] },
];

/// The workshop imports any floor; nobody imports it, except tests.
const WORKSHOP: &[&str] = &["kvilt-sim", "kvilt-bench", "kvilt-bench-compare", "kvilt-real", "xtask"];

/// One of our crates naming another in its `Cargo.toml`.
#[derive(Debug)]
struct Import {
    from: String,
    to: String,
    is_for_tests: bool,
}

/// Fails, naming every import that does not go down.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let (names, imports) = read(&[workspace.metadata("Cargo.toml")?, workspace.metadata(BENCH_COMPARE)?])?;
    let mut findings: Vec<String> = names.iter().filter_map(|name| unknown(name)).collect();
    findings.extend(imports.iter().filter_map(refuse));
    if findings.is_empty() {
        println!("floors: {} crates, {} imports, all down", names.len(), imports.len());
        return Ok(());
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    bail!("{} imports break the floors", findings.len())
}

/// Our packages, of all our workspaces, and the imports between them.
fn read(workspaces: &[serde_json::Value]) -> Result<(Vec<String>, Vec<Import>)> {
    let mut packages = Vec::new();
    for metadata in workspaces {
        packages.extend(metadata["packages"].as_array().context("metadata without packages")?);
    }
    let name_of = |value: &serde_json::Value| value["name"].as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = packages.iter().copied().map(name_of).collect();
    let mut imports = Vec::new();
    for package in packages {
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = name_of(dependency);
            if names.contains(&to) {
                let is_for_tests = dependency["kind"].as_str() == Some("dev");
                imports.push(Import { from: name_of(package), to, is_for_tests });
            }
        }
    }
    Ok((names, imports))
}

fn unknown(name: &str) -> Option<String> {
    let is_known = WORKSHOP.contains(&name) || ROOMS.iter().any(|room| room.name == name);
    (!is_known).then(|| format!("{name} has no floor: add it to xtask/src/floors.rs and to the design note"))
}

/// Says why an import is not allowed, if it is not.
fn refuse(import: &Import) -> Option<String> {
    let Import { from, to, is_for_tests } = import;
    if WORKSHOP.contains(&from.as_str()) {
        return None;
    }
    if WORKSHOP.contains(&to.as_str()) {
        return (!is_for_tests)
            .then(|| format!("{from} imports {to}: the workshop is imported by nobody but tests"));
    }
    let room = ROOMS.iter().find(|room| room.name == from)?;
    let is_allowed = room.imports.contains(&to.as_str())
        || (*is_for_tests && (room.test_imports.contains(&to.as_str()) || to == from));
    let section = if *is_for_tests { "dev-dependencies" } else { "dependencies" };
    (!is_allowed).then(|| format!("{from} (floor {}) may not name {to} in its {section}", room.floor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(from: &str, to: &str, is_for_tests: bool) -> Import {
        Import { from: from.into(), to: to.into(), is_for_tests }
    }

    #[test]
    fn the_table_itself_goes_down_only() {
        for room in ROOMS {
            for name in room.imports.iter().chain(room.test_imports) {
                let below = ROOMS.iter().find(|other| other.name == *name).unwrap();
                assert!(below.floor < room.floor, "{} imports {name}", room.name);
            }
        }
    }

    #[test]
    fn imports_go_down_and_never_sideways_or_up() {
        for (from, to, is_for_tests, is_refused) in [
            ("kvilt-format", "kvilt-base", false, false),
            ("kvilt-format", "kvilt-io", false, true),
            ("kvilt-base", "kvilt-even", false, true),
            ("kvilt-base", "kvilt-format", true, true),
            ("kvilt-even", "kvilt-io", false, true),
            ("kvilt-even", "kvilt-io", true, false),
            ("kvilt-kvell", "kvilt-even", false, true),
            ("kvilt-teks", "kvilt-kvell", false, true),
            ("kvilt-cli", "kvilt-even", false, true),
            ("kvilt", "kvilt-sim", false, true),
            ("kvilt", "kvilt-sim", true, false),
            ("kvilt-sim", "kvilt-even", false, false),
        ] {
            assert_eq!(refuse(&import(from, to, is_for_tests)).is_some(), is_refused, "{from} -> {to}");
        }
    }

    #[test]
    fn a_crate_without_a_floor_is_found() {
        assert!(unknown("kvilt-attic").is_some());
        assert!(unknown("kvilt-even").is_none() && unknown("xtask").is_none());
    }

    #[test]
    fn metadata_yields_imports_between_our_own_crates() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "kvilt-base", "dependencies": [{ "name": "bytes", "kind": null }] },
            { "name": "kvilt-io", "dependencies": [
                { "name": "kvilt-base", "kind": null }, { "name": "kvilt-base", "kind": "dev" }] },
        ]});
        let other_workspace = serde_json::json!({ "packages": [
            { "name": "kvilt-bench-compare", "dependencies": [{ "name": "kvilt-io", "kind": null }] },
        ]});
        let (names, imports) = read(&[metadata, other_workspace]).unwrap();
        assert_eq!(names, ["kvilt-base", "kvilt-io", "kvilt-bench-compare"]);
        let kinds: Vec<(&str, bool)> = imports.iter().map(|i| (i.from.as_str(), i.is_for_tests)).collect();
        assert_eq!(kinds, [("kvilt-io", false), ("kvilt-io", true), ("kvilt-bench-compare", false)]);
    }
}
