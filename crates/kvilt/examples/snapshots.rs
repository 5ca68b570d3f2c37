//! How do I read several things that belong to one moment, while others write?
//!
//! `cargo run -p kvilt --example snapshots [DIRECTORY]`

fn sum(rows: kvilt::Range) -> kvilt::Result<u64> {
    let mut sum = 0;
    for row in rows {
        let (_, value) = row?;
        sum += String::from_utf8_lossy(&value).parse::<u64>().unwrap_or(0);
    }
    Ok(sum)
}

fn main() -> kvilt::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "demo-store/snapshots".into());
    let db = kvilt::Db::open(directory)?;
    for account in 0..100 {
        db.put(format!("account/{account:03}"), "100")?;
    }

    // All of these read the same moment, whatever happens behind it.
    let midnight = db.snapshot();
    std::thread::scope(|scope| {
        let reader = {
            let midnight = midnight.clone();
            scope.spawn(move || sum(midnight.prefix("account/")))
        };
        for account in 0..100 {
            db.put(format!("account/{account:03}"), "0")?;
        }
        let at_midnight = reader.join().expect("the reader does not panic")?;
        println!("at midnight there was {at_midnight}, now there is {}", sum(db.prefix("account/"))?);
        assert_eq!(at_midnight, 10_000);
        kvilt::Result::Ok(())
    })?;
    println!("account 7 had {:?} and has {:?}", midnight.get("account/007")?, db.get("account/007")?);

    // While a snapshot is open, old versions behind it are kept: drop it when it has served.
    drop(midnight);
    db.close()
}
