//! load: formats, keys, malformed rows, the flights against `sort`, Ctrl-C and SIGKILL.

use std::{
    collections::{BTreeMap, HashSet},
    io::{Read, Write},
    process::{Command, Stdio},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use crate::kvilt::{Store, program};

const FLIGHTS_GZ: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/flights-2013-01.csv.gz");
const FLIGHT_KEY: &str = "origin,carrier,time_hour,flight";

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// What a scan of the flights should print, made without any code of ours: fields split at commas, numbers bare,
/// rows sorted.
fn expected_flights() -> String {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(FLIGHTS_GZ).unwrap()).read_to_string(&mut text).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| names.iter().position(|n| *n == name).unwrap();
    let key_columns: Vec<usize> = FLIGHT_KEY.split(',').map(column).collect();
    let rows: BTreeMap<String, String> = lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let key: Vec<&str> = key_columns.iter().map(|i| fields[*i]).collect();
            let members: Vec<String> = names
                .iter()
                .zip(&fields)
                .map(|(name, field)| match field.parse::<i64>() {
                    Ok(_) => format!("\"{name}\":{field}"),
                    Err(_) => format!("\"{name}\":\"{field}\""),
                })
                .collect();
            (key.join("/"), format!("{{{}}}", members.join(",")))
        })
        .collect();
    rows.iter().map(|(key, value)| format!("{key}\t{value}\n")).collect()
}

#[test]
fn the_flights_scan_out_sorted_in_every_mode() {
    let expected = expected_flights();
    for options in
        [["--durability", "async", "--memory", "4MiB"], ["--durability", "sync", "--memory", "1GiB"]]
    {
        let store = Store::new();
        let mut arguments = vec!["--csv", FLIGHTS_GZ, "--key", FLIGHT_KEY];
        arguments.extend_from_slice(&options);
        let told = store.run("load", &arguments).ok();
        assert!(told.starts_with("loaded 27,004 rows in "), "{told}");
        assert!(store.run("scan", &options).ok() == expected);
        assert!(store.run("check", &[]).ok().starts_with("sound"));
    }
}

#[test]
fn a_load_that_was_killed_can_be_repeated() {
    let expected = expected_flights();
    let rows: HashSet<&str> = expected.lines().collect();
    for durability in ["async", "sync"] {
        let store = Store::new();
        let mut text = Vec::new();
        GzDecoder::new(std::fs::File::open(FLIGHTS_GZ).unwrap()).read_to_end(&mut text).unwrap();
        let mut child = Command::new(program())
            .arg("load")
            .arg(store.path())
            .args(["--csv", "-", "--key", FLIGHT_KEY, "--durability", durability])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // A pipe holds little, so when half of the input is written the child has loaded about that much.
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&text[..text.len() / 2]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        drop(stdin);
        let half = store.run("scan", &[]).ok();
        assert!(half.lines().all(|line| rows.contains(line)), "a row that was never loaded");
        let again = ["--csv", FLIGHTS_GZ, "--key", FLIGHT_KEY, "--durability", durability];
        store.run("load", &again).ok();
        assert!(store.run("scan", &[]).ok() == expected);
    }
}

#[test]
fn csv_and_json_lines_plain_and_gzip_from_files_and_standard_input() {
    let csv = "a,b\n1,x\n2,\"y \"\"z\"\"\"\n";
    let json = "{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y \\\"z\\\"\"}\n";
    let expected = "1-x\t{\"a\":1,\"b\":\"x\"}\n2-y \"z\"\t{\"a\":2,\"b\":\"y \\\\\"z\\\\\"\"}\n";
    let check = |format: &str, content: &[u8], from_stdin: bool| {
        let store = Store::new();
        let file = if from_stdin { "-".to_string() } else { store.file("input", content) };
        let stdin = if from_stdin { content } else { b"" };
        let arguments = [format, &file, "--key", "a,b", "--separator", "-"];
        store.run_with("load", &arguments, stdin).ok();
        assert_eq!(store.run("scan", &[]).ok(), expected, "{format} {from_stdin}");
    };
    for from_stdin in [false, true] {
        check("--csv", csv.as_bytes(), from_stdin);
        check("--csv", &gzip(csv), from_stdin);
        check("--jsonl", json.as_bytes(), from_stdin);
        check("--jsonl", &gzip(json), from_stdin);
    }
}

