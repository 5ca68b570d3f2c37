//! `scenes`: single situations on a real machine, one for each row of the fault table that a simulation
//! cannot play: refused permissions, strange files, limits of the process, full and read-only file systems,
//! errors of system calls.
//!
//! A scene is a function that sets the stage, acts, and fails if the store does anything but what
//! `docs/testing.md` promises for its row. One that the machine does not allow says why and is skipped.

mod clocks;
mod errors;
mod full;
mod limits;
mod lock;
mod owners;

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::{engines::usual_store, mount, tools};

pub(crate) use limits::gorge;

/// Play single situations: permissions, limits, full disks, failing system calls.
#[derive(Clone, Debug, Args)]
pub(crate) struct Scenes {
    /// Only scenes whose name contains one of these.
    names: Vec<String>,
    /// Name them all and end.
    #[arg(long)]
    list: bool,
}

/// How a scene ended, unless it failed.
enum Outcome {
    /// As it should; with a word about how much was tried.
    Good(String),
    /// The machine does not allow it, for this reason.
    Skipped(String),
}

/// A situation, with the row of the fault table that it plays.
struct Scene {
    name: &'static str,
    row: u8,
    play: fn(&Stage) -> Result<Outcome>,
}

const SCENES: &[Scene] = &[
    Scene { name: "a_second_opener_is_told_who_has_the_store", row: 10, play: lock::second_opener },
    Scene { name: "a_closed_store_leaves_nothing_open", row: 21, play: lock::nothing_left_open },
    Scene { name: "directory_and_files_are_the_owners_alone", row: 15, play: owners::modes },
    Scene { name: "another_user_is_refused_and_told_why", row: 15, play: owners::another_user },
    Scene { name: "another_user_may_read_what_is_open_to_him", row: 15, play: owners::another_reader },
    Scene { name: "a_visit_by_root_leaves_the_store_to_its_owner", row: 15, play: owners::visit_by_root },
    Scene { name: "strange_things_under_our_names_are_refused", row: 14, play: owners::strange_things },
    Scene { name: "a_store_may_be_reached_by_a_link", row: 14, play: owners::linked_store },
    Scene { name: "foreign_files_are_left_alone", row: 9, play: owners::foreign_files },
    Scene { name: "sixty_four_descriptors_are_enough", row: 16, play: limits::few_descriptors },
    Scene { name: "a_file_size_limit_is_a_full_disk", row: 6, play: limits::file_size },
    Scene { name: "a_memory_cgroup_is_kept_to", row: 17, play: limits::memory_cgroup },
    Scene { name: "clocks_may_jump", row: 19, play: clocks::jumps },
    Scene { name: "every_sync_may_fail", row: 4, play: errors::syncs },
    Scene { name: "every_write_may_find_the_disk_full", row: 5, play: errors::full_writes },
    Scene { name: "interrupted_calls_are_made_again", row: 6, play: errors::interruptions },
    Scene { name: "every_open_may_lack_a_descriptor", row: 16, play: errors::descriptors },
    Scene { name: "a_full_tmpfs_takes_writes_again_when_there_is_space", row: 5, play: full::tmpfs },
    Scene { name: "a_full_ext4_takes_writes_again_when_there_is_space", row: 5, play: full::ext4 },
    Scene { name: "a_store_on_a_full_disk_is_opened_read_and_deleted_from", row: 5, play: full::brimful },
    Scene { name: "read_only_media_can_be_read", row: 15, play: full::read_only },
];

/// Where a scene is played: an empty directory that anybody may enter.
struct Stage {
    place: PathBuf,
    /// The command under test.
    kvilt: PathBuf,
}

/// What the command `kvilt` did.
#[derive(Debug)]
struct Reply {
    code: Option<i32>,
    out: String,
    /// The kind of the error that it told.
    kind: Option<String>,
    told: String,
}

impl Scenes {
    /// Every scene.
    pub(crate) fn all() -> Self {
        Scenes { names: Vec::new(), list: false }
    }

