//! What one group of writes comes to: the leader is given the group, so nothing is left to chance.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use kvilt_base::{Disk as _, Durability, FileName, KeyRange, Swap, Version};
use kvilt_format::names::COMMIT;
use kvilt_io::MemoryDisk;

use super::{Deed, Open, Task, scrub};
use crate::{bed, files::Hold, options::Options, store::Store};

fn open(disk: Arc<MemoryDisk>) -> Arc<Store> {
    let mut options = Options::tiny();
    options.settings.durability = Durability::Sync { interval: Duration::from_secs(3600) };
    bed::open(disk, &options)
}

fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    store.get(key, Version::NEWEST, &mut |value| found = Some(value.to_vec())).unwrap();
    found
}

fn put(value: &[u8]) -> Deed {
    Deed::Write(vec![(b"k".to_vec(), Some(value.to_vec()))])
}

fn swap(expected: Option<&[u8]>, new: Option<&[u8]>) -> Deed {
    Deed::Swap { key: b"k".to_vec(), expected: expected.map(<[u8]>::to_vec), new: new.map(<[u8]>::to_vec) }
}

/// What each deed of a group comes to: done, or the value that a swap found instead.
fn led(store: &Store, deeds: Vec<Deed>) -> Vec<Result<(), Option<Vec<u8>>>> {
    let tasks: Vec<Task> =
        deeds.into_iter().map(|deed| Task { deed, outcome: Arc::new(OnceLock::new()) }).collect();
    store.lead(store.commit.as_ref().unwrap(), &tasks).unwrap();
    let outcome = |task: Task| match task.outcome.get().unwrap().as_ref().unwrap() {
        Swap::Done => Ok(()),
        Swap::Differs(actual) => Err(actual.as_ref().map(|value| value.to_vec())),
    };
    tasks.into_iter().map(outcome).collect()
}

/// Writes of a group are logged together, but a swap among them must see those before it.
#[test]
fn a_swap_sees_what_comes_before_it_in_its_group() {
    let everything = || Deed::DeleteRange(KeyRange::all());
    let differs = |actual: Option<&[u8]>| Err(actual.map(<[u8]>::to_vec));
    let groups = [
        (vec![put(b"1"), swap(Some(b"1"), Some(b"2"))], vec![Ok(()), Ok(())], Some(b"2")),
        (vec![put(b"1"), swap(None, Some(b"2"))], vec![Ok(()), differs(Some(b"1"))], Some(b"1")),
        (
            vec![swap(None, Some(b"1")), swap(None, Some(b"2")), swap(Some(b"1"), Some(b"3"))],
            vec![Ok(()), differs(Some(b"1")), Ok(())],
            Some(b"3"),
        ),
        (
            vec![put(b"1"), everything(), swap(Some(b"1"), Some(b"2")), swap(None, Some(b"3"))],
            vec![Ok(()), Ok(()), differs(None), Ok(())],
            Some(b"3"),
        ),
        (
            vec![put(b"1"), swap(Some(b"1"), None), swap(Some(b"1"), Some(b"2"))],
            vec![Ok(()), Ok(()), differs(None)],
            None,
        ),
    ];
    for (group, (deeds, outcomes, last)) in groups.into_iter().enumerate() {
        let disk = MemoryDisk::new(1);
        let store = open(disk.clone());
        assert_eq!(led(&store, deeds), outcomes, "group {group}");
        let last = last.map(|value| value.to_vec());
        assert_eq!(value(&store, b"k"), last, "group {group}");
        assert_eq!(value(&open(disk.kill_image()), b"k"), last, "group {group} after a kill");
    }
}

#[test]
fn zeros_are_written_over_all_that_a_failed_append_may_have_left() {
    let disk = MemoryDisk::new(1);
    for (offset, len) in [(100, 300_000), (70_000, 300_000), (70_000, 70_000), (200_000, 200_001)] {
        let name = FileName::Of(COMMIT, 1);
        disk.replace(name, vec![7; len]);
        let open = Open {
            number: 1,
            file: disk.open(name).unwrap(),
            offset,
            zeroed_to: offset,
            has_records: true,
            _hold: Hold::default(),
        };
        scrub(&open).unwrap();
        let bytes = disk.contents(name).unwrap();
        let (before, behind) = bytes.split_at(offset as usize);
        assert_eq!(bytes.len(), len);
        assert!(
            before.iter().all(|&byte| byte == 7) && behind.iter().all(|&byte| byte == 0),
            "{offset} {len}"
        );
    }
}
