//! Images: what a power cut, or a kill, leaves of a disk in memory.
//!
//! After a power cut each file holds what was synced, and of each later write any part, by sectors: a sector
//! may show the synced bytes, the newest ones, or what it held in between, whatever its neighbours show. The
//! length is one that the file had since the sync, or a whole number of sectors between; where the length got
//! through and the data did not, there are zeros or stale bytes. What was stored through a mapping is a write
//! of the pages that it changed. Of the name changes since the last `sync_dir`, any subset holds.
//!
//! Of writes in flight an image of either kind may show anything, see `flying`.
//!
//! What is always true: synced bytes that were not written again are in every image (D-1), synced names that
//! were not changed again too (D-2), and a rename holds as a whole or not at all (D-4).

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use kvilt_base::{FileName, Rng};

use super::{
    Directory, Kernel, MemoryDisk, NameChange, State, apply, flying,
    inode::{Contents, Extent, Inode},
    total_bytes,
    unsynced::{Unit, units},
};
use crate::SeededRng;

/// What a disk writes as a whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;

/// What a power cut leaves of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    SyncedOnly,
    /// Everything.
    All,
    /// Any subset: each sector and each name change by itself, as the seed says.
    Random(u64),
    /// The name changes up to some point, and the writes of each file up to some point, the last one torn:
    /// what an ordered, journalling file system leaves.
    Prefix(u64),
    /// One of [`MemoryDisk::unsynced`], with the name of its file if it is a write; else nothing.
    Only(usize),
    /// All but one of [`MemoryDisk::unsynced`].
    AllBut(usize),
}

/// What is kept, with the unit at hand that is kept or lost alone.
pub(super) enum Kept {
    Nothing,
    Everything,
    AnySubset,
    Prefix,
    Only(Unit),
    AllBut(Unit),
}

impl Kept {
    fn of(keep: Keep, state: &State) -> Self {
        let unit = |number| units(state).swap_remove(number);
        match keep {
            Keep::SyncedOnly => Kept::Nothing,
            Keep::All => Kept::Everything,
            Keep::Random(_) => Kept::AnySubset,
            Keep::Prefix(_) => Kept::Prefix,
            Keep::Only(number) => Kept::Only(unit(number)),
            Keep::AllBut(number) => Kept::AllBut(unit(number)),
        }
    }
}

impl MemoryDisk {
    fn rng_of(&self, keep: Keep) -> SeededRng {
        match keep {
            Keep::Random(seed) | Keep::Prefix(seed) => SeededRng::new(seed ^ self.world.seed.rotate_left(32)),
            Keep::SyncedOnly | Keep::All | Keep::Only(_) | Keep::AllBut(_) => SeededRng::new(self.world.seed),
        }
    }

    /// A disk of its own that holds what a power cut now, or at the planned crash, may leave. Its calls count
    /// from zero, everything on it is durable, nothing is locked; it has the capacity of this one, or is full
    /// with more: a file whose removal was not durable has come back.
    pub fn crash_image(&self, keep: Keep) -> Arc<MemoryDisk> {
        let state = self.world.state.lock();
        let rng = self.rng_of(keep);
        let kept = Kept::of(keep, &state);
        let landed = flying::landed(state.flights.writes(), &kept, &rng);
        let mut copies = Copies::new(state.directories.len() > 1);
        let mut directories = Vec::with_capacity(state.directories.len());
        for (number, directory) in state.directories.iter().enumerate() {
            let names = kept_names((number, directory), &kept, &rng);
            let names = names.iter().map(|(name, inode)| {
                let copy = copies.copy(inode, |inode| {
                    let mut contents = crashed(inode, *name, &kept, &rng);
                    flying::land(&landed, inode, |offset, bytes| contents.live.overwrite(offset, bytes));
                    contents
                });
                (*name, copy)
            });
            directories
                .push(Directory { names: names.collect(), ..Directory::empty(directory.path.clone()) });
        }
        let capacity_bytes = state.capacity_bytes.map(|bytes| bytes.max(total_bytes(&directories)));
        MemoryDisk::with_directories(
            self.world.seed,
            directories,
            self.directory,
            capacity_bytes,
            Kernel { boot: self.world.kernel.boot + 1, ..self.world.kernel },
        )
    }

    /// A disk of its own that holds what the death of the process leaves: everything written, but what was
    /// not synced is no safer than before, so a later power cut may still take it. Of writes in flight it has
    /// what a number chooses that grows with each call. Locks and handles are gone.
    pub fn kill_image(&self) -> Arc<MemoryDisk> {
        self.kill_image_with(Keep::Random(self.ops()))
    }

