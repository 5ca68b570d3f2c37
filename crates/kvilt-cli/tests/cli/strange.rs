//! What a stranger may type, and where a command may end: odd arguments, places that are no stores, outputs
//! that are full or gone, Ctrl-C.

use std::{
    fs,
    io::{Read, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use crate::kvilt::{Store, kvilt, program};

#[test]
fn what_was_typed_wrong_is_code_2_whoever_finds_it() {
    let store = Store::new();
    store.run("put", &["k", "v"]).ok();
    let long = "k".repeat(70_000);
    let name = "n".repeat(256);
    for words in [
        &["put", &long, "v"][..],
        &["get", &long],
        &["delete", &long],
        &["put", "k", "v", "--memory", "1KiB"],
        &["get", "k", "--memory", "1048575"],
        &["scan", "--memory", "0"],
        &["load", "-", "--key", "k", "--memory", "1KiB"],
        &["check", "--memory", "1B"],
        &["stats", "--memory", "1k"],
        &["repair", "--to", "new", "--memory", "1KiB"],
        &["get", "k", "--keyspace", ""],
        &["scan", "--keyspace", &name],
        &["count", "--keyspace", &name],
        &["delete", "k", "--keyspace", &name],
        &["get", "--hex", "6"],
        &["get", "--hex", "6g"],
        &["scan", "--hex", "--from", "0x00"],
        &["get", "--escaped", "\\x6"],
        &["get", "--escaped", "\\u0041"],
        &["count", "--escaped", "--prefix", "\\"],
        &["get", "--hex", "--escaped", "61"],
        &["scan", "--limit", "-1"],
        &["scan", "--limit", "1.5"],
        &["put", "k", "v", "--durability", "perhaps"],
        &["get", "k", "--raw", "--json"],
        &["load", "rows.csv", "--key", "k"],
        &["stats", "--keyspace", "users"],
        &["check", "--keyspace", "users"],
        &["repair", "--to", "new", "--keyspace", "users"],
    ] {
        let ran = store.run_with(words[0], &words[1..], b"{\"k\":1}\n");
        assert_eq!(ran.code, 2, "{words:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.is_empty() && ran.stderr.len() > 20, "{words:?}: {}{}", ran.stdout, ran.stderr);
        let as_json =
            store.run_with(words[0], &[&words[1..], &["--json"]].concat(), b"{\"k\":1}\n").failed(2);
        let told: serde_json::Value = serde_json::from_str(&as_json).unwrap();
        assert!(["usage", "invalid-argument"].contains(&told["error"]["kind"].as_str().unwrap()), "{told}");
    }
    assert_eq!(store.run("scan", &[]).ok(), "k\tv\n");
    let told: serde_json::Value = serde_json::from_str(&kvilt(&["--json"], b"").failed(2)).unwrap();
    assert!(!told.to_string().contains("demo-child"), "{told}");
}

#[test]
fn a_directory_that_is_no_store_is_code_2_and_told_why() {
    let place = Store::new();
    let file = place.file("file", "precious");
    let root = place.path().parent().unwrap().to_path_buf();
    let at = |name: &str| root.join(name).to_str().unwrap().to_string();
    fs::create_dir(at("empty")).unwrap();
    fs::create_dir(at("foreign")).unwrap();
    fs::write(at("foreign/thesis.tex"), "precious").unwrap();
    let new = at("new");
    let long = at(&"n".repeat(300));
    for (dir, told) in [
        (long, ["is longer than the file system allows", "is longer than the file system allows"]),
        (at("missing"), ["no such directory", "there is no directory"]),
        (at("empty"), ["the directory is empty", "the directory is empty"]),
        (at("foreign"), ["holds `thesis.tex`; name the directory of a store", "no file in it is"]),
        (file.clone(), ["is not a directory; name the directory of a store", "is not a directory"]),
        (file + "/below", ["is not a directory; name the directory of a store", "is not a directory"]),
    ] {
        for (words, told) in [
            (&["get", &dir, "k"][..], told[0]),
            (&["scan", &dir], told[0]),
            (&["count", &dir], told[0]),
            (&["stats", &dir], told[0]),
            (&["check", &dir], told[0]),
            (&["delete", &dir, "k"], told[0]),
            (&["delete-range", &dir, "--all"], told[0]),
            (&["repair", &dir, "--to", &new], told[1]),
        ] {
            let error = kvilt(words, b"").failed(2);
            assert!(error.contains(told) && error.contains(&dir), "{words:?}: {error}");
            assert!(!error.contains("is empty, or does not exist"), "{words:?}: {error}");
            if told.contains("no such") || told.contains("empty") && words[0] != "repair" {
                assert!(error.contains("`kvilt put` and `kvilt load` make one"), "{words:?}: {error}");
            }
        }
    }
}

#[test]
fn no_command_makes_a_store_inside_of_a_store() {
    let store = Store::new();
    store.run("put", &["k", "v"]).ok();
    let names = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names(&store.path());
    let outer = store.path();
    let outer = outer.to_str().unwrap();
    for inner in ["x", "x/y/z"] {
        let inner = format!("{outer}/{inner}");
        for words in [
            &["put", &inner, "k", "v"][..],
            &["load", &inner, "-", "--key", "k"],
            &["repair", outer, "--to", &inner],
            &["demo", &inner],
        ] {
            let told = kvilt(words, b"{\"k\":1}\n").failed(2);
            assert!(
                told.contains("is the directory of a store") && told.contains(outer),
                "{words:?}: {told}"
            );
            assert_eq!(names(&store.path()), before, "{words:?}");
        }
    }
}

#[test]
fn a_load_that_comes_to_nothing_leaves_an_empty_directory_empty() {
    let store = Store::new();
    fs::create_dir(store.path()).unwrap();
    for (arguments, input) in [
        (&["--csv", "-", "--key", "a"][..], &b"a,b\n1\n"[..]),
        (&["--jsonl", "-", "--key", "a"], b"nonsense\n"),
        (&["--jsonl", "-", "--key", "a"], b"\x1f\x8b\x08 cut"),
    ] {
        let told = store.run_with("load", arguments, input).failed(2);
        assert!(told.contains("so no store was made"), "{told}");
        assert_eq!(fs::read_dir(store.path()).unwrap().count(), 0, "{told}");
    }
}

#[test]
fn a_store_that_cannot_be_opened_promises_no_rows() {
    let store = Store::new();
    store.run("put", &["k", "v"]).ok();
    for entry in fs::read_dir(store.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "manifest") {
            fs::remove_file(path).unwrap();
        }
    }
    for words in [&["get", "k"][..], &["scan"], &["stats"], &["put", "k", "w"], &["delete", "k"]] {
        let told = store.run(words[0], &words[1..]).failed(3);
        assert!(
            told.contains("the file that lists them is missing") && told.contains("`kvilt repair`"),
            "{told}"
        );
        assert!(!told.contains("stay readable"), "{told}");
    }
}

/// Runs a line of the shell, with the program as `$0` and a directory as `$1`.
fn sh(line: &str, dir: &Path) -> Output {
    Command::new("sh").arg("-c").arg(line).arg(program()).arg(dir).output().unwrap()
}

#[test]
fn a_full_output_is_told_and_a_closed_one_hides_nothing() {
    let store = Store::new();
    let rows: String = (0..20_000).map(|i| format!("{{\"k\":{i}}}\n")).collect();
    store.run_with("load", &["-", "--key", "k"], rows.as_bytes()).ok();
    for command in
        ["get $1 7", "get --raw $1 7", "scan $1", "count $1", "stats $1", "check $1", "put $1 x y --json"]
    {
        let ran = sh(&format!("$0 {} > /dev/full", command.replace("$1", "\"$1\"")), &store.path());
        let told = String::from_utf8(ran.stderr).unwrap();
        assert!(
            ran.status.code() == Some(3) && told.contains("cannot write the output"),
            "{command}: {told}"
        );
    }
    // The first rows are enough for `head`, and nothing is said of that.
    let ran = sh("{ $0 scan \"$1\"; echo $? >&2; } | head -n 1", &store.path());
    assert_eq!((&*ran.stdout, &*ran.stderr), (&b"0\t{\"k\":0}\n"[..], &b"0\n"[..]));
    // What went wrong is told, whether or not there is somebody who reads the rest.
    for output in ["> /dev/full", "| true"] {
        let line = format!(
            "{{ printf 'a,b\\n1,2\\n3\\n' | $0 load \"$1\" --csv - --key a; echo $? >&2; }} {output}"
        );
        let told = String::from_utf8(sh(&line, &store.path()).stderr).unwrap();
        assert!(told.contains("line 3: ") && told.ends_with("\n2\n"), "{output}: {told}");
    }
    // Nor does it end a load that nobody reads what it skips.
    let line = "{ printf 'a,b\\n1\\n1\\n5,6\\n' | $0 load \"$1\" --csv - --key a --on-error skip; echo $?; } 2> /dev/full";
    let told = String::from_utf8(sh(line, &store.path()).stdout).unwrap();
    assert!(told.starts_with("loaded 1 row") && told.ends_with("\n0\n"), "{told}");
    // The largest file is the log; a byte in its midst is damaged.
    let mut files: Vec<_> = fs::read_dir(store.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "log" || extension == "table"));
    let largest = files.into_iter().max_by_key(|file| file.metadata().unwrap().len()).unwrap();
    let mut bytes = fs::read(&largest).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    fs::write(&largest, bytes).unwrap();
    for output in ["", "> /dev/full", "| true"] {
        let told = sh(&format!("{{ $0 check \"$1\"; echo $? >&2; }} {output}"), &store.path()).stderr;
        let told = String::from_utf8(told).unwrap();
        assert!(told.contains("the store is damaged in ") && told.ends_with("\n3\n"), "{output}: {told}");
    }
}

/// "The rows before it are stored", it said, and after it there were none: the store could not be closed
/// either.
#[test]
fn a_load_that_fills_the_disk_tells_what_it_did_and_promises_nothing_that_is_not_kept() {
    let store = Store::new();
    let rows: String = (0..100_000).map(|i| format!("{{\"k\":{i}}}\n")).collect();
    store.file("rows", rows);
    // A limit on the length of files is a full disk to the store; the shell counts blocks of 512 bytes or
    // of 1024.
    let line = "trap '' XFSZ; ulimit -f 1000; exec $0 load \"$1\" --jsonl \"$1/../rows\" --key k --json";
    let ran = Command::new("sh")
        .args(["-c", &line.replace("$1/../", "$2/")])
        .arg(program())
        .arg(store.path())
        .arg(store.path().parent().unwrap())
        .output()
        .unwrap();
    let told: serde_json::Value = serde_json::from_slice(&ran.stderr).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((ran.status.code(), &told["error"]["kind"]), (Some(3), &"no-space".into()), "{told}");
    assert_eq!(report["complete"], false, "{report}");
    let done = report["rows"].as_u64().unwrap();
    let count: u64 = store.run("count", &[]).ok().trim().parse().unwrap();
    let message = told["error"]["message"].as_str().unwrap();
    assert!(done > 1000 && done < 100_000, "{report}");
    match report["durable"].as_bool().unwrap() {
        true => assert!(count == done && message.contains("rows before it are stored"), "{count}: {message}"),
        false => {
            assert!(count <= done && message.contains("may be lost from the last checkpoint on"), "{message}")
        }
    }
    store.run("check", &[]).ok();
    store.run("put", &["k", "v"]).ok();
}

#[test]
fn a_store_that_may_not_be_entered_is_told_who_may() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let store = Store::new();
    store.run("put", &["k", "v"]).ok();
    let root = store.path().parent().unwrap().to_path_buf();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&root, 0o755);
    // Root may everything, so somebody else has to try.
    let somebody = if fs::metadata(&root).unwrap().uid() == 0 {
        mode(&store.path(), 0o700);
        "setpriv --reuid 65534 --regid 65534 --clear-groups"
    } else {
        mode(&store.path(), 0o000);
        "env"
    };
    if !sh(&format!("{somebody} $0 --version"), &root).status.success() {
        mode(&store.path(), 0o700);
        eprintln!("nobody else can be had here, or may run the program: not tested");
        return;
    }
    for command in
        ["get $1 k", "put $1 k v", "scan $1", "check $1", "repair $1 --to $1/../new", "put $1/x k v"]
    {
        let ran = sh(&format!("{somebody} $0 {command}"), &store.path());
        let told = String::from_utf8(ran.stderr).unwrap();
        assert!(
            ran.status.code() == Some(3) && told.contains("denied") && told.contains("owner"),
            "{command}: {told}"
        );
    }
    mode(&store.path(), 0o700);
    assert_eq!(store.run("get", &["k"]).ok(), "v\n");
}

