//! Intervals between checkpoints that come to nothing.

use super::*;

#[test]
fn checkpoints_in_vain_come_less_and_less_often_and_never_less_often_than_asked_for() {
    let half = Duration::from_millis(500);
    let of = |again| checkpoint_interval(half, again);
    assert_eq!(
        [of(0), of(1), of(2), of(3), of(9), of(u32::MAX)],
        [half, 2 * half, 4 * half, 8 * half, 8 * half, 8 * half]
    );
    let hour = Duration::from_secs(3600);
    assert_eq!(checkpoint_interval(hour, 5), hour);
}
