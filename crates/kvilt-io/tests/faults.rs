//! `FaultyDisk`: each fault at each call, and the counting.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use kvilt_base::disk::FileKind;
use std::{io::ErrorKind, path::Path, sync::Arc};

use bytes::{Bytes, BytesMut};
use kvilt_base::{Disk, File, FileName, Transfer, Work, disk::LockFailure};
use kvilt_io::{Call, Fault, FaultyDisk, MemoryDisk, Times};
use rustix::io::Errno;

const LOG: FileKind = FileKind::read_at_random("log");

const NAME: FileName = FileName::Of(LOG, 1);

struct Setting {
    inside: Arc<MemoryDisk>,
    disk: Arc<FaultyDisk>,
    file: Arc<dyn File>,
}

fn setting() -> Setting {
    let inside = MemoryDisk::new(1);
    let disk = FaultyDisk::new(inside.clone());
    let file = disk.create(NAME).unwrap();
    file.write_all_at(0, b"12345678").unwrap();
    Setting { inside, disk, file }
}

fn make(call: Call, setting: &Setting) -> std::io::Result<()> {
    let Setting { disk, file, .. } = setting;
    match call {
        Call::Create => disk.create(FileName::Of(LOG, 2)).map(drop),
        Call::Open => disk.open(NAME).map(drop),
        Call::Read => file.read_at(0, &mut [0; 4]).map(drop),
        Call::Write => file.write_at(8, b"9").map(drop),
        Call::Allocate => file.allocate(8),
        Call::Sync => file.sync(),
        Call::SyncDir => disk.sync_dir(),
        Call::Rename => disk.rename(NAME, FileName::Of(LOG, 3)),
        Call::Remove => disk.remove(NAME),
        Call::Link => disk.link(NAME, &*disk.new_directory(Path::new("/copy"))?),
        Call::NewDirectory => disk.new_directory(Path::new("/copy")).map(drop),
        Call::List => disk.list().map(drop),
        Call::Lock => match disk.lock() {
            Ok(_) => Ok(()),
            Err(LockFailure::Io(error)) => Err(error),
            Err(LockFailure::Held(_) | LockFailure::HeldByReaders) => panic!("nobody holds it"),
        },
        Call::Len => file.len().map(drop),
        Call::Queue => disk.queue(1).map(drop),
        Call::QueueRead => transferred(setting, Work::Read(BytesMut::zeroed(2))),
        Call::QueueWrite => {
            transferred(setting, Work::Write { bytes: Bytes::from_static(b"xy"), is_durable: true })
        }
    }
}

/// The outcome of one transfer at the file's beginning.
fn transferred(Setting { disk, file, .. }: &Setting, work: Work) -> std::io::Result<()> {
    let queue = disk.queue(4)?;
    queue.submit(vec![Transfer { token: 9, file: file.clone(), offset: 0, work }]);
    let mut done = Vec::new();
    queue.reap(&mut done);
    let [completed] = <[_; 1]>::try_from(done).unwrap();
    assert_eq!(completed.token, 9);
    assert_eq!(completed.work.len(), 2, "the buffer comes back");
    completed.outcome
}

#[test]
fn each_call_fails_with_each_error_and_is_not_passed_on() {
    let errors = [
        (Fault::Io, Errno::IO),
        (Fault::NoSpace, Errno::NOSPC),
        (Fault::Interrupted, Errno::INTR),
        (Fault::TooManyFiles, Errno::MFILE),
    ];
    for &call in Call::ALL {
        for (fault, errno) in errors {
            let is_continued = matches!(call, Call::QueueRead | Call::QueueWrite);
            if is_continued && fault == Fault::Interrupted {
                continue;
            }
            let setting = setting();
            let calls = setting.disk.calls(call);
            setting.disk.fail(Some(call), 0, fault, Times::Once);
            let before = setting.inside.snapshot();
            let error = make(call, &setting).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{call:?} {fault:?}");
            assert_eq!(setting.inside.snapshot(), before, "{call:?} {fault:?}");
            assert_eq!(setting.disk.calls(call), calls + 1, "{call:?} {fault:?}");
            assert_eq!(setting.disk.open_plans(), 0);
            make(call, &setting).unwrap();
        }
    }
}

#[test]
fn the_nth_call_fails_once_or_from_then_on() {
    for times in [Times::Once, Times::Always] {
        let setting = setting();
        setting.disk.fail(Some(Call::Sync), 2, Fault::Io, times);
        make(Call::Write, &setting).unwrap();
        let outcomes = [(); 5].map(|()| make(Call::Sync, &setting).is_ok());
        let expected = match times {
            Times::Once => [true, true, false, true, true],
            Times::Always => [true, true, false, false, false],
        };
        assert_eq!(outcomes, expected);
        setting.disk.heal();
        make(Call::Sync, &setting).unwrap();
    }
}

#[test]
fn a_plan_for_any_call_counts_all_of_them() {
    let setting = setting();
    let calls = setting.disk.calls_in_all();
    setting.disk.fail(None, 2, Fault::Io, Times::Once);
    make(Call::Len, &setting).unwrap();
    make(Call::List, &setting).unwrap();
    make(Call::Sync, &setting).unwrap_err();
    make(Call::Sync, &setting).unwrap();
    assert_eq!(setting.disk.calls_in_all(), calls + 4);
}