fn start(store: &Store, command: &str, arguments: &[&str]) -> Child {
    Command::new(program())
        .arg(command)
        .arg(store.path())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// How often the thread that waits for Ctrl-C went to sleep: once more, when it has told of it. None where
/// the system does not tell.
fn naps_of_listener(child: &Child) -> Option<String> {
    status_of_listener(child, "voluntary_ctxt_switches")
}

/// Whether the thread that waits for Ctrl-C does not sleep yet. Not where the system does not tell.
fn is_listener_awake(child: &Child) -> bool {
    let is_told = Path::new(&format!("/proc/{}/task", child.id())).exists();
    is_told && !status_of_listener(child, "State").is_some_and(|state| state.contains("sleeping"))
}

/// A line of the status of the thread that waits for Ctrl-C.
fn status_of_listener(child: &Child, name: &str) -> Option<String> {
    let threads = fs::read_dir(format!("/proc/{}/task", child.id())).ok()?;
    let read = |path: &Path, name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
    let listener = threads
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| read(path, "comm").trim() == "ctrl-c")?;
    let status = read(&listener, "status");
    status.lines().find(|line| line.starts_with(name)).map(str::to_string)
}

fn press_ctrl_c(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_store_in_use_is_told_by_whom_and_ctrl_c_ends_a_load_that_waits_for_its_input() {
    let store = Store::new();
    let mut child = start(&store, "load", &["--jsonl", "-", "--key", "k"]);
    let mut stdin = child.stdin.take().unwrap();
    // More than the pipe and the buffers hold: when it is written, the store is open.
    let rows: String = (0..200_000u32).map(|i| format!("{{\"k\":\"{i:08}\"}}\n")).collect();
    stdin.write_all(rows.as_bytes()).unwrap();
    let new = store.path().with_file_name("new");
    let new = new.to_str().unwrap();
    for words in [
        &["get", "k"][..],
        &["put", "k", "v"],
        &["scan"],
        &["count"],
        &["check"],
        &["stats"],
        &["delete-range", "--all"],
        &["repair", "--to", new],
    ] {
        let told = store.run(words[0], &words[1..]).failed(3);
        assert!(told.contains(&format!("process {}", child.id())), "{words:?}: {told}");
    }
    // Nothing more comes, and the input is not closed either.
    press_ctrl_c(&child);
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap().replace(',', "");
    assert_eq!(output.status.code(), Some(130), "{told}");
    let count = store.run("count", &[]).ok();
    assert!(
        told.contains(&format!("cancelled; {} rows are stored", count.trim())),
        "{told} but there are {count}"
    );
    assert!(count.trim().parse::<u64>().unwrap() > 1000, "{count}");
    drop(stdin);
}

#[test]
fn ctrl_c_before_the_first_row_makes_no_store() {
    for format in ["--jsonl", "--csv"] {
        let store = Store::new();
        let mut child = start(&store, "load", &[format, "-", "--key", "k", "--json"]);
        let mut stdin = child.stdin.take().unwrap();
        // It listens to Ctrl-C before it reads: when more is written than the pipe holds, it does.
        stdin.write_all(&vec![b' '; 4 << 20]).unwrap();
        press_ctrl_c(&child);
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{told}");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["error"]["kind"], "cancelled");
        assert!(!store.path().exists(), "{told}");
        drop(stdin);
    }
}

#[test]
fn ctrl_c_ends_a_scan_behind_a_whole_line() {
    let store = Store::new();
    let rows: String = (0..200_000).map(|i| format!("{{\"k\":{i}}}\n")).collect();
    store.run_with("load", &["-", "--key", "k"], rows.as_bytes()).ok();
    let mut child = start(&store, "scan", &[]);
    let mut stdout = child.stdout.take().unwrap();
    let mut text = vec![0; 100];
    stdout.read_exact(&mut text).unwrap();
    while is_listener_awake(&child) {
        std::thread::yield_now();
    }
    // It waits for room in the pipe now, or will soon, and goes on only when it knows.
    let naps = naps_of_listener(&child);
    press_ctrl_c(&child);
    while naps.is_some() && naps_of_listener(&child) == naps {
        std::thread::yield_now();
    }
    stdout.read_to_end(&mut text).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{told}");
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    assert!(text.ends_with(b"\n") && lines < 200_000, "{lines}");
    assert!(told.replace(',', "").contains(&format!("cancelled behind {lines} rows")), "{told}: {lines}");
}

#[test]
fn tables_of_every_shape_are_loaded_or_told() {
    let check = |csv: &[u8], arguments: &[&str], told: Result<&str, &str>| {
        let store = Store::new();
        let ran = store.run_with("load", &[&["--csv", "-", "--key", "a"], arguments].concat(), csv);
        let name = String::from_utf8_lossy(csv).chars().take(60).collect::<String>();
        match told {
            Ok(rows) => {
                assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
                assert_eq!(store.run("scan", &[]).ok(), rows, "{name}");
            }
            Err(words) => {
                assert!(ran.code == 2 && ran.stderr.contains(words), "{name}: {}{}", ran.stdout, ran.stderr);
            }
        }
    };
    check(b"\xef\xbb\xbfa,b\r\n1,2\r\n", &[], Ok("1\t{\"a\":1,\"b\":2}\n"));
    check(b"\xef\xbb\xbf\"a\",b\n1,2", &[], Ok("1\t{\"a\":1,\"b\":2}\n"));
    check(b"a,b\r1,2\r\r3,4", &[], Ok("1\t{\"a\":1,\"b\":2}\n3\t{\"a\":3,\"b\":4}\n"));
    check(b"a,b\n1\0,2\n", &[], Ok("1\\x00\t{\"a\":\"1\\\\u0000\",\"b\":2}\n"));
    check(b"a,\n1,2\n", &[], Ok("1\t{\"a\":1,\"\":2}\n"));
    check(b"a,b\n,2\n", &[], Ok("\t{\"a\":\"\",\"b\":2}\n"));
    check(b"a,b\n1\n2,3,4\n5,6\n", &["--on-error", "skip"], Ok("5\t{\"a\":5,\"b\":6}\n"));
    check(b"a,b\n1\n", &[], Err("line 2: the row has 1 field, the first line has 2"));
    check(b"b,,a,\n", &[], Err("line 1: columns 2 and 4 have the same name, ``"));
    check(b"a,b,a\n", &[], Err("line 1: columns 1 and 3 have the same name, `a`"));
    check(b" a,b\tc\n", &[], Err("there is no column `a`; there are: ` a`, `b\\tc`"));
    let wide = |columns: usize| {
        let names: Vec<String> = (1..columns).map(|i| format!("c{i}")).collect();
        format!("a,{}\n{}7\n", names.join(","), "7,".repeat(columns - 1))
    };
    let store = Store::new();
    store.run_with("load", &["--csv", "-", "--key", "a"], wide(60_000).as_bytes()).ok();
    let row: serde_json::Value = serde_json::from_str(&store.run("get", &["7"]).ok()).unwrap();
    assert_eq!((row.as_object().unwrap().len(), &row["c59999"]), (60_000, &7.into()));
    check(wide(70_000).as_bytes(), &[], Err("there are 70000 columns; up to 65536 are allowed"));
}
