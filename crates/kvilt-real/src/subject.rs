//! `Subject`: one store under test over many lives, and what the parent knows of it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use kvilt_base::{Durability, FileName};
use kvilt_io::MemoryDisk;
use kvilt_sim::{dice::Dice, settle::settled_bytes};

use crate::{
    child::{Child, clear_diaries},
    diary::{Diary, Note},
    engines,
    level::{End, Level},
    tale::{Rows, STEADY_ROWS, Step, Style, Tale, steady_key, steady_value, writer_of},
    verdict::{Part, Verdict, judge},
};

/// Lives of a steady store before those that are killed, and writes in each: enough that every part of it
/// has filled and been rewritten several times, in lives of their kind, so that some are about to be
/// rewritten and some just were.
pub(crate) const PEACEFUL_LIVES: u64 = 80;
const PEACEFUL_STEPS: usize = 300;

/// A store, its writers' diaries, and its rows as they were seen last.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) store: PathBuf,
    pub(crate) diaries: PathBuf,
    pub(crate) seed: u64,
    pub(crate) style: Style,
    pub(crate) level: Level,
    pub(crate) life: u64,
    /// Notes of each writer that were read before the power was cut; none if that did not happen. What is
    /// noted later comes from a process that outlived the cut, as none does: the kernel may tell it of a sync
    /// that went nowhere.
    pub(crate) heard: Option<Vec<usize>>,
    rows: Rows,
}

/// What a look after a life has shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) verdict: Verdict,
    /// How long the open took that recovered the store.
    pub(crate) open: Duration,
    /// Parts that it had, see [`engines::UnderTest::parts_now`].
    pub(crate) parts: u64,
    /// Bytes in the directory, when the store was closed again.
    pub(crate) directory_bytes: u64,
    /// Bytes of keys and values.
    pub(crate) row_bytes: u64,
}

impl Subject {
    /// A store that is not there yet, below `place`.
    pub(crate) fn new(place: &Path, seed: u64, style: Style) -> Self {
        Subject {
            store: place.join("store"),
            diaries: place.join("diaries"),
            seed,
            style,
            level: Level::Async,
            life: 0,
            heard: None,
            rows: Rows::new(),
        }
    }

    /// Gives a steady store its rows, durable, and so many lives in peace.
    pub(crate) fn furnish(&mut self, lives: u64) -> Result<()> {
        let mut dice = Dice::new(self.seed);
        for life in 0..=lives {
            let db = self.level.open(&self.store)?;
            let steps = if life == 0 { STEADY_ROWS } else { PEACEFUL_STEPS };
            for step in 0..steps {
                let row = if life == 0 { step } else { dice.below(STEADY_ROWS) };
                let value = steady_value(life, step);
                db.put(steady_key(row), &value)?;
                self.rows.insert(steady_key(row), value);
            }
            // As after each life that is killed: the background has some time to rewrite what is due.
            ensure!(db.check()?.damages.is_empty(), "the store is damaged before anything was killed");
            db.close()?;
        }
        Ok(())
    }

    /// The process of the next life.
    pub(crate) fn next_life(&mut self, level: Level, writers: usize, steps: usize) -> Result<Child> {
        clear_diaries(&self.diaries).context("empty the diaries")?;
        self.level = level;
        self.life += 1;
        self.heard = None;
        Ok(Child {
            store: self.store.clone(),
            diaries: self.diaries.clone(),
            level,
            style: self.style,
            seed: self.seed,
            life: self.life,
            writers,
            steps,
            death: None,
            death_after_us: None,
        })
    }

