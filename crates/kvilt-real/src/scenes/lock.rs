//! Who has a store: two who want one, in one process and in two; and what is left of one when it is closed.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use kvilt::ErrorKind;

use super::{Outcome, Stage, key, text, value};
use crate::engines::usual_store;

/// The second is refused at once and told the first's process id; when the first is killed the store is free.
pub(super) fn second_opener(stage: &Stage) -> Result<Outcome> {
    let store = stage.furnish(10)?;
    let db = usual_store(&store).open()?;
    let own_id = std::process::id().to_string();
    let reply = stage.kvilt(&[], &["get", text(&store)?, &key(1)])?;
    reply.ensure_refused(&["busy"])?;
    ensure!(reply.told.contains(&own_id), "the other process is not told our id: {}", reply.told);
    let Err(error) = usual_store(&store).open() else { anyhow::bail!("this process opened the store twice") };
    ensure!(error.kind() == ErrorKind::Busy && error.to_string().contains(&own_id), "{error}");
    // The refusals must not have taken the lock from its holder.
    db.put("more", "rows")?;
    stage.kvilt(&[], &["get", text(&store)?, &key(1)])?.ensure_refused(&["busy"])?;
    db.close()?;
    let reply = stage.kvilt(&[], &["get", text(&store)?, "more"])?;
    ensure!(reply.code == Some(0), "a closed store is free at once: {}", reply.told);
    Ok(Outcome::Good("other process, same process; kills free it in every cycle of `kill`".to_string()))
}

/// What is closed is closed: no descriptor is left, so a file system can be unmounted at once.
pub(super) fn nothing_left_open(stage: &Stage) -> Result<Outcome> {
    let store = stage.store();
    let rounds = 20;
    for round in 0..rounds {
        let db = usual_store(&store).memory_budget(1 << 20).open()?;
        for row in 0..2_000 {
            db.put(key(row + 100 * round), value(round))?;
        }
        ensure!(db.iter().count() > 0, "rows were put");
        db.close()?;
        drop(db);
        if let Some(file) = descriptor_below(&store)? {
            anyhow::bail!("round {round}: the store is closed, but {} is still open", file.display());
        }
    }
    Ok(Outcome::Good(format!("{rounds} opens and closes")))
}

/// A file in this directory, or the directory, that this process still has open.
fn descriptor_below(path: &Path) -> Result<Option<PathBuf>> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        // One that another thread has closed meanwhile leads nowhere.
        match std::fs::read_link(entry?.path()) {
            Ok(file) if file.starts_with(path) => return Ok(Some(file)),
            _ => {}
        }
    }
    Ok(None)
}
