//! demo: passes, says so, can be repeated, and never touches another's store.

use crate::kvilt::Store;

#[test]
fn the_demo_passes_twice_on_one_directory() {
    let store = Store::new();
    let told = store.run("demo", &[]).ok();
    for part in ["27,004 rows", "122 flights", "old ones still seen", "no batch seen in part", "numbers kept"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    let report: serde_json::Value =
        serde_json::from_str(&store.run("demo", &["--json", "--memory", "4MiB"]).ok()).unwrap();
    assert_eq!(report["ok"], true);
    assert_eq!(report["flights_loaded"]["rows"], 27_004);
    for what in ["writer_killed_at_level_async", "writer_killed_at_level_sync"] {
        let (kept, promised) = (report[what]["kept"].as_u64(), report[what]["promised"].as_u64());
        assert!(promised >= Some(1) && kept >= promised, "{what}: {kept:?} of {promised:?}");
    }
    assert_eq!(store.run("count", &["--from", "A", "--to", "Z"]).ok(), "26974\n");
}

#[test]
fn the_demo_passes_on_the_other_engines_too() {
    for (engine, words, part, written) in [
        ("kvell", "found in the page cache", "blocks", "written"),
        ("teks", "became full", "memory tables", "flushes"),
    ] {
        let store = Store::new();
        let told = store.run("demo", &["--engine", engine, "--memory", "4MiB"]).ok();
        for part in ["27,004 rows", "old ones still seen", "no batch seen in part", "numbers kept", words] {
            assert!(told.contains(part), "{engine}, {part}: {told}");
        }
        let again = store.run("demo", &["--json", "--memory", "4MiB"]).ok();
        let report: serde_json::Value = serde_json::from_str(&again).unwrap();
        assert_eq!(report["ok"], true);
        assert!(report[part.replace(' ', "_")][written].as_u64() > Some(0), "{engine}: {report}");
    }
}

#[test]
fn the_demo_refuses_a_store_with_other_rows() {
    let store = Store::new();
    store.run("put", &["precious", "row"]).ok();
    let told = store.run("demo", &[]).failed(2);
    assert!(told.contains("rows that are not the demo's"), "{told}");
    assert_eq!(store.run("scan", &[]).ok(), "precious\trow\n");
}
