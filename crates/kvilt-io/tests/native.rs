//! What only a real directory can show: modes, links, strangers, other processes; and workers on threads.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use kvilt_base::disk::FileKind;
use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

use kvilt_base::{Disk, FileName, Hand, Listed, Next, Spawn, Worker, disk::LockFailure};
use kvilt_io::{MemoryDisk, NativeDisk, NativeSpawn};

const LOG: FileKind = FileKind::read_at_random("log");
const TABLE: FileKind = FileKind::read_at_random("table");
const COMMIT: FileKind = FileKind::new("commit");
const MANIFEST: FileKind = FileKind::new("manifest");
const MANIFEST_TEMP: FileKind = FileKind::new("manifest.tmp");
const WITNESS: FileName = FileName::Once(FileKind::new("WITNESS"));
const RESERVE: FileName = FileName::Once(FileKind::new("RESERVE"));
const KINDS: &[FileKind] =
    &[LOG, TABLE, COMMIT, MANIFEST, MANIFEST_TEMP, FileKind::new("WITNESS"), FileKind::new("RESERVE")];

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn only_the_owner_may_look() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    let disk = NativeDisk::open(&store, KINDS, true).unwrap();
    disk.create(FileName::Of(LOG, 1)).unwrap();
    let held = disk.lock().unwrap();
    disk.sign(&*held).unwrap();
    assert_eq!(mode(&store), 0o700);
    assert_eq!(mode(&store.join(FileName::Of(LOG, 1).to_string())), 0o600);
    assert_eq!(mode(&store.join("LOCK")), 0o600);
}

/// Owner, group and mode.
fn owners(path: &Path) -> (u32, u32, u32) {
    let metadata = fs::metadata(path).unwrap();
    (metadata.uid(), metadata.gid(), mode(path))
}

/// Makes files of each kind in a store of which the witness is there, and a copy; says what the new ones are
/// like.
fn made_beside_a_witness(store: &Path, copy: &Path) -> Vec<(u32, u32, u32)> {
    let disk = NativeDisk::open(store, KINDS, false).unwrap();
    let held = disk.lock().unwrap();
    disk.sign(&*held).unwrap();
    let names = [FileName::Of(LOG, 1), FileName::Of(TABLE, 2), FileName::Of(COMMIT, 3), RESERVE];
    names.iter().for_each(|name| drop(disk.create(*name).unwrap()));
    disk.create(FileName::Of(MANIFEST_TEMP, 4)).unwrap();
    disk.rename(FileName::Of(MANIFEST_TEMP, 4), FileName::Of(MANIFEST, 4)).unwrap();
    let into = disk.new_directory(copy).unwrap();
    into.create(FileName::Of(MANIFEST, 5)).unwrap();
    let of_store = names.into_iter().chain([FileName::Of(MANIFEST, 4), FileName::LOCK]);
    let paths = of_store.map(|name| store.join(name.to_string()));
    paths.chain([copy.join(FileName::Of(MANIFEST, 5).to_string())]).map(|path| owners(&path)).collect()
}

#[test]
fn new_files_may_be_used_by_whom_those_before_could_be() {
    let place = tempfile::tempdir().unwrap();
    let (store, copy) = (place.path().join("store"), place.path().join("copy"));
    let disk = NativeDisk::open(&store, KINDS, true).unwrap();
    disk.create(WITNESS).unwrap();
    let witness = store.join(WITNESS.to_string());
    for wanted in [0o660, 0o644, 0o600, 0o400] {
        fs::set_permissions(&witness, fs::Permissions::from_mode(wanted)).unwrap();
        // Of an owner who may not write, files could not be opened again.
        let expected = (owners(&witness).0, owners(&witness).1, wanted | 0o600);
        let made = made_beside_a_witness(&store, &copy);
        assert!(made.iter().all(|made| *made == expected), "{expected:?}: {made:?}");
        fs::remove_dir_all(&copy).unwrap();
        for entry in fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path()) {
            if entry != witness {
                fs::remove_file(entry).unwrap();
            }
        }
    }
}

/// One command of root's, and the service that owned the store could not open it any more.
#[test]
fn what_root_makes_in_anothers_store_is_the_others() {
    let place = tempfile::tempdir().unwrap();
    let (store, copy) = (place.path().join("store"), place.path().join("copy"));
    if fs::metadata(place.path()).unwrap().uid() != 0 {
        eprintln!("skipped: only root can make files another user's");
        return;
    }
    fs::create_dir(&store).unwrap();
    std::os::unix::fs::chown(&store, Some(65_534), Some(65_533)).unwrap();
    // The first file is its directory's owner's, whatever else the directory lets in.
    fs::set_permissions(&store, fs::Permissions::from_mode(0o755)).unwrap();
    NativeDisk::open(&store, KINDS, true).unwrap().create(WITNESS).unwrap();
    assert_eq!(owners(&store.join(WITNESS.to_string())), (65_534, 65_533, 0o600));
    let made = made_beside_a_witness(&store, &copy);
    assert!(made.iter().all(|made| *made == (65_534, 65_533, 0o600)), "{made:?}");
    assert_eq!(owners(&copy), (65_534, 65_533, 0o755), "who reads the store can read its copy");
}

