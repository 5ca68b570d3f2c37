//! Tests of lists: what is found, inserted, removed, split and joined, and that nothing is stored twice.

use super::*;

fn list(skip: usize, keys: &[&str]) -> List {
    let mut list = List::new(true, skip);
    for (i, key) in keys.iter().enumerate() {
        let spot = list.find(key.as_bytes());
        assert!(!spot.is_equal);
        list.insert(&spot, key.as_bytes(), Place::new(1, i as u64));
    }
    list
}

fn keys(list: &List, way: &str) -> Vec<String> {
    let mut cursor = list.cursor(way.as_bytes());
    let mut keys = Vec::new();
    while cursor.advance() {
        keys.push(String::from_utf8(cursor.key().to_vec()).unwrap());
    }
    assert_eq!(keys.len(), list.count());
    keys
}

/// A list is a function of its keys, however they came: each shares all that it can with the one before.
fn check_is_compressed(list: &List, way: &str) {
    let mut entries = Entries::new();
    let mut cursor = list.cursor(way.as_bytes());
    while cursor.advance() {
        entries.push(cursor.key(), cursor.place());
    }
    assert_eq!(list.bytes, List::of(&entries, true, list.skip()).bytes);
}

#[test]
fn keys_come_back_in_order_and_share_what_they_can() {
    let list = list(2, &["ab", "abacus", "abz", "abandon", "abandoned", "abba", "aba"]);
    assert_eq!(keys(&list, "ab"), ["ab", "aba", "abacus", "abandon", "abandoned", "abba", "abz"]);
    check_is_compressed(&list, "ab");
    // Two numbers and a place each; then: nothing, a, cus, ndon, ed, ba, z.
    assert_eq!(list.bytes_len(), 7 * 8 + "acusndonedbaz".len());
}

#[test]
fn every_key_is_found_and_no_other() {
    let list = list(1, &["xa", "xab", "xabc", "xb", "x"]);
    for (key, index, is_equal) in [
        ("x", 0, true),
        ("xa", 1, true),
        ("xaa", 2, false),
        ("xab", 2, true),
        ("xabb", 3, false),
        ("xabc", 3, true),
        ("xabcd", 4, false),
        ("xac", 4, false),
        ("xb", 4, true),
        ("xc", 5, false),
    ] {
        let spot = list.find(key.as_bytes());
        assert_eq!((spot.index, spot.is_equal), (index, is_equal), "{key}");
    }
    assert_eq!(list.place(&list.find(b"xb")), Place::new(1, 3));
}

#[test]
fn a_removed_key_leaves_its_bytes_to_the_next() {
    let all = ["k", "kabc", "kabcd", "kabce", "kb"];
    for gone in all {
        let mut list = list(0, &all);
        let place = list.remove(&list.find(gone.as_bytes()));
        assert_eq!(place.slot(), all.iter().position(|key| *key == gone).unwrap() as u64);
        let left: Vec<&str> = all.into_iter().filter(|key| *key != gone).collect();
        assert_eq!(keys(&list, ""), left);
        check_is_compressed(&list, "");
    }
}

#[test]
fn a_list_is_split_and_joined_at_every_entry() {
    let all = ["ka", "kabc", "kabcd", "kb"];
    for at in 0..=all.len() {
        let mut left = list(1, &all);
        let right = left.split_off(at);
        assert_eq!(
            (keys(&left, "k"), keys(&right, "k")),
            (
                all[..at].iter().map(|key| key.to_string()).collect(),
                all[at..].iter().map(|key| key.to_string()).collect()
            )
        );
        check_is_compressed(&right, "k");
        left.append(&right);
        assert_eq!(keys(&left, "k"), all);
        check_is_compressed(&left, "k");
    }
}

#[test]
fn skipped_bytes_come_and_go() {
    let all = ["kaab", "kaabc", "kaad"];
    for (from, to) in [(0, 3), (3, 0), (1, 2), (2, 1), (2, 2)] {
        let mut list = list(from, &all);
        list.set_skip(to, b"kaaz");
        assert_eq!(keys(&list, "kaay"), all);
        check_is_compressed(&list, "kaa");
    }
}

#[test]
fn memory_follows_the_bytes() {
    let mut list = List::new(true, 0);
    for i in 0..200_u32 {
        let key = i.to_be_bytes();
        list.insert(&list.find(&key), &key, Place::default());
        assert!(list.bytes.capacity() <= list.bytes_len() + STEP_BYTES);
    }
    for i in 0..200_u32 {
        list.remove(&list.find(&i.to_be_bytes()));
        assert!(list.bytes.capacity() <= list.bytes_len() + 3 * STEP_BYTES);
    }
    assert_eq!(list.bytes_len(), 0);
}