    /// The same; `in_flight` says what it has of writes in flight.
    pub fn kill_image_with(&self, in_flight: Keep) -> Arc<MemoryDisk> {
        let state = self.world.state.lock();
        let rng = self.rng_of(in_flight);
        let landed = flying::landed(state.flights.writes(), &Kept::of(in_flight, &state), &rng);
        let mut copies = Copies::new(true);
        let mut copy = |inode: &Arc<Inode>| {
            copies.copy(inode, |inode| {
                let mut contents = inode.copy_contents();
                flying::land(&landed, inode, |offset, bytes| contents.write(offset, bytes));
                contents
            })
        };
        let mut directories = Vec::with_capacity(state.directories.len());
        for directory in &state.directories {
            let names = directory.names.iter().map(|(name, inode)| (*name, copy(inode))).collect();
            let changes = directory.changes.iter().map(|change| change.copied(&mut copy)).collect();
            directories.push(Directory { names, changes, ..Directory::empty(directory.path.clone()) });
        }
        MemoryDisk::with_directories(
            self.world.seed,
            directories,
            self.directory,
            state.capacity_bytes,
            self.world.kernel,
        )
    }
}

impl NameChange {
    fn copied(&self, copy: &mut impl FnMut(&Arc<Inode>) -> Arc<Inode>) -> NameChange {
        use super::ChangeKind::{Added, Removed, Renamed};
        let kind = match &self.kind {
            Added(name, inode) => Added(*name, copy(inode)),
            Renamed { from, to, inode } => Renamed { from: *from, to: *to, inode: copy(inode) },
            Removed(name) => Removed(*name),
        };
        let before = self.before.iter().map(|(name, inode)| (*name, inode.as_ref().map(&mut *copy)));
        NameChange { kind, before: before.collect() }
    }
}

/// Copies each inode once, however many names it has.
struct Copies {
    has_links: bool,
    made: HashMap<*const Inode, Arc<Inode>>,
}

impl Copies {
    fn new(has_links: bool) -> Self {
        Copies { has_links, made: HashMap::new() }
    }

    fn copy(&mut self, inode: &Arc<Inode>, contents: impl FnOnce(&Arc<Inode>) -> Contents) -> Arc<Inode> {
        if !self.has_links {
            return Inode::from_contents(contents(inode));
        }
        let made = self.made.entry(Arc::as_ptr(inode));
        made.or_insert_with(|| Inode::from_contents(contents(inode))).clone()
    }
}

fn kept_names(
    (number, directory): (usize, &Directory),
    kept: &Kept,
    rng: &SeededRng,
) -> BTreeMap<FileName, Arc<Inode>> {
    let mut names = directory.names.clone();
    if matches!(kept, Kept::Everything | Kept::AllBut(Unit::Piece(_) | Unit::Flight(_)))
        || directory.changes.is_empty()
    {
        return names;
    }
    for change in directory.changes.iter().rev() {
        for (name, before) in &change.before {
            match before {
                Some(inode) => names.insert(*name, inode.clone()),
                None => names.remove(name),
            };
        }
    }
    match kept {
        Kept::Nothing | Kept::Everything => {}
        Kept::AnySubset => {
            let chance = Chance::drawn(rng);
            for change in directory.changes.iter().filter(|_| chance.holds(rng)) {
                apply(&change.kind, &mut names);
            }
        }
        Kept::Prefix => {
            for change in &directory.changes[..drawn_below(rng, directory.changes.len() + 1)] {
                apply(&change.kind, &mut names);
            }
        }
        Kept::Only(unit) => {
            for (position, change) in directory.changes.iter().enumerate() {
                if unit.needs(number, position, change) {
                    apply(&change.kind, &mut names);
                }
            }
        }
        Kept::AllBut(unit) => {
            for (position, change) in directory.changes.iter().enumerate() {
                if !unit.is_name(number, position) {
                    apply(&change.kind, &mut names);
                }
            }
        }
    }
    names
}

/// How likely one unsynced thing is kept. All and nothing are common among real crashes, so they are here.
pub(super) struct Chance {
    eighths: u64,
}

impl Chance {
    pub(super) fn drawn(rng: &SeededRng) -> Self {
        Chance { eighths: [0, 1, 4, 4, 4, 7, 8][drawn_below(rng, 7)] }
    }

    pub(super) fn holds(&self, rng: &SeededRng) -> bool {
        rng.below(8) < self.eighths
    }
}

pub(super) fn drawn_below(rng: &SeededRng, limit: usize) -> usize {
    usize::try_from(rng.below(limit as u64)).expect("below a usize")
}

/// The file after a power cut.
fn crashed(inode: &Arc<Inode>, name: FileName, kept: &Kept, rng: &SeededRng) -> Contents {
    let live = inode.with(|contents| match kept {
        _ if contents.writes.is_empty() => contents.synced(),
        Kept::Nothing => contents.synced(),
        Kept::Everything => contents.platter_after_sync(),
        Kept::AnySubset => any_sectors(contents, rng),
        Kept::Prefix if contents.platter.is_some() => contents.synced(),
        Kept::Prefix => first_writes(contents, rng),
        Kept::Only(Unit::Piece(piece)) if Arc::ptr_eq(&piece.inode, inode) => piece.kept(contents),
        Kept::Only(_) => contents.synced(),
        Kept::AllBut(Unit::Piece(piece)) if Arc::ptr_eq(&piece.inode, inode) => piece.lost(contents),
        Kept::AllBut(_) => contents.platter_after_sync(),
    });
    Contents { name, live, writes: Vec::new(), platter: None, mapped: None, is_damaged: false }
}

