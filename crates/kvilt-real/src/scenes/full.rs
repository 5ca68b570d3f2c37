//! File systems without space, and ones that may not be written.

use std::{
    fs,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use kvilt::{Db, Durability, ErrorKind};

use super::{Outcome, Stage, key, text};
use crate::engines::{self, usual_store};
use crate::mount::{Kind, Mount, obstacle};

/// Takes space away, beside the store, and gives it back when removed.
const BALLAST: &str = "ballast";

/// Rows that are not deleted on the full disk.
const KEPT: usize = 10;

/// How long rewrites and checkpoints may take to give back what was deleted, and a file system to let others
/// have it: ext4 does when its journal is committed, every five seconds, and later where other programs
/// write.
const FREED_WITHIN: Duration = Duration::from_secs(600);

/// A small one in memory.
pub(super) fn tmpfs(stage: &Stage) -> Result<Outcome> {
    if let Some(reason) = obstacle() {
        return Ok(Outcome::Skipped(reason));
    }
    let root = stage.place.join("root");
    fs::create_dir(&root)?;
    let bytes = engines::chosen().small_disk_bytes;
    let mount = match Mount::memory(bytes, &root) {
        Ok(mount) => mount,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let outcome = fill(&root, bytes as usize / 4, 100)?;
    mount.unmount()?;
    Ok(outcome)
}

/// 8 MiB on a disk.
pub(super) fn ext4(stage: &Stage) -> Result<Outcome> {
    if let Some(reason) = Kind::Ext4.obstacle() {
        return Ok(Outcome::Skipped(reason));
    }
    let (image, root) = (stage.place.join("image"), stage.place.join("root"));
    Kind::Ext4.make(&image, 8 << 20)?;
    fs::create_dir(&root)?;
    let mount = match Mount::image(&image, &root) {
        Ok(mount) => mount,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let outcome = fill(&root, 2 << 20, 2_000)?;
    mount.unmount()?;
    Ok(outcome)
}

/// Writes until there is no space, reads, deletes, and writes into what that freed; fills the disk again,
/// makes space beside the store, writes on; then everything acknowledged must be there.
fn fill(root: &Path, ballast_bytes: usize, value_bytes: usize) -> Result<Outcome> {
    let value = |row: usize| format!("{row:0value_bytes$}");
    let store = root.join("store");
    let mut told = Vec::new();
    for durability in [Durability::default(), Durability::Sync] {
        fs::write(root.join(BALLAST), vec![1; ballast_bytes])?;
        let open = || usual_store(&store).memory_budget(1 << 20).durability(durability).open();
        let db = open()?;
        let full = write_until_full(&db, 0, value)?;
        ensure_rows(&db, full, value).context("reads on a full disk")?;
        let mut waits = 0;
        for row in KEPT..full {
            let what = || format!("delete row {row} of {full} on a full disk");
            waits += try_until_done(|| db.delete(key(row))).with_context(what)?;
        }
        waits += try_until_done(|| db.sync()).context("a sync on a full disk")?;
        ensure_rows(&db, KEPT, value).context("after deletes on a full disk")?;
        let begun = Instant::now();
        try_until_done(|| db.put(key(KEPT), value(KEPT))).context("a put where rows were deleted")?;
        let waited = begun.elapsed().as_millis();
        let deleted = full - KEPT;
        let full = write_until_full(&db, KEPT + 1, value)?;
        fs::remove_file(root.join(BALLAST))?;
        let begun = Instant::now();
        try_until_done(|| db.put(key(full), value(full))).context("a put when there is space")?;
        let resumed = begun.elapsed().as_millis();
        db.sync().context("a sync when there is space again")?;
        ensure_rows(&db, full + 1, value)?;
        db.close()?;
        drop(db);
        let db = open().context("open after a full disk")?;
        ensure_rows(&db, full + 1, value).context("after a full disk")?;
        let report = db.check()?;
        ensure!(report.damages.is_empty(), "damage: {:?}", report.damages);
        db.close()?;
        drop(db);
        told.push(format!(
            "{deleted} rows deleted, {waits} refusals on the way, room for more {waited} ms later; full at {full} rows, resumed after {resumed} ms"
        ));
        fs::remove_dir_all(&store)?;
    }
    Ok(Outcome::Good(told.join("; in sync mode ")))
}

/// Does it until it is not refused for want of space; says how often it was.
fn try_until_done(deed: impl Fn() -> kvilt::Result<()>) -> Result<usize> {
    let begun = Instant::now();
    for refusals in 0.. {
        match deed() {
            Ok(()) => return Ok(refusals),
            Err(error) if error.kind() == ErrorKind::NoSpace && begun.elapsed() < FREED_WITHIN => {}
            Err(error) => return Err(error.into()),
        }
    }
    unreachable!("time passes")
}

/// Puts rows from this one on until one is refused for want of space; says which. Every other error is a
/// failure.
fn write_until_full(db: &Db, from: usize, value: impl Fn(usize) -> String) -> Result<usize> {
    for row in from.. {
        match db.put(key(row), value(row)).and_then(|()| if row % 50 == 49 { db.sync() } else { Ok(()) }) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                // The put itself may have been done, and the sync refused.
                let is_there = db.get(key(row))?.is_some();
                return Ok(row + usize::from(is_there));
            }
            Err(error) => return Err(error).with_context(|| format!("row {row} on a disk that fills")),
        }
    }
    unreachable!("a small disk is full some time")
}

fn ensure_rows(db: &Db, rows: usize, value: impl Fn(usize) -> String) -> Result<()> {
    let mut found = 0;
    for row in db.iter() {
        let (row_key, row_value) = row?;
        ensure!(*row_key == *key(found).as_bytes() && *row_value == *value(found).as_bytes(), "row {found}");
        found += 1;
    }
    ensure!(found == rows, "{found} rows, not {rows}");
    Ok(())
}

/// Where nothing may be written stores can be read, all that was acknowledged; what would write is refused,
/// and the error says why.
pub(super) fn read_only(stage: &Stage) -> Result<Outcome> {
    if let Some(reason) = obstacle() {
        return Ok(Outcome::Skipped(reason));
    }
    let root = stage.place.join("root");
    fs::create_dir(&root)?;
    // For two stores.
    let disk_bytes = (2 * engines::chosen().usual_disk_bytes).max(16 << 20);
    let mount = match Mount::memory(disk_bytes, &root) {
        Ok(mount) => mount,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let inner = Stage { place: root, kvilt: stage.kvilt.clone() };
    let store = inner.furnish(100)?;
    // One was closed; the other's process was killed, as far as its files show.
    let db = usual_store(stage.place.join("sync")).durability(Durability::Sync).open()?;
    db.put("acknowledged", "at level sync")?;
    let killed = inner.place.join("killed");
    fs::create_dir(&killed)?;
    for entry in fs::read_dir(stage.place.join("sync"))? {
        let entry = entry?;
        fs::copy(entry.path(), killed.join(entry.file_name()))?;
    }
    mount.read_only()?;
    for arguments in
        [&["get", text(&store)?, &key(7)][..], &["scan", text(&store)?], &["check", text(&store)?]]
    {
        inner.kvilt(&[], arguments)?.ensure_good()?;
    }
    let (first, second) =
        (usual_store(&store).read_only(true).open()?, usual_store(&store).read_only(true).open()?);
    ensure!(first.iter().count() == 100 && second.iter().count() == 100, "two readers see every row");
    drop((first, second));
    let reply = inner.kvilt(&[], &["get", text(&killed)?, "acknowledged"])?;
    let outcome = if engines::chosen().may_be_copied_open {
        reply.ensure_good()
    } else {
        reply.ensure_refused(&["corrupted"])
    };
    outcome.context("what was written behind the last checkpoint")?;
    let new = stage.place.join("new");
    inner.kvilt(&[], &["repair", text(&store)?, "--to", text(&new)?])?.ensure_good()?;
    super::ensure_whole(&new, 100, None)?;
    let reply = inner.kvilt(&[], &["put", text(&store)?, "k", "v"])?;
    reply.ensure_refused(&["io"])?;
    ensure!(reply.told.contains("ead-only"), "the error does not say why: {}", reply.told);
    mount.unmount()?;
    Ok(Outcome::Good("read, checked, repaired from; put refused".to_string()))
}

/// With not a byte to spare the store is opened and read, and rows are deleted, by the reserve; only new data
/// is refused, once that had to give its room. Without a reserve it is still opened and read.
pub(super) fn brimful(stage: &Stage) -> Result<Outcome> {
    if let Some(reason) = obstacle() {
        return Ok(Outcome::Skipped(reason));
    }
    let root = stage.place.join("root");
    fs::create_dir(&root)?;
    let mount = match Mount::memory(engines::chosen().usual_disk_bytes, &root) {
        Ok(mount) => mount,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let inner = Stage { place: root.clone(), kvilt: stage.kvilt.clone() };
    let store = inner.furnish(50)?;
    let mut ballast = fs::File::create(root.join(BALLAST))?;
    // A kilobyte at a time, down to the last page.
    while ballast.write_all(&[1; 1024]).is_ok() {}
    let reads = |count: usize| {
        (0..count).try_for_each(|row| inner.kvilt(&[], &["get", text(&store)?, &key(row)])?.ensure_good())
    };
    reads(2).context("with a reserve")?;
    // The first may find room in memory, and its checkpoint in the reserve.
    let put = |name: &str| inner.kvilt(&[], &["put", text(&store)?, name, &"x".repeat(20_000)]);
    let first = put("more")?;
    if first.ensure_good().is_err() {
        first.ensure_refused(&["no-space"])?;
    }
    put("even more")?.ensure_refused(&["no-space"])?;
    reads(2).context("with a reserve that had to give its room")?;
    inner.kvilt(&[], &["delete", text(&store)?, "more"])?.ensure_good().context("a delete")?;
    while ballast.write_all(&[1; 1024]).is_ok() {}
    let _ = fs::remove_file(store.join("RESERVE"));
    while ballast.write_all(&[1; 1024]).is_ok() {}
    reads(2).context("without a reserve")?;
    // Its space comes back when nobody has it open.
    drop(ballast);
    fs::remove_file(root.join(BALLAST))?;
    super::ensure_whole(&store, 50, None)?;
    mount.unmount()?;
    Ok(Outcome::Good("read and deleted without a free byte, new data refused, whole with some".to_string()))
}
