//! --engine and convert: which engine a store gets, and how it gets another.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::kvilt::{Store, kvilt, program};

const ROWS: &[u8] = b"{\"k\":\"a\"}\n{\"k\":\"b\"}\n{\"k\":\"c\"}\n";

fn engine_of(store: &Store) -> String {
    let told: serde_json::Value = serde_json::from_str(&store.run("stats", &["--json"]).ok()).unwrap();
    told["engine"].as_str().unwrap().to_string()
}

#[test]
fn each_command_that_makes_a_store_makes_it_by_the_engine_it_is_given() {
    for engine in ["even", "kvell", "teks"] {
        let (put, load) = (Store::new(), Store::new());
        put.run("put", &["k", "v", "--engine", engine]).ok();
        load.run_with("load", &["-", "--key", "k", "--engine", engine], ROWS).ok();
        for (store, rows) in [(&put, "1\n"), (&load, "3\n")] {
            assert_eq!(engine_of(store), engine);
            // Later on nobody has to say it.
            store.run("put", &["more", "rows"]).ok();
            store.run("delete", &["more"]).ok();
            assert_eq!(store.run("count", &[]).ok(), rows);
            assert!(store.run("check", &[]).ok().contains("sound"));
        }
        let new = load.path().with_file_name("new");
        let (from, to) = (load.path(), new.to_str().unwrap().to_string());
        kvilt(&["repair", from.to_str().unwrap(), "--to", &to, "--engine", engine], b"").ok();
        assert_eq!(kvilt(&["count", &to], b"").ok(), "3\n");
    }
    let told = Store::new().run("put", &["k", "v", "--engine", "odd"]).failed(2);
    assert!(told.contains("kvell") && told.contains("teks"), "{told}");
}

#[test]
fn a_store_of_another_engine_is_refused_with_both_names() {
    let store = Store::new();
    store.run("put", &["k", "v", "--engine", "kvell"]).ok();
    let told = store.run("put", &["k", "w", "--engine", "even"]).failed(2);
    assert!(told.contains("`kvell`") && told.contains("`even`") && told.contains("kvilt convert"), "{told}");
    let told = store.run_with("load", &["-", "--key", "k", "--engine", "even", "--json"], ROWS).failed(2);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["error"]["kind"], "invalid-argument");
    assert_eq!(store.run("demo", &["--engine", "even"]).code, 2);
    assert_eq!(store.run("scan", &[]).ok(), "k\tv\n");
    assert_eq!(engine_of(&store), "kvell");
}

#[test]
fn a_store_is_converted_and_compared() {
    let store = Store::new();
    store.run_with("load", &["-", "--key", "k"], ROWS).ok();
    store.run("put", &["ada", "1815", "--keyspace", "users"]).ok();
    let path = |name: &str| store.path().with_file_name(name).to_str().unwrap().to_string();
    let from = path("store");
    let told = kvilt(&["convert", &from, &path("kvell"), "--engine", "kvell"], b"").ok();
    assert!(told.starts_with("the same in both: 4 rows with ") && told.contains("2 keyspaces"), "{told}");
    for (old, new, engines) in [("kvell", "teks", ("kvell", "teks")), ("teks", "back", ("teks", "even"))] {
        let on = ["convert", &path(old), &path(new), "--engine", engines.1, "--memory", "2MiB", "--json"];
        let told: serde_json::Value = serde_json::from_str(&kvilt(&on, b"").ok()).unwrap();
        assert_eq!((&told["same"], &told["rows"], &told["keyspaces"]), (&true.into(), &4.into(), &2.into()));
        assert_eq!((told["from"].as_str(), told["to"].as_str()), (Some(engines.0), Some(engines.1)));
    }
    assert_eq!(kvilt(&["scan", &path("back")], b"").ok(), store.run("scan", &[]).ok());
    assert_eq!(kvilt(&["get", &path("back"), "ada", "--keyspace", "users"], b"").ok(), "1815\n");

    for (to, words) in [
        (path("back"), "there is a store already"),
        (format!("{from}/below"), "inside"),
        (from.clone(), "there is a store already"),
    ] {
        let told = kvilt(&["convert", &from, &to, "--engine", "kvell"], b"").failed(2);
        assert!(told.contains(words), "{to}: {told}");
    }
    let none = path("none");
    let told = kvilt(&["convert", &none, &path("new"), "--engine", "kvell"], b"").failed(2);
    assert!(told.contains("there is no such directory"), "{told}");
    kvilt(&["convert", &from, &path("new"), "--engine", "kvell", "--keyspace", "users"], b"").failed(2);
    let held = ::kvilt::Db::open(&from).unwrap();
    let told = kvilt(&["convert", &from, &path("new"), "--engine", "kvell"], b"").failed(3);
    assert!(told.contains("stop the other process"), "{told}");
    held.close().unwrap();
    assert!(!store.path().with_file_name("new").exists());
}

/// Limits how often a conversion is begun until a signal comes before its end.
const CONVERSIONS_MAX: u32 = 20;

/// Begins a conversion and interrupts it. Returns what it told, or `None` if it had ended; then it is undone.
fn told_when_interrupted(from: &Path, to: &Path) -> Option<String> {
    let mut child = Command::new(program())
        .args(["convert", "--engine", "kvell"])
        .args([from, to])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // From its first step to its last the new directory bears a mark.
    while !to.join("UNFINISHED").exists() && child.try_wait().unwrap().is_none() {}
    // A child that was not waited for keeps its number, also if it ends now.
    if child.try_wait().unwrap().is_none() {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    }
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    if output.status.success() {
        std::fs::remove_dir_all(to).unwrap();
        return None;
    }
    assert_eq!(output.status.code(), Some(130), "{told}");
    Some(told)
}

#[test]
fn ctrl_c_ends_a_conversion_and_leaves_nothing_of_it() {
    let store = Store::new();
    let row = |i: u32| format!("{{\"k\":\"{i:08}\",\"text\":\"{}\"}}\n", "x".repeat(300));
    store.run_with("load", &["-", "--key", "k"], (0..60_000).map(row).collect::<String>().as_bytes()).ok();
    let to = store.path().with_file_name("new");
    // On a busy machine a conversion may end before the signal comes; then there is another one.
    let told = (0..CONVERSIONS_MAX).find_map(|_| told_when_interrupted(&store.path(), &to));
    let told = told.expect("each conversion ended before the signal");
    assert!(told.contains("no store was made"), "{told}");
    assert!(!to.exists());
    assert_eq!(store.run("count", &[]).ok(), "60000\n");
}
