//! How do I change several rows together, or a row depending on what it holds?
//!
//! `cargo run -p kvilt --example batches [DIRECTORY]`

use kvilt::{Db, Swap, WriteBatch};

/// Keeps users, and an index of them by city, in step.
fn add_user(db: &Db, name: &str, city: &str) -> kvilt::Result<()> {
    let by_city = db.keyspace("users-by-city")?;
    let mut batch = WriteBatch::new();
    batch.put(format!("user/{name}"), city);
    batch.put_in(&by_city, format!("{city}/{name}"), "");
    // Both rows or neither: for every reader, and after a crash.
    db.write(batch)
}

fn main() -> kvilt::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "demo-store/batches".into());
    let db = Db::open(directory)?;

    for (name, city) in [("ada", "london"), ("alan", "london"), ("emmy", "erlangen")] {
        add_user(&db, name, city)?;
    }
    for key in db.keyspace("users-by-city")?.prefix("london/").keys() {
        println!("{}", String::from_utf8_lossy(&key?));
    }

    // A counter that any number of threads may raise.
    let visits = db.update("visits", |old| {
        let old = old.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
        Some((old + 1).to_be_bytes())
    })?;
    println!("visits so far: {visits:?}");

    // A lock that one of several takers gets.
    match db.put_if_absent("lock", "me")? {
        Swap::Done => println!("the lock is mine"),
        Swap::Differs(owner) => println!("the lock belongs to {owner:?}"),
    }
    db.compare_and_swap("lock", Some(b"me"), None)?;
    db.close()
}
