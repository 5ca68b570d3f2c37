//! Measures, on the file system of the directory given (default: the current one), how long it takes to make
//! many dirty files durable: one by one, after the system began with all of them, from several threads, and
//! with `syncfs`; and how fast `MemoryDisk` makes images.
//!
//! Run with `cargo run --release -p kvilt-io --example measure_syncs -- DIR`.

use kvilt_base::disk::FileKind;
use std::{
    error::Error,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use kvilt_base::{Disk, File, FileName};
use kvilt_io::{Keep, MemoryDisk, NativeDisk};

const LOG: FileKind = FileKind::read_at_random("log");
const KINDS: &[FileKind] = &[LOG];

const FILES: u64 = 100;
const DIRTY_BYTES: usize = 16 << 10;
const ROUNDS: usize = 11;

fn main() -> Result<(), Box<dyn Error>> {
    let place = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let place = tempfile::tempdir_in(place)?;
    let disk = NativeDisk::open(place.path(), KINDS, false)?;
    let files = (0..FILES).map(|n| disk.create(FileName::Of(LOG, n))).collect::<Result<Vec<_>, _>>()?;
    for dirty_bytes in [512, DIRTY_BYTES] {
        println!("{FILES} files, {dirty_bytes} dirty bytes appended to each, median of {ROUNDS} rounds:");
        for threads in [1, 2, 4, 8] {
            let taken = median(&files, dirty_bytes, || sync_all(&files, threads));
            println!("  fdatasync, {threads} threads: {taken:?}");
        }
        let taken = median(&files, dirty_bytes, || {
            files.iter().for_each(|file| begin(&**file, dirty_bytes));
            sync_all(&files, 1);
        });
        println!("  fdatasync, 1 thread, all begun before: {taken:?}");
        let taken = median(&files, dirty_bytes, || sync_whole_file_system(place.path()));
        println!("  syncfs: {taken:?}");
    }
    measure_images()
}

fn median(files: &[Arc<dyn File>], dirty_bytes: usize, sync: impl Fn()) -> Duration {
    let mut taken: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            for file in files {
                let end = file.len().expect("a length");
                file.write_all_at(end, &vec![1; dirty_bytes]).expect("room on the disk");
            }
            let start = Instant::now();
            sync();
            start.elapsed()
        })
        .collect();
    taken.sort();
    taken[ROUNDS / 2]
}

fn sync_all(files: &[Arc<dyn File>], threads: usize) {
    let sync = |files: &[Arc<dyn File>]| files.iter().for_each(|file| file.sync().expect("a sync"));
    if threads == 1 {
        return sync(files);
    }
    thread::scope(|scope| {
        for part in files.chunks(files.len().div_ceil(threads)) {
            scope.spawn(move || sync(part));
        }
    });
}

fn begin(file: &dyn File, dirty_bytes: usize) {
    file.will_sync(file.len().expect("a length") - dirty_bytes as u64, dirty_bytes as u64);
}

fn sync_whole_file_system(place: &Path) {
    let directory = std::fs::File::open(place).expect("the directory");
    rustix::fs::syncfs(&directory).expect("a sync of the file system");
}

/// Twenty files of 4 KiB, five of them with unsynced appends: what a crash test of a tiny store has.
fn measure_images() -> Result<(), Box<dyn Error>> {
    let disk = MemoryDisk::new(1);
    for n in 0..20 {
        let file = disk.create(FileName::Of(LOG, n))?;
        file.write_all_at(0, &[1; 4096])?;
        file.sync()?;
        if n < 5 {
            (0..20).try_for_each(|i| file.write_all_at(4096 + i * 60, &[2; 60]))?;
        }
    }
    for (what, keep) in
        [("SyncedOnly", Keep::SyncedOnly), ("Random", Keep::Random(1)), ("Prefix", Keep::Prefix(1))]
    {
        let start = Instant::now();
        let images = 20_000;
        for _ in 0..images {
            std::hint::black_box(disk.crash_image(keep));
        }
        println!("image {what}: {:?} each", start.elapsed() / images);
    }
    Ok(())
}