    /// Opens the store after a life that ended so, and holds it to its promise; then checks and closes it.
    pub(crate) fn look(&mut self, writers: usize, end: End, is_closed: bool) -> Result<Found> {
        let begun = Instant::now();
        let db = self.level.open(&self.store).context("open after the life")?;
        let open = begun.elapsed();
        let mut rows = Rows::new();
        for row in db.iter() {
            let (key, value) = row.context("scan after the life")?;
            ensure!(rows.insert(key.to_vec(), value.to_vec()).is_none(), "the scan gave {key:?} twice");
        }
        let verdict = self.judge(&rows, writers, is_closed || self.level.keeps_all(end))?;
        for (key, value) in rows.iter().step_by(17) {
            let found = db.get(key)?;
            ensure!(
                found.as_deref() == Some(value.as_slice()),
                "a get of {key:?} differs from the scan: {found:?}"
            );
        }
        let parts = (engines::chosen().parts_now)(&db.stats());
        let report = db.check()?;
        ensure!(report.damages.is_empty(), "the check found damage: {:?}", report.damages);
        db.close().context("close after the look")?;
        drop(db);
        let row_bytes = rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
        self.rows = rows;
        Ok(Found { verdict, open, parts, directory_bytes: directory_bytes(&self.store)?, row_bytes })
    }

    /// What the store would take on the disk if it came to rest now, see [`kvilt_sim::settle`]. It is closed,
    /// and stays as it is: a copy in memory is settled.
    pub(crate) fn settled_bytes(&self) -> Result<u64> {
        let engine = kvilt_sim::engines::named(engines::chosen().name).map_err(anyhow::Error::msg)?;
        let copy = MemoryDisk::new(self.seed);
        for entry in std::fs::read_dir(&self.store)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name
                .to_str()
                .and_then(|text| FileName::parse(text, engine.kinds()))
                .with_context(|| format!("{name:?} is no file of a store"))?;
            copy.replace(name, std::fs::read(entry.path())?);
        }
        let tiny = engine.tiny(Durability::Async { interval: Duration::from_millis(500) });
        let settled =
            settled_bytes(&*tiny, &copy).map_err(|complaint| anyhow!("a copy of the store: {complaint}"))?;
        settled.with_context(|| format!("a store of {} cannot be settled", engine.name()))
    }

    fn judge(&self, rows: &Rows, writers: usize, keeps_all: bool) -> Result<Verdict> {
        let (mut before, mut now) = (by_writer(&self.rows)?, by_writer(rows)?);
        let mut parts = Vec::new();
        for writer in 0..writers {
            parts.push(Part {
                before: before.remove(&writer).unwrap_or_default(),
                tale: Tale::new(self.style, self.seed, self.life, writer),
                notes: self.notes(writer)?,
                now: now.remove(&writer).unwrap_or_default(),
            });
        }
        // Writers of earlier lives that did not live this one.
        ensure!(before == now, "rows changed that nobody wrote");
        judge(parts, keeps_all).map_err(anyhow::Error::msg)
    }

    /// What a writer noted, as far as it was heard.
    fn notes(&self, writer: usize) -> Result<Vec<Note>> {
        let mut notes = Diary::read(&self.diaries, writer)?;
        if let Some(heard) = &self.heard {
            notes.iter_mut().skip(heard[writer]).for_each(|note| note.done = None);
        }
        Ok(notes)
    }

    /// What the writers of this life began, for the counts.
    pub(crate) fn steps_begun(&self, writers: usize) -> Result<u64> {
        let mut begun = 0;
        for writer in 0..writers {
            let notes = Diary::read(&self.diaries, writer)?.len();
            let writes = |step: &Step| matches!(step, Step::Write(_) | Step::DeleteRange(..));
            begun += Tale::new(self.style, self.seed, self.life, writer).take(notes).filter(writes).count();
        }
        Ok(begun as u64)
    }
}

/// Rows by whose they are.
fn by_writer(rows: &Rows) -> Result<BTreeMap<usize, Rows>> {
    let mut parts: BTreeMap<usize, Rows> = BTreeMap::new();
    for (key, value) in rows {
        let Some(writer) = writer_of(key) else { bail!("a row that no writer wrote: {key:?}") };
        parts.entry(writer).or_default().insert(key.clone(), value.clone());
    }
    Ok(parts)
}

/// Bytes of all files in a directory, by their lengths.
pub(crate) fn directory_bytes(path: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}
