//! What every `Disk` does: one check, run over each backend.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use kvilt_base::disk::FileKind;
use std::{io::ErrorKind, path::Path, sync::Arc};

use kvilt_base::{Disk, File, FileName, Listed, disk::LockFailure};
use kvilt_io::{FaultyDisk, MemoryDisk, NativeDisk};

const LOG: FileKind = FileKind::read_at_random("log");
const TABLE: FileKind = FileKind::read_at_random("table");
const COMMIT: FileKind = FileKind::new("commit");
const MANIFEST: FileKind = FileKind::new("manifest");
const MANIFEST_TEMP: FileKind = FileKind::new("manifest.tmp");
const RESERVE: FileName = FileName::Once(FileKind::new("RESERVE"));
const KINDS: &[FileKind] = &[LOG, TABLE, COMMIT, MANIFEST, MANIFEST_TEMP, FileKind::new("RESERVE")];

#[test]
fn native() {
    let place = tempfile::tempdir().unwrap();
    let disk = NativeDisk::open(&place.path().join("a/store"), KINDS, true).unwrap();
    check_disk(&*disk, place.path());
    assert!(disk.bytes_written() > 0 && disk.bytes_read() > 0);
}

#[test]
fn memory() {
    let disk = MemoryDisk::new(1);
    check_disk(&*disk, Path::new("/elsewhere"));
    assert!(disk.ops() > 10);
}

#[test]
fn faulty_without_plans() {
    check_disk(&*FaultyDisk::new(MemoryDisk::new(1)), Path::new("/elsewhere"));
}

#[test]
fn images_are_disks_too() {
    let disk = MemoryDisk::new(1);
    disk.create(FileName::Of(LOG, 99)).unwrap();
    check_disk(&*disk.crash_image(kvilt_io::Keep::SyncedOnly), Path::new("/elsewhere"));
}

/// `elsewhere` is a directory in which new ones may be made. The disk must be empty.
fn check_disk(disk: &dyn Disk, elsewhere: &Path) {
    check_reads_and_writes(disk);
    check_names(disk);
    check_open_files_outlive_their_names(disk);
    check_handles_share_a_file(disk);
    check_allocation(disk);
    check_lock(disk);
    check_links(disk, elsewhere);
}

fn kind<T>(outcome: std::io::Result<T>) -> ErrorKind {
    match outcome {
        Ok(_) => panic!("expected an error"),
        Err(error) => error.kind(),
    }
}

