//! load: formats, keys, malformed rows, the flights against `sort`, Ctrl-C and SIGKILL.

use std::{
    collections::{BTreeMap, HashSet},
    io::{Read, Write},
    process::{Command, Stdio},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use crate::kvilt::{Ran, Store, program};

const FLIGHTS_GZ: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/flights-2013-01.csv.gz");
const FLIGHT_KEY: &str = "origin,carrier,time_hour,flight";

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// What a scan of the flights should print, made without any code of ours: fields split at commas, numbers
/// bare, rows sorted.
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
            "kvilt: line 4: the row has 1 field, the first line has 2; the 2 rows before it are stored\n"
        );
        assert_eq!(store.run("scan", &["--keys-only"]).ok(), "1\n2\n");
    }
}

#[test]
fn malformed_rows_are_skipped_if_so_told() {
    let store = Store::new();
    let csv = store.file("input.csv", "a,b\n1,x\n2,y\n3\n4,z\n");
    let ran = store.run("load", &["--csv", &csv, "--key", "a", "--on-error", "skip"]);
    assert_eq!(ran.stderr, "kvilt: line 4: the row has 1 field, the first line has 2; skipped\n");
    let told = ran.ok();
    assert!(told.lines().next().unwrap().ends_with("rows/s), 1 malformed row skipped"), "{told}");
    assert!(told.ends_with("  1 skipped, more or fewer fields than the first line: line 4\n"), "{told}");
    assert_eq!(store.run("scan", &["--keys-only"]).ok(), "1\n2\n4\n");
    let json =
        "{\"a\":7}\n{\"a\":\n[]\n{\"a\":null}\n{\"b\":1}\n".to_string() + &"x\n".repeat(30) + "{\"a\":8}\n";
    let ran = store.run_with("load", &["-", "--key", "a", "--on-error", "skip"], json.as_bytes());
    assert!(ran.stderr.contains("line 2: not a JSON object: the line ends before the object does; skipped"));
    assert!(ran.stderr.contains("kvilt: 14 more malformed rows skipped"), "{}", ran.stderr);
}

#[test]
fn rows_that_are_skipped_are_told_as_json_if_so_wanted() {
    let json =
        "{\"a\":7}\n{\"a\":\n[]\n{\"a\":null}\n{\"b\":1}\n".to_string() + &"x\n".repeat(30) + "{\"a\":8}\n";
    let store = Store::new();
    let ran = store.run_with("load", &["-", "--key", "a", "--on-error", "skip", "--json"], json.as_bytes());
    let told: Vec<serde_json::Value> =
        ran.stderr.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    assert_eq!(told.len(), 21, "{told:?}");
    let first = serde_json::json!({
        "line": 2, "reason": "not-an-object", "message": "not a JSON object: the line ends before the object does",
    });
    assert_eq!(told[0], serde_json::json!({ "skipped": first }));
    assert_eq!(told[3]["skipped"]["reason"], "no-key");
    assert_eq!(told[20], serde_json::json!({ "skipped_more": { "rows": 14 } }));
    let report = report(&ran);
    assert_eq!((&report["rows"], &report["skipped"]), (&2.into(), &34.into()));
    let by_reason = serde_json::json!({
        "not-an-object": { "rows": 32, "first_lines": [2, 3, 6, 7, 8] }, "no-key": { "rows": 2, "first_lines": [4, 5] },
    });
    assert_eq!(report["skipped_by_reason"], by_reason);
}

#[test]
fn an_object_that_has_a_name_twice_is_a_malformed_row() {
    let json = "{\"id\":1}\n{\"id\":2,\"v\":1,\"id\":3}\n{\"id\":4,\"v\":{\"x\":1,\"x\":2}}\n";
    let store = Store::new();
    let told = store.run_with("load", &["-", "--key", "id"], json.as_bytes()).failed(2);
    assert!(told.contains("line 2: the object has the name `id` twice; the 1 row before it"), "{told}");
    let skip = ["-", "--key", "id", "--on-error", "skip", "--json"];
    let told = report(&store.run_with("load", &skip, json.as_bytes()));
    assert_eq!(
        told["skipped_by_reason"]["repeated-name"],
        serde_json::json!({ "rows": 1, "first_lines": [2] })
    );
    assert_eq!(store.run("scan", &["--keys-only"]).ok(), "1\n4\n");
}

#[test]
fn a_column_is_in_the_key_once() {
    let store = Store::new();
    let json = "{\"id\":1,\"x\":2}\n";
    for key in [&["--key", "id,id"][..], &["--key", "id", "--key", "x,id"], &["--key", "id,,x,"]] {
        let told = store.run_with("load", &[&["-"], key].concat(), json.as_bytes()).failed(2);
        assert!(told.contains("--key names the column `") && told.contains("` twice"), "{told}");
    }
    assert!(!store.path().exists());
}

