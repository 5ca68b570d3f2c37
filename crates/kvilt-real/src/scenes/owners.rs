//! Whose files they are, and files that are not ours.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::{Outcome, Stage, ensure_whole, key, text};
use crate::{
    engines::{self, usual_store},
    tools,
};

/// Whatever the umask, the directory is 0700 and every file 0600.
pub(super) fn modes(stage: &Stage) -> Result<Outcome> {
    let mut files = 0;
    for umask in ["000", "022", "027", "077"] {
        let store = stage.place.join(format!("store-{umask}"));
        for durability in ["async", "sync"] {
            let line = format!("umask {umask} && exec \"$0\" \"$@\"");
            let status = Command::new("sh")
                .args(["-c", &line])
                .arg(&stage.kvilt)
                .args(["put", text(&store)?, durability, "value", "--durability", durability])
                .status()?;
            ensure!(status.success(), "put under umask {umask}: {status}");
        }
        let mode = |path: &Path| Ok::<_, std::io::Error>(fs::metadata(path)?.permissions().mode() & 0o7777);
        ensure!(mode(&store)? == 0o700, "umask {umask}: the directory has mode {:o}", mode(&store)?);
        for entry in fs::read_dir(&store)? {
            let path = entry?.path();
            ensure!(mode(&path)? == 0o600, "umask {umask}: {} has mode {:o}", path.display(), mode(&path)?);
            files += 1;
        }
    }
    Ok(Outcome::Good(format!("4 umasks, {files} files")))
}

/// Who may not read the store gets an error that says so, and nothing changes.
pub(super) fn another_user(stage: &Stage) -> Result<Outcome> {
    let stage = match for_another_user(stage)? {
        Ok(stage) => stage,
        Err(outcome) => return Ok(outcome),
    };
    let store = stage.furnish(10)?;
    let before = names(&store)?;
    for arguments in [&["get", text(&store)?, "k"][..], &["put", text(&store)?, "k", "v"]] {
        let reply = stage.kvilt(&NOBODY, arguments)?;
        reply.ensure_refused(&["io"])?;
        ensure!(
            reply.told.contains("ermission denied") && reply.told.contains("owner"),
            "the error does not say what to do: {}",
            reply.told
        );
    }
    // A directory that lets them in, with files that do not.
    fs::set_permissions(&store, fs::Permissions::from_mode(0o755))?;
    let reply = stage.kvilt(&NOBODY, &["get", text(&store)?, "k"])?;
    reply.ensure_refused(&["io"])?;
    ensure!(names(&store)? == before, "files came or went");
    ensure_whole(&store, 10, None)?;
    Ok(Outcome::Good("directory, then files".to_string()))
}

/// Another user, and why it cannot be played; the command is copied to where anybody may run it.
const NOBODY: [&str; 5] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];

fn for_another_user(stage: &Stage) -> Result<std::result::Result<Stage, Outcome>> {
    if !tools::is_root() {
        return Ok(Err(Outcome::Skipped("only root may become another user".to_string())));
    }
    if tools::find("setpriv").is_none() {
        return Ok(Err(Outcome::Skipped("there is no setpriv".to_string())));
    }
    let kvilt = stage.place.join("kvilt");
    fs::copy(&stage.kvilt, &kvilt)?;
    Ok(Ok(Stage { place: stage.place.clone(), kvilt }))
}

/// Name, owner, group, mode, time of change and bytes of each file.
type Looks = Vec<(String, u32, u32, u32, (i64, i64), Vec<u8>)>;

fn looks(path: &Path) -> Result<Looks> {
    let mut looks = Vec::new();
    for name in names(path)? {
        let file = path.join(&name);
        let found = fs::metadata(&file)?;
        let changed = (found.mtime(), found.mtime_nsec());
        looks.push((name, found.uid(), found.gid(), found.mode(), changed, fs::read(&file)?));
    }
    Ok(looks)
}

/// Who may read the files of a store and nothing else can read the store, also beside others who do; the
/// owner is kept out meanwhile, and writes again afterwards.
pub(super) fn another_reader(stage: &Stage) -> Result<Outcome> {
    let stage = match for_another_user(stage)? {
        Ok(stage) => stage,
        Err(outcome) => return Ok(outcome),
    };
    let store = stage.furnish(500)?;
    fs::set_permissions(&store, fs::Permissions::from_mode(0o755))?;
    let mut tried = 0;
    // With a lock file that may not even be read, and without one.
    for lock in ["readable", "closed", "missing"] {
        for entry in fs::read_dir(&store)? {
            fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o644))?;
        }
        match lock {
            "closed" => fs::set_permissions(store.join("LOCK"), fs::Permissions::from_mode(0o600))?,
            "missing" => fs::remove_file(store.join("LOCK"))?,
            _ => {}
        }
        let before = looks(&store)?;
        let reader = usual_store(&store).read_only(true).open()?;
        for arguments in [
            &["get", text(&store)?, &key(499)][..],
            &["scan", text(&store)?],
            &["count", text(&store)?],
            &["check", text(&store)?],
            &["stats", text(&store)?],
        ] {
            stage.kvilt(&NOBODY, arguments)?.ensure_good().with_context(|| format!("{arguments:?}"))?;
            tried += 1;
        }
        let reply = stage.kvilt(&[], &["put", text(&store)?, "k", "v"])?;
        reply.ensure_refused(&["busy"]).context("the owner beside a reader")?;
        drop(reader);
        stage.kvilt(&NOBODY, &["put", text(&store)?, "k", "v"])?.ensure_refused(&["io"])?;
        ensure!(looks(&store)? == before, "something of the store was changed, lock file {lock}");
        let writer = usual_store(&store).open()?;
        let reply = stage.kvilt(&NOBODY, &["get", text(&store)?, &key(1)])?;
        reply.ensure_refused(&["busy"]).with_context(|| format!("beside a writer, lock file {lock}"))?;
        writer.put(key(0), super::value(0))?;
        writer.close()?;
    }
    ensure_whole(&store, 500, None)?;
    Ok(Outcome::Good(format!("{tried} commands, three kinds of lock files")))
}

