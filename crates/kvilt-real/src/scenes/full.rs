//! File systems without space, and ones that may not be written.

use std::{fs, io::Write as _, path::Path};

use anyhow::{Context as _, Result, bail, ensure};
use kvilt::{Db, Durability, ErrorKind};

use super::{Outcome, Stage, key, text};
use crate::mount::{Kind, Mount, obstacle};

/// Takes space away, beside the store, and gives it back when removed.
const BALLAST: &str = "ballast";

/// Puts that may be tried until one succeeds, once there is space again.
const TRIES: usize = 2_000;

/// 256 KiB in memory.
pub(super) fn tmpfs(stage: &Stage) -> Result<Outcome> {
    if let Some(reason) = obstacle() {
        return Ok(Outcome::Skipped(reason));
    }
    let root = stage.place.join("root");
    fs::create_dir(&root)?;
    let mount = match Mount::memory(256 << 10, &root) {
        Ok(mount) => mount,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let outcome = fill(&root, 64 << 10, 100)?;
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

/// Writes until there is no space, reads, makes space, writes on; then everything acknowledged must be there.
fn fill(root: &Path, ballast_bytes: usize, value_bytes: usize) -> Result<Outcome> {
    let value = |row: usize| format!("{row:0value_bytes$}");
    let store = root.join("store");
    let mut told = Vec::new();
    for durability in [Durability::default(), Durability::Sync] {
        fs::write(root.join(BALLAST), vec![1; ballast_bytes])?;
        let open = || Db::builder(&store).memory_budget(1 << 20).durability(durability).open();
        let db = open()?;
        let full = write_until_full(&db, value)?;
        ensure_rows(&db, full, value).context("reads on a full disk")?;
        fs::remove_file(root.join(BALLAST))?;
        let resumed = (0..TRIES).find(|_| db.put(key(full), value(full)).is_ok());
        let Some(tries) = resumed else { bail!("writes do not resume when there is space") };
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
        told.push(format!("full at {full} rows, resumed after {tries} tries"));
        fs::remove_dir_all(&store)?;
    }
    Ok(Outcome::Good(told.join("; in sync mode ")))
}

/// Puts rows until one is refused for want of space; says which. Every other error is a failure.
fn write_until_full(db: &Db, value: impl Fn(usize) -> String) -> Result<usize> {
    for row in 0.. {
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

/// Where nothing may be written nothing can be opened, and the error says so.
pub(super) fn read_only(stage: &Stage) -> Result<Outcome> {
    if let Some(reason) = obstacle() {
        return Ok(Outcome::Skipped(reason));
    }
    let root = stage.place.join("root");
    fs::create_dir(&root)?;
    let mount = match Mount::memory(16 << 20, &root) {
        Ok(mount) => mount,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let inner = Stage { place: root, kvilt: stage.kvilt.clone() };
    let store = inner.furnish(100)?;
    mount.read_only()?;
    for arguments in [&["get", text(&store)?, "k"][..], &["put", text(&store)?, "k", "v"]] {
        let reply = inner.kvilt(&[], arguments)?;
        reply.ensure_refused(&["io"])?;
        ensure!(reply.told.contains("ead-only"), "the error does not say why: {}", reply.told);
    }
    mount.unmount()?;
    Ok(Outcome::Good("get and put refused".to_string()))
}

/// With not a byte to spare an open says so, since it begins with a new manifest; with a few, all is there.
pub(super) fn brimful(stage: &Stage) -> Result<Outcome> {
    if let Some(reason) = obstacle() {
        return Ok(Outcome::Skipped(reason));
    }
    let root = stage.place.join("root");
    fs::create_dir(&root)?;
    let mount = match Mount::memory(256 << 10, &root) {
        Ok(mount) => mount,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let inner = Stage { place: root.clone(), kvilt: stage.kvilt.clone() };
    let store = inner.furnish(50)?;
    let mut ballast = fs::File::create(root.join(BALLAST))?;
    // A kilobyte at a time, down to the last page.
    while ballast.write_all(&[1; 1024]).is_ok() {}
    for _ in 0..2 {
        inner.kvilt(&[], &["get", text(&store)?, &key(7)])?.ensure_refused(&["no-space"])?;
    }
    let reply = inner.kvilt(&[], &["put", text(&store)?, "more", &"x".repeat(20_000)])?;
    reply.ensure_refused(&["no-space"])?;
    // Its space comes back when nobody has it open.
    drop(ballast);
    fs::remove_file(root.join(BALLAST))?;
    super::ensure_whole(&store, 50, None)?;
    mount.unmount()?;
    Ok(Outcome::Good("refused without a free byte, whole with some".to_string()))
}
