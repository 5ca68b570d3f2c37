//! `Diary`: what a writer notes about each step — when it began and when it was done — so that it outlives
//! the writer.
//!
//! A file of 8-byte ticks of one clock that all writers of a process share: began, done, began, done, … Each
//! is one `write` into the page cache, which a killed process cannot take back. The clock is a counter, so of
//! two steps the one that was done before the other began has the lower tick.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// One writer's notes, being written.
#[derive(Debug)]
pub(crate) struct Diary {
    file: File,
}

/// The clock that the writers of one process share.
#[derive(Debug, Default)]
pub(crate) struct Ticks(AtomicU64);

/// What was noted about one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// Before the call.
    pub(crate) began: u64,
    /// After it returned, if it did.
    pub(crate) done: Option<u64>,
}

impl Ticks {
    fn next(&self) -> u64 {
        // SeqCst: ticks of all threads are one order, which agrees with what the threads see of each other.
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

impl Diary {
    /// An empty diary of `writer` in `dir`.
    pub(crate) fn begin(dir: &Path, writer: usize) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).write(true).truncate(true).open(path(dir, writer))?;
        Ok(Diary { file })
    }

    /// Notes that a step begins or is done.
    pub(crate) fn note(&mut self, ticks: &Ticks) -> io::Result<()> {
        self.file.write_all(&ticks.next().to_le_bytes())
    }

    /// How many steps each of the writers has noted as done by now.
    pub(crate) fn done(dir: &Path, writers: usize) -> io::Result<Vec<usize>> {
        let done = |writer| Ok(Diary::read(dir, writer)?.iter().filter(|note| note.done.is_some()).count());
        (0..writers).map(done).collect()
    }

    /// Reads a writer's diary; one that was never begun is empty.
    pub(crate) fn read(dir: &Path, writer: usize) -> io::Result<Vec<Note>> {
        let bytes = match std::fs::read(path(dir, writer)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(notes(&bytes))
    }
}

fn path(dir: &Path, writer: usize) -> PathBuf {
    dir.join(format!("diary-{writer}"))
}

fn notes(bytes: &[u8]) -> Vec<Note> {
    let (ticks, _torn) = bytes.as_chunks::<8>();
    ticks
        .chunks(2)
        .map(|pair| Note {
            began: u64::from_le_bytes(pair[0]),
            done: pair.get(1).map(|tick| u64::from_le_bytes(*tick)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_read_back_and_a_torn_end_is_not() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Diary::read(dir.path(), 3).unwrap(), []);
        let ticks = Ticks::default();
        let mut diary = Diary::begin(dir.path(), 3).unwrap();
        for _ in 0..3 {
            diary.note(&ticks).unwrap();
        }
        diary.file.write_all(&[1, 2, 3]).unwrap();
        let expected = [Note { began: 0, done: Some(1) }, Note { began: 2, done: None }];
        assert_eq!(Diary::read(dir.path(), 3).unwrap(), expected);
    }
}