/// It named line 0, or nothing.
#[test]
fn a_damaged_gzip_file_is_told_with_the_last_line_that_is_whole_and_the_byte() {
    let lines: String =
        (0..50_000u32).map(|i| format!("{{\"k\":{}}}\n", i.wrapping_mul(2_654_435_761))).collect();
    let whole = gzip(&lines);
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        bytes
    };
    let inputs = [
        ("cut in the midst", whole[..whole.len() / 2].to_vec()),
        ("cut at the end", whole[..whole.len() - 1].to_vec()),
        ("a checksum", flipped(whole.len() - 6)),
        ("with junk behind", [&whole[..], b"junk that is no gzip"].concat()),
    ];
    for (what, bytes) in inputs {
        for format in ["--jsonl", "--csv"] {
            let store = Store::new();
            let key = if format == "--csv" { "{\"k\":0}" } else { "k" };
            let told = store.run_with("load", &[format, "-", "--key", key], &bytes).failed(2);
            let rows: u64 = store.run("count", &[]).ok().trim().parse().unwrap();
            let line = rows + u64::from(format == "--csv");
            assert!(told.contains(&format!("after line {line}, the last that is whole")), "{what}: {told}");
            assert!(
                told.contains("the compressed input is damaged or cut short, at byte "),
                "{what}: {told}"
            );
            assert!(rows > 10_000, "{what}: {told}");
        }
    }
    for bytes in [&whole[..5], &whole[..12], &[&whole[..10], &[0xff; 100]].concat()] {
        let store = Store::new();
        for format in ["--jsonl", "--csv"] {
            let told = store.run_with("load", &[format, "-", "--key", "k"], bytes).failed(2);
            assert!(told.contains("cannot read the first line of the input: the compressed input"), "{told}");
            assert!(!told.contains("line 0"), "{told}");
        }
        assert!(!store.path().exists());
    }
}

/// What a load told in JSON on standard output, whatever its exit code.
fn report(ran: &Ran) -> serde_json::Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", ran.stdout, ran.stderr))
}

#[test]
fn a_quote_that_is_never_closed_is_told_and_swallows_nothing() {
    let csv = "id,name\n1,\"unclosed\n2,b\n3,c\n4,d\n";
    let store = Store::new();
    let told = store.run_with("load", &["--csv", "-", "--key", "id"], csv.as_bytes()).failed(2);
    assert!(told.contains("line 2: the quote that opens on this line is never closed"), "{told}");
    assert!(told.contains("the 0 rows before it are stored"), "{told}");
    let skip = ["--csv", "-", "--key", "id", "--on-error", "skip", "--json"];
    let ran = store.run_with("load", &skip, csv.as_bytes());
    let skipped: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(skipped["skipped"]["line"], 2, "{skipped}");
    assert_eq!(skipped["skipped"]["reason"], "open-quote", "{skipped}");
    let told = report(&ran);
    assert_eq!((&told["rows"], &told["skipped"]), (&3.into(), &1.into()), "{told}");
    assert_eq!(told["skipped_by_reason"]["open-quote"]["first_lines"], serde_json::json!([2]));
    assert_eq!(store.run("scan", &["--keys-only"]).ok(), "2\n3\n4\n");
}

#[test]
fn a_quote_that_another_rows_quote_closes_is_told_and_swallows_nothing() {
    let csv = "id,name\n1,\"unclosed\n2,\"b\"\n3,c\n";
    let store = Store::new();
    let skip = ["--csv", "-", "--key", "id", "--on-error", "skip"];
    let ran = store.run_with("load", &skip, csv.as_bytes());
    assert!(ran.stderr.contains("line 2: the quote that opens on this line is closed on line 3"));
    ran.ok();
    assert_eq!(store.run("scan", &["--keys-only"]).ok(), "2\n3\n");
}

#[test]
fn a_record_of_any_format_has_a_limit_that_can_be_raised() {
    let field = "x".repeat(5000);
    let csv = format!("id,name\n1,\"{field}\"\n2,\"{field}\n3,{field}\n4,d\n");
    let json = format!("{{\"id\":1,\"name\":\"{field}\"}}\n{{\"id\":4}}\n");
    let load = |format: &str, input: &str, max: &str| {
        let store = Store::new();
        let arguments = [format, "-", "--key", "id", "--on-error", "skip", "--record-max", max, "--json"];
        let told = report(&store.run_with("load", &arguments, input.as_bytes()));
        (store.run("scan", &["--keys-only"]).ok().replace('\n', " "), told["skipped_by_reason"].clone())
    };
    let (keys, reasons) = load("--csv", &csv, "4KiB");
    assert_eq!(keys, "4 ");
    assert_eq!(reasons["open-quote"]["first_lines"], serde_json::json!([2, 3]));
    assert_eq!(reasons["long-record"]["first_lines"], serde_json::json!([4]));
    let (keys, reasons) = load("--csv", &csv, "6KiB");
    assert_eq!(keys, "1 3 4 ");
    assert_eq!(reasons["open-quote"]["first_lines"], serde_json::json!([3]));
    let (keys, reasons) = load("--jsonl", &json, "4KiB");
    assert_eq!((keys.as_str(), &reasons["long-record"]["rows"]), ("4 ", &1.into()));
    assert_eq!(load("--jsonl", &json, "6KiB").0, "1 4 ");
    let store = Store::new();
    for nonsense in ["10", "2GiB", "much"] {
        store.run("load", &["--csv", "-", "--key", "id", "--record-max", nonsense]).failed(2);
    }
}