#[test]
fn a_directory_that_is_opened_to_read_is_not_changed() {
    let place = tempfile::tempdir().unwrap();
    let name = FileName::Of(LOG, 1);
    NativeDisk::open(place.path(), KINDS, true)
        .unwrap()
        .create(name)
        .unwrap()
        .write_all_at(0, b"rows")
        .unwrap();
    let disk = NativeDisk::open_to_read(place.path(), KINDS).unwrap();
    let file = disk.open(name).unwrap();
    let mut bytes = [0; 4];
    file.read_exact_at(0, &mut bytes).unwrap();
    assert_eq!((&bytes, disk.len(name).unwrap(), disk.list().unwrap().len()), (b"rows", 4, 1));
    let elsewhere = NativeDisk::open(&place.path().join("elsewhere"), KINDS, true).unwrap();
    let refused = [
        disk.create(FileName::Of(LOG, 2)).map(drop),
        disk.rename(name, FileName::Of(LOG, 2)),
        disk.remove(name),
        disk.link(name, &*elsewhere),
        file.write_at(0, b"other").map(drop),
        file.allocate(1),
        file.allocate(100),
    ];
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    assert_eq!(fs::read(place.path().join(name.to_string())).unwrap(), b"rows");
    let missing = NativeDisk::open_to_read(&place.path().join("missing"), KINDS).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(!place.path().join("missing").exists());
}

#[test]
fn a_missing_directory_is_made_only_when_asked() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    assert_eq!(NativeDisk::open(&store, KINDS, false).unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(&store, "a file").unwrap();
    for create in [false, true] {
        assert_eq!(NativeDisk::open(&store, KINDS, create).unwrap_err().kind(), ErrorKind::NotADirectory);
    }
}

#[test]
fn the_store_itself_may_be_a_symbolic_link() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("real")).unwrap();
    symlink("real", place.path().join("store")).unwrap();
    let disk = NativeDisk::open(&place.path().join("store"), KINDS, true).unwrap();
    disk.create(FileName::Of(LOG, 1)).unwrap();
    assert!(place.path().join("real").join(FileName::Of(LOG, 1).to_string()).exists());
}

#[test]
fn only_regular_files_are_opened() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: FileName| place.path().join(name.to_string());
    let disk = NativeDisk::open(place.path(), KINDS, true).unwrap();
    fs::write(place.path().join("target"), "precious").unwrap();
    symlink("target", path(FileName::Of(LOG, 1))).unwrap();
    symlink("nothing", path(FileName::Of(LOG, 2))).unwrap();
    fs::create_dir(path(FileName::Of(LOG, 3))).unwrap();
    let made = Command::new("mkfifo").arg(path(FileName::Of(LOG, 4))).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(path(FileName::Of(LOG, 5))).unwrap();
    for number in 1..=5 {
        let name = FileName::Of(LOG, number);
        assert_eq!(disk.open(name).unwrap_err().kind(), ErrorKind::InvalidData, "{name}");
        assert_eq!(disk.create(name).unwrap_err().kind(), ErrorKind::AlreadyExists, "{name}");
    }
    symlink("target", path(FileName::LOCK)).unwrap();
    match disk.lock() {
        Err(LockFailure::Io(error)) => assert_eq!(error.kind(), ErrorKind::InvalidData),
        _ => panic!("a lock through a symbolic link"),
    }
    let listed = disk.list().unwrap();
    assert_eq!(listed.len(), 7);
    assert!(listed.iter().all(|entry| matches!(entry, Listed::Foreign(_))), "{listed:?}");
    assert_eq!(fs::read(place.path().join("target")).unwrap(), b"precious");
}

/// Blocks and not only a length: else a full disk would find nothing kept back.
#[test]
fn what_is_allocated_has_blocks_also_where_only_the_length_was_there() {
    let place = tempfile::tempdir().unwrap();
    let disk = NativeDisk::open(place.path(), KINDS, true).unwrap();
    let path = place.path().join(RESERVE.to_string());
    let blocks = || fs::metadata(&path).unwrap().blocks() * 512;
    let file = disk.create(RESERVE).unwrap();
    // As a copy of the store may be, or a backup come back.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(blocks(), 0);
    file.allocate(1 << 20).unwrap();
    assert!(blocks() >= 1 << 20, "{} bytes of blocks", blocks());
    file.allocate(1 << 19).unwrap();
    assert!((1 << 19..1 << 20).contains(&blocks()), "{} bytes of blocks", blocks());
    file.allocate(0).unwrap();
    assert_eq!(blocks(), 0);
}

