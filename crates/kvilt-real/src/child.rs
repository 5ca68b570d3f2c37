//! The process that is killed: it opens a store, lives a tale with some threads, and closes it.
//!
//! It says on standard output, one byte each, how far it is, so that the parent can aim.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Barrier},
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::Args;
use kvilt::Db;

use crate::{
    death::Death,
    diary::{Diary, Ticks},
    engines,
    level::Level,
    tale::{Step, Style, Tale},
};

/// It is about to open the store.
pub(crate) const OPENING: u8 = b'o';
/// The store is open, and its writers begin, or go on after a sync.
pub(crate) const WRITING: u8 = b'w';
/// A writer asks for a sync.
pub(crate) const SYNCING: u8 = b's';
/// Its writers have ended; it closes the store.
pub(crate) const CLOSING: u8 = b'c';

/// Lives one life on a store. Started by this program itself.
#[derive(Clone, Debug, Args)]
pub(crate) struct Child {
    /// The store.
    pub(crate) store: PathBuf,
    /// Where the writers keep their diaries.
    pub(crate) diaries: PathBuf,
    #[arg(long, value_enum)]
    pub(crate) level: Level,
    #[arg(long, value_enum)]
    pub(crate) style: Style,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) life: u64,
    #[arg(long)]
    pub(crate) writers: usize,
    /// Steps of each writer, at most.
    #[arg(long)]
    pub(crate) steps: usize,
    /// It ends so instead of closing the store.
    #[arg(long, value_enum, requires = "death_after_us")]
    pub(crate) death: Option<Death>,
    /// Microseconds from the beginning of its writers to that.
    #[arg(long)]
    pub(crate) death_after_us: Option<u64>,
}

impl Child {
    /// The command that starts this child, behind `wrapper` if that is not empty.
    pub(crate) fn command(&self, wrapper: &[String]) -> Result<Command> {
        let program = std::env::current_exe().context("find this program")?;
        let mut command = match wrapper {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        engines::tell(&mut command);
        command.arg("child").arg(&self.store).arg(&self.diaries);
        command.args(["--level", self.level.name()]);
        command.args(["--style", if self.style == Style::Mixed { "mixed" } else { "steady" }]);
        for (option, number) in [
            ("--seed", self.seed),
            ("--life", self.life),
            ("--writers", self.writers as u64),
            ("--steps", self.steps as u64),
        ] {
            command.arg(option).arg(number.to_string());
        }
        if let (Some(death), Some(after_us)) = (self.death, self.death_after_us) {
            command.args(["--death", death.name(), "--death-after-us", &after_us.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command)
    }

    /// A process that opens the store and closes it again; it disturbs no diary.
    pub(crate) fn that_only_opens(&self) -> Result<Child> {
        let diaries = self.diaries.join("opener");
        std::fs::create_dir_all(&diaries)?;
        Ok(Child { diaries, writers: 1, steps: 0, ..self.clone() })
    }

    /// The life itself.
    pub(crate) fn live(&self) -> Result<()> {
        say(OPENING)?;
        let db = self.level.open(&self.store)?;
        say(WRITING)?;
        let ticks = Arc::<Ticks>::default();
        // Together, or the first would be done before the last begins.
        let start = Arc::new(Barrier::new(self.writers));
        // Not in a scope: that would have a panic wait for them.
        let threads: Vec<_> = (0..self.writers)
            .map(|writer| {
                let (child, db) = (self.clone(), db.clone());
                let (ticks, start) = (Arc::clone(&ticks), Arc::clone(&start));
                std::thread::spawn(move || {
                    start.wait();
                    child.write(&db, &ticks, writer)
                })
            })
            .collect();
        if let Some(death) = self.death {
            death.meet(Duration::from_micros(self.death_after_us.unwrap_or(0)));
        }
        threads.into_iter().try_for_each(|thread| thread.join().expect("a writer does not panic"))?;
        say(CLOSING)?;
        Ok(db.close()?)
    }

    fn write(&self, db: &Db, ticks: &Ticks, writer: usize) -> Result<()> {
        let mut diary = Diary::begin(&self.diaries, writer)?;
        for step in Tale::new(self.style, self.seed, self.life, writer).take(self.steps) {
            let is_sync = matches!(step, Step::Sync);
            if is_sync {
                say(SYNCING)?;
            }
            diary.note(ticks)?;
            step.take(db)?;
            diary.note(ticks)?;
            if is_sync {
                say(WRITING)?;
            }
        }
        Ok(())
    }
}

/// Tells the parent; fails, and so ends this process, if the parent is gone.
fn say(byte: u8) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(&[byte])?;
    Ok(out.flush()?)
}

/// Makes `dir` fresh for the diaries of the next life.
pub(crate) fn clear_diaries(dir: &Path) -> std::io::Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir)
}