/// Some first writes, and the first sectors of the one after them.
fn first_writes(contents: &Contents, rng: &SeededRng) -> Extent {
    let whole = drawn_below(rng, contents.writes.len() + 1);
    let Some(torn) = contents.writes.get(whole) else {
        return contents.live.clone();
    };
    let sectors = torn.end().div_ceil(SECTOR_BYTES) - torn.offset / SECTOR_BYTES;
    let sectors_kept = drawn_below(rng, sectors + 1);
    if sectors_kept == 0 {
        return contents.before_write(whole);
    }
    let end = torn.end().min((torn.offset / SECTOR_BYTES + sectors_kept) * SECTOR_BYTES);
    if torn.before.is_empty() {
        // It only appended: what came after is cut off with the rest.
        return contents.before_write(whole + 1).cut(end);
    }
    let after = contents.before_write(whole + 1);
    let mut bytes = contents.before_write(whole);
    bytes.change(|bytes| {
        bytes.resize(bytes.len().max(end), 0);
        bytes[torn.offset..end].copy_from_slice(&after.as_slice()[torn.offset..end]);
    });
    bytes
}

/// Each unsynced sector by itself.
fn any_sectors(contents: &Contents, rng: &SeededRng) -> Extent {
    let chance = Chance::drawn(rng);
    if chance.eighths == 8 && rng.below(2) == 0 {
        return contents.platter_after_sync();
    }
    let synced = contents.synced();
    let len = drawn_len(contents, synced.len(), rng);
    let has_stale_bytes = rng.below(2) == 0;
    let mut bytes = synced.as_slice().to_vec();
    bytes.resize(len.max(bytes.len()), 0);
    for sector in dirty_sectors(contents) {
        let range = sector * SECTOR_BYTES..((sector + 1) * SECTOR_BYTES).min(bytes.len());
        if range.is_empty() {
            break;
        }
        if !chance.holds(rng) {
            // A sector that the synced file has is on the platter; a fresh one may show what was there
            // before.
            if has_stale_bytes && range.start >= synced.len() {
                bytes[range].fill_with(|| rng.next_u64() as u8);
            }
        } else if rng.below(8) == 0 {
            let then = drawn_below(rng, contents.writes.len());
            copy_sector_before(contents, then, range, &mut bytes);
        } else {
            copy_from(contents.live.as_slice(), range, &mut bytes);
        }
    }
    Extent::new(bytes)
}

/// A length that the file may have after the crash.
fn drawn_len(contents: &Contents, synced: usize, rng: &SeededRng) -> usize {
    let live = contents.live.len();
    if live <= synced {
        return synced;
    }
    match rng.below(4) {
        0 => synced,
        // The write-back of some page carried the length with it.
        1 => ((synced + drawn_below(rng, live - synced + 1)).next_multiple_of(SECTOR_BYTES)).min(live),
        _ => live,
    }
}

fn dirty_sectors(contents: &Contents) -> Vec<usize> {
    let mut sectors = Vec::new();
    for write in &contents.writes {
        sectors.extend(write.offset / SECTOR_BYTES..write.end().div_ceil(SECTOR_BYTES));
    }
    sectors.sort_unstable();
    sectors.dedup();
    sectors
}

/// Copies what the platter would have of `range` had nothing been written from write `then` on; zeros where
/// the file was shorter.
pub(super) fn copy_sector_before(contents: &Contents, then: usize, range: Range<usize>, bytes: &mut [u8]) {
    let is_untouched = || !contents.writes[..then].iter().any(|write| write.touches(&range));
    if let Some(platter) = contents.platter.as_ref().filter(|_| is_untouched()) {
        bytes[range.clone()].fill(0);
        copy_from(platter.as_slice(), range, bytes);
        return;
    }
    copy_from(contents.live.as_slice(), range.clone(), bytes);
    for write in contents.writes[then..].iter().rev() {
        let overwritten = write.offset..write.offset + write.before.len();
        let (start, end) = (overwritten.start.max(range.start), overwritten.end.min(range.end));
        if start < end {
            bytes[start..end].copy_from_slice(&write.before[start - write.offset..end - write.offset]);
        }
        let beyond = write.len_before.clamp(range.start, range.end);
        bytes[beyond..range.end].fill(0);
    }
}

fn copy_from(from: &[u8], range: Range<usize>, bytes: &mut [u8]) {
    let end = range.end.min(from.len());
    if range.start < end {
        bytes[range.start..end].copy_from_slice(&from[range.start..end]);
    }
}