    /// Plays them; fails if one fails.
    pub(crate) fn run(&self) -> Result<()> {
        let chosen = SCENES.iter().filter(|scene| {
            self.names.is_empty() || self.names.iter().any(|name| scene.name.contains(name.as_str()))
        });
        let chosen: Vec<&Scene> = chosen.collect();
        ensure!(!chosen.is_empty(), "there is no such scene");
        if self.list {
            chosen.iter().for_each(|scene| println!("row {:>2}  {}", scene.row, scene.name));
            return Ok(());
        }
        if mount::obstacle().is_none() {
            mount::in_own_namespace()?;
        }
        let (mut good, mut skipped, mut failed) = (0, 0, 0);
        for scene in chosen {
            if tools::is_interrupted() {
                bail!("interrupted");
            }
            let begun = Instant::now();
            let outcome = Stage::new().and_then(|(stage, _kept)| (scene.play)(&stage));
            let took = begun.elapsed().as_secs_f64();
            match outcome {
                Ok(Outcome::Good(word)) => {
                    good += 1;
                    println!("ok     row {:>2}  {} ({word}; {took:.1} s)", scene.row, scene.name);
                }
                Ok(Outcome::Skipped(reason)) => {
                    skipped += 1;
                    println!("SKIP   row {:>2}  {}: {reason}", scene.row, scene.name);
                }
                Err(error) => {
                    failed += 1;
                    println!("FAILED row {:>2}  {}: {error:#}", scene.row, scene.name);
                }
            }
        }
        println!("scenes: {good} ok, {skipped} skipped, {failed} failed");
        ensure!(failed == 0, "{failed} scenes failed");
        Ok(())
    }
}

impl Stage {
    /// A new place, which is removed with the second part of the pair.
    fn new() -> Result<(Stage, tempfile::TempDir)> {
        let place = tempfile::tempdir().context("make a directory")?;
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755))?;
        let program = std::env::current_exe().context("find this program")?;
        let kvilt = program.with_file_name("kvilt");
        ensure!(
            kvilt.is_file(),
            "the command kvilt is not beside this program: run `cargo build --release -p kvilt-cli`"
        );
        Ok((Stage { place: place.path().to_path_buf(), kvilt }, place))
    }

    fn store(&self) -> PathBuf {
        self.place.join("store")
    }

    /// A store of so many rows, made and closed.
    fn furnish(&self, rows: usize) -> Result<PathBuf> {
        let db = usual_store(self.store()).open()?;
        for row in 0..rows {
            db.put(key(row), value(row))?;
        }
        db.close()?;
        Ok(self.store())
    }

    /// Runs the command behind these words; paths are text.
    fn kvilt(&self, before: &[&str], arguments: &[&str]) -> Result<Reply> {
        let mut words: Vec<&std::ffi::OsStr> = before.iter().map(std::ffi::OsStr::new).collect();
        words.push(self.kvilt.as_os_str());
        let first = words.remove(0);
        let mut command = Command::new(first);
        command.args(words).arg("--json").args(arguments);
        command.env("RUST_BACKTRACE", "0");
        Ok(Reply::new(command.output().with_context(|| format!("start {}", first.display()))?))
    }
}

impl Reply {
    fn new(output: Output) -> Self {
        let told = String::from_utf8_lossy(&output.stderr).trim().to_string();
        let kind = told.lines().rev().find_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(line["error"]["kind"].as_str()?.to_string())
        });
        Reply {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            kind,
            told,
        }
    }

    /// Whether it did what it was told.
    fn ensure_good(&self) -> Result<()> {
        ensure!(self.code == Some(0), "exit code {:?}, {:?}: {}", self.code, self.kind, self.told);
        Ok(())
    }

    /// Whether it failed as it should: the exit code of a store's error, and one of these kinds.
    fn ensure_refused(&self, kinds: &[&str]) -> Result<()> {
        ensure!(
            self.code == Some(3) && kinds.iter().any(|kind| self.kind.as_deref() == Some(kind)),
            "exit code 3 and a kind of {kinds:?} were due, not {:?}, {:?}: {}",
            self.code,
            self.kind,
            self.told
        );
        ensure!(!self.told.contains("panicked"), "it panicked: {}", self.told);
        Ok(())
    }
}

/// A row that every scene knows.
fn key(row: usize) -> String {
    format!("key/{row:06}")
}

fn value(row: usize) -> String {
    format!("{row:0100}")
}

/// Opens the store and holds it to this: rows `0..rows` are there, `extra` may be, and nothing else; nothing
/// is damaged.
fn ensure_whole(store: &Path, rows: usize, extra: Option<(&str, &str)>) -> Result<()> {
    let db = usual_store(store).create_if_missing(false).open().context("open the store again")?;
    let mut found = 0;
    for row in db.iter() {
        let (row_key, row_value) = row?;
        if extra == Some((std::str::from_utf8(&row_key)?, std::str::from_utf8(&row_value)?)) {
            continue;
        }
        ensure!(*row_key == *key(found).as_bytes(), "after {found} rows comes {row_key:?}");
        ensure!(*row_value == *value(found).as_bytes(), "row {found} has another value");
        found += 1;
    }
    ensure!(found == rows, "{found} rows, not {rows}");
    let report = db.check()?;
    ensure!(report.damages.is_empty(), "damage: {:?}", report.damages);
    Ok(db.close()?)
}

/// A path as a word of a command line.
fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a temporary path is text")
}