#[test]
fn a_malformed_row_stops_the_load_and_what_was_before_stays() {
    let store = Store::new();
    let csv = store.file("input.csv", "a,b\n1,x\n2,y\n3\n4,z\n");
    for durability in ["async", "sync"] {
        let told = store.run("load", &["--csv", &csv, "--key", "a", "--durability", durability]).failed(2);
        assert_eq!(
            told,
            "kvilt: line 4: the row has 1 fields, the first line has 2; the 2 rows before it are stored\n"
        );
        assert_eq!(store.run("scan", &["--keys-only"]).ok(), "1\n2\n");
    }
}

#[test]
fn malformed_rows_are_skipped_if_so_told() {
    let store = Store::new();
    let csv = store.file("input.csv", "a,b\n1,x\n2,y\n3\n4,z\n");
    let ran = store.run("load", &["--csv", &csv, "--key", "a", "--on-error", "skip"]);
    assert_eq!(ran.stderr, "kvilt: line 4: the row has 1 fields, the first line has 2; skipped\n");
    assert!(ran.ok().ends_with("rows/s), 1 malformed rows skipped\n"));
    assert_eq!(store.run("scan", &["--keys-only"]).ok(), "1\n2\n4\n");
    let json =
        "{\"a\":7}\n{\"a\":\n[]\n{\"a\":null}\n{\"b\":1}\n".to_string() + &"x\n".repeat(30) + "{\"a\":8}\n";
    let ran = store.run_with("load", &["-", "--key", "a", "--on-error", "skip", "--json"], json.as_bytes());
    assert!(ran.stderr.contains("line 2: not a JSON object: EOF while parsing a value at column 5; skipped"));
    assert!(ran.stderr.contains("kvilt: 14 more malformed rows skipped"), "{}", ran.stderr);
    let report: serde_json::Value = serde_json::from_str(&ran.ok()).unwrap();
    assert_eq!((&report["rows"], &report["skipped"]), (&2.into(), &34.into()));
}

#[test]
fn rows_beyond_the_limits_are_malformed_rows() {
    let store = Store::new();
    let csv = store.file("input.csv", format!("a\n{}\n{}\n", "k".repeat(65_536), "k".repeat(65_537)));
    let told = store.run("load", &["--csv", &csv, "--key", "a"]).failed(2);
    assert!(told.contains("line 3: the key has 65537 bytes"), "{told}");
    assert_eq!(store.run("count", &[]).ok(), "1\n");
}

#[test]
fn input_that_cannot_be_read_is_told_before_a_store_is_made() {
    let store = Store::new();
    let csv = store.file("input.csv", "a,b\n1,2\n");
    let told = store.run("load", &["--csv", "/no/such/file", "--key", "a"]).failed(2);
    assert!(told.contains("cannot read `/no/such/file`"), "{told}");
    let told = store.run("load", &["--csv", &csv, "--key", "a,zip"]).failed(2);
    assert!(told.contains("there is no column `zip`; there are: a, b"), "{told}");
    assert!(store.run("load", &["--key", "a"]).failed(2).contains("say what to load"));
    store.run("load", &["--csv", &csv]).failed(2);
    store.run("load", &["--csv", &csv, "--jsonl", &csv, "--key", "a"]).failed(2);
    assert!(!store.path().exists());
    let mut broken = gzip(&"a\n1\n".repeat(100_000));
    broken.truncate(broken.len() / 2);
    let broken = store.file("broken.gz", broken);
    let told = store.run("load", &["--csv", &broken, "--key", "a"]).failed(2);
    assert!(told.contains("cannot read on after line"), "{told}");
    assert!(told.contains("rows before it are stored"), "{told}");
}

#[test]
fn ctrl_c_ends_a_load_cleanly() {
    let store = Store::new();
    let mut child = Command::new(program())
        .arg("load")
        .arg(store.path())
        .args(["--jsonl", "-", "--key", "k"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More than pipe and buffers hold: when this is written, the child is loading.
    let rows =
        |from: u32| -> String { (from..from + 100_000).map(|i| format!("{{\"k\":\"{i:08}\"}}\n")).collect() };
    stdin.write_all(rows(0).as_bytes()).unwrap();
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    // The child looks at the flag between rows, so it gets more of them until it is gone.
    let is_gone = (1..200).any(|i| stdin.write_all(rows(i * 100_000).as_bytes()).is_err());
    assert!(is_gone, "it read on");
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let told = String::from_utf8(output.stderr).unwrap();
    let count = store.run("count", &[]).ok().trim().parse::<u32>().unwrap();
    let stored = told.replace(',', "");
    assert!(stored.contains(&format!("cancelled; {count} rows are stored")), "{told} but there are {count}");
    assert!(count > 0);
}
