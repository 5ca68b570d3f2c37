//! put, get, delete, delete-range, scan, count, stats, check: output, notations, exit codes.

use crate::kvilt::{Store, kvilt};

#[test]
fn a_row_is_put_got_and_deleted() {
    let store = Store::new();
    assert_eq!(store.run("put", &["greeting", "hello"]).ok(), "");
    assert_eq!(store.run("get", &["greeting"]).ok(), "hello\n");
    assert_eq!(store.run("get", &["greeting", "--raw"]).ok(), "hello");
    assert_eq!(store.run("delete", &["greeting"]).ok(), "");
    let told = store.run("get", &["greeting"]).failed(1);
    assert_eq!(told, "kvilt: there is no key `greeting`\n");
    store.run("delete", &["greeting"]).ok();
}

#[test]
fn a_value_may_come_from_standard_input_byte_for_byte() {
    let store = Store::new();
    store.run_with("put", &["k"], b"two\nlines\n").ok();
    assert_eq!(store.run("get", &["k", "--raw"]).ok(), "two\nlines\n");
    assert_eq!(store.run("get", &["k"]).ok(), "two\\nlines\\n\n");
}

#[test]
fn bytes_are_written_in_three_notations() {
    let store = Store::new();
    store.run("put", &["--hex", "00ff5c", "0a41"]).ok();
    store.run("put", &["-dash", "-v"]).ok();
    store.run("put", &["", "the empty key"]).ok();
    let rows = store.run("scan", &[]).ok();
    assert_eq!(rows, "\tthe empty key\n\\x00\\xff\\\\\t\\nA\n-dash\t-v\n");
    assert_eq!(store.run("get", &["--escaped", r"\x00\xff\\"]).ok(), "\\nA\n");
    assert_eq!(
        store.run("scan", &["--hex", "--limit", "2"]).ok(),
        "\t74686520656d707479206b6579\n00ff5c\t0a41\n"
    );
    assert_eq!(
        store.run("scan", &["--json", "--escaped", "--from", "\\x00"]).ok(),
        "{\"key\":{\"hex\":\"00ff5c\"},\"value\":\"\\nA\"}\n{\"key\":\"-dash\",\"value\":\"-v\"}\n"
    );
    assert!(store.run("get", &["--hex", "0"]).failed(2).contains("odd number of digits"));
    assert!(store.run("get", &["--escaped", "\\q"]).failed(2).contains("means nothing"));
}

fn alphabet() -> Store {
    let store = Store::new();
    let rows: String = ('a'..='j').map(|c| format!("{{\"k\":\"{c}\"}}\n")).collect();
    store.run_with("load", &["-", "--key", "k"], rows.as_bytes()).ok();
    store
}

fn keys(store: &Store, arguments: &[&str]) -> String {
    let mut all = vec!["--keys-only"];
    all.extend_from_slice(arguments);
    store.run("scan", &all).ok().replace('\n', "")
}

#[test]
fn a_scan_selects_limits_and_reverses() {
    let store = alphabet();
    assert_eq!(keys(&store, &[]), "abcdefghij");
    assert_eq!(keys(&store, &["--from", "c", "--to", "f"]), "cde");
    assert_eq!(keys(&store, &["--prefix", "d"]), "d");
    assert_eq!(keys(&store, &["--limit", "3"]), "abc");
    assert_eq!(keys(&store, &["--limit", "3", "--reverse"]), "jih");
    assert_eq!(keys(&store, &["--from", "h", "--to", "b"]), "");
    assert_eq!(keys(&store, &["--prefix", "d", "--from", "e"]), "");
    assert_eq!(store.run("scan", &["--json", "--keys-only", "--limit", "1"]).ok(), "{\"key\":\"a\"}\n");
    assert_eq!(store.run("count", &["--from", "c"]).ok(), "8\n");
    assert_eq!(store.run("count", &["--json"]).ok(), "{\"count\":10}\n");
}

#[test]
fn a_range_is_deleted_if_it_is_named() {
    let store = alphabet();
    assert!(store.run("delete-range", &[]).failed(2).contains("--all"));
    // As where a script's variable is empty.
    for all in [&["--prefix", ""][..], &["--from", ""], &["--from", "", "--prefix", ""]] {
        assert!(store.run("delete-range", all).failed(2).contains("--all"), "{all:?}");
    }
    assert_eq!(keys(&store, &[]), "abcdefghij");
    store.run("delete-range", &["--from", "c", "--to", "f"]).ok();
    assert_eq!(keys(&store, &[]), "abfghij");
    assert_eq!(store.run("delete-range", &["--all", "--json"]).ok(), "{\"ok\":true}\n");
    assert_eq!(keys(&store, &[]), "");
}

#[test]
fn keyspaces_are_apart_and_reading_makes_none() {
    let store = Store::new();
    store.run("put", &["k", "default"]).ok();
    store.run("put", &["k", "of users", "--keyspace", "users"]).ok();
    assert_eq!(store.run("get", &["k", "--keyspace", "users"]).ok(), "of users\n");
    assert_eq!(store.run("get", &["k"]).ok(), "default\n");
    assert_eq!(store.run("count", &[]).ok(), "1\n");
    for command in ["scan", "count"] {
        let told = store.run(command, &["--keyspace", "usres"]).failed(1);
        assert_eq!(told, "kvilt: there is no keyspace `usres`\n");
    }
}

