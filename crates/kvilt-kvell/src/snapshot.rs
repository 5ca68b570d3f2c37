//! Index snapshots: what a clean close leaves so that the next open need not read the slabs.
//!
//! A close takes a last cut, writes each shard's index to a file, and then a root that says so, with the same
//! cut. A snapshot counts only with a root of that cut that was closed, and the next open takes the root's
//! word back before it changes anything.

use std::io;

use kvilt_base::{Direction, Disk, Error, FileName, KeyRange, Listed, Result, key::successor, planted};
use kvilt_format::{
    FileIdentity,
    names::SNAPSHOT,
    slab::{Root, SnapshotReader, SnapshotWriter, snapshot_name},
};

use crate::{
    index::{Builder, Entries, Index},
    place::Place,
    store::{Rooted, Store},
};

/// Entries that are copied out of an index at a time.
const ENTRIES_A_WALK: usize = 1024;

/// Makes everything durable, and leaves snapshots.
pub(crate) fn close(store: &Store, rooted: &mut Rooted) -> Result<()> {
    store.cut_with(rooted, &mut |_| {})?;
    for shard in &store.shards {
        shard.settle(&mut shard.lock());
    }
    if store.shards.iter().any(|shard| shard.lock().blocks.has_in_flight()) {
        // A write that was begun before the close; the next open reads the slabs.
        return Ok(());
    }
    // Its salt is the cut that the root of the close will have.
    let cut = rooted.last_cut + 1;
    let written = write_all(store, &rooted.root, cut);
    match written {
        // The store is durable; it takes longer to open.
        Err(_) => Ok(()),
        Ok(()) => store.cut_with(rooted, &mut |root| root.is_clean = true),
    }
}

fn write_all(store: &Store, root: &Root, cut: u64) -> Result<()> {
    for (number, shard) in store.shards.iter().enumerate() {
        let name = snapshot_name(number as u32);
        let failed = |e| Error::io("write an index snapshot", e).in_file(name);
        match store.disk.remove(name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let file = store.disk.create(name).map_err(failed)?;
        let mut offset = 0;
        let sink = |bytes: &[u8]| {
            file.write_all_at(offset, bytes).map_err(failed)?;
            offset += bytes.len() as u64;
            Ok(())
        };
        let id = FileIdentity { store_id: root.store_id, number: name.number() };
        let mut writer = SnapshotWriter::new(sink, id, cut)?;
        let (mut left, mut entries) = (KeyRange::all(), Entries::new());
        loop {
            entries.clear();
            shard.lock().index.walk(&left, Direction::Forward, ENTRIES_A_WALK, &mut entries);
            for (key, place) in entries.iter() {
                writer.add(key, place.to_u64())?;
            }
            match entries.last_key() {
                Some(last) if entries.len() == ENTRIES_A_WALK => left.start = successor(last),
                _ => break,
            }
        }
        writer.finish()?;
        file.sync().map_err(failed)?;
    }
    store.disk.sync_dir().map_err(|e| Error::io("sync the directory", e).in_file(store.disk.place()))
}

/// The index of a shard of a store that was closed; none if there is no snapshot of this root.
///
/// Errors: `Io`.
pub(crate) fn load(disk: &dyn Disk, root: &Root, shard: u32) -> Result<Option<Index>> {
    let name = snapshot_name(shard);
    let failed = |e| Error::io("read an index snapshot", e).in_file(name);
    let file = match disk.open(name) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => {
            return Ok(None);
        }
        opened => opened.map_err(failed)?,
    };
    let mut offset = 0;
    let source = |buffer: &mut [u8]| {
        let read = file.read_full_at(offset, buffer).map_err(failed)?;
        offset += read as u64;
        Ok(read)
    };
    let id = FileIdentity { store_id: root.store_id, number: name.number() };
    match read(source, id, root.cut) {
        // The slabs have all of it.
        Err(error) if error.kind() == kvilt_base::ErrorKind::Corrupted => Ok(None),
        outcome => outcome,
    }
}

fn read(source: impl FnMut(&mut [u8]) -> Result<usize>, id: FileIdentity, cut: u64) -> Result<Option<Index>> {
    let mut reader = SnapshotReader::new(source, id)?;
    if planted!(SnapshotOfAnotherCut, reader.generation() != cut => false) {
        return Ok(None);
    }
    let mut builder = Builder::new();
    while let Some((key, place)) = reader.next_entry()? {
        builder.push(key, Place::from_u64(place));
    }
    Ok(Some(builder.finish()))
}

/// Removes snapshots that count no more. What cannot be removed is passed over by every open.
pub(crate) fn remove(disk: &dyn Disk, listed: &[Listed]) {
    for item in listed {
        if let Listed::Ours(name @ FileName::Of(kind, _)) = item
            && *kind == SNAPSHOT
        {
            let _ = disk.remove(*name);
        }
    }
}
