//! What a recorder makes of transfers in flight.

use std::collections::BTreeSet;

use kvilt_base::{Work, disk::FileKind, queue::aligned};

use super::*;

const NAME: FileName = FileName::Of(FileKind::new("log"), 1);
const SECTOR_BYTES: usize = 512;
const BYTES: usize = 4 * SECTOR_BYTES;

struct Bed {
    film: Arc<Film>,
    file: Arc<dyn File>,
    queue: Arc<dyn Queue>,
    /// Of the changing call that comes next.
    op: u64,
}

fn bed(when: When) -> Bed {
    let film = Film::new(MemoryDisk::new(1), Arc::default(), when);
    let recorder = Recorder(Arc::clone(&film));
    let file = recorder.create(NAME).unwrap();
    file.write_all_at(0, &[0; 3 * BYTES]).unwrap();
    file.sync().unwrap();
    recorder.sync_dir().unwrap();
    let queue = recorder.queue(8).unwrap();
    let op = film.ops();
    film.take_shots();
    Bed { film, file, queue, op }
}

impl Bed {
    fn write(&self, token: u64) -> Transfer {
        let work = Work::Write { bytes: vec![token as u8 + 1; BYTES].into(), is_durable: true };
        Transfer { token, file: Arc::clone(&self.file), offset: token * BYTES as u64, work }
    }
}

/// Which sectors of a write an image has.
fn sectors(image: &MemoryDisk, token: u64) -> Vec<bool> {
    let bytes = image.contents(NAME).unwrap();
    let sectors = bytes[token as usize * BYTES..][..BYTES].chunks(SECTOR_BYTES);
    sectors.map(|sector| sector == [token as u8 + 1; SECTOR_BYTES]).collect()
}

#[test]
fn images_have_any_sectors_of_writes_in_flight_and_all_of_durable_ones_that_have_completed() {
    let Bed { film, file, queue, op } =
        bed(When::Always { images: Images::Drawn { random: 60 }, is_sampled: false, seed: 3 });
    let bed = Bed { film: film.clone(), file, queue: queue.clone(), op };
    queue.submit((0..3).map(|token| bed.write(token)).collect());
    let shots = film.take_shots();
    assert!(!shots.is_empty() && shots.iter().all(|shot| shot.op == op));
    assert!(shots.iter().all(|shot| sectors(&shot.image, 0) == [false; 4]), "before it was submitted");

    let (mut done, mut reaps, mut seen) = (Vec::new(), 0, BTreeSet::new());
    while done.len() < 3 {
        let completed: Vec<u64> = done.iter().map(|completed: &Completed| completed.token).collect();
        queue.reap(&mut done);
        reaps += 1;
        for shot in film.take_shots() {
            assert_eq!(shot.op, op + reaps);
            seen.extend([0, 1, 2].map(|token| (completed.contains(&token), sectors(&shot.image, token))));
        }
    }
    assert!(done.iter().all(|completed| completed.outcome.is_ok()));
    let of_completed: Vec<_> = seen.iter().filter(|(is_completed, _)| *is_completed).collect();
    assert!(of_completed.iter().all(|(_, sectors)| *sectors == [true; 4]), "{of_completed:?}");
    assert!(seen.len() > 10, "in flight, any: {seen:?}");

    let ops = film.ops();
    queue.submit(vec![Transfer { work: Work::Read(aligned(8)), ..bed.write(0) }]);
    queue.reap(&mut done);
    assert_eq!(film.ops(), ops, "a read changes nothing");
    assert!(film.take_shots().is_empty());
}

#[test]
fn when_the_disk_goes_dark_every_transfer_completes_with_an_error() {
    for (after, ended) in [(0, End::Killed), (1, End::PowerCut(Keep::All))] {
        let first = bed(When::Never);
        let bed = bed(When::Once { op: first.op + after, end: ended });
        bed.queue.submit((0..3).map(|token| bed.write(token)).collect());
        let mut done = Vec::new();
        while done.len() < 3 {
            bed.queue.reap(&mut done);
        }
        assert!(done.iter().all(|completed| completed.outcome.is_err()), "{after}");
        assert!(bed.film.is_dark());
        let shots = bed.film.take_shots();
        assert_eq!(shots.len(), 1);
        let is_in_flight = after == 1;
        assert_eq!(sectors(&shots[0].image, 2), [is_in_flight; 4]);
        bed.queue.submit(vec![bed.write(0)]);
        bed.queue.reap(&mut done);
        assert!(done.pop().unwrap().outcome.is_err(), "and so do later ones");
    }
}

#[test]
fn a_file_of_another_disk_is_refused_and_the_rest_of_the_batch_is_done() {
    let bed = bed(When::Never);
    let foreign = Transfer { file: MemoryDisk::new(2).create(NAME).unwrap(), ..bed.write(1) };
    bed.queue.submit(vec![bed.write(0), foreign]);
    let mut done = Vec::new();
    while done.len() < 2 {
        bed.queue.reap(&mut done);
    }
    let outcome = |token| &done.iter().find(|completed| completed.token == token).unwrap().outcome;
    assert!(outcome(0).is_ok());
    assert_eq!(outcome(1).as_ref().unwrap_err().kind(), io::ErrorKind::InvalidInput);
}
