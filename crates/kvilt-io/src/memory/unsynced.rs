//! `Unit`: one thing that a power cut may take, or leave, by itself: a change of names, or sectors of one
//! write.
//!
//! Random images (see `image`) mix many such things; here each is lost alone, or kept alone, and every write
//! is torn at every border of its sectors; what was stored through a mapping, in any number of stores, is
//! lost or kept by runs of pages. So nothing depends on chance, and what a store forgot to sync is named by a
//! number.
//!
//! What is always true: the same disk has the same units, in the same order; what is left is a legal state. A
//! sector that loses a write shows what it held before it, later writes to it included: they share its bytes.

use std::{collections::HashSet, ops::Range, sync::Arc};

use super::{
    ChangeKind, MemoryDisk, NameChange, State,
    flying::{self, FlyingPiece},
    image::{SECTOR_BYTES, copy_sector_before},
    inode::{Contents, Extent, Inode},
};

/// See the module.
pub(super) enum Unit {
    /// A change of names: of which directory, and which of its changes.
    Name { directory: usize, change: usize },
    /// A part of a write.
    Piece(Piece),
    /// A part of a write in flight.
    Flight(FlyingPiece),
}

/// Sectors of one write since the last sync of its file.
pub(super) struct Piece {
    pub(super) inode: Arc<Inode>,
    write: usize,
    sectors: Range<usize>,
    /// Lost, it takes the file's length back with it; else there are zeros.
    has_length: bool,
}

impl Unit {
    /// Whether this change of names must hold where nothing else does: it is the unit, or names the unit's
    /// file.
    pub(super) fn needs(&self, directory: usize, position: usize, change: &NameChange) -> bool {
        let names = |inode: &Arc<Inode>| change.kind.inode().is_some_and(|i| Arc::ptr_eq(i, inode));
        match self {
            Unit::Name { .. } => self.is_name(directory, position),
            Unit::Piece(piece) => names(&piece.inode),
            Unit::Flight(piece) => names(&piece.inode),
        }
    }

    /// Whether it is this change of names.
    pub(super) fn is_name(&self, in_directory: usize, position: usize) -> bool {
        matches!(self, Unit::Name { directory, change } if (*directory, *change) == (in_directory, position))
    }
}

impl MemoryDisk {
    /// How many things there are that a power cut now may take, or leave, each by itself: changes of names,
    /// writes, those in flight too, the sectors of a write before and behind each border.
    /// [`super::Keep::Only`] and [`super::Keep::AllBut`] number them from zero.
    pub fn unsynced(&self) -> usize {
        units(&self.world.state.lock()).len()
    }
}

/// Everything that is not synced.
pub(super) fn units(state: &State) -> Vec<Unit> {
    let mut units = Vec::new();
    for (directory, d) in state.directories.iter().enumerate() {
        units.extend((0..d.changes.len()).map(|change| Unit::Name { directory, change }));
    }
    for inode in inodes(state) {
        let pieces = inode.with(pieces);
        units.extend(pieces.into_iter().map(|(write, sectors, has_length)| {
            Unit::Piece(Piece { inode: Arc::clone(&inode), write, sectors, has_length })
        }));
    }
    units.extend(flying::pieces(&state.flights.writes()).into_iter().map(Unit::Flight));
    units
}

/// Every file that has a name, or may have one after a crash; each once.
pub(super) fn inodes(state: &State) -> Vec<Arc<Inode>> {
    let mut seen = HashSet::new();
    let mut inodes = Vec::new();
    for directory in &state.directories {
        let before = directory.changes.iter().flat_map(|change| change.before.iter().map(|(_, inode)| inode));
        let named = directory.names.values().chain(before.flatten());
        let added = directory.changes.iter().filter_map(|change| change.kind.inode());
        for inode in named.chain(added) {
            if seen.insert(Arc::as_ptr(inode)) {
                inodes.push(Arc::clone(inode));
            }
        }
    }
    inodes
}

impl ChangeKind {
    /// The file that gets a name by it.
    pub(super) fn inode(&self) -> Option<&Arc<Inode>> {
        match self {
            ChangeKind::Added(_, inode) | ChangeKind::Renamed { inode, .. } => Some(inode),
            ChangeKind::Removed(_) => None,
        }
    }
}

/// Each write whole, and what is before and behind each border within it, if it was one call.
fn pieces(contents: &Contents) -> Vec<(usize, Range<usize>, bool)> {
    let mut pieces = Vec::new();
    for (number, write) in contents.writes.iter().enumerate() {
        let (first, end) = (write.offset / SECTOR_BYTES, write.end().div_ceil(SECTOR_BYTES));
        let mut add = |sectors: Range<usize>| {
            pieces.push((number, sectors.clone(), false));
            if sectors.end * SECTOR_BYTES >= contents.live.len() && write.len_before < contents.live.len() {
                pieces.push((number, sectors, true));
            }
        };
        add(first..end);
        if write.is_of_mapping {
            continue;
        }
        for border in first + 1..end {
            add(first..border);
            add(border..end);
        }
    }
    pieces
}

impl Piece {
    /// The file without it, and with everything else.
    pub(super) fn lost(&self, contents: &Contents) -> Extent {
        let mut bytes = contents.platter_after_sync().as_slice().to_vec();
        for sector in self.sectors.clone() {
            copy_sector_before(contents, self.write, range_of(sector, bytes.len()), &mut bytes);
        }
        if self.has_length {
            let kept = contents.writes[self.write].len_before.max(self.sectors.start * SECTOR_BYTES);
            bytes.truncate(kept);
        }
        Extent::new(bytes)
    }

    /// The file as it was synced, and this.
    pub(super) fn kept(&self, contents: &Contents) -> Extent {
        let write = &contents.writes[self.write];
        let len = write.len_before.max(write.end()).min(self.sectors.end * SECTOR_BYTES);
        let mut bytes = contents.synced().as_slice().to_vec();
        bytes.resize(len.max(bytes.len()), 0);
        for sector in self.sectors.clone() {
            copy_sector_before(contents, self.write + 1, range_of(sector, bytes.len()), &mut bytes);
        }
        Extent::new(bytes)
    }
}

/// The bytes of a sector, in a file of this length.
fn range_of(sector: usize, len: usize) -> Range<usize> {
    (sector * SECTOR_BYTES).min(len)..((sector + 1) * SECTOR_BYTES).min(len)
}
