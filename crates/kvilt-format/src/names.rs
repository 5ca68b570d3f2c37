//! The kinds of files that this crate encodes, and their names.

use kvilt_base::{FileName, disk::FileKind};

/// The list of live files, see `docs/format/manifest.md`.
pub const MANIFEST: FileKind = FileKind::new("manifest");
/// A manifest under construction; renamed when complete.
pub const MANIFEST_TEMP: FileKind = FileKind::new("manifest.tmp");
/// A sorted table, see `docs/format/table.md`: read by single blocks.
pub const TABLE: FileKind = FileKind::read_at_random("table");
/// A chunk's log, see `docs/format/log.md`: read by single records.
pub const LOG: FileKind = FileKind::read_at_random("log");
/// The commit log, see `docs/format/commit.md`.
pub const COMMIT: FileKind = FileKind::new("commit");

/// A segment of the redo log of a log-structured store, see `docs/format/redo.md`.
pub const REDO: FileKind = FileKind::new("redo");

/// The catalogue of a log-structured store, see `docs/format/levels.md`.
pub const LEVELS: FileKind = FileKind::new("levels");

/// All of a log-structured store.
pub const LEVEL_KINDS: &[FileKind] = &[LEVELS, TABLE, REDO];

/// Changes of structure since a checkpoint, see `docs/format/journal.md`.
pub const JOURNAL: FileKind = FileKind::new("journal");

/// Write buffers that outlive the process, see `docs/format/pool.md`.
pub const POOL: FileKind = FileKind::new("pool");

const WITNESS_KIND: FileKind = FileKind::new("WITNESS");
const RESERVE_KIND: FileKind = FileKind::new("RESERVE");

/// What of the manifest is known to be synced, see `docs/format/witness.md`.
pub const WITNESS: FileName = FileName::Once(WITNESS_KIND);
/// Room kept back for a full disk; its bytes mean nothing, see `docs/design/0024-reserve.md`.
pub const RESERVE: FileName = FileName::Once(RESERVE_KIND);

/// Items of one shard and one size class, see `docs/format/slab.md`: whole pages, past the page cache.
pub const SLAB: FileKind = FileKind::direct("slab");
/// Which slots of a shard's slabs are occupied, see `docs/format/occupancy-map.md`: whole pages, too.
pub const MAP: FileKind = FileKind::direct("map");
/// A shard's index as a clean close leaves it, see `docs/format/index-snapshot.md`.
pub const SNAPSHOT: FileKind = FileKind::new("index");

const ROOT_KIND: FileKind = FileKind::new("ROOT");

/// What a store of slabs is, see `docs/format/root.md`.
pub const ROOT: FileName = FileName::Once(ROOT_KIND);

/// All of a store of slabs.
pub const SLAB_KINDS: &[FileKind] = &[SLAB, MAP, SNAPSHOT, ROOT_KIND];

/// All of a store of chunks.
pub const KINDS: &[FileKind] =
    &[MANIFEST, MANIFEST_TEMP, TABLE, LOG, COMMIT, JOURNAL, POOL, WITNESS_KIND, RESERVE_KIND];