/// A line that has no end took as much memory as it was long.
#[test]
fn an_input_without_an_end_of_line_takes_bounded_memory() {
    for (format, begin) in
        [("--csv", &b"id\n1\n\"2"[..]), ("--csv", b"id\n1\n2"), ("--jsonl", b"{\"id\":1}\n{")]
    {
        let store = Store::new();
        let mut child = Command::new(program())
            .arg("load")
            .arg(store.path())
            .args([
                format,
                "-",
                "--key",
                "id",
                "--on-error",
                "skip",
                "--record-max",
                "1MiB",
                "--memory",
                "16MiB",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(begin).unwrap();
        let piece = vec![b'x'; 1 << 20];
        (0..200).for_each(|_| stdin.write_all(&piece).unwrap());
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        drop(stdin);
        assert!(child.wait().unwrap().success());
        assert!(peak < 100 << 10, "{peak} KiB for {format}");
        assert_eq!(store.run("count", &[]).ok(), "1\n");
    }
}

#[test]
fn what_is_no_table_of_text_is_told() {
    let store = Store::new();
    let junk: Vec<u8> = (0..50_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    let check = |format: &str, input: &[u8], told: &str| {
        let ran = store.run_with("load", &[format, "-", "--key", "a"], input);
        assert!(ran.stderr.contains(told) && ran.code == 2, "{format}: {}{}", ran.stdout, ran.stderr);
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    };
    check("--csv", b"", "the input is empty");
    check("--csv", b"\xff\xfea\0,\0b\0\n\0", "UTF-16");
    check("--csv", &junk, "line 1: ");
    check("--jsonl", b"\xff\xfe{\0}\0\n\0", "the input is UTF-16");
    check("--jsonl", b"\xfe\xff\0{\0}\0\n", "the input is UTF-16");
    check("--jsonl", b"[{\"a\":1},\n{\"a\":2}]\n", "line 1: not a JSON object, but an array");
    check("--jsonl", b"[{\"a\":1}]\n", "line 1: not a JSON object, but an array; write one object a line");
    check("--jsonl", b"{\n\"a\":1}\n", "line 1: not a JSON object: the line ends before the object does");
    check("--jsonl", b"7\n", "line 1: not a JSON object, but a number");
    check("--csv", b"a,b\n\xff,1\n", "line 2: field 1 is not UTF-8");
    check("--csv", b"\x28\xb5\x2f\xfd rest", "compressed with zstd");
    check("--jsonl", b"PK\x03\x04 rest", "compressed with zip");
    check("--jsonl", &junk, "line 1: not a JSON object");
    check("--csv", b"\x1f\x8b\x08 cut", "cannot read");
    let mut with_junk = gzip("a\n1\n");
    with_junk.extend_from_slice(b"junk behind");
    check("--csv", &with_junk, "cannot read on after line");
    store.run_with("load", &["--csv", "-", "--key", "a"], b"\xef\xbb\xbfa,b\r\n1,\0\r\n2,\r\n3,x").ok();
    assert_eq!(
        store.run("scan", &[]).ok(),
        "1\t{\"a\":1,\"b\":\"\\\\u0000\"}\n2\t{\"a\":2,\"b\":\"\"}\n3\t{\"a\":3,\"b\":\"x\"}\n"
    );
}

#[test]
fn a_gzip_file_that_grows_a_thousand_times_takes_bounded_memory() {
    let store = Store::new();
    let bomb = store.file("bomb.gz", gzip(&format!("a\n1\n\"{}\n3\n", "0".repeat(64 << 20))));
    let arguments = ["--csv", &bomb, "--key", "a", "--on-error", "skip", "--json", "--record-max", "1MiB"];
    let told = report(&store.run("load", &arguments));
    assert_eq!((&told["rows"], &told["skipped"]), (&2.into(), &1.into()), "{told}");
}

#[test]
fn rows_that_replace_a_row_of_the_same_load_are_counted() {
    let csv = "k,v\n5,a\n2,b\n5,c\n9,d\n2,b\n7,e\n5,f\n";
    for durability in ["async", "sync"] {
        let store = Store::new();
        let arguments = ["--csv", "-", "--key", "k", "--json", "--durability", durability];
        let told = report(&store.run_with("load", &arguments, csv.as_bytes()));
        assert_eq!((&told["rows"], &told["repeated"]), (&7.into(), &3.into()), "{told}");
        assert_eq!(told["repeated_first_lines"], serde_json::json!([4, 6, 8]));
        // Again: rows of an earlier load are no repeats, whatever they hold.
        let told = report(&store.run_with("load", &arguments, csv.as_bytes()));
        assert_eq!(told["repeated_first_lines"], serde_json::json!([4, 6, 8]), "{told}");
        assert_eq!(told["repeated_is_exact"], true);
        let text = store.run_with("load", &arguments[..4], b"k,v\n1,a\n1,b\n").ok();
        let line = text.lines().nth(1).unwrap_or_default();
        assert_eq!(line, "  1 replaced an earlier row of this load with the same key: line 3", "{text}");
        let told = report(&store.run_with("load", &arguments, b"k,v\n3,a\n4,b\n"));
        assert_eq!((&told["rows"], &told["repeated"]), (&2.into(), &0.into()), "{told}");
    }
}

#[test]
fn the_repeats_among_many_rows_in_disorder_are_counted_exactly() {
    let mut seen = HashSet::new();
    let mut repeats = 0;
    let mut state = 1u64;
    let mut json = String::new();
    for _ in 0..60_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (state >> 33) % 200_000;
        repeats += u64::from(!seen.insert(key));
        json.push_str(&format!("{{\"k\":{key}}}\n"));
    }
    let store = Store::new();
    let arguments = ["-", "--key", "k", "--json", "--memory", "4MiB"];
    let told = report(&store.run_with("load", &arguments, json.as_bytes()));
    assert_eq!(told["repeated"], repeats, "{told}");
    assert_eq!(told["rows"], 60_000);
    let told = report(&store.run_with("load", &arguments, json.as_bytes()));
    assert_eq!((&told["repeated"], &told["repeated_is_exact"]), (&repeats.into(), &true.into()), "{told}");
}

#[test]
fn repeats_among_more_rows_than_are_remembered_are_a_lower_bound_and_called_so() {
    // Of 200,000 keys beside a store that has rows, 131,072 are remembered in 4 MiB.
    let rows = |range: std::ops::Range<u32>| -> String {
        range.map(|i| format!("{{\"k\":{}}}\n", i.wrapping_mul(2_654_435_761))).collect()
    };
    let store = Store::new();
    store.run("put", &["k", "v"]).ok();
    let arguments = ["-", "--key", "k", "--json", "--memory", "8MiB"];
    let json = rows(0..200_000) + &rows(0..10) + &rows(199_990..200_000);
    let told = report(&store.run_with("load", &arguments, json.as_bytes()));
    assert_eq!((&told["repeated"], &told["repeated_is_exact"]), (&10.into(), &false.into()), "{told}");
}

#[test]
fn a_load_that_stops_tells_what_it_did() {
    let store = Store::new();
    let ran = store.run_with("load", &["--csv", "-", "--key", "a", "--json"], b"a,b\n1,x\n1,y\n3\n4,z\n");
    let told = report(&ran);
    assert_eq!((&told["rows"], &told["repeated"], &told["complete"]), (&2.into(), &1.into(), &false.into()));
    let told: serde_json::Value = serde_json::from_str(&ran.failed(2)).unwrap();
    assert_eq!(told["error"]["kind"], "input");
}

#[test]
fn what_stands_between_the_parts_of_a_key_may_be_any_bytes() {
    let store = Store::new();
    let arguments = ["--csv", "-", "--key", "a,b", "--escaped", "--separator", "\\x00"];
    store.run_with("load", &arguments, b"a,b\n1,2\n").ok();
    assert_eq!(store.run("scan", &["--keys-only"]).ok(), "1\\x002\n");
}

/// 256 of them shared a batch, whatever they had.
#[test]
fn large_rows_do_not_make_a_batch_beyond_its_limit() {
    let value = "x".repeat(1 << 20);
    let json: String = (0..80).map(|i| format!("{{\"k\":{i},\"v\":\"{value}\"}}\n")).collect();
    let store = Store::new();
    let arguments = ["-", "--key", "k", "--durability", "sync", "--memory", "16MiB"];
    store.run_with("load", &arguments, json.as_bytes()).ok();
    assert_eq!(store.run("count", &[]).ok(), "80\n");
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
    assert!(told.contains("there is no column `zip`; there are: `a`, `b`"), "{told}");
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
        .stdout(Stdio::null())
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
