//! Inputs to begin with: files that the engine itself wrote, and scripts by dice.

use std::collections::BTreeMap;

use kvilt_base::FileName;
use kvilt_format::{
    FileIdentity,
    names::{COMMIT, LOG, MANIFEST, TABLE},
};

use super::{
    directory::push_file,
    mend::{IDENTITY, Kind, mend, mend_as},
};
use crate::{
    even::EVEN, fuzzing::operations::SEEDS_MAX, run::Player, subject::Tested, workload::Shape, world::World,
};

/// Stores that seeds are taken from: asynchronous and synchronous ones, packed and not.
const STORES: std::ops::Range<u64> = 0..36;

/// The files of a store in the middle of a script.
fn files(seed: u64) -> BTreeMap<FileName, Vec<u8>> {
    let subject = EVEN.of_seed(seed);
    let world = World::fresh(seed);
    let script = Shape::crash().on(&*subject).script(seed);
    let mut player = Player::new(&*subject, &world, &script, Default::default());
    let played = player.open().is_ok()
        && (0..script.steps.len() * 3 / 4).all(|position| player.play(position).is_ok())
        && player.engine().sync().is_ok();
    let files = world.memory().map(|memory| memory.snapshot()).unwrap_or_default();
    player.abandon();
    assert!(played, "a script of the crash tests plays without a crash");
    files
}

fn of_kind(kind: Kind) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (name, mut bytes) in STORES.flat_map(files) {
        let is_kind = match name {
            FileName::Of(LOG, _) => kind == Kind::Log,
            FileName::Of(COMMIT, _) => kind == Kind::Commit,
            FileName::Of(TABLE, _) => kind == Kind::Table,
            FileName::Of(MANIFEST, _) => kind == Kind::Manifest,
            _ => false,
        };
        if is_kind && bytes.len() > 64 && bytes.len() <= file_bytes_max(kind) {
            mend(kind, &mut bytes);
            bytes.insert(0, 0);
            seeds.push(bytes);
        }
    }
    thinned(seeds)
}

/// Longest file that becomes an input, which has a byte before it, of the target for its kind.
fn file_bytes_max(kind: Kind) -> usize {
    match kind {
        Kind::Table => 3000,
        Kind::Log | Kind::Commit | Kind::Manifest => 2047,
    }
}

/// Some of them, evenly chosen by length.
fn thinned(mut seeds: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    seeds.sort_by_key(Vec::len);
    let step = seeds.len().div_ceil(SEEDS_MAX).max(1);
    seeds.into_iter().step_by(step).collect()
}

pub(super) fn logs() -> Vec<Vec<u8>> {
    of_kind(Kind::Log)
}

pub(super) fn commits() -> Vec<Vec<u8>> {
    of_kind(Kind::Commit)
}

pub(super) fn tables() -> Vec<Vec<u8>> {
    of_kind(Kind::Table)
}

pub(super) fn manifests() -> Vec<Vec<u8>> {
    of_kind(Kind::Manifest)
}

pub(super) fn directories() -> Vec<Vec<u8>> {
    let input = |seed: u64| {
        let mut input = vec![if seed.is_multiple_of(2) { 0 } else { 2 }];
        for (name, mut bytes) in files(seed) {
            let kind = match name {
                FileName::Of(LOG, _) => Kind::Log,
                FileName::Of(COMMIT, _) => Kind::Commit,
                FileName::Of(TABLE, _) => Kind::Table,
                FileName::Of(MANIFEST, _) => Kind::Manifest,
                _ => continue,
            };
            mend_as(kind, &mut bytes, FileIdentity { number: name.number(), ..IDENTITY });
            push_file(&mut input, name, &bytes)?;
        }
        (input.len() <= 32 << 10).then_some(input)
    };
    thinned(STORES.filter_map(input).collect())
}
