//! What the façade adds: keyspaces, ranges, batches over keyspaces, limits, opening. Most of it over an
//! engine that is a plain map; `whole`, `unfinished` and others over each real one, by `engines`.
#![expect(clippy::unwrap_used, reason = "a test that fails may say where and no more")]

mod batches;
mod closing;
mod converting;
mod damage;
mod describing;
mod directories;
mod engines;
mod forked;
mod keyspaces;
mod killed;
mod kvell;
mod opening;
mod panics;
mod ranges;
mod read_only;
mod readme;
mod rows;
mod stand_in;
mod teks;
mod unfinished;
mod whole;

use std::sync::Arc;

use kvilt::{Db, Engine, even::Options};
use stand_in::StandIn;

/// The engine `even` with small chunks and logs, so that few rows make several of each.
fn small_chunks() -> Engine {
    let options =
        Options::default().chunk_bytes_max(64 << 10).chunk_bytes_rebalance(48 << 10).chunk_bytes_min(8 << 10);
    Engine::Even(options.log_bytes_max_cold(8 << 10).log_bytes_max_cached(16 << 10))
}

/// Each engine, with limits so small that few rows go all of its ways: for tests of what all of them promise.
fn engines() -> [Engine; 3] {
    [
        small_chunks(),
        Engine::Kvell(kvilt::kvell::Options::default().shards(2).queue_depth(4)),
        Engine::Teks(kvilt::teks::Options::default().row_bytes(1 << 10)),
    ]
}

/// A store over a map in memory, and the map.
fn db() -> (Db, Arc<StandIn>) {
    let engine = StandIn::new();
    (Db::over(engine.clone(), "in memory"), engine)
}

/// A store with a row for each number below `count`, keys of four digits.
fn numbered(count: usize) -> (Db, Arc<StandIn>) {
    let (db, engine) = db();
    for i in 0..count {
        db.put(format!("{i:04}"), format!("value of {i}")).unwrap();
    }
    (db, engine)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
