//! `cut`: power cuts on real file systems in image files. The kernel's shutdown call (`xfs_io -c shutdown`)
//! drops what is not on the disk while a process writes; then the file system is mounted again, which replays
//! its journal, and the store is opened.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Args;
use kvilt_sim::dice::Dice;
use serde_json::json;

use crate::{
    child::{CLOSING, Child, OPENING, WRITING},
    diary::Diary,
    engines,
    hunt::{Aim, strike},
    kill::LIVES,
    level::{End, Level},
    mount::{self, Kind, Mount},
    subject::Subject,
    tale::Style,
    tools,
};

/// Size of an image, in bytes: the least that XFS takes, and some. Mostly holes.
const IMAGE_BYTES: u64 = 320 << 20;

/// Steps of all writers of a life together, at most.
const STEPS: usize = 2_000;

/// Cut real file systems off while a process writes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Cut {
    /// Cuts to make.
    #[arg(long, default_value_t = 50)]
    pub(crate) cycles: u64,
    /// Seed of the first store; each has twenty lives. The summary says where to go on.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Which file system.
    #[arg(long, value_enum, default_value = "ext4")]
    pub(crate) kind: Kind,
    /// The summary as one object of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the cuts have shown.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    cycles: u64,
    recovering: u64,
    writes: u64,
    acknowledged: u64,
    lost: u64,
}

/// One image, mounted or not.
struct Ground<'a> {
    image: &'a Path,
    place: &'a Path,
    mount: Option<Mount>,
}

impl Cut {
    /// Runs the cuts; fails with the first broken promise. Where the machine refuses, says so, and that none
    /// were made.
    pub(crate) fn run(&self) -> Result<bool> {
        if let Some(reason) = self.kind.obstacle() {
            println!("SKIP cut on {}: {reason}", self.kind.name());
            return Ok(false);
        }
        mount::in_own_namespace()?;
        let begun = Instant::now();
        let place = tempfile::tempdir().context("make a directory for the image")?;
        let (image, root) = (place.path().join("image"), place.path().join("root"));
        std::fs::create_dir(&root)?;
        self.kind.make(&image, IMAGE_BYTES)?;
        let mut ground = Ground { image: &image, place: &root, mount: None };
        if let Err(error) = ground.mount() {
            println!("SKIP cut on {}: {error:#}", self.kind.name());
            return Ok(false);
        }
        let mut tally = Tally::default();
        let stores = self.cycles.div_ceil(LIVES);
        let mut outcome = Ok(());
        for seed in self.seed..self.seed + stores {
            outcome = self.one_store(&mut ground, place.path(), seed, &mut tally);
            if outcome.is_err() || tools::is_interrupted() {
                break;
            }
        }
        drop(ground);
        if outcome.is_err() {
            eprintln!("the image is kept in {}", place.keep().display());
        }
        self.tell(&tally, begun.elapsed(), outcome.is_ok());
        outcome.map(|()| true)
    }

    fn one_store(&self, ground: &mut Ground<'_>, place: &Path, seed: u64, tally: &mut Tally) -> Result<()> {
        let mut subject = Subject::new(place, seed, Style::Mixed);
        // The store is on the image; the diaries are not.
        subject.store = ground.place.join(format!("store-{seed}"));
        let levels = engines::chosen().levels;
        let level = levels[(seed % levels.len() as u64) as usize];
        let mut dice = Dice::new(seed);
        for _ in 0..LIVES {
            if tally.cycles >= self.cycles || tools::is_interrupted() {
                return Ok(());
            }
            one_cycle(&mut subject, level, &mut dice, ground, tally).with_context(|| {
                format!("{}, seed {seed}, life {}, {}", self.kind.name(), subject.life, level.name())
            })?;
        }
        std::fs::remove_dir_all(&subject.store).context("remove a store that is done with")
    }

    fn tell(&self, tally: &Tally, took: Duration, is_good: bool) {
        let next_seed = self.seed + self.cycles.div_ceil(LIVES);
        if self.json {
            let summary = json!({
                "what": "cut", "engine": engines::chosen().name,
                "kind": self.kind.name(), "seed": self.seed, "next_seed": next_seed,
                "cycles": tally.cycles, "recovering": tally.recovering, "writes": tally.writes,
                "acknowledged": tally.acknowledged, "lost": tally.lost, "seconds": took.as_secs_f64(),
                "violations": u8::from(!is_good),
            });
            println!("{summary}");
            return;
        }
        println!(
            "cut: {} power cuts on {} and {} more while it recovered, in {:.1} s ({:.1}/s), seeds {}..{next_seed}; {} \
             writes, {} steps acknowledged, {} lost (allowed), {}",
            tally.cycles,
            self.kind.name(),
            tally.recovering,
            took.as_secs_f64(),
            (tally.cycles + tally.recovering) as f64 / took.as_secs_f64(),
            self.seed,
            tally.writes,
            tally.acknowledged,
            tally.lost,
            if is_good { "0 violations" } else { "1 VIOLATION" }
        );
    }
}

/// One life that ends in a cut, perhaps some that are cut while they recover, and a look.
fn one_cycle(
    subject: &mut Subject,
    level: Level,
    dice: &mut Dice,
    ground: &mut Ground<'_>,
    tally: &mut Tally,
) -> Result<()> {
    let writers = *dice.pick(&[1, 1, 2, 4]);
    let child = subject.next_life(level, writers, STEPS / writers)?;
    let (said, micros_max) = match dice.below(8) {
        0 => (OPENING, 6_000),
        1 => (CLOSING, 4_000),
        _ => (WRITING, 40_000),
    };
    let aim = Aim::After(said, Duration::from_micros(dice.below(micros_max) as u64));
    let is_closed = ground.cut_under(&child, &aim, dice.chance(1, 3), &mut subject.heard)?;
    tally.cycles += 1;
    while dice.chance(1, 6) {
        let aim = Aim::After(OPENING, Duration::from_micros(dice.below(5_000) as u64));
        ground.cut_under(&child.that_only_opens()?, &aim, dice.chance(1, 3), &mut None)?;
        tally.recovering += 1;
    }
    tally.writes += subject.steps_begun(writers)?;
    let found = subject.look(writers, End::PowerCut, is_closed)?;
    tally.acknowledged += found.verdict.acknowledged as u64;
    tally.lost += found.verdict.lost as u64;
    Ok(())
}

impl Ground<'_> {
    fn mount(&mut self) -> Result<()> {
        self.mount = Some(Mount::image(self.image, self.place)?);
        Ok(())
    }

    /// Lets the child live until the cut, and mounts again. Says whether it had closed the store before;
    /// `heard` gets what it had noted before.
    fn cut_under(
        &mut self,
        child: &Child,
        aim: &Aim,
        with_journal: bool,
        heard: &mut Option<Vec<usize>>,
    ) -> Result<bool> {
        let mount = self.mount.take().context("it is mounted between cycles")?;
        let mut command = child.command(&[])?;
        // After the cut it fails, and says so; that is as it should be.
        command.stderr(Stdio::null());
        let catch = strike(command, aim, || {
            *heard = Some(Diary::done(&child.diaries, child.writers)?);
            mount.cut(with_journal)
        })?;
        mount.unmount()?;
        self.mount()?;
        Ok(catch.is_closed)
    }
}