/// Whatever root does to another user's store, it stays the other's.
pub(super) fn visit_by_root(stage: &Stage) -> Result<Outcome> {
    let stage = match for_another_user(stage)? {
        Ok(stage) => stage,
        Err(outcome) => return Ok(outcome),
    };
    let home = stage.place.join("home");
    fs::create_dir(&home)?;
    chown(&home, Some(65534), Some(65534))?;
    let store = home.join("store");
    let own = |arguments: &[&str]| stage.kvilt(&NOBODY, arguments)?.ensure_good();
    own(&["put", text(&store)?, "k", "v"])?;
    let mut visits = 0;
    for words in [
        &["get", "k"][..],
        &["scan"],
        &["count"],
        &["stats"],
        &["check"],
        &["put", "l", "v"],
        &["put", "m", "v", "--durability", "sync"],
        &["delete", "m"],
        &["delete-range", "--from", "x"],
    ] {
        let arguments = [&[words[0], text(&store)?], &words[1..]].concat();
        stage.kvilt(&[], &arguments)?.ensure_good().with_context(|| format!("root: {words:?}"))?;
        for (name, uid, gid, mode, ..) in looks(&store)? {
            ensure!(
                (uid, gid, mode & 0o777) == (65534, 65534, 0o600),
                "{words:?}: {name} is {uid}'s, {mode:o}"
            );
        }
        own(&["get", text(&store)?, "k"]).with_context(|| format!("the owner after root's {words:?}"))?;
        own(&["put", text(&store)?, "own", words[0]])?;
        visits += 1;
    }
    Ok(Outcome::Good(format!("{visits} visits")))
}

/// A link, a pipe or a directory under one of our names is damage, or as good as no file where the store can
/// do without it; it is neither followed nor waited for.
pub(super) fn strange_things(stage: &Stage) -> Result<Outcome> {
    let store = stage.furnish(2_000)?;
    // With compaction and a second life, so that there are tables beside logs.
    let files: Vec<PathBuf> = fs::read_dir(&store)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.metadata().is_ok_and(|m| m.is_file() && m.len() > 0))
        .collect();
    let aside = stage.place.join("aside");
    let mut tried = 0;
    for file in &files {
        for thing in ["link", "pipe", "directory"] {
            fs::rename(file, &aside)?;
            match thing {
                "link" => symlink(&aside, file)?,
                "pipe" => drop(tools::run("mkfifo", &[text(file)?])?),
                _ => fs::create_dir(file)?,
            }
            let name = file.file_name().unwrap_or_default().display();
            let reply = stage.kvilt(&["timeout", "300"], &["check", text(&store)?])?;
            let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            let outcome = if (engines::chosen().is_dispensable)(ending) {
                reply.ensure_good()
            } else {
                reply.ensure_refused(&["corrupted", "damaged"])
            };
            outcome.with_context(|| format!("a {thing} in place of {name}"))?;
            if thing == "directory" {
                fs::remove_dir(file)?
            } else {
                fs::remove_file(file)?
            }
            fs::rename(&aside, file)?;
            tried += 1;
        }
    }
    ensure_whole(&store, 2_000, None)?;
    Ok(Outcome::Good(format!("{tried} strange things in place of {} files", files.len())))
}

/// The store's own directory may be a link: its owner put it there.
pub(super) fn linked_store(stage: &Stage) -> Result<Outcome> {
    let store = stage.furnish(100)?;
    let link = stage.place.join("link");
    symlink(&store, &link)?;
    ensure_whole(&link, 100, None)?;
    let db = usual_store(&link).open()?;
    ensure!(usual_store(&store).open().is_err(), "one store by two names is still one store");
    db.close()?;
    Ok(Outcome::Good("opened, locked and checked by a link".to_string()))
}

/// Whatever we did not name stays as it is, through crashes and rewrites.
pub(super) fn foreign_files(stage: &Stage) -> Result<Outcome> {
    let store = stage.furnish(100)?;
    // Some almost ours.
    let foreign = ["notes.txt", ".hidden", "core", "1.table", "0000000000000007.table.bak", "LOCK.old"];
    for name in foreign {
        fs::write(store.join(name), name)?;
    }
    fs::create_dir(store.join("sub"))?;
    fs::write(store.join("sub/file"), "file")?;
    for round in 0..5 {
        let db = usual_store(&store).memory_budget(1 << 20).open()?;
        for row in 0..3_000 {
            db.put(key(row), format!("{round:0100}"))?;
        }
        db.close()?;
    }
    for name in foreign {
        ensure!(fs::read(store.join(name))? == name.as_bytes(), "{name} was changed");
    }
    ensure!(fs::read(store.join("sub/file"))? == b"file", "a file in a directory of its own was changed");
    Ok(Outcome::Good(format!("{} files through 5 lives", foreign.len() + 1)))
}

fn names(path: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
