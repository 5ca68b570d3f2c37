//! Gets from memory, for a look at what they ask of the system: nothing.
//!
//! `strace -f -c cargo run --release -p kvilt --example memory_gets -- DIR GETS`, once with 0 and once with a
//! million gets: the calls are the same but for what background workers do while time passes. The directory
//! must not exist; it is left behind.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock itself")]

use std::time::Instant;

use kvilt::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let directory = arguments.get(1).ok_or("which directory?")?;
    let gets: u64 = arguments.get(2).ok_or("how many gets?")?.parse()?;
    let db = Db::open(directory)?;
    const ROWS: u64 = 10_000;
    for n in 0..ROWS {
        db.put(format!("key{n:011}"), [n as u8; 800])?;
    }
    let keys: Vec<String> = (0..ROWS).map(|n| format!("key{:011}", n * 7919 % ROWS)).collect();
    let begun = Instant::now();
    let mut found = 0u64;
    for n in 0..gets {
        found += u64::from(db.get_with(&keys[(n % ROWS) as usize], |value| value.len())?.is_some());
    }
    let ns = begun.elapsed().as_nanos() as f64 / gets.max(1) as f64;
    let stats = db.stats();
    println!("{found} of {gets} gets found, {} from munks, {ns:.0} ns each", stats["gets_from_munk"]);
    Ok(())
}
