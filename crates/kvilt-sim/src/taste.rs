//! `Taste`: what one script has much of: long keys, large values, or range deletes.

use crate::{
    dice::{Dice, mix},
    workload::Shape,
};

/// One script of this many has a taste that is not plain.
const TASTY_IN: usize = 3;
/// Longest value in scripts of large values, in bytes.
const LARGE_VALUE_BYTES_MAX: usize = 2 << 20;
/// Keys of a script together, where they are long, take as much as so many of the longest …
const LONG_KEYS_MAX: usize = 34;
/// … its puts of long keys about as much as so many …
const LONG_PUTS_MAX: usize = 340;
/// … and about what its large values come to.
const LARGE_PUTS_BYTES_MAX: usize = 20 << 20;
/// Where puts wait for memory all the time they come to this part.
const STARVED_PART: usize = 8;
/// No script has fewer steps than about this.
const STEPS_MIN: usize = 60;

/// Which tastes scripts have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tastes {
    /// None.
    None,
    /// Some have long keys.
    LongKeys,
    /// Some have long keys, others large values, or hundreds of range deletes.
    All,
}

/// What a script has much of, beside what all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taste {
    /// Nothing.
    Plain,
    /// Keys that share a beginning of this many bytes.
    LongKeys(usize),
    /// Values of up to this many bytes: one in eight puts has a large one.
    LargeValues(usize),
    /// Range deletes, by hundreds: whole phases of them, and the same range, empty by then, deleted again and
    /// again.
    RangeDeletes,
}

impl Taste {
    /// The taste of a seed's script. Its dice are its own, so that plain scripts stay what they were.
    pub(crate) fn of_seed(seed: u64, shape: &Shape) -> Taste {
        let mut dice = Dice::new(mix(seed ^ 0x007a_57e5));
        if shape.tastes == Tastes::None || !dice.chance(1, TASTY_IN) {
            return Taste::Plain;
        }
        if shape.tastes == Tastes::LongKeys {
            // Scripts of which every disk call is played must have few of them.
            let longest = if shape.is_starved { shape.key_bytes_max } else { shape.long_key_bytes_max };
            return Taste::LongKeys(*dice.pick(&[longest, longest / 4]));
        }
        match dice.below(3) {
            0 => Taste::LongKeys(*dice.pick(&[shape.key_bytes_max, 2 << 10, shape.long_key_bytes_max])),
            1 => Taste::LargeValues(*dice.pick(&[20 << 10, LARGE_VALUE_BYTES_MAX])),
            _ => Taste::RangeDeletes,
        }
    }

    /// The shape of a seed's script: heavy ones have fewer keys and steps.
    pub(crate) fn fit(self, shape: &Shape) -> Shape {
        let part = if shape.is_starved { STARVED_PART } else { 1 };
        let mut shape = shape.clone();
        match self {
            Taste::Plain | Taste::RangeDeletes => {}
            Taste::LongKeys(bytes) => {
                shape.keys = shape.keys.min(LONG_KEYS_MAX * shape.long_key_bytes_max / bytes);
                let puts = LONG_PUTS_MAX * shape.long_key_bytes_max / part / bytes;
                shape.steps = shape.steps.min(puts).max(STEPS_MIN);
            }
            Taste::LargeValues(bytes) => {
                shape.large_value_bytes_max = bytes;
                // Half of the steps put, and a large value has half of the most.
                shape.steps = shape.steps.min(LARGE_PUTS_BYTES_MAX / part * 32 / bytes).max(STEPS_MIN);
            }
        }
        shape
    }
}
