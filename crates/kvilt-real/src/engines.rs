//! The engines under test, and all that this program knows of each.
//!
//! The command line chooses one for the whole process, which hands the choice on to those that it starts.

use std::{path::Path, process::Command, sync::OnceLock};

use kvilt::{Builder, Db, Engine, Stats};

use crate::level::Level;

/// An engine under test.
#[derive(Debug)]
pub(crate) struct UnderTest {
    /// Its name, as its descriptor has it.
    pub(crate) name: &'static str,
    /// Its levels of durability, in the order of cycles.
    pub(crate) levels: &'static [Level],
    /// With settings as users have them.
    usual: fn() -> Engine,
    /// With limits so tiny that a few hundred rows go every path.
    tiny: fn() -> Engine,
    /// How many parts a store has that an open may have to look at one by one.
    pub(crate) parts_now: fn(&Stats) -> u64,
    /// Bytes that were written again, beside logs.
    pub(crate) rewritten_bytes: fn(&Stats) -> u64,
    /// What a directory may hold beyond a multiple of its rows, in bytes.
    pub(crate) spare_bytes: u64,
    /// Bytes of a disk that is soon full, and has room for an empty store and some rows.
    pub(crate) small_disk_bytes: u64,
    /// The same of a store with the usual memory, whatever the machine has.
    pub(crate) usual_disk_bytes: u64,
    /// Whether a store of a few hundred rows has hundreds of files.
    pub(crate) has_many_files: bool,
    /// Whether the files of an open store, copied, are a store: else they are refused.
    pub(crate) may_be_copied_open: bool,
    /// Whether an open can do without a file with this ending, whatever stands in its place.
    pub(crate) is_dispensable: fn(&str) -> bool,
}

/// All of them; the first is the one that is tested if none is named.
pub(crate) const ALL: &[UnderTest] = &[EVEN, KVELL, TEKS];

const EVEN: UnderTest = UnderTest {
    name: "even",
    levels: &[Level::Async, Level::Sync],
    usual: Engine::default,
    tiny: || {
        // A chunk is 4 KiB, so a few hundred rows are split, coalesced, rewritten, loaded and evicted.
        let options = kvilt::even::Options::default()
            .chunk_bytes_max(4 << 10)
            .chunk_bytes_rebalance(3 << 10)
            .chunk_bytes_min(512)
            .log_bytes_max_cold(1 << 10)
            .log_bytes_max_cached(4 << 10)
            .block_bytes(256);
        Engine::Even(options)
    },
    parts_now: |stats| stats["chunks_now"],
    rewritten_bytes: |stats| stats["table_bytes_written"],
    // Manifest, commit log, logs and tables that are about to be replaced.
    spare_bytes: 512 << 10,
    small_disk_bytes: 256 << 10,
    usual_disk_bytes: 256 << 10,
    has_many_files: true,
    may_be_copied_open: true,
    is_dispensable: |_| false,
};

const KVELL: UnderTest = UnderTest {
    name: "kvell",
    levels: &[Level::Async, Level::Sync],
    usual: || Engine::Kvell(kvilt::kvell::Options::default()),
    // Slots are taken, waited for and used again by a few hundred rows anyway; a short queue makes writers
    // wait for each other.
    tiny: || Engine::Kvell(kvilt::kvell::Options::default().shards(2).queue_depth(4)),
    parts_now: |stats| stats["shards_now"],
    rewritten_bytes: |_| 0,
    // A slab is made longer by 64 KiB or more; each of two shards has one for each length of rows.
    spare_bytes: 16 << 20,
    // Each of two shards has a map of more than 100 KiB, and slabs of 64 KiB or more.
    small_disk_bytes: 2 << 20,
    usual_disk_bytes: 2 << 20,
    // One for each shard and length of rows.
    has_many_files: false,
    // Nothing tells of which moment a file is.
    may_be_copied_open: false,
    // The slabs have all that is in an index snapshot.
    is_dispensable: |ending| ending == "index",
};

const TEKS: UnderTest = UnderTest {
    name: "teks",
    levels: &[Level::Async, Level::Sync],
    usual: || Engine::Teks(kvilt::teks::Options::default()),
    // A memory table is small by the budget, and with few slots it is full even sooner.
    tiny: || Engine::Teks(kvilt::teks::Options::default().row_bytes(1 << 10)),
    parts_now: |stats| stats["sorted_tables_now"],
    rewritten_bytes: |stats| stats.bytes_written.saturating_sub(stats.user_bytes),
    // The redo log keeps some segments for later, and a merge what it reads until its output counts.
    spare_bytes: 16 << 20,
    // Segments of the redo log have 64 KiB or more, by the budget, and some are kept for later.
    small_disk_bytes: 2 << 20,
    // The same with the longest segments, of 8 MiB.
    usual_disk_bytes: 64 << 20,
    // Of some KiB each until they are merged.
    has_many_files: false,
    // A sync marks in the redo log how far it has come: what is behind the last mark counts where it died.
    may_be_copied_open: true,
    is_dispensable: |_| false,
};

static CHOSEN: OnceLock<&UnderTest> = OnceLock::new();

/// The engine of this name, or an error that names those there are.
pub(crate) fn named(name: &str) -> Result<&'static UnderTest, String> {
    ALL.iter().find(|engine| engine.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|engine| engine.name).collect();
        format!("there is no engine {name:?}; there are: {}", names.join(", "))
    })
}

/// Chooses the engine of this process; the first choice stays.
pub(crate) fn choose(engine: &'static UnderTest) {
    CHOSEN.get_or_init(|| engine);
}

/// The engine of this process.
pub(crate) fn chosen() -> &'static UnderTest {
    CHOSEN.get_or_init(|| &ALL[0])
}

/// Has a process of this program test the same engine.
pub(crate) fn tell(command: &mut Command) {
    command.args(["--engine", chosen().name]);
}

/// A store of the chosen engine, with settings as users have them.
pub(crate) fn usual_store(dir: impl AsRef<Path>) -> Builder {
    Db::builder(dir).engine((chosen().usual)())
}

/// A store of the chosen engine, with tiny limits.
pub(crate) fn tiny_store(dir: impl AsRef<Path>) -> Builder {
    Db::builder(dir).engine((chosen().tiny)())
}