fn bytes_of(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

fn with_bytes(disk: &dyn Disk, name: FileName, bytes: &[u8]) -> Arc<dyn File> {
    let file = disk.create(name).unwrap();
    file.write_all_at(0, bytes).unwrap();
    file
}

fn check_reads_and_writes(disk: &dyn Disk) {
    let name = FileName::Of(TABLE, 1);
    assert_eq!(kind(disk.open(name)), ErrorKind::NotFound);
    let file = disk.create(name).unwrap();
    assert_eq!(kind(disk.create(name)), ErrorKind::AlreadyExists);
    assert_eq!(file.name(), name);
    assert!(file.is_empty().unwrap());

    file.write_all_at(0, b"hello").unwrap();
    file.write_all_at(3, b"LOW").unwrap();
    assert_eq!(bytes_of(&*file), b"helLOW");
    file.write_all_at(8, b"!").unwrap();
    assert_eq!(bytes_of(&*file), b"helLOW\0\0!", "a gap reads as zeros");
    file.write_all_at(2, b"").unwrap();

    let mut buffer = [7; 4];
    assert_eq!(file.read_at(7, &mut buffer).unwrap(), 2);
    assert_eq!(buffer, [0, b'!', 7, 7], "what was not read is not touched");
    assert_eq!(file.read_at(9, &mut buffer).unwrap(), 0);
    assert_eq!(file.read_at(1 << 40, &mut buffer).unwrap(), 0);
    assert_eq!(kind(file.read_exact_at(7, &mut buffer)), ErrorKind::UnexpectedEof);
    for (offset, len) in [(0, 4), (7, 100), (1 << 40, 5), (3, 0), (u64::MAX, 1)] {
        file.will_read(offset, len);
        file.will_not_read(offset, len as u64);
        file.will_sync(offset, len as u64);
    }
    assert_eq!(bytes_of(&*file), b"helLOW\0\0!", "advice changes nothing");
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    disk.remove(name).unwrap();
}

fn check_names(disk: &dyn Disk) {
    let [a, b, temp] = [FileName::Of(MANIFEST, 1), FileName::Of(MANIFEST, 2), FileName::Of(MANIFEST_TEMP, 2)];
    let file = with_bytes(disk, a, b"old");
    let new = with_bytes(disk, temp, b"newer");
    let mut listed = disk.list().unwrap();
    listed.retain(|entry| !matches!(entry, Listed::Ours(FileName::LOCK)));
    listed.sort_by_key(|entry| format!("{entry:?}"));
    assert_eq!(listed, [Listed::Ours(a), Listed::Ours(temp)]);
    assert_eq!([a, temp].map(|name| disk.len(name).unwrap()), [3, 5]);

    disk.rename(temp, b).unwrap();
    assert_eq!(new.name(), b, "a handle follows its file");
    assert_eq!(kind(disk.open(temp)), ErrorKind::NotFound);
    disk.rename(b, a).unwrap();
    assert_eq!(bytes_of(&*disk.open(a).unwrap()), b"newer", "the new one replaced the old one");
    assert_eq!(bytes_of(&*file), b"old", "who had the old one open keeps it");
    disk.rename(a, a).unwrap();
    new.write_all_at(0, b"N").unwrap();
    assert_eq!(bytes_of(&*disk.open(a).unwrap()), b"Newer");
    assert_eq!(kind(disk.rename(temp, b)), ErrorKind::NotFound);
    assert_eq!(kind(disk.remove(temp)), ErrorKind::NotFound);
    assert_eq!(kind(disk.len(temp)), ErrorKind::NotFound);
    disk.remove(a).unwrap();
    disk.sync_dir().unwrap();
}

fn check_open_files_outlive_their_names(disk: &dyn Disk) {
    let name = FileName::Of(LOG, 5);
    let file = with_bytes(disk, name, b"before");
    disk.remove(name).unwrap();
    let fresh = with_bytes(disk, name, b"fresh");
    file.write_all_at(6, b", after").unwrap();
    assert_eq!(bytes_of(&*file), b"before, after");
    assert_eq!(bytes_of(&*fresh), b"fresh");
    file.sync().unwrap();
    drop(file);
    assert_eq!(bytes_of(&*disk.open(name).unwrap()), b"fresh");
    disk.remove(name).unwrap();
}

fn check_handles_share_a_file(disk: &dyn Disk) {
    let name = FileName::Of(COMMIT, 3);
    let first = disk.create(name).unwrap();
    let second = disk.open(name).unwrap();
    second.write_all_at(0, b"shared").unwrap();
    assert_eq!(bytes_of(&*first), b"shared");
    drop((first, second));
    assert_eq!(bytes_of(&*disk.open(name).unwrap()), b"shared");
    disk.remove(name).unwrap();
}

fn check_allocation(disk: &dyn Disk) {
    let file = disk.create(RESERVE).unwrap();
    for len in [100_000, 100_000, 300_000, 150_000, 0, 1] {
        file.allocate(len).unwrap();
        assert_eq!(file.len().unwrap(), len);
        assert_eq!(disk.len(RESERVE).unwrap(), len);
    }
    disk.remove(RESERVE).unwrap();
}

fn check_lock(disk: &dyn Disk) {
    let before = disk.list().unwrap();
    let readers = [disk.lock_shared().unwrap(), disk.lock_shared().unwrap()];
    assert!(matches!(disk.lock(), Err(LockFailure::HeldByReaders)));
    drop(readers);
    let held = disk.lock().unwrap();
    assert_eq!(disk.list().unwrap(), before, "a lock alone makes no file");
    disk.sign(&*held).unwrap();
    for again in [disk.lock(), disk.lock_shared()] {
        match again {
            Err(LockFailure::Held(holder)) => assert_eq!(holder, Some(std::process::id())),
            other => panic!("expected a held lock, got {:?}", other.map(|_| ())),
        }
    }
    drop(held);
    drop(disk.lock().unwrap());
}

fn check_links(disk: &dyn Disk, elsewhere: &Path) {
    let [table, log] = [FileName::Of(TABLE, 8), FileName::Of(LOG, 8)];
    with_bytes(disk, table, b"table").sync().unwrap();
    with_bytes(disk, log, b"log").sync().unwrap();
    let path = elsewhere.join("copy");
    let copy = disk.new_directory(&path).unwrap();
    disk.link(table, &*copy).unwrap();
    disk.link(log, &*copy).unwrap();
    assert_eq!(kind(disk.link(log, &*copy)), ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.link(FileName::Of(LOG, 77), &*copy)), ErrorKind::NotFound);
    copy.sync_dir().unwrap();
    assert_eq!(kind(disk.new_directory(&path)), ErrorKind::DirectoryNotEmpty);

    disk.remove(table).unwrap();
    disk.remove(log).unwrap();
    assert_eq!(bytes_of(&*copy.open(table).unwrap()), b"table");
    assert_eq!(bytes_of(&*copy.open(log).unwrap()), b"log");
    assert_eq!(copy.list().unwrap().len(), 2);
    assert!(copy.place().contains("copy"));

    // Into a disk of another kind it is a copy.
    let other = MemoryDisk::new(2);
    copy.link(table, &*other).unwrap();
    assert_eq!(other.contents(table).unwrap(), b"table");
    assert_eq!(
        other.crash_image(kvilt_io::Keep::Random(3)).contents(table).unwrap_or(b"table".to_vec()),
        b"table",
        "a copy is as durable as a link"
    );
}
