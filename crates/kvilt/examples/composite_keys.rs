//! How do I build keys of several parts, so that what I look up together lies together?
//!
//! Put first what you look things up by, then what you order by. Write numbers big-endian, so that bytes sort
//! like the numbers. Here: events of an app, by time, by user.
//!
//! `cargo run -p kvilt --example composite_keys [DIRECTORY]`

/// App, then time, then user: all events of one app in a span of time are one range.
fn event_key(app: u32, time_us: u64, user: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(12 + user.len());
    key.extend_from_slice(&app.to_be_bytes());
    key.extend_from_slice(&time_us.to_be_bytes());
    key.extend_from_slice(user.as_bytes());
    key
}

/// The same parts, back from the key.
fn parse_event_key(key: &[u8]) -> Option<(u32, u64, &str)> {
    let (app, rest) = key.split_first_chunk()?;
    let (time_us, user) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*app), u64::from_be_bytes(*time_us), std::str::from_utf8(user).ok()?))
}

fn main() -> kvilt::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "demo-store/composite_keys".into());
    let db = kvilt::Db::open(directory)?;

    for app in [7, 42, 300] {
        for second in 0..100u64 {
            let user = if second % 2 == 0 { "ada" } else { "bob" };
            db.put(event_key(app, second * 1_000_000, user), "click")?;
        }
    }

    // Ten seconds of one app: one range, read side by side.
    let ten_seconds = event_key(42, 20_000_000, "")..event_key(42, 30_000_000, "");
    for row in db.range(ten_seconds).limit(3) {
        let (key, value) = row?;
        let (app, time_us, user) = parse_event_key(&key).expect("only event keys are in this store");
        println!("app {app} at {time_us} µs: {} by {user}", String::from_utf8_lossy(&value));
    }

    // The newest event of an app: the last key with its prefix.
    if let Some(row) = db.prefix(42u32.to_be_bytes()).next_back() {
        println!("newest of app 42: {:?}", parse_event_key(&row?.0));
    }

    // Forgetting an app is one cheap step, however many events it has.
    db.delete_range(event_key(7, 0, "")..event_key(8, 0, ""))?;
    println!("{} events left", db.iter().keys().count());
    db.close()
}
