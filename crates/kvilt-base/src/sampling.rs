//! How far apart samples lie that are taken at equal distances.
//!
//! Samples that are a whole number of members apart meet a pattern that repeats always at the same place: of
//! keys with two versions each the newer one, of events that each come with a counter the counter. An
//! estimate from them is wrong by half, however often it is made. So distances are a whole number and a
//! fraction, whose multiples lie evenly between whole numbers.

/// The fraction: the golden ratio's, in units of 2^-20.
const FRACTION: u128 = 648_055;

/// The weight between two samples, where about `wanted` are taken of `members` that weigh `weight` together:
/// up to two thirds more or a third fewer. Where there are no more than that, each gets one, or about as many
/// as it is heavier. At least 1; `weight` is at most 2^80.
pub fn step(wanted: u64, members: u64, weight: u128) -> u128 {
    let wanted = wanted.max(1);
    let step = match members / wanted {
        0 => weight / u128::from(wanted),
        whole => (weight * ((u128::from(whole) << 20) + FRACTION) / u128::from(members)) >> 20,
    };
    step.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_its_share_of_the_samples() {
        for period in 2..=16 {
            for members in [128u64, 640, 641, 1_024, 10_000, 640_000] {
                let step = step(64, members, u128::from(members) * 100);
                let places = (0..).map(|number| step / 2 + number * step);
                let places: Vec<u128> = places.take_while(|&at| at < u128::from(members) * 100).collect();
                let count = places.len() as f64;
                assert!((38.0..=80.0).contains(&count), "{count} samples of {members}");
                let hits = places.iter().filter(|&at| (at / 100).is_multiple_of(period)).count() as f64;
                let error = (hits / count - 1.0 / period as f64).abs();
                assert!(error < 0.08, "{hits} of {count} meet one in {period}, of {members}");
            }
        }
    }

    #[test]
    fn few_members_are_all_met() {
        assert_eq!(step(64, 10, 1_000), 15);
        assert_eq!(step(64, 0, 0), 1);
        assert_eq!(step(0, 4, 400), 461, "of four, one or two are wanted at least");
    }
}
