//! Events of many apps, written in the order of time and read an app and a minute at a time: the workload
//! that EvenDB was made for (section 5.2). Few apps make most events: of 60,000, 0.1 % make 70 % and 1 % make
//! 94 %.

use rand::{Rng, RngExt};

use crate::keys::scattered;

/// Apps.
pub const APPS: u64 = 60_000;

/// Apps that make 70 % of the events, and those that make the next 24 %.
const POPULAR: u64 = APPS / 1000;
const KNOWN: u64 = APPS / 100;

/// Events of a popular app that are looked at together, about.
const LOOKED_AT: u64 = 323;

/// Time between two events, so that a popular app has some hundred a minute.
const EVENT_MICROS: u64 = 1500;

/// Bytes of an event's key: app, time, user.
pub const EVENT_KEY_BYTES: usize = 16;

/// The app of an event, or of somebody who looks at one: its id, which says nothing about its popularity.
pub fn app(chance: &mut impl Rng) -> u32 {
    let rank = match chance.random_range(0..100) {
        0..70 => chance.random_range(0..POPULAR),
        70..94 => chance.random_range(POPULAR..KNOWN),
        _ => chance.random_range(KNOWN..APPS),
    };
    scattered(rank, APPS) as u32
}

/// One of the apps that make 70 % of the events.
pub fn popular_app(chance: &mut impl Rng) -> u32 {
    scattered(chance.random_range(0..POPULAR), APPS) as u32
}

/// The time since which a popular app has had 323 events, about, or the beginning.
pub fn some_events_before(micros: u64) -> u64 {
    micros.saturating_sub(LOOKED_AT * EVENT_MICROS * POPULAR * 100 / 70)
}

/// The time of the n-th event, in microseconds.
pub fn time_of(event: u64) -> u64 {
    event * EVENT_MICROS
}

/// A minute before, or the beginning.
pub fn minute_before(micros: u64) -> u64 {
    micros.saturating_sub(60_000_000)
}

/// The key of an event: by app, then time, then user.
pub fn event_key(app: u32, micros: u64, user: u32) -> [u8; EVENT_KEY_BYTES] {
    let mut key = [0; EVENT_KEY_BYTES];
    key[..4].copy_from_slice(&app.to_be_bytes());
    key[4..12].copy_from_slice(&micros.to_be_bytes());
    key[12..].copy_from_slice(&user.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::{SeedableRng, rngs::SmallRng};

    use super::*;

    #[test]
    fn few_apps_make_most_events() {
        let mut chance = SmallRng::seed_from_u64(3);
        let mut counts: HashMap<u32, u32> = HashMap::new();
        for _ in 0..200_000 {
            *counts.entry(app(&mut chance)).or_default() += 1;
        }
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let share = |apps: usize| f64::from(counts[..apps].iter().sum::<u32>()) / 200_000.0;
        assert!((0.68..0.72).contains(&share(60)), "{}", share(60));
        assert!((0.92..0.96).contains(&share(600)), "{}", share(600));
    }

    #[test]
    fn a_popular_app_has_had_some_hundred_events_lately() {
        let mut chance = SmallRng::seed_from_u64(3);
        let looked_at = popular_app(&mut chance);
        let now = 100_000;
        let since = some_events_before(time_of(now));
        let events = (0..now).filter(|event| app(&mut chance) == looked_at && time_of(*event) >= since);
        let count = events.count() as u64;
        assert!((LOOKED_AT - 60..LOOKED_AT + 60).contains(&count), "{count}");
    }

    #[test]
    fn keys_are_in_order_of_app_and_time() {
        assert!(event_key(1, u64::MAX, 9) < event_key(2, 0, 0));
        assert!(event_key(1, 5, 9) < event_key(1, 6, 0));
        assert_eq!(minute_before(time_of(50_000)), 15_000_000);
        assert_eq!(minute_before(5), 0);
    }
}
