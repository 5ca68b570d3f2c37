//! What the façade adds: keyspaces, ranges, batches over keyspaces, limits, opening. Most of it over an engine
//! that is a plain map; `opening` and `whole` over the real one.
#![expect(clippy::unwrap_used, reason = "a test that fails may say where and no more")]

mod batches;
mod closing;
mod damage;
mod describing;
mod forked;
mod keyspaces;
mod opening;
mod panics;
mod ranges;
mod read_only;
mod readme;
mod rows;
mod stand_in;
mod unfinished;
mod whole;

use std::sync::Arc;

use kvilt::Db;
use stand_in::StandIn;

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
