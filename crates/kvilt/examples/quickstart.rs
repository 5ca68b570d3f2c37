//! The first five minutes: open, put, get, scan, delete, close.
//!
//! `cargo run -p kvilt --example quickstart [DIRECTORY]`

fn main() -> kvilt::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "demo-store/quickstart".into());
    let db = kvilt::Db::open(&directory)?;

    db.put("fruit/apple", "red")?;
    db.put("fruit/banana", "yellow")?;
    db.put("nut/hazel", "brown")?;

    if let Some(colour) = db.get("fruit/apple")? {
        println!("an apple is {}", String::from_utf8_lossy(&colour));
    }
    for row in db.prefix("fruit/") {
        let (key, value) = row?;
        println!("{} = {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }

    db.delete("nut/hazel")?;
    println!("{} rows in {directory}", db.iter().keys().count());

    // Dropping the last handle closes too; `close` tells of an error.
    db.close()
}