#[test]
fn figures_and_checks_are_printed() {
    let store = alphabet();
    let text = store.run("stats", &["--figures"]).ok();
    assert!(text.lines().any(|line| line.starts_with("chunks_now ")), "{text}");
    let json: serde_json::Value = serde_json::from_str(&store.run("stats", &["--json"]).ok()).unwrap();
    assert!(json["chunks_now"].is_u64() && json["write_amplification"].is_f64(), "{json}");
    assert!(store.run("check", &[]).ok().starts_with("sound: "));
    let json: serde_json::Value = serde_json::from_str(&store.run("check", &["--json"]).ok()).unwrap();
    assert_eq!(json["sound"], true);
    assert_eq!(json["damages"], serde_json::json!([]));
}

#[test]
fn stats_of_a_store_at_rest_tell_what_it_holds() {
    let store = Store::new();
    let rows: String = (0..1000).map(|i| format!("{{\"k\":\"{i:04}\"}}\n")).collect();
    store.run_with("load", &["-", "--key", "k"], rows.as_bytes()).ok();
    store.run_with("put", &["large", "--keyspace", "pictures"], &[b'x'; 300_000]).ok();
    store.run("delete", &["0500"]).ok();
    let json: serde_json::Value = serde_json::from_str(&store.run("stats", &["--json"]).ok()).unwrap();
    let on_disk: u64 = std::fs::read_dir(store.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().extension().is_some_and(|e| e == "log" || e == "table"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    // Keys of 4 bytes, values of 12; one key of 5 bytes.
    let (small, large) = (999 * 16, 300_005);
    assert_eq!((&json["rows"], &json["row_bytes"]), (&1000.into(), &(small + large).into()), "{json}");
    assert_eq!(
        (&json["exact"], &json["engine"], &json["format_version"]),
        (&true.into(), &"even".into(), &1.into())
    );
    let of = |kind: &str| json["files"][kind]["bytes"].as_u64().unwrap_or(0);
    assert_eq!(of("log") + of("table"), on_disk, "{json}");
    assert_eq!(json["beside_rows_bytes"], on_disk - (small + large), "{json}");
    let keyspaces = json["keyspaces"].as_array().unwrap();
    assert_eq!((&keyspaces[0]["name"], &keyspaces[0]["rows"]), (&"".into(), &999.into()));
    assert_eq!((&keyspaces[1]["name"], &keyspaces[1]["row_bytes"]), (&"pictures".into(), &large.into()));
    assert_eq!(
        json["largest_rows"][0],
        serde_json::json!({ "keyspace": "pictures", "key": "large", "bytes": large })
    );
    let at = json["last_checkpoint_unix_seconds"].as_u64().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(at > now - 3600 && at <= now + 3600, "{at} but it is {now}");
    let text = store.run("stats", &["--deep"]).ok();
    for part in
        ["rows              1,000\n", "  293.0 KiB: large of keyspace `pictures`", "last checkpoint   20"]
    {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert!(!text.lines().any(|line| line.ends_with(" 0")), "{text}");
    let text = store.run("stats", &["--hex"]).ok();
    assert!(text.contains(": 6c61726765 of keyspace"), "{text}");
}

#[test]
fn commands_that_only_read_make_no_store() {
    let store = Store::new();
    for command in ["scan", "count", "stats", "check"] {
        let told = store.run(command, &[]).failed(2);
        assert!(told.contains("no such directory"), "{told}");
    }
    assert!(!store.path().exists());
}

#[test]
fn a_directory_that_is_not_a_store_is_left_alone() {
    let store = Store::new();
    std::fs::create_dir(store.path()).unwrap();
    let thesis = store.path().join("thesis.tex");
    std::fs::write(&thesis, "precious").unwrap();
    for (command, arguments) in [("put", &["k", "v"][..]), ("scan", &[]), ("demo", &[])] {
        let told = store.run(command, arguments).failed(2);
        assert!(told.contains("`thesis.tex`") && told.contains("is not a store"), "{told}");
    }
    let told = store.run("get", &["k", "--json"]).failed(2);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["error"]["kind"], "invalid-argument");
    assert_eq!(std::fs::read_dir(store.path()).unwrap().count(), 1);
}

#[test]
fn limits_are_told_and_nothing_breaks() {
    let store = Store::new();
    let long = "k".repeat(64 << 10);
    store.run("put", &[&long, "v"]).ok();
    assert_eq!(store.run("get", &[&long]).ok(), "v\n");
    let told = store.run("put", &[&format!("{long}k"), "v"]).failed(2);
    assert!(told.contains("the key has 65537 bytes"), "{told}");
    assert_eq!(store.run("count", &[]).ok(), "1\n");
    assert!(store.run("count", &["--memory", "17"]).failed(2).contains("at least"));
    assert!(store.run("count", &["--memory", "lots"]).failed(2).contains("--memory"));
}

#[test]
fn keys_and_values_that_are_not_utf_8_are_taken_as_they_stand() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let store = Store::new();
    let path = store.path();
    let run = |command: &str, arguments: &[&[u8]]| {
        let mut all = vec![OsStr::new(command), path.as_os_str()];
        all.extend(arguments.iter().map(|argument| OsStr::from_bytes(argument)));
        kvilt(&all, b"")
    };
    run("put", &[b"\xff", b"\xfe\x80"]).ok();
    run("put", &[b"\xff\xff", b"v"]).ok();
    run("put", &[b"\xf0", b"w"]).ok();
    assert_eq!(run("get", &[b"\xff", b"--json"]).ok(), "{\"value\":{\"hex\":\"fe80\"}}\n");
    assert_eq!(run("get", &[b"--hex", b"ff"]).ok(), "fe80\n");
    assert_eq!(run("scan", &[b"--prefix", b"\xff"]).ok(), "\\xff\t\\xfe\\x80\n\\xff\\xff\tv\n");
    assert_eq!(run("count", &[b"--from", b"\xf1", b"--to", b"\xff\xff"]).ok(), "1\n");
    run("delete", &[b"\xff"]).ok();
    assert_eq!(run("get", &[b"\xff"]).failed(1), "kvilt: there is no key `\\xff`\n");
    run("delete-range", &[b"--prefix", b"\xff"]).ok();
    assert_eq!(run("scan", &[]).ok(), "\\xf0\tw\n");
    assert!(run("get", &[b"k", b"--keyspace", b"\xff"]).failed(2).contains("not UTF-8"));
}

#[test]
fn a_mistake_on_the_command_line_makes_no_store() {
    let store = Store::new();
    let long = "k".repeat((64 << 10) + 1);
    assert!(store.run("put", &[&long, "v"]).failed(2).contains("65537 bytes"));
    assert!(store.run("put", &["--hex", "0", "00"]).failed(2).contains("odd number"));
    for name in ["", &"n".repeat(256)] {
        let told = store.run("put", &["k", "v", "--keyspace", name]).failed(2);
        assert!(told.contains("1 to 255 bytes"), "{told}");
        store.run_with("load", &["-", "--key", "k", "--keyspace", name], b"").failed(2);
    }
    assert!(!store.path().exists());
}

#[test]
fn a_value_from_a_standard_input_that_is_closed_is_refused() {
    let store = Store::new();
    let line = format!("{} put {} k <&-", crate::kvilt::program().display(), store.path().display());
    let ran = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    assert!(!store.path().exists());
    store.run("put", &["k"]).ok();
    assert_eq!(store.run("get", &["k"]).ok(), "\n");
}

#[test]
fn errors_speak_of_the_command_and_not_of_the_library() {
    let store = Store::new();
    let told = |told: String| {
        for word in ["create_if_missing", "error_if_exists", "memory_budget", "the call", "Db::", "Builder"] {
            assert!(!told.contains(word), "`{word}` in: {told}");
        }
        told
    };
    assert!(told(store.run("get", &["k"]).failed(2)).contains("`kvilt put` and `kvilt load` make one"));
    std::fs::create_dir(store.path()).unwrap();
    assert!(told(store.run("scan", &[]).failed(2)).contains("there is no store"));
    store.run("put", &["k", "v"]).ok();
    let path = store.path();
    let to = path.to_str().unwrap();
    assert!(told(store.run("repair", &["--to", to]).failed(2)).contains("a directory that does not exist"));
    assert!(told(store.run("count", &["--memory", "17"]).failed(2)).contains("--memory"));
    told(store.run("put", &[&"k".repeat(70_000), "v"]).failed(2));
}

#[test]
fn a_wrong_command_line_is_told_as_json_if_so_wanted() {
    for arguments in [&["get", "--json"][..], &["--json", "frobnicate"], &["count", "d", "--json", "--nope"]]
    {
        let told: serde_json::Value = serde_json::from_str(&kvilt(arguments, b"").failed(2)).unwrap();
        assert_eq!(told["error"]["kind"], "usage");
        assert!(!told["error"]["message"].as_str().unwrap().is_empty(), "{told}");
    }
    assert!(kvilt(&["--help", "--json"], b"").ok().contains("Usage"));
}

#[test]
fn help_names_the_exit_codes_and_nonsense_is_a_usage_error() {
    let help = kvilt(&["--help"], b"").ok();
    for word in ["Exit codes", "130", "put", "demo", "--durability"] {
        assert!(help.contains(word), "{word}");
    }
    assert!(!help.contains("demo-child"));
    kvilt(&["frobnicate"], b"").failed(2);
    kvilt(&["get"], b"").failed(2);
    kvilt(&["scan", "dir", "--hex", "--escaped"], b"").failed(2);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    use std::process::{Command, Stdio};
    let store = Store::new();
    let rows: String = (0..20_000).map(|i| format!("{{\"k\":{i}}}\n")).collect();
    store.run_with("load", &["--jsonl", "-", "--key", "k"], rows.as_bytes()).ok();
    let mut child = Command::new(crate::kvilt::program())
        .arg("scan")
        .arg(store.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