#[test]
fn a_link_is_the_same_inode() {
    let place = tempfile::tempdir().unwrap();
    let disk = NativeDisk::open(&place.path().join("store"), KINDS, true).unwrap();
    let name = FileName::Of(TABLE, 1);
    disk.create(name).unwrap().write_all_at(0, b"once").unwrap();
    let copy = disk.new_directory(&place.path().join("copy")).unwrap();
    disk.link(name, &*copy).unwrap();
    let inode = |directory: &str| fs::metadata(place.path().join(directory).join(name.to_string())).unwrap();
    assert_eq!(inode("store").ino(), inode("copy").ino());
    assert_eq!(inode("copy").nlink(), 2);
}

/// A name that no file system takes.
fn long_name() -> String {
    "x".repeat(300)
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error_with_or_without_missing_parents() {
    let place = tempfile::tempdir().unwrap();
    for path in [place.path().join(long_name()), place.path().join("missing").join(long_name())] {
        assert_eq!(NativeDisk::open(&path, KINDS, true).unwrap_err().kind(), ErrorKind::InvalidFilename);
    }
    assert!(place.path().join("missing").is_dir(), "parents are made first");
}

#[test]
fn a_rename_or_removal_that_fails_leaves_open_files_as_they_were() {
    let place = tempfile::tempdir().unwrap();
    let disk = NativeDisk::open(place.path(), KINDS, true).unwrap();
    let [held, gone] = [FileName::Of(LOG, 1), FileName::Of(LOG, 2)];
    let file = disk.create(held).unwrap();
    file.write_all_at(0, b"held").unwrap();
    assert_eq!(disk.rename(gone, held).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.open(held).unwrap().len().unwrap(), 4);
    let stranger = disk.create(gone).unwrap();
    stranger.write_all_at(0, b"still here").unwrap();
    fs::remove_file(place.path().join(gone.to_string())).unwrap();
    assert_eq!(disk.remove(gone).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(stranger.len().unwrap(), 10, "an open file outlives its name");
}

/// Where `/dev/shm` is another file system, a link cannot reach it.
#[test]
fn a_link_to_another_file_system_is_a_copy() {
    let place = tempfile::tempdir().unwrap();
    let Ok(other_place) = tempfile::tempdir_in("/dev/shm") else {
        println!("SKIP: /dev/shm cannot be written to");
        return;
    };
    let disk = NativeDisk::open(place.path(), KINDS, true).unwrap();
    let name = FileName::Of(TABLE, 1);
    disk.create(name).unwrap().write_all_at(0, b"once").unwrap();
    let copy = NativeDisk::open(other_place.path(), KINDS, false).unwrap();
    disk.link(name, &*copy).unwrap();
    assert_eq!(fs::read(other_place.path().join(name.to_string())).unwrap(), b"once");
    assert_eq!(disk.link(name, &*copy).unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn a_copy_that_does_not_fit_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let disk = NativeDisk::open(place.path(), KINDS, true).unwrap();
    let name = FileName::Of(TABLE, 1);
    disk.create(name).unwrap().write_all_at(0, &[7; 1000]).unwrap();
    let small = MemoryDisk::new(1);
    small.set_capacity(Some(100));
    assert_eq!(disk.link(name, &*small).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(small.list().unwrap(), []);
}

#[test]
fn disks_and_files_are_shown_by_their_paths() {
    let place = tempfile::tempdir().unwrap();
    let disk = NativeDisk::open(place.path(), KINDS, true).unwrap();
    let path = place.path().display().to_string();
    assert!(format!("{disk:?}").contains(&path));
    let name = FileName::Of(LOG, 1);
    let shown = format!("{:?}", disk.create(name).unwrap());
    assert!(shown.contains(&path) && shown.contains(&name.to_string()), "{shown}");
}

/// Not a test of its own: what the child of the next one runs, in a directory that is its own.
#[test]
fn child_that_opens_a_relative_path() {
    if std::env::var(CHILD_PLACE).is_err() {
        return;
    }
    let here = std::env::current_dir().unwrap();
    NativeDisk::open(Path::new("store"), KINDS, true).unwrap().create(FileName::Of(LOG, 1)).unwrap();
    assert!(here.join("store").join(FileName::Of(LOG, 1).to_string()).is_file());
    // Nothing can be made in a directory that is gone.
    fs::remove_dir_all(&here).unwrap();
    assert_eq!(NativeDisk::open(Path::new("store"), KINDS, true).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_relative_path_begins_where_the_process_is() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path().join("here");
    fs::create_dir(&here).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_opens_a_relative_path"])
        .env(CHILD_PLACE, "its own")
        .current_dir(&here)
        .status()
        .unwrap();
    assert!(child.success());
    assert!(!here.exists(), "the child came to its end");
}

const CHILD_PLACE: &str = "KVILT_IO_TEST_PLACE";

/// Not a test of its own: what the child of the next one runs.
#[test]
fn child_that_tries_the_lock() {
    let Ok(place) = std::env::var(CHILD_PLACE) else {
        return;
    };
    let disk = NativeDisk::open(Path::new(&place), KINDS, false).unwrap();
    match disk.lock() {
        Ok(_) => println!("lock: free"),
        Err(LockFailure::HeldByReaders) => println!("lock: held by readers"),
        Err(LockFailure::Held(holder)) => println!("lock: held by {}", holder.unwrap_or(0)),
        Err(LockFailure::Io(error)) => panic!("{error}"),
    }
}

#[test]
fn a_second_process_learns_who_has_the_lock() {
    let place = tempfile::tempdir().unwrap();
    let disk = NativeDisk::open(place.path(), KINDS, true).unwrap();
    let says = || {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_tries_the_lock", "--nocapture"])
            .env(CHILD_PLACE, place.path())
            .output()
            .unwrap();
        assert!(child.status.success());
        let text = String::from_utf8(child.stdout).unwrap();
        text.lines().find(|line| line.contains("lock: ")).expect("the child says something").to_owned()
    };
    let held = disk.lock().unwrap();
    disk.sign(&*held).unwrap();
    assert!(says().contains(&format!("lock: held by {}", std::process::id())));
    drop(held);
    assert!(says().contains("lock: free"));
    let held = disk.lock_shared().unwrap();
    assert!(says().contains("lock: held by readers"));
    drop(held);
    assert!(says().contains("lock: free"));
}

/// Counts its steps; says when it rests; ends when told.
struct Counter {
    steps: Arc<AtomicU32>,
    rested: mpsc::Sender<()>,
    rest: Option<Duration>,
    until: u32,
}

impl Worker for Counter {
    fn step(&mut self) -> Next {
        if self.steps.fetch_add(1, Ordering::SeqCst) + 1 == self.until {
            return Next::Done;
        }
        let _ = self.rested.send(());
        Next::Rest(self.rest)
    }

    fn panicked(&mut self, message: &str) {
        panic!("unexpected: {message}");
    }
}

#[test]
fn a_worker_steps_once_for_a_start_and_again_when_woken() {
    let steps = Arc::new(AtomicU32::new(0));
    let (rested, rests) = mpsc::channel();
    let worker = Counter { steps: steps.clone(), rested, rest: None, until: 3 };
    let hand = NativeSpawn::new().spawn("counter", Box::new(worker));
    rests.recv().unwrap();
    assert_eq!(steps.load(Ordering::SeqCst), 1);
    hand.wake();
    rests.recv().unwrap();
    assert_eq!(steps.load(Ordering::SeqCst), 2);
    hand.wake();
    hand.join();
    hand.join();
    assert_eq!(steps.load(Ordering::SeqCst), 3);
}

#[test]
fn a_worker_steps_by_itself_when_its_rest_is_over() {
    let steps = Arc::new(AtomicU32::new(0));
    let (rested, _rests) = mpsc::channel();
    let rest = Some(Duration::from_millis(1));
    let worker = Counter { steps: steps.clone(), rested, rest, until: 4 };
    NativeSpawn::new().spawn("counter", Box::new(worker)).join();
    assert_eq!(steps.load(Ordering::SeqCst), 4);
}

struct Panics(mpsc::Sender<String>);

impl Worker for Panics {
    fn step(&mut self) -> Next {
        panic!("step {} failed", 1);
    }

    fn panicked(&mut self, message: &str) {
        self.0.send(message.to_owned()).unwrap();
        panic!("and the report too");
    }
}

#[test]
fn a_panic_is_told_and_nobody_hangs() {
    let (told, telling) = mpsc::channel();
    let hand = NativeSpawn::new().spawn("panics", Box::new(Panics(told)));
    assert_eq!(telling.recv().unwrap(), "step 1 failed");
    hand.join();
}

/// Joins itself from inside its step.
struct Joins(mpsc::Receiver<Arc<dyn Hand>>);

impl Worker for Joins {
    fn step(&mut self) -> Next {
        self.0.recv().unwrap().join();
        Next::Done
    }

    fn panicked(&mut self, message: &str) {
        panic!("unexpected: {message}");
    }
}

#[test]
fn a_join_from_inside_a_step_returns_at_once() {
    let (give, take) = mpsc::channel();
    let hand = NativeSpawn::new().spawn("joins", Box::new(Joins(take)));
    give.send(hand.clone()).unwrap();
    hand.join();
}
