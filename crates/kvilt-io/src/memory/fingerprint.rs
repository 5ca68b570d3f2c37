//! The fingerprint of a disk: all that its reads, and what crashes will leave of it, depend on.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use super::{
    ChangeKind, MemoryDisk,
    inode::{Contents, Inode},
    unsynced::inodes,
};

impl MemoryDisk {
    /// Two disks with the same fingerprint are taken to be the same: they hold the same files under the same
    /// names, and of both the same is synced. It has 64 bits, and is good within one process.
    pub fn fingerprint(&self) -> u64 {
        let state = self.world.state.lock();
        let mut hasher = DefaultHasher::new();
        let inodes = inodes(&state);
        let places: HashMap<*const Inode, usize> =
            inodes.iter().enumerate().map(|(place, inode)| (Arc::as_ptr(inode), place)).collect();
        let place_of = |inode: &Arc<Inode>| places[&Arc::as_ptr(inode)];
        for directory in &state.directories {
            directory.path.hash(&mut hasher);
            for (name, inode) in &directory.names {
                (name, place_of(inode)).hash(&mut hasher);
            }
            directory.changes.len().hash(&mut hasher);
            for change in &directory.changes {
                match &change.kind {
                    ChangeKind::Added(name, inode) => (0, name, place_of(inode)).hash(&mut hasher),
                    ChangeKind::Renamed { from, to, inode } => {
                        (1, from, to, place_of(inode)).hash(&mut hasher);
                    }
                    ChangeKind::Removed(name) => (2, name).hash(&mut hasher),
                }
                for (name, inode) in &change.before {
                    (name, inode.as_ref().map(&place_of)).hash(&mut hasher);
                }
            }
        }
        for inode in &inodes {
            inode.with(|contents| contents.hash_into(&mut hasher));
        }
        for write in state.flights.writes() {
            (places.get(&Arc::as_ptr(&write.inode)), write.offset, &write.bytes).hash(&mut hasher);
        }
        (state.capacity_bytes, self.directory).hash(&mut hasher);
        hasher.finish()
    }
}

impl Contents {
    fn hash_into(&self, hasher: &mut DefaultHasher) {
        self.live.as_slice().hash(hasher);
        self.platter.as_ref().map(|platter| platter.as_slice()).hash(hasher);
        self.writes.len().hash(hasher);
        for write in &self.writes {
            (write.offset, write.len, write.len_before, &write.before).hash(hasher);
        }
    }
}