#[test]
fn short_reads_and_writes_move_half() {
    let setting = setting();
    setting.disk.fail(None, 0, Fault::Short, Times::Always);
    let mut buffer = [0; 5];
    assert_eq!(setting.file.read_at(0, &mut buffer).unwrap(), 3);
    assert_eq!(&buffer, b"123\0\0");
    assert_eq!(setting.file.write_at(0, b"abcd").unwrap(), 2);
    assert_eq!(setting.file.write_at(7, b"z").unwrap(), 1, "at least one, so that loops end");
    assert_eq!(setting.inside.contents(NAME).unwrap(), b"ab34567z");
    setting.file.write_all_at(0, b"complete").unwrap();
    setting.file.read_exact_at(0, &mut buffer).unwrap();
    assert_eq!(&buffer, b"compl");
    setting.file.sync().unwrap();
}

#[test]
fn an_interrupted_call_is_repeated_by_the_whole_ones() {
    let setting = setting();
    setting.disk.fail(Some(Call::Write), 0, Fault::Interrupted, Times::Once);
    setting.disk.fail(Some(Call::Read), 0, Fault::Interrupted, Times::Once);
    setting.file.write_all_at(0, b"x").unwrap();
    setting.file.read_exact_at(0, &mut [0]).unwrap();
    assert_eq!(setting.disk.open_plans(), 0);
}

#[test]
fn a_new_directory_is_under_the_same_orders() {
    let setting = setting();
    let copy = setting.disk.new_directory(Path::new("/copy")).unwrap();
    setting.disk.fail(Some(Call::Create), 1, Fault::NoSpace, Times::Once);
    let file = copy.create(NAME).unwrap();
    assert_eq!(copy.create(FileName::Of(LOG, 2)).unwrap_err().kind(), ErrorKind::StorageFull);
    setting.disk.fail(Some(Call::Sync), 0, Fault::Io, Times::Once);
    file.sync().unwrap_err();
}

#[test]
fn a_lost_sync_fails_once_and_its_bytes_never_reach_the_platter() {
    let Setting { inside, disk, file } = setting();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    file.write_all_at(0, b"new").unwrap();
    disk.fail(Some(Call::Sync), 0, Fault::LostSync, Times::Once);
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(inside.contents(NAME).unwrap(), b"new45678", "reads show what was written");
    for keep in [kvilt_io::Keep::SyncedOnly, kvilt_io::Keep::All] {
        assert_eq!(
            inside.crash_image(keep).contents(NAME).unwrap(),
            b"12345678",
            "and a power cut what was before"
        );
    }
    assert_eq!(disk.met(), 1);
}

#[test]
#[should_panic(expected = "a test planned this panic")]
fn a_call_can_be_made_to_panic() {
    let setting = setting();
    setting.disk.fail(None, 0, Fault::Panic, Times::Once);
    let _ = setting.file.len();
}

#[test]
fn a_queue_goes_on_by_itself_where_a_call_was_interrupted_or_short() {
    for fault in [Fault::Interrupted, Fault::Short] {
        let setting = setting();
        setting.disk.fail(Some(Call::QueueWrite), 0, fault, Times::Once);
        make(Call::QueueWrite, &setting).unwrap();
        assert_eq!(setting.disk.open_plans(), 0);
        assert_eq!(setting.inside.contents(NAME).unwrap(), b"xy345678");
    }
}

#[test]
fn a_planned_panic_of_a_transfer_comes_when_it_is_reaped_and_the_transfer_goes_on() {
    let Setting { inside, disk, file } = setting();
    disk.fail(Some(Call::QueueWrite), 1, Fault::Panic, Times::Once);
    let queue = disk.queue(4).unwrap();
    let write = |token: u64| Transfer {
        token,
        file: file.clone(),
        offset: token,
        work: Work::Write { bytes: Bytes::from_static(b"z"), is_durable: false },
    };
    queue.submit(vec![write(0), write(1), write(2)]);
    let mut done = Vec::new();
    let reap = std::panic::AssertUnwindSafe(|| queue.reap(&mut done));
    let panic = std::panic::catch_unwind(reap).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>().unwrap(), kvilt_io::PLANNED_PANIC);
    while done.len() < 3 {
        queue.reap(&mut done);
    }
    let mut tokens: Vec<u64> = done.iter().map(|completed| completed.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [0, 1, 2]);
    assert!(done.iter().all(|completed| completed.outcome.is_ok()));
    assert_eq!(inside.contents(NAME).unwrap(), b"zzz45678");
}

#[test]
fn a_lost_durable_write_is_a_lost_sync() {
    let setting = setting();
    setting.file.sync().unwrap();
    setting.disk.sync_dir().unwrap();
    setting.disk.fail(Some(Call::QueueWrite), 0, Fault::LostSync, Times::Once);
    make(Call::QueueWrite, &setting).unwrap_err();
    assert_eq!(setting.inside.contents(NAME).unwrap(), b"xy345678", "reads show what was written");
    setting.file.sync().unwrap();
    let image = setting.inside.crash_image(kvilt_io::Keep::All);
    assert_eq!(image.contents(NAME).unwrap(), b"12345678", "and a power cut what was before");
    assert_eq!((setting.disk.met(), setting.disk.open_plans()), (1, 0));
}
